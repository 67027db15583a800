/**
 * Storms over the writing side: requests and answers lost, late, doubled, out of order, 429 and 5xx, from one
 * seed each. After each, what the client said is compared with what the stream holds.
 */

import { expect, test } from "vitest";
import { AppendFailure } from "../../src/client/client.ts";
import { createSeededRandom } from "../../src/testing/seeded-random.ts";
import { badNetwork, openWriteStage } from "./writes-stage.ts";

const isLong = process.env["HAPAX_LONG"] !== undefined;
const SEEDS = Number(process.env["HAPAX_CLIENT_SEEDS"] ?? (isLong ? 1000 : 100));
const APPENDS = 200;

interface Record {
  readonly id: number;
  readonly fill: string;
}

interface Told {
  readonly isFlushed: boolean;
  readonly failure: AppendFailure | undefined;
  readonly confirmed: readonly number[];
}

async function storm(seed: number): Promise<Told> {
  const random = createSeededRandom(seed);
  const isBase = random.below(4) === 0;
  const bodyBytesMax = random.below(4) === 0 ? 600 : 1_000_000;
  const stage = openWriteStage({ seed, isBase, server: { bodyBytesMax } });
  await stage.direct("PUT", { "content-type": "application/json" });
  stage.fate = badNetwork(random, 2 + random.below(12));
  const totalMs = random.below(4) === 0 ? 1_500 : 3_600_000;
  const stream = stage.connect({ retry: { totalMs }, timeoutMs: 2_000 });
  const producer = stream.producer({
    inFlightMax: 1 + random.below(50),
    batchRecordsMax: 1 + random.below(20),
    lingerMs: random.below(3) * 10,
  });
  const confirmed: number[] = [];
  const records: Record[] = [];
  for (let id = 0; id < APPENDS; id += 1) {
    const record = { id, fill: "x".repeat(random.below(60)) };
    const before = producer.pendingCount;
    producer.send(record).then(
      () => confirmed.push(id),
      () => undefined,
    );
    // A producer that is over takes nothing.
    if (producer.pendingCount === before) break;
    records.push(record);
    if (random.below(10) === 0) await stage.pass(random.below(100));
  }
  const failure = await stage.drive(
    producer.flush().then(
      () => undefined,
      (error: unknown) => error,
    ),
  );
  // All requests that are still on their way arrive.
  await stage.pass(12_000);
  const stored = (await stage.stored()) as Record[];
  await stage.close();
  if (failure !== undefined && !(failure instanceof AppendFailure)) {
    throw new Error("not an AppendFailure", { cause: failure });
  }
  check(records, stored, confirmed, failure);
  return { isFlushed: failure === undefined, failure, confirmed };
}

function check(
  given: readonly Record[],
  stored: readonly Record[],
  confirmed: readonly number[],
  failure: AppendFailure | undefined,
): void {
  // Exactly once and in order: what is stored is a beginning of what was given.
  expect(stored.map(({ id }) => id)).toEqual(given.slice(0, stored.length).map(({ id }) => id));
  for (const id of confirmed) expect(stored[id]?.id).toBe(id);
  if (failure === undefined) {
    expect(stored).toEqual(given);
    return;
  }
  const { unconfirmed } = failure;
  const first = given.length - unconfirmed.length;
  // Everything is accounted for, in order: confirmed ones, then those that are handed back.
  expect(unconfirmed.map(({ data }) => data)).toEqual(given.slice(first));
  expect(unconfirmed.length).toBeGreaterThan(0);
  expect(stored.length).toBeGreaterThanOrEqual(first);
  for (const [at, { outcome }] of unconfirmed.entries()) {
    if (outcome === "not_stored") expect(stored[first + at]).toBeUndefined();
  }
}

test(
  `${String(SEEDS)} storms of ${String(APPENDS)} appends: each once, in order, and flush is truthful`,
  { timeout: 600_000 },
  async () => {
    const seen = { flushed: 0, failed: 0, unknown: 0, notStored: 0 };
    for (let seed = 1; seed <= SEEDS; seed += 1) {
      let told: Told;
      try {
        told = await storm(seed);
      } catch (error) {
        throw new Error(`seed ${String(seed)}`, { cause: error });
      }
      seen[told.isFlushed ? "flushed" : "failed"] += 1;
      for (const { outcome } of told.failure?.unconfirmed ?? []) {
        seen[outcome === "unknown" ? "unknown" : "notStored"] += 1;
      }
    }
    // A storm without harm shows nothing.
    expect(seen.flushed).toBeGreaterThan(SEEDS / 3);
    if (SEEDS >= 100)
      expect(Math.min(seen.failed, seen.unknown, seen.notStored)).toBeGreaterThan(0);
  },
);

test("in 100 storms a producer that was replaced stores nothing after its heir", async () => {
  let fenced = 0;
  for (let seed = 1; seed <= 100; seed += 1) {
    const random = createSeededRandom(seed);
    const stage = openWriteStage({ seed });
    await stage.direct("PUT", { "content-type": "application/json" });
    // With a network that repeats requests, a client can be refused because of a copy of what was stored.
    stage.fate = badNetwork(random, 3, false);
    const patient = { retry: { totalMs: 3_600_000 }, timeoutMs: 2_000 };
    const options = { id: "writer", batchRecordsMax: 3, inFlightMax: 8 };
    const zombie = stage.connect(patient).producer(options);
    const heir = stage.connect(patient).producer(options);
    await stage.drive(zombie.send({ id: 0 }));
    for (let id = 1; id < 60; id += 1) zombie.append({ id });
    const ended = zombie.flush().then(
      () => undefined,
      (error: unknown) => error as AppendFailure,
    );
    await stage.pass(random.below(1_500));
    for (let id = 100; id < 120; id += 1) heir.append({ id });
    await stage.drive(heir.flush());
    const failure = await stage.drive(ended);
    await stage.pass(5_000);
    const ids = ((await stage.stored()) as Record[]).map(({ id }) => id);
    await stage.close();
    const zombies = ids.filter((id) => id < 100);
    const heirs = ids.filter((id) => id >= 100);
    const where = `seed ${String(seed)}`;
    // Each once and in order.
    expect(zombies, where).toEqual(zombies.map((_, at) => at));
    expect(heirs, where).toEqual(Array.from({ length: 20 }, (_, at) => 100 + at));
    if (failure === undefined) {
      expect(zombies.length, where).toBe(60);
      continue;
    }
    fenced += 1;
    expect(failure.code, where).toBe("producer_fenced");
    expect(ids, where).toEqual([...zombies, ...heirs]);
    const first = 60 - failure.unconfirmed.length;
    expect(zombies.length, where).toBeGreaterThanOrEqual(first);
    for (const [at, { outcome }] of failure.unconfirmed.entries()) {
      if (outcome === "not_stored") expect(zombies[first + at], where).toBeUndefined();
    }
  }
  expect(fenced).toBeGreaterThan(30);
});

test("in 300 storms every plain append tells the truth, and those that are stored keep their order", async () => {
  const seen = { stored: 0, not_stored: 0, unknown: 0, tail_moved: 0, body_too_large: 0 };
  for (let seed = 1; seed <= 300; seed += 1) {
    const random = createSeededRandom(seed);
    const stage = openWriteStage({ seed, server: { bodyBytesMax: 400 } });
    await stage.direct("PUT", { "content-type": "application/json" });
    stage.fate = badNetwork(random, 2 + random.below(8), false);
    const totalMs = random.below(3) === 0 ? 1_000 : 3_600_000;
    const stream = stage.connect({ retry: { totalMs }, timeoutMs: 2_000 });
    let tail = "";
    const calls: Promise<AppendFailure | undefined>[] = [];
    for (let id = 0; id < 60; id += 1) {
      const isLarge = random.below(20) === 0;
      const record = { id, fill: "x".repeat(isLarge ? 500 : random.below(60)) };
      const options = random.below(6) === 0 && tail !== "" ? { ifMatch: tail } : {};
      const call = stream.append(record, options).then(
        ({ offset }) => {
          tail = offset ?? tail;
          return undefined;
        },
        (error: unknown) => error as AppendFailure,
      );
      calls.push(call);
      if (random.below(5) === 0) await stage.pass(random.below(200));
    }
    const failures = await stage.drive(Promise.all(calls));
    await stage.pass(8_000);
    const ids = ((await stage.stored()) as Record[]).map(({ id }) => id);
    await stage.close();
    const where = `seed ${String(seed)}`;
    expect(new Set(ids).size, where).toBe(ids.length);
    const confirmed = failures.flatMap((failure, id) => (failure === undefined ? [id] : []));
    // What was confirmed is there, in the order of the calls.
    expect(
      ids.filter((id) => failures[id] === undefined),
      where,
    ).toEqual(confirmed);
    seen.stored += confirmed.length;
    for (const [id, failure] of failures.entries()) {
      if (failure === undefined) continue;
      const { outcome = "unknown" } = failure.unconfirmed[0] ?? {};
      seen[outcome] += 1;
      if (failure.code === "tail_moved" || failure.code === "body_too_large")
        seen[failure.code] += 1;
      if (outcome === "not_stored") expect(ids, where).not.toContain(id);
    }
  }
  expect(Math.min(...Object.values(seen))).toBeGreaterThan(20);
});
