// What the engine counts. PROTOCOL.md §12.3
import { describe, expect, test } from "vitest";
import type { AppendCommand } from "../core/append.ts";
import { KeyWindow } from "../../base/key-window.ts";
import type { LeaseToken } from "../core/group-state.ts";
import { KEY_DEFAULTS } from "../core/keys.ts";
import type { Offset, StreamName, TimeMs } from "../core/types.ts";
import { openMemoryStore } from "../stores/memory.ts";
import {
  appendCommand,
  createCommand,
  keyClaim,
  producerClaim,
  sessionClaim,
} from "../../testing/commands.ts";
import { openFaultyStore } from "../../../test/kits/faulty-store.ts";
import { createVirtualClock } from "../../testing/virtual-clock.ts";
import { WholeEngine } from "./whole-engine.ts";
import { Histogram, EngineMeter } from "./meter.ts";

const A = "/a" as StreamName;
const BEGINNING = { kind: "beginning" } as const;
const KEYS = {
  windowSeconds: 10,
  countMax: 3,
  overflow: undefined,
  isFromContent: true,
} as const;

async function openEngine() {
  const clock = createVirtualClock(1_000_000);
  const store = openMemoryStore();
  const engine = new WholeEngine({ store, clock, jsonRecordsEnd: () => undefined });
  await engine.create(createCommand(A, { keys: KEYS }));
  const append = (text: string, parts: Partial<AppendCommand> = {}, name = A) =>
    engine.append(name, appendCommand(text, parts));
  return { clock, engine, append, meter: engine.meter };
}

/** Counts that are not zero. */
function outcomesOf(meter: EngineMeter): Record<string, number> {
  return Object.fromEntries(Object.entries(meter.outcomes).filter(([, count]) => count > 0));
}

test("a histogram counts a value under the first bound that it does not exceed", () => {
  const histogram = new Histogram([1, 2, 4]);
  for (const value of [0, 1, 1.5, 2, 3, 4, 4.5, 100]) histogram.observe(value);
  expect(histogram.counts).toEqual([2, 2, 2, 2]);
  expect(histogram.sum).toBe(116);
});

describe("the meter", () => {
  test("counts every append under its outcome", async () => {
    const { engine, append, meter } = await openEngine();
    const p = (epoch: number, sequence: number) => ({
      producer: producerClaim("p", epoch, sequence),
    });
    await append("four", { ...p(1, 0), streamSeq: "m" });
    await append("four", p(1, 0));
    await append("x", p(1, 5));
    await append("x", p(0, 0));
    await append("x", p(2, 1));
    await append("x", { expectedTail: 0 as Offset });
    await append("x", { streamSeq: "a" });
    await append("x", { contentType: "text/html" });
    await append("x", {}, "/missing" as StreamName);
    await append("x", { key: keyClaim("k", "x", { timeMs: 1 }) });
    await append("x", p(Number.MAX_SAFE_INTEGER, 0));
    await append("x", { producer: sessionClaim("p", "s", 0) });
    await append("", { closes: true });
    await append("", { closes: true });
    await append("x");
    expect(outcomesOf(meter)).toEqual({
      accepted: 3,
      duplicate: 1,
      gap: 1,
      fenced: 1,
      epoch_start: 1,
      epoch_exhausted: 1,
      tail_moved: 1,
      sequence_regression: 1,
      content_type_mismatch: 1,
      key_expired: 1,
      missing: 1,
      already_closed: 1,
      closed: 1,
    });
    expect(meter.appendedBytes).toBe(5);
    expect(meter.commitChanges.counts.reduce((sum, count) => sum + count)).toBe(4);
    await engine.close();
  });

  test("counts the bytes of first bodies and of transactions too, once they are durable", async () => {
    const { engine, meter } = await openEngine();
    await engine.create(createCommand("/b" as StreamName, { text: "four" }));
    expect(meter.appendedBytes).toBe(4);
    const data = new TextEncoder().encode("three");
    const append = {
      kind: "append",
      stream: A,
      contentType: undefined,
      data,
      closes: false,
    } as const;
    const claim = keyClaim("k", "x");
    await engine.transactions.commit(
      () => ({ identity: { kind: "key", claim }, operations: [append], bytes: 5 }),
      "id",
    );
    // The log of transactions is the server's own.
    expect(meter.appendedBytes).toBe(9);
    await engine.close();
  });

  test("an append whose commit fails is not counted as accepted", async () => {
    const store = openFaultyStore(openMemoryStore());
    const clock = createVirtualClock(1_000_000);
    const engine = new WholeEngine({ store, clock, jsonRecordsEnd: () => undefined });
    await engine.create(createCommand(A));
    store.failNextCommit();
    await expect(engine.append(A, appendCommand("lost"))).rejects.toThrow("a commit failed");
    expect(engine.meter.outcomes.accepted).toBe(0);
    expect(engine.meter.appendedBytes).toBe(0);
    await engine.close();
  });

  test("tells duplicates apart by what they were recognised by", async () => {
    const { clock, engine, append, meter } = await openEngine();
    const identities: readonly Partial<AppendCommand>[] = [
      { producer: producerClaim("p", 0, 0) },
      { producer: sessionClaim("q", "s", 0) },
      { key: keyClaim("k", "x") },
      { key: keyClaim("content", "x", { isContent: true }) },
    ];
    for (const [index, parts] of identities.entries()) {
      for (let times = 0; times <= index + 1; times += 1) await append("x", parts);
    }
    expect(meter.duplicates).toEqual({ epoch: 1, session: 2, key: 3, content: 4 });
    expect(meter.retryAgeRatioMax).toBe(0);
    clock.advance(5_000);
    await append("x", identities[2]);
    expect(meter.retryAgeRatioMax).toBe(0.5);
    await append("other", { key: keyClaim("k", "other") });
    expect(outcomesOf(meter)).toEqual({ accepted: 4, duplicate: 3, replayed: 8, key_reused: 1 });
    await engine.close();
  });

  test("tells keys that a full window pushes out from keys that were old", async () => {
    const { clock, engine, append, meter } = await openEngine();
    const add = (key: string) => append("x", { key: keyClaim(key, "x") });
    for (const key of ["a", "b", "c", "d", "e"]) await add(key);
    expect([meter.keysPushedOut, meter.keysExpired]).toEqual([2, 0]);
    // Without the sweeper's timer, which would come first.
    clock.advance(9_999);
    await add("f");
    expect([meter.keysPushedOut, meter.keysExpired]).toEqual([3, 0]);
    clock.advance(1_000);
    expect([meter.keysPushedOut, meter.keysExpired]).toEqual([3, 2]);
    await engine.close();
  });

  test("counts appends that were held once as held and once by their outcome", async () => {
    const { clock, engine, meter } = await openEngine();
    const send = (sequence: number) => {
      const command = appendCommand("x", { producer: producerClaim("p", 0, sequence) });
      return engine.append(A, command, { waitMs: 1000, onAbort: () => undefined, wasHeld: false });
    };
    const held = [send(1), send(3)];
    expect([meter.held, outcomesOf(meter)]).toEqual([2, {}]);
    await send(0);
    clock.advance(1000);
    await Promise.all(held);
    expect([meter.held, outcomesOf(meter)]).toEqual([2, { accepted: 2, gap: 1 }]);
    await engine.close();
  });

  test("counts what one append forgets as old first, and the rest as pushed out", () => {
    const window = new KeyWindow<Offset, TimeMs>();
    for (const [index, atMs] of [0, 0, 0, 5000, 6000].entries()) {
      window.add(keyClaim(`k${index}`, "x").mark, (index + 1) as Offset, atMs as TimeMs);
    }
    const meter = new EngineMeter();
    const keys = { policy: KEYS, window };
    meter.keys(keys, KEY_DEFAULTS, 4, 10_000 as TimeMs);
    expect([meter.keysExpired, meter.keysPushedOut]).toEqual([3, 1]);
    meter.keys(keys, KEY_DEFAULTS, 0, 10_000 as TimeMs);
    meter.keys(undefined, KEY_DEFAULTS, 4, 10_000 as TimeMs);
    expect([meter.keysExpired, meter.keysPushedOut]).toEqual([3, 1]);
  });

  test("counts transactions, claims and commits of an engine that no server is built over", async () => {
    const { engine, meter } = await openEngine();
    const { groups } = engine;
    const options = { pattern: "/*", streams: [], start: BEGINNING, leaseMs: 1000 };
    await groups.create("g", options);
    const joined = await groups.join("g", "m");
    if (joined.kind !== "joined") throw new Error(joined.kind);
    const { member } = joined;
    const claimed = await groups.claim("g", member, 1);
    if (claimed.kind !== "claimed") throw new Error(claimed.kind);
    const [lease] = claimed.leases;
    if (lease === undefined) throw new Error("no lease");
    const { stream, token } = lease;
    const offset = 0 as Offset;
    await groups.commit("g", member, [{ stream, token, offset }]);
    const lost = { stream, token: (token + 1) as typeof token, offset };
    await groups.commit("g", member, [lost]);
    await groups.claim("g", "stranger", 1);
    expect(meter.groups).toEqual({ claims: 1, commits: 1, lostLeases: 1 });
    const commit = (key: string, token: LeaseToken): Promise<unknown> => {
      const identity = { kind: "key", claim: keyClaim(key, key) } as const;
      const kept = { group: "g", member, stream, token };
      const operations = [{ kind: "commit", lease: kept, offset }] as const;
      return engine.transactions.commit(() => ({ identity, operations, bytes: 0 }), "wake");
    };
    await commit("one", token);
    await commit("one", token);
    await commit("two", lost.token);
    expect(meter.transactions).toEqual({ committed: 1, replayed: 1, refused: 1 });
    expect(meter.groups).toEqual({ claims: 1, commits: 2, lostLeases: 2 });
    await engine.close();
  });
});
