import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { assigneeOf, decidePlan, isFollower, type SeenNode, type SeenShard } from "./assignment.ts";
import type { ShardId } from "./placement.ts";

const node = (name: string, more: Partial<SeenNode> = {}): SeenNode => {
  return { node: name, life: `${name}-1`, isAlive: true, isDraining: false, ...more };
};
const SHARDS = Array.from({ length: 64 }, (_, at) => at as ShardId);
const seen = (shard: ShardId, more: Partial<SeenShard> = {}): SeenShard => {
  return { shard, epoch: 1, owner: undefined, pinned: undefined, ...more };
};

describe("PROTOCOL.md §24.4: who owns which shard", () => {
  test("AS1 a node that comes or goes moves only its own shards", () => {
    const names = fc.uniqueArray(fc.string({ minLength: 1, maxLength: 8 }), {
      minLength: 2,
      maxLength: 6,
    });
    fc.assert(
      fc.property(names, (all) => {
        const before = all.map((name) => node(name));
        const after = before.slice(1);
        for (const shard of SHARDS) {
          const was = assigneeOf(seen(shard), before);
          const is = assigneeOf(seen(shard), after);
          if (was !== all[0]) expect(is).toBe(was);
          expect(assigneeOf(seen(shard), before.toReversed())).toBe(was);
        }
      }),
      { numRuns: 20 },
    );
  });

  test("AS1 three nodes share the shards", () => {
    const counts = new Map<string | undefined, number>();
    const nodes = [node("n1"), node("n2"), node("n3")];
    for (const shard of SHARDS) {
      const target = assigneeOf(seen(shard), nodes);
      counts.set(target, (counts.get(target) ?? 0) + 1);
    }
    expect(Math.min(...counts.values())).toBeGreaterThan(10);
    expect(counts.size).toBe(3);
  });

  test("AS2 a pin wins as long as its node is there", () => {
    const nodes = [node("n1"), node("n2")];
    for (const pinned of ["n1", "n2"]) {
      expect(SHARDS.map((shard) => assigneeOf(seen(shard, { pinned }), nodes))).toEqual(
        SHARDS.map(() => pinned),
      );
    }
    expect(assigneeOf(seen(SHARDS[0] as ShardId, { pinned: "n3" }), nodes)).toBeDefined();
    expect(
      assigneeOf(seen(SHARDS[0] as ShardId, { pinned: "n1" }), [
        node("n1", { isDraining: true }),
        node("n2"),
      ]),
    ).toBe("n2");
  });

  test("AS3 AS4 no two nodes that see the same take a shard, and none takes from a living owner", () => {
    const state = fc.record({
      alive: fc.array(fc.boolean(), { minLength: 3, maxLength: 3 }),
      draining: fc.array(fc.boolean(), { minLength: 3, maxLength: 3 }),
      owners: fc.array(fc.constantFrom(undefined, "n0", "n1", "n2", "gone"), {
        minLength: 8,
        maxLength: 8,
      }),
      oldLife: fc.boolean(),
    });
    fc.assert(
      fc.property(state, ({ alive, draining, owners, oldLife }) => {
        const nodes = alive.map((isAlive, at) => {
          return node(`n${at}`, { isAlive, isDraining: draining[at] === true });
        });
        const shards = owners.map((owner, at) => {
          const life = `${owner}-${oldLife ? 0 : 1}`;
          return seen(at as ShardId, owner === undefined ? {} : { owner: { node: owner, life } });
        });
        const taken = new Map<number, string>();
        for (const self of nodes.filter(({ isAlive }) => isAlive)) {
          const { take, release } = decidePlan(self, nodes, shards);
          for (const { shard, owner } of take) {
            expect(taken.has(shard)).toBe(false);
            taken.set(shard, self.node);
            const living = nodes.some(
              (one) => one.node === owner?.node && one.life === owner.life && one.isAlive,
            );
            expect(living).toBe(false);
            expect(self.isDraining).toBe(false);
          }
          for (const { shard, to } of release) {
            expect(shards[shard]?.owner).toEqual({ node: self.node, life: self.life });
            expect(to).not.toBe(self.node);
          }
        }
      }),
      { numRuns: 200 },
    );
  });
});

test("PROTOCOL.md §24.4: AS5 the node that follows a shard is the one that takes it when its owner is gone or drains", () => {
  const nodes = ["n1", "n2", "n3"].map((name) => node(name));
  for (const shard of SHARDS) {
    for (const pinned of [undefined, "n2"]) {
      const owner = assigneeOf(seen(shard, { pinned }), nodes) ?? "";
      const owned = seen(shard, { pinned, owner: { node: owner, life: `${owner}-1` } });
      const followers = nodes.filter((one) => isFollower(one.node, owned, nodes));
      expect(followers).toHaveLength(1);
      const gone = nodes.map((one) => ({ ...one, isAlive: one.node !== owner }));
      const drained = nodes.map((one) => ({ ...one, isDraining: one.node === owner }));
      for (const after of [gone, drained]) {
        expect(assigneeOf(owned, after)).toBe(followers[0]?.node);
      }
    }
  }
  // With one node there is no other one.
  expect(isFollower("n1", seen(0 as ShardId, { owner: { node: "n1", life: "n1-1" } }), nodes)).toBe(
    false,
  );
});
