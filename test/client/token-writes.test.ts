// Writers and readers whose tokens expire, over real sockets: everything is stored and read once, in order. PROTOCOL.md §21.1.
import { afterEach, expect, test } from "vitest";
import {
  AppendFailure,
  type ClientOptions,
  connect,
  type Producer,
  type ProducerOptions,
} from "../../src/client/client.ts";
import { nodeTransport } from "../../src/client/node.ts";
import { connectServer, streamSink } from "../../src/client/processing.ts";
import { startNodeServer } from "../../src/streams/runtimes/node.ts";
import { createOutbox, createRelay, hapaxPublisher } from "../../src/toolkit/outbox.ts";
import { memoryLedger } from "../../src/toolkit/ledgers/memory.ts";
import { openTokenDoor, type TokenDoor } from "../kits/token-door.ts";

const PATH = "/v1/stream/s";
const endings: (() => Promise<unknown>)[] = [];

afterEach(async () => {
  for (const end of endings.splice(0).toReversed()) await end();
});

interface House {
  readonly door: TokenDoor;
  readonly serverUrl: string;
  readonly options: ClientOptions;
  /** How often the client asked for a token. */
  calls: number;
  stored(): Promise<unknown[]>;
}

async function openHouse(lifeMs?: number, options: ClientOptions = {}): Promise<House> {
  const server = await startNodeServer({ store: "memory", port: 0 });
  endings.push(() => server.stop());
  const door = await openTokenDoor(server.url, lifeMs === undefined ? {} : { lifeMs });
  endings.push(() => door.close());
  await connect(server.url + PATH).create();
  const house: House = {
    door,
    serverUrl: server.url,
    options: {
      token: () => {
        house.calls += 1;
        return door.issue();
      },
      retry: { pauseMs: 1, pauseMsMax: 20, totalMs: 60_000 },
      ...options,
    },
    calls: 0,
    stored: () =>
      connect(server.url + PATH)
        .read()
        .values(),
  };
  return house;
}

function producerOf({ door, options }: House, more: ProducerOptions = {}): Producer {
  const settings = { batchRecordsMax: 10, inFlightMax: 5, ...more };
  return connect(door.url + PATH, options).producer(settings);
}

async function failureOf(promise: Promise<unknown>): Promise<AppendFailure> {
  const thrown: unknown = await promise.then(
    () => undefined,
    (error: unknown) => error,
  );
  if (!(thrown instanceof AppendFailure)) throw new Error("no AppendFailure");
  return thrown;
}

const idsTo = (count: number): number[] => Array.from({ length: count }, (_, id) => id);

for (const [name, transport] of [
  ["fetch", undefined],
  ["node:http", nodeTransport()],
] as const) {
  test(`10,000 records are stored once and in order while tokens expire every 50 ms, by ${name}`, async () => {
    const house = await openHouse(50, transport === undefined ? {} : { transport });
    const producer = producerOf(house, { id: "writer", batchRecordsMax: 100 });
    const ids = idsTo(10_000);
    for (const id of ids) {
      producer.append(id);
      // Slow enough that many tokens expire.
      if (id % 200 === 0) await new Promise((resolve) => setTimeout(resolve, 10));
    }
    await producer.flush();
    expect(await house.stored()).toEqual(ids);
    expect(producer.epoch).toBe(0);
    expect(house.calls).toBeGreaterThan(5);
    expect(house.door.refusals).toBeGreaterThanOrEqual(house.calls - 1);
  }, 60_000);
}

test("records are stored once while tokens expire and every seventh request is cut or loses its answer", async () => {
  const house = await openHouse(50);
  let requests = 0;
  house.door.decide = () => {
    requests += 1;
    if (requests % 7 !== 0) return "by token";
    return requests % 2 === 0 ? "cut" : "lose answer";
  };
  const producer = producerOf(house, { batchRecordsMax: 25 });
  const ids = idsTo(3_000);
  for (const id of ids) {
    producer.append(id);
    if (id % 100 === 0) await new Promise((resolve) => setTimeout(resolve, 5));
  }
  await producer.flush();
  expect(await house.stored()).toEqual(ids);
  expect(house.door.refusals).toBeGreaterThan(3);
}, 60_000);

test("a 401 in the middle of a pipeline costs nothing: the same session goes on", async () => {
  const house = await openHouse();
  house.door.decide = ({ sequence, earlier }) =>
    sequence === "3" && earlier === 0 ? "refuse" : "by token";
  const producer = producerOf(house, { id: "writer" });
  for (const id of idsTo(100)) producer.append(id);
  await producer.flush();
  expect(await house.stored()).toEqual(idsTo(100));
  expect(producer.epoch).toBe(0);
  expect(house.calls).toBe(2);
});

test("two 401s in a row end the producer: nothing from there on is stored, and it says so", async () => {
  const house = await openHouse();
  house.door.decide = ({ sequence }) => (sequence === "3" ? "refuse" : "by token");
  const errors: AppendFailure[] = [];
  const producer = producerOf(house, { onError: (failure) => errors.push(failure) });
  for (const id of idsTo(100)) producer.append(id);
  const failure = await failureOf(producer.flush());
  expect(failure).toMatchObject({ code: "unauthenticated", status: 401 });
  expect(errors).toEqual([failure]);
  expect(await house.stored()).toEqual(idsTo(30));
  expect(failure.unconfirmed.map(({ data }) => data)).toEqual(idsTo(100).slice(30));
  expect(new Set(failure.unconfirmed.map(({ outcome }) => outcome))).toEqual(
    new Set(["not_stored"]),
  );
  expect(house.door.visits.filter(({ sequence }) => sequence === "3")).toHaveLength(2);
});

test("an append whose answer was lost before the 401s is unknown, unless the server can still tell", async () => {
  for (const canTell of [false, true]) {
    const house = await openHouse();
    let hasLost = false;
    house.door.decide = ({ method, sequence, earlier }) => {
      if (sequence !== "1") return !hasLost || canTell || method === "GET" ? "by token" : "refuse";
      hasLost = true;
      return earlier === 0 ? "lose answer" : "refuse";
    };
    const producer = producerOf(house, { id: "writer", inFlightMax: 1, batchRecordsMax: 1 });
    producer.append("first");
    await producer.flush();
    producer.append("second");
    const flushed = producer.flush();
    if (canTell) await flushed;
    else {
      const failure = await failureOf(flushed);
      expect(failure.unconfirmed).toEqual([{ data: "second", outcome: "unknown", isCause: true }]);
    }
    expect(await house.stored()).toEqual(["first", "second"]);
  }
});

test("a token function that throws ends the producer once, and its records were certainly not stored", async () => {
  const house = await openHouse();
  const { door } = house;
  let isOpen = true;
  const errors: AppendFailure[] = [];
  const token = (): string => {
    house.calls += 1;
    if (!isOpen) throw new Error("the vault is closed");
    return door.issue();
  };
  const producer = connect(door.url + PATH, { ...house.options, token }).producer({
    batchRecordsMax: 10,
    onError: (failure) => errors.push(failure),
  });
  for (const id of idsTo(50)) producer.append(id);
  await producer.flush();
  isOpen = false;
  door.expire();
  for (const id of idsTo(50)) producer.append(50 + id);
  const failure = await failureOf(producer.flush());
  expect(failure.code).toBe("unauthenticated");
  expect(failure.message).toContain("the vault is closed");
  expect(failure.unconfirmed).toHaveLength(50);
  expect(failure.unconfirmed.every(({ outcome }) => outcome === "not_stored")).toBe(true);
  expect(errors).toEqual([failure]);
  expect(house.calls).toBe(2);
  expect(await house.stored()).toEqual(idsTo(50));
});

for (const live of ["sse", "long-poll"] as const) {
  test(`a reader goes on with a new token, without a gap or a repetition, by ${live}`, async () => {
    const house = await openHouse();
    const { door, options } = house;
    const writer = connect(house.serverUrl + PATH);
    const seen: unknown[] = [];
    const stop = new AbortController();
    const following = (async () => {
      const follow = connect(door.url + PATH, options).follow({ live, signal: stop.signal });
      for await (const { value } of follow) {
        seen.push(value);
        if (seen.length === 60) return;
      }
    })();
    for (const id of idsTo(60)) {
      await writer.append(id);
      if (id % 20 !== 19) continue;
      while (seen.length <= id) await new Promise((resolve) => setTimeout(resolve, 1));
      door.expire();
      door.cutAll();
    }
    await following;
    expect(seen).toEqual(idsTo(60));
    expect(house.calls).toBeGreaterThanOrEqual(3);
    expect(house.calls).toBeLessThanOrEqual(4);
  });
}

test("transactions, groups, pipelines, sinks and the outbox send the token, and go on when it expires", async () => {
  const house = await openHouse();
  const far = await openHouse();
  const { door, options } = house;
  const hapax = connectServer(door.url, options);
  const [orders, bills] = ["/v1/stream/orders", "/v1/stream/bills"];
  const ledger = memoryLedger();
  const outbox = createOutbox(ledger);
  const relay = createRelay(
    ledger,
    hapaxPublisher({ url: door.url, clientOptions: options, streamOf: () => orders, create: {} }),
  );
  const add = (id: number): Promise<void> =>
    ledger.transaction(async (tx) => {
      await outbox.add(tx, { topic: "orders", payload: { id } });
    });
  await add(1);
  await relay.runOnce();
  door.expire();
  await add(2);
  await relay.runOnce();
  door.expire();
  await hapax.transaction((tx) => {
    tx.create(bills);
    tx.append(orders, { payload: { id: 3 } });
  });
  const group = hapax.group("watch");
  await group.create({ pattern: orders });
  door.expire();
  expect((await group.describe()).cursors).toHaveLength(1);
  const consumer = hapax.consumer<{ payload: { id: number } }>({ group: "watch" });
  const seen: number[] = [];
  while (seen.length < 3) {
    const { value: batch } = await consumer.next();
    if (batch === undefined) break;
    door.expire();
    for (const { payload } of batch.records) seen.push(payload.id);
    await batch.commit();
  }
  await consumer.close();
  expect(seen).toEqual([1, 2, 3]);
  const copies = connectServer(far.door.url, far.options).stream("/v1/stream/copies");
  const pipeline = hapax.pipeline<{ payload: { id: number } }>({
    from: { streams: [orders] },
    group: "copy",
    sink: streamSink(copies),
    each: ({ payload }) => {
      door.expire();
      far.door.expire();
      return payload.id;
    },
    onProgress: () => void pipeline.close(),
  });
  await pipeline.run();
  expect(await copies.read().values()).toEqual([1, 2, 3]);
  expect(door.refusals).toBeGreaterThanOrEqual(4);
  expect(far.door.refusals).toBeGreaterThan(0);
});

test("the server's own check of tokens: writers and readers go on, and its refusals have their codes", async () => {
  let number = 1;
  const all = { name: "all", grants: [{ actions: ["read", "append", "create"] as const }] };
  const server = await startNodeServer({
    store: "memory",
    port: 0,
    authorize: (request) => {
      const given = request.header("authorization");
      if (given === undefined) return { refused: "missing" };
      return given === `Bearer token-${String(number)}` ? all : { refused: "expired" };
    },
  });
  endings.push(() => server.stop());
  let calls = 0;
  const token = (): string => `token-${String(((calls += 1), number))}`;
  const stream = connect(server.url + PATH, { token });
  await stream.create();
  const producer = stream.producer({ batchRecordsMax: 10, id: "writer" });
  for (const id of idsTo(1_000)) {
    producer.append(id);
    if (id % 100 !== 99) continue;
    await producer.flush();
    number += 1;
  }
  expect(await stream.read().values()).toEqual(idsTo(1_000));
  for (const live of ["sse", "long-poll"] as const) {
    number += 1;
    const seen: unknown[] = [];
    for await (const { value } of stream.follow({ live })) {
      seen.push(value);
      if (seen.length === 1_000) break;
    }
    expect(seen).toEqual(idsTo(1_000));
  }
  expect(calls).toBe(13);
  expect(producer.epoch).toBe(0);
  const codeOf = async (promise: Promise<unknown>): Promise<unknown> =>
    promise.catch((error: unknown) => error);
  expect(await codeOf(stream.delete())).toMatchObject({ code: "not_allowed", status: 403 });
  const old = connect(server.url + PATH, { token: "token-0" });
  expect(await codeOf(old.read().values())).toMatchObject({ code: "credential_expired" });
  const none = connect(server.url + PATH);
  expect(await codeOf(none.append(1))).toMatchObject({ code: "unauthenticated", status: 401 });
});
