/**
 * What can happen to the world, as plain data. A store writes these down, one atomic commit at a time,
 * and after a crash the same `applyChange` (world.ts) that made the state makes it again from them.
 *
 *   - a change says what happened, not what was asked: applying it needs no decision;
 *   - applying the same changes to the same world gives the same world, on every machine.
 */

import type { CompactionRule } from "./compaction.ts";
import type { GroupChange } from "./group-state.ts";
import type { KeyPolicy, StoredKey } from "./keys.ts";
import type { ProducerMark } from "./producer.ts";
import type { ExpiryRule, Fork } from "./stream.ts";
import type { SubscriptionChange } from "./subscription.ts";
import type { RetentionRule } from "./trim.ts";
import type { Offset, ProducerId, RunId, StreamId, StreamName, TimeMs } from "./types.ts";

export interface StreamCreated {
  readonly kind: "created";
  readonly atMs: TimeMs;
  readonly stream: StreamId;
  readonly run: RunId;
  readonly name: StreamName;
  readonly contentType: string;
  readonly expiry: ExpiryRule;
  readonly fork: Fork | undefined;
  readonly keys: KeyPolicy | undefined;
}

/** Data, a close, or both. A close alone has no data. */
export interface StreamAppended {
  readonly kind: "appended";
  readonly atMs: TimeMs;
  readonly stream: StreamId;
  readonly data: Uint8Array;
  readonly closes: boolean;
  readonly producer: ProducerMark | undefined;
  readonly streamSeq: string | undefined;
  readonly key: StoredKey | undefined;
}

/** The stream is gone for its users, but its forks still read its data. */
export interface StreamDeleted {
  readonly kind: "deleted";
  readonly atMs: TimeMs;
  readonly stream: StreamId;
}

/** The stream is gone and its data is free. */
export interface StreamRemoved {
  readonly kind: "removed";
  readonly atMs: TimeMs;
  readonly stream: StreamId;
}

/** A read or write that moves a sliding expiry. */
export interface StreamTouched {
  readonly kind: "touched";
  readonly atMs: TimeMs;
  readonly stream: StreamId;
}

/** A producer starts anew. The stream forgets its epoch and sequence, but not the sessions that were replaced. */
export interface ProducerReset {
  readonly kind: "producer_reset";
  readonly atMs: TimeMs;
  readonly stream: StreamId;
  readonly producer: ProducerId;
  /** How often this producer was reset, including this time. */
  readonly resets: number;
}

/** The stream forgets idempotency keys that are older than their window. */
export interface KeysEvicted {
  readonly kind: "keys_evicted";
  readonly atMs: TimeMs;
  readonly stream: StreamId;
  readonly evictTo: number;
}

/** The data before this offset is gone. No offset changes. */
export interface StreamTrimmed {
  readonly kind: "trimmed";
  readonly atMs: TimeMs;
  readonly stream: StreamId;
  readonly to: Offset;
}

/** The stream keeps its data by this rule from now on. Undefined: it keeps everything. */
export interface RetentionSet {
  readonly kind: "retention_set";
  readonly atMs: TimeMs;
  readonly stream: StreamId;
  readonly rule: RetentionRule | undefined;
}

/** The stream is a changelog by this rule from now on. Undefined: it keeps every record. */
export interface CompactionSet {
  readonly kind: "compaction_set";
  readonly atMs: TimeMs;
  readonly stream: StreamId;
  readonly rule: CompactionRule | undefined;
}

/**
 * A key that signs webhooks and tokens. The world has what is needed to compute it again, so it is the same
 * after a restart.
 */
export interface SigningKeyAdded {
  readonly kind: "signing_key_added";
  readonly atMs: TimeMs;
  /** The salt of the key as JSON text, and never the key itself. The core does not parse it. */
  readonly key: string;
}

/** The store begins a new incarnation, as after a restore: what it had acknowledged before may be gone. */
export interface IncarnationBegun {
  readonly kind: "incarnation_begun";
  readonly atMs: TimeMs;
  readonly number: number;
  readonly mark: number;
}

/** One change of the world. A store commits it, and `applyChange` applies it. */
export type Change =
  | IncarnationBegun
  | StreamCreated
  | StreamAppended
  | StreamDeleted
  | StreamRemoved
  | StreamTouched
  | ProducerReset
  | KeysEvicted
  | StreamTrimmed
  | RetentionSet
  | CompactionSet
  | SigningKeyAdded
  | SubscriptionChange
  | GroupChange;
