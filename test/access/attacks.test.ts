// Ways around grants that were found and closed. PROTOCOL.md §21.
import { expect, test } from "vitest";
import { checkIdentity } from "../../src/streams/access/check-identity.ts";
import type { Authorize, Grant, Identity } from "../../src/streams/server.ts";
import type { ServerAnswer } from "../../src/streams/server/exchange.ts";
import { openStage, type ServerStage, textOf } from "../kits/server-stage.ts";
import { turn } from "../kits/watch.ts";

const JSON_TYPE = { "content-type": "application/json" };
const ALL: Grant = {
  actions: ["read", "append", "create", "close", "delete", "consume", "subscribe", "admin"],
};
const START_MS = Date.UTC(2026, 0, 1);

function open(grants: readonly Grant[], more: Partial<Identity> = {}): ServerStage {
  const guest: Identity = { name: "guest", grants, ...more };
  const root: Identity = { name: "root", grants: [ALL] };
  const authorize: Authorize = ({ header }) => {
    const name = header("x-name");
    return name === "root" ? root : name === "guest" ? guest : { refused: "missing" };
  };
  return openStage({}, undefined, authorize);
}

const codeOf = (answer: ServerAnswer): unknown =>
  answer.status < 400
    ? answer.status
    : `${answer.status} ${String((JSON.parse(textOf(answer)) as { code: unknown }).code)}`;

test.each([
  [[{ actions: ["read"] }]],
  [
    [
      { actions: ["append"], streams: ["/v1/stream/a"], producers: ["mine-*"] },
      { actions: ["read"] },
    ],
  ],
  [[{ actions: ["create"], producers: ["mine-*"] }, { actions: ["read"] }]],
] as readonly (readonly [readonly Grant[]])[])(
  "G40 a transaction of expectations alone fences no producer and uses up no key: %j",
  async (grants) => {
    const stage = open(grants);
    await stage.ask("PUT", "/v1/stream/a", { "x-name": "root", ...JSON_TYPE });
    const body = '{"operations":[{"expect":{"stream":"/v1/stream/none","absent":true}}]}';
    const producer = { "producer-id": "shop", "producer-epoch": "7", "producer-seq": "0" };
    const target = "/_hapax/transactions";
    const fence = { "x-name": "guest", ...JSON_TYPE, ...producer };
    expect(codeOf(await stage.ask("POST", target, fence, body))).toBe("403 not_allowed");
    const own = { "x-name": "root", ...JSON_TYPE, ...producer, "producer-epoch": "0" };
    const append = '{"operations":[{"append":{"stream":"/v1/stream/a","data":[1]}}]}';
    expect(codeOf(await stage.ask("POST", target, own, append))).toBe(200);
  },
);

test("G40 a reader poisons no key of a transaction", async () => {
  const stage = open([{ actions: ["read"] }]);
  const headers = { ...JSON_TYPE, "idempotency-key": '"order-1"' };
  const body = '{"operations":[{"expect":{"stream":"/v1/stream/none","absent":true}}]}';
  const send = (name: string): Promise<ServerAnswer> =>
    stage.ask("POST", "/_hapax/transactions", { "x-name": name, ...headers }, body);
  expect(codeOf(await send("guest"))).toBe("403 not_allowed");
  expect(codeOf(await send("root"))).toBe(200);
});

test("G40 a group that is made while a body comes is not there for a caller that may not read it", async () => {
  const stage = open([{ actions: ["consume"], streams: ["/v1/stream/public"] }]);
  let finish: (body: string) => void = () => undefined;
  const slow = new Promise<string>((resolve) => {
    finish = resolve;
  });
  const join = stage.ask(
    "POST",
    "/_hapax/groups/g/join",
    { "x-name": "guest", ...JSON_TYPE },
    slow,
  );
  await turn();
  const root = { "x-name": "root", ...JSON_TYPE };
  await stage.ask("PUT", "/_hapax/groups/g", root, '{"pattern":"/v1/stream/**"}');
  finish('{"name":"m"}');
  expect(codeOf(await join)).toBe("404 group_not_found");
});

test("G40 a credential that ends while a body comes or a reader waits stores and shows nothing more", async () => {
  const stage = open([ALL], { expiresAtMs: START_MS + 1000 });
  const path = "/v1/stream/a";
  const root = { "x-name": "root", ...JSON_TYPE };
  await stage.ask("PUT", path, root);
  let finish: (body: string) => void = () => undefined;
  const slow = new Promise<string>((resolve) => {
    finish = resolve;
  });
  const guest = { "x-name": "guest", ...JSON_TYPE };
  const append = stage.ask("POST", path, guest, slow);
  const offset = "0000000000000000_0000000000000000";
  const poll = stage.ask("GET", `${path}?offset=${offset}&live=long-poll`, guest);
  await turn();
  stage.clock.advance(2000);
  await stage.ask("POST", path, root, '"secret"');
  finish('"late"');
  expect(codeOf(await append)).toBe("401 credential_expired");
  expect(codeOf(await poll)).toBe("401 credential_expired");
  expect(textOf(await stage.ask("GET", path, root))).toBe('["secret"]');
});

test.each(["ack", "callback", "release"])(
  "G40 %s of a stranger is refused before its body is read",
  async (action) => {
    const stage = open([]);
    // It never comes, so a server that waits for it never answers.
    const body = new Promise<string>(() => undefined);
    const target = `/v1/stream/__ds/subscriptions/s/${action}`;
    const answer = await stage.ask("POST", target, { authorization: "Bearer x" }, body);
    expect(codeOf(answer)).toBe("401 token_invalid");
  },
);

test.each(["/v1/stream/a%2Ab", "/v1/stream/a%2ab"])("G40 %s is no namespace", (namespace) => {
  const problems: string[] = [];
  checkIdentity({ name: "x", grants: [], namespace }, (text) => problems.push(text));
  expect(problems.join()).toContain("identity.namespace is not a path");
});

test("G40 a list of a namespace looks at no stream of a neighbour, and has the one of its own path", async () => {
  const stage = open([{ actions: ["read"] }], { namespace: "/v1/stream/acme" });
  for (const name of ["acme", "acme-2/x", "acme/a", "acme/b", "acme0/y"]) {
    await stage.ask("PUT", `/v1/stream/${name}`, { "x-name": "root", ...JSON_TYPE });
  }
  const list = async (query: string): Promise<unknown> => {
    const answer = await stage.ask("GET", `/_hapax/streams${query}`, { "x-name": "guest" });
    const { streams, next } = JSON.parse(textOf(answer)) as {
      streams: { path: string }[];
      next?: string;
    };
    return [streams.map(({ path }) => path.slice("/v1/stream/".length)), next];
  };
  expect(await list("")).toEqual([["acme", "acme/a", "acme/b"], undefined]);
  expect(await list("?limit=1")).toEqual([["acme"], "/v1/stream/acme"]);
  expect(await list("?limit=1&after=/v1/stream/acme")).toEqual([["acme/a"], "/v1/stream/acme/a"]);
  expect(await list("?prefix=/v1/stream/acme/b")).toEqual([["acme/b"], undefined]);
  expect(await list("?prefix=/v1/stream/acme-2")).toEqual([[], undefined]);
  expect(await list("?prefix=/v1/stream/ac")).toEqual([["acme", "acme/a", "acme/b"], undefined]);
});
