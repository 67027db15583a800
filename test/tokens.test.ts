// Tokens and signed URLs at a real server, as `hapax serve` runs it. PROTOCOL.md §21.6, §21.7.
import { chmodSync, mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import type { NodeServer } from "../src/streams/runtimes/node.ts";
import { serve, type ServeStoreOptions } from "../src/streams/runtimes/node-serve.ts";
import { signUrl, type SignUrlOptions } from "../src/streams/access/signed-url.ts";
import { type KeyServer, keySet, makeKey, makeToken, startKeyServer } from "./kits/tokens.ts";

const PATH = "/v1/stream/orders";
const JSON_TYPE = { "content-type": "application/json" };
const one = makeKey("one");
const two = makeKey("two", "ed25519");
const secretOf = (letter: string): string => Buffer.alloc(32, letter).toString("base64url");
const first = { id: "first", secret: secretOf("f") };
const second = { id: "second", secret: secretOf("s") };

const folder = mkdtempSync(join(tmpdir(), "hapax-tokens-"));
const notes: string[] = [];
const faults: string[] = [];
const servers: NodeServer[] = [];
let provider: KeyServer;

beforeAll(async () => {
  provider = await startKeyServer(keySet(one));
});
afterEach(async () => {
  for (const server of servers.splice(0)) await server.stop();
  notes.length = 0;
  faults.length = 0;
});
afterAll(async () => {
  await provider.stop();
  rmSync(folder, { recursive: true, force: true });
});

/** As a whole: a reader never sees half of it. */
function put(name: string, text: string, mode = 0o600): string {
  const path = join(folder, name);
  writeFileSync(`${path}.new`, text, { mode });
  chmodSync(`${path}.new`, mode);
  renameSync(`${path}.new`, path);
  return path;
}

async function start(changed: Partial<ServeStoreOptions>): Promise<NodeServer> {
  const server = await serve({
    host: "127.0.0.1",
    port: 0,
    durability: "os",
    onFault: (error) => faults.push(String(error)),
    // Whole entries: a secret in any member of one would be found.
    log: (entry) => notes.push(JSON.stringify(entry)),
    ...changed,
  });
  servers.push(server);
  return server;
}

const PROVIDER = { jwtIssuer: "https://login.example.com", jwtAudience: ["streams"] };

function tokenOf(
  actions: readonly string[],
  { key = one, algorithm = "ES256", lifeSeconds = 600 } = {},
): Record<string, string> {
  const claims = {
    iss: PROVIDER.jwtIssuer,
    aud: "streams",
    sub: "worker",
    exp: Math.floor(Date.now() / 1000) + lifeSeconds,
    hapax: { grants: [{ actions, streams: [PATH] }] },
  };
  const token = makeToken({ alg: algorithm, kid: key.kid }, claims, key.privateKey, algorithm);
  return { authorization: `Bearer ${token}` };
}

const WRITER = ["create", "append", "read"];

async function status(
  server: NodeServer,
  method: string,
  headers: Record<string, string>,
  target = PATH,
): Promise<number> {
  const body = method === "POST" ? '{"a":1}' : undefined;
  const answer = await fetch(server.url + target, {
    method,
    headers: { ...(body === undefined ? {} : JSON_TYPE), ...headers },
    ...(body === undefined ? {} : { body }),
  });
  await answer.arrayBuffer();
  return answer.status;
}

const sign = (server: NodeServer, changed: Partial<SignUrlOptions> = {}, query = "") =>
  signUrl(`${server.url}${PATH}${query}`, {
    key: first,
    action: "read",
    expiresAtMs: Date.now() + 60_000,
    ...changed,
  });

describe("hapax serve with tokens of a provider", () => {
  test.each(["a URL", "a file"])("lets them do what they grant: keys from %s", async (from) => {
    const place = from === "a URL" ? provider.url : put("jwks.json", keySet(one), 0o644);
    const server = await start({ jwtJwks: place, ...PROVIDER });
    const writer = tokenOf(WRITER);
    expect(await status(server, "PUT", { ...writer, ...JSON_TYPE })).toBe(201);
    expect(await status(server, "POST", writer)).toBe(204);
    expect(await status(server, "GET", writer)).toBe(200);
    expect(await status(server, "DELETE", writer)).toBe(403);
    expect(await status(server, "GET", writer, "/v1/stream/others")).toBe(403);
    expect(await status(server, "POST", tokenOf(["read"]))).toBe(403);
    expect(await status(server, "GET", {})).toBe(401);
    expect(await status(server, "GET", tokenOf(WRITER, { lifeSeconds: -60 }))).toBe(401);
    expect(await status(server, "GET", { authorization: "Bearer a.b.c" })).toBe(401);
    expect(faults).toEqual([]);
  });

  test("takes new keys of a file without a restart, and refuses tokens of keys that are gone", async () => {
    const file = put("rotated.json", keySet(one), 0o644);
    const server = await start({ jwtJwks: file, ...PROVIDER });
    const [old, next] = [tokenOf(WRITER), tokenOf(WRITER, { key: two, algorithm: "EdDSA" })];
    expect(await status(server, "PUT", { ...old, ...JSON_TYPE })).toBe(201);
    expect(await status(server, "GET", next)).toBe(401);
    put("rotated.json", keySet(two), 0o644);
    await vi.waitFor(async () => expect(await status(server, "GET", next)).toBe(200), 10_000);
    expect(await status(server, "GET", old)).toBe(401);
  });

  test("starts while the provider is down, and answers 503 until it is there", async () => {
    const late = await startKeyServer(keySet(one));
    await late.stop();
    const server = await start({ jwtJwks: late.url, ...PROVIDER });
    const headers = { ...tokenOf(WRITER), ...JSON_TYPE };
    expect(await status(server, "PUT", headers)).toBe(503);
    expect(await status(server, "GET", {})).toBe(401);
    expect(await status(server, "GET", {}, "/livez")).toBe(200);
    await late.start();
    await vi.waitFor(async () => expect(await status(server, "PUT", headers)).toBe(201), 20_000);
    await late.stop();
  });

  test("does not start with a file that cannot be used, and says why", async () => {
    const secret = put("private.json", JSON.stringify({ keys: [{ kty: "oct", k: "c2VjcmV0" }] }));
    const wrong = start({ jwtJwks: secret, ...PROVIDER });
    await expect(wrong).rejects.toMatchObject({ code: "invalid_options" });
    await expect(wrong).rejects.toThrow(
      /private\.json cannot be used: keys\[0\] is a symmetric key/,
    );
    await expect(wrong).rejects.not.toThrow(/c2VjcmV0/);
    const missing = start({ jwtJwks: join(folder, "none.json"), ...PROVIDER });
    await expect(missing).rejects.toThrow(/the key set in .*none\.json cannot be used: .*ENOENT/);
  });

  test("does not start with keys that other users can change: they could sign their own tokens", async () => {
    for (const mode of [0o664, 0o646, 0o666]) {
      const open = start({ jwtJwks: put("open.json", keySet(one), mode), ...PROVIDER });
      await expect(open).rejects.toThrow(`chmod go-w ${join(folder, "open.json")}`);
    }
  });

  test("writes no query of the provider's URL, which may have a secret", async () => {
    const place = `${provider.url}?access=hidden`;
    const server = await start({ jwtJwks: place, ...PROVIDER });
    expect(await status(server, "PUT", { ...tokenOf(WRITER), ...JSON_TYPE })).toBe(201);
    expect(notes.join("\n")).toContain(`keys: ${provider.url}?***`);
    expect(notes.join("\n")).not.toContain("hidden");
  });
});

describe("hapax serve with signed URLs", () => {
  const keysFile = (...keys: readonly object[]): string =>
    put("keys.json", JSON.stringify({ keys }));

  async function startSigned(
    more: Partial<ServeStoreOptions> = {},
    ...others: readonly object[]
  ): Promise<NodeServer> {
    const signingKeysFile = keysFile(first, ...others);
    const server = await start({ signingKeysFile, jwtJwks: provider.url, ...PROVIDER, ...more });
    const writer = tokenOf(WRITER);
    expect(await status(server, "PUT", { ...writer, ...JSON_TYPE })).toBe(201);
    expect(await status(server, "POST", writer)).toBe(204);
    return server;
  }

  test("a URL reads, another one appends, and neither does more", async () => {
    const server = await startSigned();
    const read = (await sign(server)).slice(server.url.length);
    const append = (await sign(server, { action: "append" })).slice(server.url.length);
    expect(await status(server, "GET", {}, read)).toBe(200);
    expect(await status(server, "HEAD", {}, read)).toBe(200);
    expect(await status(server, "POST", {}, append)).toBe(204);
    for (const method of ["POST", "PUT", "DELETE"]) {
      expect([method, await status(server, method, {}, read)]).toEqual([method, 401]);
    }
    for (const method of ["GET", "HEAD", "PUT", "DELETE"]) {
      expect([method, await status(server, method, {}, append)]).toEqual([method, 401]);
    }
    expect(await status(server, "POST", { "stream-closed": "true" }, append)).toBe(403);
    expect(await status(server, "GET", {}, read.replace("orders", "others"))).toBe(401);
    expect(await status(server, "GET", {}, read.replace("/v1/", "/%761/"))).toBe(401);
    expect(faults).toEqual([]);
  });

  test("URLs without a name count for the key that signed them, and others for their name", async () => {
    const server = await startSigned({ quotas: { liveReadersMax: 1 } }, second);
    const live = async (options: Partial<SignUrlOptions>): Promise<Response> =>
      fetch(await sign(server, options, "?offset=now&live=sse"));
    const expiresAtMs = Date.now() + 30_000;
    const held = await live({});
    // Another URL, of the same key.
    expect([held.status, (await live({ expiresAtMs })).status]).toEqual([200, 429]);
    const others = [await live({ key: second }), await live({ name: "alice" })];
    expect(others.map(({ status: one }) => one)).toEqual([200, 200]);
    expect((await live({ name: "alice", expiresAtMs })).status).toBe(429);
    for (const { body } of [held, ...others]) await body?.cancel();
  });

  test("a live reader follows and resumes with the same URL and Last-Event-ID", async () => {
    const server = await startSigned();
    const url = await sign(server, {}, "?offset=-1&live=sse");
    const seen = await firstEvent(url, {});
    expect(seen.text).toContain('{"a":1}');
    expect(seen.id).toMatch(/^\d{16}_\d{16}$/);
    expect(await status(server, "POST", tokenOf(WRITER))).toBe(204);
    const resumed = await firstEvent(url, { "last-event-id": seen.id });
    expect(resumed.id > seen.id).toBe(true);
    // From here on only: neither the beginning nor an earlier event.
    const later = await sign(server, { fromOffset: resumed.id }, "?live=sse");
    const target = later.slice(server.url.length);
    expect(await status(server, "GET", {}, target.replace(/&offset=[^&]*/, "&offset=-1"))).toBe(
      401,
    );
    expect(await status(server, "GET", { "last-event-id": seen.id }, target)).toBe(401);
    expect(await status(server, "POST", tokenOf(WRITER))).toBe(204);
    expect((await firstEvent(later, {})).id > resumed.id).toBe(true);
  });

  test("a live reader ends when its URL does, and cannot come back with it", async () => {
    const server = await startSigned();
    const url = await sign(server, { expiresAtMs: Date.now() + 2500 }, "?offset=-1&live=sse");
    const answer = await fetch(url);
    expect(answer.status).toBe(200);
    const text = await answer.text(); // Resolves when the server ends it.
    expect(text).toContain('{"a":1}');
    await vi.waitFor(
      async () => expect(await status(server, "GET", {}, url.slice(server.url.length))).toBe(401),
      5_000,
    );
  });

  test("a request with a token is judged by the token, also if its URL is signed", async () => {
    const server = await startSigned();
    const read = (await sign(server)).slice(server.url.length);
    expect(await status(server, "GET", { authorization: "Bearer x" }, read)).toBe(401);
    expect(await status(server, "GET", tokenOf(["append"]), read)).toBe(403);
    expect(await status(server, "POST", tokenOf(["append"]), read)).toBe(204);
  });

  test("keys are replaced without a restart; a broken file is reported and the last keys go on", async () => {
    const server = await startSigned();
    const old = (await sign(server)).slice(server.url.length);
    const next = (await sign(server, { key: second })).slice(server.url.length);
    expect(await status(server, "GET", {}, next)).toBe(401);
    keysFile(second, first);
    await vi.waitFor(async () => expect(await status(server, "GET", {}, next)).toBe(200), 10_000);
    expect(await status(server, "GET", {}, old)).toBe(200);
    put("keys.json", JSON.stringify({ keys: [second] }), 0o644);
    await vi.waitFor(() => expect(faults.join()).toMatch(/mode 0644.*chmod 600/), 10_000);
    expect(await status(server, "GET", {}, old)).toBe(200);
    keysFile(second);
    await vi.waitFor(async () => expect(await status(server, "GET", {}, old)).toBe(401), 10_000);
    expect(await status(server, "GET", {}, next)).toBe(200);
    for (const text of [...notes, ...faults]) {
      expect(text).not.toContain(first.secret);
      expect(text).not.toContain(second.secret);
      expect(text).not.toMatch(/hapax-signature=[\w-]{43}/);
    }
  });

  test("does not start with a file that other users can read", async () => {
    const file = put("open.json", JSON.stringify({ keys: [first] }), 0o640);
    await expect(start({ signingKeysFile: file })).rejects.toThrow(/mode 0640.*chmod 600/);
  });
});

/** The first event with data, and the id that a browser would send when it resumes. */
async function firstEvent(
  url: string,
  headers: Record<string, string>,
): Promise<{ readonly text: string; readonly id: string }> {
  const ending = new AbortController();
  const answer = await fetch(url, { headers, signal: ending.signal });
  expect(answer.status).toBe(200);
  let text = "";
  try {
    // Node's streams are iterable; the types of the web platform do not say so.
    for await (const chunk of answer.body as unknown as AsyncIterable<Uint8Array>) {
      text += Buffer.from(chunk).toString();
      const id = /^id: ?(\S+)$/m.exec(text)?.[1];
      if (text.includes('"a":1') && id !== undefined) return { text, id };
    }
  } finally {
    ending.abort();
  }
  throw new Error(`no event came: ${text}`);
}
