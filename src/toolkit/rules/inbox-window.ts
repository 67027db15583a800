/**
 * Decides whether a message that an inbox does not know is new, or may have been forgotten.
 *
 *   - a message older than the retention of the inbox never counts as new: it may have been handled before.
 *
 * Pure.
 */

/** The age of a message that is not in the inbox. `headroom` is the rest of the window: from 1 down to 0. */
export type MessageAge =
  | { readonly kind: "new"; readonly headroom: number | undefined }
  | { readonly kind: "expired"; readonly headroom: 0 };

/** Decides by `sentAtMs`, a time of the sender's clock; undefined if the message has none. */
export function decideMessageAge(
  sentAtMs: number | undefined,
  nowMs: number,
  retainMs: number,
): MessageAge {
  if (sentAtMs === undefined) return { kind: "new", headroom: undefined };
  const ageMs = nowMs - sentAtMs;
  if (ageMs >= retainMs) return { kind: "expired", headroom: 0 };
  // If the sender's clock is ahead of ours, the message is from the future: it has the whole window left.
  return { kind: "new", headroom: Math.min(1, 1 - ageMs / retainMs) };
}
