/** The system calls of one sound run of the script: where faults can be put. */

import { readdirSync } from "node:fs";
import { join } from "node:path";
import { inDirectory, startServer } from "./processes.ts";
import { runScript, SCRIPT, SCRIPT_JOURNAL } from "./script.ts";
import { callsIn, type Occurrence, record } from "./strace.ts";

export interface RecordedScript {
  readonly calls: readonly Occurrence[];
  /** Names of the files at the end. */
  readonly files: readonly string[];
}

export function recordScript(): Promise<RecordedScript> {
  return inDirectory(async (dir) => {
    const log = join(dir, "strace.log");
    const data = join(dir, "data");
    const server = await startServer({ dir: data, journal: SCRIPT_JOURNAL, ...record(log) });
    const { acked } = await runScript(server.url, () => server.maintain());
    await server.kill();
    if (acked !== SCRIPT.length) throw new Error(`the script stops at step ${acked} by itself`);
    return { calls: callsIn(log, data), files: readdirSync(data) };
  });
}

/** An even choice of about `count`. */
export function choose(calls: readonly Occurrence[], count: number): readonly Occurrence[] {
  const step = Math.max(1, calls.length / count);
  return calls.filter((_, index) => Math.floor(index / step) !== Math.floor((index - 1) / step));
}
