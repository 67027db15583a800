/**
 * The story that the golden directories tell: every kind of record, two snapshots, compaction, and an orderly end.
 * It is told in fixed times, fixed bytes and fixed randomness.
 *
 * `HAPAX_MAKE_GOLDEN=v2 npx vitest run test/golden.test.ts` writes the directories of a new format version. Those
 * of a version that was released are never written again: they are what users have on their disks.
 */

import type { Change } from "../../src/core/change.ts";
import type { SubscriptionChange } from "../../src/core/subscription.ts";
import { imageOfBook } from "../../src/core/subscription-image.ts";
import type {
  Epoch,
  Offset,
  ProducerId,
  Sequence,
  StreamId,
  StreamName,
  TimeMs,
} from "../../src/core/types.ts";
import { type FileStore, openFileStore } from "../../src/stores/file.ts";
import { createSeededRandom } from "../../src/testing/seeded-random.ts";
import {
  appended,
  created,
  ended,
  pattern,
  readAll,
  write,
} from "../../src/testing/store-case-kit.ts";
import { createVirtualClock } from "../../src/testing/virtual-clock.ts";

export const SEGMENT_BYTES = 8192;
export const START_MS = Date.UTC(2026, 0, 2, 3, 4, 5, 678);

/** Made for this file and thrown away: it has never signed anything and never will. */
const THROW_AWAY_KEY = JSON.stringify({
  createdAtMs: START_MS,
  privateJwk: {
    crv: "Ed25519",
    d: "k9FucaQpfp24wCDGaUUAKx4J-WWPdZC1ishX9WitHOE",
    x: "DYoRwg9SbJvWNqLTk8x6wzBQ8R0beeMWJ9J47VbZk2Q",
    kty: "OKP",
  },
});

const name = (text: string): StreamName => `/v1/stream/${text}` as StreamName;
const at = (ms: number): TimeMs => (START_MS + ms) as TimeMs;
const producer = (id: string, epoch: number, sequence: number) => ({
  id: id as ProducerId,
  epoch: epoch as Epoch,
  sequence: sequence as Sequence,
});

const webhook: SubscriptionChange = {
  kind: "subscription_created",
  atMs: at(20),
  subscription: "billing",
  settings: {
    way: { kind: "webhook", url: "https://example.com/hook" },
    pattern: "/v1/stream/o*",
    streams: [name("log")],
    leaseMs: 30_000,
    description: "Rechnungen · 請求書",
  },
  generation: 0,
  links: [{ stream: name("log"), isExplicit: true, isGlob: false, acked: 0 as Offset }],
};

const worker: SubscriptionChange = {
  kind: "subscription_created",
  atMs: at(21),
  subscription: "worker",
  settings: {
    way: { kind: "pull_wake", wakeStream: name("wakes") },
    pattern: undefined,
    streams: [name("orders")],
    leaseMs: 5000,
    description: undefined,
  },
  generation: 0,
  links: [{ stream: name("orders"), isExplicit: true, isGlob: false, acked: undefined }],
};

const subscriptions: readonly Change[] = [
  webhook,
  worker,
  { ...worker, subscription: "short-lived", generation: 0 },
  {
    kind: "subscription_linked",
    atMs: at(22),
    subscription: "billing",
    links: [{ stream: name("orders"), isExplicit: false, isGlob: true, acked: 7 as Offset }],
  },
  {
    kind: "subscription_woken",
    atMs: at(23),
    subscription: "billing",
    wakeId: "wake-1",
    generation: 1,
    tails: [[name("orders"), 14 as Offset]],
    leaseUntilMs: at(30_023),
  },
  {
    kind: "subscription_delivery_failed",
    atMs: at(24),
    subscription: "billing",
    attempts: 1,
    nextAttemptAtMs: at(1024),
    leaseUntilMs: at(31_024),
  },
  { kind: "subscription_delivered", atMs: at(25), subscription: "billing" },
  {
    kind: "subscription_acked",
    atMs: at(26),
    subscription: "billing",
    acks: [{ stream: name("orders"), offset: 14 as Offset }],
    leaseUntilMs: at(30_026),
  },
  { kind: "subscription_released", atMs: at(27), subscription: "billing", reason: "done" },
  {
    kind: "subscription_woken",
    atMs: at(28),
    subscription: "worker",
    wakeId: "wake-2",
    generation: 1,
    tails: [[name("orders"), 14 as Offset]],
    leaseUntilMs: undefined,
  },
  {
    kind: "subscription_claimed",
    atMs: at(29),
    subscription: "worker",
    holder: "machine-7",
    leaseUntilMs: at(5029),
  },
  {
    kind: "subscription_unlinked",
    atMs: at(30),
    subscription: "billing",
    stream: name("log"),
  },
  { kind: "subscription_deleted", atMs: at(31), subscription: "short-lived" },
];

/** Streams 1 to 6: orders (JSON, producers), log (text, closed), source, its fork, scratch (TTL), doomed. */
export async function tellStory(directory: string): Promise<void> {
  const clock = createVirtualClock(START_MS);
  const random = createSeededRandom(1);
  const store = await openFileStore(directory, { segmentBytes: SEGMENT_BYTES, clock, random });
  const orders = { name: name("orders"), contentType: "application/json" };
  await write(store, created(1, orders, at(0)), created(2, { name: name("log") }, at(0)));
  await write(
    store,
    appended(1, '{"a":1}', { atMs: at(1), producer: producer("till-1", 0, 0), streamSeq: "0001" }),
    appended(1, '{"a":2}', { atMs: at(1), producer: producer("till-1", 0, 1), streamSeq: "0002" }),
    appended(2, "first line\n", { atMs: at(2) }),
  );
  await write(store, { kind: "signing_key_added", atMs: at(3), key: THROW_AWAY_KEY });
  await write(
    store,
    created(3, { name: name("source"), expiry: { kind: "at", timeMs: START_MS + 1e9 } }, at(4)),
    created(6, { name: name("doomed"), contentType: "application/octet-stream" }, at(4)),
    appended(3, pattern(1200, 3), { atMs: at(5) }),
    appended(6, pattern(2000, 6), { atMs: at(5) }),
  );
  clock.advance(10);
  await write(
    store,
    created(4, { name: name("fork"), fork: forkOfSource }, at(10)),
    created(5, { name: name("scratch"), expiry: { kind: "ttl", seconds: 3600 } }, at(11)),
    appended(4, "own data of the fork", { atMs: at(12) }),
  );
  await write(store, ended("deleted", 3, at(13)), ended("touched", 5, at(14)));
  await write(store, ...subscriptions);
  await write(store, ended("removed", 6, at(32)));
  await write(store, appended(1, pattern(900, 1), { atMs: at(33) }));
  // The first segment is now mostly dead: a snapshot is written, then what is alive in it moves to the end.
  await store.maintain();
  clock.advance(100);
  await tellEnd(store);
  await store.close();
}

const forkOfSource = {
  source: 3 as StreamId,
  sourceName: name("source"),
  anchor: 1000 as Offset,
  subOffset: 100,
  at: 1100 as Offset,
  inheritsExpiry: true,
};

/** Everything again that has gone with the first segment, and frames that only replay knows. */
async function tellEnd(store: FileStore): Promise<void> {
  await write(store, appended(2, "last line\n", { atMs: at(110), closes: true }));
  await write(
    store,
    appended(1, '{"a":3}', {
      atMs: at(111),
      producer: producer("till-1", 1, 0),
      streamSeq: "0003",
    }),
    appended(1, '{"b":1}', { atMs: at(111), producer: producer("till-2", 0, 0) }),
  );
  await store.maintain();
  await write(
    store,
    created(7, { name: name("log/2"), contentType: "text/plain; charset=utf-8" }, at(120)),
    created(8, { name: name("doomed"), expiry: { kind: "at", timeMs: -1000 } }, at(120)),
    appended(7, "ünïcödé\n", { atMs: at(121) }),
  );
  await write(store, ended("touched", 5, at(122)));
  await write(store, created(9, { name: name("gone") }, at(123)), ended("deleted", 9, at(124)));
  await write(store, ended("removed", 9, at(125)));
  await write(store, {
    kind: "subscription_acked",
    atMs: at(126),
    subscription: "worker",
    acks: [{ stream: name("orders"), offset: 14 as Offset }],
    leaseUntilMs: at(5126),
  });
  await write(store, { kind: "signing_key_added", atMs: at(127), key: THROW_AWAY_KEY });
  // A close without data.
  await write(
    store,
    appended(7, "", { atMs: at(128), closes: true, producer: producer("p", 2, 0) }),
  );
}

/** World and data as plain JSON data. */
export async function describeStore(store: FileStore): Promise<unknown> {
  const { world } = store;
  const streams: unknown[] = [];
  for (const state of [...world.byId.values()].toSorted((one, other) => one.id - other.id)) {
    const start = state.fork?.at ?? 0;
    const appends = await readAll(store, state.id, start, state.tail);
    streams.push({
      ...state,
      producers: [...(state.producers ?? [])],
      appends: appends.map((append) => Buffer.from(append).toString("latin1")),
    });
  }
  const description = {
    version: world.version,
    nextId: world.nextId,
    timeMs: world.timeMs,
    paths: [...world.streams].map(([path, { id }]) => `${path} ${id}`).toSorted(),
    streams,
    signingKeys: world.signingKeys,
    subscriptions: imageOfBook(world.subscriptions),
  };
  // Absent and undefined are the same in JSON.
  return JSON.parse(JSON.stringify(description)) as unknown;
}
