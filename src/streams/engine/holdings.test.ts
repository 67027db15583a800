// PROTOCOL.md §21.9
import fc from "fast-check";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, test } from "vitest";
import { appendCommand, createCommand, producerClaim } from "../../testing/commands.ts";
import { createVirtualClock } from "../../testing/virtual-clock.ts";
import { openGatedStore } from "../../../test/kits/gated-store.ts";
import { isSystemStream } from "../core/stream.ts";
import type { StreamName } from "../core/types.ts";
import type { World } from "../core/world.ts";
import type { Store } from "../store.ts";
import { openFileStore } from "../stores/file.ts";
import { openMemoryStore } from "../stores/memory.ts";
import type { Engine } from "./engine.ts";
import { WholeEngine } from "./whole-engine.ts";
import { Allowance, type Holding } from "./holdings.ts";

const ACME = "/v1/stream/acme";
const PATHS = [undefined, ACME, `${ACME}/eu`, "/v1/stream/acme-2", "/v1/stream/none"];
const NAMES = [ACME, `${ACME}/a`, `${ACME}/eu`, `${ACME}/eu/b`, "/v1/stream/acme-2/c", "/other"];

const closers: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0)) await close();
});

function open(store: Store = openMemoryStore()) {
  const clock = createVirtualClock(1_000_000);
  const engine = new WholeEngine({ store, clock, jsonRecordsEnd: () => undefined });
  closers.push(() => engine.close());
  return { engine, clock };
}

/** Looks at every stream, and knows nothing of changes. */
function recount(world: World, path: string | undefined): { streams: number; bytes: number } {
  let streams = 0;
  let bytes = 0;
  for (const { name, tail, fork } of world.byId.values()) {
    const isWithin = path === undefined || name === path || name.startsWith(`${path}/`);
    if (!isWithin || isSystemStream(name)) continue;
    streams += 1;
    bytes += tail - (fork?.at ?? 0);
  }
  return { streams, bytes };
}

const numbersOf = ({ streams, bytes }: Holding) => ({ streams, bytes });

function compare(engine: Engine): void {
  for (const holding of engine.holdings.all) {
    expect([holding.path, numbersOf(holding)]).toEqual([
      holding.path,
      recount(engine.world, holding.path),
    ]);
  }
}

type Step = (engine: Engine, clock: ReturnType<typeof createVirtualClock>) => unknown;
const name = fc.constantFrom(...NAMES) as fc.Arbitrary<StreamName>;
const text = fc.string({ maxLength: 20 });
const step: fc.Arbitrary<Step> = fc.oneof(
  fc.tuple(name, text).map(
    ([at, first]): Step =>
      (engine) =>
        engine.create(createCommand(at, { text: first })),
  ),
  name.map(
    (at): Step =>
      (engine) =>
        engine.create(createCommand(at, { expiry: { kind: "ttl", seconds: 1 } })),
  ),
  fc.tuple(name, name).map(
    ([at, sourceName]): Step =>
      (engine) =>
        engine.create(createCommand(at, { fork: { sourceName, anchor: undefined, subOffset: 0 } })),
  ),
  fc.tuple(name, text).map(
    ([at, more]): Step =>
      (engine) =>
        engine.append(at, appendCommand(more)),
  ),
  fc.tuple(name, text, fc.nat(2)).map(
    ([at, more, sequence]): Step =>
      (engine) =>
        engine.append(at, appendCommand(more, { producer: producerClaim("p", 0, sequence) })),
  ),
  name.map(
    (at): Step =>
      (engine) =>
        engine.delete(at),
  ),
  fc.nat(3000).map((ms): Step => (_, clock) => {
    clock.advance(ms);
  }),
  fc.constantFrom(...PATHS).map(
    (path): Step =>
      (engine) =>
        engine.holdings.open(path),
  ),
);

describe("what a namespace holds", () => {
  test("G50 follows every creation, append, fork, deletion and expiry exactly", async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 60, size: "max" }), async (steps) => {
        const { engine, clock } = open();
        await engine.holdings.open(ACME);
        for (const run of steps) {
          await Promise.resolve(run(engine, clock)).catch(() => undefined);
          compare(engine);
        }
      }),
    );
  });

  test("G50 is the same after a restart", async () => {
    const dir = mkdtempSync(join(tmpdir(), "hapax-holdings-"));
    closers.push(() => Promise.resolve(rmSync(dir, { recursive: true, force: true })));
    await fc.assert(
      fc.asyncProperty(
        fc.array(step, { minLength: 40, maxLength: 80, size: "max" }),
        async (steps) => {
          const first = open(await openFileStore(dir, { durability: "os" }));
          for (const path of PATHS) await first.engine.holdings.open(path);
          for (const run of steps) {
            await Promise.resolve(run(first.engine, first.clock)).catch(() => undefined);
          }
          await first.engine.settled();
          const before = [...first.engine.holdings.all].map(numbersOf);
          closers.pop();
          await first.engine.close();
          const second = open(await openFileStore(dir, { durability: "os" }));
          for (const path of PATHS) await second.engine.holdings.open(path);
          expect([...second.engine.holdings.all].map(numbersOf)).toEqual(before);
          closers.pop();
          await second.engine.close();
        },
      ),
      { numRuns: 4 },
    );
  });

  test("G50 is exact also if streams come, grow and go while it is counted, in slices", async () => {
    const { engine, clock } = open();
    const at = (index: number): StreamName =>
      `${ACME}/${String(index).padStart(6, "0")}` as StreamName;
    const all: Promise<unknown>[] = [];
    for (let index = 0; index < 24_000; index += 2) {
      all.push(engine.create(createCommand(at(index), { text: "ab" })));
    }
    await Promise.all(all);
    const opening = engine.holdings.open(ACME);
    expect(opening).toBeInstanceOf(Promise);
    expect(engine.holdings.open(ACME)).toBe(opening);
    for (const index of [1, 23_999]) await engine.create(createCommand(at(index), { text: "c" }));
    for (const index of [0, 23_998]) await engine.append(at(index), appendCommand("defg"));
    for (const index of [2, 23_996]) await engine.delete(at(index));
    await engine.create(createCommand(ACME, { text: "h" }));
    for (let turns = 0; turns < 100; turns += 1) {
      clock.advance(1);
      await Promise.resolve();
    }
    expect(numbersOf(await opening)).toEqual(recount(engine.world, ACME));
  });

  test("a namespace without streams is forgotten, unless a request uses it", async () => {
    const { engine } = open();
    const { holdings } = engine;
    await engine.create(createCommand(`${ACME}/a`, { text: "abc" }));
    const used = await holdings.open(ACME);
    holdings.close(used);
    const kept = await holdings.open("/v1/stream/empty");
    for (let index = 0; index < 5000; index += 1) {
      holdings.close(await holdings.open(`/v1/stream/n${index}`));
    }
    expect([...holdings.all].length).toBeLessThan(2100);
    expect(await holdings.open(ACME)).toBe(used);
    await engine.create(createCommand("/v1/stream/empty/a"));
    expect(kept.streams).toBe(1);
  });
});

describe("an allowance", () => {
  async function allowed(streamsMax: number, storedBytesMax: number, store?: Store) {
    const { engine } = open(store);
    const holding = await engine.holdings.open(ACME);
    const refused: string[] = [];
    const limits = { streamsMax, storedBytesMax };
    const allowance = new Allowance(holding, limits, (quota) => refused.push(quota));
    return { engine, allowance, refused, holding };
  }
  const A = `${ACME}/a` as StreamName;
  const FULL = { code: "storage_quota_exceeded" };
  const append = async (engine: Engine, ...args: Parameters<Engine["append"]>) =>
    engine.append(...args);

  test("refuses what goes beyond it, and not a byte less", async () => {
    const { engine, allowance, refused } = await allowed(1, 5);
    await engine.create(createCommand(A, { text: "ab" }), allowance);
    await expect(engine.create(createCommand(`${A}/2`), allowance)).rejects.toMatchObject(FULL);
    const more = append(engine, A, appendCommand("cdef"), undefined, allowance);
    await expect(more).rejects.toMatchObject(FULL);
    expect(await append(engine, A, appendCommand("cde"), undefined, allowance)).toMatchObject({
      kind: "accepted",
      tail: 5,
    });
    expect(refused).toEqual(["streams", "stored_bytes"]);
  });

  test("G50 a retry, a close, a stream that is there, and a deletion are taken when it is used up", async () => {
    const { engine, allowance } = await allowed(1, 3);
    const first = appendCommand("abc", { producer: producerClaim("p", 0, 0) });
    await engine.create(createCommand(A), allowance);
    await engine.append(A, first, undefined, allowance);
    const kind = async (command = first) =>
      (await engine.append(A, command, undefined, allowance)).kind;
    expect(await kind()).toBe("duplicate");
    expect((await engine.create(createCommand(A), allowance)).kind).toBe("exists");
    expect(await kind(appendCommand("", { closes: true }))).toBe("accepted");
    expect((await engine.delete(A)).kind).toBe("deleted");
    expect((await engine.create(createCommand(A, { text: "abc" }), allowance)).kind).toBe(
      "created",
    );
  });

  test("G50 two requests cannot both take the last place, also while neither is durable", async () => {
    const store = openGatedStore(openMemoryStore());
    const { engine, allowance, holding } = await allowed(1, 10, store);
    const both = ["a", "b"].map((path) =>
      engine.create(createCommand(`${ACME}/${path}`, { text: "123456" }), allowance),
    );
    const settled = Promise.allSettled(both);
    await new Promise(setImmediate);
    await store.release();
    expect((await settled).map(({ status }) => status)).toEqual(["fulfilled", "rejected"]);
    expect(numbersOf(holding)).toEqual({ streams: 1, bytes: 6 });
  });

  test("G50 a held append is compared when its turn comes, and refused in its own name", async () => {
    const { engine, allowance } = await allowed(1, 4);
    await engine.create(createCommand(A), allowance);
    const claim = (sequence: number) => ({ producer: producerClaim("p", 0, sequence) });
    const patient = { waitMs: 1000, onAbort: () => undefined, wasHeld: false };
    const held = append(engine, A, appendCommand("def", claim(1)), patient, allowance);
    expect(
      (await engine.append(A, appendCommand("abc", claim(0)), undefined, allowance)).kind,
    ).toBe("accepted");
    await expect(held).rejects.toMatchObject(FULL);
    expect(patient.wasHeld).toBe(true);
  });
});
