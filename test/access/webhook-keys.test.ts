// The keys that sign webhooks and tokens are in no data, and are the same after a restart. PROTOCOL.md §11.4
import { createPrivateKey, createPublicKey } from "node:crypto";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import type { ServerAnswer } from "../../src/streams/server/exchange.ts";
import { type FileStore, openFileStore } from "../../src/streams/stores/file.ts";
import { openStage, type ServerStage, textOf } from "../kits/server-stage.ts";

const BASE = "/v1/stream/__ds/subscriptions/s";
const JSON_TYPE = { "content-type": "application/json" };

function makeDirectory(): string {
  const directory = mkdtempSync(join(tmpdir(), "hapax-webhook-keys-"));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

const openStore = (directory: string): Promise<FileStore> =>
  openFileStore(directory, { durability: "os", segmentBytes: 64 * 1024 });

function ask(
  stage: ServerStage,
  method: string,
  target: string,
  body?: unknown,
  headers: Readonly<Record<string, string>> = {},
): Promise<ServerAnswer> {
  const text = body === undefined ? "" : JSON.stringify(body);
  return stage.ask(method, target, { ...JSON_TYPE, ...headers }, text);
}

const json = (answer: ServerAnswer): Record<string, unknown> =>
  JSON.parse(textOf(answer)) as Record<string, unknown>;

/** The public halves of the keys that the server publishes. */
async function publicKeys(stage: ServerStage): Promise<readonly string[]> {
  const { keys } = json(await ask(stage, "GET", "/v1/stream/__ds/jwks.json"));
  return (keys as { x: string }[]).map(({ x }) => x);
}

/** A subscription with pending work, and the claim of a worker. */
async function claim(stage: ServerStage): Promise<Record<string, unknown>> {
  const settings = { type: "pull-wake", pattern: "a/x", wake_stream: "a/w" };
  await ask(stage, "PUT", "/v1/stream/a/w");
  await ask(stage, "PUT", BASE, settings);
  await ask(stage, "PUT", "/v1/stream/a/x", [1]);
  return json(await ask(stage, "POST", `${BASE}/claim`, { worker: "w" }));
}

function release(stage: ServerStage, claimed: Record<string, unknown>): Promise<ServerAnswer> {
  const { token, ...wake } = claimed;
  const headers = { authorization: `Bearer ${String(token)}` };
  return ask(stage, "POST", `${BASE}/release`, wake, headers);
}

/** The public half of a private key that is given as text or bytes. */
function publicOf(seed: Buffer): string {
  const head = Buffer.from("302e020100300506032b657004220420", "hex");
  const key = createPrivateKey({
    key: Buffer.concat([head, seed]),
    format: "der",
    type: "pkcs8",
  });
  return String(createPublicKey(key).export({ format: "jwk" }).x);
}

/** Everything in the bytes that could be a private key of 32 bytes in base64 or hexadecimal digits. */
function* seedsIn(bytes: Buffer): Generator<Buffer> {
  const text = bytes.toString("latin1");
  for (const [word] of text.matchAll(/[\w+/=-]{43,}/g)) {
    for (let at = 0; at + 43 <= word.length; at += 1) {
      const seed = Buffer.from(word.slice(at, at + 43), "base64url");
      if (seed.length === 32) yield seed;
      const digits = word.slice(at, at + 64);
      if (/^[\da-fA-F]{64}$/.test(digits)) yield Buffer.from(digits, "hex");
    }
  }
}

test("G52 no private key that signs webhooks is in the journal or in a snapshot", async () => {
  const directory = makeDirectory();
  const store = await openStore(directory);
  const stage = openStage({}, store);
  await claim(stage);
  const known = await publicKeys(stage);
  expect(known).toHaveLength(1);
  await store.maintain();
  await stage.server.close();
  const names = readdirSync(directory).filter((name) => name !== "SECRET");
  expect(names.some((name) => name.startsWith("snapshot-"))).toBe(true);
  for (const name of names) {
    for (const seed of seedsIn(readFileSync(join(directory, name)))) {
      expect(known).not.toContain(publicOf(seed));
    }
  }
});

test("a key and its tokens count after a restart", async () => {
  const directory = makeDirectory();
  const first = openStage({}, await openStore(directory));
  const claimed = await claim(first);
  const known = await publicKeys(first);
  await first.server.close();
  const second = openStage({}, await openStore(directory));
  onTestFinished(() => second.server.close());
  expect(await publicKeys(second)).toEqual(known);
  expect((await release(second, claimed)).status).toBe(204);
});

test("without its secret a copy of the data has other keys, and its own tokens count", async () => {
  const directory = makeDirectory();
  const first = openStage({}, await openStore(directory));
  const claimed = await claim(first);
  const known = await publicKeys(first);
  await first.server.close();
  rmSync(join(directory, "SECRET"));
  const copy = openStage({}, await openStore(directory));
  onTestFinished(() => copy.server.close());
  expect(await publicKeys(copy)).not.toEqual(known);
  expect((await release(copy, claimed)).status).toBe(401);
  copy.clock.advance(60_000);
  const again = json(await ask(copy, "POST", `${BASE}/claim`, { worker: "w" }));
  expect((await release(copy, again)).status).toBe(204);
});
