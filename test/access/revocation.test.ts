// Live readers whose credential is taken back. PROTOCOL.md §21.8, GUARANTEES.md G40, G46.
import { createHash } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { systemRandom } from "../../src/base/random.ts";
import { createApiKey, type NewApiKey } from "../../src/streams/access/api-key.ts";
import { endIdentity, onIdentityEnd } from "../../src/streams/access/endings.ts";
import type { ApiKeyRecord } from "../../src/streams/access/key-document.ts";
import { signUrl } from "../../src/streams/access/signed-url.ts";
import { changeKeyFile } from "../../src/streams/runtimes/node-key-file.ts";
import { serve, type ServeStoreOptions } from "../../src/streams/runtimes/node-serve.ts";
import type { NodeServer } from "../../src/streams/runtimes/node.ts";

const STREAM = "/v1/stream/a";
/** Much less than a live reader or a long-poll lasts by itself. */
const SOON = { timeout: 15_000 };
const TOKEN = "t".repeat(32);
let folder = "";
let path = "";
let server: NodeServer | undefined;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "hapax-revoked-"));
  path = join(folder, "tokens.json");
});

afterEach(async () => {
  await server?.stop();
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

const put = (...keys: readonly ApiKeyRecord[]): Promise<void> =>
  changeKeyFile(path, () => ({ keys, answer: undefined }));

async function start(options: Partial<ServeStoreOptions>): Promise<string> {
  const log = (): void => undefined;
  const base = { host: "127.0.0.1", port: 0, durability: "os", serverToken: TOKEN, log } as const;
  server = await serve({ ...base, ...options });
  const headers = { authorization: `Bearer ${TOKEN}`, "content-type": "text/plain" };
  await fetch(server.url + STREAM, { method: "PUT", headers, body: "first" });
  return server.url;
}

interface Reader {
  readonly status: number;
  isOver: boolean;
  text: string;
}

/** Reads an answer to its end, in the background. */
async function follow(url: string, token?: string): Promise<Reader> {
  const headers: HeadersInit = token === undefined ? {} : { authorization: `Bearer ${token}` };
  const answer = await fetch(url, { headers });
  const reader: Reader = { status: answer.status, isOver: false, text: "" };
  void (async () => {
    const decoder = new TextDecoder();
    for await (const piece of answer.body ?? []) reader.text += decoder.decode(piece as Uint8Array);
  })()
    .catch(() => undefined)
    .finally(() => (reader.isOver = true));
  return reader;
}

const live = (url: string, token: string): Promise<Reader> =>
  follow(`${url}${STREAM}?offset=-1&live=sse`, token);

test("G40 a revoked key ends its live readers and its long-polls within a second or so, and no others", async () => {
  const [gone, removed, changed, kept] = [1, 2, 3, 4].map(() => createApiKey(systemRandom));
  if (!gone || !removed || !changed || !kept) throw new Error("there are four keys");
  await put(recordOf(gone), recordOf(removed), recordOf(changed), recordOf(kept));
  const url = await start({ tokensFile: path });
  const readers = await Promise.all(
    [gone, removed, changed, kept].map(({ key }) => live(url, key)),
  );
  expect(readers.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
  const waiting = fetch(`${url}${STREAM}?offset=now&live=long-poll`, {
    headers: { authorization: `Bearer ${gone.key}` },
  });
  const staying = follow(`${url}${STREAM}?offset=now&live=long-poll`, kept.key);
  // All of them follow.
  await vi.waitFor(() => {
    for (const { text } of readers) expect(text).toContain("first");
  }, SOON);
  const revokedAt = "2026-11-17T09:00:00Z";
  const narrowed = { grants: [{ actions: ["append"] as const }] };
  await put(recordOf(gone, { revokedAt }), recordOf(changed, narrowed), recordOf(kept));
  await vi.waitFor(() => {
    expect(readers.map(({ isOver }) => isOver)).toEqual([true, true, true, false]);
  }, SOON);
  expect((await waiting).status).toBe(401);
  const again = await Promise.all([gone, removed, changed, kept].map(({ key }) => live(url, key)));
  expect(again.map(({ status }) => status)).toEqual([401, 401, 403, 200]);
  await server?.stop();
  server = undefined;
  expect((await staying).status).toBe(204);
});

test("a live reader of a signed URL whose key is gone ends when it is recycled, and cannot come back", async () => {
  const key = { id: "one", secret: Buffer.alloc(32, "k").toString("base64url") };
  const other = { id: "two", secret: Buffer.alloc(32, "o").toString("base64url") };
  const signingKeysFile = join(folder, "keys.json");
  const write = (...keys: readonly object[]): void =>
    writeFileSync(signingKeysFile, JSON.stringify({ keys }), { mode: 0o600 });
  write(key);
  const url = await start({ signingKeysFile, sseSecondsMax: 2 });
  const expiresAtMs = Date.now() + 600_000;
  const target = await signUrl(`${url}${STREAM}?offset=-1&live=sse`, {
    key,
    action: "read",
    expiresAtMs,
  });
  const reader = await follow(target);
  expect(reader.status).toBe(200);
  write(other);
  await vi.waitFor(() => expect(reader.isOver).toBe(true), SOON);
  await vi.waitFor(async () => expect((await follow(target)).status).toBe(401), SOON);
});

test("a reader that comes as its identity ends leaves at once; one that has left is not called", async () => {
  const identity = { name: "a", grants: [] };
  const [early, late, left] = [vi.fn(), vi.fn(), vi.fn()];
  onIdentityEnd(identity, early);
  onIdentityEnd(identity, left)();
  endIdentity(identity, "revoked");
  onIdentityEnd(identity, late);
  onIdentityEnd(identity, left)();
  await new Promise((resolve) => setImmediate(resolve));
  endIdentity(identity, "revoked");
  expect([early, late, left].map(({ mock }) => mock.calls.length)).toEqual([1, 1, 0]);
});
