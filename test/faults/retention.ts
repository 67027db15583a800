/** Faults in what is trimmed, when, and what readers get to know. */

import type { Fault } from "./faults.ts";

const TRIM = "src/streams/core/trim.ts";
const RULES = "src/streams/core/trim.test.ts";
const ENGINE = "src/streams/engine/trims.test.ts";

export const retentionFaults: readonly Fault[] = [
  {
    name: "a fork and a cut at the same moment are both done",
    guarantee: "G110",
    file: "src/streams/engine/lifecycle.ts",
    find: "if (this.#isTrimmed(source, command.fork)) continue;",
    replace: "",
    caughtBy: {
      file: ENGINE,
      test: "G110 of a fork and a cut at the same moment one is refused",
    },
  },
  {
    name: "a rule trims another stream that was created at the path meanwhile",
    guarantee: "G112",
    file: "src/streams/engine/trims.ts",
    find: 'if (before <= 0 || writer.find(name) !== state) return { kind: "set" };',
    replace: 'return this.cut(name, { before, dropsNeeded: false }).then(() => ({ kind: "set" }));',
    caughtBy: {
      file: ENGINE,
      test: "G112 trims nothing of a stream that is created anew at the path meanwhile",
    },
  },
  {
    name: "a cut takes what a group still needs",
    guarantee: "G111",
    file: TRIM,
    find: "if (needed !== undefined && needed.from < to) return",
    replace: "if (needed !== undefined && needed.from < 0) return",
    caughtBy: {
      file: RULES,
      test: "G111 stops at what a group, a subscription or a fork needs, unless it drops that",
    },
  },
  {
    name: "a rule by age counts nine tenths of its seconds",
    guarantee: "G112",
    file: TRIM,
    find: "const limitMs = seconds === undefined ? -Infinity : atMs - seconds * 1000;",
    replace: "const limitMs = seconds === undefined ? -Infinity : atMs - seconds * 900;",
    caughtBy: {
      file: RULES,
      test: "G112 by age trims between two appends, never too early and at most a 16th late",
    },
  },
  {
    name: "a rule by bytes leaves fewer than it says",
    guarantee: "G112",
    file: TRIM,
    find: "const limit = bytes === undefined ? -Infinity : tail - bytes;",
    replace: "const limit = bytes === undefined ? -Infinity : tail - bytes / 2;",
    caughtBy: {
      file: RULES,
      test: "G112 by bytes keeps the newest, and at most a 16th and an append more",
    },
  },
  {
    name: "readers see a trim before it is durable",
    guarantee: "G110",
    file: "src/streams/engine/commit.ts",
    find: "return this.#trims.get(state.id)?.earliest ?? ownEarliest(state);",
    replace: "return ownEarliest(state);",
    caughtBy: {
      file: ENGINE,
      test: "G110 W2 is answered when it is durable, and until then readers get what they got before",
    },
  },
  {
    name: "a cut inside an append takes the append",
    guarantee: "G110",
    file: "src/streams/engine/trims.ts",
    find: "return page.start;",
    replace: "return offset;",
    caughtBy: { file: ENGINE, test: "G110 begins at an append, and the offsets behind it stay" },
  },
  {
    name: "a rule by bytes is looked at only when there is a new place to cut at",
    guarantee: "G112",
    file: "src/streams/engine/trims.ts",
    find: "    if (isNew || isMarkFreed(state, start)) this.#look(state.id);",
    replace: "    if (isNew) this.#look(state.id);",
    caughtBy: {
      file: ENGINE,
      test: "a rule > G112 by bytes keeps a stream that grows at its size",
    },
  },
  {
    name: "an idle stream keeps what is too old",
    guarantee: "G112",
    file: "src/streams/engine/trims.ts",
    find: "this.#deadlines.add(dueMs > nowMs ? dueMs : nowMs + REST_MS, state.id);",
    replace: "this.#deadlines.add(Infinity, state.id);",
    caughtBy: {
      file: ENGINE,
      test: "G112 by age goes by journal time, also without appends and after a restart",
    },
  },
  {
    name: "a snapshot forgets where a stream may be cut",
    guarantee: "G112",
    file: "src/streams/stores/journal/retention-format.ts",
    find: "writer.varint(marks.length);",
    replace: "writer.varint(0); if (marks.length > 0) return;",
    caughtBy: {
      file: "src/streams/stores/file/trim.test.ts",
      test: "G112 a snapshot has what each stream keeps, where it begins, and where it may be cut",
    },
  },
];
