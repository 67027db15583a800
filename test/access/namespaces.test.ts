// Namespaces never meet: what one of them does changes no answer of another one. PROTOCOL.md §21.3.
import fc from "fast-check";
import { expect, test } from "vitest";
import type { Authorize, Identity } from "../../src/streams/server.ts";
import type { ServerAnswer } from "../../src/streams/server/exchange.ts";
import { openStage, type ServerStage, textOf } from "../kits/server-stage.ts";

const EVERYTHING = [
  "read",
  "append",
  "create",
  "close",
  "delete",
  "consume",
  "subscribe",
  "admin",
  "observe",
] as const;

const identityOf = (name: string): Identity => ({
  name,
  grants: [{ actions: EVERYTHING }],
  namespace: `/v1/stream/${name}`,
});
const TENANTS: ReadonlyMap<string, Identity> = new Map(
  ["a", "b"].map((name) => [name, identityOf(name)]),
);

const authorize: Authorize = ({ header }) =>
  TENANTS.get(header("x-name") ?? "") ?? { refused: "missing" };

interface Request {
  readonly method: string;
  readonly target: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: unknown;
}

/** Names of both tenants, of a neighbour with the same beginning, and of none. */
const stream = fc.constantFrom(
  "/v1/stream/a/x",
  "/v1/stream/a/y",
  "/v1/stream/a",
  "/v1/stream/b/x",
  "/v1/stream/b",
  "/v1/stream/ab/x",
  "/v1/stream/x",
);
const pattern = fc.constantFrom(
  "/v1/stream/a/**",
  "/v1/stream/a/*",
  "/v1/stream/b/**",
  "/v1/stream/**",
  "/v1/stream/*/x",
  "/v1/stream/a*/x",
);
const relative = fc.constantFrom("a/**", "a/*", "b/**", "**", "*/x");
const group = fc.constantFrom("g", "h", "%2Fv1%2Fstream%2Fb%00g");
const key = fc.constantFrom("k1", "k2");
const OFFSET = "0000000000000000_0000000000000000";
const JSON_TYPE = { "content-type": "application/json" };

const request: fc.Arbitrary<Request> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      method: fc.constantFrom("PUT", "POST", "GET", "HEAD", "DELETE"),
      target: stream,
      headers: fc.constantFrom(
        JSON_TYPE,
        { ...JSON_TYPE, "idempotency-key": '"k1"' },
        { ...JSON_TYPE, "producer-id": "p", "producer-epoch": "0", "producer-seq": "0" },
        { ...JSON_TYPE, "stream-forked-from": "/v1/stream/b/x" },
        { ...JSON_TYPE, "stream-forked-from": "/v1/stream/a/x" },
      ),
      body: fc.constantFrom(1, [2, 3]),
    }),
  },
  fc.record({
    method: fc.constant("GET"),
    target: fc.constantFrom(
      "/_hapax/streams",
      "/_hapax/streams?limit=1",
      "/_hapax/streams?prefix=/v1/stream/b",
      "/_hapax/streams?prefix=/v1/stream/a/&after=/v1/stream/a/x",
      "/_hapax/groups",
      "/_hapax/groups?limit=1",
      "/_hapax/producers?stream=/v1/stream/a/x",
      "/_hapax/producers?stream=/v1/stream/b/x",
      "/_hapax/transactions/k1",
      "/_hapax/transactions/p?seq=0&epoch=0",
      "/v1/stream/__ds/subscriptions/s",
    ),
  }),
  fc.record({
    method: fc.constantFrom("PUT", "GET", "DELETE"),
    target: group.map((name) => `/_hapax/groups/${name}`),
    headers: fc.constant(JSON_TYPE),
    body: pattern.map((text) => ({ pattern: text })),
  }),
  fc.record({
    method: fc.constant("POST"),
    target: fc
      .tuple(group, fc.constantFrom("join", "claim", "commit", "leave", "reset"))
      .map(([name, act]) => `/_hapax/groups/${name}/${act}`),
    headers: fc.constant(JSON_TYPE),
    body: stream.map((name) => ({
      name: "m",
      member: "m-1",
      to: "beginning",
      stream: name,
      commits: [],
      leases: [],
    })),
  }),
  fc.record({
    method: fc.constantFrom("PUT", "GET", "DELETE"),
    target: fc
      .constantFrom("s", "t", "%2Fv1%2Fstream%2Fb%00s")
      .map((id) => `/v1/stream/__ds/subscriptions/${id}`),
    body: fc
      .tuple(relative, fc.constantFrom("a/w", "b/w"))
      .map(([text, wake]) => ({ type: "pull-wake", pattern: text, wake_stream: wake })),
  }),
  fc.record({
    method: fc.constant("POST"),
    target: fc.constant("/v1/stream/__ds/subscriptions/s/claim"),
    body: fc.constant({ worker: "w" }),
  }),
  {
    weight: 4,
    arbitrary: fc.record({
      method: fc.constant("POST"),
      target: fc.constant("/_hapax/transactions"),
      headers: fc.oneof(
        key.map((text) => ({ ...JSON_TYPE, "idempotency-key": `"${text}"` })),
        fc.constant({
          ...JSON_TYPE,
          "producer-id": "p",
          "producer-epoch": "0",
          "producer-seq": "0",
        }),
      ),
      body: fc
        .array(
          fc.oneof(
            fc.constantFrom("x", "y").map((name) => ({
              append: { stream: `/v1/stream/a/${name}`, data: [1] },
            })),
            stream.map((name) => ({ append: { stream: name, data: [1] } })),
            stream.map((name) => ({ create: { stream: name } })),
            stream.map((name) => ({ expect: { stream: name, absent: true } })),
            stream.map((name) => ({
              commit: { group: "g", member: "m-1", stream: name, token: 1, offset: OFFSET },
            })),
          ),
          { minLength: 1, maxLength: 2, size: "small" },
        )
        .map((operations) => ({ operations })),
    }),
  },
);

async function send(stage: ServerStage, name: string, sent: Request): Promise<ServerAnswer> {
  const body = sent.body === undefined ? undefined : JSON.stringify(sent.body);
  return stage.ask(sent.method, sent.target, { "x-name": name, ...sent.headers }, body);
}

/** What is drawn or numbered by the server has no meaning for a client but to be the same again. */
class Transcript {
  readonly #seen = new Map<string, string>();

  entry(answer: ServerAnswer): string {
    const headers = Object.entries(answer.headers).filter(([name]) => name !== "X-Request-Id");
    const text = JSON.stringify([answer.status, headers, textOf(answer)]);
    return text.replaceAll(OPAQUE, (value) => {
      const known = this.#seen.get(value) ?? `#${this.#seen.size}`;
      this.#seen.set(value, known);
      return known;
    });
  }
}

/** Lives of streams, the tags of pages, which hold them, and tokens, which each server signs with its own key. */
const OPAQUE = /(?<=Stream-Life",")[^"]+|(?<=(?:life|token)\\":\\")[^"\\]+|(?<=ETag",")[^,]+/g;

test(
  "G40 no request of another namespace changes an answer, and none shows what it has",
  { timeout: 120_000 },
  async () => {
    const seen = new Set<number>();
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.tuple(fc.constantFrom("a", "b"), request), { minLength: 10, maxLength: 60 }),
        async (steps) => {
          const both = openStage({}, undefined, authorize);
          const alone = openStage({}, undefined, authorize);
          const [withOthers, without] = [new Transcript(), new Transcript()];
          for (const [name, sent] of [...PRELUDE, ...steps]) {
            const answer = await send(both, name, mirrored(name, sent));
            if (name !== "a") continue;
            seen.add(answer.status);
            const expected = await send(alone, name, sent);
            expect(withOthers.entry(answer)).toBe(without.entry(expected));
          }
        },
      ),
      { numRuns: 150 },
    );
    // The steps reached what they are about: things were made, found, refused and missed.
    for (const status of [200, 201, 204, 400, 403, 404, 409]) expect(seen).toContain(status);
  },
);

/** Both begin with the same names, so that they would meet at once. */
const PRELUDE: readonly (readonly [string, Request])[] = ["a", "b"].flatMap((name) =>
  ["x", "y"].map((path): readonly [string, Request] => [
    name,
    { method: "PUT", target: `/v1/stream/a/${path}`, headers: JSON_TYPE },
  ]),
);

/** The other tenant sends the same things with the names changed over, so that both use the same names. */
function mirrored(name: string, sent: Request): Request {
  if (name === "a") return sent;
  const change = (text: string): string =>
    text.replaceAll(
      /(stream(?:\/|%2F))([ab])(?=\/|%|"|$|&|\?)/g,
      (_, start: string, letter: string) => start + (letter === "a" ? "b" : "a"),
    );
  return JSON.parse(
    change(JSON.stringify(sent))
      .replaceAll('"a/', '"\u0001/')
      .replaceAll('"b/', '"a/')
      .replaceAll('"\u0001/', '"b/'),
  ) as Request;
}

const json = (answer: ServerAnswer): Record<string, unknown> =>
  JSON.parse(textOf(answer)) as Record<string, unknown>;

test("G40 a member of a group in a namespace commits in a transaction, as without namespaces", async () => {
  const stage = openStage({}, undefined, authorize);
  for (const name of ["a", "b"]) {
    const path = `/v1/stream/${name}/x`;
    const ask = (method: string, target: string, body: unknown, headers = {}) =>
      send(stage, name, { method, target, body, headers: { ...JSON_TYPE, ...headers } });
    await ask("PUT", path, [1]);
    const group = "/_hapax/groups/g";
    expect((await ask("PUT", group, { streams: [path] })).status).toBe(201);
    const { member } = json(await ask("POST", `${group}/join`, { name: "m" }));
    const { leases } = json(await ask("POST", `${group}/claim`, { member }));
    const [{ token }] = leases as [{ token: number }];
    const offset = (await ask("HEAD", path, undefined)).headers["Stream-Next-Offset"];
    const operations = [{ commit: { group: "g", member, stream: path, token, offset } }];
    const headers = { "idempotency-key": '"k"' };
    const answer = await ask("POST", "/_hapax/transactions", { operations }, headers);
    expect(answer.status, textOf(answer)).toBe(200);
    expect(json(await ask("GET", group, undefined))).toMatchObject({
      group: "g",
      cursors: [{ stream: path, offset, lag: 0 }],
    });
    expect(json(await ask("GET", "/_hapax/groups", undefined))).toEqual({
      groups: [{ group: "g", members: 1, streams: 1, lag: 0 }],
    });
  }
});

test("G40 a key of a transaction belongs to its namespace", async () => {
  const stage = openStage({}, undefined, authorize);
  const headers = { ...JSON_TYPE, "idempotency-key": '"k"' };
  for (const name of ["a", "b"]) {
    const path = `/v1/stream/${name}/x`;
    const operations = [
      { create: { stream: path, contentType: "application/json" } },
      { append: { stream: path, data: [1] } },
    ];
    const target = "/_hapax/transactions";
    const answer = await send(stage, name, {
      method: "POST",
      target,
      headers,
      body: { operations },
    });
    expect(answer.status, textOf(answer)).toBe(200);
    expect((await send(stage, name, { method: "GET", target: `${target}/k` })).status).toBe(200);
    expect((await send(stage, name, { method: "GET", target: path })).status).toBe(200);
  }
});

test("G40 a key of an act belongs to its namespace", async () => {
  const stage = openStage({}, undefined, authorize);
  const headers = { ...JSON_TYPE, "idempotency-key": '"k"' };
  const group = { method: "PUT", target: "/_hapax/groups/g", headers: JSON_TYPE };
  for (const name of ["a", "b"]) {
    const followed = { streams: [`/v1/stream/${name}/x`] };
    await send(stage, name, { ...group, body: followed });
    const answer = await send(stage, name, { method: "DELETE", target: group.target, headers });
    expect(answer.status).toBe(204);
    expect(answer.headers).not.toHaveProperty("Idempotency-Replayed");
    const gone = await send(stage, name, { method: "GET", target: group.target });
    expect(gone.status).toBe(404);
  }
});

test("G40 a worker of a subscription in a namespace claims, and acknowledges with the token alone", async () => {
  const stage = openStage({}, undefined, authorize);
  for (const name of ["a", "b"]) {
    const base = "/v1/stream/__ds/subscriptions/s";
    const ask = (method: string, target: string, body?: unknown) =>
      send(stage, name, { method, target, body, headers: JSON_TYPE });
    const settings = { type: "pull-wake", pattern: `${name}/x`, wake_stream: `${name}/w` };
    expect(json(await ask("PUT", base, settings))).toMatchObject({ id: "s", subscription_id: "s" });
    await ask("PUT", `/v1/stream/${name}/w`);
    await ask("PUT", `/v1/stream/${name}/x`, [1]);
    expect(textOf(await ask("GET", `/v1/stream/${name}/w`))).toContain('"subscription_id":"s"');
    const { wake_id, generation, token } = json(
      await ask("POST", `${base}/claim`, { worker: "w" }),
    );
    const offset = (await ask("HEAD", `/v1/stream/${name}/x`)).headers["Stream-Next-Offset"];
    const acks = [{ stream: `${name}/x`, offset }];
    const body = JSON.stringify({ wake_id, generation, acks, done: true });
    const bearer = { ...JSON_TYPE, authorization: `Bearer ${String(token)}` };
    // The token names the subscription: no other identity is asked for.
    const acked = await stage.ask("POST", `${base}/ack`, bearer, body);
    expect(json(acked)).toEqual({ ok: true, next_wake: false });
    const other = `/v1/stream/__ds/subscriptions/t/ack`;
    expect((await stage.ask("POST", other, bearer, body)).status).toBe(401);
  }
});
