/**
 * The types of transactions. A log of transactions knows a transaction by its identity. A log is a stream that
 * the server keeps for itself: its producers and keys are those of the transactions, and its records are their
 * answers. So the rules that make the retries of appends safe also make those of transactions safe, in the same
 * frames. PROTOCOL.md §19.
 *
 * Each namespace has a log of its own, so that none can make the server forget the keys of another one. PROTOCOL.md §21.3.
 */

import type { CreateCommand } from "./create.ts";
import type { GroupId, LeaseToken, MemberId } from "./group-state.ts";
import { isSystemStream, type StreamState } from "./stream.ts";
import type { Ack, SubscriptionId } from "./subscription-state.ts";
import type { WakeReference } from "./subscription-decide.ts";
import type { Offset, StreamName } from "./types.ts";

const TRANSACTION_LOG = "hapax:transactions";

/** The stream that remembers the transactions of a namespace. Undefined: of identities that have none. */
export function transactionLogOf(namespace: string | undefined): StreamName {
  // A namespace begins with a slash.
  return `${TRANSACTION_LOG}${namespace ?? ""}` as StreamName;
}

/** Whether the stream is a log that remembers nothing any more, so that a new one would do as well. */
export function isForgottenLog({ name, keys, producers }: StreamState): boolean {
  const window = keys?.window;
  const hasKeys = window !== undefined && window.first < window.next;
  return isSystemStream(name) && !hasKeys && producers === undefined;
}

/** A lease, as its holder names it. */
export interface LeaseClaim {
  readonly group: GroupId;
  readonly member: MemberId;
  readonly stream: StreamName;
  readonly token: LeaseToken;
}

export interface AppendOperation {
  readonly kind: "append";
  readonly stream: StreamName;
  /** Undefined: the type of the stream. */
  readonly contentType: string | undefined;
  /** Bytes as the stream stores them. */
  readonly data: Uint8Array;
  readonly closes: boolean;
}

export interface CreateOperation {
  readonly kind: "create";
  /** Has no data and no fork. */
  readonly command: CreateCommand;
}

export interface CloseOperation {
  readonly kind: "close";
  readonly stream: StreamName;
}

export interface CommitOperation {
  readonly kind: "commit";
  readonly lease: LeaseClaim;
  readonly offset: Offset;
}

/** A job is done. */
export interface DoneOperation {
  readonly kind: "done";
  readonly lease: LeaseClaim;
  readonly offset: Offset;
}

/** The server has checked the token of the wake. */
export interface AckOperation {
  readonly kind: "ack";
  readonly subscription: SubscriptionId;
  readonly wake: WakeReference;
  readonly acks: readonly Ack[];
  readonly isDone: boolean;
}

export type Expectation =
  | { readonly kind: "expect_tail"; readonly stream: StreamName; readonly offset: Offset | "none" }
  | { readonly kind: "expect_absent"; readonly stream: StreamName }
  | { readonly kind: "expect_lease"; readonly lease: LeaseClaim };

/** Why an operation cannot be done. Found before the decision. */
export type UnfitReason =
  | { readonly kind: "invalid_json"; readonly detail: string }
  | { readonly kind: "not_json"; readonly expected: string }
  | { readonly kind: "token_invalid" | "token_expired" }
  | { readonly kind: "subscription_missing" | "subscription_fenced" };

/**
 * An operation that the present state makes impossible to read. The decision refuses it in its place, after it has
 * looked for a retry.
 */
export interface UnfitOperation {
  readonly kind: "unfit";
  readonly reason: UnfitReason;
}

export type Operation =
  | AppendOperation
  | CreateOperation
  | CloseOperation
  | CommitOperation
  | DoneOperation
  | AckOperation
  | UnfitOperation
  | Expectation;

/** The result of one operation: the tail after it, if it is about a stream. */
export interface OperationOutcome {
  readonly stream: StreamName;
  readonly tail: Offset;
}
