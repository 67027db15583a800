// A small broker made of the rules alone, with the three outcomes that a broker of idempotent producers has: the
// next sequence is written, the last ones again are duplicates, everything else is an error. PROTOCOL.md §5, §14
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { appendCommand, createCommand, sessionClaim, RUN } from "../../testing/commands.ts";
import { decideAppend } from "./append.ts";
import { decideCreate } from "./create.ts";
import type { StreamName, TimeMs } from "./types.ts";
import { applyChange, createWorld, type World } from "./world.ts";

const LOG = "/log" as StreamName;
const NOW = 1 as TimeMs;

class Broker {
  readonly #world: World = createWorld();
  readonly log: string[] = [];

  constructor() {
    const created = decideCreate(
      undefined,
      undefined,
      createCommand(LOG),
      this.#world.nextId,
      RUN,
      NOW,
    );
    if (created.kind !== "created") throw new Error(created.kind);
    for (const change of created.changes) applyChange(this.#world, change);
  }

  get bytes(): number {
    return this.#world.streams.get(LOG)?.tail ?? 0;
  }

  /** Returns `OK` with the offset behind the record, `DUPLICATE`, or the error with the expected sequence. */
  produce(producer: string, session: string, sequence: number, text: string): string {
    const state = this.#world.streams.get(LOG);
    if (state === undefined) throw new Error("there is no log");
    const claim = sessionClaim(producer, session, sequence);
    const decision = decideAppend(state, appendCommand(text, { producer: claim }), NOW);
    if (decision.kind === "accepted") {
      applyChange(this.#world, decision.change);
      this.log.push(text);
      return `OK ${decision.tail}`;
    }
    if (decision.kind === "duplicate") return `DUPLICATE ${decision.end}`;
    return decision.kind === "gap" ? `GAP ${decision.expected}` : decision.kind;
  }
}

describe("a broker of idempotent producers", () => {
  test("P4 the first sequence is 0: one that starts at 1 is a gap", () => {
    const broker = new Broker();
    expect(broker.produce("p1", "s", 1, "b")).toBe("GAP 0");
    expect(broker.produce("p1", "s", 0, "a")).toBe("OK 1");
    expect(broker.produce("p1", "s", 1, "b")).toBe("OK 2");
    expect(broker.log).toEqual(["a", "b"]);
  });

  test("P3 producers are independent: a duplicate of one leaves the other where it was", () => {
    const broker = new Broker();
    expect(broker.produce("p1", "s", 0, "a")).toBe("OK 1");
    expect(broker.produce("p2", "s", 0, "b")).toBe("OK 2");
    expect(broker.produce("p1", "s", 0, "a")).toBe("DUPLICATE 1");
    expect(broker.produce("p2", "s", 0, "b")).toBe("DUPLICATE 2");
    expect(broker.produce("p2", "s", 1, "c")).toBe("OK 3");
    expect(broker.produce("p1", "s", 2, "x")).toBe("GAP 1");
    expect(broker.produce("p1", "s", 1, "d")).toBe("OK 4");
    expect(broker.log).toEqual(["a", "b", "c", "d"]);
  });

  test("P3 duplicates and rejections change neither the size of the log nor an offset", () => {
    const broker = new Broker();
    broker.produce("p1", "s", 0, "one");
    for (const sequence of [0, 0, 2, 7, 0]) broker.produce("p1", "s", sequence, "again");
    expect([broker.bytes, broker.log]).toEqual([3, ["one"]]);
    expect(broker.produce("p1", "s", 1, "two")).toBe("OK 6");
  });

  test("P5 after a gap that cannot be filled a new session starts, and the old one is over", () => {
    const broker = new Broker();
    broker.produce("p1", "old", 0, "a");
    for (const sequence of [2, 3, 9]) {
      expect(broker.produce("p1", "old", sequence, "x")).toBe("GAP 1");
    }
    expect(broker.produce("p1", "new", 1, "x")).toBe("GAP 0");
    expect(broker.produce("p1", "new", 0, "b")).toBe("OK 2");
    for (const sequence of [0, 1, 2]) {
      expect(broker.produce("p1", "old", sequence, "x")).toBe("fenced");
    }
    expect(broker.produce("p1", "new", 0, "b")).toBe("DUPLICATE 2");
    expect(broker.log).toEqual(["a", "b"]);
  });

  test("G2 P5 what three producers mean to say is in the log once, in the order of each", () => {
    const attempt = fc.record({ producer: fc.nat(2), sequence: fc.nat(7) });
    fc.assert(
      fc.property(fc.array(attempt, { maxLength: 200 }), (attempts) => {
        const broker = new Broker();
        const everything = [0, 1, 2].flatMap((producer) =>
          Array.from({ length: 8 }, (_, sequence) => ({ producer, sequence })),
        );
        for (const { producer, sequence } of [...attempts, ...everything, ...attempts]) {
          const before = broker.bytes;
          const told = broker.produce(`p${producer}`, "s", sequence, `${producer}${sequence}`);
          if (broker.bytes !== before + (told.startsWith("OK") ? 2 : 0)) expect(told).toBe("OK");
        }
        for (const { producer } of everything) {
          const own = broker.log.filter((text) => text.startsWith(`${producer}`));
          expect(own).toEqual([0, 1, 2, 3, 4, 5, 6, 7].map((sequence) => `${producer}${sequence}`));
        }
      }),
      { numRuns: 200 },
    );
  });
});
