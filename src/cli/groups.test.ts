import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";

import { hapax, startServer, stopServers } from "../../test/kits/cli-harness.ts";
import { type NodeServer, startNodeServer } from "../streams/runtimes/node.ts";

let server: NodeServer;
let env: Readonly<Record<string, string>>;

beforeAll(async () => {
  server = await startNodeServer({ store: "memory", port: 0, onAudit: () => undefined });
  env = { HAPAX_URL: server.url };
});

afterAll(async () => {
  await server.stop();
});

afterEach(stopServers);

const run = (...words: readonly string[]) =>
  hapax(["groups", ...words], { env, id: crypto.randomUUID() });

async function post(path: string, body: unknown): Promise<Record<string, unknown>> {
  const headers = { "Content-Type": "application/json" };
  const init = { method: "POST", headers, body: JSON.stringify(body) };
  return (await (await fetch(server.url + path, init)).json()) as Record<string, unknown>;
}

describe("against a server", () => {
  test("a group is made, shown, moved and deleted", async () => {
    expect(await run()).toMatchObject({ code: 0, stdout: "", stderr: "no groups\n" });
    for (const name of ["orders/1", "orders/2"]) await hapax(["create", name], { env });
    await hapax(["append", "orders/1", "1"], { env });
    const made = await run("create", "bil/ling", "--pattern", "orders/*", "--lease-ms", "5000");
    expect(made.stdout).toBe("created group bil/ling\n");
    const again = await run("create", "bil/ling", "--pattern", "orders/*", "--lease-ms", "5000");
    expect(again.stdout).toBe("exists group bil/ling\n");
    const { member } = await post("/_hapax/groups/bil%2Fling/join", { name: "till" });
    await post("/_hapax/groups/bil%2Fling/claim", { member, max: 1 });
    expect((await run("list")).stdout).toBe(
      "GROUP     MEMBERS  STREAMS  LAG\n" + "bil/ling  1        2        2\n",
    );
    const shown = (await run("show", "bil/ling")).stdout;
    expect(shown).toContain("pattern  /v1/stream/orders/*\n");
    expect(shown).toContain("lease    5000 ms\n");
    const zero = "0000000000000000_0000000000000000";
    const rows = shown.split("\n").map((line) => line.split(/ +/));
    expect(rows).toContainEqual([
      "/v1/stream/orders/1",
      zero,
      "2",
      expect.any(String),
      expect.stringMatching(/^till-/),
      "leased",
    ]);
    expect(rows).toContainEqual(["/v1/stream/orders/2", zero, "0", expect.any(String), "free"]);
    expect((await run("reset", "bil/ling", "--to", "tail")).stdout).toBe(
      "reset 2 streams of group bil/ling to tail\n",
    );
    const one = await run("reset", "bil/ling", "--to", "beginning", "--stream", "orders/1");
    expect(one.stdout).toBe("reset 1 stream of group bil/ling to beginning\n");
    expect((await run("delete", "bil/ling")).stdout).toBe("deleted group bil/ling\n");
    expect(await run("show", "bil/ling")).toMatchObject({ code: 4, stdout: "" });
  });

  test("--json prints one object a line", async () => {
    await run("create", "j", "--stream", "a", "--stream", "/b", "--json");
    const line = (await run("list", "--json")).stdout;
    expect(JSON.parse(line)).toEqual({ group: "j", members: 0, streams: 0, lag: 0 });
    const shown = JSON.parse((await run("show", "j", "--json")).stdout) as object;
    expect(shown).toMatchObject({ group: "j", streams: ["/b", "/v1/stream/a"], cursors: [] });
    const moved = (await run("reset", "j", "--to", "tail", "--json")).stdout;
    expect(JSON.parse(moved)).toEqual({ group: "j", reset: true, streams: 0, to: "tail" });
    const gone = (await run("delete", "j", "--json")).stdout;
    expect(JSON.parse(gone)).toEqual({ group: "j", deleted: true });
  });

  test("a refusal has the server's words and the exit code of its kind", async () => {
    await run("create", "r", "--stream", "a");
    const differs = await run("create", "r", "--stream", "b");
    expect(differs.code).toBe(1);
    expect(differs.stderr).toContain("409 group_exists");
    const nowhere = await run("reset", "r", "--to", "tail", "--stream", "nowhere");
    expect(nowhere.code).toBe(4);
    await run("delete", "r");
  });
});

test.for([
  [["lits"], "did you mean list?"],
  [["show"], "groups show needs <group>"],
  [["list", "a"], 'groups list does not take "a"'],
  [["create", "a"], "groups create needs --pattern or --stream"],
  [["create", "a", "--stream", "b", "--lease-ms", "soon"], "--lease-ms is"],
  [["create", "a", "--stream", "b", "--to", "tail"], "--to is for groups reset"],
  [["reset", "a"], "groups reset needs --to"],
  [["reset", "a", "--to", "tail", "--stream", "b", "--stream", "c"], "takes one --stream"],
  [["delete", ".."], "no URL can name the group"],
] as const)("%j is refused before anything is sent", async ([words, text]) => {
  const asked = await startServer((_request, response) => response.end("{}"));
  const result = await hapax(["groups", ...words, "--url", asked.url]);
  expect(result.code).toBe(2);
  expect(result.stderr).toContain(text);
  expect(asked.received).toEqual([]);
});

test.for([
  ["reset", "g", "--to", "tail"],
  ["delete", "g"],
])("%s asks at a terminal, and only there", async (words) => {
  const asked = await startServer((_request, response) => response.end('{"streams":1}'));
  const all = ["groups", ...words, "--url", asked.url];
  const questions: string[] = [];
  const onQuestion = (question: string): void => void questions.push(question);
  expect((await hapax(all, { isTerminal: true, answer: "n", onQuestion })).code).toBe(1);
  expect(asked.received).toEqual([]);
  expect((await hapax(all, { isTerminal: true, answer: "y", onQuestion })).code).toBe(0);
  expect((await hapax([...all, "--yes"], { isTerminal: true, onQuestion })).code).toBe(0);
  expect((await hapax(all, { onQuestion })).code).toBe(0);
  expect(questions).toHaveLength(2);
  expect(asked.received).toHaveLength(3);
});

test("control characters in group names are escaped for the terminal, and a server without groups has its own error", async () => {
  const strange = await startServer((_request, response) => {
    const groups = [{ group: "a\u001b[2J", members: 1, streams: 2, lag: 3 }];
    response.end(JSON.stringify({ groups }));
  });
  expect((await hapax(["groups", "--url", strange.url])).stdout).toContain("a\\x1b[2J");
  const other = await startServer((_request, response) => response.writeHead(404).end());
  const result = await hapax(["groups", "--url", other.url]);
  expect(result.code).toBe(4);
  expect(result.stderr).toContain("/_hapax/groups is an extension of Hapax");
});
