// `hapax trim` and `hapax retention` against a server. PROTOCOL.md §23
import { afterAll, beforeAll, expect, test } from "vitest";
import { hapax } from "../../test/kits/cli-harness.ts";
import type { AuditEntry } from "../streams/log.ts";
import { type NodeServer, startNodeServer } from "../streams/runtimes/node.ts";

let server: NodeServer;
const audit: AuditEntry[] = [];
let env: Readonly<Record<string, string>>;

beforeAll(async () => {
  server = await startNodeServer({
    store: "memory",
    port: 0,
    onAudit: (entry) => audit.push(entry),
  });
  env = { HAPAX_URL: server.url };
});

afterAll(async () => {
  await server.stop();
});

const run = (...words: readonly string[]) => hapax(words, { env });
const at = (offset: number): string => `0000000000000000_${String(offset).padStart(16, "0")}`;

test("a stream is trimmed, and says where it begins", async () => {
  await run("create", "a", "--content-type", "text/plain");
  for (const body of ["one ", "two "]) {
    const headers = { "Content-Type": "text/plain" };
    await fetch(`${server.url}/v1/stream/a`, { method: "POST", headers, body });
  }
  const trimmed = await run("trim", "a", "--before", at(4));
  expect(trimmed.stdout).toBe(`trimmed /v1/stream/a, it begins at ${at(4)}\n`);
  expect((await run("head", "a")).stdout).toMatch(`earliest offset  ${at(4)}\n`);
  expect(JSON.parse((await run("head", "a", "--json")).stdout)).toMatchObject({
    earliestOffset: at(4),
  });
  const read = await run("read", "a", "--offset", at(0));
  expect(read.code).not.toBe(0);
  expect(read.stderr).toContain("the stream begins at");
  expect((await run("trim", "a")).stderr).toContain("trim needs --before <offset>");
});

test("a cut below what a group needs is refused with the way out", async () => {
  await run("create", "b");
  await run("append", "b", "1");
  await run("groups", "create", "g", "--stream", "b");
  const refused = await run("trim", "b", "--before", at(2));
  expect(refused.code).not.toBe(0);
  expect(refused.stderr).toContain("a group still needs the data");
  expect(await run("trim", "b", "--before", at(2), "--drop-needed", "--json")).toMatchObject({
    code: 0,
    stdout: `${JSON.stringify({ path: "/v1/stream/b", earliestOffset: at(2) })}\n`,
  });
});

test("a rule is set at creation, shown, changed and taken away", async () => {
  await run("create", "c", "--retention-seconds", "60", "--retention-bytes", "1000");
  expect((await run("head", "c")).stdout).toMatch(/retention +seconds=60, bytes=1000\n/);
  const set = await run("retention", "c", "--retention-bytes", "5", "--drop-needed");
  expect(set.stdout).toBe("retention of /v1/stream/c: bytes=5, needed=drop\n");
  expect((await run("retention", "c", "--none")).stdout).toBe("retention of /v1/stream/c: none\n");
  expect((await run("head", "c")).stdout).not.toContain("retention");
  expect((await run("retention", "c")).code).not.toBe(0);
});

test("each cut and each rule is in the audit, and a cut that changes nothing is not", async () => {
  audit.length = 0;
  await run("create", "d");
  await run("append", "d", "1");
  for (let times = 0; times < 2; times += 1) await run("trim", "d", "--before", at(2));
  await run("retention", "d", "--none");
  const target = "/v1/stream/d";
  expect(audit).toMatchObject([
    { act: "stream.create", target },
    { act: "stream.trim", target, outcome: "done", details: { earliest: at(2) } },
    { act: "stream.retention", target, outcome: "done", details: { retention: "none" } },
  ]);
});
