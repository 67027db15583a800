// A model of streams: random commands go through the rules into a world, and into a naive model that
// keeps texts and lists. Then the changes alone must make the same world again.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  appendCommand,
  createCommand,
  keyClaim,
  producerClaim,
  sessionClaim,
  joinedText,
  RUN,
} from "../../testing/commands.ts";
import { describeWorld } from "../../testing/store-case-kit.ts";
import { decideAppend } from "./append.ts";
import type { Change } from "./change.ts";
import { decideCreate } from "./create.ts";
import { firstAliveOf } from "./keys.ts";
import { decideEnding, decideTouch } from "./retention.ts";
import type { StreamState } from "./stream.ts";
import { BrokenInvariant } from "../../base/assert.ts";
import type { ProducerId, StreamId, StreamName, TimeMs } from "./types.ts";
import { applyChange, createWorld, type World } from "./world.ts";

const NAMES = ["/a", "/b", "/c", "/d"];
const name = fc.constantFrom(...NAMES);
const ttl = fc.option(fc.nat(3), { nil: undefined });

type Command =
  | { kind: "create"; name: string; text: string; isClosed: boolean; ttl: number | undefined }
  | { kind: "fork"; name: string; source: string; text: string }
  | {
      kind: "append";
      name: string;
      text: string;
      closes: boolean;
      producer: string | undefined;
      epoch: number;
      sequence: number;
      streamSeq: string | undefined;
      session?: string | undefined;
      key?: string | undefined;
    }
  | { kind: "reset"; name: string; producer: string }
  | { kind: "evict"; name: string }
  | { kind: "delete"; name: string }
  | { kind: "touch"; name: string }
  | { kind: "sign"; key: string };

const text = fc.constantFrom("", "x", "yz");
const command: fc.Arbitrary<Command> = fc.oneof(
  fc.record({ kind: fc.constant("create" as const), name, text, isClosed: fc.boolean(), ttl }),
  fc.record({ kind: fc.constant("fork" as const), name, source: name, text }),
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant("append" as const),
      name,
      text: fc.constantFrom("p", "qr", "stu"),
      closes: fc.integer({ min: 0, max: 15 }).map((value) => value === 0),
      producer: fc.constantFrom(undefined, "one", "two"),
      epoch: fc.nat(1),
      sequence: fc.nat(3),
      streamSeq: fc.constantFrom(undefined, undefined, "1", "2", "3"),
      session: fc.constantFrom(undefined, undefined, "s", "t"),
      key: fc.constantFrom(undefined, "k", "l", "m", "n"),
    }),
  },
  fc.record({
    kind: fc.constant("reset" as const),
    name,
    producer: fc.constantFrom("one", "two"),
  }),
  fc.record({ kind: fc.constant("evict" as const), name }),
  fc.record({ kind: fc.constant("delete" as const), name }),
  fc.record({ kind: fc.constant("touch" as const), name }),
  fc.record({ kind: fc.constant("sign" as const), key: fc.string({ maxLength: 3 }) }),
);
const history = fc.array(fc.tuple(command, fc.nat(5000)), { maxLength: 60 });

function decide(world: World, asked: Command, atMs: TimeMs): readonly Change[] {
  if (asked.kind === "sign") return [{ kind: "signing_key_added", atMs, key: asked.key }];
  const state = world.streams.get(asked.name as StreamName);
  if (asked.kind === "create" || asked.kind === "fork") return decideNew(world, asked, state, atMs);
  if (state === undefined || state.isDeleted) return [];
  if (asked.kind === "delete") return decideEnding(world.byId, state, atMs);
  if (asked.kind === "touch")
    return [decideTouch(state, atMs)].filter((change) => change !== undefined);
  if (asked.kind === "reset") {
    const producer = asked.producer as ProducerId;
    const resets = (state.producers?.get(producer)?.resets ?? 0) + 1;
    return [{ kind: "producer_reset", atMs, stream: state.id, producer, resets }];
  }
  if (asked.kind === "evict") {
    const window = state.keys?.window;
    if (window === undefined) return [];
    const evictTo = firstAliveOf(window, KEYS.windowSeconds * 1000, atMs);
    return [{ kind: "keys_evicted", atMs, stream: state.id, evictTo }];
  }
  const appended = appendCommand(asked.text, identityOf(asked));
  const scene = { defaults: KEYS, durableTail: state.tail };
  const decision = decideAppend(state, appended, atMs, scene);
  return decision.kind === "accepted" ? [decision.change] : [];
}

/** Small, so that keys are evicted and come again. */
const KEYS = { windowSeconds: 2, countMax: 2, overflow: "evict" } as const;

function identityOf(
  asked: Extract<Command, { kind: "append" }>,
): Parameters<typeof appendCommand>[1] {
  const { producer: id, epoch, sequence, closes, streamSeq, session, key } = asked;
  if (id === undefined) {
    return { closes, streamSeq, key: key === undefined ? undefined : keyClaim(key, asked.text) };
  }
  const producer =
    session === undefined
      ? producerClaim(id, epoch, sequence)
      : sessionClaim(id, session, sequence);
  return { closes, streamSeq, producer };
}

function decideNew(
  world: World,
  asked: Extract<Command, { kind: "create" | "fork" }>,
  existing: StreamState | undefined,
  atMs: TimeMs,
): readonly Change[] {
  const isFork = asked.kind === "fork";
  const sourceName = (isFork ? asked.source : "") as StreamName;
  const seconds = isFork ? undefined : asked.ttl;
  const created = createCommand(asked.name, {
    text: asked.text,
    isClosed: !isFork && asked.isClosed,
    expiry: seconds === undefined ? { kind: "never" } : { kind: "ttl", seconds },
    fork: isFork ? { sourceName, anchor: undefined, subOffset: 0 } : undefined,
  });
  const source = { state: world.streams.get(sourceName), at: undefined, depth: 0 };
  const decision = decideCreate(existing, source, created, world.nextId, RUN, atMs);
  return decision.kind === "created" ? decision.changes : [];
}

/** Runs a history. Time is journal time: the clock, but never before the latest change. */
function run(steps: readonly (readonly [Command, number])[]): { world: World; changes: Change[] } {
  const world = createWorld();
  const changes: Change[] = [];
  for (const [asked, clockMs] of steps) {
    const atMs = Math.max(world.timeMs, clockMs) as TimeMs;
    for (const change of decide(world, asked, atMs)) {
      applyChange(world, change);
      changes.push(change);
    }
  }
  return { world, changes };
}

function replay(changes: readonly Change[]): World {
  const world = createWorld();
  for (const change of changes) applyChange(world, change);
  return world;
}

/** Lists the accepted appends of each stream. A fork starts with the text of its source. */
function readModel(changes: readonly Change[]): Map<StreamId, { text: string; isClosed: boolean }> {
  const model = new Map<StreamId, { text: string; isClosed: boolean }>();
  for (const change of changes) {
    if (change.kind === "created") {
      const source = change.fork === undefined ? undefined : model.get(change.fork.source);
      model.set(change.stream, { text: source?.text ?? "", isClosed: false });
    } else if (change.kind === "appended") {
      const before = model.get(change.stream);
      if (before === undefined) throw new Error("an append to a stream that is not there");
      before.text += joinedText([change.data]);
      before.isClosed = change.closes;
    } else if (change.kind === "removed") {
      model.delete(change.stream);
    }
  }
  return model;
}

describe("replay", () => {
  test("the recorded changes make a deeply equal world, also from copies of them", () => {
    fc.assert(
      fc.property(history, (steps) => {
        const { world, changes } = run(steps);
        const copy = replay(structuredClone(changes));
        expect(replay(changes)).toEqual(world);
        expect(copy).toEqual(world);
        // `toEqual` does not look at the entries of a window, which are private.
        expect(describeWorld(copy)).toBe(describeWorld(world));
      }),
      { numRuns: 300 },
    );
  });

  test("a prefix of the changes makes the world as it was then", () => {
    fc.assert(
      fc.property(history, fc.nat(), (steps, cut) => {
        const { world, changes } = run(steps);
        const count = cut % (changes.length + 1);
        const half = replay(changes.slice(0, count));
        for (const change of changes.slice(count)) applyChange(half, change);
        expect(half).toEqual(world);
        expect(describeWorld(half)).toBe(describeWorld(world));
      }),
    );
  });

  test("a change is plain data: nothing of the world it was decided on is inside", () => {
    fc.assert(
      fc.property(history, (steps) => {
        const { world, changes } = run(steps);
        const states = new Set<unknown>(world.byId.values());
        for (const change of changes) {
          expect(structuredClone(change)).toEqual(change);
          for (const part of Object.values(change)) expect(states.has(part)).toBe(false);
        }
      }),
    );
  });
});

describe("the world", () => {
  test("knows the tail and the close that a list of appends gives", () => {
    fc.assert(
      fc.property(history, (steps) => {
        const { world, changes } = run(steps);
        const model = readModel(changes);
        expect(new Set(world.byId.keys())).toEqual(new Set(model.keys()));
        for (const [id, { tail, isClosed }] of world.byId) {
          expect([tail, isClosed]).toEqual([model.get(id)?.text.length, model.get(id)?.isClosed]);
        }
        expect(world.streams.size).toBe(world.byId.size);
      }),
      { numRuns: 300 },
    );
  });

  test("gives every life of a stream an id that was never used before", () => {
    fc.assert(
      fc.property(history, (steps) => {
        const ids = run(steps)
          .changes.filter((change) => change.kind === "created")
          .map(({ stream }) => stream);
        expect(ids).toEqual(ids.map((_, index) => index + 1));
      }),
    );
  });

  test("journal time never goes back, for all times that changes carry", () => {
    fc.assert(
      fc.property(fc.array(fc.nat(1_000_000)), (times) => {
        const world = createWorld();
        let latest = 0;
        for (const atMs of times) {
          applyChange(world, { kind: "signing_key_added", atMs: atMs as TimeMs, key: "k" });
          latest = Math.max(latest, atMs);
          expect(world.timeMs).toBe(latest);
        }
      }),
    );
  });

  test("the fork count of every stream is the number of streams that name it", () => {
    fc.assert(
      fc.property(history, (steps) => {
        const { world } = run(steps);
        for (const state of world.byId.values()) {
          const forks = [...world.byId.values()].filter(({ fork }) => fork?.source === state.id);
          expect(state.forkCount).toBe(forks.length);
          if (state.isDeleted) expect(state.forkCount).toBeGreaterThan(0);
        }
      }),
      { numRuns: 300 },
    );
  });

  // A stream that is created again has nothing of the deleted one at its path.
  test("a stream that comes again has nothing of the old one", () => {
    const asked = { kind: "append", name: "/a", text: "p", closes: true } as const;
    const append: Command = { ...asked, producer: "one", epoch: 0, sequence: 0, streamSeq: "9" };
    const fresh: Command = {
      kind: "create",
      name: "/a",
      text: "",
      isClosed: false,
      ttl: undefined,
    };
    const steps = [fresh, append, { kind: "delete", name: "/a" } as const, fresh, append];
    const { world, changes } = run(steps.map((step) => [step, 1] as const));
    expect(changes.map(({ kind }) => kind)).toEqual([
      "created",
      "appended",
      "removed",
      "created",
      "appended",
    ]);
    expect(world.streams.get("/a" as StreamName)).toMatchObject({ id: 2, tail: 1, isClosed: true });
  });
});

test("A2 a change that cannot have happened is a bug and not a state", () => {
  const created = {
    kind: "created",
    atMs: 1 as TimeMs,
    contentType: "a/b",
    run: RUN,
    keys: undefined,
  } as const;
  const parts = { ...created, expiry: { kind: "never" }, fork: undefined } as const;
  const world = createWorld();
  const stream = 1 as StreamId;
  applyChange(world, { ...parts, stream, name: "/a" as StreamName });
  const touched = { kind: "touched", atMs: 1 as TimeMs, stream: 7 as StreamId } as const;
  expect(() => applyChange(world, touched)).toThrow(BrokenInvariant);
  expect(() =>
    applyChange(world, { ...parts, stream: 2 as StreamId, name: "/a" as StreamName }),
  ).toThrow("a stream is created twice");
  const none = { producer: undefined, streamSeq: undefined, key: undefined };
  const bare = { ...none, closes: true, data: new Uint8Array(0) };
  applyChange(world, { kind: "appended", atMs: 1 as TimeMs, stream, ...bare });
  expect(() =>
    applyChange(world, { kind: "appended", atMs: 1 as TimeMs, stream, ...bare }),
  ).toThrow("A2 an append follows a close");
  const fork = { source: stream, sourceName: "/a" as StreamName, anchor: 0, subOffset: 0, at: 0 };
  applyChange(world, {
    ...parts,
    stream: 2 as StreamId,
    name: "/b" as StreamName,
    // Offsets are branded numbers; a literal 0 is the zero offset.
    fork: { ...fork, inheritsExpiry: true } as StreamState["fork"],
  });
  expect(() => applyChange(world, { kind: "removed", atMs: 1 as TimeMs, stream })).toThrow(
    "a stream is removed under its forks",
  );
});
