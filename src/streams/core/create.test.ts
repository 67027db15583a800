// All pairs of configurations, all forks of a small stream. PROTOCOL.md §3, §8, §15, §16.1
import { describe, expect, test } from "vitest";
import {
  appendCommand,
  createCommand,
  keyClaim,
  producerClaim,
  RUN,
} from "../../testing/commands.ts";
import { decideAppend } from "./append.ts";
import {
  CONTENT_TYPE_DEFAULT,
  FORK_DEPTH_MAX,
  forkDepth,
  type CreateCommand,
  type CreateDecision,
  decideCreate,
  decideForkPoint,
  type ForkCommand,
} from "./create.ts";
import { KEY_DEFAULTS } from "./keys.ts";
import { decideEnding } from "./retention.ts";
import { type ExpiryRule, NEVER_EXPIRES, type StreamState } from "./stream.ts";
import type { Offset, StreamName, TimeMs } from "./types.ts";
import { applyChange, createWorld, type World } from "./world.ts";

const NOW = 9 as TimeMs;
const NAME = "/new" as StreamName;
const SOURCE = "/source" as StreamName;

const forkAt = (anchor: number | undefined, subOffset = 0): ForkCommand => ({
  sourceName: SOURCE,
  anchor: anchor as Offset | undefined,
  subOffset,
});

function create(world: World, command: CreateCommand, at?: number): CreateDecision {
  const { fork } = command;
  const source =
    fork === undefined
      ? undefined
      : {
          state: world.streams.get(fork.sourceName),
          at: at as Offset | undefined,
          depth: forkDepth(world.byId, world.streams.get(fork.sourceName)),
        };
  const existing = world.streams.get(command.name);
  const decision = decideCreate(existing, source, command, world.nextId, RUN, NOW);
  if (decision.kind === "created")
    for (const change of decision.changes) applyChange(world, change);
  return decision;
}

function stateOf(world: World, name: StreamName): StreamState {
  const state = world.streams.get(name);
  if (state === undefined) throw new Error(`there is no stream ${name}`);
  return state;
}

function end(world: World, name: StreamName): void {
  for (const change of decideEnding(world.byId, stateOf(world, name), NOW)) {
    applyChange(world, change);
  }
}

/** A world with a source of two appends, "abc" and "def", with a producer and a Stream-Seq. */
function worldWithSource(parts: Parameters<typeof createCommand>[1] = {}): World {
  const world = createWorld();
  create(world, createCommand(SOURCE, parts));
  const state = stateOf(world, SOURCE);
  for (const [sequence, text] of ["abc", "def"].entries()) {
    const producer = producerClaim("p", 0, sequence);
    const command = appendCommand(text, {
      producer,
      streamSeq: `${sequence}`,
      contentType: state.contentType,
    });
    const decision = decideAppend(state, command, NOW);
    if (decision.kind === "accepted") applyChange(world, decision.change);
  }
  return world;
}

const snapshot = (world: World): unknown =>
  structuredClone({ streams: world.streams, nextId: world.nextId, timeMs: world.timeMs });

const TYPES = ["text/plain", "Text/Plain; charset=utf-8", "application/json", undefined];
const EXPIRIES: readonly ExpiryRule[] = [
  NEVER_EXPIRES,
  { kind: "ttl", seconds: 60 },
  { kind: "ttl", seconds: 61 },
  { kind: "at", timeMs: 60_000 },
];
const FORKS = [undefined, forkAt(undefined), forkAt(3), forkAt(6), forkAt(3, 1)];

function* configurations(): Generator<CreateCommand> {
  for (const fork of FORKS)
    for (const contentType of TYPES)
      for (const expiry of EXPIRIES)
        for (const isClosed of [false, true]) {
          yield createCommand(NAME, { contentType, expiry, isClosed, fork });
        }
}

/** The parts of a configuration that must agree, with defaults for the parts that were left out. */
function essence(command: CreateCommand): string {
  const isFork = command.fork !== undefined;
  const type = command.contentType ?? (isFork ? "text/plain" : CONTENT_TYPE_DEFAULT);
  const media = type.split(";")[0]?.toLowerCase();
  const { anchor, subOffset } = command.fork ?? {};
  return JSON.stringify([isFork, media, command.expiry, command.isClosed, anchor ?? 6, subOffset]);
}

describe("creating again", () => {
  test("with the same configuration finds the stream, with another one is a conflict", () => {
    let count = 0;
    for (const first of configurations()) {
      const world = worldWithSource();
      if (create(world, first, first.fork?.anchor).kind !== "created") continue;
      for (const second of configurations()) {
        // A request that names no offset does not contradict one that did.
        const { fork } = second;
        const anchor = fork?.anchor ?? first.fork?.anchor;
        const asked = fork === undefined ? second : { ...second, fork: { ...fork, anchor } };
        const expected = essence(first) === essence(asked) ? "exists" : "conflict";
        const existing = world.streams.get(NAME);
        const { kind } = decideCreate(existing, undefined, second, world.nextId, RUN, NOW);
        if (kind !== expected) expect([first, second, kind]).toBe(expected);
        count += 1;
      }
    }
    expect(count).toBeGreaterThan(10_000);
  });

  test("changes nothing, with every body", () => {
    const world = createWorld();
    create(world, createCommand(NAME, { text: "first" }));
    const before = snapshot(world);
    for (const text of ["", "first", "other"]) {
      expect(create(world, createCommand(NAME, { text })).kind).toBe("exists");
    }
    expect(snapshot(world)).toEqual(before);
  });

  test("a fork that took its source's expiry is asked for without one, and only so", () => {
    const world = worldWithSource({ expiry: { kind: "ttl", seconds: 60 } });
    create(world, createCommand(NAME, { fork: forkAt(undefined) }));
    for (const expiry of EXPIRIES) {
      const { kind } = create(world, createCommand(NAME, { fork: forkAt(undefined), expiry }));
      expect(kind).toBe(expiry.kind === "never" ? "exists" : "conflict");
    }
  });

  test("a stream that was closed since is not the one that was asked for", () => {
    const world = createWorld();
    create(world, createCommand(NAME, { isClosed: true }));
    expect(create(world, createCommand(NAME, { isClosed: true })).kind).toBe("exists");
    expect(create(world, createCommand(NAME)).kind).toBe("conflict");
  });
});

test("a new stream has what the request says, and its body is its first append", () => {
  for (const text of ["", "body"]) {
    for (const isClosed of [false, true]) {
      const world = createWorld();
      const decision = create(
        world,
        createCommand(NAME, { text, isClosed, contentType: undefined }),
      );
      const tail = text.length;
      expect(decision).toMatchObject({ kind: "created", tail, isClosed });
      const state = { contentType: CONTENT_TYPE_DEFAULT, tail, isClosed, id: 1, createdAtMs: NOW };
      expect(stateOf(world, NAME)).toMatchObject(state);
    }
  }
});

describe("a request that wants a free path", () => {
  test("never finds a stream there, with every configuration", () => {
    let count = 0;
    for (const first of configurations()) {
      const world = worldWithSource();
      if (create(world, first, first.fork?.anchor).kind !== "created") continue;
      const { tail, isClosed } = stateOf(world, NAME);
      for (const second of configurations()) {
        const asked = { ...second, isNew: true };
        const existing = world.streams.get(NAME);
        const decision = decideCreate(existing, undefined, asked, world.nextId, RUN, NOW);
        const { kind } = decision;
        if (kind !== "present") expect([first, second, kind]).toBe("present");
        if (count % 500 === 0) expect(decision).toEqual({ kind: "present", tail, isClosed });
        count += 1;
      }
    }
    expect(count).toBeGreaterThan(10_000);
  });

  test("gets a path that is free, once", () => {
    const world = createWorld();
    expect(create(world, createCommand(NAME, { isNew: true, text: "mine" })).kind).toBe("created");
    const before = snapshot(world);
    expect(create(world, createCommand(NAME, { isNew: true, text: "yours" }))).toEqual({
      kind: "present",
      tail: 4,
      isClosed: false,
    });
    expect(snapshot(world)).toEqual(before);
    end(world, NAME);
    expect(create(world, createCommand(NAME, { isNew: true })).kind).toBe("created");
  });

  test("does not get the path of a deleted stream that forks need", () => {
    const world = worldWithSource();
    create(world, createCommand("/child", { fork: forkAt(undefined) }));
    end(world, SOURCE);
    expect(create(world, createCommand(SOURCE, { isNew: true })).kind).toBe("in_use");
  });
});

describe("the window of keys", () => {
  const KEYS = { windowSeconds: 60, countMax: 5, overflow: "reject", isFromContent: true } as const;
  const NONE = { windowSeconds: undefined, countMax: undefined, overflow: undefined };
  const SILENT = { ...NONE, isFromContent: false };

  test("is a part of the configuration, compared in what a repeated request says of it", () => {
    const world = createWorld();
    const asked: readonly [keys: CreateCommand["keys"], answer: string][] = [
      [KEYS, "exists"],
      [undefined, "exists"],
      [SILENT, "exists"],
      [{ ...SILENT, windowSeconds: 60 }, "exists"],
      [{ ...SILENT, windowSeconds: 61 }, "Stream-Key-Window"],
      [{ ...SILENT, countMax: 5 }, "exists"],
      [{ ...SILENT, countMax: 6 }, "Stream-Key-Max"],
      [{ ...SILENT, overflow: "reject" }, "exists"],
      [{ ...SILENT, overflow: "evict" }, "Stream-Key-Overflow"],
      [{ ...SILENT, isFromContent: true }, "exists"],
    ];
    expect(create(world, createCommand(NAME, { keys: KEYS }))).toMatchObject({
      kind: "created",
      keys: KEYS,
    });
    for (const [keys, answer] of asked) {
      const decision = create(world, createCommand(NAME, { keys }));
      if (answer === "exists") expect(decision).toMatchObject({ kind: "exists", keys: KEYS });
      else expect(decision).toEqual({ kind: "conflict", reason: answer });
    }
  });

  test("a stream without a setting is not the one that is asked for with it", () => {
    const world = createWorld();
    create(world, createCommand(NAME));
    for (const keys of [
      { ...SILENT, windowSeconds: 86_400 },
      { ...SILENT, countMax: 100_000 },
      { ...SILENT, overflow: "evict" as const },
      { ...SILENT, isFromContent: true },
    ]) {
      expect(create(world, createCommand(NAME, { keys })).kind).toBe("conflict");
    }
    expect(create(world, createCommand(NAME, { keys: SILENT }))).toMatchObject({ kind: "exists" });
  });

  test("a fork has its own, empty at first, and takes over no setting", () => {
    const world = createWorld();
    create(world, createCommand(SOURCE, { keys: KEYS }));
    const source = stateOf(world, SOURCE);
    const scene = { defaults: KEY_DEFAULTS, durableTail: source.tail };
    const keyed = appendCommand("x", { key: keyClaim("k", "x") });
    const decision = decideAppend(source, keyed, NOW, scene);
    if (decision.kind !== "accepted") throw new Error(decision.kind);
    applyChange(world, decision.change);
    create(world, createCommand(NAME, { fork: forkAt(undefined) }));
    const fork = stateOf(world, NAME);
    expect(fork.keys).toBeUndefined();
    expect(decideAppend(source, keyed, NOW, scene).kind).toBe("replayed");
    expect(decideAppend(fork, keyed, NOW, scene)).toMatchObject({
      kind: "accepted",
      change: { key: { ordinal: 0 } },
    });
  });
});

describe("a refused creation changes nothing and leaves no reference", () => {
  const refusals: readonly [string, (world: World) => void, CreateCommand, string][] = [
    ["of a fork of nothing", (world) => end(world, SOURCE), forkCommand(), "source_missing"],
    ["of a fork of a deleted source", softlyDelete, forkCommand(), "source_deleted"],
    // The wrong type once kept the source pinned and never released it.
    [
      "of a fork with another type",
      () => undefined,
      createCommand(NAME, { fork: forkAt(undefined), contentType: "text/html" }),
      "content_type_mismatch",
    ],
    [
      "of a fork at a path that is taken",
      (world) => void create(world, createCommand(NAME)),
      forkCommand(),
      "conflict",
    ],
  ];

  function forkCommand(): CreateCommand {
    return createCommand(NAME, { fork: forkAt(undefined) });
  }

  function softlyDelete(world: World): void {
    create(world, createCommand("/child", { fork: forkAt(undefined) }));
    end(world, SOURCE);
  }

  test.each(refusals)("%s", (_what, arrange, command, expected) => {
    const world = worldWithSource();
    arrange(world);
    const before = snapshot(world);
    expect(create(world, command).kind).toBe(expected);
    expect(snapshot(world)).toEqual(before);
    expect(world.streams.get(SOURCE)?.forkCount ?? 0).toBe(expected === "source_deleted" ? 1 : 0);
  });

  test("a source whose only fork was refused is gone when it is deleted", () => {
    const world = worldWithSource();
    create(world, createCommand(NAME, { fork: forkAt(undefined), contentType: "text/html" }));
    end(world, SOURCE);
    expect(world.byId.size).toBe(0);
  });
});

describe("a fork", () => {
  test("takes over data and type, but no producer, no Stream-Seq and no close", () => {
    const world = worldWithSource();
    const close = decideAppend(stateOf(world, SOURCE), appendCommand("", { closes: true }), NOW);
    if (close.kind === "accepted") applyChange(world, close.change);
    const command = createCommand(NAME, { fork: forkAt(undefined), contentType: undefined });
    expect(create(world, command)).toMatchObject({ kind: "created", tail: 6, isClosed: false });
    const fork = stateOf(world, NAME);
    expect(fork.producers).toBeUndefined();
    expect(fork.lastStreamSeq).toBeUndefined();
    expect(fork).toMatchObject({ isClosed: false, contentType: "text/plain", tail: 6 });
    const again = appendCommand("x", { producer: producerClaim("p", 0, 0), streamSeq: "0" });
    expect(decideAppend(fork, again, NOW).kind).toBe("accepted");
  });

  test("takes its source's expiry unless it has one of its own", () => {
    for (const inherited of EXPIRIES) {
      for (const own of EXPIRIES) {
        const world = worldWithSource({ expiry: inherited });
        create(world, createCommand(NAME, { fork: forkAt(undefined), expiry: own }));
        expect(stateOf(world, NAME).expiry).toEqual(own.kind === "never" ? inherited : own);
      }
    }
  });

  test("with a body starts after the data of its source", () => {
    const world = worldWithSource();
    const decision = create(world, createCommand(NAME, { fork: forkAt(3), text: "own" }), 3);
    expect(decision).toMatchObject({ kind: "created", tail: 6 });
    expect(stateOf(world, NAME).fork).toMatchObject({ at: 3, anchor: 3, subOffset: 0 });
    expect(stateOf(world, SOURCE).forkCount).toBe(1);
  });
});

test("the path of a deleted stream stays taken until the last fork is gone", () => {
  const world = worldWithSource();
  create(world, createCommand(NAME, { fork: forkAt(undefined) }));
  end(world, SOURCE);
  for (const text of ["", "body"]) {
    expect(create(world, createCommand(SOURCE, { text })).kind).toBe("in_use");
  }
  end(world, NAME);
  expect(create(world, createCommand(SOURCE)).kind).toBe("created");
});

describe("where a fork begins", () => {
  /** The source has the appends [0, 3) and [3, 6); each record is one byte. */
  const appendAt = (anchor: number): { start: Offset; length: number } | undefined => {
    if (anchor >= 6) return undefined;
    return { start: (anchor < 3 ? 0 : 3) as Offset, length: 3 };
  };

  test("is between two records of one append, or refused, for every anchor and sub-offset", () => {
    const source = stateOf(worldWithSource(), SOURCE);
    for (let anchor = 0; anchor <= 8; anchor += 1) {
      for (let subOffset = 0; subOffset <= 5; subOffset += 1) {
        const append = appendAt(anchor);
        const point = decideForkPoint(source, anchor as Offset, subOffset, {
          start: append?.start,
          subOffsetBytes: append !== undefined && subOffset <= 3 ? subOffset : undefined,
        });
        const isBorder = [0, 3, 6].includes(anchor);
        const isPossible = isBorder && (subOffset === 0 || (anchor < 6 && subOffset <= 3));
        expect(point.kind === "at" ? point.at : point.kind).toBe(
          isPossible ? anchor + subOffset : "invalid_fork",
        );
      }
    }
  });
});

test("forks of forks go as deep as the limit, and a deeper one is refused and leaves nothing", () => {
  const world = createWorld();
  const nameOf = (depth: number): StreamName => `/deep/${depth}` as StreamName;
  const forkOf = (depth: number): CreateCommand => {
    const fork = { sourceName: nameOf(depth), anchor: undefined, subOffset: 0 };
    return createCommand(nameOf(depth + 1), { fork });
  };
  create(world, createCommand(nameOf(0)));
  for (let depth = 0; depth < FORK_DEPTH_MAX; depth += 1) {
    expect(create(world, forkOf(depth)).kind).toBe("created");
  }
  expect(create(world, forkOf(FORK_DEPTH_MAX))).toMatchObject({ kind: "invalid_fork" });
  expect(world.streams.get(nameOf(FORK_DEPTH_MAX))?.forkCount).toBe(0);
  // A repeated creation gets the same answer as before, and an earlier stream can be forked again.
  expect(create(world, forkOf(FORK_DEPTH_MAX - 1)).kind).toBe("exists");
  const beside = { ...forkOf(FORK_DEPTH_MAX - 1), name: "/beside" as StreamName };
  expect(create(world, beside).kind).toBe("created");
});
