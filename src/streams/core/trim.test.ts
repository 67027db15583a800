// How old data goes: every history of appends, times and rules, against the words of the rule. PROTOCOL.md §23
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { createCommand, RUN } from "../../testing/commands.ts";
import { decideCreate } from "./create.ts";
import type { Change } from "./change.ts";
import type { GroupSettings } from "./group-state.ts";
import type { StreamState } from "./stream.ts";
import {
  decideRetention,
  decideTrim,
  earliestOf,
  MARKS_MAX,
  neededFrom,
  ownBytes,
  ownEarliest,
  retentionDueMs,
  type RetentionRule,
} from "./trim.ts";
import type { Offset, StreamId, StreamName, TimeMs } from "./types.ts";
import { applyChange, createWorld, type World } from "./world.ts";

const A = "/a" as StreamName;
const NOTHING = { producer: undefined, streamSeq: undefined, key: undefined, closes: false };
const GROUP: GroupSettings = {
  pattern: undefined,
  streams: [A],
  start: { kind: "beginning" },
  leaseMs: 1000,
};

class Story {
  readonly world: World = createWorld();
  readonly changes: Change[] = [];
  /** Where each append begins, where it ends, and when it came. */
  readonly appends: { readonly start: number; readonly end: number; readonly atMs: number }[] = [];
  atMs = 1000;

  constructor(rule?: RetentionRule) {
    this.create("/a", rule);
  }

  create(name: string, rule?: RetentionRule, at?: number): void {
    const source = this.world.streams.get(A);
    const fork = { sourceName: A, anchor: undefined, subOffset: 0 };
    const command = createCommand(name, {
      ...(at === undefined ? {} : { fork }),
      retention: rule,
    });
    const from = { state: source, at: at as Offset | undefined, depth: 0 };
    const { nextId } = this.world;
    const decision = decideCreate(undefined, from, command, nextId, RUN, this.atMs as TimeMs);
    if (decision.kind !== "created") throw new Error(decision.kind);
    for (const change of decision.changes) this.apply(change);
  }

  get state(): StreamState {
    return this.of("/a");
  }

  of(name: string): StreamState {
    const state = this.world.streams.get(name as StreamName);
    if (state === undefined) throw new Error(`there is no ${name}`);
    return state;
  }

  apply(change: Change): void {
    this.changes.push(change);
    applyChange(this.world, change);
  }

  append(bytes: number): void {
    const { id, tail } = this.state;
    const atMs = this.atMs as TimeMs;
    this.apply({ kind: "appended", atMs, stream: id, data: new Uint8Array(bytes), ...NOTHING });
    this.appends.push({ start: tail, end: tail + bytes, atMs });
  }

  retain(): void {
    const decision = decideRetention(this.world, this.state, this.atMs as TimeMs);
    if (decision.kind === "trimmed") this.apply(decision.change);
  }

  cut(to: number, dropsNeeded = false): string {
    const { world, state } = this;
    const decision = decideTrim(world, state, to as Offset, dropsNeeded, this.atMs as TimeMs);
    if (decision.kind === "trimmed") this.apply(decision.change);
    return decision.kind;
  }

  group(offset: number): void {
    const [atMs, group] = [this.atMs as TimeMs, "g"];
    const cursors = [[A, offset as Offset]] as const;
    this.apply({ kind: "group_created", atMs, group, settings: GROUP, cursors });
  }
}

const steps = fc.array(fc.tuple(fc.nat(40), fc.nat(4000)), { minLength: 1, maxLength: 150 });
const number = (max: number): fc.Arbitrary<number> => fc.integer({ min: 1, max });

function play(rule: RetentionRule, history: readonly (readonly [number, number])[]): Story {
  const story = new Story(rule);
  for (const [bytes, waitMs] of history) {
    story.atMs += waitMs;
    if (bytes > 0) story.append(bytes);
    const before = ownEarliest(story.state);
    story.retain();
    const { appends, state, atMs } = story;
    const earliest = ownEarliest(state);
    expect(earliest).toBeGreaterThanOrEqual(before);
    expect([0, state.tail, ...appends.map(({ start }) => start)]).toContain(earliest);
    expect(state.retained?.marks.length ?? 0).toBeLessThanOrEqual(MARKS_MAX);
    if (rule.seconds !== undefined && rule.bytes === undefined) {
      const limitMs = atMs - rule.seconds * 1000;
      const kept = appends.find((append) => append.atMs > limitMs)?.start ?? state.tail;
      expect(earliest).toBeLessThanOrEqual(kept);
      const lateMs = limitMs - (rule.seconds * 1000) / 16;
      const gone = appends.findLast((append) => append.atMs < lateMs)?.end ?? 0;
      expect(earliest).toBeGreaterThanOrEqual(gone);
    }
    if (rule.bytes !== undefined && rule.seconds === undefined) {
      expect(state.tail - earliest).toBeGreaterThanOrEqual(Math.min(rule.bytes, state.tail));
      expect(state.tail - earliest).toBeLessThanOrEqual(rule.bytes * (17 / 16) + 2 * 40);
    }
  }
  return story;
}

describe("a rule", () => {
  test("G112 by age trims between two appends, never too early and at most a 16th late", () => {
    fc.assert(
      fc.property(number(60), steps, (seconds, history) => {
        play({ seconds, bytes: undefined, dropsNeeded: false }, history);
      }),
    );
  });

  test("G112 by bytes keeps the newest, and at most a 16th and an append more", () => {
    fc.assert(
      fc.property(number(1000), steps, (bytes, history) => {
        play({ seconds: undefined, bytes, dropsNeeded: false }, history);
      }),
    );
  });

  test("G112 of both trims what either would trim", () => {
    fc.assert(
      fc.property(number(60), number(500), steps, (seconds, bytes, history) => {
        const both = play({ seconds, bytes, dropsNeeded: false }, history);
        const byAge = play({ seconds, bytes: undefined, dropsNeeded: false }, history);
        // The marks of both are at least as close as those of one.
        expect(ownBytes(both.state)).toBeLessThanOrEqual(
          Math.min(ownBytes(byAge.state) + (seconds * 1000) / 16, bytes * (17 / 16) + 80),
        );
      }),
    );
  });

  test("G112 of an idle stream trims all of it when the last append is old enough", () => {
    const story = new Story({ seconds: 10, bytes: undefined, dropsNeeded: false });
    expect(retentionDueMs(story.state)).toBeUndefined();
    story.append(5);
    expect(retentionDueMs(story.state)).toBe(11_000);
    story.atMs = 10_999;
    story.retain();
    expect(ownEarliest(story.state)).toBe(0);
    story.atMs = 11_000;
    story.retain();
    expect([ownEarliest(story.state), retentionDueMs(story.state)]).toEqual([5, undefined]);
  });

  test("G112 that comes later counts the age of what is there from then on, and a change of it goes on", () => {
    const story = new Story();
    story.append(5);
    const set = (seconds: number): void => {
      const rule = { seconds, bytes: undefined, dropsNeeded: false };
      story.apply({
        kind: "retention_set",
        atMs: story.atMs as TimeMs,
        stream: 1 as StreamId,
        rule,
      });
    };
    story.atMs = 100_000;
    set(10);
    story.atMs = 105_000;
    set(8); // The same again does not begin anew.
    expect(retentionDueMs(story.state)).toBe(108_000);
    story.apply({
      kind: "retention_set",
      atMs: 1 as TimeMs,
      stream: 1 as StreamId,
      rule: undefined,
    });
    expect(story.state.retained).toBeUndefined();
  });

  test("G111 keeps what a group needs, with a bounded number of marks, and trims it afterwards", () => {
    const story = new Story({ seconds: undefined, bytes: 100, dropsNeeded: false });
    story.append(10);
    story.group(10);
    for (let at = 0; at < 2000; at += 1) {
      story.append(10);
      story.retain();
      expect(story.state.retained?.marks.length).toBeLessThanOrEqual(MARKS_MAX);
    }
    expect(ownEarliest(story.state)).toBe(10);
    const offsets = [[A, 19_000 as Offset]] as const;
    story.apply({ kind: "group_reset", atMs: 1 as TimeMs, group: "g", offsets });
    story.retain();
    expect(ownEarliest(story.state)).toBeLessThanOrEqual(19_000);
    expect(ownEarliest(story.state)).toBeGreaterThan(18_000);
  });
});

describe("a cut", () => {
  test("G110 moves the beginning forward only, and changes nothing a second time", () => {
    const story = new Story();
    for (let at = 0; at < 3; at += 1) story.append(10);
    expect([story.cut(20), story.cut(20), story.cut(10)]).toEqual([
      "trimmed",
      "unchanged",
      "unchanged",
    ]);
    expect([ownEarliest(story.state), story.state.tail, ownBytes(story.state)]).toEqual([
      20, 30, 10,
    ]);
    applyChange(story.world, {
      kind: "trimmed",
      atMs: 1 as TimeMs,
      stream: 1 as StreamId,
      to: 10 as Offset,
    });
    expect(ownEarliest(story.state)).toBe(20);
  });

  test("G111 stops at what a group, a subscription or a fork needs, unless it drops that", () => {
    const story = new Story();
    for (let at = 0; at < 5; at += 1) story.append(10);
    story.group(30);
    expect(neededFrom(story.world, story.state)).toEqual({ from: 30, by: "group" });
    story.apply({
      kind: "subscription_created",
      atMs: 1 as TimeMs,
      subscription: "s",
      settings: {
        way: { kind: "webhook", url: "https://example.com" },
        pattern: undefined,
        streams: [A],
        leaseMs: 1000,
        description: undefined,
      },
      generation: 0,
      links: [{ stream: A, isExplicit: true, isGlob: false, acked: 20 as Offset }],
    });
    expect([story.cut(30), story.cut(20)]).toEqual(["needed", "trimmed"]);
    story.create("/f", undefined, 40);
    expect(neededFrom(story.world, story.state)).toEqual({ from: 20, by: "fork" });
    expect([story.cut(30), story.cut(30, true)]).toEqual(["needed", "trimmed"]);
  });

  test("G110 of a source moves the beginning of its forks, up to where they leave it", () => {
    const story = new Story();
    for (let at = 0; at < 5; at += 1) story.append(10);
    story.cut(10);
    story.create("/f", undefined, 30);
    expect(earliestOf(story.world, story.of("/f"))).toBe(10);
    story.cut(20, true);
    expect(earliestOf(story.world, story.of("/f"))).toBe(20);
    story.cut(50, true);
    expect(earliestOf(story.world, story.of("/f"))).toBe(30);
    story.create("/g", undefined, 50);
    expect(earliestOf(story.world, story.of("/g"))).toBe(50);
  });
});
