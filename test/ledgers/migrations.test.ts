// The tables of a ledger: made once when many processes start, and never changed by a program that does not know them.
import { readFileSync } from "node:fs";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { GLOBAL, processOnce } from "../../src/toolkit/ledger.ts";
import { postgresLedger } from "../../src/toolkit/ledgers/postgres.ts";
import { ledgerSchema, sqliteLedger } from "../../src/toolkit/ledgers/sqlite.ts";
import { startPostgres, type TestPostgres, whyNoPostgres } from "../databases/postgres.ts";
import { ABSENT, CLAIM, connect, endings, newFile, placeOf, tablesOf } from "./kit.ts";

const PAGE = readFileSync(new URL("../../docs/formats/ledger.md", import.meta.url), "utf8");

/** As version 1 made them first: with row ids, and without an index for what is due. The outbox has not changed. */
const EARLIER = [
  `CREATE TABLE hapax_migrations (
  part TEXT NOT NULL,
  version INTEGER NOT NULL,
  applied_at INTEGER NOT NULL,
  PRIMARY KEY (part, version)
)`,
  `CREATE TABLE hapax_entries (
  kind TEXT NOT NULL,
  scope TEXT NOT NULL,
  key TEXT NOT NULL,
  token INTEGER NOT NULL,
  revision INTEGER NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('running', 'done', 'failed', 'released')),
  attempts INTEGER NOT NULL,
  lease_until INTEGER,
  lease_ms INTEGER,
  expires_at INTEGER,
  made_at INTEGER NOT NULL,
  fingerprint TEXT,
  data BLOB,
  PRIMARY KEY (kind, scope, key)
)`,
  `CREATE INDEX hapax_entries_expiry ON hapax_entries (expires_at) WHERE expires_at IS NOT NULL`,
  `CREATE INDEX hapax_entries_open ON hapax_entries (kind, state, made_at)
  WHERE state = 'running' OR state = 'released'`,
  `CREATE TABLE hapax_tokens (id INTEGER PRIMARY KEY CHECK (id = 1), last INTEGER NOT NULL)`,
  `INSERT INTO hapax_tokens (id, last) VALUES (1, 900)`,
  ...ledgerSchema("sqlite").filter((sql) => /TABLE.* hapax_outbox|ON hapax_outbox/.test(sql)),
  `INSERT INTO hapax_migrations VALUES ('entries', 1, 0), ('outbox', 1, 0)`,
];
/** Version 2, still with row ids. */
const EARLIER_DUE = [
  `CREATE INDEX hapax_entries_due ON hapax_entries (kind, lease_until) WHERE state = 'running'`,
  `INSERT INTO hapax_migrations VALUES ('entries', 2, 0)`,
];
/** Of each state, and with each column once empty and once not. Leases and retention that are over, and that are not. */
const [PAST, COMING] = [1_000, 9_000_000_000_000];
const EARLIER_ENTRIES = `INSERT INTO hapax_entries VALUES
  ('once', '${GLOBAL}', 'done', 1, 2, 'done', 1, NULL, NULL, ${COMING}, ${PAST}, 'f', CAST('"kept"' AS BLOB)),
  ('once', '${GLOBAL}', 'failed', 2, 2, 'failed', 3, NULL, NULL, ${COMING}, ${PAST}, NULL, NULL),
  ('once', '${GLOBAL}', 'released', 3, 2, 'released', 1, NULL, NULL, ${COMING}, ${PAST}, NULL, NULL),
  ('once', '${GLOBAL}', 'running', 4, 1, 'running', 1, ${COMING}, ${COMING}, ${COMING}, ${PAST}, NULL, NULL),
  ('once', '${GLOBAL}', 'lost', 900, 7, 'running', 1, ${PAST}, 500, ${COMING}, ${PAST}, NULL, x'00ff'),
  ('once', '${GLOBAL}', 'old', 5, 2, 'done', 1, NULL, NULL, ${PAST}, ${PAST}, NULL, NULL),
  ('pipeline', 'p', '/v1/stream/in', 6, 1, 'done', 1, NULL, NULL, NULL, ${PAST}, NULL, x'7b7d')`;

describe("migrations of a ledger in SQLite", () => {
  test.each([
    ["1", EARLIER],
    ["2, with row ids", [...EARLIER, ...EARLIER_DUE]],
  ])(
    "LG7 tables of version %s keep every entry, and work as new ones do",
    async (_, statements) => {
      const [connection, fresh] = [connect(newFile()), connect(newFile())];
      for (const sql of [...statements, EARLIER_ENTRIES]) connection.exec(sql);
      const rows = (): unknown =>
        connection.prepare("SELECT * FROM hapax_entries ORDER BY key").all();
      const before = rows();
      expect(before).toHaveLength(7);
      const ledger = sqliteLedger(() => connection);
      await ledger.migrate();
      expect(rows()).toEqual(before);
      await sqliteLedger(() => fresh).migrate();
      // Beside row ids SQLite itself keeps an index of the key.
      const names = `SELECT type, name FROM sqlite_master
      WHERE name <> 'sqlite_autoindex_hapax_entries_1' ORDER BY name`;
      const madeIn = (database: typeof connection): unknown => [
        database.prepare(names).all(),
        database.prepare("SELECT part, version FROM hapax_migrations ORDER BY part, version").all(),
      ];
      expect(madeIn(connection)).toEqual(madeIn(fresh));

      const call = (key: string) => processOnce(ledger, { scope: GLOBAL, key }, () => "new");
      const { entries } = ledger;
      expect(await entries.nextDue(["once"])).toBeLessThanOrEqual(0);
      const due = await entries.scan({ kind: "once", state: "running", order: "due", max: 9 });
      expect(due.map(({ place }) => place.key)).toEqual(["lost", "running"]);
      expect(await entries.sweep(9)).toBe(1);
      expect(await call("done")).toMatchObject({ result: "kept", isDuplicate: true, token: 1 });
      await expect(call("running")).rejects.toMatchObject({ code: "in_progress" });
      for (const key of ["lost", "released", "old", "another"]) {
        const { result, token } = await call(key);
        expect([result, token > 900]).toEqual(["new", true]);
      }
      expect(
        (await entries.find({ kind: "pipeline", scope: "p", key: "/v1/stream/in" }))?.data,
      ).toEqual(new Uint8Array([0x7b, 0x7d]));
    },
  );

  test("LG7 twenty that begin at once on an empty database make the tables once", async () => {
    const file = newFile();
    const ledgers = Array.from({ length: 20 }, () => sqliteLedger(() => connect(file)));
    await Promise.all(ledgers.map((ledger) => ledger.migrate()));
    const tokens = new Set<number | undefined>();
    for (const [index, { entries }] of ledgers.entries())
      tokens.add((await entries.put(placeOf(`${index}`), ABSENT, CLAIM))?.token);
    expect(tokens.size).toBe(20);
  });

  test("a step that fails leaves nothing behind, and can be done later", async () => {
    const connection = connect(newFile());
    const ledger = sqliteLedger(() => connection);
    connection.exec("CREATE TABLE hapax_outbox_held (mine TEXT)");
    const before = tablesOf(connection);
    await expect(ledger.migrate()).rejects.toThrow();
    expect(tablesOf(connection)).toEqual(before);
    connection.exec("DROP TABLE hapax_outbox_held");
    await ledger.migrate();
    expect(await ledger.entries.put(placeOf("a"), ABSENT, CLAIM)).toBeDefined();
  });

  test("LG7 tables of a newer version are refused and left alone", async () => {
    const connection = connect(newFile());
    const ledger = sqliteLedger(() => connection);
    connection.exec(
      "CREATE TABLE hapax_migrations (part TEXT, version INTEGER, applied_at INTEGER)",
    );
    connection.exec("INSERT INTO hapax_migrations VALUES ('outbox', 99, 0), ('later', 7, 0)");
    const before = tablesOf(connection);
    await expect(ledger.migrate()).rejects.toMatchObject({ code: "schema_newer" });
    expect(tablesOf(connection)).toEqual(before);
  });

  test("the schema by hand is that of migrate", async () => {
    const [byHand, bySelf] = [connect(newFile()), connect(newFile())];
    for (const sql of ledgerSchema("sqlite")) byHand.exec(sql);
    await sqliteLedger(() => bySelf).migrate();
    expect(tablesOf(byHand)).toEqual(tablesOf(bySelf));
    await sqliteLedger(() => byHand).migrate();
    const versions = "SELECT part, version FROM hapax_migrations ORDER BY part, version";
    expect(byHand.prepare(versions).all()).toEqual(bySelf.prepare(versions).all());
  });

  test("the page of the format names every table and every column", async () => {
    const connection = connect(newFile());
    await sqliteLedger(() => connection).migrate();
    const rows = connection
      .prepare(
        `SELECT m.name AS "table", c.name AS "column" FROM sqlite_master m, pragma_table_info(m.name) c
         WHERE m.type = 'table' AND m.name LIKE 'hapax%'`,
      )
      .all() as readonly { readonly table: string; readonly column: string }[];
    expect(rows.length).toBeGreaterThan(20);
    for (const { table, column } of rows)
      expect([PAGE.includes(`\`${table}\``), PAGE.includes(`\`${column}\``), column]).toEqual([
        true,
        true,
        column,
      ]);
  });
});

const reason = whyNoPostgres();
if (reason !== undefined && process.env["CI"] === "true") throw new Error(reason);
if (reason !== undefined) console.log(`skipped: migrations on PostgreSQL: ${reason}`);

describe.skipIf(reason !== undefined)("migrations of a ledger in PostgreSQL", () => {
  let server: TestPostgres;
  beforeAll(async () => {
    server = await startPostgres();
  }, 60_000);
  afterAll(async () => {
    await server.stop();
  });

  const newPool = (max = 4): pg.Pool => {
    const pool = new pg.Pool({ host: server.host, user: "postgres", database: "postgres", max });
    pool.on("error", () => undefined);
    endings.push(() => pool.end());
    return pool;
  };

  const shapeOf = async (schema: string): Promise<unknown> => {
    const { rows } = await server.pool.query(
      `SELECT table_name, column_name, data_type, is_nullable, column_default, collation_name
       FROM information_schema.columns WHERE table_schema = $1 ORDER BY table_name, column_name`,
      [schema],
    );
    const { rows: indexes } = await server.pool.query<{ text: string }>(
      "SELECT indexdef AS text FROM pg_indexes WHERE schemaname = $1 ORDER BY indexname",
      [schema],
    );
    return JSON.parse(JSON.stringify([rows, indexes]).replaceAll(`${schema}.`, ""));
  };

  test("LG7 twenty that begin at once on an empty schema make the tables once", async () => {
    const ledgers = Array.from({ length: 20 }, () =>
      postgresLedger<pg.PoolClient>(newPool(1), { schema: "twenty" }),
    );
    await Promise.all(ledgers.map((ledger) => ledger.migrate()));
    const { rows } = await server.pool.query(
      "SELECT part, count(*)::int AS count FROM twenty.hapax_migrations GROUP BY part, version",
    );
    expect(rows).toEqual(
      expect.arrayContaining([
        { part: "entries", count: 1 },
        { part: "outbox", count: 1 },
      ]),
    );
    const [first, second] = ledgers;
    const place = placeOf("a");
    expect(await first?.entries.put(place, ABSENT, CLAIM)).toMatchObject({ revision: 1 });
    expect(await second?.entries.find(place)).toBeDefined();
    const other = postgresLedger<pg.PoolClient>(newPool(), { schema: "twenty-one" });
    await other.migrate();
    expect(await other.entries.find(place)).toBeUndefined();
  });

  test("a step that fails leaves nothing behind, and can be done later", async () => {
    await server.pool.query("CREATE SCHEMA half; CREATE VIEW half.hapax_outbox AS SELECT 1 AS one");
    const before = await shapeOf("half");
    const ledger = postgresLedger<pg.PoolClient>(newPool(), { schema: "half" });
    await expect(ledger.migrate()).rejects.toThrow("hapax_outbox");
    expect(await shapeOf("half")).toEqual(before);
    await server.pool.query("DROP VIEW half.hapax_outbox");
    await ledger.migrate();
    expect(await ledger.entries.put(placeOf("a"), ABSENT, CLAIM)).toBeDefined();
  });

  test("LG7 tables of version 3 keep every entry, and get the indexes of new ones", async () => {
    const ledger = postgresLedger<pg.PoolClient>(newPool(), { schema: "third" });
    await ledger.migrate();
    // As they were: an index for what has failed, and conditions on all.
    await server.pool.query(`SET search_path TO third;
      DROP INDEX hapax_entries_expiry, hapax_entries_open;
      CREATE INDEX hapax_entries_expiry ON hapax_entries (expires_at) WHERE expires_at IS NOT NULL;
      CREATE INDEX hapax_entries_open ON hapax_entries (kind, state, made_at)
        WHERE state = 'running' OR state = 'released';
      CREATE INDEX hapax_entries_failed ON hapax_entries (kind, state, made_at) WHERE state = 'failed';
      DELETE FROM hapax_migrations WHERE part = 'entries' AND version > 3;
      RESET search_path`);
    await ledger.entries.put(placeOf("a"), ABSENT, CLAIM);
    const before = await ledger.entries.find(placeOf("a"));
    await ledger.migrate();
    await postgresLedger<pg.PoolClient>(newPool(), { schema: "fresh" }).migrate();
    expect(await shapeOf("third")).toEqual(await shapeOf("fresh"));
    expect(await ledger.entries.find(placeOf("a"))).toMatchObject({
      token: before?.token,
      state: "running",
    });
  });

  test("an entry that is done has one index beside its key, and looks at the conditions of two", async () => {
    await postgresLedger<pg.PoolClient>(newPool(), { schema: "few" }).migrate();
    const { rows } = await server.pool.query<{ name: string; condition: string | null }>(
      `SELECT indexrelid::regclass::text AS name, pg_get_expr(indpred, indrelid) AS condition
       FROM pg_index WHERE indrelid = 'few.hapax_entries'::regclass ORDER BY 1`,
    );
    expect(rows).toEqual([
      { name: "few.hapax_entries_due", condition: "(state = 'running'::text)" },
      { name: "few.hapax_entries_expiry", condition: null },
      { name: "few.hapax_entries_open", condition: "(state <> 'done'::text)" },
      { name: "few.hapax_entries_pkey", condition: null },
    ]);
  });

  test("LG7 tables of a newer version are refused and left alone", async () => {
    await server.pool.query(`CREATE SCHEMA newer;
      CREATE TABLE newer.hapax_migrations (part text, version integer, applied_at timestamptz);
      INSERT INTO newer.hapax_migrations VALUES ('entries', 99, now()), ('later', 7, now())`);
    const before = await shapeOf("newer");
    const ledger = postgresLedger<pg.PoolClient>(newPool(), { schema: "newer" });
    await expect(ledger.migrate()).rejects.toMatchObject({ code: "schema_newer" });
    expect(await shapeOf("newer")).toEqual(before);
  });

  test("the schema by hand is that of migrate, and the search path stays as it was", async () => {
    const pool = newPool();
    const hand = await pool.connect();
    await hand.query("BEGIN");
    await hand.query("CREATE SCHEMA byhand; SET LOCAL search_path TO byhand");
    for (const sql of ledgerSchema("postgres")) await hand.query(sql);
    await hand.query("COMMIT");
    hand.release();
    const ledger = postgresLedger<pg.PoolClient>(pool, { schema: "byself" });
    await ledger.transaction(async (tx) => {
      await tx.query("SET LOCAL search_path TO byhand, public");
      await ledger.in(tx).migrate();
      const { rows } = await tx.query("SHOW search_path");
      expect(rows).toEqual([{ search_path: "byhand, public" }]);
    });
    expect(await shapeOf("byhand")).toEqual(await shapeOf("byself"));
    await postgresLedger<pg.PoolClient>(pool, { schema: "byhand" }).migrate();
    const { rows } = await pool.query(
      "SELECT part, version FROM byhand.hapax_migrations EXCEPT SELECT part, version FROM byself.hapax_migrations",
    );
    expect(rows).toEqual([]);
  });

  test("the page of the format names every table and every column", async () => {
    await postgresLedger<pg.PoolClient>(newPool(), { schema: "page" }).migrate();
    const { rows } = await server.pool.query<{ table: string; column: string }>(
      `SELECT table_name AS table, column_name AS column FROM information_schema.columns
       WHERE table_schema = 'page'
       UNION ALL SELECT sequence_name, sequence_name FROM information_schema.sequences
       WHERE sequence_schema = 'page' AND sequence_name NOT LIKE '%_id_seq'`,
    );
    expect(rows.length).toBeGreaterThan(30);
    for (const { table, column } of rows)
      expect([PAGE.includes(`\`${table}\``), PAGE.includes(`\`${column}\``), column]).toEqual([
        true,
        true,
        column,
      ]);
  });
});
