import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Database from "libsql";
import { beforeEach, expect, test } from "vitest";

import { hapax, type World } from "../../test/kits/cli-harness.ts";
import { sqliteLedger } from "../toolkit/ledgers/sqlite.ts";
import { createSagas, defineSaga } from "../toolkit/saga.ts";

let file: string;
let isDown: boolean;
let log: string[];

const retry = { attemptsMax: 1 };
const checkout = defineSaga<string>("checkout")
  .call("charge", { run: () => "r1", undo: () => void log.push("refund"), retry })
  .pivot("confirm", { kind: "call", run: () => "yes", retry })
  .call("ship", {
    run: ({ input }) => {
      if (isDown) throw new Error(`no route to\u001b ${input}`);
      log.push("ship");
      return "parcel 1";
    },
    retry,
  });
const nap = defineSaga<string>("nap").sleep("rest", 3_600_000);

/** As the application does. */
async function work(): Promise<void> {
  const ledger = sqliteLedger(() => new Database(file));
  await ledger.migrate();
  const sagas = createSagas(ledger, [checkout, nap]);
  const { isDuplicate } = await ledger.transaction((tx) =>
    sagas.in(tx).start(checkout, { scope: "shop", key: "order 1" }, "Rome"),
  );
  if (!isDuplicate)
    await ledger.transaction((tx) => sagas.in(tx).start(nap, { scope: "*", key: "one" }, ""));
  await sagas.runDue();
  ledger.close();
}

beforeEach(async () => {
  file = join(mkdtempSync(join(tmpdir(), "hapax-cli-saga-")), "shop.db");
  isDown = true;
  log = [];
  await work();
});

const run = (words: readonly string[], world: World = {}) =>
  hapax(["saga", ...words, "--database", file], { env: { USER: "ann" }, ...world });
const ORDER = ["checkout", "order 1", "--scope", "shop"];

test("saga list shows states and reasons, as a table and as JSON", async () => {
  const table = await run(["list"]);
  expect(table).toMatchObject({ code: 0, stderr: "" });
  const [header, first, second] = table.stdout.split("\n");
  expect(header).toMatch(/^SAGA +SCOPE +KEY +STATE +AGE +WHY$/);
  expect(first).toMatch(
    /^checkout +shop +order 1 +stuck +\d+\.\d s +exhausted: ship: no route to\\x1b Rome$/,
  );
  expect(second).toMatch(/^nap +\* +one +sleeping +\d+\.\d s +waits for sleep$/);
  const stuck = await run(["list", "--state", "stuck", "--json"]);
  expect(JSON.parse(stuck.stdout)).toMatchObject({ saga: "checkout", state: "stuck" });
  expect((await run(["list", "--saga", "none"])).stderr).toBe("no sagas\n");
});

test("saga show prints the time line of one saga", async () => {
  const shown = await run(["show", ...ORDER]);
  expect(shown.code).toBe(0);
  expect(shown.stdout).toMatch(/state +stuck/);
  expect(shown.stdout).toMatch(/ship +open +1 +Error: no route/);
  const times = [...shown.stdout.matchAll(/^\+\d+\.\d s +([a-z ]+?) {2,}/gm)].map(
    ([, what]) => what,
  );
  expect(times).toEqual(["started", "began", "done", "began", "done", "began", "failed", "stuck"]);
  expect(await run(["show", "checkout", "order 2"])).toMatchObject({ code: 4 });
});

test("saga retry lets the application go on, and the act is in the history", async () => {
  isDown = false;
  const told = await run(["retry", ...ORDER, "--note", "carrier is back"]);
  expect(told).toMatchObject({
    code: 0,
    stdout: "retried checkout order 1 of shop: it is running\n",
  });
  await work();
  expect(log).toEqual(["ship"]);
  const shown = JSON.parse((await run(["show", ...ORDER, "--json"])).stdout) as {
    readonly state: string;
    readonly history: readonly object[];
  };
  expect(shown.state).toBe("completed");
  expect(shown.history).toContainEqual(
    expect.objectContaining({ what: "retry", by: "ann", note: "carrier is back" }),
  );
});

test("saga skip takes a result, and saga finish ends it as it is", async () => {
  const wrong = await run([
    "skip",
    ...ORDER.slice(0, 2),
    "ship",
    ...ORDER.slice(2),
    "--result",
    "{",
  ]);
  expect(wrong).toMatchObject({ code: 2 });
  const skipped = await run([
    ...["skip", "checkout", "order 1", "ship", "--scope", "shop"],
    ...["--result", '"by hand"', "--by", "bob"],
  ]);
  expect(skipped.stdout).toBe("skipped ship of checkout order 1 of shop: it is running\n");
  await work();
  expect(JSON.parse((await run(["show", ...ORDER, "--json"])).stdout)).toMatchObject({
    state: "completed",
  });
  const refused = await run(["finish", ...ORDER, "--yes"]);
  expect(refused).toMatchObject({ code: 1 });
  expect(refused.stderr).toContain("act_refused");
});

test("saga abort is refused after the pivot, and asks a person first", async () => {
  const refused = await run(["abort", ...ORDER]);
  expect(refused.stderr).toContain("past its pivot");
  const questions: string[] = [];
  const asked = await run(["abort", "nap", "one"], {
    isTerminal: true,
    answer: "n",
    onQuestion: (question) => questions.push(question),
  });
  expect(questions.join("")).toContain("Undo nap one?");
  expect(asked.code).toBe(1);
  expect((await run(["abort", "nap", "one"])).stdout).toContain("it is undoing");
  await work();
  expect(JSON.parse((await run(["list", "--saga", "nap", "--json"])).stdout)).toMatchObject({
    state: "undone",
    cause: { message: "by ann" },
  });
});

test.each([
  [["lst"], "did you mean list?"],
  [["show", "checkout"], "usage: hapax saga show <saga> <key>"],
  [["list", "--note", "x"], "--note is for saga"],
  [["list", "--state", "lost"], "--state is"],
])("saga refuses %j", async (words, message) => {
  const result = await run(words);
  expect(result.code).toBe(2);
  expect(result.stderr).toContain(message);
});

test("saga needs to know who acts, and which database", async () => {
  expect((await run(["retry", ...ORDER], { env: {} })).stderr).toContain("--by <name>");
  expect((await hapax(["saga", "list"])).stderr).toContain("saga needs --database");
});
