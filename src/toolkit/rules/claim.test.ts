import { describe, expect, test } from "vitest";
import { type ClaimDecision, type ClaimEntry, type ClaimRequest, decideClaim } from "./claim.ts";

const FINGERPRINTS = [undefined, "a", "b"] as const;
const LEFT = [undefined, -1, 0, 1] as const;

/** Every entry of a small scope, and none. */
const ENTRIES: readonly (ClaimEntry | undefined)[] = [
  undefined,
  ...(["running", "done", "failed", "released"] as const).flatMap((state) =>
    LEFT.flatMap((leaseLeftMs) =>
      LEFT.flatMap((keepLeftMs) =>
        [1, 2, 3].flatMap((attempts) =>
          FINGERPRINTS.map((fingerprint) => ({
            state,
            leaseLeftMs,
            keepLeftMs,
            attempts,
            fingerprint,
          })),
        ),
      ),
    ),
  ),
];
const REQUESTS: readonly ClaimRequest[] = (
  ["transaction", "repeatable", "probed"] as const
).flatMap((effect) =>
  [1, 2, 3].flatMap((attemptsMax) =>
    FINGERPRINTS.map((fingerprint) => ({ effect, attemptsMax, fingerprint })),
  ),
);

interface Case {
  readonly entry: ClaimEntry | undefined;
  readonly request: ClaimRequest;
  readonly decision: ClaimDecision;
}

const CASES: readonly Case[] = ENTRIES.flatMap((entry) =>
  REQUESTS.map((request) => ({ entry, request, decision: decideClaim(entry, request) })),
);

/** Under a lease that is not over. */
const isHeld = ({ state, leaseLeftMs }: ClaimEntry): boolean =>
  state === "running" && (leaseLeftMs ?? 0) > 0;
/** Past its retention, and no caller works on it. */
const isOver = (entry: ClaimEntry): boolean => (entry.keepLeftMs ?? 1) <= 0 && !isHeld(entry);
const differs = (entry: ClaimEntry, { fingerprint }: ClaimRequest): boolean =>
  entry.fingerprint !== undefined && fingerprint !== undefined && fingerprint !== entry.fingerprint;

/** Looks at all cases of a kind, and that there are some. */
function forAll(
  which: (entry: ClaimEntry, request: ClaimRequest) => boolean,
  expected: (entry: ClaimEntry, request: ClaimRequest) => unknown,
): void {
  let count = 0;
  for (const { entry, request, decision } of CASES) {
    if (entry === undefined || !which(entry, request)) continue;
    count += 1;
    expect({ entry, request, decision }).toEqual({
      entry,
      request,
      decision: expected(entry, request),
    });
  }
  expect(count).toBeGreaterThan(50);
}

const counts = (entry: ClaimEntry, request: ClaimRequest): boolean =>
  !isOver(entry) && !differs(entry, request);

describe("decideClaim, in all cases of a small scope,", () => {
  test("OC1 gives a key without a valid entry to the first caller", () => {
    const first = { kind: "claim", attempts: 1, isTakeover: false };
    for (const request of REQUESTS) expect(decideClaim(undefined, request)).toEqual(first);
    forAll(isOver, () => first);
  });

  test("OC1 gives a held key to no other caller", () => {
    forAll(
      (entry, request) => isHeld(entry) && counts(entry, request),
      ({ leaseLeftMs }) => ({ kind: "running", leaseLeftMs }),
    );
  });

  test("OC2 gives a key whose lease is over to the next one, and says that it was taken", () => {
    forAll(
      (entry, request) =>
        counts(entry, request) &&
        entry.state === "running" &&
        !isHeld(entry) &&
        request.effect !== "probed" &&
        entry.attempts < request.attemptsMax,
      ({ attempts }) => ({ kind: "claim", attempts: attempts + 1, isTakeover: true }),
    );
  });

  test("OC3 answers what is done until its retention ends", () => {
    forAll(
      (entry, request) => counts(entry, request) && entry.state === "done",
      () => ({ kind: "done" }),
    );
  });

  test("OC4 refuses other content in every state of the first one", () => {
    forAll(
      (entry, request) => !isOver(entry) && differs(entry, request),
      () => ({ kind: "mismatch" }),
    );
  });

  test("OC5 asks before it repeats what was lost, also if it may not be repeated", () => {
    forAll(
      (entry, request) =>
        counts(entry, request) &&
        entry.state === "running" &&
        !isHeld(entry) &&
        request.effect === "probed",
      ({ attempts }, { attemptsMax }) => ({
        kind: "probe",
        attempts: Math.max(attempts, Math.min(attempts + 1, attemptsMax)),
        isTakeover: true,
        isExhausted: attempts >= attemptsMax,
      }),
    );
  });

  test("OC6 tries again what was released, as often as allowed", () => {
    forAll(
      (entry, request) => counts(entry, request) && entry.state === "released",
      ({ attempts }, { attemptsMax }) =>
        attempts < attemptsMax
          ? { kind: "claim", attempts: attempts + 1, isTakeover: false }
          : { kind: "exhausted", attempts },
    );
  });

  test("OC6 does not begin more often than allowed what is lost again and again", () => {
    forAll(
      (entry, request) =>
        counts(entry, request) &&
        entry.state === "running" &&
        !isHeld(entry) &&
        request.effect !== "probed" &&
        entry.attempts >= request.attemptsMax,
      ({ attempts }) => ({ kind: "exhausted", attempts }),
    );
  });

  test("OC6 remembers a failure", () => {
    forAll(
      (entry, request) => counts(entry, request) && entry.state === "failed",
      () => ({ kind: "failed" }),
    );
  });
});
