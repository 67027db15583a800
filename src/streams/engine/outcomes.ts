/** What the engine answers. */

import type { AppendDecision } from "../core/append.ts";
import type { StreamState } from "../core/stream.ts";
import type { Needed } from "../core/trim.ts";
import type { Offset } from "../core/types.ts";

export interface Missing {
  readonly kind: "missing";
}

/** Softly deleted: forks still need the data. */
export interface Gone {
  readonly kind: "gone";
}

export const MISSING: Missing = { kind: "missing" };
export const GONE: Gone = { kind: "gone" };

export interface Found {
  readonly kind: "found";
  readonly state: StreamState;
  /** The durable tail. */
  readonly tail: Offset;
  readonly isClosed: boolean;
  /** The first offset that can be read. Durable. */
  readonly earliest: Offset;
}

export type Look = Found | Missing | Gone;
export type AppendOutcome = AppendDecision | Missing | Gone;
export type DeleteOutcome = { readonly kind: "deleted" } | Missing | Gone;

/** The result of a cut. `earliest` counts from when it is durable. */
export type TrimOutcome =
  | { readonly kind: "trimmed"; readonly earliest: Offset; readonly isRepeated: boolean }
  | { readonly kind: "needed"; readonly needed: Needed }
  | { readonly kind: "beyond_tail"; readonly tail: Offset }
  | Missing
  | Gone;

export interface ReadPage {
  /** Where the first append starts: before the offset asked for, if that was inside an append. */
  readonly start: Offset;
  readonly appends: readonly Uint8Array[];
  readonly bytes: number;
  readonly next: Offset;
  /** The durable state when the page was made. */
  readonly tail: Offset;
  readonly earliest: Offset;
  readonly isUpToDate: boolean;
  /** The stream is closed and this page reaches its end. */
  readonly isAtEnd: boolean;
  /** Optional. Call it when you are done with `appends`: the store may then reuse their memory. */
  readonly release: () => void;
}
