/** The part of a stream's life that tells one run of a server from all others. */

import type { RunId } from "../core/types.ts";
import type { Random } from "../../base/random.ts";

/** 48 random bits. The high bit is always set, so that every run takes the same room on disk. */
export function drawRun(random: Random): RunId {
  return (2 ** 51 + Number.parseInt(random.id().slice(0, 12), 16)) as RunId;
}
