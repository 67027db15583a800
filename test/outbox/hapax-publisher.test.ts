// The outbox into streams of a real server, with a bad network between. PROTOCOL.md §19
import { afterEach, describe, expect, test } from "vitest";
import { setFailpoint } from "../../src/base/failpoint.ts";
import { memoryLedger } from "../../src/toolkit/ledgers/memory.ts";
import {
  createDeadLetters,
  createOutbox,
  createRelay,
  type OutboxMessage,
  type RelayOptions,
} from "../../src/toolkit/outbox.ts";
import {
  hapaxPublisher,
  type HapaxPublisherOptions,
} from "../../src/toolkit/outbox/hapax-publisher.ts";
import type { Connection } from "../../src/client/processing/connection.ts";
import type { OutboxEvent } from "../../src/toolkit/outbox/log.ts";
import type { PublishBatch } from "../../src/toolkit/outbox/publisher.ts";
import { badNetwork, openStage, QUICK } from "../processing/stage.ts";

const closing: (() => Promise<void>)[] = [];
afterEach(async () => {
  setFailpoint(undefined);
  for (const close of closing.splice(0).toReversed()) await close();
});

const relayOptions: RelayOptions = {
  batchMax: 7,
  retry: { pauseMs: 1, pauseMsMax: 5, attemptsMax: 1000 },
  onError: () => undefined,
};

async function open(network: Parameters<typeof openStage>[0] = {}) {
  const stage = await openStage(network);
  closing.push(() => stage.close());
  const ledger = memoryLedger();
  const outbox = createOutbox(ledger);
  const add = (...messages: readonly OutboxMessage[]) =>
    ledger.transaction((tx) => outbox.addAll(tx, messages));
  const relayOf = (options: Partial<HapaxPublisherOptions> = {}, other: RelayOptions = {}) =>
    createRelay(
      ledger,
      hapaxPublisher({
        url: stage.proxy.url,
        clientOptions: { ...QUICK, timeoutMs: 200 },
        streamOf: ({ topic }) => `/v1/stream/${topic}`,
        hasEnvelope: false,
        ...options,
      }),
      { ...relayOptions, ...other },
    );
  return { ...stage, ledger, add, relayOf, letters: createDeadLetters(ledger) };
}

function valuesOf(direct: Connection, topic: string): Promise<readonly unknown[]> {
  return direct.stream(`/v1/stream/${topic}`).read().values();
}

describe("the publisher of Hapax", () => {
  test("JSON is stored as it was added, with every digit, alone and in an envelope", async () => {
    const { add, relayOf, direct, letters } = await open();
    const headers = { "content-type": "application/json" };
    const payload = '{"id":12345678901234567890,"price":1.10, "a":[1e400]}';
    const textOf = async (topic: string): Promise<string> => {
      const stream = direct.stream(`/v1/stream/${topic}`);
      return new TextDecoder().decode(await stream.read().bytes());
    };
    await add({ topic: "x", payload, headers }, { topic: "x", payload: "{no", headers });
    await add({ topic: "y", key: "k", payload, headers });
    await relayOf({ create: {}, hasEnvelope: false }).runOnce();
    expect(await textOf("x")).toBe(`[${payload}]`);
    expect(await letters.list()).toHaveLength(1);
    await add({ topic: "z", key: "k", payload, headers });
    await relayOf({ create: {}, hasEnvelope: true }).runOnce();
    expect(await textOf("z")).toBe(
      `[{"id":"4","topic":"z","key":"k","headers":{"content-type":"application/json"},"payload":${payload}}]`,
    );
  });

  test("every event is in its stream once, over a bad network and with relays that die at any point", async () => {
    const { add, relayOf, direct, proxy } = await open(badNetwork(3));
    for (const topic of ["x", "y"]) await direct.stream(`/v1/stream/${topic}`).create();
    const numbers = Array.from({ length: 120 }, (_, index) => index);
    for (const n of numbers) await add({ topic: n % 3 === 0 ? "y" : "x", key: "k", payload: n });
    let deaths = 0;
    let points = 0;
    setFailpoint((name) => {
      if (!name.startsWith("outbox.")) return;
      points += 1;
      if (points % 5 !== 0 || deaths >= 12) return;
      deaths += 1;
      throw new Error("it dies here");
    });
    for (let life = 0; life < 40; life += 1) {
      const isDone = await relayOf()
        .runOnce()
        .then(
          () => true,
          () => false,
        );
      if (isDone) break;
    }
    setFailpoint(undefined);
    proxy.heal();
    await proxy.drain();
    expect(deaths).toBe(12);
    expect(await valuesOf(direct, "x")).toEqual(numbers.filter((n) => n % 3 !== 0));
    expect(await valuesOf(direct, "y")).toEqual(numbers.filter((n) => n % 3 === 0));
    expect(proxy.droppedAnswers).toBeGreaterThan(0);
  });

  test("events of a stream that is not there are dead letters, all others are stored", async () => {
    const { add, relayOf, direct, letters } = await open();
    await direct.stream("/v1/stream/x").create();
    await direct.stream("/v1/stream/closed").create();
    await direct.stream("/v1/stream/closed").close();
    await add(
      { topic: "x", key: "a", payload: 1 },
      { topic: "nowhere", key: "b", payload: 2 },
      { topic: "x", key: "b", payload: 3 },
      { topic: "closed", key: "c", payload: 4 },
      { topic: "x", key: "a", payload: 5 },
    );
    const report = await relayOf().runOnce();
    expect(report).toMatchObject({ published: 2, dead: 2 });
    expect(await valuesOf(direct, "x")).toEqual([1, 5]);
    const dead = await letters.list();
    expect(dead.map(({ reason }) => reason?.message.split(":")[0])).toEqual([
      "stream_not_found",
      "stream_closed",
    ]);
    await direct.stream("/v1/stream/nowhere").create();
    await letters.replay({ key: "b" });
    await relayOf().runOnce();
    expect(await valuesOf(direct, "nowhere")).toEqual([2]);
    expect(await valuesOf(direct, "x")).toEqual([1, 5, 3]);
  });

  test("data that does not fit its stream is a dead letter, and found among others", async () => {
    const { add, relayOf, direct, letters } = await open();
    await direct.stream("/v1/stream/x").create();
    const messages = Array.from({ length: 6 }, (_, n) => ({ topic: "x", payload: n as unknown }));
    messages[3] = { topic: "x", payload: Uint8Array.of(1, 2) };
    await add(...messages);
    await relayOf().runOnce();
    expect(await valuesOf(direct, "x")).toEqual([0, 1, 2, 4, 5]);
    expect(await letters.list()).toHaveLength(1);
  });

  test("an event that the server cannot read is a dead letter alone, and the others of its stream are stored", async () => {
    const { add, relayOf, direct, letters } = await open();
    await direct.stream("/v1/stream/x").create();
    const deep = JSON.parse(`${"[".repeat(700)}${"]".repeat(700)}`) as unknown;
    await add(...[0, 1, 2, deep, 4, 5].map((payload) => ({ topic: "x", payload })));
    await relayOf().runOnce();
    expect(await valuesOf(direct, "x")).toEqual([0, 1, 2, 4, 5]);
    expect(await letters.list()).toHaveLength(1);
  });

  test("no event is given up because a server cannot take any", async () => {
    const { add, ledger, letters } = await open();
    await add({ topic: "x", payload: 1 });
    const fetch = () => Promise.resolve(new Response("no", { status: 401 }));
    const publisher = hapaxPublisher({
      url: "http://nowhere.invalid",
      streamOf: () => "/v1/stream/x",
      clientOptions: { ...QUICK, fetch, contentType: "application/json" },
    });
    const relay = createRelay(ledger, publisher, {
      ...relayOptions,
      retry: { pauseMs: 1, pauseMsMax: 1, attemptsMax: 2 },
    });
    await expect(relay.runOnce()).rejects.toMatchObject({ outcome: "not_stored" });
    expect(await letters.list()).toEqual([]);
  });

  test("a refused batch whose first attempt arrives late is not stored twice", async () => {
    // The first request with the batch is held back; the second is refused, because there is no stream.
    let held = 0;
    const { add, relayOf, direct, proxy } = await open({
      seed: 1,
      fateOf: ({ path, method }) => {
        if (method !== "POST" || !path.endsWith("/transactions")) return undefined;
        held += 1;
        return held === 1 ? { delayMs: 60_000 } : undefined;
      },
    });
    await direct.stream("/v1/stream/x").create();
    await add({ topic: "x", key: "a", payload: 1 }, { topic: "late", key: "b", payload: 2 });
    // After the refusal, and before the rest goes, the held one arrives; by now it could be stored as a whole.
    let arrivals = 0;
    setFailpoint(async (name) => {
      if (name !== "outbox.published" || arrivals > 0) return;
      arrivals += 1;
      await direct.stream("/v1/stream/late").create();
      proxy.heal();
      await proxy.drain();
    });
    const contentType = "application/json";
    await relayOf({ clientOptions: { ...QUICK, timeoutMs: 50, contentType } }).runOnce();
    expect(arrivals).toBe(1);
    expect(await valuesOf(direct, "x")).toEqual([1]);
    expect(await valuesOf(direct, "late")).toEqual([2]);
  });

  test("records have what their events have, and streams are created if that is wanted", async () => {
    const { add, relayOf, direct } = await open();
    await add(
      { topic: "x", key: "k", payload: { n: 1 }, headers: { a: "b" } },
      { topic: "x", payload: "text" },
      { topic: "x", payload: Uint8Array.of(1, 2, 255) },
    );
    await relayOf({ hasEnvelope: true, create: {} }).runOnce();
    const type = (contentType: string) => ({ "content-type": contentType });
    expect(await valuesOf(direct, "x")).toEqual([
      {
        id: "1",
        topic: "x",
        key: "k",
        headers: { a: "b", ...type("application/json") },
        payload: { n: 1 },
      },
      {
        id: "2",
        topic: "x",
        key: null,
        headers: type("text/plain; charset=utf-8"),
        payload: "text",
      },
      {
        id: "3",
        topic: "x",
        key: null,
        headers: type("application/octet-stream"),
        payload: "AQL/",
      },
    ]);
    expect(() => hapaxPublisher({ streamOf: () => "" })).toThrow(/url or connection/);
  });

  test("two relays of a name, one frozen while it publishes: each event is stored once", async () => {
    const { add, relayOf, direct } = await open();
    await direct.stream("/v1/stream/x").create();
    const numbers = Array.from({ length: 30 }, (_, index) => index);
    for (const n of numbers) await add({ topic: "x", key: "k", payload: n });
    let thaw: () => void = () => undefined;
    let isFrozen = false;
    setFailpoint((name) => {
      if (name !== "outbox.planned" || isFrozen) return undefined;
      isFrozen = true;
      return new Promise<void>((resolve) => {
        thaw = resolve;
      });
    });
    // Its timers fire no more once it is frozen, as those of a stopped process.
    const clock = {
      nowMs: () => performance.now(),
      steadyMs: () => performance.now(),
      after: () => () => undefined,
    };
    const frozen = relayOf({}, { leaseMs: 30, clock }).runOnce();
    const other = relayOf({}, { leaseMs: 30 });
    for (let attempt = 0; attempt < 1000; attempt += 1) {
      const isBusy = await other.runOnce().then(
        () => false,
        () => true,
      );
      if (!isBusy) break;
    }
    thaw();
    await expect(frozen).rejects.toMatchObject({ code: "lease_lost" });
    expect(await valuesOf(direct, "x")).toEqual(numbers);
  });
});

test("a batch is no larger than one transaction, with any number of streams", () => {
  const publisher = hapaxPublisher({ url: "http://nowhere.invalid", streamOf: ({ id }) => id });
  const eventsOf = (count: number, bytes: number) =>
    Array.from({ length: count }, (_, id) => ({
      id: String(id),
      topic: "t",
      key: undefined,
      payload: new Uint8Array(bytes),
      headers: {},
      addedAtMs: 0,
    }));
  expect(publisher.fits?.(eventsOf(800, 1))).toBe(500);
  expect(publisher.fits?.(eventsOf(3, 4 * 1024 * 1024))).toBe(2);
  expect(publisher.fits?.(eventsOf(3, 1))).toBe(3);
});

describe("a number that the server knows with other content", () => {
  const event: OutboxEvent = {
    id: "1",
    topic: "x",
    key: undefined,
    headers: { "content-type": "application/json" },
    payload: new TextEncoder().encode("1"),
    addedAtMs: 0,
  };
  const batch = (sequence: number): PublishBatch => ({
    relay: "r",
    source: "database",
    identity: { id: "outbox", epoch: 0, sequence },
    events: [event],
    attempts: [1],
    isRetry: true,
    concurrency: 1,
    signal: new AbortController().signal,
  });

  test("is the batch as an earlier encode made it, or nothing, and is published or goes again", async () => {
    const { direct } = await open();
    await direct.stream("/v1/stream/x").create();
    const publisherOf = (word: string) =>
      hapaxPublisher({ connection: direct, streamOf: () => "/v1/stream/x", encode: () => word });
    const [before, after] = [publisherOf("before"), publisherOf("after")];
    expect(await before.publish(batch(0))).toEqual([{ kind: "published" }]);
    expect(await after.publish(batch(0))).toEqual([{ kind: "published" }]);
    expect(await after.cancel?.(batch(1))).toBe("cancelled");
    expect(await after.publish(batch(1))).toEqual([{ kind: "skipped" }]);
    expect(await after.publish(batch(2))).toEqual([{ kind: "published" }]);
    expect(await valuesOf(direct, "x")).toEqual(["before", "after"]);
  });
});

describe("a transaction under numbers of its own", () => {
  test("is stored once, answered as it was, and fenced by a later epoch", async () => {
    const { direct } = await open();
    const stream = "/v1/stream/x";
    await direct.stream(stream).create();
    const append = (data: unknown, epoch: number, sequence: number) =>
      direct.transaction(
        (tx) => {
          tx.append(stream, data);
        },
        { producer: { id: "p", epoch, sequence } },
      );
    const first = await append(1, 0, 0);
    const again = await append(1, 0, 0);
    await expect(append("other", 0, 0)).rejects.toMatchObject({
      code: "producer_seq_reused",
      outcome: "not_stored",
    });
    expect(first).toMatchObject({ isDuplicate: false, hasAnswer: true });
    expect(again).toMatchObject({ isDuplicate: true, hasAnswer: true, offsets: first.offsets });
    await expect(append(3, 0, 2)).rejects.toMatchObject({ code: "producer_gap" });
    await append(2, 1, 0);
    await expect(append(3, 0, 1)).rejects.toMatchObject({ code: "producer_fenced" });
    expect(await direct.stream(stream).read().values()).toEqual([1, 2]);
  });

  test("is refused with numbers that are none, or with a key beside them", async () => {
    const { direct } = await open();
    const producer = { id: "p", epoch: 0, sequence: 0 };
    for (const options of [
      { producer: { ...producer, id: "" } },
      { producer: { ...producer, epoch: -1 } },
      { producer: { ...producer, sequence: 0.5 } },
      { producer, key: "k" },
    ]) {
      const sent = direct.transaction((tx) => {
        tx.create("/v1/stream/x");
      }, options);
      await expect(sent).rejects.toMatchObject({ code: "invalid_request" });
    }
  });
});
