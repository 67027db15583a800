// PROTOCOL.md §21.8: `hapax tokens` on a real file.
import { createHash } from "node:crypto";
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";

import { hapax, type World } from "../../test/kits/cli-harness.ts";
import { parseApiKey } from "../streams/access/api-key.ts";
import { ACTIONS } from "../streams/access/identity.ts";

let folder = "";
let path = "";

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "hapax-tokens-"));
  path = join(folder, "tokens.json");
});

afterEach(() => {
  rmSync(folder, { recursive: true, force: true });
});

const run = (words: readonly string[], world: World = {}) =>
  hapax(["tokens", ...words], {
    id: crypto.randomUUID().replaceAll("-", ""),
    ...world,
    env: { HAPAX_DIR: folder, ...world.env },
  });

interface Stored {
  readonly id: string;
  readonly name: string;
  readonly sha256: string;
  readonly [member: string]: unknown;
}

const stored = (file = path): readonly Stored[] =>
  (JSON.parse(readFileSync(file, "utf8")) as { keys: readonly Stored[] }).keys;

async function make(...words: readonly string[]) {
  const made = await run(["create", "--name", "ci", "--allow", "read", ...words]);
  expect(made.stderr).toContain("made key");
  expect(made.code).toBe(0);
  return { key: made.stdout.trim(), id: parseApiKey(made.stdout.trim())?.id ?? "" };
}

describe("create", () => {
  test("for a certificate: there is no secret to show or to keep", async () => {
    const words = ["create", "--name", "worker", "--allow", "read", "--certificate", "worker-1"];
    const { code, stdout, stderr } = await run(words);
    expect(code).toBe(0);
    expect(stdout + stderr).not.toContain("hpx_");
    expect(stored()).toMatchObject([{ name: "worker", certificate: "worker-1" }]);
    expect(stored()[0]).not.toHaveProperty("sha256");
    expect((await run(["list"])).stdout).toContain("worker");
    const bad = await run([...words.slice(0, -1), "a b"]);
    expect([bad.code, bad.stderr.includes("--certificate must be")]).toEqual([2, true]);
  });

  test("prints the key alone to stdout, once, and keeps only the digest of its secret", async () => {
    const { code, stdout, stderr } = await run([
      "create",
      "--name",
      "ci",
      "--allow",
      "append,read",
    ]);
    expect(code).toBe(0);
    const [key = "", ...rest] = stdout.split("\n");
    expect(rest).toEqual([""]);
    const { id = "", secret = "" } = parseApiKey(key) ?? {};
    expect(stderr).toBe(
      `hapax: made key ${id} (ci) in ${path}; it is shown this once\n` +
        "hapax: it is the first key. A server that runs already must be restarted; from then on every request needs a key\n",
    );
    expect(stored()).toEqual([
      {
        id,
        name: "ci",
        sha256: createHash("sha256").update(secret).digest("hex"),
        createdAt: "1970-01-01T00:16:40.000Z",
        grants: [{ actions: ["append", "read"] }],
      },
    ]);
    expect(readFileSync(path, "utf8")).not.toContain(secret);
    const { stderr: second } = await run(["create", "--name", "b", "--allow", "read"]);
    expect(second).not.toContain("it is the first key");
  });

  test("every option has its place in the record", async () => {
    const words = ["--name", "acme", "--allow", "all", "--namespace", "acme", "--expires", "90d"];
    const lists = ["--streams", "acme/**", "--streams", "/v1/stream/acme/a", "--groups", "g-*"];
    const more = ["--producers", "p1", "--producers", "p2", "--subscriptions", "s"];
    const quotas = ["--quota", "streamsMax=100", "--quota", "appendsPerSecond=50"];
    const made = await run(["create", ...words, ...lists, ...more, ...quotas, "--json"]);
    expect(made.code).toBe(0);
    const shown = JSON.parse(made.stdout) as Record<string, unknown>;
    const [record] = stored();
    const { sha256, ...rest } = record ?? { sha256: "" };
    expect(shown).toEqual({ key: expect.stringContaining("hpx_") as string, ...rest });
    expect(sha256).toHaveLength(64);
    expect(record).toMatchObject({
      name: "acme",
      namespace: "/v1/stream/acme",
      expiresAt: "1970-04-01T00:16:40.000Z",
      quotas: { streamsMax: 100, appendsPerSecond: 50 },
      grants: [
        {
          actions: [...ACTIONS],
          streams: ["/v1/stream/acme/**", "/v1/stream/acme/a"],
          groups: ["g-*"],
          subscriptions: ["s"],
          producers: ["p1", "p2"],
        },
      ],
    });
  });

  test("the file is that of --tokens-file, of --dir, or of the configuration", async () => {
    const words = ["create", "--name", "a", "--allow", "read"];
    await run([...words, "--tokens-file", join(folder, "keys.json")]);
    expect(stored(join(folder, "keys.json"))).toHaveLength(1);
    await run([...words, "--dir", join(folder, "new", "data")]);
    expect(stored(join(folder, "new", "data", "tokens.json"))).toHaveLength(1);
    const files = { "hapax.config.json": JSON.stringify({ tokensFile: join(folder, "c.json") }) };
    await run(words, { files });
    expect(stored(join(folder, "c.json"))).toHaveLength(1);
    // A server beyond this machine needs a key before it can start, so this must not demand one.
    const open = { "hapax.config.json": JSON.stringify({ host: "0.0.0.0" }) };
    expect((await run(words, { files: open })).code).toBe(0);
    const memory = await run(words, { env: { HAPAX_DIR: "", HAPAX_MEMORY: "1" } });
    expect([memory.code, memory.stdout]).toEqual([2, ""]);
    expect(memory.stderr).toContain("name the file of keys with --tokens-file");
  });

  test.each<[readonly string[], string]>([
    [["--allow", "read"], "--name must be 1 to 64 letters"],
    [["--name", "a b", "--allow", "read"], "--name must be 1 to 64 letters"],
    [["--name", "a"], "--allow must name at least one action, or all"],
    [["--name", "a", "--allow", "read,wirte"], "--allow[1] is none of read, append"],
    [
      ["--name", "a", "--allow", "read", "--streams", "or*"],
      "--streams[0] is not a pattern of stream paths",
    ],
    [
      ["--name", "a", "--allow", "read", "--groups", "*a"],
      "--groups[0] is not a name, or the beginning",
    ],
    [["--name", "a", "--allow", "read", "--namespace", "/acme"], "--namespace is not a path"],
    [["--name", "a", "--allow", "read", "--quota", "x"], '--quota is "x"; allowed: a name and'],
    [["--name", "a", "--allow", "read", "--quota", "x=1"], "--quota.x is not known"],
    [
      ["--name", "a", "--allow", "read", "--expires", "0d"],
      "--expires must be a time in the future",
    ],
    [
      ["--name", "a", "--allow", "read", "--expires", "9y"],
      "--expires must be a time in the future",
    ],
    [["--name", "a", "--allow", "read", "--expires", "1969-01-01T00:00:00Z"], "in the future"],
    [["--name", "a", "--allow", "read", "more"], 'tokens create does not take "more"'],
  ])("%j is refused, and makes nothing", async (words, problem) => {
    const refused = await run(["create", ...words]);
    expect([refused.code, refused.stdout]).toEqual([2, ""]);
    expect(refused.stderr).toContain(problem);
    expect((await run(["list"])).stderr).toBe(`no keys in ${path}\n`);
  });
});

describe("list", () => {
  test("shows what each key may do and its state, and never a secret or its digest", async () => {
    const one = await make("--streams", "orders/**", "--streams", "a");
    const two = await make("--expires", "1970-01-02T00:00:00Z", "--namespace", "acme");
    const three = await make();
    await run(["revoke", three.id]);
    const expired = stored().map((key) =>
      key.id === two.id ? { ...key, expiresAt: "1970-01-01T00:00:01Z" } : key,
    );
    writeFileSync(path, JSON.stringify({ version: 1, keys: expired }));
    const { stdout } = await run([]);
    const rows = stdout.split("\n").map((line) => line.split(/ {2,}/));
    const made = "1970-01-01 00:16";
    const streams = "/v1/stream/orders/**, /v1/stream/a";
    expect(rows).toEqual([
      ["ID", "NAME", "ACTIONS", "STREAMS", "NAMESPACE", "CREATED", "EXPIRES", "STATE"],
      [one.id, "ci", "read", streams, made, "never", "active"],
      [two.id, "ci", "read", "all", "/v1/stream/acme", made, "1970-01-01 00:00", "expired"],
      [three.id, "ci", "read", "all", made, "never", "revoked"],
      [""],
    ]);
    const json = (await run(["list", "--json"])).stdout;
    const lines = json
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as Stored);
    expect(lines.map(({ id, state }) => [id, state])).toEqual([
      [one.id, "active"],
      [two.id, "expired"],
      [three.id, "revoked"],
    ]);
    for (const { sha256 } of stored()) expect(stdout + json).not.toContain(sha256);
    for (const { key } of [one, two, three]) expect(stdout + json).not.toContain(key.slice(17));
  });
});

describe("revoke", () => {
  test("marks the key by its id or by the whole key, and says so once", async () => {
    const [one, two] = [await make(), await make()];
    const first = await run(["revoke", one.id]);
    expect([first.code, first.stdout]).toEqual([0, `revoked key ${one.id} (ci)\n`]);
    const again = await run(["revoke", one.id]);
    expect([again.code, again.stdout]).toEqual([0, `already revoked: key ${one.id} (ci)\n`]);
    const whole = await run(["revoke", two.key, "--json"]);
    expect(JSON.parse(whole.stdout)).toEqual({ id: two.id, name: "ci", revoked: true });
    expect(stored().map(({ revokedAt }) => revokedAt)).toEqual([
      "1970-01-01T00:16:40.000Z",
      "1970-01-01T00:16:40.000Z",
    ]);
  });

  test("asks at a terminal, and takes no for an answer", async () => {
    const { id } = await make();
    const refused = await run(["revoke", id], { isTerminal: true, answer: "n" });
    expect([refused.code, refused.stderr.includes("not revoked")]).toEqual([1, true]);
    expect(stored()[0]).not.toHaveProperty("revokedAt");
    expect((await run(["revoke", id], { isTerminal: true, answer: "y" })).code).toBe(0);
  });

  test("an unknown id and a text that is none are refused; a cut key is not printed", async () => {
    const { key } = await make();
    const unknown = await run(["revoke", "000000000000"]);
    expect([unknown.code, unknown.stdout]).toEqual([4, ""]);
    expect((await run(["revoke", "abc"])).stderr).toContain('"abc" is not the id of a key');
    const cut = await run(["revoke", key.slice(0, -3)]);
    expect([cut.code, cut.stderr.includes(key.slice(4, 40))]).toEqual([2, false]);
    expect((await run(["revoke"])).stderr).toContain("tokens revoke needs <id>");
    expect((await run(["rovoke", "a"])).stderr).toContain("did you mean revoke?");
    expect((await run(["lisst"])).stderr).toContain("did you mean list?");
    expect((await run(["list", "--allow", "read"])).stderr).toContain(
      "--allow is for tokens create",
    );
  });
});

test("a file that others can read is refused by every action", async () => {
  const { id } = await make();
  chmodSync(path, 0o644);
  for (const words of [["list"], ["revoke", id], ["create", "--name", "a", "--allow", "read"]]) {
    const refused = await run(words);
    expect([refused.code, refused.stdout]).toEqual([1, ""]);
    expect(refused.stderr).toContain(`run chmod 600 ${path}`);
  }
});
