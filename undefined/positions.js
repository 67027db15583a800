/** Faults of positions and of numbers: what would go on inside an append, or under a name that was given before. */
const ENGINE = "src/streams/engine/boundaries.test.ts";
const RESTORED = "test/restored-numbers.test.ts";
export const positionFaults = [
  {
    name: "a group commits inside an append",
    guarantee: "G22",
    file: "src/streams/core/group-decide.ts",
    find: "if (offset !== cursor.offset && !isBoundary(state, offset)) {",
    replace: "if (offset < cursor.offset && !isBoundary(state, offset)) {",
    caughtBy: {
      file: ENGINE,
      test: "GD6 a commit counts at the end of each append, and nowhere between",
    },
  },
  {
    name: "a group starts or is reset inside an append",
    guarantee: "G22",
    file: "src/streams/core/group-decide.ts",
    find: `  if (!isBoundary(state, start.offset)) return { kind: "inside_record", stream: state.name };\n`,
    replace: "  isBoundary(state, start.offset);\n",
    caughtBy: {
      file: ENGINE,
      test: "GD6 a start or a reset inside an append of one of the streams is refused",
    },
  },
  {
    name: "a decision stands although an offset was not looked up",
    guarantee: "G22",
    file: "src/streams/engine/boundaries.ts",
    find: "return this.#unknown.length > 0;",
    replace: "return this.#unknown.length > 1000;",
    caughtBy: {
      file: ENGINE,
      test: "GD6 an end that is not durable yet was not handed out: the commit waits for it",
    },
  },
  {
    name: "a subscription acknowledges inside an append",
    guarantee: "G22",
    file: "src/streams/core/subscription-decide.ts",
    find: "if (offset !== link.acked && !isBoundary(state, offset)) {",
    replace: "if (offset < 0 && !isBoundary(state, offset)) {",
    caughtBy: {
      file: "src/streams/core/subscription-decide.test.ts",
      test: "an offset inside a record is refused, and the acked one stays",
    },
  },
  {
    name: "tokens go on from the counter alone",
    guarantee: "G22",
    file: "src/streams/core/numbers.ts",
    find: "return Math.max(next, Math.min(atMs * NUMBERS_PER_MS, FLOOR_MAX));",
    replace: "return Math.max(next, Math.min(atMs * 0 * NUMBERS_PER_MS, FLOOR_MAX));",
    caughtBy: {
      file: RESTORED,
      test: "G22 after a restore no member and no token is given that was given before it",
    },
  },
  {
    name: "the id of a member has nothing random",
    guarantee: "G22",
    file: "src/streams/core/group-decide.ts",
    find: "const member = `${name}-${nonce}`;",
    replace: "const member = `${name}-${ordinal > 0 || nonce === '' ? 1 : 2}`;",
    caughtBy: {
      file: RESTORED,
      test: "G22 a clock that is behind after the restore gives no member a second time",
    },
  },
];
