// `hapax verify --store`: every damage is found, and nothing else, while a server writes. docs/formats/postgres.md
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { StoreProblem } from "../../src/streams/stores/journal/problem.ts";
import { openOneConnection } from "../../src/streams/stores/postgres/hosts.ts";
import { verifyTables } from "../../src/streams/stores/postgres/verification.ts";
import { appended, created, pattern, write } from "../../src/testing/store-case-kit.ts";
import { startPostgres, type TestPostgres, whyNoPostgres } from "../databases/postgres.ts";
import { hapax, type Result } from "../kits/cli-harness.ts";
import { freshSchema, openOnPool } from "./kit.ts";

const reason = whyNoPostgres();
const IS_LONG = process.env["HAPAX_LONG"] === "1";
if (reason !== undefined) console.log(`databases are not verified: ${reason}`);

interface Found {
  readonly kind: string;
  readonly file: string;
  readonly offset: number;
  readonly what: string;
  readonly meaning: string;
  readonly stopsServer: boolean;
}

function problemsIn({ stdout }: Result): readonly Found[] {
  const lines = stdout.trimEnd().split("\n");
  return lines
    .map((line) => (JSON.parse(line) as { problem?: Found }).problem)
    .filter((problem) => problem !== undefined);
}

describe.skipIf(reason !== undefined)("hapax verify --store", () => {
  let server: TestPostgres;

  beforeAll(async () => {
    server = await startPostgres();
  });

  afterAll(async () => {
    await server.stop();
  });

  const urlOf = (): string => `postgres://postgres@${encodeURIComponent(server.host)}/postgres`;

  const verify = (schema: string): Promise<Result> => {
    return hapax(["verify", "--store", urlOf(), "--schema", schema, "--json"]);
  };

  /** Two snapshots, three segments, a frame of two rows, and frames behind the newest snapshot. */
  const fill = async (schema: string): Promise<void> => {
    const store = await openOnPool(server.pool, { schema, segmentBytes: 1 << 15 });
    await write(store, created(1), created(2));
    for (let count = 0; count < 6; count += 1) {
      await write(store, appended(1, pattern(9000, count)));
      if (count % 2 === 1) await store.maintain();
    }
    await write(store, appended(2, pattern(1_100_000, 2)));
    await write(store, appended(1, "the last one"));
    await store.close();
  };

  test("G100 tables that a server writes to meanwhile are sound, and stay as they are", async () => {
    const schema = freshSchema();
    const store = await openOnPool(server.pool, { schema, snapshotBytes: 1 << 16 });
    await write(store, created(1));
    let isDone = false;
    let written = 0;
    const writing = (async () => {
      for (let at = 0; !isDone; at += 5000) {
        await write(store, appended(1, pattern(5000, at)));
        written += 1;
      }
    })();
    for (let count = 0; count < 4; count += 1) {
      const result = await verify(schema);
      expect(result).toMatchObject({ code: 0, stderr: "" });
      expect(JSON.parse(result.stdout)).toMatchObject({ isSound: true, problems: 0, streams: 1 });
    }
    isDone = true;
    await writing;
    expect(written).toBeGreaterThan(4);
    expect(store.stats().epoch).toBe(1);
    await store.close();
  });

  test("G100 of a cluster every shard is verified, and a problem names its shard", async () => {
    const schema = freshSchema();
    await fill(schema);
    const run = (text: string) => server.pool.query<{ number: number }>(text);
    // What the one shard has becomes the second one of two.
    const { rows: segments } = await run(`SELECT number FROM ${schema}.hapax_segment`);
    const moves = segments.map(
      ({ number }) => `ALTER TABLE ${schema}.hapax_seg_0_${number} RENAME TO hapax_seg_1_${number}`,
    );
    const tables = ["hapax_segment", "hapax_image", "hapax_image_part", "hapax_shard"];
    const shards = tables.map((table) => `UPDATE ${schema}.${table} SET shard = 1`);
    await run(`UPDATE ${schema}.hapax_cluster SET shards = 2; ${[...moves, ...shards].join("; ")};
      INSERT INTO ${schema}.hapax_shard (shard, epoch) VALUES (0, 0)`);
    const sound = await verify(schema);
    expect(sound).toMatchObject({ code: 0, stderr: "" });
    const { segments: count, streams } = JSON.parse(sound.stdout) as Record<string, number>;
    expect(count).toBe(segments.length);
    expect(streams).toBeGreaterThan(0);
    const table = `${schema}.hapax_seg_1_${segments.at(-1)?.number}`;
    await run(`UPDATE ${table} SET frame = set_byte(frame, 8, get_byte(frame, 8) # 1)`);
    const session = await openOneConnection(urlOf());
    const found: StoreProblem[] = [];
    const onProblem = async (problem: StoreProblem): Promise<void> => void found.push(problem);
    await verifyTables(session, `"${schema}"`, { onProblem, onProgress: async () => undefined });
    await session.close();
    expect(found.length).toBeGreaterThan(0);
    for (const { file } of found) expect(file).toMatch(/^shard 1: /);
  });

  test("G100 every row that is changed, moved or missing is a problem with its table and place", async () => {
    const schema = freshSchema();
    await fill(schema);
    const run = (text: string) => server.pool.query<{ number: number }>(text);
    const session = await openOneConnection(urlOf());
    const look = async (): Promise<StoreProblem[]> => {
      const found: StoreProblem[] = [];
      const onProblem = async (problem: StoreProblem): Promise<void> => void found.push(problem);
      await verifyTables(session, `"${schema}"`, { onProblem, onProgress: async () => undefined });
      return found;
    };
    expect(await look()).toEqual([]);
    const { rows: segments } = await run(`SELECT number FROM ${schema}.hapax_segment`);
    expect(segments.length).toBeGreaterThan(2);
    /** What is done, and what takes it back. */
    const harms: [string, string][] = [];
    const both = (text: string): void => void harms.push([text, text]);
    for (const { number } of segments) {
      const table = `${schema}.hapax_seg_0_${number}`;
      const { rows } = await run(`SELECT position FROM ${table}`);
      for (const { position } of rows as unknown as { position: string }[]) {
        const here = `WHERE position = ${position}`;
        for (const at of [8, 39]) {
          both(
            `UPDATE ${table} SET frame = set_byte(frame, ${at}, get_byte(frame, ${at}) # 1) ${here}`,
          );
        }
        const kept = `${schema}.kept`;
        harms.push(
          [
            `CREATE TABLE ${kept} AS SELECT * FROM ${table} ${here}; DELETE FROM ${table} ${here}`,
            `INSERT INTO ${table} SELECT * FROM ${kept}; DROP TABLE ${kept}`,
          ],
          [
            `UPDATE ${table} SET position = position + 3 ${here}`,
            `UPDATE ${table} SET position = position - 3 WHERE position = ${position} + 3`,
          ],
          [
            `UPDATE ${table} SET lsn = lsn + 1 ${here}`,
            `UPDATE ${table} SET lsn = lsn - 1 ${here}`,
          ],
        );
      }
      const named = `WHERE number = ${number}`;
      for (const column of ["salt", "first_lsn", "crc_before"]) {
        harms.push([
          `UPDATE ${schema}.hapax_segment SET ${column} = ${column} + 1 ${named}`,
          `UPDATE ${schema}.hapax_segment SET ${column} = ${column} - 1 ${named}`,
        ]);
      }
      harms.push([
        `ALTER TABLE ${table} RENAME TO gone`,
        `ALTER TABLE ${schema}.gone RENAME TO hapax_seg_0_${number}`,
      ]);
    }
    const { rows: parts } = await run(`SELECT lsn FROM ${schema}.hapax_image`);
    for (const { lsn } of parts as unknown as { lsn: string }[]) {
      const part = `${schema}.hapax_image_part`;
      both(
        `UPDATE ${part} SET block = set_byte(block, 90, get_byte(block, 90) # 1) WHERE lsn = ${lsn}`,
      );
      harms.push([
        `UPDATE ${part} SET part = part + 9 WHERE lsn = ${lsn}`,
        `UPDATE ${part} SET part = part - 9 WHERE lsn = ${lsn}`,
      ]);
    }
    harms.push(
      [
        `UPDATE ${schema}.hapax_shard SET released_lsn = released_lsn + 1`,
        `UPDATE ${schema}.hapax_shard SET released_lsn = released_lsn - 1`,
      ],
      [
        `UPDATE ${schema}.hapax_shard SET released_crc = released_crc # 1`,
        `UPDATE ${schema}.hapax_shard SET released_crc = released_crc # 1`,
      ],
    );
    const chosen = harms.filter((_, at) => IS_LONG || at % 3 === 0);
    for (const [harm, cure] of chosen) {
      await run(harm);
      const problems = await look();
      expect({ harm, isFound: problems.length > 0 }).toEqual({ harm, isFound: true });
      await run(cure);
    }
    expect(await look()).toEqual([]);
    await session.close();
  }, 120_000);

  test("damage says what it costs: data that cannot be read, or a start that is refused", async () => {
    const schema = freshSchema();
    await fill(schema);
    const flip = (number: number, which: string, bytesMin: number) =>
      server.pool.query(
        `UPDATE ${schema}.hapax_seg_0_${number} SET frame = set_byte(frame, 60, get_byte(frame, 60) # 1)
          WHERE position = (SELECT ${which}(position) FROM ${schema}.hapax_seg_0_${number} WHERE octet_length(frame) > ${bytesMin})`,
      );
    await flip(1, "min", 1000);
    const old = problemsIn(await verify(schema));
    expect(old).toMatchObject([
      { kind: "frames", file: "hapax_seg_1", stopsServer: false },
      { kind: "data", file: "hapax_seg_1", what: expect.stringContaining("offsets 0 to 9000") },
    ]);
    const { rows } = await server.pool.query<{ number: number }>(
      `SELECT max(number)::int AS number FROM ${schema}.hapax_segment`,
    );
    await flip(rows[0]?.number ?? 0, "max", 61);
    const both = await verify(schema);
    expect(problemsIn(both)).toContainEqual(
      expect.objectContaining({ kind: "frames", stopsServer: true }),
    );
    await expect(openOnPool(server.pool, { schema })).rejects.toMatchObject({
      code: "data_damaged",
    });
    const text = await hapax(["verify", "--store", urlOf(), "--schema", schema]);
    expect(text.stdout).toMatch(
      /^damaged: hapax_seg_\d offset \d+ LSN \d+: .*a server does not start/m,
    );
    expect(text.stdout).toContain("a server would not start: ");
  });

  test("what cannot be verified is said: no tables, no database, no place, two places", async () => {
    const url = urlOf();
    const none = await hapax(["verify", "--store", url, "--schema", "nothing_here"]);
    expect(none).toMatchObject({ code: 2, stderr: expect.stringContaining("no streams are kept") });
    const away = await hapax(["verify", "--store", "postgres://127.0.0.1:9/x"]);
    expect(away).toMatchObject({ code: 3, stderr: expect.stringContaining("database") });
    expect(await hapax(["verify"])).toMatchObject({ code: 2 });
    expect(await hapax(["verify", "x", "--store", url])).toMatchObject({ code: 2 });
    expect(await hapax(["verify", "--store", "db"])).toMatchObject({ code: 2 });
  });
});
