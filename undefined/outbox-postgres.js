/** Faults of the outbox on PostgreSQL: what would be lost, stand still, come twice, or in the wrong order. */
const TESTS = "test/outbox/postgres.test.ts";
const SPANS = "src/toolkit/ledgers/postgres-outbox-spans.ts";
const POSITION = "src/toolkit/ledgers/postgres-outbox-position.ts";
const ROWS = "src/toolkit/ledgers/postgres-outbox-rows.ts";
const HELD = "src/toolkit/ledgers/postgres-outbox-held.ts";
export const outboxPostgresFaults = [
  {
    name: "an event that commits late is lost",
    guarantee: "G28",
    file: SPANS,
    find: "ARRAY(SELECT pg_snapshot_xip(${last}) EXCEPT SELECT pg_snapshot_xip(${next}))",
    replace: "'{}'::xid8[]",
    caughtBy: {
      file: TESTS,
      test: "has an event whose lower id commits later, where a cursor of ids has lost it",
    },
  },
  {
    name: "the log waits for the oldest transaction",
    guarantee: "G28",
    file: POSITION,
    find: `snapshot: withoutOwn(text(row, "snapshot"), optionalText(row, "own")),`,
    replace: `snapshot: text(row, "snapshot").replace(/^(\\d+):.*$/, "$1:$1:"),`,
    caughtBy: {
      file: TESTS,
      test: "waits for no transaction, where a cursor behind the oldest one stands still",
    },
  },
  {
    name: "a span has the transaction that it was planned in",
    guarantee: "G28",
    file: POSITION,
    find: "if (own === undefined || BigInt(own) >= BigInt(xmax)) return snapshot;",
    replace: "if (own === undefined || BigInt(own) > 0n) return snapshot;",
    caughtBy: {
      file: TESTS,
      test: "leaves out the transaction that it is asked in, which may still add more",
    },
  },
  {
    name: "events come in the order of transaction ids",
    guarantee: "G28",
    file: SPANS,
    find: `  const columns = "id, topic, key, payload, headers, added_at";
  const source = isLarge ? byId(outbox, columns) : byTransaction(outbox, columns);
  return [
    \`SELECT \${EVENT_COLUMNS} FROM \${source} WHERE id > $3::text::bigint AND id <= $4::text::bigint
     ORDER BY found.id\`,`,
    replace: `  const columns = "id, topic, key, payload, headers, added_at, tx";
  const source = isLarge ? byId(outbox, columns) : byTransaction(outbox, columns);
  return [
    \`SELECT \${EVENT_COLUMNS} FROM \${source} WHERE id > $3::text::bigint AND id <= $4::text::bigint
     ORDER BY found.tx, found.id\`,`,
    caughtBy: {
      file: TESTS,
      test: "has the events of a key in order, though the later transaction got its number first",
    },
  },
  {
    name: "an old transaction makes the log look at everything again",
    guarantee: "G28",
    file: SPANS,
    find: "WHERE tx >= pg_snapshot_xmax(${last}) AND tx < pg_snapshot_xmax(${next})",
    replace:
      "WHERE tx >= pg_snapshot_xmin(${last}) AND NOT pg_visible_in_snapshot(tx, ${last}) AND tx < pg_snapshot_xmax(${next})",
    caughtBy: {
      file: TESTS,
      test: "reads a backlog in pages that cost what they contain, also behind an old transaction",
    },
  },
  {
    name: "a position of a server that was restored is taken",
    guarantee: "G28",
    file: POSITION,
    find: "if (now.isOriginal && isReached && origin",
    replace: "if ((now.isOriginal || isReached) && origin",
    caughtBy: {
      file: TESTS,
      test: "refuses a position of other transaction ids, and says what to do",
    },
  },
  {
    name: "a dump in the same cluster is taken for the original",
    guarantee: "G28",
    file: POSITION,
    find: "if (now.isOriginal && isReached",
    replace: "if ((now.isOriginal || cluster === now.server.cluster) && isReached",
    caughtBy: {
      file: "test/outbox/restore.test.ts",
      test: "G28 is noticed, and after the steps of the guide every event arrives",
    },
  },
  {
    name: "cleaning goes by ids",
    guarantee: "G28",
    file: SPANS,
    find: "OR ${seen(next)} AND id <=",
    replace: "OR id <=",
    caughtBy: {
      file: TESTS,
      test: "deletes nothing that a relay has not passed, also if its id is low",
    },
  },
  {
    name: "a claim sees what was there before it waited",
    guarantee: "G28",
    file: ROWS,
    find: `  await query("SET TRANSACTION ISOLATION LEVEL READ COMMITTED");\n`,
    replace: "",
    caughtBy: {
      file: TESTS,
      test: "gives claims that waited for each other different events, under any isolation",
    },
  },
  {
    name: "a key goes on past its held event",
    guarantee: "G28",
    file: ROWS,
    find: "SELECT key FROM ${held} WHERE relay = $1 AND",
    replace: "SELECT key FROM ${held} WHERE relay <> $1 AND",
    caughtBy: {
      file: TESTS,
      test: "leaves alone the keys of held events, and of this relay only",
    },
  },
  {
    name: "a batch that was taken over is settled",
    guarantee: "G28",
    file: ROWS,
    find: "WHERE id = $1 AND token = $2 RETURNING event_ids::text AS ids",
    replace: "WHERE id = $1 AND token >= $2 RETURNING event_ids::text AS ids",
    caughtBy: {
      file: TESTS,
      test: "does not settle a batch that is being taken over, nor renew it",
    },
  },
  {
    name: "a held event comes again as a row",
    guarantee: "G28",
    file: HELD,
    find: "if (moves && all.length > 0)",
    replace: "if (moves && all.length < 0)",
    caughtBy: {
      file: TESTS,
      test: "moves an event that is held after its batch is settled, so that it comes no more",
    },
  },
];
