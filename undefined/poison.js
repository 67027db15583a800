/** Faults of a relay among events, errors and rows that hurt: what would stop it, or make it publish again and again. */
const POISON = "test/outbox/poison.test.ts";
const WORK = "src/toolkit/outbox/relay-work.ts";
export const poisonFaults = [
  {
    name: "an error that throws when it is read makes its batch go again",
    guarantee: "G28",
    file: "src/base/error-words.ts",
    find: "  } catch {\n    return undefined;",
    replace: "  } catch (thrown) {\n    throw thrown;",
    caughtBy: {
      file: POISON,
      test: "a message that throws concerns its event alone, and the others are published once",
    },
  },
  {
    name: "the marks of a batch move when a row is deleted",
    guarantee: "G28",
    file: WORK,
    find: "return ids.map((id) => byId.get(id) ?? GONE);",
    replace: "return ids.length >= 0 ? [...byId.values()] : [];",
    caughtBy: { file: POISON, test: "and the marks of a batch stay with their events" },
  },
  {
    name: "what a deleted row leaves of a batch goes under its number",
    guarantee: "G28",
    file: WORK,
    find: "if (!places.some((at) => gone.includes(at))) {",
    replace: "if (places.length >= 0) {",
    caughtBy: {
      file: POISON,
      test: "after outbox.published is left out, and everything else is stored once",
    },
  },
  {
    name: "a batch that cannot be settled is published again",
    guarantee: "G28",
    file: WORK,
    find: "await this.#keep(ledger, { ...this.#state, intent }).catch(options.onError);",
    replace: "options.onError(error);",
    caughtBy: {
      file: POISON,
      test: "a batch that cannot be settled is not published again, and is tried again after growing pauses",
    },
  },
  {
    name: "half of a surrogate pair is kept in an event",
    guarantee: "G28",
    file: "src/toolkit/outbox/adding.ts",
    find: "        : hasHalfPair(text)\n",
    replace: '        : text === "half"\n',
    caughtBy: {
      file: POISON,
      test: "half of a surrogate pair in its key is refused when it is added",
    },
  },
  {
    name: "one event that a server cannot read makes dead letters of its stream",
    guarantee: "G28",
    file: "src/toolkit/outbox/hapax-publisher.ts",
    find: "if (OF_CONTENT.has(error.code) && !isOfOne) return refused(batch, skipped);",
    replace: "if (!OF_CONTENT.has(error.code) && !isOfOne) return refused(batch, skipped);",
    caughtBy: {
      file: "test/outbox/hapax-publisher.test.ts",
      test: "an event that the server cannot read is a dead letter alone, and the others of its stream are stored",
    },
  },
  {
    name: "the signal of a relay waits for a publisher that does not listen",
    guarantee: "G28",
    file: "src/toolkit/outbox/publishing.ts",
    find: "return await unlessAborted(attempt(batch), cut);",
    replace: "return await attempt(batch);",
    caughtBy: {
      file: POISON,
      test: "the signal ends it at once, whether publishers and databases listen to it or not",
    },
  },
];
