/** A cluster of one node and one shard, over any store: memory, files, an object. */

import type { Cluster, NameBook, NameKind, Owner, ShardHost } from "../cluster.ts";
import type { ShardId } from "../core/placement.ts";
import type { Store } from "../store.ts";

const SHARD = 0 as ShardId;

export function soleOwner(store: Store, self = "sole"): Cluster {
  const owner: Owner = { node: self, url: undefined, peer: undefined, isSelf: true };
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
      nodes: [{ node: self, isAlive: true }],
      orphans: [],
      takeovers: 1,
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
