/**
 * Decides a write with an expected version: it is in time, was applied before, or is too late.
 *
 *   - a write is applied if the version is the expected one, and makes the next one: of two with the same, one is applied;
 *   - a repetition of an applied write gets `duplicate`, and is not applied twice;
 *   - a write that was not applied gets `conflict`, and never `duplicate`;
 *   - a write that is too long ago to decide gets neither of them: it gets `forgotten`.
 *
 * Pure.
 */

/** The version of a thing, and the ids of the writes that made its last versions, newest first. */
export interface Versions {
  /** 0: the thing does not exist yet. */
  readonly version: number;
  readonly ids: readonly string[];
}

/** A write of a thing. */
export interface VersionedWrite {
  /** The version that the writer has read; 0: the thing must not exist yet. */
  readonly expected: number;
  /** Unique for every write. Use the same id when you repeat a write. */
  readonly id: string;
}

/** The result of a versioned write. `version`: the one that the write has made; the present one if it made none. */
export interface VersionDecision {
  readonly kind: "applied" | "duplicate" | "conflict" | "forgotten";
  readonly version: number;
}

/** How many writes of each thing are remembered. A write is hardly ever repeated after so many others. */
export const WRITES_KEPT = 64;

export const NO_VERSIONS: Versions = { version: 0, ids: [] };

export function decideVersion(
  { version, ids }: Versions,
  { expected, id }: VersionedWrite,
): VersionDecision {
  if (expected === version) return { kind: "applied", version: version + 1 };
  // No writer can have read a version that never existed.
  if (expected > version) return { kind: "conflict", version };
  const made = expected + 1;
  const writer = ids[version - made];
  if (writer === undefined) return { kind: "forgotten", version };
  return writer === id ? { kind: "duplicate", version: made } : { kind: "conflict", version };
}

/** Returns the versions after a write that was applied. */
export function applyVersion({ version, ids }: Versions, { id }: VersionedWrite): Versions {
  return { version: version + 1, ids: [id, ...ids].slice(0, WRITES_KEPT) };
}
