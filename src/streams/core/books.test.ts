// A world without the rules of its groups and subscriptions knows which there are.
import fc from "fast-check";
import { expect, test } from "vitest";
import { NO_GROUPS, NO_SUBSCRIPTIONS } from "./books.ts";
import type { Change } from "./change.ts";
import type { GroupBookImage } from "./group-image.ts";
import type { BookImage } from "./subscription-image.ts";
import type { StreamName, TimeMs } from "./types.ts";
import { GROUP_RULES, SUBSCRIPTION_RULES } from "./whole-books.ts";
import { applyChange, createWorld, createWorldOf, type World } from "./world.ts";

const AT = 1 as TimeMs;
const NAMES = ["a", "b", "c"] as const;

/** Groups and subscriptions that come and go: each number makes one that is not there, or deletes one that is. */
function changesOf(steps: readonly number[]): readonly Change[] {
  const there = new Set<number>();
  return steps.map((step): Change => {
    const [id, isGroup] = [NAMES[step % 3] ?? "a", step < 3];
    const isDeleted = there.delete(step);
    if (!isDeleted) there.add(step);
    if (isDeleted && isGroup) return { kind: "group_deleted", atMs: AT, group: id };
    if (isDeleted) return { kind: "subscription_deleted", atMs: AT, subscription: id };
    const streams: readonly StreamName[] = [];
    if (isGroup) {
      const settings = {
        pattern: undefined,
        streams,
        start: { kind: "beginning" },
        leaseMs: 1000,
      } as const;
      return { kind: "group_created", atMs: AT, group: id, settings, cursors: [] };
    }
    const settings = {
      pattern: undefined,
      streams,
      delivery: { kind: "pull", wakeStream: "/w" as StreamName },
      leaseMs: 1000,
      description: undefined,
    } as const;
    return {
      kind: "subscription_created",
      atMs: AT,
      subscription: id,
      settings,
      generation: 7,
      links: [],
    } as unknown as Change;
  });
}

const idsOf = ({ groups, subscriptions }: World) => [
  [...groups.byId.keys()].toSorted(),
  [...subscriptions.byId.keys()].toSorted(),
];

test("by changes, and by an image and the changes after it", () => {
  const steps = fc.array(fc.integer({ min: 0, max: 5 }), { maxLength: 30 });
  fc.assert(
    fc.property(steps, fc.nat(30), (all, at) => {
      const [whole, bare, restored] = [
        createWorld(),
        createWorldOf({ groups: NO_GROUPS, subscriptions: NO_SUBSCRIPTIONS }),
        createWorldOf({ groups: NO_GROUPS, subscriptions: NO_SUBSCRIPTIONS }),
      ];
      let groups: GroupBookImage = GROUP_RULES.image(whole.groups);
      let subscriptions: BookImage = SUBSCRIPTION_RULES.image(whole.subscriptions);
      const changes = changesOf(all);
      for (const [index, change] of changes.entries()) {
        if (index === at) {
          groups = GROUP_RULES.image(whole.groups);
          subscriptions = SUBSCRIPTION_RULES.image(whole.subscriptions);
        }
        for (const world of [whole, bare]) applyChange(world, change);
        expect(idsOf(bare)).toEqual(idsOf(whole));
      }
      const start = at < changes.length ? at : 0;
      restored.rules.groups.restore(restored.groups, groups);
      restored.rules.subscriptions.restore(restored.subscriptions, subscriptions);
      for (const change of changes.slice(start)) applyChange(restored, change);
      expect(idsOf(restored)).toEqual(idsOf(whole));
    }),
  );
});

test("numbers that only grow are in the next image too", () => {
  const world = createWorldOf({ groups: NO_GROUPS, subscriptions: NO_SUBSCRIPTIONS });
  const { groups, subscriptions } = world.rules;
  groups.restore(world.groups, { nextToken: 5, groups: [] });
  subscriptions.restore(world.subscriptions, { generationFloor: 9, subscriptions: [] });
  expect(groups.image(world.groups)).toEqual({ nextToken: 5, groups: [] });
  expect(subscriptions.image(world.subscriptions)).toEqual({
    generationFloor: 9,
    subscriptions: [],
  });
});
