// What an identity may do, through the whole server. PROTOCOL.md §21.2.
import { expect, test } from "vitest";
import type { Authorize, Grant, Identity } from "../../src/streams/server.ts";
import type { ServerAnswer } from "../../src/streams/server/exchange.ts";
import { openStage, type ServerStage, textOf } from "../kits/server-stage.ts";

const JSON_TYPE = { "content-type": "application/json" };
const ROOT: Identity = {
  name: "root",
  grants: [
    {
      actions: [
        "read",
        "append",
        "create",
        "close",
        "delete",
        "consume",
        "subscribe",
        "admin",
        "observe",
      ],
    },
  ],
};

/** A server whose callers say in a header who they are: `root`, or `guest` with the grants of the test. */
function open(grants: readonly Grant[], more: Partial<Identity> = {}): ServerStage {
  const guest: Identity = { name: "guest", grants, ...more };
  const authorize: Authorize = ({ header }) => {
    const name = header("x-name");
    if (name === "root") return ROOT;
    return name === "guest" ? guest : { refused: "missing" };
  };
  return openStage({}, undefined, authorize);
}

type Ask = (
  method: string,
  target: string,
  headers?: Readonly<Record<string, string>>,
  body?: string,
) => Promise<ServerAnswer>;

const as =
  (stage: ServerStage, name: string): Ask =>
  (method, target, headers = {}, body) =>
    stage.ask(method, target, { "x-name": name, ...headers }, body);

const codeOf = (answer: ServerAnswer): unknown =>
  answer.status < 400
    ? answer.status
    : `${answer.status} ${String((JSON.parse(textOf(answer)) as { code: unknown }).code)}`;

const NOT_ALLOWED = "403 not_allowed";

test("G40 a refusal is the same for a stream that exists and for one that does not", async () => {
  const stage = open([{ actions: ["read", "append"], streams: ["/v1/stream/mine/**"] }]);
  await as(stage, "root")("PUT", "/v1/stream/secret", JSON_TYPE, "[1]");
  const guest = as(stage, "guest");
  for (const method of ["GET", "HEAD", "PUT", "POST", "DELETE"]) {
    const [there, missing] = await Promise.all(
      ["/v1/stream/secret", "/v1/stream/nothing"].map((path) =>
        guest(method, path, JSON_TYPE, method === "GET" ? undefined : "[1]"),
      ),
    );
    expect(codeOf(there as ServerAnswer)).toBe(NOT_ALLOWED);
    expect(textOf(there as ServerAnswer)).toBe(textOf(missing as ServerAnswer));
  }
});

test("G40 a hint never names a stream that the caller may not read", async () => {
  const stage = open([{ actions: ["read"], streams: ["/orders"] }]);
  await as(stage, "root")("PUT", "/v1/stream/orders", JSON_TYPE);
  expect(textOf(await as(stage, "root")("GET", "/orders"))).toContain("did you mean");
  expect(textOf(await as(stage, "guest")("GET", "/orders"))).not.toContain("did you mean");
});

test("G40 a close needs its own right, with a body both", async () => {
  const [one, two] = ["/v1/stream/one", "/v1/stream/two"];
  const closes = { ...JSON_TYPE, "stream-closed": "true" };
  const appender = open([{ actions: ["append", "create"] }]);
  await as(appender, "root")("PUT", one, JSON_TYPE);
  const append = as(appender, "guest");
  expect(codeOf(await append("POST", one, JSON_TYPE, "1"))).toBe(204);
  expect(codeOf(await append("POST", one, closes, "1"))).toBe(NOT_ALLOWED);
  expect(codeOf(await append("POST", one, closes))).toBe(NOT_ALLOWED);
  expect(codeOf(await append("PUT", two, closes))).toBe(NOT_ALLOWED);
  const closer = open([{ actions: ["close"] }]);
  await as(closer, "root")("PUT", one, JSON_TYPE);
  const close = as(closer, "guest");
  expect(codeOf(await close("POST", one, JSON_TYPE, "1"))).toBe(NOT_ALLOWED);
  expect(codeOf(await close("POST", one, closes, "1"))).toBe(NOT_ALLOWED);
  expect(codeOf(await close("POST", one, closes))).toBe(204);
});

test("G40 a fork needs the right to read its source", async () => {
  const stage = open([
    { actions: ["create"] },
    { actions: ["read"], streams: ["/v1/stream/open"] },
  ]);
  for (const name of ["open", "secret"]) {
    await as(stage, "root")("PUT", `/v1/stream/${name}`, JSON_TYPE, "[1]");
  }
  const fork = (source: string): Promise<ServerAnswer> =>
    as(stage, "guest")("PUT", `/v1/stream/fork-of-${source}`, {
      "stream-forked-from": `/v1/stream/${source}`,
    });
  expect(codeOf(await fork("open"))).toBe(201);
  expect(codeOf(await fork("secret"))).toBe(NOT_ALLOWED);
  expect(codeOf(await fork("nothing"))).toBe(NOT_ALLOWED);
});

test("G40 a caller that is bound to its producers fences no other one", async () => {
  const stage = open([{ actions: ["append"], producers: ["mine-*"] }]);
  await as(stage, "root")("PUT", "/v1/stream/a", JSON_TYPE);
  const send = (id: string): Promise<ServerAnswer> => {
    const producer = { "producer-id": id, "producer-epoch": "9", "producer-seq": "0" };
    return as(stage, "guest")("POST", "/v1/stream/a", { ...JSON_TYPE, ...producer }, "1");
  };
  expect(codeOf(await send("mine-1"))).toBe(200);
  expect(codeOf(await send("theirs"))).toBe(NOT_ALLOWED);
  const body = '{"operations":[{"append":{"stream":"/v1/stream/a","data":[1]}}]}';
  const commit = (id: string): Promise<ServerAnswer> => {
    const producer = { "producer-id": id, "producer-epoch": "9", "producer-seq": "0" };
    return as(stage, "guest")("POST", "/_hapax/transactions", { ...JSON_TYPE, ...producer }, body);
  };
  expect(codeOf(await commit("mine-1"))).toBe(200);
  expect(codeOf(await commit("theirs"))).toBe(NOT_ALLOWED);
  const find = (id: string): Promise<ServerAnswer> =>
    as(stage, "guest")("GET", `/_hapax/transactions/${id}?seq=0&epoch=9`);
  expect(codeOf(await find("mine-1"))).toBe(200);
  expect(codeOf(await find("theirs"))).toBe(NOT_ALLOWED);
});

test("G40 a caller that is bound to its producers sees no other one", async () => {
  const bound = { actions: ["read", "append", "admin"] as const, producers: ["mine-*"] };
  const stage = open([bound]);
  await as(stage, "root")("PUT", "/v1/stream/a", JSON_TYPE);
  for (const id of ["a", "mine-1", "mine-2", "z"]) {
    const producer = { "producer-id": id, "producer-epoch": "9", "producer-seq": "0" };
    const sent = as(stage, "root")("POST", "/v1/stream/a", { ...JSON_TYPE, ...producer }, "1");
    expect(codeOf(await sent)).toBe(200);
  }
  const list = async (query: string): Promise<unknown> => {
    const answer = await as(stage, "guest")("GET", `/_hapax/producers?stream=/v1/stream/a${query}`);
    const { producers, next } = JSON.parse(textOf(answer)) as {
      producers: { producerId: string }[];
      next?: string;
    };
    return [producers.map(({ producerId }) => producerId), next];
  };
  expect(await list("")).toEqual([["mine-1", "mine-2"], undefined]);
  expect(await list("&limit=1")).toEqual([["mine-1"], "mine-1"]);
  expect(await list("&limit=1&after=mine-1")).toEqual([["mine-2"], undefined]);
  const look = (id: string): Promise<ServerAnswer> =>
    as(stage, "guest")("HEAD", "/v1/stream/a", { "producer-id": id });
  expect(await look("mine-1")).toMatchObject({ status: 200, headers: { "Producer-Epoch": "9" } });
  for (const id of ["a", "unknown"]) expect((await look(id)).status).toBe(403);
  expect((await as(stage, "guest")("HEAD", "/v1/stream/a")).status).toBe(200);
});

const OPERATIONS: readonly (readonly [Grant, string])[] = [
  [{ actions: ["append"] }, '{"append":{"stream":"/v1/stream/a","data":[1]}}'],
  [
    { actions: ["append", "close"] },
    '{"append":{"stream":"/v1/stream/a","data":[1],"close":true}}',
  ],
  [{ actions: ["close"] }, '{"append":{"stream":"/v1/stream/a","close":true}}'],
  [{ actions: ["close"] }, '{"close":{"stream":"/v1/stream/a"}}'],
  [{ actions: ["create"] }, '{"create":{"stream":"/v1/stream/new"}}'],
  [
    { actions: ["read", "append"] },
    '{"expect":{"stream":"/v1/stream/nothing","absent":true}},{"append":{"stream":"/v1/stream/a","data":[1]}}',
  ],
];

test.each(OPERATIONS)(
  "G40 an operation of a transaction is checked by itself: %j %s",
  async (grant, operation) => {
    const commit = (stage: ServerStage): Promise<ServerAnswer> =>
      as(stage, "guest")(
        "POST",
        "/_hapax/transactions",
        { ...JSON_TYPE, "idempotency-key": '"k"' },
        `{"operations":[${operation}]}`,
      );
    const allowed = open([grant]);
    await as(allowed, "root")("PUT", "/v1/stream/a", JSON_TYPE);
    expect(codeOf(await commit(allowed))).toBe(200);
    for (const action of grant.actions) {
      const rest = grant.actions.filter((other) => other !== action);
      const others = (["append", "create", "close", "read"] as const).filter(
        (other) => !grant.actions.includes(other),
      );
      const refused = open([{ actions: [...rest, ...others, "consume", "subscribe"] }]);
      await as(refused, "root")("PUT", "/v1/stream/a", JSON_TYPE);
      expect(codeOf(await commit(refused))).toBe(NOT_ALLOWED);
      const head = await as(refused, "root")("HEAD", "/v1/stream/a");
      expect(head.headers["Stream-Closed"]).toBe(undefined);
    }
  },
);

test("G40 one operation that is not allowed refuses the whole transaction, and nothing is stored", async () => {
  const stage = open([{ actions: ["append"], streams: ["/v1/stream/a"] }]);
  for (const name of ["a", "b"]) await as(stage, "root")("PUT", `/v1/stream/${name}`, JSON_TYPE);
  const operations = ["a", "b"].map((name) => ({
    append: { stream: `/v1/stream/${name}`, data: [1] },
  }));
  const headers = { ...JSON_TYPE, "idempotency-key": '"k"' };
  const body = JSON.stringify({ operations });
  const guest = as(stage, "guest");
  expect(codeOf(await guest("POST", "/_hapax/transactions", headers, body))).toBe(NOT_ALLOWED);
  expect(textOf(await as(stage, "root")("GET", "/v1/stream/a"))).toBe("[]");
  // The key is still free.
  const mine = JSON.stringify({ operations: operations.slice(0, 1) });
  expect(codeOf(await guest("POST", "/_hapax/transactions", headers, mine))).toBe(200);
});

test("G40 only callers that could have sent a transaction learn what became of it", async () => {
  const stage = open([{ actions: ["append"], streams: ["/v1/stream/b"] }]);
  await as(stage, "root")("PUT", "/v1/stream/a", JSON_TYPE);
  const headers = { ...JSON_TYPE, "idempotency-key": '"order-1"' };
  const body = '{"operations":[{"append":{"stream":"/v1/stream/a","data":[1]}}]}';
  await as(stage, "root")("POST", "/_hapax/transactions", headers, body);
  const target = "/_hapax/transactions/order-1";
  expect(codeOf(await as(stage, "root")("GET", target))).toBe(200);
  expect(codeOf(await as(stage, "guest")("GET", target))).toBe("404 transaction_not_found");
});

test("G40 a group follows only streams that its caller may read", async () => {
  const stage = open([
    { actions: ["consume"], streams: ["/v1/stream/a/**"], groups: ["g", "root"] },
  ]);
  const guest = as(stage, "guest");
  const put = (group: string, settings: unknown): Promise<ServerAnswer> =>
    guest("PUT", `/_hapax/groups/${group}`, JSON_TYPE, JSON.stringify(settings));
  expect(codeOf(await put("g", { pattern: "/v1/stream/**" }))).toBe(NOT_ALLOWED);
  expect(codeOf(await put("g", { pattern: "/v1/stream/*/x" }))).toBe(NOT_ALLOWED);
  expect(codeOf(await put("g", { streams: ["/v1/stream/b"] }))).toBe(NOT_ALLOWED);
  expect(codeOf(await put("h", { pattern: "/v1/stream/a/*" }))).toBe(NOT_ALLOWED);
  expect(codeOf(await put("g", { pattern: "/v1/stream/a/*" }))).toBe(201);
  // A group of another one that follows more is not there for this caller.
  const all = JSON.stringify({ pattern: "/v1/stream/**" });
  await as(stage, "root")("PUT", "/_hapax/groups/root", JSON_TYPE, all);
  for (const act of ["join", "claim", "commit", "release", "take", "settle", "leave"]) {
    const body = '{"member":"m","leases":[],"commits":[]}';
    const answer = await guest("POST", `/_hapax/groups/root/${act}`, JSON_TYPE, body);
    expect(codeOf(answer)).toBe("404 group_not_found");
  }
  expect(codeOf(await guest("GET", "/_hapax/groups/root"))).toBe("404 group_not_found");
  const listed = JSON.parse(textOf(await guest("GET", "/_hapax/groups"))) as {
    groups: { group: string }[];
  };
  expect(listed.groups.map(({ group }) => group)).toEqual(["g"]);
  // To reset and to delete needs more.
  expect(codeOf(await guest("DELETE", "/_hapax/groups/g"))).toBe(NOT_ALLOWED);
  const reset = await guest("POST", "/_hapax/groups/g/reset", JSON_TYPE, '{"to":"beginning"}');
  expect(codeOf(reset)).toBe(NOT_ALLOWED);
});

test("G40 jobs are given only to a caller that may read all of their streams", async () => {
  const stage = open([
    { actions: ["consume"], streams: ["/v1/stream/a/**"], groups: ["g"] },
    { actions: ["read"], streams: ["/v1/stream/a/1"] },
  ]);
  const root = as(stage, "root");
  const guest = as(stage, "guest");
  for (const stream of ["/v1/stream/a/1", "/v1/stream/a/2"]) {
    await root("PUT", stream, JSON_TYPE, "[1]");
  }
  for (const [streams, answer] of [
    [["/v1/stream/a/1"], 200],
    [["/v1/stream/a/1", "/v1/stream/a/2"], NOT_ALLOWED],
  ] as const) {
    const settings = JSON.stringify({ streams, jobs: true });
    expect(codeOf(await guest("PUT", "/_hapax/groups/g", JSON_TYPE, settings))).toBe(201);
    const joined = await guest("POST", "/_hapax/groups/g/join", JSON_TYPE, "{}");
    const { member } = JSON.parse(textOf(joined)) as { readonly member: string };
    const body = JSON.stringify({ member });
    expect(codeOf(await guest("POST", "/_hapax/groups/g/take", JSON_TYPE, body))).toBe(answer);
    await root("DELETE", "/_hapax/groups/g");
  }
});

test("G40 a subscription follows only streams that its caller may read, and wakes only where it may append", async () => {
  const stage = open([
    { actions: ["subscribe"], streams: ["/v1/stream/a/**"], subscriptions: ["s*"] },
    { actions: ["append"], streams: ["/v1/stream/a/wakes"] },
  ]);
  const put = (id: string, settings: object): Promise<ServerAnswer> =>
    as(stage, "guest")(
      "PUT",
      `/v1/stream/__ds/subscriptions/${id}`,
      JSON_TYPE,
      JSON.stringify({ type: "pull-wake", wake_stream: "a/wakes", ...settings }),
    );
  expect(codeOf(await put("s1", { pattern: "**" }))).toBe(NOT_ALLOWED);
  expect(codeOf(await put("s1", { streams: ["b"] }))).toBe(NOT_ALLOWED);
  expect(codeOf(await put("t1", { pattern: "a/*" }))).toBe(NOT_ALLOWED);
  expect(codeOf(await put("s1", { pattern: "a/*", wake_stream: "a/other" }))).toBe(NOT_ALLOWED);
  expect(codeOf(await put("s1", { pattern: "a/*" }))).toBe(201);
  const root = { type: "pull-wake", pattern: "**", wake_stream: "w" };
  const path = "/v1/stream/__ds/subscriptions/s2";
  await as(stage, "root")("PUT", path, JSON_TYPE, JSON.stringify(root));
  const guest = as(stage, "guest");
  expect(codeOf(await guest("GET", path))).toBe("404 subscription_not_found");
  const claim = await guest("POST", `${path}/claim`, JSON_TYPE, '{"worker":"w"}');
  expect(codeOf(claim)).toBe("404 subscription_not_found");
  expect(codeOf(await guest("DELETE", path))).toBe(204);
  expect(codeOf(await as(stage, "root")("GET", path))).toBe(200);
});

test("G40 lists have only what the caller may read, in pages that tell of nothing else", async () => {
  const stage = open([{ actions: ["read"], streams: ["/v1/stream/b*", "/v1/stream/*/mine"] }]);
  const good = open([{ actions: ["read"], streams: ["/v1/stream/*/mine"] }]);
  for (const one of [stage, good]) {
    for (let at = 10; at < 40; at += 1) {
      await as(one, "root")("PUT", `/v1/stream/${at}/${at % 10 === 0 ? "mine" : "other"}`);
    }
  }
  // A pattern with a star inside a segment is none, so this identity gets in nowhere.
  expect(codeOf(await as(stage, "guest")("GET", "/_hapax/streams"))).toBe(
    "503 authentication_unavailable",
  );
  const list = async (query: string): Promise<unknown> =>
    JSON.parse(textOf(await as(good, "guest")("GET", `/_hapax/streams${query}`)));
  const names = (numbers: readonly number[]): unknown =>
    numbers.map((at) => ({ path: `/v1/stream/${at}/mine` }));
  expect(await list("")).toMatchObject({ streams: names([10, 20, 30]) });
  expect(await list("?limit=2")).toMatchObject({
    streams: names([10, 20]),
    next: "/v1/stream/20/mine",
  });
  const last = await list("?limit=2&after=/v1/stream/20/mine");
  expect(last).toMatchObject({ streams: names([30]) });
  expect(last).not.toHaveProperty("next");
  expect(await list("?limit=3")).not.toHaveProperty("next");
});

test("G40 pages of a server with authentication are kept by no shared cache", async () => {
  const stage = open([{ actions: ["read"] }]);
  await as(stage, "root")("PUT", "/v1/stream/a", JSON_TYPE, `[${"1,".repeat(700_000)}1]`);
  await as(stage, "root")("POST", "/v1/stream/a", JSON_TYPE, `[${"1,".repeat(700_000)}1]`);
  const first = await as(stage, "guest")("GET", "/v1/stream/a?offset=-1");
  expect(first.headers["Stream-Up-To-Date"]).toBe(undefined);
  expect(first.headers["Cache-Control"]).toBe("private, no-cache");
});

test("G40 an identity whose time is over is refused, also if the function still returns it", async () => {
  const stage = open([{ actions: ["read"] }], { expiresAtMs: Date.UTC(2026, 0, 1) + 1000 });
  await as(stage, "root")("PUT", "/v1/stream/a", JSON_TYPE, "[1]");
  expect(codeOf(await as(stage, "guest")("GET", "/v1/stream/a"))).toBe(200);
  stage.clock.advance(999);
  expect(codeOf(await as(stage, "guest")("GET", "/v1/stream/a"))).toBe(200);
  stage.clock.advance(1);
  const answer = await as(stage, "guest")("GET", "/v1/stream/a");
  expect(codeOf(answer)).toBe("401 credential_expired");
  expect(answer.headers["WWW-Authenticate"]).toBe('Bearer realm="hapax", error="invalid_token"');
});
