// What compaction lets go: every small history, cut in every way, with appends in between. PROTOCOL.md §26
import { describe, expect, test } from "vitest";
import { createCommand, RUN } from "../../testing/commands.ts";
import {
  type CompactionRule,
  compactionEnd,
  decideSlice,
  isCompactable,
  isSameCompaction,
  type KeyedRecord,
  NewestRecords,
  SliceRecords,
} from "./compaction.ts";
import { decideCreate } from "./create.ts";
import type { Change } from "./change.ts";
import type { GroupId, GroupSettings } from "./group-state.ts";
import type { StreamState } from "./stream.ts";
import { earliestOf } from "./trim.ts";
import type { Offset, StreamName, TimeMs } from "./types.ts";
import { applyChange, createWorld, type World } from "./world.ts";

const A = "/a" as StreamName;
const NOTHING = { producer: undefined, streamSeq: undefined, key: undefined, closes: false };
const RULE: CompactionRule = { key: "id", tombstone: "value", lagSeconds: 0 };
const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** Records of three characters: the key or a dash, a digit or `x` for a deletion, and a comma. */
const RECORD_BYTES = 3;

function recordsIn(data: Uint8Array, from: number): KeyedRecord[] {
  const records: KeyedRecord[] = [];
  for (let at = 0; at < data.length; at += RECORD_BYTES) {
    const record = data.subarray(at, at + RECORD_BYTES);
    const [key = "-", value] = decoder.decode(record);
    records.push({
      at: (from + at) as Offset,
      key: key === "-" ? undefined : key,
      isTombstone: value === "x",
      data: record,
    });
  }
  return records;
}

class Changelog {
  readonly world: World = createWorld();
  bytes = new Uint8Array(0);
  /** What each offset of the tail meant: the state, and how many records without a key. */
  readonly truth = new Map<string, string>();
  keyless = 0;
  count = 0;

  constructor(contentType = "application/json", compaction: CompactionRule | undefined = RULE) {
    const command = createCommand("/a", { contentType, compaction });
    const { nextId } = this.world;
    const decision = decideCreate(undefined, undefined, command, nextId, RUN, 1 as TimeMs);
    if (decision.kind !== "created") throw new Error(decision.kind);
    for (const change of decision.changes) this.apply(change);
  }

  get state(): StreamState {
    const state = this.world.streams.get(A);
    if (state === undefined) throw new Error("there is no stream");
    return state;
  }

  apply(change: Change): void {
    applyChange(this.world, change);
    if (change.kind !== "appended") return;
    this.bytes = new Uint8Array([...this.bytes, ...change.data]);
  }

  /** A client appends: `a` sets a, `A` deletes it, `-` has no key. */
  write(what: string): void {
    this.count += 1;
    const key = what.toLowerCase();
    const value = what === key ? String(this.count % 10) : "x";
    if (what === "-") this.keyless += 1;
    else if (value === "x") this.truth.delete(key);
    else this.truth.set(key, value);
    const data = encoder.encode(`${key}${value},`);
    const { id } = this.state;
    this.apply({ kind: "appended", atMs: 2 as TimeMs, stream: id, data, ...NOTHING });
  }

  kept(): KeyedRecord[] {
    const from = earliestOf(this.world, this.state);
    return recordsIn(this.bytes.subarray(from), from);
  }

  check(when: string): void {
    const records = this.kept();
    expect(folded(records), when).toEqual(this.truth);
    expect(records.filter(({ key }) => key === undefined).length, when).toBe(this.keyless);
  }
}

function folded(records: readonly KeyedRecord[], onto = new Map<string, string>()) {
  for (const { key, isTombstone, data } of records) {
    if (key === undefined) continue;
    if (isTombstone) onto.delete(key);
    else onto.set(key, decoder.decode(data)[1] ?? "");
  }
  return onto;
}

/** A reader that goes on where it was, and begins anew if that is gone. */
class Follower {
  at = 0;
  state = new Map<string, string>();
  restarts = 0;

  read(log: Changelog, recordsMax = Infinity): void {
    const earliest = earliestOf(log.world, log.state);
    if (this.at < earliest) {
      this.restarts += 1;
      this.at = earliest;
      this.state = new Map();
    }
    const rest = recordsIn(log.bytes.subarray(this.at), this.at).slice(0, recordsMax);
    folded(rest, this.state);
    this.at += rest.length * RECORD_BYTES;
  }
}

/** One pass, as the engine does it: `between` runs before each slice, and the pass sees what it appends. */
function pass(log: Changelog, sliceRecords: number, keysMax: number, between: () => void): void {
  const { world, state } = log;
  const goal = compactionEnd(world, state, state.tail);
  const newest = new NewestRecords(keysMax, 1000);
  let end = earliestOf(world, state) as number;
  let isFull = false;
  const from = end;
  for (const { key, at } of log.kept()) {
    if (key === undefined && !isFull && at < goal) end = at + RECORD_BYTES;
    if (key === undefined) continue;
    if (isFull || at >= goal) newest.see(key, at);
    else if (newest.collect(key, at, at === from)) end = at + RECORD_BYTES;
    else isFull = true;
  }
  for (let at = from; at < end;) {
    const tail = state.tail;
    between();
    for (const { key, at: place } of recordsIn(log.bytes.subarray(tail), tail)) {
      if (key !== undefined) newest.see(key, place);
    }
    const to = Math.min(at + sliceRecords * RECORD_BYTES, end);
    const slice = recordsIn(log.bytes.subarray(at, to), at);
    const decision = decideSlice(world, state, slice, to as Offset, newest, 3 as TimeMs);
    if (decision.kind !== "compacted") throw new Error(decision.kind);
    for (const change of decision.changes) log.apply(change);
    log.check(`after the slice to ${String(to)}`);
    at = to;
  }
}

const LETTERS = ["a", "A", "b", "B", "-"];

function histories(length: number): string[][] {
  if (length === 0) return [[]];
  return histories(length - 1).flatMap((rest) => LETTERS.map((letter) => [...rest, letter]));
}

describe("a pass", () => {
  test("G147 leaves the state that was written, for every history of five, every slice and every append between", () => {
    let passes = 0;
    for (const history of histories(5)) {
      for (const [slice, keysMax] of [
        [1, 10],
        [2, 10],
        [2, 1],
      ] as const) {
        for (const extra of ["", "a", "B"]) {
          const log = new Changelog();
          const reader = new Follower();
          for (const letter of history) {
            log.write(letter);
            if (letter === "-") reader.read(log, 1);
          }
          pass(log, slice, keysMax, () => {
            if (extra !== "") log.write(extra);
          });
          reader.read(log);
          expect(reader.state).toEqual(log.truth);
          passes += 1;
        }
      }
    }
    expect(passes).toBe(5 ** 5 * 9);
  }, 60_000);

  test("G147 keeps one record of each key when it is done twice, and every record without a key", () => {
    const log = new Changelog();
    for (const letter of ["a", "b", "-", "a", "B", "a", "-", "b", "b", "A"]) log.write(letter);
    pass(log, 3, 10, () => undefined);
    pass(log, 3, 10, () => undefined);
    expect(log.kept().map(({ key }) => key)).toEqual([undefined, undefined, "b"]);
  });

  test("G149 a reader that missed a deletion is refused, and never left with the old value", () => {
    const log = new Changelog();
    const reader = new Follower();
    log.write("a");
    reader.read(log);
    for (const letter of ["A", "b", "b"]) log.write(letter);
    pass(log, 2, 10, () => undefined);
    expect(log.kept().map(({ key }) => key)).toEqual(["b"]);
    reader.read(log);
    expect([reader.restarts, reader.state.has("a")]).toEqual([1, false]);
  });

  test("G149 ends before what a group needs, and before what is younger than the lag", () => {
    const log = new Changelog();
    const { world, state } = log;
    for (const letter of ["a", "a", "a"]) log.write(letter);
    expect(compactionEnd(world, state, 6 as Offset)).toBe(6);
    expect(compactionEnd(world, state, state.tail)).toBe(9);
    const settings: GroupSettings = {
      pattern: undefined,
      streams: [A],
      start: { kind: "beginning" },
      leaseMs: 1000,
    };
    const cursors = [[A, 3 as Offset] as const];
    log.apply({
      kind: "group_created",
      atMs: 2 as TimeMs,
      group: "g" as GroupId,
      settings,
      cursors,
    });
    expect(compactionEnd(world, state, state.tail)).toBe(3);
    const newest = new NewestRecords(10, 1000);
    const records = recordsIn(log.bytes, 0);
    const decision = decideSlice(world, state, records, 6 as Offset, newest, 3 as TimeMs);
    expect(decision).toEqual({ kind: "needed" });
  });

  test("G147 holds of a slice only what may stay, however many records it has", () => {
    const newest = new NewestRecords(10, 1000);
    const log = new Changelog();
    const { world, state } = log;
    for (let round = 0; round < 100; round += 1) for (const what of "a-b--") log.write(what);
    const records = recordsIn(log.bytes, 0);
    for (const { key, at } of records) if (key !== undefined) newest.collect(key, at);
    const slice = new SliceRecords(newest, log.bytes.length);
    for (const record of records) slice.add(record);
    // The newest of each key, and what is before, between and behind them.
    expect(slice.kept).toHaveLength(5);
    expect(slice.dropped).toBe(198);
    const [to, atMs] = [log.bytes.length as Offset, 3 as TimeMs];
    // One of them is replaced before the slice is decided.
    log.write("a");
    newest.see("a", (state.tail - RECORD_BYTES) as Offset);
    const decision = decideSlice(world, state, slice.kept, to, newest, atMs);
    const whole = decideSlice(world, state, records, to, newest, atMs);
    if (decision.kind !== "compacted" || whole.kind !== "compacted") throw new Error("needed");
    expect(decision.changes).toEqual(whole.changes);
    expect(decision.droppedRecords + slice.dropped).toBe(whole.droppedRecords);
  });

  test("collects as many keys as fit, and one at least", () => {
    const newest = new NewestRecords(2, 10);
    expect(newest.collect("x".repeat(20), 0 as Offset, true)).toBe(true);
    expect(newest.collect("y", 1 as Offset)).toBe(false);
    expect(newest.collect("x".repeat(20), 2 as Offset)).toBe(true);
    newest.see("z", 3 as Offset);
    newest.see("x".repeat(20), 4 as Offset);
    expect([newest.size, newest.replaced]).toEqual([1, 2]);
  });
});

test("only an open changelog of JSON is compacted", () => {
  expect(isCompactable(new Changelog().state)).toBe(true);
  expect(isCompactable(new Changelog("text/plain").state)).toBe(false);
  const log = new Changelog();
  const stream = log.state.id;
  log.apply({ kind: "compaction_set", atMs: 2 as TimeMs, stream, rule: undefined });
  expect([isCompactable(log.state), log.state.compaction]).toEqual([false, undefined]);
  log.apply({ kind: "compaction_set", atMs: 2 as TimeMs, stream, rule: RULE });
  const close = { ...NOTHING, closes: true, data: new Uint8Array(0) };
  log.apply({ kind: "appended", atMs: 2 as TimeMs, stream, ...close });
  expect(isCompactable(log.state)).toBe(false);
});

test("rules are the same if all their members are", () => {
  expect(isSameCompaction(RULE, { ...RULE })).toBe(true);
  for (const other of [{ key: "x" }, { tombstone: undefined }, { lagSeconds: 1 }]) {
    expect(isSameCompaction(RULE, { ...RULE, ...other })).toBe(false);
  }
  expect(isSameCompaction(undefined, RULE)).toBe(false);
});
