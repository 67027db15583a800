// What a caller may not see is for this caller as if it did not exist. PROTOCOL.md §21.2.
import { expect, test } from "vitest";
import type { Authorize, Grant } from "../../src/streams/server.ts";
import { ACTIONS } from "../../src/streams/access/identity.ts";
import type { ServerAnswer } from "../../src/streams/server/exchange.ts";
import { openStage, type ServerStage, textOf } from "../kits/server-stage.ts";

const JSON_TYPE = { "content-type": "application/json" };
const SHOP = "/v1/stream/shop/x";
const SECRET = "/v1/stream/secret/x";
const OFFSET = "0000000000000000_0000000000000000";

/** A guest that may do everything with the streams of the shop, and nothing with others. */
const guest: readonly Grant[] = [{ actions: ACTIONS, streams: ["/v1/stream/shop/**"] }];
const authorize: Authorize = ({ header }) =>
  header("x-name") === "root"
    ? { name: "root", grants: [{ actions: ACTIONS }] }
    : { name: "guest", grants: guest };

type Ask = readonly [
  method: string,
  target: string,
  body?: unknown,
  headers?: Readonly<Record<string, string>>,
];

function ask(stage: ServerStage, name: string, [method, target, body, headers]: Ask) {
  const text = body === undefined ? "" : typeof body === "string" ? body : JSON.stringify(body);
  return stage.ask(method, target, { "x-name": name, ...JSON_TYPE, ...headers }, text);
}

/** All that the guest sees of an answer. */
function seen(answer: ServerAnswer): unknown {
  const { "X-Request-Id": _id, ...headers } = answer.headers;
  return [answer.status, headers, textOf(answer)];
}

const GROUP = "/_hapax/groups/g";
const SUBSCRIPTION = "/v1/stream/__ds/subscriptions/s";

/** Two servers: one has a group and a subscription over streams that the guest may not read, the other one has not. */
async function openBoth(): Promise<readonly [ServerStage, ServerStage, member: string]> {
  const [full, empty] = [openStage({}, undefined, authorize), openStage({}, undefined, authorize)];
  for (const stage of [full, empty]) {
    await ask(stage, "root", ["PUT", SHOP, [1]]);
    await ask(stage, "root", ["PUT", SECRET, [1]]);
    await ask(stage, "root", ["PUT", "/v1/stream/shop/w"]);
  }
  await ask(full, "root", ["PUT", GROUP, { streams: [SECRET, SHOP] }]);
  const joined = textOf(await ask(full, "root", ["POST", `${GROUP}/join`, { name: "m" }]));
  const { member } = JSON.parse(joined) as { member: string };
  await ask(full, "root", ["POST", `${GROUP}/claim`, { member }]);
  const follows = { type: "pull-wake", streams: ["secret/x", "shop/x"], wake_stream: "shop/w" };
  await ask(full, "root", ["PUT", SUBSCRIPTION, follows]);
  return [full, empty, member];
}

/** Calls of one group, with bodies that are right and bodies that are not. */
function callsOfGroup(member: string): readonly Ask[] {
  const lease = { stream: SHOP, token: 1 };
  const bodies: Readonly<Record<string, unknown>> = {
    join: { name: "m" },
    claim: { member },
    commit: { member, commits: [{ ...lease, offset: OFFSET }] },
    release: { member, leases: [lease] },
    leave: { member },
    reset: { to: "beginning" },
  };
  const posts = Object.entries(bodies).flatMap(([call, body]): Ask[] => [
    ["POST", `${GROUP}/${call}`, body],
    ["POST", `${GROUP}/${call}`, "{"],
    ["POST", `${GROUP}/${call}`, {}],
    ["POST", `${GROUP}/${call}`, body, { "idempotency-key": '"k"' }],
    ["POST", `${GROUP}/${call}`, body, { "content-encoding": "gzip" }],
  ]);
  const removal: Ask = ["DELETE", GROUP, undefined, { "idempotency-key": '"d"' }];
  return [
    ...posts,
    ["GET", GROUP],
    ["GET", `${GROUP}?limit=nonsense`],
    ["HEAD", GROUP],
    ["GET", "/_hapax/groups"],
    removal,
    removal,
    ["DELETE", GROUP],
  ];
}

const callsOfSubscription: readonly Ask[] = [
  ["GET", SUBSCRIPTION],
  ["DELETE", SUBSCRIPTION],
  ["POST", `${SUBSCRIPTION}/streams`, { streams: ["shop/x"] }],
  ["POST", `${SUBSCRIPTION}/streams`, "{"],
  ["DELETE", `${SUBSCRIPTION}/streams/shop/x`],
  ["POST", `${SUBSCRIPTION}/claim`, { worker: "w" }],
  ["POST", `${SUBSCRIPTION}/claim`, {}],
];

/** Transactions that name the group, alone and among other operations. */
function transactions(member: string): readonly Ask[] {
  const lease = { group: "g", stream: SHOP, token: 1, member };
  const commit = { commit: { ...lease, offset: OFFSET } };
  const expectation = { expect: lease };
  const missing = { append: { stream: "/v1/stream/shop/none", data: [1] } };
  const append = { append: { stream: SHOP, data: [1] } };
  const lists = [
    [commit],
    [expectation],
    [append, commit],
    [missing, expectation],
    [missing, commit],
    [commit, commit],
    [expectation, commit, append],
  ];
  return lists.map((operations, index): Ask => {
    const headers = { "idempotency-key": `"t${index}"` };
    return ["POST", "/_hapax/transactions", { operations }, headers];
  });
}

test("G40 every call of a hidden group or subscription is answered as if there were none", async () => {
  const [full, empty, member] = await openBoth();
  const calls = [...callsOfGroup(member), ...callsOfSubscription, ...transactions(member)];
  for (const call of calls) {
    const [hidden, absent] = [await ask(full, "guest", call), await ask(empty, "guest", call)];
    expect([call, seen(hidden)]).toEqual([call, seen(absent)]);
  }
  // Nothing of it has changed what is hidden.
  const shown = await ask(full, "root", ["GET", GROUP]);
  expect(JSON.parse(textOf(shown))).toMatchObject({ members: [{ member, leases: 2 }] });
  expect((await ask(full, "root", ["GET", SUBSCRIPTION])).status).toBe(200);
});

test("G40 who creates a group or a subscription under the name of a hidden one learns only that it is taken", async () => {
  const [full] = await openBoth();
  const settings = [
    { streams: [SHOP] },
    { pattern: "/v1/stream/shop/**" },
    { streams: [SHOP], leaseMs: 5000 },
  ];
  for (const one of settings) {
    const answer = await ask(full, "guest", ["PUT", GROUP, one]);
    expect(JSON.parse(textOf(answer))).toMatchObject({
      code: "group_exists",
      detail: "the name is taken",
    });
  }
  for (const more of [{ streams: ["shop/x"] }, { pattern: "shop/**" }]) {
    const body = { type: "pull-wake", wake_stream: "shop/w", ...more };
    const answer = await ask(full, "guest", ["PUT", SUBSCRIPTION, body]);
    expect(JSON.parse(textOf(answer))).toMatchObject({
      code: "subscription_exists",
      detail: "the id is taken",
    });
  }
});

test("G40 a subscription that follows more by now shows none of it to who could have made it", async () => {
  const stage = openStage({}, undefined, authorize);
  const body = { type: "pull-wake", streams: ["shop/x"], wake_stream: "shop/w" };
  expect((await ask(stage, "guest", ["PUT", SUBSCRIPTION, body])).status).toBe(201);
  const more = { streams: ["secret/x"] };
  await ask(stage, "root", ["POST", `${SUBSCRIPTION}/streams`, more]);
  const again = await ask(stage, "guest", ["PUT", SUBSCRIPTION, body]);
  expect(again.status).toBe(409);
  expect(textOf(again)).not.toContain("secret");
});

test("G40 who may consume or subscribe and not read gets offsets, and no record", async () => {
  const member: readonly Grant[] = [{ actions: ["consume", "admin", "subscribe"] }];
  const stage = openStage({}, undefined, ({ header }) => ({
    name: "any",
    grants: header("x-name") === "root" ? [{ actions: ACTIONS }] : member,
  }));
  const record = "s3cr3t-r3c0rd";
  await ask(stage, "root", ["PUT", SHOP, [record]]);
  await ask(stage, "root", ["PUT", "/v1/stream/shop/w"]);
  const follows = { type: "pull-wake", streams: ["shop/x"], wake_stream: "shop/w" };
  await ask(stage, "root", ["PUT", SUBSCRIPTION, follows]);
  await ask(stage, "root", ["POST", SHOP, [record]]);
  const calls: readonly Ask[] = [
    ["PUT", GROUP, { streams: [SHOP], start: "tail" }],
    ["PUT", "/_hapax/groups/h", { streams: [SHOP], start: "0000000000000000_0000000000000003" }],
    ["POST", `${GROUP}/join`, { name: "m" }],
    ["POST", `${GROUP}/claim`, { member: "m-id" }],
    ["GET", GROUP],
    ["GET", "/_hapax/groups"],
    ["POST", `${GROUP}/reset`, { to: "beginning" }],
    ["GET", SUBSCRIPTION],
    ["POST", `${SUBSCRIPTION}/claim`, { worker: "w" }],
    ["GET", SHOP],
    ["HEAD", SHOP],
  ];
  const answers: ServerAnswer[] = [];
  for (const call of calls) answers.push(await ask(stage, "member", call));
  expect(answers.map(({ status }) => status)).toEqual([
    201, 400, 201, 200, 200, 200, 200, 200, 200, 403, 403,
  ]);
  expect(JSON.stringify(answers.map((answer) => seen(answer)))).not.toContain(record);
});
