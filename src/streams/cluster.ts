/**
 * PORT. Who owns which shard. A shard is a world, an engine and a journal of its own; all streams of a placement are in one shard.
 *
 *   - a node answers for a shard only while it owns it and `isValid`;
 *   - an owner may be wrong about itself. Its store knows: a commit of a former owner rejects with `shard_moved`;
 *   - what `ownerOf` says is a hint where to ask.
 */

import type { ShardId } from "./core/placement.ts";
import type { Store, StoreSupport } from "./store.ts";

export interface Owner {
  readonly node: string;
  /** Where clients reach it. Undefined: it did not say. */
  readonly url: string | undefined;
  /** Where other nodes reach it, `host:port`. */
  readonly peer: string | undefined;
  readonly isSelf: boolean;
}

/** What answers for the shards of this node. */
export interface ShardHost {
  /** Takes a store that was opened for this node. */
  take(shard: ShardId, store: Store): void;
  /** Ends what runs on the shard, and closes its store. */
  giveUp(shard: ShardId): Promise<void>;
  /** Drops the shard: another node owns it. */
  lose(shard: ShardId): void;
  /** Called when an owner may be another one than before. */
  changed(): void;
}

/** Names of groups and subscriptions, and the placement that each belongs to. */
export interface NameBook {
  find(kind: NameKind, name: string): Promise<string | undefined>;
  /** Gives a name to a placement, for good. Resolves with the placement that has it. */
  bind(kind: NameKind, name: string, placement: string): Promise<string>;
}

export type NameKind = "group" | "subscription";

export interface ClusterState {
  /** This node gives its shards up. */
  readonly isDraining: boolean;
  readonly nodes: readonly { readonly node: string; readonly isAlive: boolean }[];
  /** Shards that have had no owner for so long that something is wrong. */
  readonly orphans: readonly ShardId[];
  readonly takeovers: number;
}

export interface Cluster {
  readonly self: string;
  readonly shards: number;
  readonly supports: StoreSupport;
  readonly names: NameBook;
  /** What the keys that sign webhooks are made from: the same on all nodes. */
  secret(): Promise<string>;
  /** Takes part from now on. Resolves when what is this node's by now was taken. */
  join(host: ShardHost): Promise<void>;
  ownerOf(shard: ShardId): Owner | undefined;
  /** Whether this node may still answer for what it owns. */
  readonly isValid: boolean;
  /** Looks soon whether something has changed. */
  look(): void;
  state(): ClusterState;
  /** Gives all shards up, each to the node that is next. */
  leave(): Promise<void>;
  close(): Promise<void>;
}
