// PROTOCOL.md §21.8: the keys of a running server follow their file.
import { createHash } from "node:crypto";
import { chmodSync, mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { systemRandom } from "../../base/random.ts";
import { LIMITS } from "../../protocol/all-limits.ts";
import { createApiKey, type NewApiKey } from "../access/api-key.ts";
import type { ApiKeyRecord } from "../access/key-document.ts";
import { changeKeyFile } from "./node-key-file.ts";
import { type OpenKeys, openKeys, openServerToken } from "./node-keys.ts";

const [onAudit, onNote, onFault] = [vi.fn(), vi.fn(), vi.fn()];
const opened: OpenKeys[] = [];
let folder = "";
let path = "";

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "hapax-keys-"));
  path = join(folder, "tokens.json");
  onAudit.mockReset();
  onNote.mockReset();
  onFault.mockReset();
});

afterEach(() => {
  for (const keys of opened.splice(0)) keys.close();
  rmSync(folder, { recursive: true, force: true });
});

const recordOf = ({ id, secret }: NewApiKey, more: Partial<ApiKeyRecord> = {}): ApiKeyRecord => ({
  id,
  name: "ci",
  sha256: createHash("sha256").update(secret).digest("hex"),
  createdAt: "2026-11-17T09:00:00.000Z",
  grants: [{ actions: ["read"] }],
  ...more,
});

const put = (keys: readonly ApiKeyRecord[]): Promise<void> =>
  changeKeyFile(path, () => ({ keys, answer: undefined }));

async function start(mustExist = false): Promise<OpenKeys> {
  const keys = await openKeys({ path, mustExist, onAudit, onNote, onFault });
  opened.push(keys);
  return keys;
}

/** The name of the identity, or why there is none. */
async function ask({ authorize }: OpenKeys, token: string): Promise<string> {
  const answer = await authorize({
    method: "GET",
    path: "/v1/stream/a",
    query: "",
    header: (name) => (name === "authorization" ? `Bearer ${token}` : undefined),
  });
  return "refused" in answer ? answer.refused : answer.name;
}

describe("at the start", () => {
  test("a missing file is refused where it was named, and has no keys otherwise", async () => {
    await expect(start(true)).rejects.toMatchObject({ code: "invalid_options" });
    await expect(start(true)).rejects.toThrow(`hapax tokens create --tokens-file ${path}`);
    const keys = await start();
    expect([keys.hasFile, keys.count()]).toEqual([false, 0]);
  });

  test("a file that others can read is refused", async () => {
    await put([recordOf(createApiKey(systemRandom))]);
    chmodSync(path, 0o644);
    await expect(start()).rejects.toThrow(`chmod 600 ${path}`);
  });

  test("revoked and expired keys do not count", async () => {
    const made = [1, 2, 3, 4].map(() => createApiKey(systemRandom));
    const more = [
      {},
      {},
      { revokedAt: "2026-01-01T00:00:00Z" },
      { expiresAt: "2026-01-01T00:00:00Z" },
    ];
    await put(made.map((key, index) => recordOf(key, more[index])));
    const keys = await start();
    expect([keys.hasFile, keys.count()]).toEqual([true, 2]);
  });
});

describe("a file that changes", () => {
  test("a new key is let in and a revoked one refused, both within a second", async () => {
    const [one, two] = [createApiKey(systemRandom), createApiKey(systemRandom)];
    await put([recordOf(one)]);
    const keys = await start();
    expect([await ask(keys, one.key), await ask(keys, two.key)]).toEqual([
      `ci:${one.id}`,
      "invalid",
    ]);
    await put([recordOf(one, { revokedAt: "2026-11-17T09:00:00Z" }), recordOf(two)]);
    const changedMs = performance.now();
    await vi.waitFor(async () => expect(await ask(keys, one.key)).toBe("invalid"), 10_000);
    expect(performance.now() - changedMs).toBeLessThan(1000);
    expect(await ask(keys, two.key)).toBe(`ci:${two.id}`);
    expect(onNote.mock.calls).toEqual([[`keys: ${path} has changed, 1 key in force`]]);
    expect(onAudit.mock.calls).toEqual([
      [`API keys: revoked ci:${one.id}`],
      [`API keys: added ci:${two.id}`],
    ]);
  });

  test("a file that comes later is used", async () => {
    const key = createApiKey(systemRandom);
    const keys = await start();
    await put([recordOf(key)]);
    await vi.waitFor(async () => expect(await ask(keys, key.key)).toBe(`ci:${key.id}`), 10_000);
  });

  test.each<[string, () => void]>([
    ["is not JSON", () => writeFileSync(path, "{")],
    ["mode 0644", () => chmodSync(path, 0o644)],
    ["is gone", () => renameSync(path, `${path}.old`)],
    ["keys must be a list", () => writeFileSync(path, `{"version":1,"keys":7}`)],
  ])(
    "G49 a change that cannot be used (%s) is reported once, and the old keys stay in force",
    async (problem, harm) => {
      const key = createApiKey(systemRandom);
      await put([recordOf(key)]);
      const keys = await start();
      harm();
      await vi.waitFor(() => expect(onFault).toHaveBeenCalledTimes(1), 10_000);
      const fault = onFault.mock.calls[0]?.[0] as Error;
      expect(fault.message).toContain("THE OLD KEYS STAY IN FORCE");
      expect(fault.message).toContain(problem);
      expect(await ask(keys, key.key)).toBe(`ci:${key.id}`);
      await new Promise((resolve) => setTimeout(resolve, 3 * LIMITS.keysCheckMs));
      expect(onFault).toHaveBeenCalledTimes(1);
      rmSync(path, { force: true });
      await put([]);
      await vi.waitFor(async () => expect(await ask(keys, key.key)).toBe("invalid"), 10_000);
    },
  );
});

describe("the server's own token", () => {
  test("a whole key, or 32 characters of anything that a header can hold", () => {
    const { key } = createApiKey(systemRandom);
    expect(openServerToken(key, "HAPAX_SERVER_TOKEN")).toBeTypeOf("function");
    expect(openServerToken("a".repeat(32), "HAPAX_SERVER_TOKEN")).toBeTypeOf("function");
  });

  test.each(["a".repeat(31), `${"a".repeat(40)} b`, `hpx_${"a".repeat(40)}`, "é".repeat(40)])(
    "%s is refused, and no message holds it",
    (token) => {
      const start = (): unknown => openServerToken(token, "HAPAX_SERVER_TOKEN");
      expect(start).toThrow(expect.objectContaining({ code: "invalid_options" }) as Error);
      expect(start).toThrow("HAPAX_SERVER_TOKEN");
      expect(start).not.toThrow(token);
    },
  );
});
