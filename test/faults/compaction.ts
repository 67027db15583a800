/** Faults in what compaction lets go, on the server and in the changelogs of pipelines. */

import type { Fault } from "./faults.ts";

const RULE = "src/streams/core/compaction.ts";
const RULES = "src/streams/core/compaction.test.ts";
const ENGINE = "src/streams/engine/compactions.test.ts";
const STATE = "src/client/processing/state.ts";
const STATES = "test/processing/state-compaction.test.ts";
const EVERY_HISTORY =
  "G147 leaves the state that was written, for every history of five, every slice and every append between";
const EVERY_KILL =
  "G148 gives the state at every commit, with kills at each step and trims that come late: seed 1";

export const compactionFaults: readonly Fault[] = [
  {
    name: "a slice holds each of its records",
    guarantee: "G147",
    file: RULE,
    find: "if (!this.#newest.isNewest(record)) {\n      this.dropped += 1;\n      return;\n    }\n",
    replace: "",
    caughtBy: {
      file: RULES,
      test: "G147 holds of a slice only what may stay, however many records it has",
    },
  },
  {
    name: "the oldest record of a key counts as its newest",
    guarantee: "G147",
    file: RULE,
    find: "if (newest === undefined || newest >= at) return;",
    replace: "if (newest === undefined || newest <= at) return;",
    caughtBy: { file: RULES, test: EVERY_HISTORY },
  },
  {
    name: "a deletion is said again for good",
    guarantee: "G149",
    file: RULE,
    find: "return isTombstone && key !== undefined;",
    replace: "return isTombstone && key === undefined;",
    caughtBy: {
      file: RULES,
      test: "G149 a reader that missed a deletion is refused, and never left with the old value",
    },
  },
  {
    name: "compaction takes what a group needs",
    guarantee: "G149",
    file: RULE,
    find: "const needed = neededFrom(world, state)?.from ?? state.tail;",
    replace: "const needed = neededFrom(world, state) === undefined ? state.tail : state.tail;",
    caughtBy: {
      file: RULES,
      test: "G149 ends before what a group needs, and before what is younger than the lag",
    },
  },
  {
    name: "a slice is decided while an append is unseen",
    guarantee: "G147",
    file: "src/streams/engine/compaction-pass.ts",
    find: "for (let tries = 0; this.#seenTo !== this.#state.tail; tries += 1) {",
    replace: "for (let tries = 0; tries < 0 && this.#seenTo !== undefined; tries += 1) {",
    caughtBy: {
      file: ENGINE,
      test: "G147 is the state that was written, for readers that begin anew and that go on, with writers all the time: seed 1",
    },
  },
  {
    name: "newest records are trimmed and not said again",
    guarantee: "G147",
    file: "src/streams/engine/compaction-pass.ts",
    find: "for (const change of decision.changes) writer.stage(change, batch);",
    replace: "for (const change of decision.changes.slice(-1)) writer.stage(change, batch);",
    caughtBy: {
      file: ENGINE,
      test: "G147 keeps the newest record of each key, and what has no key, and its size is bounded",
    },
  },
  {
    name: "a lag counts a tenth of its seconds",
    guarantee: "G149",
    file: "src/streams/engine/compactions.ts",
    find: "const limitMs = this.#writer.nowMs() - lagSeconds * 1000;",
    replace: "const limitMs = this.#writer.nowMs() - lagSeconds * 100;",
    caughtBy: {
      file: ENGINE,
      test: "G149 leaves what is younger than its lag, also after a restart",
    },
  },
  {
    name: "a snapshot forgets that a stream is a changelog",
    guarantee: "G147",
    file: "src/streams/core/restore.ts",
    find: "compaction: image.compaction,",
    replace: "compaction: undefined,",
    caughtBy: {
      file: "src/streams/stores/file/trim.test.ts",
      test: "G147 a snapshot has the rules of changelogs",
    },
  },
  {
    name: "a pipeline trims a part that has a newest value",
    guarantee: "G148",
    file: "src/client/processing/state-log.ts",
    find: "while (this.#parts.length > 1 && this.oldest.needed === 0) {",
    replace: "while (this.#parts.length > 1 && this.oldest.needed <= 1) {",
    caughtBy: { file: STATES, test: EVERY_KILL },
  },
  {
    name: "an owner that is named again makes the values before it count no more",
    guarantee: "G148",
    file: STATE,
    find: "if (!named.isContinued || (life ?? named.life) !== named.life) this.#forget();",
    replace: "if (named.life !== undefined) this.#forget();",
    caughtBy: { file: STATES, test: EVERY_KILL },
  },
  {
    name: "an old value is said again behind its change",
    guarantee: "G148",
    file: STATE,
    find: "if (this.#page.has(key)) continue;",
    replace: "if (this.#page.size < 0) continue;",
    caughtBy: { file: STATES, test: EVERY_KILL },
  },
];
