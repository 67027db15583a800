/**
 * Chaos by proxy: writers of the client, a real server, and between them a proxy that does everything to requests
 * and answers that a network does. What the client said is compared with what the stream holds.
 *
 * What a run finds is a list of sentences; an empty one means that the client told the truth.
 */

import {
  AppendFailure,
  type ClientOptions,
  connect,
  HapaxError,
  type Stream,
} from "../../src/client/client.ts";
import { createSeededRandom, type SeededRandom } from "../../src/testing/seeded-random.ts";
import type { FaultCounts } from "../../src/testing/fault-proxy.ts";
import { type FaultProxy, openFaultProxy } from "../../src/testing/testing.ts";
import type { FaultProxyOptions } from "../../src/testing/fault-proxy.ts";

/** Where the server is. */
export interface ChaosPlace {
  /** Asked before each request that the proxy passes on. */
  readonly server: () => string | Promise<string>;
  /** An address at which nothing goes wrong. */
  readonly direct: string;
}

export interface ChaosReport {
  readonly kind: "producer" | "plain" | "keyed";
  readonly seed: number;
  readonly stored: number;
  readonly requests: number;
  readonly counts: FaultCounts;
  /** Everything was confirmed. */
  readonly isFlushed: boolean;
  readonly unknown: number;
  readonly notStored: number;
  readonly code: string | undefined;
  readonly problems: readonly string[];
}

interface Entry {
  readonly id: number;
  readonly fill: string;
}

const APPENDS = 200;
const PATIENT = { pauseMs: 5, pauseMsMax: 50 };
const HARMS = [
  "dropRequests",
  "dropAnswers",
  "cutRequests",
  "cutAnswers",
  "refuseRequests",
  "refuseAnswers",
  "silenceRequests",
  "silenceAnswers",
] as const;

/** A seed's own mixture: which harms, how many of them, and how patient the client is. */
interface Weather {
  readonly faults: Omit<FaultProxyOptions, "seed">;
  readonly client: ClientOptions;
}

function weatherOf(random: SeededRandom): Weather {
  // Only with a long time limit does the client ask the server to wait for what was overtaken.
  const isPatient = random.below(5) === 0;
  const harms = isPatient ? HARMS.slice(0, 6) : HARMS;
  const weights = harms.map((harm) => random.unit() * (harm.startsWith("silence") ? 0.15 : 1));
  const sum = weights.reduce((total, weight) => total + weight, 0);
  const all = 0.02 + random.unit() * 0.4;
  const shares = harms.map((harm, at) => [harm, ((weights[at] ?? 0) / sum) * all]);
  const totalMs = random.below(4) === 0 ? 10 + random.below(150) : 60_000;
  return {
    faults: {
      ...Object.fromEntries(shares),
      delayRequests: random.unit() * 0.3,
      delayAnswers: random.unit() * 0.3,
      reorderRequests: random.unit() * 0.3,
      duplicateRequests: random.unit() * 0.3,
      delayMsMax: 1 + random.below(12),
    },
    client: {
      retry: { pauseMs: 1, pauseMsMax: 15, totalMs },
      timeoutMs: isPatient ? 2_500 : 400 + random.below(200),
      ...(random.below(2) === 0 ? { contentType: "application/json" } : {}),
    },
  };
}

interface Run {
  readonly random: SeededRandom;
  readonly stream: Stream;
  readonly proxy: FaultProxy;
  /** Another handle of the same stream, as of another process. */
  readonly again: (options?: ClientOptions) => Stream;
  readonly stored: () => Promise<Entry[]>;
  readonly problems: string[];
}

type Outcome = Pick<ChaosReport, "isFlushed" | "unknown" | "notStored" | "code">;

/** One seed: a stream of its own, a proxy of its own. */
async function chaos(
  place: ChaosPlace,
  kind: ChaosReport["kind"],
  seed: number,
  write: (run: Run) => Promise<Outcome>,
): Promise<ChaosReport> {
  const random = createSeededRandom(seed);
  const weather = weatherOf(random);
  const path = `/v1/stream/chaos/${kind}/${String(seed)}`;
  const untroubled = connect(place.direct + path, { retry: PATIENT });
  await untroubled.create();
  const proxy = await openFaultProxy(place.server, { seed, ...weather.faults });
  const again = (client = weather.client): Stream => connect(proxy.url + path, client);
  const problems: string[] = [];
  const stored = async (): Promise<Entry[]> => {
    const entries: Entry[] = [];
    for await (const { value } of untroubled.read<Entry>()) entries.push(value);
    return entries;
  };
  try {
    const outcome = await write({ random, stream: again(), proxy, again, stored, problems });
    const { requests, counts } = proxy;
    const count = (await stored()).length;
    return { kind, seed, stored: count, requests, counts, ...outcome, problems };
  } finally {
    await proxy.close();
  }
}

function entriesOf(random: SeededRandom): readonly Entry[] {
  return Array.from({ length: APPENDS }, (_, id) => ({ id, fill: "x".repeat(random.below(60)) }));
}

/** 200 appends of a producer: a beginning of them is stored, and every `flush()` is truthful. */
export function producerChaos(place: ChaosPlace, seed: number): Promise<ChaosReport> {
  return chaos(place, "producer", seed, async (run) => {
    const { random, stream, proxy, problems } = run;
    const sequences: number[] = [];
    const producer = stream.producer({
      ...(random.below(2) === 0 ? { id: "writer" } : {}),
      inFlightMax: random.below(5) === 0 ? 50 : 1 + random.below(8),
      batchRecordsMax: 3 + random.below(20),
      lingerMs: random.below(3),
      onBatchAck: ({ sequence }) => sequences.push(sequence),
    });
    const given: Entry[] = [];
    const confirmed: number[] = [];
    const flushes: Promise<void>[] = [];
    for (const entry of entriesOf(random)) {
      const before = producer.pendingCount;
      producer.send(entry).then(
        () => confirmed.push(entry.id),
        () => undefined,
      );
      if (producer.pendingCount === before) break; // A producer that is over takes nothing.
      given.push(entry);
      if (random.below(60) === 0) flushes.push(truthOfFlush(run, producer.flush(), given.length));
      if (random.below(20) === 0) await new Promise((resolve) => setImmediate(resolve));
    }
    const failure = await failureIn(producer.flush(), problems);
    await Promise.all(flushes);
    await proxy.drain();
    checkProducer(given, await run.stored(), confirmed, failure, problems);
    if (sequences.some((sequence, at) => at > 0 && sequence <= (sequences[at - 1] ?? 0))) {
      problems.push(`batches were acknowledged out of order: ${sequences.join()}`);
    }
    return outcomeOf(failure === undefined ? [] : [failure]);
  });
}

/** A flush in the middle: if it resolves, what was given before is stored at that moment. */
async function truthOfFlush(run: Run, flush: Promise<void>, count: number): Promise<void> {
  const failure = await failureIn(flush, run.problems);
  if (failure !== undefined) return; // The last flush tells the same, and is looked at.
  const stored = (await run.stored()).length;
  if (stored < count) {
    run.problems.push(`flush resolved with ${String(stored)} of ${String(count)} stored`);
  }
}

async function failureIn(
  promise: Promise<unknown>,
  problems: string[],
): Promise<AppendFailure | undefined> {
  try {
    await promise;
  } catch (error) {
    if (error instanceof AppendFailure) return error;
    problems.push(`not an AppendFailure: ${String(error)}`);
  }
  return undefined;
}

/** Word by word. */
function checkProducer(
  given: readonly Entry[],
  stored: readonly Entry[],
  confirmed: readonly number[],
  failure: AppendFailure | undefined,
  problems: string[],
): void {
  const ids = stored.map(({ id }) => id);
  if (stored.length > given.length || ids.some((id, at) => id !== at)) {
    problems.push(`stored is no beginning of what was given: ${ids.join()}`);
  }
  const lost = confirmed.filter((id) => stored[id]?.fill !== given[id]?.fill);
  if (lost.length > 0) problems.push(`confirmed and not stored: ${lost.join()}`);
  if (failure === undefined) {
    if (stored.length !== given.length || confirmed.length !== given.length) {
      problems.push(`flush resolved: ${String(stored.length)} of ${String(given.length)} stored`);
    }
    return;
  }
  const { unconfirmed } = failure;
  const first = given.length - unconfirmed.length;
  if (unconfirmed.length === 0) problems.push("flush rejected and hands nothing back");
  const handed = unconfirmed.map(({ data }) => data);
  if (JSON.stringify(handed) !== JSON.stringify(given.slice(first))) {
    problems.push("flush hands back other data, or in another order");
  }
  if (stored.length < first)
    problems.push(`not handed back, and not stored: from ${String(first)}`);
  for (const [at, { outcome }] of unconfirmed.entries()) {
    if (outcome === "not_stored" && stored[first + at] !== undefined) {
      problems.push(`told as not stored, and stored: ${String(first + at)}`);
    }
  }
}

function outcomeOf(failures: readonly AppendFailure[]): Outcome {
  const all = failures.flatMap(({ unconfirmed }) => unconfirmed);
  const unknown = all.filter(({ outcome }) => outcome === "unknown").length;
  const code = failures[0]?.code;
  return { isFlushed: failures.length === 0, unknown, notStored: all.length - unknown, code };
}

/** 200 plain appends: each tells the truth, and those that are confirmed keep the order of the calls. */
export function plainChaos(place: ChaosPlace, seed: number): Promise<ChaosReport> {
  return chaos(place, "plain", seed, async ({ random, stream, proxy, stored, problems }) => {
    const calls: Promise<AppendFailure | undefined>[] = [];
    for (const entry of entriesOf(random)) {
      const call = failureIn(stream.append(entry), problems);
      calls.push(call);
      if (random.below(12) === 0) await call;
    }
    const failures = await Promise.all(calls);
    await proxy.drain();
    const ids = (await stored()).map(({ id }) => id);
    checkEach(failures, ids, problems);
    const ordered = ids.filter((id) => failures[id] === undefined);
    if (ordered.some((id, at) => at > 0 && id <= (ordered[at - 1] ?? 0))) {
      problems.push(`confirmed appends are out of order: ${ids.join()}`);
    }
    return outcomeOf(failures.filter((failure) => failure !== undefined));
  });
}

/** Each id once at most; the confirmed ones are there, those told as not stored are not. */
function checkEach(
  failures: readonly (AppendFailure | undefined)[],
  ids: readonly number[],
  problems: string[],
): void {
  const count = new Map<number, number>();
  for (const id of ids) count.set(id, (count.get(id) ?? 0) + 1);
  for (const [id, failure] of failures.entries()) {
    const times = count.get(id) ?? 0;
    const outcome = failure === undefined ? "stored" : failure.unconfirmed[0]?.outcome;
    if (times > 1) problems.push(`${String(id)} is stored ${String(times)} times`);
    if (outcome === "stored" && times === 0) problems.push(`${String(id)} is confirmed and lost`);
    if (outcome === "not_stored" && times > 0) {
      problems.push(`${String(id)} is reported as not stored, and stored`);
    }
  }
}

/** 200 keyed appends, a quarter of them called by two handles at once: each key is stored once. */
export function keyedChaos(place: ChaosPlace, seed: number): Promise<ChaosReport> {
  return chaos(place, "keyed", seed, async ({ random, stream, proxy, again, stored, problems }) => {
    const other = again();
    const entries = entriesOf(random);
    const isDouble = entries.map(() => random.below(4) === 0);
    const failures: (AppendFailure | undefined)[] = [];
    const call = (one: Stream, entry: Entry): Promise<AppendFailure | undefined> =>
      failureIn(withOutcome(one.append(entry, { key: `key ${String(entry.id)}` })), problems);
    const waiting = [...entries];
    const lane = async (): Promise<void> => {
      for (let entry = waiting.shift(); entry !== undefined; entry = waiting.shift()) {
        const both = isDouble[entry.id] === true ? call(other, entry) : undefined;
        const [first, second] = await Promise.all([call(stream, entry), both]);
        // One of two that is confirmed is enough; what the other says of itself does not bind its twin.
        failures[entry.id] = both === undefined ? first : first && second;
      }
    };
    await Promise.all(Array.from({ length: 10 }, lane));
    await proxy.drain();
    const ids = (await stored()).map(({ id }) => id);
    const single = failures.map((failure, id) =>
      failure !== undefined && isDouble[id] === true ? asUnknown(failure) : failure,
    );
    checkEach(single, ids, problems);
    // Every append with an unknown outcome is repeated: then every key is stored, and still once.
    proxy.heal();
    const healthy = again({ retry: PATIENT });
    for (const entry of entries) {
      if (failures[entry.id] !== undefined) await call(healthy, entry);
    }
    const after = (await stored()).map(({ id }) => id).toSorted((a, b) => a - b);
    if (after.some((id, at) => id !== at) || after.length !== APPENDS) {
      problems.push(`the keys are not stored once each: ${after.join()}`);
    }
    return outcomeOf(failures.filter((failure) => failure !== undefined));
  });
}

/** Keyed appends fail before they are sent, too, when the client cannot find out where it is. */
async function withOutcome(append: Promise<unknown>): Promise<void> {
  try {
    await append;
  } catch (error) {
    if (!(error instanceof HapaxError) || error instanceof AppendFailure) throw error;
    // `unsupported` would be a lie about the server.
    if (error.code === "unsupported") throw error;
    const unknown = { data: undefined, outcome: "unknown", isCause: true } as const;
    throw new AppendFailure(error.code, error.message, [unknown], { status: error.status });
  }
}

function asUnknown(failure: AppendFailure): AppendFailure {
  const unconfirmed = failure.unconfirmed.map((one) => ({ ...one, outcome: "unknown" as const }));
  const { code, message, status } = failure;
  return new AppendFailure(code, message, unconfirmed, { status });
}
