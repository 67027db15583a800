// `hapax compaction`, and the key of a changelog at its creation. PROTOCOL.md §26
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

test("a changelog is created, shown, changed and taken away", async () => {
  const options = ["--compact-key", "id", "--compact-tombstone", "value", "--compact-lag", "5"];
  const created = await run("create", "users", ...options, "--json");
  const compactKey = "id, tombstone=value, lag=5";
  expect(JSON.parse(created.stdout)).toMatchObject({ compactKey });
  expect((await run("head", "users")).stdout).toMatch(/compact key +id, tombstone=value, lag=5\n/);
  const set = await run("compaction", "users", "--compact-key", "user.id");
  expect(set.stdout).toBe("compact key of /v1/stream/users: user.id\n");
  expect(JSON.parse((await run("head", "users", "--json")).stdout)).toMatchObject({
    compactKey: "user.id, lag=60",
  });
  const none = await run("compaction", "users", "--none", "--json");
  expect(JSON.parse(none.stdout)).toEqual({ path: "/v1/stream/users", compactKey: null });
  expect((await run("head", "users")).stdout).not.toContain("compact key");
  expect(audit.map(({ act }) => act).filter((act) => act !== "stream.create")).toEqual([
    "stream.compaction",
    "stream.compaction",
  ]);
});

test("options that say nothing, and streams without records, are refused with words", async () => {
  expect((await run("compaction", "users")).stderr).toContain("needs --compact-key, or --none");
  expect((await run("compaction", "users", "--compact-lag", "5")).stderr).toContain(
    "need --compact-key",
  );
  await run("create", "log", "--content-type", "text/plain");
  const refused = await run("compaction", "log", "--compact-key", "id");
  expect(refused.code).not.toBe(0);
  expect(refused.stderr).toContain("is for streams of application/json");
  expect((await run("compaction", "none", "--compact-key", "id")).code).not.toBe(0);
  expect((await run("create", "x", "--compact-key", "a b")).stderr).toContain("user.id");
});
