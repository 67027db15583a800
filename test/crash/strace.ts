/**
 * Faults at an exact system call, by strace. It counts calls for each thread, so the server gets one thread for
 * its files; `-D` leaves the server as our own child, which can be killed and waited for.
 */

import { readFileSync } from "node:fs";
import { install } from "../kits/debian-programs.ts";
import { runTool, type StartOptions } from "./processes.ts";

export const ONE_THREAD = { UV_THREADPOOL_SIZE: "1" };

/** The calls by which the journal changes the disk. */
export const CALLS = ["pwrite64", "pwritev", "fdatasync", "fsync", "rename", "unlink"] as const;
export type Call = (typeof CALLS)[number] | "openat";

/** Why there is no strace here, if so; on a Debian where we may, it is installed first. */
export function straceMissing(): string | undefined {
  if (process.platform !== "linux") return `strace is not made for ${process.platform}`;
  const works = (): boolean => runTool("strace", ["-qq", "-o", "/dev/null", "true"]);
  if (works()) return undefined;
  install("strace");
  return works() ? undefined : "strace is missing or may not trace here";
}

/** `what` is what strace does at the k-th call: `signal=SIGKILL`, `error=EIO`, `delay_enter=500000`. */
export function inject(call: Call, what: string): Pick<StartOptions, "wrapper" | "env"> {
  const trace = ["-e", `trace=${call}`, "-e", `inject=${call}:${what}`];
  return { wrapper: ["strace", "-D", "-f", "-qq", "-o", "/dev/null", ...trace], env: ONE_THREAD };
}

/** Writes all calls of interest to a file; see `callsIn`. */
export function record(log: string): Pick<StartOptions, "wrapper" | "env"> {
  const trace = ["-e", `trace=${CALLS.join(",")},openat`];
  return { wrapper: ["strace", "-D", "-f", "-qq", "-o", log, ...trace], env: ONE_THREAD };
}

export interface Occurrence {
  readonly call: Call;
  /** The how many-th call of its kind in its thread: what strace wants for `when=`. */
  readonly when: number;
  readonly line: string;
}

/** The calls in the order of the log; of `openat` only those that are about the directory. */
export function callsIn(log: string, dir: string): readonly Occurrence[] {
  const counts = new Map<string, number>();
  const seen = new Set<string>();
  const found: Occurrence[] = [];
  for (const line of readFileSync(log, "utf8").split("\n")) {
    const match = /^(\d+)\s+(\w+)\(/.exec(line);
    if (match === null) continue;
    const [, thread = "", name = ""] = match;
    const call = [...CALLS, "openat" as const].find((known) => known === name);
    if (call === undefined) continue;
    const when = (counts.get(`${thread} ${call}`) ?? 0) + 1;
    counts.set(`${thread} ${call}`, when);
    if (call === "openat" && !line.includes(dir)) continue;
    // Two threads may both have a k-th call: `when=k` fires at the first of them.
    if (seen.has(`${call} ${when}`)) continue;
    seen.add(`${call} ${when}`);
    found.push({ call, when, line });
  }
  return found;
}
