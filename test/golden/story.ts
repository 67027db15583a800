/**
 * The story that the golden directories tell: every kind of record, two snapshots, compaction, and an orderly end.
 * It is told in fixed times, fixed bytes and fixed randomness.
 *
 * `HAPAX_MAKE_GOLDEN=v1 npx vitest run test/golden.test.ts && npx oxfmt test/golden` writes them anew. Format 1 is not released yet
 * and may change in place until it is. Those of a released format are never written again: they are what users have on
 * their disks.
 */

import { createHash } from "node:crypto";
import type { Change } from "../../src/streams/core/change.ts";
import type { SubscriptionChange } from "../../src/streams/core/subscription.ts";
import { imageOfBook } from "../../src/streams/core/subscription-image.ts";
import { imageOfGroups } from "../../src/streams/core/group-image.ts";
import type { GroupChange } from "../../src/streams/core/group-state.ts";
import type { KeyPolicy, StoredKey, StreamKeys } from "../../src/streams/core/keys.ts";
import { isSystemStream, type StreamState } from "../../src/streams/core/stream.ts";
import type { RetentionRule } from "../../src/streams/core/trim.ts";
import type { Offset, StreamId, StreamName, TimeMs } from "../../src/streams/core/types.ts";
import { type FileStore, openFileStore } from "../../src/streams/stores/file.ts";
import { createSeededRandom } from "../../src/testing/seeded-random.ts";
import {
  appended,
  created,
  ended,
  evicted,
  marked,
  pattern,
  read,
  readAll,
  reset,
  trimmed,
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

/** What a policy can say, once in each way. */
const policies = {
  payments: { windowSeconds: 3600, countMax: 40, overflow: "evict", isFromContent: false },
  contents: {
    windowSeconds: undefined,
    countMax: undefined,
    overflow: undefined,
    isFromContent: true,
  },
  strict: { windowSeconds: 86_400, countMax: undefined, overflow: "reject", isFromContent: false },
} as const satisfies Record<string, KeyPolicy>;

const withKeys = (text: string, policy: KeyPolicy) => ({
  name: name(text),
  keys: { policy, window: undefined },
});

/** Streams 10 to 12: payments (45 keys in a window of 40), contents (keys by content), tills (sessions). */
async function tellIdentities(store: FileStore): Promise<void> {
  await write(
    store,
    created(10, withKeys("payments", policies.payments), at(34)),
    created(11, withKeys("contents", policies.contents), at(34)),
    created(12, { name: name("tills") }, at(34)),
  );
  for (let from = 0; from < 45; from += 15) {
    const payments = Array.from({ length: 15 }, (_, index) => payment(from + index));
    await write(store, ...payments);
  }
  await write(
    store,
    appended(11, "equal", { atMs: at(90), key: keyOf("equal", 0) }),
    appended(11, "other", { atMs: at(91), key: keyOf("other", 1) }),
  );
  const till = (text: string, producer: ReturnType<typeof marked>): Change =>
    appended(12, text, { atMs: at(92), producer });
  await write(
    store,
    till("a0", marked("till-3", 0, 0, { session: "nonce-a" })),
    till("a1", marked("till-3", 0, 1, { session: "nonce-a" })),
    till("b0", marked("till-3", 1, 0, { session: "nonce-b" })),
    till("c0", marked("till-3", 2, 0, { session: "nonce-c" })),
    till("d0", marked("till-5", 0, 0, { session: "nonce-d" })),
    till("e0", marked("till-6", 0, 0)),
  );
  const many = Array.from({ length: 40 }, (_, sequence) => sequence);
  const sent = many.map((sequence) => till(`${sequence};`, marked("till-4", 0, sequence)));
  await write(store, ...sent.slice(0, 20));
  await write(store, ...sent.slice(20));
  // One starts anew after its reset, the other has not yet.
  await write(store, reset(12, "till-5", 1, at(93)), reset(12, "till-6", 1, at(93)));
  await write(store, till("again", marked("till-5", 0, 0, { resets: 1 })));
}

/** A key whose mark begins with the digest of its name; its content does not matter here. */
export function keyOf(key: string, ordinal: number, evictTo = 0): StoredKey {
  const digest = createHash("sha256").update(key).digest();
  const mark = Uint32Array.from({ length: 6 }, (_, word) => digest.readUInt32LE(4 * word));
  return { mark, ordinal, evictTo };
}

/** One more than the window has: from the 41st on each pushes out the oldest. */
function payment(ordinal: number): Change {
  const key = keyOf(`payment ${ordinal}`, ordinal, Math.max(0, ordinal - 39));
  return appended(10, `payment ${ordinal}\n`, { atMs: at(40 + ordinal), key });
}

/** What only replay knows of keys, sessions and resets: each of the newer kinds begins a frame. */
async function tellLateIdentities(store: FileStore): Promise<void> {
  await write(store, created(13, withKeys("strict", policies.strict), at(129)));
  await write(
    store,
    appended(13, "once", {
      atMs: at(130),
      key: keyOf("once", 0),
      streamSeq: "0001",
      closes: true,
    }),
  );
  await write(store, evicted(10, 20, at(131)));
  await write(store, appended(10, "late\n", { atMs: at(132), key: keyOf("late", 45, 21) }));
  await write(store, reset(12, "till-4", 1, at(133)));
  const session = marked("till-4", 1, 0, { session: "nonce-e", resets: 1 });
  await write(store, appended(12, "late", { atMs: at(134), producer: session }));
  const next = marked("till-3", 2, 1, { session: "nonce-c" });
  await write(store, appended(12, "c1", { atMs: at(135), producer: next }));
}

/** Streams 1 to 6: orders (JSON, producers), log (text, closed), source, its fork, scratch (TTL), doomed. */
export async function tellStory(directory: string): Promise<void> {
  const clock = createVirtualClock(START_MS);
  const random = createSeededRandom(1);
  const store = await openFileStore(directory, { segmentBytes: SEGMENT_BYTES, clock, random });
  const orders = { name: name("orders"), contentType: "application/json" };
  await write(store, created(1, orders, at(0)), created(2, { name: name("log") }, at(0)));
  await write(
    store,
    appended(1, '{"a":1}', { atMs: at(1), producer: marked("till-1", 0, 0), streamSeq: "0001" }),
    appended(1, '{"a":2}', { atMs: at(1), producer: marked("till-1", 0, 1), streamSeq: "0002" }),
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
  await tellIdentities(store);
  await tellSystem(store);
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
      producer: marked("till-1", 1, 0),
      streamSeq: "0003",
    }),
    appended(1, '{"b":1}', { atMs: at(111), producer: marked("till-2", 0, 0) }),
  );
  await store.maintain();
  await write(
    store,
    created(7, { name: name("log/2"), contentType: "text/plain; charset=utf-8" }, at(120)),
    created(8, { name: name("doomed"), expiry: { kind: "at", timeMs: -1000 } }, at(120)),
    appended(7, "ünïcödé\n", { atMs: at(121) }),
  );
  await write(store, ended("touched", 5, at(122)));
  await write(store, created(9, { name: name("gone") }, at(123)));
  await write(store, ended("deleted", 9, at(124)));
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
  await write(store, appended(7, "", { atMs: at(128), closes: true, producer: marked("p", 2, 0) }));
  await tellLateIdentities(store);
  await tellLateSystem(store);
}

/** Where the data begins that the stream has itself and still has. */
async function findStart(store: FileStore, state: StreamState): Promise<number> {
  if (!isSystemStream(state.name) && state.retained === undefined) return state.fork?.at ?? 0;
  for (let start = 0; start < state.tail; start += 1) {
    if ((await read(store, state.id, start, state.tail)).appends.length > 0) return start;
  }
  return state.tail;
}

const LOG = "hapax:transactions" as StreamName;
const offset = (value: number): Offset => value as Offset;

const shippers: GroupChange = {
  kind: "group_created",
  atMs: at(95),
  group: "shippers",
  settings: {
    pattern: "/v1/stream/o*",
    streams: [name("log"), name("tills")],
    start: { kind: "offset", offset: offset(7) },
    leaseMs: 30_000,
  },
  cursors: [
    [name("log"), offset(0)],
    [name("orders"), offset(7)],
    [name("tills"), offset(2)],
  ],
};

const inShippers = { group: "shippers", expiresAtMs: at(30_096) } as const;
const unchanged = { dropped: [], granted: [], asked: [], kept: [] } as const;
const claimed = { ...inShippers, ...unchanged, kind: "group_claimed", atMs: at(97) } as const;

/** Two members share three streams; one of them leaves, and a group that nobody needs is deleted. */
const groups: readonly GroupChange[] = [
  shippers,
  { ...shippers, group: "short-lived", settings: { ...shippers.settings, pattern: undefined } },
  { ...inShippers, kind: "group_joined", atMs: at(96), member: "pod-a#1", ordinal: 1 },
  { ...inShippers, kind: "group_joined", atMs: at(96), member: "pod-b#2", ordinal: 2 },
  {
    ...claimed,
    member: "pod-a#1",
    max: 10,
    granted: [
      [name("log"), 3],
      [name("orders"), 4],
      [name("tills"), 5],
    ],
  },
  { ...claimed, member: "pod-b#2", max: 1, asked: [[name("tills"), at(30_097)]] },
  { kind: "group_released", atMs: at(98), group: "shippers", streams: [name("tills")] },
  { ...claimed, atMs: at(99), member: "pod-b#2", max: 1, granted: [[name("tills"), 6]] },
  {
    ...inShippers,
    kind: "group_committed",
    atMs: at(100),
    member: "pod-a#1",
    offsets: [
      [name("log"), offset(11)],
      [name("orders"), offset(14)],
    ],
    finished: [],
  },
  { kind: "group_left", atMs: at(101), group: "shippers", member: "pod-b#2" },
  { kind: "group_reset", atMs: at(102), group: "shippers", offsets: [[name("tills"), offset(0)]] },
  { kind: "group_deleted", atMs: at(103), group: "short-lived" },
];

/** Stream 14: the log of transactions, a part of which is needed no more. Then the groups. */
async function tellSystem(store: FileStore): Promise<void> {
  await write(store, created(14, { name: LOG, contentType: "application/json" }, at(94)));
  for (let entry = 0; entry < 8; entry += 1) {
    await write(store, appended(14, `{"entry":${entry}}`, { atMs: at(94) }));
  }
  await write(store, trimmed(14, 3 * 11, at(94)));
  await write(store, ...groups);
}

/** What only replay knows of them. The trim ends within an append, which stays. */
async function tellLateSystem(store: FileStore): Promise<void> {
  await write(store, {
    ...inShippers,
    kind: "group_committed",
    atMs: at(136),
    member: "pod-a#1",
    offsets: [[name("log"), offset(21)]],
    finished: [name("log")],
  });
  await write(store, appended(14, '{"entry":8}', { atMs: at(137) }));
  await write(store, trimmed(14, 5 * 11 + 3, at(138)));
  const feed = [0, 1, 2].map((entry) =>
    appended(15, `entry ${entry}`, { atMs: at(113 + 4000 * entry) }),
  );
  const made = [created(15, { name: name("feed") }, at(112)), retains(15, FEED, 112)];
  await write(store, ...made, ...feed, trimmed(15, 7, at(8200)));
  await write(store, appended(15, "entry 3", { atMs: at(9100) }), trimmed(15, 2 * 7, at(9100)));
  await write(store, retains(15, { ...FEED, bytes: undefined }, 9200), retains(13, FEED, 9200));
  await write(store, retains(13, undefined, 9300));
}

/** Stream 15: a feed that keeps a minute, and 60 bytes. */
const FEED = { seconds: 60, bytes: 60, dropsNeeded: true } as const;

function retains(id: number, rule: RetentionRule | undefined, ms: number): Change {
  return { kind: "retention_set", atMs: at(ms), stream: id as StreamId, rule };
}

/** A window keeps its entries to itself: they are asked for one by one. */
function describeKeys(keys: StreamKeys | undefined): unknown {
  const window = keys?.window;
  if (window === undefined) return keys;
  const entries: unknown[] = [];
  for (let ordinal = window.first; ordinal < window.next; ordinal += 1) {
    const mark = [...window.markOf(ordinal)].map((word) => word.toString(16).padStart(8, "0"));
    entries.push([mark.join(" "), window.endOf(ordinal), window.timeOf(ordinal)]);
  }
  return { policy: keys?.policy, first: window.first, next: window.next, entries };
}

/** World and data as plain JSON data. */
export async function describeStore(store: FileStore): Promise<unknown> {
  const { world } = store;
  const streams: unknown[] = [];
  for (const state of [...world.byId.values()].toSorted((one, other) => one.id - other.id)) {
    const start = await findStart(store, state);
    const appends = await readAll(store, state.id, start, state.tail);
    streams.push({
      ...state,
      producers: [...(state.producers ?? [])],
      keys: describeKeys(state.keys),
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
    groups: imageOfGroups(world.groups),
  };
  // Absent and undefined are the same in JSON.
  return JSON.parse(JSON.stringify(description)) as unknown;
}
