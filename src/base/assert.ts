/** Invariants that are checked while the program runs. */

/** The error of a bug in Hapax. The label names the invariant that broke. */
export class BrokenInvariant extends Error {
  override readonly name = "BrokenInvariant";
}

/** Throws if the condition does not hold. On a hot path the label is a constant: it is made before the call. */
export function assert(condition: boolean, label: string): asserts condition {
  if (!condition) throw new BrokenInvariant(label);
}
