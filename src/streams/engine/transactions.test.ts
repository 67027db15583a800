// Transactions over a store whose commits wait at a gate, and over stores that are opened again. PROTOCOL.md §19
import { afterEach, describe, expect, test } from "vitest";
import type { Operation } from "../core/transaction-state.ts";
import { transactionLogOf } from "../core/transaction-state.ts";
import type { Offset, ProducerId, StreamName } from "../core/types.ts";
import { openMemoryStore } from "../stores/memory.ts";
import type { Store } from "../store.ts";
import {
  createCommand,
  keyClaim,
  producerClaim,
  sessionClaim,
  joinedText,
} from "../../testing/commands.ts";
import { type GatedStore, openGatedStore } from "../../../test/kits/gated-store.ts";
import { createVirtualClock } from "../../testing/virtual-clock.ts";
import { turn, watch } from "../../../test/kits/watch.ts";
import type { Engine } from "./engine.ts";
import { WholeEngine } from "./whole-engine.ts";
import type { TransactionIdentity, TransactionResult } from "./transactions.ts";

const A = "/a" as StreamName;
const B = "/b" as StreamName;
const START_MS = 1_800_000_000_000;

const opened: Engine[] = [];
afterEach(async () => {
  for (const engine of opened.splice(0)) await engine.close();
});

async function openEngine(
  store: Store = openMemoryStore(),
  outcomeBytesMax?: number,
): Promise<Engine> {
  const clock = createVirtualClock(START_MS);
  const jsonRecordsEnd = (): undefined => undefined;
  const more = outcomeBytesMax === undefined ? {} : { outcomeBytesMax };
  const engine = new WholeEngine({ store, clock, jsonRecordsEnd, ...more });
  opened.push(engine);
  return engine;
}

function append(stream: StreamName, text: string): Operation {
  const data = new TextEncoder().encode(text);
  return { kind: "append", stream, contentType: "text/plain", data, closes: false };
}

function byKey(key: string, body = "body"): TransactionIdentity {
  return { kind: "key", claim: keyClaim(key, body) };
}

function byProducer(epoch: number, sequence: number, id = "p", digest = 7): TransactionIdentity {
  return { kind: "producer", claim: producerClaim(id, epoch, sequence), digest };
}

function commit(
  engine: Engine,
  identity: TransactionIdentity,
  ...operations: readonly Operation[]
): Promise<TransactionResult> {
  return engine.transactions.commit(() => ({ identity, operations, bytes: 0 }), "wake");
}

async function read(engine: Engine, name: StreamName): Promise<string> {
  const look = await engine.look(name);
  if (look.kind !== "found") return look.kind;
  return joinedText((await engine.read(look.state, 0 as Offset, 1_000_000)).appends);
}

async function twoStreams(store?: Store, outcomeBytesMax?: number): Promise<Engine> {
  const engine = await openEngine(store, outcomeBytesMax);
  await engine.create(createCommand(A));
  await engine.create(createCommand(B));
  return engine;
}

/** The streams are there; from now on every commit waits at the gate. */
async function twoStreamsBehindAGate(): Promise<{ engine: Engine; store: GatedStore }> {
  const inner = openMemoryStore();
  await twoStreams(inner);
  opened.length = 0; // Only one engine closes the store.
  const store = openGatedStore(inner);
  return { engine: await openEngine(store), store };
}

describe("a transaction", () => {
  test("is invisible before its commit, and whole after it, to readers and to those who listen", async () => {
    const { engine, store } = await twoStreamsBehindAGate();
    const told: string[] = [];
    for (const name of [A, B]) {
      const state = engine.world.streams.get(name);
      if (state === undefined) throw new Error("there is no stream");
      engine.listen(state, () => {
        const tails = [A, B].map(
          (other) => engine.list("/", "", 9).found.find(({ state: s }) => s.name === other)?.tail,
        );
        told.push(tails.join(" "));
      });
    }
    const outcome = commit(engine, byKey("k"), append(A, "one"), append(B, "two"));
    const watched = watch(outcome);
    await turn();
    expect(watched.isWaiting).toBe(true);
    expect(engine.list("/", "", 9).found.map(({ tail }) => tail)).toEqual([0, 0]);
    store.open();
    await outcome;
    expect(told).toEqual(["3 3", "3 3"]);
    expect([await read(engine, A), await read(engine, B)]).toEqual(["one", "two"]);
  });

  test("is one commit of the store", async () => {
    const commits: number[] = [];
    const inner = openMemoryStore();
    const store: Store = {
      supports: inner.supports,
      world: inner.world,
      room: inner.room,
      read: (...range) => inner.read(...range),
      seek: (...range) => inner.seek(...range),
      stats: () => inner.stats(),
      close: () => inner.close(),
      commit: (changes) => {
        commits.push(changes.length);
        return inner.commit(changes);
      },
    };
    const engine = await twoStreams(store);
    await commit(engine, byKey("first"));
    commits.length = 0;
    await commit(engine, byKey("k"), append(A, "one"), append(B, "two"));
    expect(commits).toEqual([3]);
  });

  test("that was refused has changed nothing, and its identity is free", async () => {
    const engine = await twoStreams();
    const missing = append("/none" as StreamName, "x");
    const refused = await commit(engine, byKey("k"), append(A, "one"), missing);
    expect(refused).toMatchObject({
      kind: "refused",
      operation: 1,
      refusal: { kind: "stream_missing" },
    });
    expect(await read(engine, A)).toBe("");
    expect(await commit(engine, byProducer(0, 0), missing)).toMatchObject({ kind: "refused" });
    expect(await commit(engine, byKey("k"), append(A, "two"))).toMatchObject({
      isDuplicate: false,
    });
    expect(await commit(engine, byProducer(0, 0), append(A, "!"))).toMatchObject({
      isDuplicate: false,
    });
    expect(await read(engine, A)).toBe("two!");
  });

  test("creates streams that expire as any other", async () => {
    const engine = await openEngine();
    const command = createCommand(A, { expiry: { kind: "ttl", seconds: 1 } });
    await commit(engine, byKey("k"), { kind: "create", command }, append(A, "x"));
    expect(engine.world.streams.get(A)?.expiry).toEqual({ kind: "ttl", seconds: 1 });
  });

  test("that has its log made is not seen in lists, and the log has no path", async () => {
    const engine = await twoStreams();
    await commit(engine, byKey("k"), append(A, "x"));
    expect(engine.list("", "", 9).found.map(({ state }) => state.name)).toEqual([A, B]);
    expect(engine.world.streams.has(transactionLogOf(undefined))).toBe(true);
  });
});

describe("a retry", () => {
  test("is answered as the original was, also after other changes", async () => {
    const engine = await twoStreams();
    const work = [append(A, "one"), append(B, "two")];
    for (const identity of [byKey("k"), byProducer(0, 0)]) {
      const first = await commit(engine, identity, ...work);
      await engine.append(A, { ...emptyAppend(), data: new TextEncoder().encode("more") });
      const second = await commit(engine, identity, ...work);
      if (first.kind !== "committed" || second.kind !== "committed")
        throw new Error("it was refused");
      expect(second).toEqual({ ...first, isDuplicate: true });
    }
    expect(await read(engine, B)).toBe("twotwo");
    await engine.delete(A);
    expect(await commit(engine, byKey("k"), ...work)).toMatchObject({ isDuplicate: true });
  });

  test("that comes before the original is committed waits for it, and is stored once", async () => {
    const { engine, store } = await twoStreamsBehindAGate();
    const all = Array.from({ length: 5 }, () => commit(engine, byKey("k"), append(A, "x")));
    const watched = all.map((outcome) => watch(outcome));
    await turn();
    expect(watched.every(({ isWaiting }) => isWaiting)).toBe(true);
    store.open();
    const outcomes = await Promise.all(all);
    const replays = outcomes.filter(
      (outcome) => outcome.kind === "committed" && outcome.isDuplicate,
    );
    expect(replays).toHaveLength(4);
    expect(await read(engine, A)).toBe("x");
  });

  test("with other content under its key is refused, and a producer is fenced as on a stream", async () => {
    const engine = await twoStreams();
    await commit(engine, byKey("k", "one"), append(A, "x"));
    expect(await commit(engine, byKey("k", "two"), append(A, "y"))).toEqual({ kind: "key_reused" });
    await commit(engine, byProducer(1, 0), append(A, "x"));
    expect(await commit(engine, byProducer(0, 0), append(A, "x"))).toMatchObject({
      kind: "fenced",
    });
    expect(await commit(engine, byProducer(1, 2), append(A, "x"))).toMatchObject({ kind: "gap" });
    expect(await read(engine, A)).toBe("xx");
  });

  test("of an old transaction is known to be committed, and of the last 32 its answer", async () => {
    const engine = await twoStreams();
    for (let sequence = 0; sequence < 40; sequence += 1) {
      await commit(engine, byProducer(0, sequence), append(A, "x"));
    }
    const old = await commit(engine, byProducer(0, 7), append(A, "x"));
    expect(old).toMatchObject({ kind: "committed", isDuplicate: true, operations: undefined });
    const recent = await commit(engine, byProducer(0, 8), append(A, "x"));
    expect(recent).toMatchObject({ operations: [{ stream: A, tail: 9 }] });
    expect(await read(engine, A)).toHaveLength(40);
  });

  test("of what the log has trimmed is a replay without its answer, and never a second time", async () => {
    const engine = await twoStreams(openMemoryStore(), 1000);
    for (let index = 0; index < 100; index += 1) {
      await commit(engine, byKey(`k${index}`), append(A, "x"));
    }
    expect(await commit(engine, byKey("k0"), append(A, "x"))).toMatchObject({
      kind: "committed",
      isDuplicate: true,
      operations: undefined,
    });
    expect(await commit(engine, byKey("k99"), append(A, "x"))).toMatchObject({
      operations: [{ stream: A, tail: 100 }],
    });
    expect(engine.storeStats().liveBytes).toBeLessThan(100 + 1100);
  });
});

describe("the outcome of a lost commit", () => {
  test("is found by key, by producer and by session", async () => {
    const engine = await twoStreams();
    expect(await engine.transactions.find(byKey("k"))).toEqual({ kind: "missing" });
    const claim = sessionClaim("s", "nonce", 0);
    const session: TransactionIdentity = { kind: "producer", claim, digest: 7 };
    for (const identity of [byKey("k"), byProducer(3, 0), session]) {
      const outcome = await commit(engine, identity, append(A, "x"));
      if (outcome.kind !== "committed") throw new Error("it was refused");
      expect(await engine.transactions.find(identity)).toEqual({ ...outcome, isDuplicate: true });
    }
    expect(await engine.transactions.find(byProducer(3, 1))).toEqual({ kind: "missing" });
    expect(await engine.transactions.find(byProducer(2, 0))).toMatchObject({ kind: "fenced" });
    expect(await engine.transactions.find(byProducer(0, 0, "unknown" as ProducerId))).toEqual({
      kind: "missing",
    });
  });
});

describe("the logs of namespaces", () => {
  const spaces = Array.from({ length: 50 }, (_, index) => `/v1/stream/t${index}`);
  const DAY_MS = 86_400_000;

  function openTimed(store: Store = openMemoryStore()) {
    const clock = createVirtualClock(START_MS);
    const engine = new WholeEngine({ store, clock, jsonRecordsEnd: () => undefined });
    opened.push(engine);
    return { engine, clock };
  }

  test("are forgotten with their last key, so that idle namespaces cost nothing", async () => {
    const { engine, clock } = openTimed();
    await engine.create(createCommand(A));
    for (const namespace of spaces) {
      await commit(engine, { ...byKey("k"), namespace }, append(A, "x"));
    }
    expect(engine.world.streams.size).toBe(1 + spaces.length);
    clock.advance(DAY_MS + 5000);
    await engine.settled();
    expect([...engine.world.streams.keys()]).toEqual([A]);
    expect(engine.keyedStreams.size).toBe(0);
    const [namespace] = spaces;
    const again = await commit(engine, { ...byKey("k"), namespace }, append(A, "x"));
    expect(again).toMatchObject({ kind: "committed", isDuplicate: false });
    const retry = await commit(engine, { ...byKey("k"), namespace }, append(A, "x"));
    expect(retry).toMatchObject({ kind: "committed", isDuplicate: true });
  });

  test("stay as long as they know a producer", async () => {
    const { engine, clock } = openTimed();
    await engine.create(createCommand(A));
    const namespace = "/v1/stream/acme";
    for (const identity of [byKey("k"), byProducer(0, 0)]) {
      await commit(engine, { ...identity, namespace }, append(A, "x"));
    }
    clock.advance(DAY_MS + 5000);
    await engine.settled();
    const retry = await commit(engine, { ...byProducer(0, 0), namespace }, append(A, "x"));
    expect(retry).toMatchObject({ kind: "committed", isDuplicate: true });
    const other = await commit(engine, byProducer(0, 0), append(A, "x"));
    expect(other).toMatchObject({ kind: "committed", isDuplicate: false });
  });

  test("keep answers up to a limit each", async () => {
    const engine = await twoStreams(openMemoryStore(), 1000);
    const namespaces = ["/v1/stream/a", "/v1/stream/b"];
    for (const namespace of namespaces) {
      for (let index = 0; index < 100; index += 1) {
        await commit(engine, { ...byKey(`k${index}`), namespace }, append(A, "x"));
      }
    }
    for (const namespace of namespaces) {
      const last = await commit(engine, { ...byKey("k99"), namespace }, append(A, "x"));
      expect(last).toMatchObject({ isDuplicate: true, operations: [{ stream: A }] });
    }
    expect(engine.storeStats().liveBytes).toBeLessThan(200 + 2 * 1100);
  });
});

function emptyAppend() {
  return {
    data: new Uint8Array(),
    contentType: "text/plain",
    closes: false,
    producer: undefined,
    key: undefined,
    streamSeq: undefined,
    expectedTail: undefined,
  };
}
