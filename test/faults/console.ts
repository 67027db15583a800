/** Faults of the console of a ledger. */

import type { Fault } from "./faults.ts";

const TESTS = "test/console/console.test.ts";
const GUARD = "src/toolkit/console/guard.ts";

export const consoleFaults: readonly Fault[] = [
  {
    name: "console: what authorize throws is taken for a visitor",
    guarantee: "G96",
    file: GUARD,
    find: "if (onError !== undefined) tellSafely(onError, error);",
    replace: 'decided = { by: "unknown" };',
    caughtBy: {
      file: TESTS,
      test: "who may see the console > G96 what authorize refuses, throws or does not know sees nothing: not the page, no file, no figure",
    },
  },
  {
    name: "console: every visitor may act",
    guarantee: "G96",
    file: GUARD,
    find: "if (mayAct === true) return ACTS;",
    replace: "if (mayAct !== false) return ACTS;",
    caughtBy: {
      file: TESTS,
      test: "who may see the console > G96 a visitor without more looks: every act and every value is refused",
    },
  },
  {
    name: "console: an act may come from another site",
    guarantee: "G96",
    file: GUARD,
    find: 'if (site !== null) return site === "same-origin";',
    replace: "if (site !== null) return true;",
    caughtBy: {
      file: TESTS,
      test: "acts come from the page alone > G96 an act without the header, without JSON, or from another site is refused",
    },
  },
  {
    name: "console: values are shown without being asked for",
    guarantee: "G96",
    file: "src/toolkit/console/reading.ts",
    find: "...(arePayloadsAsked ? { payload: valueOf(event.payload) } : {}),",
    replace: "payload: valueOf(event.payload),",
    caughtBy: {
      file: TESTS,
      test: "what is shown > G96 no answer has a value, an input or a payload unless it is asked for",
    },
  },
  {
    name: "a page of entries begins with the last one of the page before",
    guarantee: "G96",
    file: "src/toolkit/ledgers/entry-pages.ts",
    find: "`(scope, key) > (${draft.bind(after)}, ${draft.bind(key)})`",
    replace: "`(scope, key) >= (${draft.bind(after)}, ${draft.bind(key)})`",
    caughtBy: {
      file: "test/ledgers.test.ts",
      test: "SQLite with journal_mode delete > LG13 pages of any size have every entry of a kind or a scope once, with any characters",
    },
  },
];
