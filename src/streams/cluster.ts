/**
 * PORT. Who owns which shard. A shard is a world, an engine and a journal of its own; all streams of a placement are in one shard.
 *
 *   - a node answers for a shard only while it owns it and `isValid`;
 *   - an owner may be wrong about itself. Its store knows: a commit of a former owner rejects with `shard_moved`;
 *   - what `ownerOf` says is a hint where to ask.
 */

import type { ShardId } from "./core/placement.ts";
import type { Store, StoreSupport } from "./store.ts";

export interface ShardOwner {
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

/** A node as this one sees it. */
export interface ClusterNodeState {
  readonly node: string;
  readonly isAlive: boolean;
  readonly isDraining: boolean;
  /** Where clients reach it. */
  readonly url?: string | undefined;
  readonly version?: string | undefined;
}

export interface ShardPlace {
  readonly shard: ShardId;
  /** A node that is alive. */
  readonly owner?: string | undefined;
  /** The node that an operator has tied it to. */
  readonly pinned?: string | undefined;
}

export interface ClusterState {
  /** This node gives its shards up. */
  readonly isDraining: boolean;
  readonly nodes: readonly ClusterNodeState[];
  /** All shards, in their order. */
  readonly owners: readonly ShardPlace[];
  /** Shards that have had no owner for so long that something is wrong. */
  readonly orphans: readonly ShardId[];
  readonly takeovers: number;
  /** Of these, the ones that went on with a warm copy. */
  readonly warmTakeovers: number;
  /** Warm copies of shards that others own. */
  readonly copies: number;
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
  ownerOf(shard: ShardId): ShardOwner | undefined;
  /** Whether this node may still answer for what it owns. */
  readonly isValid: boolean;
  /** Looks soon whether something has changed. */
  look(): void;
  state(): ClusterState;
  /** Gives all shards up, each to the node that is next. */
  leave(): Promise<void>;
  close(): Promise<void>;
}

const SHARD = 0 as ShardId;

/** A cluster of one node and one shard, over any store: memory, files, an object. */
export function soleOwner(store: Store, self = "sole"): Cluster {
  const owner: ShardOwner = { node: self, url: undefined, peer: undefined, isSelf: true };
  let host: ShardHost | undefined;
  let isDraining = false;
  return {
    self,
    shards: 1,
    supports: store.supports,
    names: memoryNames(),
    secret: () => store.secret?.() ?? Promise.resolve(""),
    join(taken) {
      host = taken;
      host.take(SHARD, store);
      return Promise.resolve();
    },
    ownerOf: () => (isDraining ? undefined : owner),
    isValid: true,
    look: () => undefined,
    state: () => ({
      isDraining,
      nodes: [{ node: self, isAlive: true, isDraining }],
      owners: [{ shard: SHARD, owner: isDraining ? undefined : self }],
      orphans: [],
      takeovers: 1,
      warmTakeovers: 0,
      copies: 0,
    }),
    async leave() {
      isDraining = true;
      await host?.giveUp(SHARD);
    },
    close: () => Promise.resolve(),
  };
}

/** With one shard every placement is the same one, so nothing has to outlive the process. */
function memoryNames(): NameBook {
  const kept = new Map<string, string>();
  const keyOf = (kind: NameKind, name: string): string => `${kind} ${name}`;
  return {
    find: (kind, name) => Promise.resolve(kept.get(keyOf(kind, name))),
    bind(kind, name, placement) {
      const key = keyOf(kind, name);
      if (!kept.has(key)) kept.set(key, placement);
      return Promise.resolve(kept.get(key) ?? placement);
    },
  };
}
