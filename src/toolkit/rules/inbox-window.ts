/**
 * Whether a message that an inbox does not know is new, or may have been forgotten.
 *
 *   IW1  a message that is older than what the inbox remembers is never taken for new: it may have been handled before.
 *
 * Pure.
 */

/** What is known of a message that is not in the inbox. `headroom` is what is left of the window: from 1 down to 0. */
export type MessageAge =
  | { readonly kind: "new"; readonly headroom: number | undefined }
  | { readonly kind: "expired"; readonly headroom: 0 };

/** `sentAtMs` by the sender's clock; undefined if it does not say. */
export function decideMessageAge(
  sentAtMs: number | undefined,
  nowMs: number,
  retainMs: number,
): MessageAge {
  if (sentAtMs === undefined) return { kind: "new", headroom: undefined };
  const ageMs = nowMs - sentAtMs;
  if (ageMs >= retainMs) return { kind: "expired", headroom: 0 };
  // A clock that is ahead of ours makes messages of the future: they are as new as can be.
  return { kind: "new", headroom: Math.min(1, 1 - ageMs / retainMs) };
}
