// The eight edge cases of a window of keys that is kept in memory and rebuilt from a snapshot and the journal, each
// on the file store. A crash is the directory as it is at that moment, opened by another store. PROTOCOL.md §16
import { cpSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import type { Offset, StreamName } from "../src/streams/core/types.ts";
import type { Engine } from "../src/streams/engine/engine.ts";
import { WholeEngine } from "../src/streams/engine/whole-engine.ts";
import type { AppendOutcome } from "../src/streams/engine/outcomes.ts";
import { type FileStore, openFileStore } from "../src/streams/stores/file.ts";
import { openOnDisk } from "../src/streams/stores/file/file-store.ts";
import type { Disk } from "../src/streams/stores/file/disk.ts";
import {
  appendCommand,
  createCommand,
  keyClaim,
  sessionClaim,
  joinedText,
} from "../src/testing/commands.ts";
import { createSimulatedDisk, type SimulatedDisk } from "./kits/simulated-disk.ts";
import { createVirtualClock, type VirtualClock } from "../src/testing/virtual-clock.ts";
import { turn } from "./kits/watch.ts";
import { keyTimeMs } from "../src/protocol/key.ts";
import { inDirectory } from "./crash/processes.ts";

const START_MS = 1_700_000_000_000;
const WINDOW_SECONDS = 600;
const WINDOW_MS = WINDOW_SECONDS * 1000;
const NAME = "/v1/stream/windowed" as StreamName;
const POLICY = {
  windowSeconds: WINDOW_SECONDS,
  countMax: undefined,
  overflow: undefined,
  isFromContent: false,
};
const SEGMENT_BYTES = 16_384;

/** One process on the store. */
class Life {
  readonly store: FileStore;
  readonly engine: Engine;
  readonly clock: VirtualClock;

  constructor(store: FileStore, clock: VirtualClock) {
    this.store = store;
    this.clock = clock;
    this.engine = new WholeEngine({ store, clock, jsonRecordsEnd: () => undefined });
  }

  create(name = NAME): Promise<unknown> {
    return this.engine.create(createCommand(name, { keys: POLICY }));
  }

  append(key: string, text = `${key};`): Promise<AppendOutcome> {
    const claim = keyClaim(key, text, { timeMs: keyTimeMs(key) });
    return this.engine.append(NAME, appendCommand(text, { key: claim }));
  }

  async text(): Promise<string> {
    const look = await this.engine.look(NAME);
    if (look.kind !== "found") return look.kind;
    const pieces: Uint8Array[] = [];
    for (let from = 0 as Offset; from < look.tail;) {
      const page = await this.engine.read(look.state, from, 1_000_000);
      pieces.push(...page.appends);
      from = page.next;
    }
    return joinedText(pieces);
  }
}

/** Directories from crash to crash: each life opens a copy of what the one before it had on disk. */
class Lives {
  readonly #root: string;
  readonly #lives: Life[] = [];

  constructor(root: string) {
    this.#root = root;
  }

  get dir(): string {
    return join(this.#root, String(this.#lives.length - 1));
  }

  async next(nowMs = START_MS): Promise<Life> {
    const dir = join(this.#root, String(this.#lives.length));
    if (this.#lives.length > 0) {
      // The store still runs: what it prepares in the background is not copied, because it is renamed meanwhile.
      const filter = (path: string): boolean => !/\.(sock|tmp)$/.test(path);
      cpSync(this.dir, dir, { recursive: true, filter });
    }
    const clock = createVirtualClock(nowMs);
    const store = await openFileStore(dir, { clock, segmentBytes: SEGMENT_BYTES });
    const life = new Life(store, clock);
    this.#lives.push(life);
    return life;
  }

  async end(): Promise<void> {
    for (const { store } of this.#lives) await store.close();
  }
}

function withLives(run: (lives: Lives) => Promise<void>): Promise<void> {
  return inDirectory(async (root) => {
    const lives = new Lives(root);
    try {
      await run(lives);
    } finally {
      await lives.end();
    }
  });
}

const keysFrom = (first: number, count: number): readonly string[] =>
  Array.from({ length: count }, (_, index) => `key-${first + index}`);

/** Appends each key, one commit for each, and gives the end of each. */
async function appendAll(
  life: Life,
  keys: readonly string[],
  ends = new Map<string, number>(),
  filler = "",
): Promise<Map<string, number>> {
  for (const key of keys) {
    const outcome = await life.append(key, `${key}${filler};`);
    if (outcome.kind !== "accepted") throw new Error(`${key} was ${outcome.kind}`);
    ends.set(key, outcome.tail);
  }
  return ends;
}

/** Every retry is answered with the end of its original, and nothing is stored by it. */
async function expectAllKnown(
  life: Life,
  ends: ReadonlyMap<string, number>,
  filler = "",
): Promise<void> {
  const before = await life.text();
  for (const [key, end] of ends) {
    const outcome = await life.append(key, `${key}${filler};`);
    expect(outcome, key).toMatchObject({ kind: "replayed", end });
  }
  expect(await life.text()).toBe(before);
  expect(before).toBe([...ends.keys()].map((key) => `${key}${filler};`).join(""));
}

test("edge case 1: a crash between a write and the next snapshot forgets no key and no session", () =>
  withLives(async (lives) => {
    const first = await lives.next();
    await first.create();
    const ends = await appendAll(first, keysFrom(0, 500));
    const sessions = "/v1/stream/sessions" as StreamName;
    await first.create(sessions);
    const claim = (life: Life, nonce: string) => {
      const producer = sessionClaim("p", nonce, 0);
      return life.engine.append(sessions, appendCommand(nonce, { producer }));
    };
    expect((await claim(first, "old")).kind).toBe("accepted");
    await first.store.maintain();
    await appendAll(first, keysFrom(500, 20), ends);
    expect((await claim(first, "new")).kind).toBe("accepted");
    const second = await lives.next();
    expect(second.store.recovery.snapshotLsn).toBeDefined();
    expect(second.store.recovery.changes).toBe(21);
    await expectAllKnown(second, ends);
    expect(await claim(second, "old")).toMatchObject({ kind: "fenced", currentEpoch: 1 });
    expect(await claim(second, "new")).toMatchObject({ kind: "duplicate", epoch: 1, end: 6 });
    expect((await second.append("key-520")).kind).toBe("accepted");
  }));

test("edge case 2: a write whose answer is lost is known to its retry, also while it is committed and after a crash", () =>
  withLives(async (lives) => {
    const first = await lives.next();
    await first.create();
    // The first answer is still to come when the retry arrives.
    const [lost, retry] = await Promise.all([first.append("x"), first.append("x")]);
    expect(lost).toMatchObject({ kind: "accepted", tail: 2 });
    expect(retry).toMatchObject({ kind: "replayed", end: 2 });
    expect(await first.append("x")).toMatchObject({ kind: "replayed", end: 2 });
    const second = await lives.next();
    expect(await second.append("x")).toMatchObject({ kind: "replayed", end: 2 });
    expect(await second.append("x", "other")).toEqual({ kind: "key_reused" });
    expect(await second.text()).toBe("x;");
  }));

/** Opens, appends one key, and is killed at the call with this number after opening. */
async function failOver(seed: number, call: number): Promise<{ kind: string; isOver: boolean }> {
  const clock = createVirtualClock(START_MS);
  const disk = createSimulatedDisk(seed);
  const open = async (on: SimulatedDisk): Promise<Life> =>
    new Life(await openOnDisk(on, { clock, segmentBytes: SEGMENT_BYTES }, async () => {}), clock);
  const old = await open(disk);
  await old.create();
  await appendAll(old, keysFrom(0, 3));
  const calls = disk.log.length;
  disk.stopAt(calls + call);
  const answered = old.append("x").then(
    () => true,
    () => false,
  );
  await turn();
  const isOver = await Promise.race([answered, turn().then(() => false)]);
  const next = await open(seed % 2 === 0 ? disk.kill() : disk.crash());
  const retry = await next.append("x");
  expect(await next.text()).toBe("key-0;key-1;key-2;x;");
  expect(await next.append("x")).toMatchObject({ kind: "replayed", end: 20 });
  if (isOver) expect(retry.kind).toBe("replayed");
  return { kind: retry.kind, isOver };
}

test("edge case 3: after a failover an unanswered write is either known or new, and stored once", async () => {
  const kinds = new Set<string>();
  let isOver = false;
  // The write is torn another way by every seed.
  for (let seed = 1; seed <= 60; seed += 1) {
    const outcome = await failOver(seed, 1 + (seed % 3));
    kinds.add(outcome.kind);
    isOver ||= outcome.isOver;
  }
  expect([...kinds].toSorted()).toEqual(["accepted", "replayed"]);
  expect(isOver).toBe(true);
});

test("edge case 4: keys of a segment that was finished after the snapshot are known", () =>
  withLives(async (lives) => {
    const first = await lives.next();
    const filler = "-".repeat(500);
    await first.create();
    const ends = await appendAll(first, keysFrom(0, 5), undefined, filler);
    await first.store.maintain();
    expect(first.store.stats().segments).toBe(1);
    // The segment that was being written when the snapshot was taken is full before the crash.
    let number = 5;
    for (; first.store.stats().segments < 2; number += 1) {
      await appendAll(first, keysFrom(number, 1), ends, filler);
    }
    expect(number).toBeGreaterThan(10);
    const second = await lives.next();
    expect(second.store.recovery.snapshotLsn).toBeDefined();
    await expectAllKnown(second, ends, filler);
  }));

test("edge case 5: keys are known when the segments that held them have been given up", () =>
  withLives(async (lives) => {
    const first = await lives.next();
    const bulk = "/v1/stream/bulk" as StreamName;
    await first.create();
    const ends = new Map<string, number>();
    for (let round = 0; round < 5; round += 1) {
      // Keys and bulk share segments; the bulk goes, and what is left is moved.
      await first.engine.create(createCommand(bulk));
      await appendAll(first, keysFrom(round * 4, 4), ends);
      for (let count = 0; count < 12; count += 1) {
        await first.engine.append(bulk, appendCommand("b".repeat(2000)));
      }
      await first.engine.delete(bulk);
    }
    const firstSegment = readdirSync(lives.dir)
      .filter((name) => name.startsWith("journal-"))
      .toSorted()[0];
    for (let round = 0; round < 4; round += 1) {
      await first.create(`/v1/stream/step-${round}` as StreamName);
      await first.store.maintain();
    }
    expect(readdirSync(lives.dir)).not.toContain(firstSegment);
    const second = await lives.next();
    await expectAllKnown(second, ends);
  }));

test("edge case 6: keys in segments that were begun after the snapshot are known", () =>
  withLives(async (lives) => {
    const first = await lives.next();
    const filler = "-".repeat(1000);
    await first.create();
    const ends = await appendAll(first, keysFrom(0, 5), undefined, filler);
    await first.store.maintain();
    await appendAll(first, keysFrom(5, 60), ends, filler);
    expect(first.store.stats().segments).toBeGreaterThan(3);
    const second = await lives.next();
    expect(second.store.recovery.snapshotLsn).toBeDefined();
    await expectAllKnown(second, ends, filler);
  }));

/** A disk on which no file of a snapshot can be made while `isBroken`. */
function withoutSnapshots(inner: Disk, state: { isBroken: boolean }): Disk {
  return {
    list: () => inner.list(),
    open: (name, mode) =>
      state.isBroken && mode === "create" && name.startsWith("snapshot-")
        ? Promise.reject(new Error("EIO: no snapshot today"))
        : inner.open(name, mode),
    rename: (from, to) => inner.rename(from, to),
    remove: (name) => inner.remove(name),
    syncDirectory: () => inner.syncDirectory(),
  };
}

test("edge case 7: a snapshot that fails costs nothing: the one before it and the journal have every key", async () => {
  const clock = createVirtualClock(START_MS);
  const disk = createSimulatedDisk(7);
  const state = { isBroken: false };
  const warnings: string[] = [];
  const open = async (on: Disk): Promise<Life> => {
    const onWarning = (warning: string): void => void warnings.push(warning);
    const options = { clock, segmentBytes: SEGMENT_BYTES, onWarning };
    return new Life(await openOnDisk(on, options, async () => {}), clock);
  };
  const first = await open(withoutSnapshots(disk, state));
  await first.create();
  const ends = await appendAll(first, keysFrom(0, 50));
  await first.store.maintain();
  state.isBroken = true;
  await appendAll(first, keysFrom(50, 50), ends);
  await first.store.maintain();
  expect(warnings.join()).toContain("no snapshot today");
  // It goes on with what it has in memory.
  await expectAllKnown(first, ends);
  await appendAll(first, keysFrom(100, 10), ends);
  const after = disk.crash();
  const second = await open(after);
  expect(second.store.recovery.snapshotLsn).toBeDefined();
  expect(second.store.recovery.changes).toBe(60);
  await expectAllKnown(second, ends);
  // The next attempt has everything.
  await second.store.maintain();
  const third = await open(after.crash());
  expect(third.store.recovery.changes).toBe(0);
  await expectAllKnown(third, ends);
});

/** A UUID of version 7 that was made at this time. */
function uuidOf(timeMs: number, last: string): string {
  const hex = timeMs.toString(16).padStart(12, "0");
  return `${hex.slice(0, 8)}-${hex.slice(8)}-7000-8000-00000000000${last}`;
}

test("edge case 8: after the window a plain key is new and a key that carries its time is refused, across crashes", () =>
  withLives(async (lives) => {
    const first = await lives.next();
    await first.create();
    const dated = uuidOf(START_MS, "1");
    expect(keyTimeMs(dated)).toBe(START_MS);
    const plainEnd = await first.append("plain");
    const datedEnd = await first.append(dated);
    expect([plainEnd.kind, datedEnd.kind]).toEqual(["accepted", "accepted"]);
    await first.store.maintain();
    // To the last millisecond of the window, in the next process too, and with every setting of the wall clock.
    const second = await lives.next(START_MS + WINDOW_MS - 1);
    second.clock.jump(10 * WINDOW_MS);
    expect(await second.append("plain")).toMatchObject({ kind: "replayed", end: 6 });
    expect(await second.append(dated)).toMatchObject({ kind: "replayed" });
    // And not one longer.
    const third = await lives.next(START_MS + WINDOW_MS);
    expect(await third.append(dated)).toEqual({ kind: "key_expired", windowMs: WINDOW_MS });
    expect((await third.append("plain")).kind).toBe("accepted");
    expect(await third.text()).toBe(`plain;${dated};plain;`);
    // The new life of the plain key has a window of its own, and the refusal stays.
    const fourth = await lives.next(START_MS + 2 * WINDOW_MS - 1);
    expect((await fourth.append("plain")).kind).toBe("replayed");
    expect((await fourth.append(dated)).kind).toBe("key_expired");
    fourth.clock.advance(1);
    expect((await fourth.append("plain")).kind).toBe("accepted");
  }));
