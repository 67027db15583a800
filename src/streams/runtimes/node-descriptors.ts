/** Computes how many sockets a process can hold and still open files. */

import { readFileSync } from "node:fs";
import { LIMITS } from "../../protocol/all-limits.ts";

/** Descriptors for old segments that are read (64), webhooks (64), the runtime, and the journal's own files. */
const DESCRIPTORS_KEPT = 192;

/**
 * Returns how many connections leave enough descriptors for the journal: without one for its next file, writes stop.
 */
export function connectionsFor(descriptors: number): number {
  const left = Math.max(descriptors - DESCRIPTORS_KEPT, Math.floor(descriptors / 4));
  return Math.min(LIMITS.connectionsMax, left);
}

/** Returns the limit of open files of this process. */
export function descriptorsMax(): number {
  try {
    const limits = readFileSync("/proc/self/limits", "utf8");
    return Number(/^Max open files\s+(\d+)/m.exec(limits)?.[1] ?? Infinity);
  } catch {
    return Infinity; // Only Linux shows it. Elsewhere only the limit of connections holds.
  }
}
