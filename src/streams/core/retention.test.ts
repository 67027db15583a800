// Every history of five steps over three streams: create, fork, delete, expire. After each step the world
// is compared with a model that recounts everything. PROTOCOL.md §6, §9
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { createCommand, RUN } from "../../testing/commands.ts";
import { decideCreate } from "./create.ts";
import { decideEnding, decideTouch, expiresAtMs, isExpired } from "./retention.ts";
import { type ExpiryRule, NEVER_EXPIRES, type StreamState } from "./stream.ts";
import type { StreamName, TimeMs } from "./types.ts";
import { applyChange, createWorld, type World } from "./world.ts";

const NAMES = ["/a", "/b", "/c"] as const;
type Name = (typeof NAMES)[number];
type Step =
  | { readonly kind: "create"; readonly name: Name }
  | { readonly kind: "fork"; readonly name: Name; readonly source: Name }
  | { readonly kind: "delete"; readonly name: Name }
  | { readonly kind: "expire" };

const STEPS: readonly Step[] = [
  ...NAMES.map((name) => ({ kind: "create", name }) as const),
  ...NAMES.flatMap((name) =>
    NAMES.filter((source) => source !== name).map(
      (source) => ({ kind: "fork", name, source }) as const,
    ),
  ),
  ...NAMES.map((name) => ({ kind: "delete", name }) as const),
  { kind: "expire" },
];

/** "/b" expires, and so do its forks, which inherit its expiry. */
const DEADLINE_MS = 100;
const expiryOf = (name: Name): ExpiryRule =>
  name === "/b" ? { kind: "at", timeMs: DEADLINE_MS } : NEVER_EXPIRES;

/** The rules without counters: which streams exist, which are deleted, which came from which. */
interface Model {
  readonly streams: Map<Name, { source: Name | undefined; isDeleted: boolean; isMortal: boolean }>;
}

const childrenOf = (model: Model, name: Name): number =>
  [...model.streams.values()].filter(({ source }) => source === name).length;

/** Drops deleted streams that no fork needs, until there are none. */
function collect(model: Model): void {
  for (const [name, { isDeleted }] of model.streams) {
    if (!isDeleted || childrenOf(model, name) > 0) continue;
    model.streams.delete(name);
    collect(model);
    return;
  }
}

function stepModel(model: Model, step: Step): void {
  const { streams } = model;
  if (step.kind === "expire") {
    for (const stream of streams.values()) if (stream.isMortal) stream.isDeleted = true;
  } else if (step.kind === "delete") {
    const stream = streams.get(step.name);
    if (stream !== undefined) stream.isDeleted = true;
  } else if (!streams.has(step.name)) {
    const source = step.kind === "fork" ? step.source : undefined;
    const origin = source === undefined ? undefined : streams.get(source);
    if (step.kind === "fork" && (origin === undefined || origin.isDeleted)) return;
    const isMortal = origin === undefined ? step.name === "/b" : origin.isMortal;
    streams.set(step.name, { source, isDeleted: false, isMortal });
  }
  collect(model);
}

function end(world: World, state: StreamState | undefined): void {
  if (state === undefined || state.isDeleted) return;
  for (const change of decideEnding(world.byId, state, 1 as TimeMs)) applyChange(world, change);
}

function stepWorld(world: World, step: Step): void {
  if (step.kind === "delete") {
    end(world, world.streams.get(step.name as StreamName));
    return;
  }
  if (step.kind === "expire") {
    // A stream may go with another one, so each is looked up again.
    for (const id of [...world.byId.keys()]) {
      const state = world.byId.get(id);
      if (state !== undefined && isExpired(state, DEADLINE_MS as TimeMs, true)) end(world, state);
    }
    return;
  }
  const sourceName = (step.kind === "fork" ? step.source : "") as StreamName;
  const fork = step.kind === "fork" ? { sourceName, anchor: undefined, subOffset: 0 } : undefined;
  const expiry = step.kind === "fork" ? NEVER_EXPIRES : expiryOf(step.name);
  const command = createCommand(step.name, { fork, expiry });
  const source = fork && { state: world.streams.get(sourceName), at: undefined, depth: 0 };
  const existing = world.streams.get(command.name);
  const decision = decideCreate(existing, source, command, world.nextId, RUN, 1 as TimeMs);
  if (decision.kind === "created")
    for (const change of decision.changes) applyChange(world, change);
}

function describeModel(model: Model): string {
  const lines = [...model.streams].map(
    ([name, { isDeleted, source }]) => `${name} ${isDeleted} ${source} ${childrenOf(model, name)}`,
  );
  return lines.toSorted().join("; ");
}

function describeWorld(world: World): string {
  const lines = [...world.streams.values()].map(
    ({ name, isDeleted, fork, forkCount }) =>
      `${name} ${isDeleted} ${fork?.sourceName} ${forkCount}`,
  );
  return lines.toSorted().join("; ");
}

function check(steps: readonly Step[]): void {
  const world = createWorld();
  const model: Model = { streams: new Map() };
  for (const step of steps) {
    stepWorld(world, step);
    stepModel(model, step);
    const [found, expected] = [describeWorld(world), describeModel(model)];
    if (found !== expected) expect([steps, found]).toBe(expected);
    if (world.byId.size !== world.streams.size) expect(steps).toBe("without an unnamed stream");
  }
}

describe("histories", () => {
  test("after each step of every history who is there, gone and needed is right", () => {
    let count = 0;
    const extend = (steps: readonly Step[]): void => {
      if (steps.length === 5) {
        check(steps);
        count += 1;
        return;
      }
      for (const step of STEPS) extend([...steps, step]);
    };
    // The first step that does anything is a creation; "/c" is to "/a" as itself.
    for (const name of ["/a", "/b"] as const) extend([{ kind: "create", name }]);
    expect(count).toBe(2 * STEPS.length ** 4);
  });

  test("long histories too", () => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom(...STEPS), { minLength: 5, maxLength: 60 }), check),
      { numRuns: 500 },
    );
  });
});

test("a chain of deleted sources goes with its last fork, from the fork upwards", () => {
  const world = createWorld();
  for (const [name, source] of [["/a"], ["/b", "/a"], ["/c", "/b"]] as const) {
    if (source === undefined) stepWorld(world, { kind: "create", name });
    else stepWorld(world, { kind: "fork", name, source });
  }
  stepWorld(world, { kind: "delete", name: "/a" });
  stepWorld(world, { kind: "delete", name: "/b" });
  const leaf = world.streams.get("/c" as StreamName);
  if (leaf === undefined) throw new Error("the last fork is missing");
  expect(decideEnding(world.byId, leaf, 1 as TimeMs)).toEqual(
    [3, 2, 1].map((stream) => ({ kind: "removed", atMs: 1, stream })),
  );
});

function streamWith(expiry: ExpiryRule, createdAtMs = 0): { world: World; state: StreamState } {
  const world = createWorld();
  const command = createCommand("/a", { expiry });
  const decision = decideCreate(
    undefined,
    undefined,
    command,
    world.nextId,
    RUN,
    createdAtMs as TimeMs,
  );
  if (decision.kind === "created")
    for (const change of decision.changes) applyChange(world, change);
  const state = world.streams.get("/a" as StreamName);
  if (state === undefined) throw new Error("the stream was not created");
  return { world, state };
}

describe("expiry", () => {
  test("a stream read at any times never expires early, and at most a 16th late", () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 10_000 }),
        // In 64ths of the TTL: some within its 16th, some just before its end, some after it.
        fc.array(fc.constantFrom(0, 1, 2, 4, 5, 30, 59, 61, 63, 64, 67, 68, 70), { maxLength: 30 }),
        (seconds, gaps) => {
          const { world, state } = streamWith({ kind: "ttl", seconds });
          let nowMs = 0;
          let lastReadMs = 0;
          for (const gap of gaps) {
            nowMs += Math.floor((gap * seconds * 1000) / 64);
            const isGone = isExpired(state, nowMs as TimeMs, false);
            const idleMs = nowMs - lastReadMs;
            const graceMs = Math.min(Math.ceil((seconds * 1000) / 16), 60_000);
            if (isGone) expect(idleMs).toBeGreaterThanOrEqual(seconds * 1000);
            else expect(idleMs).toBeLessThan(seconds * 1000 + graceMs);
            if (isGone) return;
            lastReadMs = nowMs;
            const touch = decideTouch(state, nowMs as TimeMs);
            if (touch !== undefined) applyChange(world, touch);
          }
        },
      ),
    );
  });

  test("reading all the time writes at most 16 times a TTL", () => {
    const { world, state } = streamWith({ kind: "ttl", seconds: 16 });
    let touches = 0;
    for (let nowMs = 0; nowMs < 16_000; nowMs += 1) {
      const touch = decideTouch(state, nowMs as TimeMs);
      if (touch === undefined) continue;
      applyChange(world, touch);
      touches += 1;
    }
    expect(touches).toBeGreaterThan(10);
    expect(touches).toBeLessThanOrEqual(16);
  });

  test("an absolute expiry never moves, and one that never comes needs no touch", () => {
    for (const expiry of [NEVER_EXPIRES, { kind: "at", timeMs: 500 } as const]) {
      const { state } = streamWith(expiry);
      for (const nowMs of [0, 499, 500, 1e9]) {
        expect(decideTouch(state, nowMs as TimeMs)).toBeUndefined();
        const isGone = expiry.kind === "at" && nowMs >= 500;
        expect(isExpired(state, nowMs as TimeMs, false)).toBe(isGone);
      }
      expect(expiresAtMs(state)).toBe(expiry.kind === "at" ? 500 : undefined);
    }
  });

  test("live readers hold a sliding expiry off, but not an absolute one", () => {
    const late = 1e12 as TimeMs;
    const { state: sliding } = streamWith({ kind: "ttl", seconds: 1 });
    expect(isExpired(sliding, late, true)).toBe(false);
    expect(isExpired(sliding, late, false)).toBe(true);
    const { state: absolute } = streamWith({ kind: "at", timeMs: 1 });
    expect(isExpired(absolute, late, true)).toBe(true);
  });

  test("a softly deleted stream neither expires again nor is touched", () => {
    const { world, state } = streamWith({ kind: "ttl", seconds: 1 });
    applyChange(world, { kind: "deleted", atMs: 1 as TimeMs, stream: state.id });
    expect(isExpired(state, 1e12 as TimeMs, false)).toBe(false);
    expect(decideTouch(state, 1e12 as TimeMs)).toBeUndefined();
  });
});
