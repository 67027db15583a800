/** Faults of transactions and groups: what would be half done, done twice, or done by those who may not any more. */
const GROUP = "src/streams/core/group.test.ts";
const OPERATIONS = "src/streams/core/transaction.test.ts";
const ENGINE = "src/streams/engine/transactions.test.ts";
export const transactionFaults = [
  {
    name: "the token of a commit is not checked",
    guarantee: "G22",
    file: "src/streams/core/group-decide.ts",
    find: "return cursor?.holder === member && cursor.token === token ? cursor : undefined;",
    replace: "return cursor?.holder === member && token > 0 ? cursor : undefined;",
    caughtBy: {
      file: GROUP,
      test: "GD4 that holds a stream again holds it by the new token only",
    },
  },
  {
    name: "the holder of a commit is not checked",
    guarantee: "G22",
    file: "src/streams/core/group-decide.ts",
    find: "return cursor?.holder === member && cursor.token === token ? cursor : undefined;",
    replace: "return member !== '' && cursor?.token === token ? cursor : undefined;",
    caughtBy: {
      file: GROUP,
      test: "GD4 GD5 leaves every lease but the current ones without effect, whenever it is used again",
    },
  },
  {
    name: "tokens begin anew with a group",
    guarantee: "G22",
    file: "src/streams/core/group.ts",
    find: `      book.byId.delete(change.group);
      book.globs.delete(change.group);`,
    replace: `      book.byId.delete(change.group);
      book.globs.delete(change.group);
      book.nextToken = 1;`,
    caughtBy: {
      file: GROUP,
      test: "of a group that was deleted and made again is refused: its tokens were never given before",
    },
  },
  {
    name: "a committed offset may go back",
    guarantee: "G22",
    file: "src/streams/core/group-decide.ts",
    find: `    if (offset < cursor.offset) return { kind: "offset_regressed", stream, offset: cursor.offset };\n`,
    replace: "",
    caughtBy: {
      file: GROUP,
      test: "moves its offset on, and neither back nor beyond the tail",
    },
  },
  {
    name: "the offset of a deleted stream is held against the next one",
    guarantee: "G22",
    file: "src/streams/core/group.ts",
    find: "    group.cursors.delete(stream);\n  }",
    replace: "  }",
    caughtBy: {
      file: GROUP,
      test: "that was deleted and made again begins anew, and its old lease is worth nothing",
    },
  },
  {
    name: "a stream is taken from its holder at once when it is asked back",
    guarantee: "G22",
    file: "src/streams/core/group-decide.ts",
    find: "if (askedUntilMs !== undefined && askedUntilMs <= atMs) yield stream;",
    replace: "if (askedUntilMs !== undefined && askedUntilMs > 0 && atMs > 0) yield stream;",
    caughtBy: {
      file: GROUP,
      test: "GD2 that is asked for a stream keeps it for its time, and then loses it without being lost itself",
    },
  },
  {
    name: "a member that has gone without a word keeps its streams",
    guarantee: "G22",
    file: "src/streams/core/group-decide.ts",
    find: "if (other.id !== id && other.expiresAtMs <= atMs) dropped.push(other.id);\n    else if",
    replace: "if",
    caughtBy: {
      file: GROUP,
      test: "GD2 that has not called for its time loses its streams to the next one that claims",
    },
  },
  {
    name: "a transaction that is refused has done what stood before",
    guarantee: "G21",
    file: "src/streams/engine/transactions.ts",
    find: `    const decision = decideOperations(this.#world, command.operations, scene);`,
    replace: `    for (const one of command.operations) {
      const alone = decideOperations(this.#world, [one], scene);
      if (alone.kind === "refused") return this.#writer.settled().then(() => alone);
      for (const step of alone.steps) this.#stage(this.#writer.begin(), step);
    }
    const decision = decideOperations(this.#world, [], scene);`,
    caughtBy: {
      file: ENGINE,
      test: "that was refused has changed nothing, and its identity is free",
    },
  },
  {
    name: "the identity of a transaction is stored after its work",
    guarantee: "G21",
    file: "src/streams/engine/transactions.ts",
    find: `    this.#stageLog(batch, log, { ...change, data: encodeOutcomes(operations) });`,
    replace: `    void batch.done.then(() => {
      const data = encodeOutcomes(operations);
      this.#stageLog(this.#writer.begin(), log, { ...change, data });
    });`,
    caughtBy: { file: ENGINE, test: "is one commit of the store" },
  },
  {
    name: "an expected tail is only the least that it may be",
    guarantee: "G21",
    file: "src/streams/core/transaction.ts",
    find: "return tail === expectation.offset ? undefined :",
    replace: "return tail >= Number(expectation.offset) ? undefined :",
    caughtBy: {
      file: OPERATIONS,
      test: "TX2 are about the state before, wherever they stand",
    },
  },
  {
    name: "the retry of a transaction is not recognised",
    guarantee: "G21",
    file: "src/streams/engine/transactions.ts",
    find: `    this.#stageLog(batch, log, { ...change, data: encodeOutcomes(operations) });`,
    replace: `    this.#stageLog(batch, log, {
      ...change,
      producer: undefined,
      key: undefined,
      data: encodeOutcomes(operations),
    });`,
    caughtBy: {
      file: ENGINE,
      test: "is answered as the original was, also after other changes",
    },
  },
  {
    name: "the offset of a transaction is committed though its lease is lost",
    guarantee: "G21",
    file: "src/streams/core/transaction.ts",
    find: `    if (decision.kind !== "committed") return decision;
    return { kind: "group", changes: [decision.change] };`,
    replace: `    if (decision.kind !== "committed") return { kind: "nothing" };
    return { kind: "group", changes: [decision.change] };`,
    caughtBy: {
      file: OPERATIONS,
      test: "TX4 an offset is committed with its lease only, and with the rest",
    },
  },
  {
    name: "a cursor is moved twice in one transaction",
    guarantee: "G21",
    file: "src/streams/core/transaction.ts",
    find: `    if (!this.#isFirst(\`group \${lease.group} \${stream}\`)) return { kind: "named_twice" };\n`,
    replace: "",
    caughtBy: { file: OPERATIONS, test: "TX5 a cursor is moved by one operation only" },
  },
];
