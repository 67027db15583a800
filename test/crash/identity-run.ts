/**
 * A server that is killed every second while writers of every identity go on, and three of ten answers that it
 * gives are lost.
 */

import { openFaultProxy } from "../../src/testing/fault-proxy.ts";
import { createSeededRandom } from "../../src/testing/seeded-random.ts";
import type { Offset } from "../../src/streams/core/types.ts";
import { formatOffset } from "../../src/protocol/values.ts";
import { call } from "../protocol/raw-http.ts";
import {
  KeyWriter,
  type Place,
  PipelinedWriter,
  readRecords,
  TailWriter,
  type Writer,
  type WriterCounts,
} from "./identity-writers.ts";
import type { JournalOptions } from "./processes.ts";
import { Site } from "./site.ts";

export interface IdentityOptions {
  readonly dir: string;
  readonly seed: number;
  readonly cycles: number;
  readonly journal?: JournalOptions;
  /** How long a server lives. Default 1000. */
  readonly lifeMs?: number;
}

export interface IdentityReport extends WriterCounts {
  readonly seed: number;
  readonly kills: number;
  readonly stored: number;
  readonly problems: readonly string[];
}

const SMALL: JournalOptions = { segmentBytes: 256 * 1024, snapshotBytes: 192 * 1024 };

function writersOf(place: Place, seed: number): readonly Writer[] {
  const randomOf = (index: number) => createSeededRandom(seed * 31 + index);
  const [sessions, keys, tails] = ["sessions", "keys", "tails"].map((one) => `/v1/stream/${one}`);
  return [
    new PipelinedWriter(place, "eager", sessions ?? "", randomOf(0), false),
    new PipelinedWriter(place, "patient", sessions ?? "", randomOf(1), true),
    new PipelinedWriter(place, "calm", sessions ?? "", randomOf(2), true),
    new KeyWriter(place, "red", keys ?? "", randomOf(3)),
    new KeyWriter(place, "blue", keys ?? "", randomOf(4)),
    new TailWriter(place, "left", tails ?? "", randomOf(5)),
    new TailWriter(place, "right", tails ?? "", randomOf(6)),
  ];
}

export async function identityRun(options: IdentityOptions): Promise<IdentityReport> {
  const { dir, seed, cycles, journal = SMALL, lifeMs = 1000 } = options;
  const site = new Site({ dir, journal });
  let server = await site.start();
  const proxy = await openFaultProxy(() => site.url(), { seed, dropAnswers: 0.3 });
  const writers = writersOf({ site, door: proxy.url }, seed);
  const paths = [...new Set(writers.map(({ path }) => path))];
  for (const path of paths) {
    await call("PUT", server.url, path, { headers: { "content-type": "text/plain" } });
  }
  const problems = (): string[] => writers.flatMap((writer) => writer.problems);
  const work = Promise.all(writers.map((writer) => writer.run()));
  work.catch(() => undefined); // Awaited below, after the kills.
  let kills = 0;
  for (; kills < cycles && problems().length === 0; kills += 1) {
    await new Promise((resolve) => setTimeout(resolve, lifeMs));
    await site.kill(server);
    server = await site.start();
  }
  for (const writer of writers) writer.stop();
  await work;
  await proxy.close();
  let stored = 0;
  for (const path of paths) {
    const formatEnd = (end: number): string => formatOffset(end as Offset);
    const records = await readRecords(server.url, path, formatEnd);
    stored += records.length;
    for (const writer of writers.filter((one) => one.path === path)) {
      writer.check(records.filter(({ text }) => text.startsWith(`${writer.id}.`)));
    }
  }
  await site.kill(server);
  const sum = (name: keyof WriterCounts): number =>
    writers.reduce((total, { counts }) => total + counts[name], 0);
  return {
    seed,
    kills,
    acked: sum("acked"),
    recovered: sum("recovered"),
    conflicts: sum("conflicts"),
    restarts: sum("restarts"),
    stored,
    problems: problems(),
  };
}
