// What one tenant uses up is missing to no other one: keys, groups, subscriptions, storage. PROTOCOL.md §21.3.
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import type { Authorize, Identity, ServerOptions } from "../../src/streams/server.ts";
import { LIMITS } from "../../src/protocol/all-limits.ts";
import { ACTIONS } from "../../src/streams/access/identity.ts";
import type { ServerAnswer } from "../../src/streams/server/exchange.ts";
import type { Store } from "../../src/streams/store.ts";
import { openFileStore } from "../../src/streams/stores/file.ts";
import { openStage, type ServerStage, textOf } from "../kits/server-stage.ts";

const JSON_TYPE = { "content-type": "application/json" };

/** Stored bytes of a namespace that has a quota. */
const QUOTA = 100;

/** Tenants `a` and `b`, each with all rights in its namespace, and `root`, which has none. */
const authorize: Authorize = ({ header }) =>
  IDENTITIES.get(header("x-name") ?? "") ?? { refused: "missing" };

const tenant = (name: string): Identity => ({
  name,
  grants: [{ actions: ACTIONS }],
  ...(name === "root" ? {} : { namespace: `/v1/stream/${name}` }),
});
const IDENTITIES: ReadonlyMap<string, Identity> = new Map(
  ["a", "b", "root"].map((name) => [name, tenant(name)]),
);

const open = (options: ServerOptions = {}, store?: Store): ServerStage =>
  openStage(options, store, authorize);

const codeOf = (answer: ServerAnswer): unknown =>
  answer.status < 400
    ? answer.status
    : `${answer.status} ${String((JSON.parse(textOf(answer)) as { code: unknown }).code)}`;

function ask(
  stage: ServerStage,
  name: string,
  method: string,
  target: string,
  body?: unknown,
  headers: Readonly<Record<string, string>> = {},
): Promise<ServerAnswer> {
  const text = body === undefined ? "" : JSON.stringify(body);
  return stage.ask(method, target, { "x-name": name, ...JSON_TYPE, ...headers }, text);
}

const streamOf = (name: string): string => `/v1/stream/${name}/x`;

/** A transaction of one append under a key. */
function append(stage: ServerStage, name: string, key: string): Promise<ServerAnswer> {
  const operations = [{ append: { stream: streamOf(name), data: [key] } }];
  const headers = { "idempotency-key": `"${key}"` };
  return ask(stage, name, "POST", "/_hapax/transactions", { operations }, headers);
}

async function openWithStreams(options?: ServerOptions, store?: Store): Promise<ServerStage> {
  const stage = open(options, store);
  for (const name of ["a", "b", "root"]) await ask(stage, name, "PUT", streamOf(name));
  return stage;
}

const readAll = async (stage: ServerStage, name: string): Promise<string> =>
  textOf(await ask(stage, name, "GET", streamOf(name)));

test("G40 a namespace with many transactions pushes out no key of another one", async () => {
  const stage = await openWithStreams({ keyMax: 3 });
  for (const name of ["b", "root"]) expect(codeOf(await append(stage, name, "once"))).toBe(200);
  for (let index = 0; index < 10; index += 1) await append(stage, "a", `k${index}`);
  for (const name of ["b", "root"]) {
    const retry = await append(stage, name, "once");
    expect(retry.headers).toHaveProperty("Idempotency-Replayed", "true");
    expect(await readAll(stage, name)).toBe('["once"]');
  }
});

test("G40 a namespace whose window of keys is full refuses its own transactions, and those of no other one", async () => {
  const stage = await openWithStreams({ keyMax: 2, keyOverflow: "reject" });
  for (const key of ["k1", "k2"]) expect(codeOf(await append(stage, "a", key))).toBe(200);
  expect(codeOf(await append(stage, "a", "k3"))).toBe("429 key_window_full");
  for (const name of ["b", "root"]) expect(codeOf(await append(stage, name, "k3"))).toBe(200);
});

test("G40 acts of a namespace push out no key of another one", async () => {
  const stage = await openWithStreams({ keyMax: 2 });
  const remove = (name: string, key: string): Promise<ServerAnswer> =>
    ask(stage, name, "DELETE", "/_hapax/groups/g", undefined, { "idempotency-key": `"${key}"` });
  expect(codeOf(await remove("b", "once"))).toBe(204);
  for (let index = 0; index < 10; index += 1) await remove("a", `k${index}`);
  await ask(stage, "b", "PUT", "/_hapax/groups/g", { streams: [streamOf("b")] });
  expect((await remove("b", "once")).headers).toHaveProperty("Idempotency-Replayed", "true");
  expect(codeOf(await ask(stage, "b", "GET", "/_hapax/groups/g"))).toBe(200);
});

test("G40 each namespace knows its transactions after a restart", async () => {
  const directory = await mkdtemp(join(tmpdir(), "hapax-tenants-"));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  const options = { keyMax: 3 };
  const first = await openWithStreams(
    options,
    await openFileStore(directory, { durability: "os" }),
  );
  for (const name of ["a", "b", "root"]) await append(first, name, "once");
  for (let index = 0; index < 10; index += 1) await append(first, "a", `k${index}`);
  await first.server.close();
  const second = open(options, await openFileStore(directory, { durability: "os" }));
  onTestFinished(() => second.server.close());
  for (const name of ["b", "root"]) {
    expect((await append(second, name, "once")).headers).toHaveProperty("Idempotency-Replayed");
    expect(await readAll(second, name)).toBe('["once"]');
  }
  // Its own keys have pushed it out.
  expect((await append(second, "a", "once")).headers).not.toHaveProperty("Idempotency-Replayed");
});

test.each([
  [
    "groups",
    LIMITS.namespaceGroupsMax,
    (name: string) => `/_hapax/groups/${name}`,
    (name: string) => ({ streams: [streamOf(name)] }),
  ],
  [
    "subscriptions",
    LIMITS.namespaceSubscriptionsMax,
    (name: string) => `/v1/stream/__ds/subscriptions/${name}`,
    (name: string) => ({ type: "pull-wake", streams: [`${name}/x`], wake_stream: `${name}/w` }),
  ],
] as const)(
  "G40 a namespace that has all the %s it may have takes none from others",
  async (_, max, targetOf, settingsOf) => {
    const stage = await openWithStreams();
    const make = async (tenant: string, name: string): Promise<unknown> =>
      codeOf(await ask(stage, tenant, "PUT", targetOf(name), settingsOf(tenant)));
    for (let index = 0; index < max; index += 1) {
      expect(await make("a", `n${index}`)).toBe(201);
    }
    expect(await make("a", "more")).toBe("429 too_many");
    expect(await make("a", "n0")).toBe(200);
    for (const tenant of ["b", "root"]) expect(await make(tenant, "more")).toBe(201);
    expect(codeOf(await ask(stage, "a", "DELETE", targetOf("n0")))).toBe(204);
    expect(await make("a", "more")).toBe(201);
  },
);

test("G50 wake events of claims that are given back do not grow beyond the quota without end", async () => {
  const limited: Identity = {
    ...tenant("a"),
    quotas: { storedBytesMax: QUOTA },
  };
  const stage = openStage({}, undefined, () => limited);
  const [path, wakes] = [streamOf("a"), "/v1/stream/a/w"];
  const base = "/v1/stream/__ds/subscriptions/s";
  await ask(stage, "a", "PUT", wakes);
  const settings = { type: "pull-wake", pattern: "a/x", wake_stream: "a/w" };
  await ask(stage, "a", "PUT", base, settings);
  await ask(stage, "a", "PUT", path, ["x".repeat(QUOTA - 5)]);
  expect(codeOf(await ask(stage, "a", "POST", path, [1]))).toBe("507 storage_quota_exceeded");
  const eventsMax = 2000;
  let claims = 0;
  let claimed: ServerAnswer;
  for (; ; claims += 1) {
    claimed = await ask(stage, "a", "POST", `${base}/claim`, { worker: "w" });
    if (claimed.status !== 200 || claims === eventsMax) break;
    const { token, ...wake } = JSON.parse(textOf(claimed)) as Record<string, unknown>;
    const bearer = { authorization: `Bearer ${String(token)}` };
    const released = await ask(stage, "a", "POST", `${base}/release`, wake, bearer);
    expect(released.status).toBe(204);
  }
  expect(codeOf(claimed)).toBe("507 storage_quota_exceeded");
  // A worker is not shut out because the storage is used up.
  expect(claims).toBeGreaterThan(100);
  const { "Stream-Next-Offset": tail = "" } = (await ask(stage, "a", "HEAD", wakes)).headers;
  expect(Number(tail.split("_")[1])).toBeLessThan(LIMITS.wakeBytesBeyondQuota + QUOTA + 1000);
  // What frees room lets it go on.
  await ask(stage, "a", "DELETE", wakes);
  expect(codeOf(await ask(stage, "a", "POST", `${base}/claim`, { worker: "w" }))).toBe(200);
});
