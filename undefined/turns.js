/** Faults of work in slices: what would change its order, or leave some of it out. */
const TAILS = "src/streams/engine/tails.test.ts";
const GROUP = "src/streams/core/group.test.ts";
export const turnFaults = [
  {
    name: "readers that are sent to the store are not told of the newest append",
    guarantee: "G10",
    file: "src/streams/engine/tails.ts",
    find: "    last.event = { ...event, isGone: event.isGone || last.event.isGone };",
    replace: "    void event;",
    caughtBy: {
      file: TAILS,
      test: "appends that come faster than readers take them are not kept: readers read the store instead",
    },
  },
  {
    name: "a later append overtakes one that readers are still told of",
    guarantee: "G10",
    file: "src/streams/engine/tails.ts",
    find: "    tellings.push({ event: advance,",
    replace: "    tellings.unshift({ event: advance,",
    caughtBy: {
      file: TAILS,
      test: "one turn tells as many as its bytes allow, and the others follow in order",
    },
  },
  {
    name: "an append that readers were not told of is passed over",
    guarantee: "G10",
    file: "src/streams/engine/tails.ts",
    find: "const event: TailEvent = { ...advance, appends: [], start: NOWHERE };",
    replace: "const event: TailEvent = { ...advance, appends: [] };",
    caughtBy: {
      file: TAILS,
      test: "appends that come faster than readers take them are not kept: readers read the store instead",
    },
  },
  {
    name: "what a member held when it left is lost to the others",
    guarantee: "G23",
    file: "src/streams/core/group-decide.ts",
    find: "  for (const streams of group.left.values()) yield* streams;\n",
    replace: "",
    caughtBy: {
      file: GROUP,
      test: "GD2 leaving touches no cursor, and everything that was held is free for the others",
    },
  },
  {
    name: "a member that has left still holds what its cursors name",
    guarantee: "G22",
    file: "src/streams/core/group-image.ts",
    find: "holder !== undefined && members.has(holder)",
    replace: "holder !== undefined && members.size >= 0",
    caughtBy: {
      file: GROUP,
      test: "is the same after it was made again from its image",
    },
  },
  {
    name: "a group whose making was cut short stays without the rest of its streams",
    guarantee: "G23",
    file: "src/streams/engine/groups.ts",
    find: `if (decision.kind !== "conflict") await this.#fill(id);`,
    replace: `if (decision.kind === "created") await this.#fill(id);`,
    caughtBy: {
      file: "src/streams/engine/groups.test.ts",
      test: "whose making was cut short is completed by the request that comes again",
    },
  },
];
