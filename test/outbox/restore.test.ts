// A dump that is restored into the same cluster: the relay says so, and the steps of the guide lose nothing.
import { readFileSync } from "node:fs";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Ledger } from "../../src/toolkit/ledgers/ledger.ts";
import { postgresLedger } from "../../src/toolkit/ledgers/postgres.ts";
import { sqliteLedger } from "../../src/toolkit/ledgers/sqlite.ts";
import { createOutbox, createRelay, forgetRelay } from "../../src/toolkit/outbox.ts";
import { hapaxPublisher } from "../../src/toolkit/outbox/hapax-publisher.ts";
import { startPostgres, type TestPostgres, whyNoPostgres } from "../databases/postgres.ts";
import { connect, newFile } from "../ledgers/kit.ts";
import { openStage } from "../processing/stage.ts";

const reason = whyNoPostgres();
if (reason !== undefined && process.env["CI"] === "true") throw new Error(reason);
if (reason !== undefined) console.log(`skipped: a restored dump of PostgreSQL: ${reason}`);

const STREAM = "/v1/stream/x";

async function add<Tx>(ledger: Ledger<Tx>, texts: readonly string[]): Promise<void> {
  const outbox = createOutbox(ledger);
  for (const text of texts)
    await ledger.transaction((tx) => outbox.add(tx, { topic: "x", payload: text }));
}

const numbered = (name: string) => Array.from({ length: 10 }, (_, index) => `${name} ${index}`);

interface Row {
  readonly name: string;
}

/** What pg_dump writes: the rows of every table as they are, and where the sequences stand. */
async function dump(from: pg.Pool): Promise<readonly string[]> {
  const statements: string[] = [];
  const tables = await from.query<Row>(
    "SELECT relname AS name FROM pg_class WHERE relname LIKE 'hapax%' AND relkind = 'r'",
  );
  for (const { name } of tables.rows) {
    const { rows } = await from.query<{ row: string }>(
      `SELECT quote_literal(${name}::text) AS row FROM ${name}`,
    );
    statements.push(
      `DELETE FROM ${name}`,
      ...rows.map(
        ({ row }) => `INSERT INTO ${name} OVERRIDING SYSTEM VALUE SELECT (${row}::${name}).*`,
      ),
    );
  }
  const sequences = await from.query<Row>(
    "SELECT relname AS name FROM pg_class WHERE relname LIKE 'hapax%' AND relkind = 'S'",
  );
  for (const { name } of sequences.rows) {
    const { rows } = await from.query<{ at: string; isCalled: boolean }>(
      `SELECT last_value::text AS at, is_called AS "isCalled" FROM ${name}`,
    );
    const [{ at, isCalled } = { at: "1", isCalled: false }] = rows;
    statements.push(`SELECT setval('${name}', ${at}, ${isCalled})`);
  }
  return statements;
}

/** The statements in the section of the guide, as a person copies them. */
function guideStatements(database: "PostgreSQL" | "SQLite"): readonly string[] {
  const guide = readFileSync(new URL("../../docs/guides/outbox.md", import.meta.url), "utf8");
  const section = guide.split("## After a restore from a backup")[1]?.split("\n## ")[0] ?? "";
  const behind = section.split(`Step 2 on ${database}:`)[1] ?? "";
  const block = /```text[^\n]*\n([\s\S]*?)```/.exec(behind)?.[1] ?? "";
  return block
    .split(";")
    .map((text) => text.trim())
    .filter((text) => text !== "");
}

test("the steps of the guide for SQLite move ids on", async () => {
  const connection = connect(newFile());
  using ledger = sqliteLedger(() => connection);
  await ledger.migrate();
  await add(ledger, ["old"]);
  const statements = guideStatements("SQLite");
  expect(statements).toHaveLength(1);
  for (const statement of statements) connection.exec(statement);
  await add(ledger, ["new"]);
  const ids = connection.prepare("SELECT id FROM hapax_outbox ORDER BY id").all() as {
    id: number;
  }[];
  expect(ids.map(({ id }) => id)).toEqual([1, 1_000_002]);
});

describe.skipIf(reason !== undefined)("a dump that is restored into the same cluster", () => {
  let server: TestPostgres;
  let restored: pg.Pool;
  beforeAll(async () => {
    server = await startPostgres();
    await server.pool.query("CREATE DATABASE restored");
    restored = new pg.Pool({ host: server.host, user: "postgres", database: "restored", max: 4 });
    restored.on("error", () => undefined); // Idle connections end when the server does.
  });
  afterAll(async () => {
    await restored.end();
    await server.stop();
  });

  test("G28 is noticed, and after the steps of the guide every event arrives", async () => {
    const stage = await openStage();
    const stream = stage.direct.stream(STREAM);
    await stream.create();
    const publisher = hapaxPublisher({
      url: stage.proxy.url,
      streamOf: () => STREAM,
      hasEnvelope: false,
    });
    const relayOf = (ledger: Ledger<pg.PoolClient>, name = "relay") =>
      createRelay(ledger, publisher, { name, from: "beginning", cleanup: { keepMs: 0 } });
    const [original, copy] = [postgresLedger(server.pool), postgresLedger(restored)];
    await original.migrate();
    await add(original, numbered("before"));
    await relayOf(original).runOnce();
    const dumped = await dump(server.pool);
    // After the backup the relay goes on, under numbers that the restored one would use again.
    await add(original, numbered("after"));
    await relayOf(original).runOnce();

    await copy.migrate();
    const client = await restored.connect();
    await client.query("BEGIN");
    for (const statement of dumped) await client.query(statement);
    await client.query("COMMIT");
    client.release();
    await add(copy, numbered("new"));
    const refused = relayOf(copy).runOnce();
    await expect(refused).rejects.toMatchObject({
      code: "position_lost",
      message: expect.stringContaining("DELETE FROM hapax_outbox_origin"),
    });

    const statements = guideStatements("PostgreSQL");
    expect(statements).toHaveLength(1);
    for (const statement of statements) await restored.query(statement);
    await restored.query("DELETE FROM hapax_outbox_origin");
    await forgetRelay(copy, "relay");
    await add(copy, numbered("newer"));
    await relayOf(copy).runOnce();
    const seen: string[] = [];
    for await (const { value } of stream.read()) seen.push(String(value));
    const expected = ["new", "newer"].flatMap((name) => numbered(name));
    expect(seen.filter((text) => text.startsWith("new"))).toEqual(expected);
    // Ids go on beyond all that were given after the backup.
    const { rows } = await restored.query<{ id: string }>(
      "SELECT nextval(pg_get_serial_sequence('hapax_outbox', 'id'))::text AS id",
    );
    expect(Number(rows[0]?.id)).toBeGreaterThan(1_000_000);
  });
});
