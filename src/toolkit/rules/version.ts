/**
 * Set with an expected version: whether a write comes in time, has come before, or comes too late.
 *
 *   VN1  a write is applied if the version is the expected one, and then makes the next one: of two that expect the same, one is;
 *   VN2  a write that was applied is told so when it comes again, and is not applied twice;
 *   VN3  a write that was not applied is told of a conflict, and never that it was applied;
 *   VN4  what is too long ago to be told apart is neither: it is said to be forgotten.
 *
 * Pure.
 */

/** What is known of a thing: its version, and who wrote the last versions, newest first. */
export interface Versions {
  /** 0: it does not exist yet. */
  readonly version: number;
  readonly ids: readonly string[];
}

/** A write: unique by its id, and the same one when it is repeated. */
export interface VersionedWrite {
  readonly expected: number;
  readonly id: string;
}

/** `version`: the one that the write has made; of a conflict and of what is forgotten, the one that is there now. */
export type VersionDecision =
  | { readonly kind: "applied"; readonly version: number }
  | { readonly kind: "repeated"; readonly version: number }
  | { readonly kind: "conflict"; readonly version: number }
  | { readonly kind: "forgotten"; readonly version: number };

/** Writes that are remembered of each thing: more than anybody repeats a write behind others. */
export const WRITES_KEPT = 64;

export const NO_VERSIONS: Versions = { version: 0, ids: [] };

export function decideVersion(
  { version, ids }: Versions,
  { expected, id }: VersionedWrite,
): VersionDecision {
  if (expected === version) return { kind: "applied", version: version + 1 };
  // Nobody can have seen a version that was never there.
  if (expected > version) return { kind: "conflict", version };
  const made = expected + 1;
  const writer = ids[version - made];
  if (writer === undefined) return { kind: "forgotten", version };
  return writer === id ? { kind: "repeated", version: made } : { kind: "conflict", version };
}

/** After a write that was applied. */
export function applyVersion({ version, ids }: Versions, { id }: VersionedWrite): Versions {
  return { version: version + 1, ids: [id, ...ids].slice(0, WRITES_KEPT) };
}
