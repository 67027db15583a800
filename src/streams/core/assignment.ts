/**
 * Which node should own which shard, and what a node does about it. Every node decides from the same rows, so all decide the same
 * without talking to each other. Safety does not rest on this: the epoch in every commit does.
 *
 *   - AS1 a shard belongs to the node with the highest score for it (rendezvous): a node that comes or goes moves only its own
 *     shards;
 *   - AS2 a pin wins, as long as its node is there;
 *   - AS3 a shard with a living owner is given up by that owner, and taken by no other node;
 *   - AS4 a shard is taken by its target alone, and only if it is free or its owner is dead;
 *   - AS5 a shard is followed by the node that is its target without its owner: the next owner, whether this one ends or gives it up.
 */

import { hashText, type ShardId } from "./placement.ts";

/** A node as the candidate sees it. */
export interface SeenNode {
  readonly node: string;
  /** One process of the node. */
  readonly life: string;
  /** It gave a sign of life within a lease, by the candidate's own steady clock. */
  readonly isAlive: boolean;
  /** It gives its shards up, and takes none. */
  readonly isDraining: boolean;
}

/** A shard as its row says. */
export interface SeenShard {
  readonly shard: ShardId;
  readonly epoch: number;
  readonly owner: { readonly node: string; readonly life: string } | undefined;
  readonly pinned: string | undefined;
}

export interface Plan {
  /** Shards to take now. */
  readonly take: readonly SeenShard[];
  /** Shards to give up now, and to whom. */
  readonly release: readonly { readonly shard: ShardId; readonly to: string }[];
}

/** The node that should own a shard. Undefined: there is none. */
export function assigneeOf(
  shard: Pick<SeenShard, "shard" | "pinned">,
  nodes: readonly SeenNode[],
): string | undefined {
  let best: { readonly node: string; readonly score: number } | undefined;
  for (const { node, isAlive, isDraining } of nodes) {
    if (!isAlive || isDraining) continue;
    if (node === shard.pinned) return node;
    const score = hashText(`${node} ${shard.shard}`);
    const isBetter =
      best === undefined || score > best.score || (score === best.score && node < best.node);
    if (isBetter) best = { node, score };
  }
  return best?.node;
}

/** Whether a node keeps a warm copy of a shard that it does not own. */
export function isFollower(
  self: string,
  { owner, ...shard }: Pick<SeenShard, "shard" | "pinned" | "owner">,
  nodes: readonly SeenNode[],
): boolean {
  if (owner?.node === self) return false;
  const others = nodes.filter(({ node }) => node !== owner?.node);
  return assigneeOf(shard, others) === self;
}

/** What `self` does now. */
export function decidePlan(
  self: { readonly node: string; readonly life: string },
  nodes: readonly SeenNode[],
  shards: readonly SeenShard[],
): Plan {
  const take: SeenShard[] = [];
  const release: { shard: ShardId; to: string }[] = [];
  for (const seen of shards) {
    const target = assigneeOf(seen, nodes);
    if (target === undefined) continue;
    const { owner } = seen;
    const isMine = owner?.node === self.node && owner.life === self.life;
    if (isMine) {
      if (target !== self.node) release.push({ shard: seen.shard, to: target });
    } else if (target === self.node && (owner === undefined || isDead(owner, nodes))) {
      take.push(seen);
    }
  }
  return { take, release };
}

/** A process whose node has begun another life is dead, or was called like another one: it must not own anything. */
function isDead(
  owner: { readonly node: string; readonly life: string },
  nodes: readonly SeenNode[],
): boolean {
  const seen = nodes.find(({ node }) => node === owner.node);
  return seen === undefined || seen.life !== owner.life || !seen.isAlive;
}
