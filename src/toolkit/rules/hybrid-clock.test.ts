import { assert, array, constantFrom, integer, oneof, property, record, tuple } from "fast-check";
import { describe, expect, test } from "vitest";
import {
  decideNewer,
  encodeStamp,
  type HybridTime,
  isNodeName,
  NO_HYBRID_TIME,
  parseStamp,
  seeHybrid,
  tickHybrid,
} from "./hybrid-clock.ts";

const HOUR_MS = 3_600_000;
const NODES = [0, 1, 2];
const REPLICAS = [0, 1];

/** A node: its wall clock is off by `offsetMs`, and it knows which writes it has made or seen, directly or not. */
interface Node {
  readonly name: string;
  offsetMs: number;
  time: HybridTime;
  readonly known: Set<number>;
}

interface Write {
  readonly stamp: string;
  /** The writes that its node knew when it was made. */
  readonly known: ReadonlySet<number>;
}

type Event =
  | { readonly kind: "write"; readonly node: number }
  /** The node learns of a write that was made before: it read it, or got a message. */
  | { readonly kind: "see"; readonly node: number; readonly write: number }
  | { readonly kind: "jump"; readonly node: number; readonly byMs: number }
  | { readonly kind: "pass"; readonly ms: number };

const node = constantFrom(...NODES);
const jumpMs = integer({ min: -2 * HOUR_MS, max: 2 * HOUR_MS });
const event = oneof(
  record({ kind: constantFrom("write" as const), node }),
  record({ kind: constantFrom("see" as const), node, write: integer({ min: 0, max: 30 }) }),
  record({ kind: constantFrom("jump" as const), node, byMs: jumpMs }),
  record({ kind: constantFrom("pass" as const), ms: integer({ min: 0, max: 5 }) }),
);

/** Runs a history. Returns its writes in the order in which they were made. */
function run(offsets: readonly number[], events: readonly Event[]): readonly Write[] {
  let trueMs = 1_700_000_000_000;
  const nodes = NODES.map((index): Node => ({
    name: `n${index}`,
    offsetMs: offsets[index] ?? 0,
    time: NO_HYBRID_TIME,
    known: new Set(),
  }));
  const writes: Write[] = [];
  for (const one of events) {
    if (one.kind === "pass") {
      trueMs += one.ms;
      continue;
    }
    const actor = nodes[one.node];
    if (actor === undefined) continue;
    if (one.kind === "jump") actor.offsetMs += one.byMs;
    if (one.kind === "see") {
      const seen = writes[one.write];
      if (seen === undefined) continue;
      actor.time = seeHybrid(actor.time, parseStamp(seen.stamp) ?? NO_HYBRID_TIME);
      actor.known.add(one.write);
      for (const earlier of seen.known) actor.known.add(earlier);
    }
    if (one.kind === "write") {
      actor.time = tickHybrid(actor.time, trueMs + actor.offsetMs);
      const stamp = encodeStamp(actor.time, actor.name);
      writes.push({ stamp, known: new Set(actor.known) });
      actor.known.add(writes.length - 1);
    }
  }
  return writes;
}

/** Applies writes in an order. Returns the one that stays. */
function lastOf(writes: readonly Write[], order: readonly number[]): number | undefined {
  let present: number | undefined;
  for (const index of order) {
    const write = writes[index];
    const stamp = present === undefined ? undefined : writes[present]?.stamp;
    if (write !== undefined && decideNewer(stamp, write.stamp) === "applied") present = index;
  }
  return present;
}

const offsets = tuple(...NODES.map(() => integer({ min: -HOUR_MS, max: HOUR_MS })));
const histories = tuple(offsets, array(event, { maxLength: 60 }));

describe("the hybrid clock", () => {
  test("G58 HC1 with clocks an hour apart that jump, a write that had seen another is never lost to it", () => {
    const orders = array(integer({ min: 0, max: 40 }), { maxLength: 80 });
    assert(
      property(histories, tuple(orders, orders), ([clocks, events], replicas) => {
        const writes = run(clocks, events);
        for (const { stamp, known } of writes)
          for (const earlier of known) expect(stamp > (writes[earlier]?.stamp ?? "")).toBe(true);
        // Each replica gets each write at least once, in any order, and some of them again and again.
        const all = writes.map((_, index) => index);
        const ends = REPLICAS.map((replica) =>
          lastOf(writes, [...(replicas[replica] ?? []), ...all]),
        );
        ends.push(lastOf(writes, all.toReversed()));
        // HC3: all replicas agree, and what stays was hidden by no write that had seen it.
        expect(new Set(ends).size).toBe(1);
        const [stays] = ends;
        for (const { known } of writes) expect(stays !== undefined && known.has(stays)).toBe(false);
      }),
      { numRuns: 500 },
    );
  });

  test("HC2 is never ahead of the greatest wall clock that it has heard of", () => {
    assert(
      property(array(integer({ min: 1, max: 1000 }), { minLength: 1, maxLength: 50 }), (walls) => {
        let time = NO_HYBRID_TIME;
        for (const wallMs of walls) time = tickHybrid(time, wallMs);
        expect(time.ms).toBe(Math.max(...walls));
      }),
    );
  });

  test("HC1 HC3 goes on when its counter is full, and encodes what it can read back", () => {
    const full = { ms: 5, counter: 2 ** 32 - 1 };
    expect(tickHybrid(full, 3)).toEqual({ ms: 6, counter: 0 });
    for (const time of [full, { ms: 2 ** 48 - 1, counter: 7 }, NO_HYBRID_TIME])
      expect(parseStamp(encodeStamp(time, "a.b-c_1"))).toEqual(time);
    expect(tickHybrid(NO_HYBRID_TIME, Number.MAX_SAFE_INTEGER).ms).toBe(2 ** 48 - 1);
  });

  test("HC3 refuses what is no stamp, and names whose order differs from place to place", () => {
    const stamp = encodeStamp({ ms: 1, counter: 1 }, "n");
    for (const text of [
      "",
      "n",
      `${stamp} `,
      stamp.toUpperCase().slice(1),
      `x${stamp}`,
      `${stamp}é`,
    ])
      expect(parseStamp(text)).toBeUndefined();
    for (const name of ["", "é", "a b", "x".repeat(65)]) expect(isNodeName(name)).toBe(false);
  });

  test("HC3 equal times are decided by the node, and an equal stamp is the same write", () => {
    const [a, b] = ["a", "b"].map((name) => encodeStamp({ ms: 1, counter: 1 }, name));
    expect(decideNewer(a, b ?? "")).toBe("applied");
    expect(decideNewer(b, a ?? "")).toBe("older");
    expect(decideNewer(a, a ?? "")).toBe("duplicate");
    expect(decideNewer(undefined, a ?? "")).toBe("applied");
  });
});
