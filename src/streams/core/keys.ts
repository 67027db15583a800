/**
 * Idempotency keys: they make an append without numbers idempotent, for as long as the window lasts.
 *
 *   KD1  a key that the window has is never stored again: the same content is a replay, other content is refused;
 *   KD2  an entry is forgotten when it is older than the window or, with `evict`, when the window is full: never
 *        before, oldest first, and never before its own append is durable;
 *   KD3  a key that carries its time and is older than the window is refused: the stream cannot know whether it was
 *        stored;
 *   KD4  a refused append leaves the window as it was.
 *
 * PROTOCOL.md §16. Pure: time and the durable tail come in as arguments.
 */

import type { KeyMark, KeyWindow, KeyWindowView } from "../../base/key-window.ts";
import type { Offset, TimeMs } from "./types.ts";

/** The keys of a stream: each has the end offset of its append, and journal time. */
export type StreamKeyWindow = KeyWindow<Offset, TimeMs>;
export type StreamKeyWindowView = KeyWindowView<Offset, TimeMs>;

/** Key settings of one stream, from its creation. The server's defaults replace undefined ones. */
export interface KeyPolicy {
  readonly windowSeconds: number | undefined;
  readonly countMax: number | undefined;
  readonly overflow: KeyOverflow | undefined;
  /** An append without identity uses its content as its key. */
  readonly isFromContent: boolean;
}

/** What happens to a new key when the window is full: it evicts the oldest, or the append is refused. */
export type KeyOverflow = "evict" | "reject";

/** The server's settings, for streams that have none of their own. */
export interface KeyDefaults {
  readonly windowSeconds: number;
  readonly countMax: number;
  readonly overflow: KeyOverflow;
}

export const KEY_DEFAULTS: KeyDefaults = {
  windowSeconds: 86_400,
  countMax: 100_000,
  overflow: "evict",
};

/** A stream's policy and keys. Undefined on a stream: it has no policy, and no key was ever stored. */
export interface StreamKeys {
  readonly policy: KeyPolicy | undefined;
  readonly window: StreamKeyWindowView | undefined;
}

export interface MutableStreamKeys {
  readonly policy: KeyPolicy | undefined;
  window: StreamKeyWindow | undefined;
}

/** The key that one append names. */
export interface KeyClaim {
  readonly mark: KeyMark;
  /** The key is the content. It counts only on streams that ask for that. */
  readonly isContent: boolean;
  /** The time that the key itself carries, if it does. */
  readonly timeMs: number | undefined;
}

/** A stored key, as the journal has it. */
export interface StoredKey {
  readonly mark: KeyMark;
  /** Its number among all keys of the stream, from 0. */
  readonly ordinal: number;
  /** This key evicts the entries below this ordinal. */
  readonly evictTo: number;
}

/** What a decision about a key needs, beside the stream. */
export interface KeyScene {
  readonly defaults: KeyDefaults;
  readonly durableTail: Offset;
  /** The time to compare a key's own time with. Default: the time of the decision. */
  readonly keyMs?: number;
}

export interface Replayed {
  readonly kind: "replayed";
  /** Where the original append ended. */
  readonly end: Offset;
  readonly isClosed: boolean;
  readonly ageMs: number;
  readonly windowMs: number;
}

export type KeyRefusal =
  | { readonly kind: "key_reused" }
  | { readonly kind: "key_expired"; readonly windowMs: number }
  | { readonly kind: "key_window_full"; readonly retryAfterMs: number };

/** Decides whether the key is known. Undefined: it is new. */
export function decideKnownKey(
  keys: StreamKeys | undefined,
  claim: KeyClaim,
  scene: KeyScene,
  isClosed: boolean,
  atMs: TimeMs,
): Replayed | KeyRefusal | undefined {
  const windowMs = windowMsOf(keys?.policy, scene.defaults);
  const window = keys?.window;
  const ordinal = window?.find(claim.mark);
  if (window !== undefined && ordinal !== undefined) {
    const ageMs = atMs - window.timeOf(ordinal);
    if (ageMs < windowMs || window.endOf(ordinal) > scene.durableTail) {
      if (!window.isSameBody(ordinal, claim.mark)) return { kind: "key_reused" };
      return { kind: "replayed", end: window.endOf(ordinal), isClosed, ageMs, windowMs };
    }
  }
  if (claim.timeMs !== undefined && claim.timeMs <= (scene.keyMs ?? atMs) - windowMs) {
    return { kind: "key_expired", windowMs };
  }
  return undefined;
}

/** Returns the record of a new key and what it evicts, or the reason why there is no room for it. */
export function decideNewKey(
  keys: StreamKeys | undefined,
  claim: KeyClaim,
  scene: KeyScene,
  atMs: TimeMs,
): StoredKey | KeyRefusal {
  const { mark } = claim;
  const window = keys?.window;
  if (window === undefined) return { mark, ordinal: 0, evictTo: 0 };
  const { defaults } = scene;
  const windowMs = windowMsOf(keys?.policy, defaults);
  const countMax = keys?.policy?.countMax ?? defaults.countMax;
  const ordinal = window.next;
  const firstKept = firstKeptOf(window, windowMs, scene.durableTail, atMs);
  if (ordinal - firstKept < countMax) return { mark, ordinal, evictTo: firstKept };
  const overflow = keys?.policy?.overflow ?? defaults.overflow;
  const evictTo = ordinal - countMax + 1;
  const isDurable = window.endOf(evictTo - 1) <= scene.durableTail;
  if (overflow === "evict" && isDurable) return { mark, ordinal, evictTo };
  const waitMs = overflow === "evict" ? 0 : window.timeOf(firstKept) + windowMs - atMs;
  return { kind: "key_window_full", retryAfterMs: Math.max(0, waitMs) };
}

/**
 * Returns the first ordinal that the window must keep. An entry that is not durable yet keeps its place, also if the
 * disk is slow.
 */
export function firstKeptOf(
  window: StreamKeyWindowView,
  windowMs: number,
  durableTail: Offset,
  atMs: TimeMs,
): number {
  let first = firstAliveOf(window, windowMs, atMs);
  while (first > window.first && window.endOf(first - 1) > durableTail) first -= 1;
  return first;
}

/** Returns the first entry that is younger than the window. */
export function firstAliveOf(window: StreamKeyWindowView, windowMs: number, atMs: TimeMs): number {
  return window.firstAfter(atMs - windowMs);
}

export function windowMsOf(policy: KeyPolicy | undefined, defaults: KeyDefaults): number {
  return (policy?.windowSeconds ?? defaults.windowSeconds) * 1000;
}

export function isFromContent(keys: StreamKeys | undefined): boolean {
  return keys?.policy?.isFromContent === true;
}
