/** Faults of the outbox by logical decoding: what would be lost, seen too early, or never deleted from the disk. */
const DECODING = "test/outbox/decoding.test.ts";
export const outboxDecodingFaults = [
  {
    name: "what the journal says is not read to its end",
    guarantee: "G28",
    file: "src/toolkit/rules/pgoutput.ts",
    find: "  if (!reader.isAtEnd) throw",
    replace: "  if (reader.isAtEnd && tag === '') throw",
    caughtBy: {
      file: "src/toolkit/rules/pgoutput.test.ts",
      test: "PU1 a message that ends too early, or goes on, is refused",
    },
  },
  {
    name: "a transaction is left out because it began before the position",
    guarantee: "G28",
    file: "src/toolkit/ledgers/postgres-decoding-changes.ts",
    find: "const END = `max(lsn) FILTER (WHERE tag = ${TAG.commit})`;",
    replace: "const END = `min(lsn)`;",
    caughtBy: {
      file: DECODING,
      test: "has the order of commits: a lower id that commits later comes later, and is not lost",
    },
  },
  {
    name: "a page ends in the middle of the transactions that it has counted",
    guarantee: "G28",
    file: "src/toolkit/ledgers/postgres-decoding.ts",
    find: "    if (to !== undefined && count > max) break;",
    replace: "    if (count > max) break;",
    caughtBy: {
      file: DECODING,
      test: "never splits a transaction: a page has at least a whole one, and no more than fit",
    },
  },
  {
    name: "messages outside of transactions, and of others, count as events",
    guarantee: "G28",
    file: "src/toolkit/ledgers/postgres-decoding-changes.ts",
    find: "AND get_byte(data, 1) & 1 = 1 AND substring(data FROM 11 FOR octet_length($7::bytea)) = $7::bytea",
    replace: "AND $7::bytea IS NOT NULL",
    caughtBy: {
      file: DECODING,
      test: "sees nothing but events: not other tables, other messages, or messages outside of transactions",
    },
  },
  {
    name: "a slot goes to the end of the journal, beyond its relay",
    guarantee: "G28",
    file: "src/toolkit/ledgers/postgres-decoding.ts",
    find: "  await advanceSlot(query, slot, lsn);",
    replace: "  await advanceSlot(query, slot, facts.flushedLsn);",
    caughtBy: {
      file: DECODING,
      test: "can read again what its position has not passed, after any number of cleanups",
    },
  },
  {
    name: "a position stays where it is while only others write",
    guarantee: "G28",
    file: "src/toolkit/ledgers/postgres-decoding.ts",
    find: "  return isFar ? { from",
    replace: "  return isFar && max < 0 ? { from",
    caughtBy: {
      file: DECODING,
      test: "releases the journal of other writes while no events are added",
    },
  },
  {
    name: "a publication without the table is not noticed",
    guarantee: "G28",
    file: "src/toolkit/ledgers/postgres-decoding.ts",
    find: "  if ((await findPublication(log)) === true) return;",
    replace: "  if ((await findPublication(log)) !== undefined || log.way !== 'messages') return;",
    caughtBy: {
      file: DECODING,
      test: "are missed by a publication without the table, which is an error",
    },
  },
  {
    name: "rows are deleted before every relay is past them",
    guarantee: "G28",
    file: "src/toolkit/ledgers/postgres-decoding.ts",
    find: "    pending.push(...page.transactions.map(({ xid }) => xid));",
    replace: "    pending.push(...page.transactions.slice(0, 0).map(({ xid }) => xid));",
    caughtBy: {
      file: DECODING,
      test: "are deleted in small parts, only when every relay is past them",
    },
  },
  {
    name: "a slot that was made anew is read as if nothing had been lost",
    guarantee: "G28",
    file: "src/toolkit/ledgers/postgres-slot.ts",
    find: "if (facts.confirmedLsn === undefined || facts.confirmedLsn > lsn) {",
    replace: "if (facts.confirmedLsn === undefined) {",
    caughtBy: {
      file: DECODING,
      test: "tells that a slot is gone, was made anew, or is of another database, and skips nothing",
    },
  },
  {
    name: "a relay fails that finds its slot in use",
    guarantee: "G28",
    file: "src/toolkit/ledgers/postgres-slot.ts",
    find: "if (codeOf(error) !== IN_USE || turn === TURNS_MAX) throw error;",
    replace: "if (codeOf(error) !== IN_USE || turn > 0) throw error;",
    caughtBy: {
      file: DECODING,
      test: "many that start and read at once share one slot, each in its turn",
    },
  },
];
