/**
 * Load, kills and the count: producers and readers run while the server is killed at moments that a seed
 * chooses, and at the end everything that was answered is compared with what is stored.
 */

import { call } from "../protocol/raw-http.ts";
import { createSeededRandom, type SeededRandom } from "../../src/testing/seeded-random.ts";
import { compare, Producer, readAll, Reader } from "./load.ts";
import type { JournalOptions, ServerProcess } from "./processes.ts";
import { fileEvent, leftovers, Site } from "./site.ts";

/**
 * When the server is killed: a random time after it was ready or after its first answer, once more while it
 * recovers, or when its files show what it is doing.
 */
export type Moment = "ready" | "load" | "recovery" | "snapshot" | "spare" | "roll";

export interface CrashOptions {
  readonly dir: string;
  readonly seed: number;
  readonly cycles: number;
  readonly moments: readonly Moment[];
  readonly journal?: JournalOptions;
  readonly producers?: number;
  readonly streams?: number;
  readonly recordBytes?: number;
  /** Longest random life of a server. */
  readonly lifeMsMax?: number;
  /** Streams come and go meanwhile, so that there is something to compact. */
  readonly churns?: boolean;
  readonly readers?: readonly ("sse" | "catch-up")[];
}

export interface CrashReport {
  readonly seed: number;
  readonly kills: number;
  /** Kills that left a snapshot or a new segment half written. */
  readonly inSnapshot: number;
  readonly inSpare: number;
  readonly acked: number;
  /** Answers that were lost although the append was stored. */
  readonly recovered: number;
  readonly stored: number;
  readonly seenByReaders: number;
  readonly problems: readonly string[];
}

const FILES: Partial<Record<Moment, RegExp>> = {
  snapshot: /^snapshot-/,
  spare: /^spare-/,
  roll: /^journal-/,
};

export async function crashRun(options: CrashOptions): Promise<CrashReport> {
  const { dir, seed, journal, producers = 8, streams = 4, recordBytes = 100 } = options;
  const random = createSeededRandom(seed);
  const site = new Site(journal === undefined ? { dir } : { dir, journal });
  let server = await site.start();
  const paths = Array.from({ length: streams }, (_, index) => `/v1/stream/crash-${index}`);
  for (const path of paths) await create(site, path);
  // Half of them wait for each answer, half have five unanswered appends.
  const writers = Array.from({ length: producers }, (_, index) => {
    const path = paths[index % streams] ?? "";
    const width = index < producers / 2 ? 1 : 5;
    return { width, producer: new Producer(site, `p${index}`, path, recordBytes, width) };
  });
  const readers = paths.flatMap((path) =>
    (options.readers ?? ["sse", "catch-up"]).map((kind) => new Reader(site, path, kind)),
  );
  const churn = { isStopped: false };
  const running = [
    ...writers.map(({ producer, width }) => producer.run(width)),
    ...readers.map((reader) => reader.run()),
    ...(options.churns === true ? [runChurn(site, churn)] : []),
  ];
  const work = Promise.all(running);
  work.catch(() => undefined); // Awaited below, after the kills.
  const counts = { inSnapshot: 0, inSpare: 0 };
  const firstAck = (): Promise<void> =>
    new Promise((resolve) => {
      for (const { producer } of writers) producer.onAck = resolve;
    });
  const problemsNow = (): string[] => [
    ...writers.flatMap(({ producer }) => producer.violations),
    ...readers.flatMap((reader) => reader.violations),
  ];
  let kills = 0;
  for (; kills < options.cycles && problemsNow().length === 0; kills += 1) {
    server = await killOnce(site, server, random, { ...options, firstAck }, counts);
  }
  churn.isStopped = true;
  for (const { producer } of writers) producer.stop();
  await Promise.all(running.slice(0, writers.length));
  const problems = problemsNow();
  let stored = 0;
  for (const path of paths) {
    const records = await readAll(await site.url(), path);
    stored += records.length;
    const own = writers.map(({ producer }) => producer).filter((one) => one.path === path);
    problems.push(...compare(path, records, own));
    for (const reader of readers.filter((one) => one.path === path)) {
      // Who was shown more than there is will never see enough: then there is nothing to wait for.
      if (problems.length === 0) await reader.until(records.length);
      reader.stop();
      const differs = reader.seen.findIndex(
        (seen, at) =>
          seen.producer !== records[at]?.producer || seen.number !== records[at]?.number,
      );
      if (differs !== -1) problems.push(`${path}: a reader saw record ${differs}, and it is gone`);
    }
  }
  await work;
  await site.kill(server);
  const sum = (pick: (producer: Producer) => number): number =>
    writers.reduce((total, { producer }) => total + pick(producer), 0);
  return {
    seed,
    kills,
    ...counts,
    acked: sum((producer) => producer.acked),
    recovered: sum((producer) => producer.recovered),
    stored,
    seenByReaders: readers.reduce((total, reader) => total + reader.seen.length, 0),
    problems,
  };
}

async function killOnce(
  site: Site,
  server: ServerProcess,
  random: SeededRandom,
  options: CrashOptions & { readonly firstAck: () => Promise<void> },
  counts: { inSnapshot: number; inSpare: number },
): Promise<ServerProcess> {
  const { moments, lifeMsMax = 250 } = options;
  const moment = moments[random.below(moments.length)] ?? "ready";
  const delayMs = random.below(lifeMsMax);
  const name = FILES[moment];
  // Who is stuck or has found a violation never answers: the loop looks again after a while.
  if (moment === "load") await Promise.race([options.firstAck(), passed(5000)]);
  if (name === undefined) await passed(delayMs);
  else await fileEvent(site.dir, name, 4 * lifeMsMax);
  await site.kill(server);
  const left = leftovers(site.dir);
  counts.inSnapshot += left.snapshot ? 1 : 0;
  counts.inSpare += left.spare ? 1 : 0;
  if (moment === "recovery") await site.startAndKill(30 + random.below(170));
  return site.start();
}

function passed(delayMs: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, delayMs);
  });
}

async function create(site: Site, path: string): Promise<void> {
  const headers = { "content-type": "application/json" };
  const { status } = await call("PUT", await site.url(), path, { headers });
  if (status !== 201) throw new Error(`${path} could not be created: ${status}`);
}

/** Streams that are created with content and deleted again, so that segments are mostly dead. */
async function runChurn(site: Site, state: { readonly isStopped: boolean }): Promise<void> {
  for (let number = 0; !state.isStopped; number += 1) {
    const path = `/v1/stream/churn-${number}`;
    const headers = { "content-type": "text/plain" };
    const body = `${number} `.repeat(2000);
    for (const method of ["PUT", "DELETE"]) {
      let isDone = false;
      while (!isDone) {
        const url = await site.url();
        const options = method === "PUT" ? { headers, body } : {};
        isDone = await call(method, url, path, options).then(
          () => true,
          () => false,
        );
      }
    }
  }
}
