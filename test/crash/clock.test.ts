// Expiry across crashes, by journal time: what a directory says at the instant of a kill is opened again at
// another time of the clock, also at an earlier one.
import { cpSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import type { ExpiryRule } from "../../src/streams/core/stream.ts";
import type { StreamName } from "../../src/streams/core/types.ts";
import type { Engine } from "../../src/streams/engine/engine.ts";
import { WholeEngine } from "../../src/streams/engine/whole-engine.ts";
import { type FileStore, openFileStore } from "../../src/streams/stores/file.ts";
import { appendCommand, createCommand, keyClaim } from "../../src/testing/commands.ts";
import { createVirtualClock, type VirtualClock } from "../../src/testing/virtual-clock.ts";
import { inDirectory } from "./processes.ts";

const START_MS = 1_700_000_000_000;
const TTL: ExpiryRule = { kind: "ttl", seconds: 160 };
const TTL_MS = 160_000;
/** A 16th of the TTL: by so much may the end of a stream be late. */
const GRAIN_MS = 10_000;
const SLIDING = "/sliding" as StreamName;
const FIXED = "/fixed" as StreamName;
const FIXED_AT: ExpiryRule = { kind: "at", timeMs: START_MS + 100_000 };

interface Life {
  readonly engine: Engine;
  readonly store: FileStore;
  readonly clock: VirtualClock;
}

/** One directory from crash to crash. Each life opens a copy of what the one before it had on disk. */
/** The lock of a process that was killed is left behind, and is no file to copy. */
// The store still runs: what it prepares in the background is not copied, because it is renamed meanwhile.
const isNoSocket = (path: string): boolean => !/\.(sock|tmp)$/.test(path);

class Lives {
  readonly #root: string;
  readonly #lives: Life[] = [];

  constructor(root: string) {
    this.#root = root;
  }

  /** Copies the files of the life before as they are, as a kill leaves them, and opens the copy. */
  async next(nowMs: number): Promise<Life> {
    const number = this.#lives.length;
    const dir = join(this.#root, String(number));
    if (number > 0)
      cpSync(join(this.#root, String(number - 1)), dir, { recursive: true, filter: isNoSocket });
    const clock = createVirtualClock(nowMs);
    const store = await openFileStore(dir, { clock, segmentBytes: 64 * 1024 });
    const engine = new WholeEngine({ store, clock, jsonRecordsEnd: () => undefined });
    const life = { engine, store, clock };
    this.#lives.push(life);
    return life;
  }

  async end(): Promise<void> {
    for (const { store } of this.#lives) await store.close();
  }
}

async function withLives(run: (lives: Lives) => Promise<void>): Promise<void> {
  await inDirectory(async (root) => {
    const lives = new Lives(root);
    try {
      await run(lives);
    } finally {
      await lives.end();
    }
  });
}

async function kindOf({ engine }: Life, name: StreamName): Promise<string> {
  return (await engine.look(name)).kind;
}

async function born(lives: Lives): Promise<Life> {
  const life = await lives.next(START_MS);
  await life.engine.create(createCommand(SLIDING, { expiry: TTL }));
  await life.engine.create(createCommand(FIXED, { expiry: FIXED_AT }));
  return life;
}

for (const [how, hasSnapshot] of [
  ["the journal", false],
  ["a snapshot", true],
] as const) {
  test(`a TTL goes on while the server is down, from ${how}`, () =>
    withLives(async (lives) => {
      const first = await born(lives);
      first.clock.advance(50_000);
      await first.engine.append(SLIDING, appendCommand("used"));
      if (hasSnapshot) await first.store.maintain();
      // It was used 50 s after its start, so it lives on when its first TTL is over.
      const second = await lives.next(START_MS + 50_000 + TTL_MS - 1);
      expect(second.store.recovery.snapshotLsn !== undefined).toBe(hasSnapshot);
      expect(await kindOf(second, SLIDING)).toBe("found");
      expect(await kindOf(second, FIXED)).toBe("missing");
      const third = await lives.next(START_MS + 50_000 + TTL_MS + GRAIN_MS);
      expect(await kindOf(third, SLIDING)).toBe("missing");
    }));
}

test("an expiry is exact across a crash: one millisecond before it, and at it", () =>
  withLives(async (lives) => {
    await born(lives);
    expect(await kindOf(await lives.next(START_MS + 99_999), FIXED)).toBe("found");
    expect(await kindOf(await lives.next(START_MS + 100_000), FIXED)).toBe("missing");
  }));

test("a clock that is an hour slow after a crash ends no stream early and never goes back", () =>
  withLives(async (lives) => {
    const first = await born(lives);
    first.clock.advance(20_000);
    await first.engine.append(SLIDING, appendCommand("used"));
    const second = await lives.next(START_MS - 3_600_000);
    expect(second.engine.nowMs()).toBe(START_MS + 20_000);
    await second.engine.append(SLIDING, appendCommand("used again"));
    expect(await kindOf(second, SLIDING)).toBe("found");
    expect(await kindOf(second, FIXED)).toBe("found");
    // The clock is right again: what was used late lives on, what was to end has ended.
    const third = await lives.next(START_MS + 20_000 + TTL_MS - 1);
    expect(await kindOf(third, SLIDING)).toBe("found");
    expect(await kindOf(third, FIXED)).toBe("missing");
    const fourth = await lives.next(START_MS + 20_000 + TTL_MS + GRAIN_MS);
    expect(await kindOf(fourth, SLIDING)).toBe("missing");
  }));

test("a stream that has expired stays gone when the clock goes back after a crash", () =>
  withLives(async (lives) => {
    const first = await born(lives);
    first.clock.advance(TTL_MS + GRAIN_MS);
    await first.engine.settled();
    const second = await lives.next(START_MS);
    expect(await kindOf(second, SLIDING)).toBe("missing");
    expect(await kindOf(second, FIXED)).toBe("missing");
  }));

test("one start with a clock two days ahead does not make fresh keys look old at later starts", () =>
  withLives(async (lives) => {
    const DAY_MS = 86_400_000;
    const stream = "/payments" as StreamName;
    const send = async ({ engine }: Life, key: string, timeMs: number): Promise<string> => {
      const claim = keyClaim(key, "x", { timeMs });
      return (await engine.append(stream, appendCommand("x", { key: claim }))).kind;
    };
    const wrong = await lives.next(START_MS + 2 * DAY_MS);
    await wrong.engine.create(createCommand(stream));
    expect(await send(wrong, "of the wrong day", START_MS + 2 * DAY_MS)).toBe("accepted");
    const right = await lives.next(START_MS);
    expect(right.engine.nowMs()).toBeGreaterThanOrEqual(START_MS + 2 * DAY_MS);
    expect(await send(right, "fresh", START_MS)).toBe("accepted");
    expect(await send(right, "fresh", START_MS)).toBe("replayed");
    // One that is old by the right clock too may have been stored and forgotten.
    expect(await send(right, "old", START_MS - 30 * DAY_MS)).toBe("key_expired");
  }));

test("nor does it end streams early that name a time of the right clock", () =>
  withLives(async (lives) => {
    const DAY_MS = 86_400_000;
    const wrong = await lives.next(START_MS + 2 * DAY_MS);
    await wrong.engine.create(createCommand("/of-the-wrong-day" as StreamName));
    const right = await lives.next(START_MS);
    const expiry: ExpiryRule = { kind: "at", timeMs: START_MS + DAY_MS };
    await right.engine.create(createCommand(FIXED, { expiry }));
    expect(await kindOf(right, FIXED)).toBe("found");
    right.clock.advance(DAY_MS - 1000);
    expect(await kindOf(right, FIXED)).toBe("found");
    expect(await kindOf(await lives.next(START_MS + DAY_MS), FIXED)).toBe("missing");
  }));
