/** The routes below `/v1/stream/__ds/`, from request to answer, over the real engine. */

import { describe, expect, test } from "vitest";
import { systemClock } from "../../base/clock.ts";
import type { StreamName } from "../core/types.ts";
import { LIMITS } from "../../protocol/all-limits.ts";
import { systemRandom } from "../../base/random.ts";
import { openMemoryStore } from "../stores/memory.ts";
import { createServer, type ServerOptions } from "../server.ts";
import type { Exchange } from "./exchange.ts";

const ROOT = "/v1/stream/__ds/";
const BASE_URL = "https://hapax.example";
const PULL = { type: "pull-wake", pattern: "events/*", wake_stream: "wakes", lease_ttl_ms: 1000 };
const HOOK = { type: "webhook", streams: ["a"], webhook: { url: "https://receiver.example/" } };

interface Reply {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  // What a test looks into is what it expects; nothing else is assumed of it.
  readonly body: Readonly<Record<string, unknown>>;
}

function openStage() {
  const server = createServer({
    store: openMemoryStore(),
    clock: systemClock,
    random: systemRandom,
    courier: { deliver: () => Promise.resolve({ kind: "refused", reason: "not in this test" }) },
    address: "127.0.0.1",
    publicUrl: () => BASE_URL,
    onFault: (error) => {
      throw error;
    },
  });
  const { engine } = server;
  return {
    call: async (method: string, path: string, body?: unknown, token?: string): Promise<Reply> => {
      const authorization = token === undefined ? undefined : `Bearer ${token}`;
      const text = body === undefined || typeof body === "string" ? body : JSON.stringify(body);
      const exchange: Exchange = {
        method,
        path: ROOT + path,
        query: "",
        baseUrl: BASE_URL,
        authority: "localhost",
        header: (name) => (name === "authorization" ? authorization : undefined),
        hasBody: body !== undefined,
        body: () => Promise.resolve(new TextEncoder().encode(text)),
        onAbort: () => undefined,
      };
      const answer = await server.handle(exchange);
      const { status, headers } = answer;
      const bytes = "body" in answer ? (answer.body as Uint8Array) : undefined;
      const value: unknown = bytes === undefined ? {} : JSON.parse(new TextDecoder().decode(bytes));
      return { status, headers, body: value as Reply["body"] };
    },
    /** Creates a stream with one record. */
    write: async (path: string): Promise<void> => {
      await engine.create({
        name: `/v1/stream/${path}` as StreamName,
        contentType: "application/json",
        expiry: { kind: "never" },
        isClosed: false,
        data: new TextEncoder().encode("1,"),
        fork: undefined,
        keys: undefined,
        isNew: false,
      });
    },
  };
}

/** One request to a whole server. */
async function askServer(options: ServerOptions, path: string, body: unknown): Promise<Reply> {
  const server = createServer(
    {
      store: openMemoryStore(),
      clock: systemClock,
      random: systemRandom,
      courier: { deliver: () => Promise.resolve({ kind: "refused", reason: "not in this test" }) },
      address: "127.0.0.1",
      publicUrl: () => BASE_URL,
      onFault: (error) => {
        throw error;
      },
    },
    options,
  );
  const exchange: Exchange = {
    method: "PUT",
    path: ROOT + path,
    query: "",
    baseUrl: BASE_URL,
    authority: "localhost",
    header: () => undefined,
    hasBody: true,
    body: () => Promise.resolve(new TextEncoder().encode(JSON.stringify(body))),
    onAbort: () => undefined,
  };
  const answer = await server.handle(exchange);
  await server.close();
  const bytes = "body" in answer ? (answer.body as Uint8Array) : new Uint8Array();
  const value: unknown = JSON.parse(new TextDecoder().decode(bytes));
  return { status: answer.status, headers: answer.headers, body: value as Reply["body"] };
}

describe("configuration", () => {
  test.each(["http://localhost:9/", "http://127.0.0.1:9/", "https://127.0.0.9/"])(
    "a server that allows no loopback refuses a subscription to %s as it refuses other addresses",
    async (url) => {
      const hook = { ...HOOK, webhook: { url } };
      const other = { ...HOOK, webhook: { url: "https://10.0.0.1/" } };
      const refused = await askServer({ allowLoopbackWebhooks: false }, "subscriptions/s", hook);
      const expected = await askServer({}, "subscriptions/s", other);
      expect(refused.body["code"]).toBe("webhook_url_rejected");
      expect(refused).toMatchObject({
        status: expected.status,
        body: { code: expected.body["code"] },
      });
      expect((await askServer({}, "subscriptions/s", hook)).status).toBe(201);
    },
  );

  test("a subscription is created once, confirmed when repeated, refused when different", async () => {
    const { call } = openStage();
    const created = await call("PUT", "subscriptions/s", HOOK);
    expect(created.status).toBe(201);
    expect(created.headers["Cache-Control"]).toBe("no-store");
    const again = await call("PUT", "subscriptions/s", HOOK);
    expect(again).toMatchObject({ status: 200, body: created.body });
    const other = await call("PUT", "subscriptions/s", { ...HOOK, lease_ttl_ms: 2000 });
    expect(other).toMatchObject({
      status: 409,
      body: {
        code: "subscription_exists",
        error: {
          code: "SUBSCRIPTION_ALREADY_EXISTS",
          message: expect.stringContaining("lease_ttl_ms"),
        },
      },
    });
    expect(await call("GET", "subscriptions/s")).toMatchObject({ status: 200, body: created.body });
    const jwks = await call("GET", "jwks.json");
    const webhook = created.body["webhook"] as { signing: { kid: string } };
    expect(jwks).toMatchObject({
      status: 200,
      headers: {
        "Content-Type": "application/jwk-set+json",
        "Cache-Control": "public, max-age=300",
      },
      body: { keys: [{ kid: webhook.signing.kid, kty: "OKP", use: "sig" }] },
    });
    expect(JSON.stringify(jwks.body)).not.toContain('"d"');
  });

  test("a deleted subscription is gone, and deleting it again is no error", async () => {
    const { call } = openStage();
    await call("PUT", "subscriptions/s", HOOK);
    expect((await call("DELETE", "subscriptions/s")).status).toBe(204);
    expect((await call("DELETE", "subscriptions/s")).status).toBe(204);
    expect(await call("GET", "subscriptions/s")).toMatchObject({
      status: 404,
      body: { error: { code: "SUBSCRIPTION_NOT_FOUND" } },
    });
  });

  test("streams are added and removed, whether the path is encoded or not", async () => {
    const { call } = openStage();
    await call("PUT", "subscriptions/s", HOOK);
    for (const path of ["streams/b%2Fc", "streams/b/c"]) {
      const added = await call("POST", "subscriptions/s/streams", { streams: ["b/c"] });
      expect(added.status).toBe(204);
      const before = await call("GET", "subscriptions/s");
      expect(before.body["streams"]).toMatchObject([{ path: "a" }, { path: "b/c" }]);
      expect((await call("DELETE", `subscriptions/s/${path}`)).status).toBe(204);
      const after = await call("GET", "subscriptions/s");
      expect(after.body["streams"]).toMatchObject([{ path: "a", link_type: "explicit" }]);
    }
  });

  test("a subscription cannot name its own wake stream", async () => {
    const { call } = openStage();
    await call("PUT", "subscriptions/s", PULL);
    const added = await call("POST", "subscriptions/s/streams", { streams: ["wakes"] });
    expect(added).toMatchObject({ status: 400, body: { error: { code: "INVALID_REQUEST" } } });
  });
});

describe("routes", () => {
  test.each([
    "",
    "subscriptions",
    "subscriptions/",
    "subscriptions/s/other",
    "subscriptions/s/claim/x",
    "subscriptions/%zz",
    "keys.json",
  ])("%j is no route", async (path) => {
    expect(await openStage().call("GET", path)).toMatchObject({
      status: 404,
      body: { code: "not_found", error: { code: "SUBSCRIPTION_NOT_FOUND" } },
    });
  });

  test.each([
    ["POST", "jwks.json", "GET"],
    ["POST", "subscriptions/s", "GET, PUT, DELETE"],
    ["GET", "subscriptions/s/streams", "POST"],
    ["POST", "subscriptions/s/streams/a", "DELETE"],
    ["GET", "subscriptions/s/claim", "POST"],
  ])("%s %s names what it takes: %s", async (method, path, allow) => {
    const reply = await openStage().call(method, path);
    expect(reply).toMatchObject({ status: 405, headers: { Allow: allow } });
  });

  test.each([
    ["POST", "streams", { streams: ["x"] }],
    ["DELETE", "streams/a", undefined],
    ["POST", "claim", { worker: "w" }],
  ])("%s %s of a missing subscription is not found", async (method, action, body) => {
    const reply = await openStage().call(method, `subscriptions/none/${action}`, body, "token");
    expect(reply).toMatchObject({ status: 404, body: { code: "subscription_not_found" } });
  });

  test.each(["ack", "callback", "release"])(
    "%s tells only the holder of a token that a subscription is missing",
    async (action) => {
      const { call, write } = openStage();
      const path = `subscriptions/s/${action}`;
      const stranger = await call("POST", path, { wake_id: "w", generation: 1 }, "token");
      expect(stranger).toMatchObject({ status: 401, body: { code: "token_invalid" } });
      await call("PUT", "subscriptions/s", PULL);
      await write("events/a");
      const { body: claim } = await call("POST", "subscriptions/s/claim", { worker: "one" });
      await call("DELETE", "subscriptions/s");
      const { wake_id, generation, token } = claim;
      const holder = await call("POST", path, { wake_id, generation }, token as string);
      expect(holder).toMatchObject({ status: 404, body: { code: "subscription_not_found" } });
    },
  );

  test("an id has a limit", async () => {
    const id = "i".repeat(LIMITS.subscriptionIdBytesMax + 1);
    expect((await openStage().call("GET", `subscriptions/${id}`)).status).toBe(400);
  });

  test("a body that is not JSON is refused in the protocol's words", async () => {
    expect(await openStage().call("PUT", "subscriptions/s", "{")).toMatchObject({
      status: 400,
      body: { code: "invalid_json", error: { code: "INVALID_REQUEST" } },
    });
  });
});

describe("workers", () => {
  test("claim, ack and release answer as the protocol says", async () => {
    const { call, write } = openStage();
    await call("PUT", "subscriptions/s", PULL);
    const idle = await call("POST", "subscriptions/s/claim", { worker: "one" });
    expect(idle).toMatchObject({ status: 409, body: { error: { code: "NO_PENDING_WORK" } } });
    await write("events/a");
    const claim = await call("POST", "subscriptions/s/claim", { worker: "one" });
    expect(claim).toMatchObject({ status: 200, body: { lease_ttl_ms: 1000 } });
    const { wake_id, generation, streams } = claim.body;
    expect(await call("POST", "subscriptions/s/claim", { worker: "two" })).toMatchObject({
      status: 409,
      body: { error: { code: "ALREADY_CLAIMED", current_holder: "one", generation } },
    });
    const token = claim.body["token"] as string;
    const [stream] = streams as { path: string; tail_offset: string }[];
    const wrong = [{ stream: stream?.path, offset: "0000000000000000_0000000000000099" }];
    const refused = { wake_id, generation, acks: wrong, done: true };
    expect(await call("POST", "subscriptions/s/ack", refused, token)).toMatchObject({
      status: 409,
      body: { code: "invalid_ack", error: { code: "INVALID_OFFSET" } },
    });
    const acks = [{ stream: stream?.path, offset: stream?.tail_offset }];
    const body = { wake_id, generation, acks };
    const beat = await call("POST", "subscriptions/s/ack", body, token);
    expect(beat).toMatchObject({ status: 200, body: { ok: true, next_wake: false } });
    expect((await call("POST", "subscriptions/s/release", body, token)).status).toBe(204);
    expect(await call("POST", "subscriptions/s/ack", body, token)).toMatchObject({
      status: 409,
      body: { code: "subscription_fenced", error: { code: "FENCED" } },
    });
  });

  test("only a token of the right kind in the Authorization header will do", async () => {
    const { call, write } = openStage();
    await call("PUT", "subscriptions/s", PULL);
    await call("PUT", "subscriptions/h", HOOK);
    await write("events/a");
    const claim = await call("POST", "subscriptions/s/claim", { worker: "one" });
    const { wake_id, generation } = claim.body;
    const token = claim.body["token"] as string;
    const body = { wake_id, generation, token, callback_token: token };
    const unauthorised = { status: 401, body: { error: { code: "TOKEN_INVALID" } } };
    expect(await call("POST", "subscriptions/s/ack", body)).toMatchObject(unauthorised);
    expect(await call("POST", "subscriptions/s/ack", body, `${token}A`)).toMatchObject(
      unauthorised,
    );
    expect(await call("POST", "subscriptions/h/callback", body, token)).toMatchObject(unauthorised);
    expect(await call("POST", "subscriptions/h/ack", body, token)).toMatchObject(unauthorised);
    const wrong = { status: 400, body: { error: { code: "INVALID_REQUEST" } } };
    expect(await call("POST", "subscriptions/s/callback", body, token)).toMatchObject(wrong);
    expect(await call("POST", "subscriptions/h/claim", { worker: "one" })).toMatchObject(wrong);
  });
});
