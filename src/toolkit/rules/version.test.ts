import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  applyVersion,
  decideVersion,
  NO_VERSIONS,
  type VersionedWrite,
  type Versions,
  WRITES_KEPT,
} from "./version.ts";

/** What is kept, and everything that ever was: the second says what is true. */
interface History {
  readonly versions: Versions;
  /** By version, from 1. */
  readonly applied: readonly VersionedWrite[];
}

const EMPTY: History = { versions: NO_VERSIONS, applied: [] };

function step({ versions, applied }: History, write: VersionedWrite) {
  const decision = decideVersion(versions, write);
  const isApplied = decision.kind === "applied";
  const after: History = isApplied
    ? { versions: applyVersion(versions, write), applied: [...applied, write] }
    : { versions, applied };
  return { decision, after };
}

/** As the whole history tells it. */
function expectTrue(before: History, write: VersionedWrite): History {
  const { decision, after } = step(before, write);
  const current = before.applied.length;
  const writer = before.applied[write.expected];
  const truth =
    write.expected === current
      ? { kind: "applied", version: current + 1 }
      : writer?.id === write.id
        ? { kind: "duplicate", version: write.expected + 1 }
        : { kind: "conflict", version: current };
  const isKept = write.expected >= current - WRITES_KEPT;
  expect(decision).toEqual(isKept ? truth : { kind: "forgotten", version: current });
  expect(after.versions.version).toBe(after.applied.length);
  return after;
}

const WRITES: readonly VersionedWrite[] = [0, 1, 2, 3].flatMap((expected) =>
  ["a", "b"].map((id) => ({ expected, id })),
);

describe("a versioned write", () => {
  test("is answered correctly in all histories of five writes", () => {
    let count = 0;
    const tryAll = (history: History, left: number): void => {
      count += 1;
      if (left === 0) return;
      for (const write of WRITES) tryAll(expectTrue(history, write), left - 1);
    };
    tryAll(EMPTY, 5);
    expect(count).toBeGreaterThan(30_000);
  });

  test("is answered correctly in long histories, or as forgotten", () => {
    const write = fc.record({ back: fc.nat(80), id: fc.constantFrom("a", "b", "c") });
    fc.assert(
      fc.property(fc.array(write, { minLength: 100, maxLength: 200 }), (writes) => {
        let history = EMPTY;
        for (const { back, id } of writes) {
          const expected = Math.max(0, history.applied.length - back);
          history = expectTrue(history, { expected, id });
          history = expectTrue(history, { expected: history.applied.length, id });
        }
      }),
      { numRuns: 30 },
    );
  });

  test("is forgotten exactly when so many others came after it", () => {
    let { versions } = EMPTY;
    for (let made = 1; made <= WRITES_KEPT; made += 1)
      versions = applyVersion(versions, { expected: made - 1, id: `w${made}` });
    expect(decideVersion(versions, { expected: 0, id: "w1" }).kind).toBe("duplicate");
    versions = applyVersion(versions, { expected: WRITES_KEPT, id: "last" });
    expect(decideVersion(versions, { expected: 0, id: "w1" }).kind).toBe("forgotten");
    expect(decideVersion(versions, { expected: 1, id: "w2" })).toEqual({
      kind: "duplicate",
      version: 2,
    });
  });
});
