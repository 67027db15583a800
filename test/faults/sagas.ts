/** Faults of sagas: what would be done twice, not undone, undone wrongly, or done by a process that may not. */

import type { Fault } from "./faults.ts";

const RULES = "src/toolkit/rules/saga.ts";
const HELD = "src/toolkit/saga/held.ts";
const ATTEMPTS = "src/toolkit/saga/attempts.ts";
const DRIVE = "src/toolkit/saga/drive.ts";
const SAGAS = "src/toolkit/saga/sagas.ts";
const RULES_TEST = "src/toolkit/rules/saga.test.ts";
const TEST = "test/saga/saga.test.ts";
const DEFINITIONS = "test/saga/definitions.test.ts";
const DATABASES = "test/saga/databases.test.ts";
const LIMITS = "test/saga/limits.test.ts";
const LOST_ANSWERS = "test/saga/lost-answers.test.ts";

export const sagaFaults: readonly Fault[] = [
  {
    name: "a caller who waits leaves its saga to a runner that there may not be",
    guarantee: "G53",
    file: SAGAS,
    find: "if (entry.leaseLeftMs !== undefined && entry.leaseLeftMs <= 0)",
    replace: "if (entry.leaseLeftMs !== undefined && entry.leaseLeftMs < -1e15)",
    caughtBy: {
      file: TEST,
      test: "SA7 a caller who waits goes on with what no process drives, without a runner",
    },
  },
  {
    name: "a saga that is taken over keeps its token",
    guarantee: "G53",
    file: DRIVE,
    find: `      token: "next",\n      attempts,\n`,
    replace: `      token: "same",\n      attempts,\n`,
    caughtBy: {
      file: TEST,
      test: "SA1 a runner whose saga was taken records nothing, in either direction",
    },
  },
  {
    name: "a process that has slept sends its call",
    guarantee: "G53",
    file: ATTEMPTS,
    find: `      // As in an undo.\n      held.claim.requireHeld();\n`,
    replace: `      // As in an undo.\n`,
    caughtBy: {
      file: TEST,
      test: "SA1 a process that wakes after its lease in a step sends nothing",
    },
  },
  {
    name: "a process that has slept sends its undo",
    guarantee: "G53",
    file: ATTEMPTS,
    find: `  held.claim.requireHeld();\n  // The builder`,
    replace: `  // The builder`,
    caughtBy: {
      file: TEST,
      test: "SA1 a process that wakes after its lease in an undo sends nothing",
    },
  },
  {
    name: "a call is sent before its intent is written",
    guarantee: "G53",
    file: ATTEMPTS,
    find: `if (!(await held.begin(names, intents))) return;`,
    replace: `if (!(await held.begin(names, intents.slice(names.length)))) return;`,
    caughtBy: { file: TEST, test: "SA2 the intent of a call is stored before it is sent" },
  },
  {
    name: "the record of a tx step is beside its transaction",
    guarantee: "G53",
    file: HELD,
    find: `const written = await this.#checkpoint(joined, next);`,
    replace: `const written = await this.#checkpoint(joined.isJoined ? ledger : joined, next);`,
    caughtBy: {
      file: DATABASES,
      test: "SA2 a commit without an answer is looked up: the step counts once > over PostgreSQL",
    },
  },
  {
    name: "a commit without an answer counts as failed",
    guarantee: "G53",
    file: HELD,
    find: `return this.#isStored(prepared, entry.revision, decodeSaga(entry.data));`,
    replace: `return prepared.isOver && this.#isStored(prepared, entry.revision, decodeSaga(entry.data));`,
    caughtBy: {
      file: DATABASES,
      test: "SA2 a commit without an answer is looked up: the step counts once > in memory",
    },
  },
  {
    name: "a commit without an answer counts as failed if an act came after it",
    guarantee: "G53",
    file: HELD,
    find: `if (found.write !== tried.progress.write) return false;`,
    replace: `if (found.history.length !== tried.progress.history.length) return false;`,
    caughtBy: {
      file: LOST_ANSWERS,
      test: "SA2 SA4 a tx step that is committed counts once, also if its answer is lost and a signal comes",
    },
  },
  {
    name: "a write that another branch has found stored is repeated",
    guarantee: "G53",
    file: HELD,
    find: `if (this.#stored.has(number)) {`,
    replace: `if (this.#stored.has(-number)) {`,
    caughtBy: {
      file: LOST_ANSWERS,
      test: "a failure counts once, also if the answer to its record is lost and another branch writes first",
    },
  },
  {
    name: "a step that is done fails and is repeated",
    guarantee: "G53",
    file: "src/toolkit/rules/saga-events.ts",
    find: `(kind === "failed" && (state === "done" || state === "undone")) ||`,
    replace: `(kind === "failed" && state === "undone") ||`,
    caughtBy: {
      file: "src/toolkit/rules/saga-events.test.ts",
      test: "SA2 SA4 a step that is done or undone cannot fail any more",
    },
  },
  {
    name: "a saga goes on with steps that have lost an undo",
    guarantee: "G53",
    file: "src/toolkit/rules/saga-outline.ts",
    find: `    ...(hasUndo ? ["undo"] : []),\n`,
    replace: `    ...(hasUndo ? [] : []),\n`,
    caughtBy: {
      file: DEFINITIONS,
      test: "SA8 an abort does not end undone with a definition that has lost an undo",
    },
  },
  {
    name: "a migration takes the undo of a step that is done",
    guarantee: "G53",
    file: "src/toolkit/rules/saga-migration.ts",
    find: `if (hasLostUndo(name) && isForgotten && !progress.isPastPivot)`,
    replace: `if (hasLostUndo(name) && isForgotten && progress.isPastPivot)`,
    caughtBy: {
      file: "src/toolkit/rules/saga-migration.test.ts",
      test: "leaves a step without the undo that it had only if the migration says so",
    },
  },
  {
    name: "each attempt has a key of its own",
    guarantee: "G53",
    file: ATTEMPTS,
    find: `key: await keyOf(held, step, direction), attempt, signal };`,
    replace: `key: (await keyOf(held, step, direction)) + String(attempt), attempt, signal };`,
    caughtBy: {
      file: TEST,
      test: "SA3 gives each step a key that is the same in every attempt, and its undo another one",
    },
  },
  {
    name: "a step without an answer is not undone",
    guarantee: "G53",
    file: RULES,
    find: `return (kind === "call" || kind === "probe") && at.isUnknown;`,
    replace: `return kind === "tx" && at.isUnknown;`,
    caughtBy: {
      file: RULES_TEST,
      test: "SA2 SA4 SA5 of call and tx: each effect once, undone whole, in reverse order and once",
    },
  },
  {
    name: "a saga is undone in the order of its steps",
    guarantee: "G53",
    file: RULES,
    find: `for (const step of sagaSteps(plan).toReversed()) {`,
    replace: `for (const step of sagaSteps(plan)) {`,
    caughtBy: {
      file: TEST,
      test: "SA4 is undone in reverse order, with what each step has returned",
    },
  },
  {
    name: "an undo is repeated without being asked for",
    guarantee: "G53",
    file: RULES,
    find: `const mustAsk = kind === "probe" && at.isUnknown;`,
    replace: `const mustAsk = kind === "probe" && at.isUnknown && at.state === "open";`,
    caughtBy: {
      file: TEST,
      test: "SA5 an undo is tried again, and its effect is asked for first if it can be",
    },
  },
  {
    name: "a saga turns round after its pivot",
    guarantee: "G53",
    file: RULES,
    find: `if (direction === "undo" || isPastPivot || ending !== undefined || stuck !== undefined)`,
    replace: `if (direction === "undo" || ending !== undefined || stuck !== undefined)`,
    caughtBy: {
      file: RULES_TEST,
      test: "SA6 after a pivot that is a tx nothing is undone: it ends, or is stuck",
    },
  },
  {
    name: "an operator can abort after the pivot",
    guarantee: "G53",
    file: "src/toolkit/rules/saga-acts.ts",
    find: `if (progress.isPastPivot) return refused(`,
    replace: `if (progress.isPastPivot && act.by === "") return refused(`,
    caughtBy: { file: RULES_TEST, test: "SA6 acts that do not fit are refused" },
  },
  {
    name: "an act of an operator is overwritten by the runner",
    guarantee: "G53",
    file: HELD,
    find: `if (isChanged) this.#progress = found;`,
    replace: `if (isChanged) this.#progress = { ...this.#progress };`,
    caughtBy: {
      file: TEST,
      test: "SA6 an abort undoes what was done, also while a step runs: what it does is taken back",
    },
  },
  {
    name: "a saga is started again with other input",
    guarantee: "G53",
    file: SAGAS,
    find: `if (entry.fingerprint !== fingerprint) {`,
    replace: `if (entry.fingerprint === undefined) {`,
    caughtBy: {
      file: TEST,
      test: "SA7 happens once for an identity, and other input is refused",
    },
  },
  {
    name: "a saga goes on with other steps",
    guarantee: "G53",
    file: DRIVE,
    find: `?.find((one) => one.outline === outline);`,
    replace: `?.find((one) => one.outline === outline || one.version > 1);`,
    caughtBy: {
      file: TEST,
      test: "SA8 a changed definition is stuck, and goes on where the old one is registered",
    },
  },
  {
    name: "a saga that cannot be read is always the first",
    guarantee: "G53",
    file: SAGAS,
    find: `      await this.#putAside(entry);\n`,
    replace: `      if (stopping.aborted) await this.#putAside(entry);\n`,
    caughtBy: {
      file: TEST,
      test: "SA9 a saga that cannot be read, or whose definition is gone, keeps no other from going on",
    },
  },
  {
    name: "a branch that still runs is given up",
    guarantee: "G53",
    file: HELD,
    find: `const isFlying = isBeginning || [...this.#flying].some((step) => !told.has(step));`,
    replace: `const isFlying = isBeginning || this.#flying.size > 9;`,
    caughtBy: {
      file: TEST,
      test: "SA10 a branch on its last attempt is not given up while it runs",
    },
  },
  {
    name: "a process that wakes records on a saga that others found without its definition",
    guarantee: "G53",
    file: DRIVE,
    find: `await postpone(shop, entry, data, "next");`,
    replace: `await postpone(shop, entry, data, "same");`,
    caughtBy: {
      file: DEFINITIONS,
      test: "SA1 SA8 a process that wakes records nothing on a saga that was found without its definition",
    },
  },
  {
    name: "a migration forgets what a step has left behind",
    guarantee: "G53",
    file: "src/toolkit/rules/saga-migration.ts",
    find: `if (kind === undefined && isForgotten)`,
    replace: `if (kind === undefined && !isForgotten)`,
    caughtBy: {
      file: "src/toolkit/rules/saga-migration.test.ts",
      test: "forgets what a step may have left behind only if the migration says so",
    },
  },
  {
    name: "a signal is taken by the newest steps, and not by those of its saga",
    guarantee: "G53",
    file: SAGAS,
    find: `const wait = own === undefined ? newest[0] : waitIn(own);`,
    replace: `const wait = newest[0] ?? (own && waitIn(own));`,
    caughtBy: {
      file: DEFINITIONS,
      test: "SA8 a signal is taken by the steps that its saga was started with",
    },
  },
  {
    name: "a result takes the room that a saga needs to go on",
    guarantee: "G53",
    file: "src/toolkit/saga/record.ts",
    find: `  if (bringsValue) requireRoom(json, SAGA_BYTES_MAX);`,
    replace: `  if (bringsValue) requireRoom(json, SAGA_BYTES_MAX + SAGA_ROOM_BYTES);`,
    caughtBy: {
      file: LIMITS,
      test: "SA6 undoes a result that does not fit as unknown, and refuses a signal that does not",
    },
  },
  {
    name: "a saga without room cannot be written",
    guarantee: "G53",
    file: "src/toolkit/saga/record.ts",
    find: `  const most = SAGA_BYTES_MAX + SAGA_ROOM_BYTES;`,
    replace: `  const most = SAGA_BYTES_MAX + 0 * SAGA_ROOM_BYTES;`,
    caughtBy: {
      file: LIMITS,
      test: "SA6 has room for what happens to it: a result that just fits keeps no step from going on",
    },
  },
  {
    name: "a question that ends its processes is asked without end",
    guarantee: "G53",
    file: "src/toolkit/rules/saga-events.ts",
    find: `return { ...before, asksLost: (before.asksLost ?? 0) + 1 };`,
    replace: `return before;`,
    caughtBy: {
      file: LIMITS,
      test: "SA6 a probe that ends its process each time is stuck after deadlineMs",
    },
  },
  {
    name: "an outcome is given up unasked after a long outage",
    guarantee: "G53",
    file: RULES,
    find: `const isAsked = asks > 0 || asksLost > ASKS_LOST_MAX;`,
    replace: `const isAsked = asks > 0 || asksLost > 0 * ASKS_LOST_MAX;`,
    caughtBy: {
      file: LIMITS,
      test: "SA6 an outcome that is unknown for longer than deadlineMs is asked for once more after a long outage",
    },
  },
  {
    name: "a search looks at every saga that sleeps",
    guarantee: "G53",
    file: SAGAS,
    find: `const filter = { kind: SAGA_KIND, state: "running", isAbandoned: true, order: "due" } as const;`,
    replace: `const filter = { kind: SAGA_KIND, state: "running", order: "due" } as const;`,
    caughtBy: {
      file: TEST,
      test: "a search costs as many calls of the ledger, however many sagas sleep",
    },
  },
  {
    name: "sagas that sleep hide one that is stuck",
    guarantee: "G53",
    file: "src/toolkit/saga/operating.ts",
    find: `  stuck: ["failed", "running"],`,
    replace: `  stuck: ["running"],`,
    caughtBy: { file: TEST, test: "SA6 one that is stuck is listed, however many sleep" },
  },
];
