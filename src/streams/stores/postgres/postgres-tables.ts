/**
 * The tables of a shard in PostgreSQL. docs/formats/postgres.md describes them; the fence is a part of that format.
 *
 *   - a fenced write locks the row of the shard `FOR SHARE` and compares the epoch in the same statement: a takeover
 *     waits for it, and after a takeover it finds another epoch and writes nothing;
 *   - a frame is written only while the frame before it is there;
 *   - a confirmation is a write: its answer waits for the standby as that of any other write does.
 */

import { createHash } from "node:crypto";
import { damage } from "../journal/bytes.ts";
import { SEGMENT_HEADER_BYTES } from "../journal/format.ts";
import type { Session, SqlRow } from "./session.ts";
import {
  type Done,
  type FencedWrite,
  type FramePiece,
  type FrameRow,
  type FrameWrite,
  type ImageRow,
  type Owner,
  PART_BYTES,
  type ReleaseMark,
  type SegmentRow,
  type ShardState,
  type ShardTables,
  type Sight,
} from "./tables.ts";
import { sqlBytes, sqlNumber, sqlText } from "./values.ts";

/** Most rows of one answer: 16 MiB. */
const ROWS_MAX = 16;
/** How long a drop waits for readers of the table. A backup may read it for hours; then a later sweep drops it. */
const DROP_WAIT_MS = 1000;

/** A statement and its values. */
interface Sql {
  readonly text: string;
  readonly values: readonly unknown[];
}

/** What every write answers: how the server waits at this moment. */
const GUARD =
  "current_setting('synchronous_commit') AS level, current_setting('synchronous_standby_names') AS standbys";

/** A row that a copy brings. */
export interface CopiedRow {
  readonly position: number;
  readonly lsn: number;
  readonly ordinal: number;
  readonly bytes: Uint8Array;
}

export interface TableOptions {
  /** The name of the schema, quoted. */
  readonly schema: string;
  readonly shard: number;
  /** Whether the settings that a write was answered with keep the promise of the store. */
  readonly keepsPromise: (level: string, standbys: string) => boolean;
}

export class PostgresTables implements ShardTables {
  readonly #session: Session;
  readonly #schema: string;
  readonly #shard: number;
  readonly #keepsPromise: TableOptions["keepsPromise"];

  constructor(session: Session, { schema, shard, keepsPromise }: TableOptions) {
    this.#session = session;
    this.#schema = schema;
    this.#shard = shard;
    this.#keepsPromise = keepsPromise;
  }

  async state(): Promise<ShardState> {
    const row = await this.#one(
      `SELECT s.epoch, s.owner, s.life, n.beat FROM ${this.#schema}.hapax_shard s
        LEFT JOIN ${this.#schema}.hapax_node n ON n.node = s.owner AND n.life = s.life WHERE s.shard = $1`,
      [this.#shard],
    );
    const isOwned = row["owner"] !== null && row["life"] !== null;
    return {
      epoch: sqlNumber(row["epoch"]),
      owner: isOwned ? { node: sqlText(row["owner"]), life: sqlText(row["life"]) } : undefined,
      beat: row["beat"] === null ? undefined : sqlNumber(row["beat"]),
    };
  }

  /** `former`: the last sign of life of the owner. If there is a later one, nothing is taken. */
  async take(
    epoch: number,
    { node, life }: Owner,
    former?: Owner & { readonly beat: number },
  ): Promise<Done & { readonly timeMs: number }> {
    await this.#session.run(
      `INSERT INTO ${this.#schema}.hapax_node (node, life, beat) VALUES ($1, $2, 0)
        ON CONFLICT (node) DO UPDATE SET life = excluded.life, beat = hapax_node.beat + 1`,
      [node, life],
    );
    // The lock makes a sign of life that comes at the same time wait: its process then sees the takeover.
    const { rows, isSure } = await this.#session.run(
      `WITH former AS (SELECT beat FROM ${this.#schema}.hapax_node WHERE node = $5 AND life = $6 FOR UPDATE)
        UPDATE ${this.#schema}.hapax_shard SET epoch = epoch + 1, owner = $3, life = $4
        WHERE shard = $1 AND epoch = $2 AND NOT EXISTS (SELECT 1 FROM former WHERE beat <> $7::bigint)
        RETURNING floor(extract(epoch FROM clock_timestamp()) * 1000) AS time_ms, ${GUARD}`,
      [
        this.#shard,
        epoch,
        node,
        life,
        former?.node ?? null,
        former?.life ?? null,
        former?.beat ?? null,
      ],
    );
    const [row] = rows;
    const timeMs = row === undefined ? 0 : sqlNumber(row["time_ms"]);
    return { ...this.#done(rows, isSure, 1), timeMs };
  }

  async release(epoch: number, mark: ReleaseMark | undefined): Promise<Done> {
    const { rows, isSure } = await this.#session.run(
      `WITH gone AS (DELETE FROM ${this.#schema}.hapax_node n USING ${this.#schema}.hapax_shard s
          WHERE s.shard = $1 AND s.epoch = $2 AND n.node = s.owner AND n.life = s.life)
        UPDATE ${this.#schema}.hapax_shard SET owner = NULL, life = NULL, released_lsn = $3, released_crc = $4
        WHERE shard = $1 AND epoch = $2 RETURNING ${GUARD}`,
      [this.#shard, epoch, mark?.lsn ?? null, mark?.crc ?? null],
    );
    return this.#done(rows, isSure, 1);
  }

  async beat({ node, life }: Owner): Promise<number> {
    // A sign of life need not be durable, and must not wait for a standby that is away.
    const row = await this.#one(
      `WITH quick AS (SELECT set_config('synchronous_commit', 'off', true) AS level),
          sign AS (UPDATE ${this.#schema}.hapax_node SET beat = beat + 1 FROM quick WHERE node = $2 AND life = $3)
        SELECT epoch FROM ${this.#schema}.hapax_shard, quick WHERE shard = $1`,
      [this.#shard, node, life],
    );
    return sqlNumber(row["epoch"]);
  }

  async write(epoch: number, write: FencedWrite): Promise<Done> {
    if (write.kind === "segment") await this.#createTable(write.segment.number);
    const { text, values } = this.#writing(epoch, write);
    const { rows, isSure } = await this.#session.run(text, values);
    return this.#done(rows, isSure, write.kind === "frame" ? write.parts.length : 1);
  }

  /**
   * Inserts rows behind the last one of a segment, for a copy. Answers how many there were: all, or none if they do not
   * begin where the segment ends, or the epoch is another one.
   */
  async append(epoch: number, segment: number, rows: readonly CopiedRow[]): Promise<number> {
    const table = this.nameOf(segment);
    const values: unknown[] = [this.#shard, epoch];
    const places = rows.map(({ position, lsn, ordinal, bytes }) => {
      values.push(position, lsn, ordinal, bytes);
      const at = values.length;
      return `($${at - 3}::bigint, $${at - 2}::bigint, $${at - 1}::bigint, $${at}::bytea)`;
    });
    const end = `coalesce((SELECT position + octet_length(frame) FROM ${table} ORDER BY position DESC LIMIT 1),
      ${SEGMENT_HEADER_BYTES})`;
    const { rows: written } = await this.#session.run(
      `WITH own AS (${this.#own})
      INSERT INTO ${table} (position, lsn, ordinal, epoch, frame)
      SELECT v.position, v.lsn, v.ordinal, $2::bigint, v.frame
        FROM own, (VALUES ${places.join()}) AS v (position, lsn, ordinal, frame)
      WHERE ${end} = $3::bigint ON CONFLICT DO NOTHING RETURNING 1`,
      values,
    );
    return written.length;
  }

  async confirm(epoch: number, write: FencedWrite): Promise<Done> {
    const { text, values } = this.#presence(write, 2, epoch);
    const { rows, isSure } = await this.#session.run(
      `UPDATE ${this.#schema}.hapax_shard SET life = life WHERE shard = $1 AND epoch = $2 AND ${text} RETURNING ${GUARD}`,
      [this.#shard, epoch, ...values],
    );
    return this.#done(rows, isSure, 1);
  }

  async look(write: FencedWrite, epoch: number): Promise<Sight> {
    const there = this.#presence(write, 1, epoch);
    const at = 1 + there.values.length;
    const before = write.kind === "frame" ? this.#beforeOf(write, at) : ALWAYS;
    const taken = write.kind === "frame" ? this.#placeOf(write, at + before.values.length) : NEVER;
    const row = await this.#one(
      `SELECT epoch, (${there.text}) AS is_there, (${before.text}) AS has_before, (${taken.text}) AS is_taken
        FROM ${this.#schema}.hapax_shard WHERE shard = $1`,
      [this.#shard, ...there.values, ...before.values, ...taken.values],
    );
    const isThere = row["is_there"] === true;
    return {
      epoch: sqlNumber(row["epoch"]),
      isThere,
      hasBefore: row["has_before"] === true,
      isTaken: row["is_taken"] === true && !isThere,
    };
  }

  async frames(segment: number, from: number): Promise<readonly FrameRow[]> {
    const { rows } = await this.#session.run(
      `SELECT position, lsn, epoch, frame FROM ${this.nameOf(segment)} WHERE position >= $1
        ORDER BY position LIMIT ${ROWS_MAX}`,
      [from],
    );
    return rows.map((row) => ({
      position: sqlNumber(row["position"]),
      lsn: sqlNumber(row["lsn"]),
      epoch: sqlNumber(row["epoch"]),
      bytes: sqlBytes(row["frame"]),
    }));
  }

  async read(segment: number, position: number, length: number): Promise<readonly FramePiece[]> {
    const table = this.nameOf(segment);
    // The row that holds the first byte begins at or before it. Of each row only the wanted bytes are fetched.
    const { rows } = await this.#session.run(
      `SELECT greatest(position, $1::bigint) AS position,
          substring(frame FROM (greatest($1::bigint - position, 0) + 1)::int
            FOR ($1::bigint + $2::bigint - greatest(position, $1::bigint))::int) AS bytes
        FROM ${table} WHERE position < $1::bigint + $2::bigint
          AND position >= coalesce((SELECT max(position) FROM ${table} WHERE position <= $1::bigint), 0)
        ORDER BY position`,
      [position, length],
    );
    return rows.map((row) => ({
      position: sqlNumber(row["position"]),
      bytes: sqlBytes(row["bytes"]),
    }));
  }

  async endOf(segment: number): Promise<number> {
    const { rows } = await this.#session.run(
      `SELECT position + octet_length(frame) AS ends FROM ${this.nameOf(segment)} ORDER BY position DESC LIMIT 1`,
    );
    const [row] = rows;
    return row === undefined ? 0 : sqlNumber(row["ends"]);
  }

  async segments(): Promise<readonly SegmentRow[]> {
    const { rows } = await this.#session.run(
      `SELECT number, first_lsn, salt, crc_before FROM ${this.#schema}.hapax_segment WHERE shard = $1 ORDER BY number`,
      [this.#shard],
    );
    return rows.map((row) => ({
      number: sqlNumber(row["number"]),
      firstLsn: sqlNumber(row["first_lsn"]),
      salt: sqlNumber(row["salt"]),
      crcBefore: sqlNumber(row["crc_before"]),
    }));
  }

  async images(): Promise<readonly ImageRow[]> {
    const { rows } = await this.#session.run(
      `SELECT DISTINCT ON (lsn) lsn, epoch, bytes FROM ${this.#schema}.hapax_image WHERE shard = $1
        ORDER BY lsn DESC, epoch DESC`,
      [this.#shard],
    );
    return rows.map((row) => ({
      lsn: sqlNumber(row["lsn"]),
      epoch: sqlNumber(row["epoch"]),
      bytes: sqlNumber(row["bytes"]),
    }));
  }

  async imagePart({ lsn, epoch }: ImageRow, part: number): Promise<Uint8Array | undefined> {
    const { rows } = await this.#session.run(
      `SELECT block FROM ${this.#schema}.hapax_image_part WHERE shard = $1 AND lsn = $2 AND epoch = $3 AND part = $4`,
      [this.#shard, lsn, epoch, part],
    );
    const [row] = rows;
    return row === undefined ? undefined : sqlBytes(row["block"]);
  }

  async released(): Promise<ReleaseMark | undefined> {
    const row = await this.#one(
      `SELECT released_lsn, released_crc FROM ${this.#schema}.hapax_shard WHERE shard = $1`,
      [this.#shard],
    );
    const lsn = row["released_lsn"];
    return lsn === null ? undefined : { lsn: sqlNumber(lsn), crc: sqlNumber(row["released_crc"]) };
  }

  async sweep(epoch: number): Promise<void> {
    await this.#session.run(
      `WITH own AS (${this.#own}) DELETE FROM ${this.#schema}.hapax_image_part p USING own
        WHERE p.shard = $1 AND NOT EXISTS (SELECT 1 FROM ${this.#schema}.hapax_image i
          WHERE i.shard = p.shard AND i.lsn = p.lsn AND i.epoch = p.epoch)`,
      [this.#shard, epoch],
    );
    // The table of the next segment is made before its row: what comes after the newest segment is not dropped.
    const prefix = `hapax_seg_${this.#shard}_`;
    const { rows } = await this.#session.run(
      `SELECT substring(c.relname FROM $2::int)::bigint AS number FROM pg_class c
        WHERE c.relnamespace = $3::regnamespace AND c.relkind = 'r' AND c.relname ~ ('^' || $1 || '[0-9]{1,10}$')
          AND substring(c.relname FROM $2::int)::bigint
            < (SELECT max(number) FROM ${this.#schema}.hapax_segment WHERE shard = $4)
          AND NOT EXISTS (SELECT 1 FROM ${this.#schema}.hapax_segment s
            WHERE s.shard = $4 AND s.number = substring(c.relname FROM $2::int)::bigint)`,
      [prefix, prefix.length + 1, this.#schema, this.#shard],
    );
    for (const row of rows) await this.#drop(sqlNumber(row["number"]));
  }

  /** The table of a segment, as it is written in a statement. */
  nameOf(segment: number): string {
    return `${this.#schema}.hapax_seg_${this.#shard}_${segment}`;
  }

  get #own(): string {
    return `SELECT 1 FROM ${this.#schema}.hapax_shard WHERE shard = $1 AND epoch = $2 FOR SHARE`;
  }

  #writing(epoch: number, write: FencedWrite): Sql {
    const fence = [this.#shard, epoch];
    const own = `WITH own AS (${this.#own})`;
    const schema = this.#schema;
    const returning = `RETURNING ${GUARD}`;
    switch (write.kind) {
      case "frame":
        return this.#writingFrame(epoch, write);
      case "segment": {
        const { number, firstLsn, salt, crcBefore } = write.segment;
        const text = `${own} INSERT INTO ${schema}.hapax_segment (shard, epoch, number, first_lsn, salt, crc_before)
          SELECT $1, $2, $3, $4, $5, $6 FROM own ON CONFLICT DO NOTHING ${returning}`;
        return { text, values: [...fence, number, firstLsn, salt, crcBefore] };
      }
      case "retired": {
        const text = `${own} DELETE FROM ${schema}.hapax_segment USING own WHERE shard = $1 AND number = $3 ${returning}`;
        return { text, values: [...fence, write.number] };
      }
      case "image_part": {
        const text = `${own} INSERT INTO ${schema}.hapax_image_part (shard, epoch, lsn, part, block)
          SELECT $1, $2, $3, $4, $5 FROM own ON CONFLICT DO NOTHING ${returning}`;
        return { text, values: [...fence, write.lsn, write.part, write.bytes] };
      }
      case "image": {
        const text = `${own} INSERT INTO ${schema}.hapax_image (shard, epoch, lsn, bytes)
          SELECT $1, $2, $3, $4 FROM own ON CONFLICT DO NOTHING ${returning}`;
        return { text, values: [...fence, write.lsn, write.bytes] };
      }
      case "image_dropped": {
        const text = `${own} DELETE FROM ${schema}.hapax_image USING own WHERE shard = $1 AND lsn = $3 ${returning}`;
        return { text, values: [...fence, write.lsn] };
      }
    }
  }

  #writingFrame(epoch: number, write: FrameWrite): Sql {
    const { lsn, ordinal, parts } = write;
    const before = this.#beforeOf(write, 4 + 2 * parts.length);
    const rows = parts.map((_, at) => `($${5 + 2 * at}::bigint, $${6 + 2 * at}::bytea)`);
    const text = `WITH own AS (${this.#own})
      INSERT INTO ${this.nameOf(write.segment)} (position, lsn, ordinal, epoch, frame)
      SELECT v.position, $3::bigint, $4::bigint, $2::bigint, v.frame FROM own, (VALUES ${rows.join()}) AS v (position, frame)
      WHERE ${before.text} ON CONFLICT DO NOTHING RETURNING ${GUARD}`;
    const values: unknown[] = [this.#shard, epoch, lsn, ordinal];
    for (const [at, part] of parts.entries()) values.push(write.position + at * PART_BYTES, part);
    return { text, values: [...values, ...before.values] };
  }

  /** The frame before, as a condition. Its values come after `used` others. */
  #beforeOf({ before }: FrameWrite, used: number): Sql {
    if (before === undefined) return ALWAYS;
    const table = this.nameOf(before.segment);
    const [position, lsn, epoch] = [used + 1, used + 2, used + 3];
    const text = `EXISTS (SELECT 1 FROM ${table}
      WHERE position = $${position}::bigint AND lsn = $${lsn}::bigint AND epoch = $${epoch}::bigint)`;
    return { text, values: [before.position, before.lsn, before.epoch] };
  }

  #placeOf({ segment, position }: FrameWrite, used: number): Sql {
    const text = `EXISTS (SELECT 1 FROM ${this.nameOf(segment)} WHERE position = $${used + 1}::bigint)`;
    return { text, values: [position] };
  }

  /** Whether the write is there, as a condition. Its values come after `used` others. */
  #presence(write: FencedWrite, used: number, epoch: number): Sql {
    const schema = this.#schema;
    const [a, b, c] = [`$${used + 1}::bigint`, `$${used + 2}::bigint`, `$${used + 3}::bigint`];
    const shard = "shard = $1";
    switch (write.kind) {
      case "frame": {
        const places = write.parts.map((_, at) => {
          return `($${used + 2 + 2 * at}::bigint, $${used + 3 + 2 * at}::bytea)`;
        });
        const values: unknown[] = [epoch];
        for (const [at, part] of write.parts.entries()) {
          values.push(write.position + at * PART_BYTES, createHash("sha256").update(part).digest());
        }
        const text = `(SELECT count(*) FROM ${this.nameOf(write.segment)} f
          WHERE f.epoch = ${a} AND (f.position, sha256(f.frame)) IN (VALUES ${places.join()})) = ${write.parts.length}`;
        return { text, values };
      }
      case "segment": {
        const { number, salt } = write.segment;
        const found = `SELECT 1 FROM ${schema}.hapax_segment WHERE ${shard}`;
        const text = `EXISTS (${found} AND number = ${a} AND salt = ${b} AND epoch = ${c})`;
        return { text, values: [number, salt, epoch] };
      }
      case "retired": {
        const found = `SELECT 1 FROM ${schema}.hapax_segment WHERE ${shard}`;
        return { text: `NOT EXISTS (${found} AND number = ${a})`, values: [write.number] };
      }
      case "image_part": {
        const found = `SELECT 1 FROM ${schema}.hapax_image_part WHERE ${shard}`;
        const text = `EXISTS (${found} AND lsn = ${a} AND part = ${b} AND epoch = ${c})`;
        return { text, values: [write.lsn, write.part, epoch] };
      }
      case "image": {
        const found = `SELECT 1 FROM ${schema}.hapax_image WHERE ${shard}`;
        return {
          text: `EXISTS (${found} AND lsn = ${a} AND epoch = ${b})`,
          values: [write.lsn, epoch],
        };
      }
      case "image_dropped": {
        const found = `SELECT 1 FROM ${schema}.hapax_image WHERE ${shard}`;
        return { text: `NOT EXISTS (${found} AND lsn = ${a})`, values: [write.lsn] };
      }
    }
  }

  async #createTable(segment: number): Promise<void> {
    const table = this.nameOf(segment);
    // Not fenced: an empty table that no row of hapax_segment names means nothing.
    await this.#session.run(
      `CREATE TABLE IF NOT EXISTS ${table} (position bigint PRIMARY KEY, lsn bigint NOT NULL, ordinal bigint NOT NULL,
        epoch bigint NOT NULL, frame bytea NOT NULL);
      ALTER TABLE ${table} ALTER COLUMN frame SET STORAGE EXTERNAL`,
    );
  }

  async #drop(segment: number): Promise<void> {
    await this.#session.run(
      `SET LOCAL lock_timeout = ${DROP_WAIT_MS}; DROP TABLE IF EXISTS ${this.nameOf(segment)}`,
    );
  }

  #done(rows: readonly SqlRow[], isSure: boolean, count: number): Done {
    const isKept = rows.every((row) => {
      return this.#keepsPromise(sqlText(row["level"]), sqlText(row["standbys"]));
    });
    return { isDone: rows.length > 0 && rows.length >= count, isSure: isSure && isKept };
  }

  async #one(text: string, values: readonly unknown[]): Promise<SqlRow> {
    const { rows } = await this.#session.run(text, values);
    const [row] = rows;
    if (row === undefined) throw damage(`${this.#schema}.hapax_shard`, 0, "the row is missing");
    return row;
  }
}

const ALWAYS: Sql = { text: "true", values: [] };
const NEVER: Sql = { text: "false", values: [] };
