import { existsSync, mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Database from "libsql";
import { beforeEach, expect, test } from "vitest";

import { hapax, type World } from "../../test/kits/cli-harness.ts";
import { sqliteLedger } from "../toolkit/ledgers/sqlite.ts";
import { createOutbox, createRelay, functionPublisher } from "../toolkit/outbox.ts";
import { openOutboxDatabase } from "./outbox-database.ts";

let folder: string;
let file: string;
let broken: Set<string>;
let published: string[];
beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), "hapax-cli-outbox-"));
  file = join(folder, "shop.db");
  broken = new Set(["a", "b"]);
  published = [];
  const connection = new Database(file);
  const ledger = sqliteLedger(() => connection);
  await ledger.migrate();
  const outbox = createOutbox(ledger);
  await ledger.transaction((tx) =>
    outbox.addAll(tx, [
      { topic: "mail", key: "a", payload: { n: 1 }, headers: { traceparent: "00-1-2-01" } },
      { topic: "mail", key: "b", payload: Uint8Array.of(1, 255) },
      { topic: "mail", key: "a", payload: { n: 2 } },
      { topic: "mail", key: "c", payload: { n: 3 } },
    ]),
  );
  connection.close();
  await relay();
});

/** As the application does: events of broken keys fail, and are given up at once. */
async function relay(): Promise<void> {
  const connection = new Database(file);
  const publisher = functionPublisher(async ({ id, key }) => {
    if (broken.has(key ?? "")) throw new TypeError(`no route to\u001b ${key === "a" ? "A" : "B"}`);
    published.push(id);
  });
  await createRelay(
    sqliteLedger(() => connection),
    publisher,
    { retry: { attemptsMax: 1 } },
  ).runOnce();
  connection.close();
}

const run = (words: readonly string[], world: World = {}) =>
  hapax(["outbox", ...words, "--database", file], world);

const letters = (action: string, words: readonly string[] = [], world: World = {}) =>
  hapax(["dead-letters", action, `outbox:${file}`, ...words], world);

const jsonOf = (text: string): readonly Readonly<Record<string, unknown>>[] =>
  text
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as Readonly<Record<string, unknown>>);

test("dead-letters of an outbox lists what was given up, as a table and as JSON with its payload", async () => {
  const table = await letters("list");
  expect(table).toMatchObject({ code: 0, stderr: "" });
  const [header, first] = table.stdout.split("\n");
  expect(header).toMatch(/^ID +FROM +KEY +ATTEMPTS +AT +FINGERPRINT +REASON$/);
  expect(first).toMatch(
    /^1 +mail +a +1 +20\d\d-\S+Z +[0-9a-f]{16} +TypeError: no route to\\x1b A$/,
  );
  const lines = jsonOf((await letters("list", ["--json"])).stdout);
  expect(lines).toMatchObject([
    {
      relay: "relay",
      id: "1",
      key: "a",
      headers: { traceparent: "00-1-2-01" },
      record: '{"n":1}',
    },
    { id: "2", key: "b", base64: "Af8=" },
  ]);
  expect((await letters("list", ["--key", "b"])).stdout).not.toContain(" a ");
  expect(jsonOf((await letters("list", ["2", "--json"])).stdout)).toHaveLength(1);
  expect((await letters("list", ["--max", "1"])).stderr).toBe(
    "the first 1 dead letter; --max shows more\n",
  );
  expect((await letters("list", ["--relay", "other"])).stderr).toBe(
    "no dead letters of relay other\n",
  );
});

test("outbox status says how far relays are, and which failures there are", async () => {
  const { stdout } = await run(["status"]);
  expect(stdout).toMatch(/^RELAY +LAG +WAITING +DEAD +KEPT BY SLOT\nrelay +0\.0 s +1 +2\n/);
  expect(stdout).toMatch(/\n\nRELAY +FINGERPRINT +DEAD +REASON\nrelay +[0-9a-f]{16} +1 +TypeError/);
  expect(jsonOf((await run(["status", "--json"])).stdout)).toMatchObject([
    { relay: "relay", lagSeconds: 0, waiting: 1, dead: 2, reasons: [{ count: 1 }, { count: 1 }] },
  ]);
  expect(jsonOf((await run(["status", "--relay", "x", "--json"])).stdout)).toEqual([
    { relay: "x", waiting: 0, dead: 0, reasons: [] },
  ]);
});

test("dead-letters of an outbox replays what is named, and the relay goes on with the key in its order", async () => {
  broken.clear();
  const [letter] = jsonOf((await letters("list", ["--json"])).stdout);
  const reason = letter?.["reason"] as { readonly fingerprint: string } | undefined;
  const words = ["--fingerprint", reason?.fingerprint ?? ""];
  expect(await letters("replay", words)).toMatchObject({
    code: 0,
    stdout: "replayed 1 dead letter of relay relay\n",
  });
  expect((await letters("replay", words)).stdout).toBe("replayed 0 dead letters of relay relay\n");
  await relay();
  expect(published).toEqual(["4", "1", "3"]);
  expect((await letters("replay", ["--all", "--json"])).stdout).toBe(
    '{"source":"relay relay","replayed":1}\n',
  );
  await relay();
  expect(published).toEqual(["4", "1", "3", "2"]);
});

test("dead-letters of an outbox discards what is named, and asks a person first", async () => {
  let question = "";
  const asked = { isTerminal: true, onQuestion: (text: string) => (question = text) };
  const refused = await letters("discard", ["--key", "a"], { ...asked, answer: "n" });
  expect(refused).toMatchObject({ code: 1, stdout: "" });
  expect(question).toContain(
    "Discard 1 dead letter of relay relay?\nThey will never be published.",
  );
  expect(await letters("discard", ["1", "77", "--json"])).toMatchObject({
    code: 0,
    stdout: '{"source":"relay relay","discarded":1}\n',
  });
  await relay(); // The next event of the key is tried now, and given up.
  const unasked = await letters("discard", ["--all", "--yes"], { ...asked, answer: "n" });
  expect(unasked.stdout).toContain("2 dead letters of relay relay");
  expect((await letters("discard", ["--all"], asked)).stdout).toContain("0 dead letters");
  expect(published).toEqual(["4"]);
});

test("outbox forgets a relay, and asks a person first", async () => {
  let question = "";
  const asked = { isTerminal: true, onQuestion: (text: string) => (question = text) };
  const words = ["forget", "--relay", "relay"];
  const refused = await run(words, { ...asked, answer: "n" });
  expect(refused).toMatchObject({ code: 1, stderr: expect.stringContaining("not forgotten") });
  expect(question).toContain("It has 3 held events: kept.");
  expect((await run(words, { ...asked, answer: "y" })).stdout).toContain(
    " relay relay; 3 held events kept\n",
  );
  expect(jsonOf((await run([...words, "--discard-held", "--json"])).stdout)).toEqual([
    { relay: "relay", isFound: true, heldKept: 0, heldDiscarded: 3, isUnfinished: false },
  ]);
  expect((await run(words)).stdout).toBe("forgot relay relay; there was none\n");
  const connection = new Database(file);
  const past = "julianday('now') - 2440587.5) * 86400000";
  await relay();
  connection.exec(
    `UPDATE hapax_entries SET state = 'running', lease_until = (${past} + 60000 WHERE key = 'relay'`,
  );
  connection.close();
  expect(await run(words)).toMatchObject({
    code: 1,
    stderr: expect.stringContaining("in_progress"),
  });
});

test("outbox says what is missing or contradicts itself", async () => {
  for (const [words, message] of [
    [["show"], 'does not know "show"'],
    [["list"], "hapax dead-letters list outbox:<database>"],
    [["status", "--yes"], "--yes is for outbox forget"],
    [["forget"], "forget needs --relay"],
    [["status", "--discard-held"], "--discard-held is for outbox forget"],
    [["status", "--schema", "s"], "--schema is for PostgreSQL"],
  ] as const) {
    expect(await run(words)).toMatchObject({ code: 2, stderr: expect.stringContaining(message) });
  }
  const unnamed = await hapax(["outbox", "status"]);
  expect(unnamed).toMatchObject({ code: 2, stderr: expect.stringContaining("needs --database") });
  const byEnv = await hapax(["outbox", "status"], { env: { HAPAX_DATABASE: file } });
  expect(byEnv.stdout).toContain("no route");
});

test("dead-letters of an outbox says what is missing or contradicts itself", async () => {
  for (const [action, words, message] of [
    ["replay", [], "replay needs ids, --key, --fingerprint, or --all"],
    ["discard", ["--all", "--key", "a"], "exclude each other"],
    ["list", ["--all"], "--all is for dead-letters replay, discard"],
    ["replay", ["--all", "--yes"], "--yes is for dead-letters discard"],
    ["replay", ["--all", "--to", "x"], "--to is for the dead letters of a stream"],
    ["list", ["--url", "http://a"], "--url is for the dead letters of a stream"],
    ["list", ["--max", "0"], "a whole number from 1"],
    ["list", ["--schema", "s"], "--schema is for PostgreSQL"],
  ] as const) {
    expect(await letters(action, words)).toMatchObject({
      code: 2,
      stderr: expect.stringContaining(message),
    });
  }
  const unnamed = await hapax(["dead-letters", "list", "outbox:"]);
  expect(unnamed).toMatchObject({ code: 2, stderr: expect.stringContaining("HAPAX_DATABASE") });
  const byEnv = await hapax(["dead-letters", "list", "outbox:"], { env: { HAPAX_DATABASE: file } });
  expect(byEnv.stdout).toContain("no route");
  expect((await letters("list", ["--relay", "no name"])).code).toBe(1);
});

test("outbox makes no database, and tells what is none", async () => {
  const missing = join(folder, "missing.db");
  const at = (path: string) => hapax(["dead-letters", "list", `outbox:${path}`]);
  expect((await hapax(["outbox", "status", "--database", missing])).code).toBe(4);
  expect(await at(missing)).toMatchObject({ code: 4, stderr: expect.stringContaining("ENOENT") });
  expect(existsSync(missing)).toBe(false);
  const empty = join(folder, "empty.db");
  new Database(empty).exec("CREATE TABLE orders (id INTEGER)");
  expect(await at(empty)).toMatchObject({
    code: 4,
    stderr: expect.stringContaining(`there is no outbox in ${empty}`),
  });
  const other = join(folder, "letter.txt");
  writeFileSync(
    other,
    "Dear reader, this is not a database, and long enough to be sure. ".repeat(99),
  );
  expect(await at(other)).toMatchObject({ code: 1, stderr: expect.stringContaining("database") });
  expect(await at(folder)).toMatchObject({
    code: 2,
    stderr: expect.stringContaining("not a file"),
  });
  expect((await at("mysql://localhost/shop")).code).toBe(2);
});

test("outbox says which driver to install, and hides the password of a database that is not there", async () => {
  const url = "postgres://shop:secret@127.0.0.1:9/shop";
  const options = { directory: folder, schema: undefined };
  await expect(openOutboxDatabase(url, options)).rejects.toMatchObject({
    exitCode: 2,
    advice: [expect.stringContaining("npm install pg, or npm install postgres")],
  });
  const unreachable = await hapax(["dead-letters", "list", `outbox:${url}`]);
  expect(unreachable).toMatchObject({ code: 3, stderr: expect.stringContaining("ECONNREFUSED") });
  expect(unreachable.stderr).not.toContain("secret");
});
