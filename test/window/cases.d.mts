import type { LogPosition } from "../../src/toolkit/rules/window.ts";
import type * as api from "../../src/toolkit/window.ts";

/** What a case can do: it moves the time, and breaks what the store does. */
export interface CaseWorld {
  /** All ids that the case writes. */
  readonly ids: Set<string>;
  /** What was acknowledged, by id. */
  readonly acks: Map<string, LogPosition>;
  nowMs: number;
}

export interface WindowCase {
  readonly name: string;
  run(world: CaseWorld): Promise<void>;
}

export const cases: readonly WindowCase[];

/** Makes a world over a store. `tell` gets each acknowledged write. */
export function createWorld(
  api: Pick<typeof import("../../src/toolkit/window.ts"), "objectLog" | "openWindow">,
  objects: api.WindowObjects,
  tell?: (line: string) => void,
): CaseWorld;

/**
 * Checks a store after a case, or after a part of it: takes the log over, writes all ids again, and throws unless each is in the
 * log exactly once, at the position that was told.
 */
export function verify(world: CaseWorld): Promise<{ entries: number }>;
