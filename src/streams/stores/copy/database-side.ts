/**
 * The tables of a database as one side of a copy. The copy owns the shard as a server does, so that no server writes meanwhile, and
 * a server that was stopped cannot go on. Until a copy is finished the tables have the format 0, which no server opens.
 */

import { systemClock } from "../../../base/clock.ts";
import { HapaxError } from "../../../base/errors.ts";
import { systemRandom } from "../../../base/random.ts";
import { damage } from "../journal/bytes.ts";
import { alignFrame, SEGMENT_HEADER_BYTES } from "../journal/format.ts";
import type { ScannedFrame } from "../journal/scan.ts";
import type { ByteSource } from "../journal/segment-log.ts";
import { FrameJoiner, ImageSource, segmentTable } from "../postgres/contents.ts";
import { Fence, movedError } from "../postgres/fence.ts";
import { Heartbeat, takeOver } from "../postgres/ownership.ts";
import { PostgresTables } from "../postgres/postgres-tables.ts";
import { withRetries } from "../postgres/retries.ts";
import { readCluster, TABLES_FORMAT, tablesOf, UNFINISHED_FORMAT } from "../postgres/schema.ts";
import { type Session, StatementRefused } from "../postgres/session.ts";
import { type ImageRow, PART_BYTES, type ShardTables } from "../postgres/tables.ts";
import { sqlNumber, sqlText } from "../postgres/values.ts";
import type {
  CopiedImage,
  CopiedSegment,
  CopySide,
  CopySource,
  CopyTarget,
  EndFrame,
} from "./sides.ts";

/** Most rows and bytes of one statement. */
const ROWS_MAX = 200;
const BYTES_MAX = 4 * 1024 * 1024;
const PAUSE_MS = 200;
/** How long the database may refuse or be away. */
const PATIENCE_MS = 60_000;
const MISSING = new Set(["42P01", "3F000"]);

export interface CopyDatabaseOptions {
  /** Quoted. */
  readonly schema: string;
  /** How long an owner may give no sign of life before it counts as dead. */
  readonly leaseMs: number;
  /** Whether the settings that a write was answered with are enough. */
  readonly keepsPromise: (level: string, standbys: string) => boolean;
  readonly onWarning: (warning: string) => void;
}

/** The ownership of the shard for as long as the copy runs. */
interface Held {
  readonly session: Session;
  readonly tables: PostgresTables;
  readonly reads: ShardTables;
  readonly epoch: number;
  readonly options: CopyDatabaseOptions;
  readonly heartbeat: Heartbeat;
  /** Set if another process has taken the shard over. */
  moved: Error | undefined;
}

async function hold(session: Session, options: CopyDatabaseOptions): Promise<Held> {
  const { schema, leaseMs, keepsPromise } = options;
  const tables = new PostgresTables(session, { schema, shard: 0, keepsPromise });
  const life = systemRandom.id();
  const owner = { node: `copy-${life}`, life };
  const { epoch } = await takeOver(tables, owner, systemClock, { takeover: "refuse", leaseMs });
  const held: { moved: Error | undefined } = { moved: undefined };
  const onMoved = (error: Error): void => void (held.moved = error);
  const heartbeat = new Heartbeat(tables, owner, epoch, { clock: systemClock, leaseMs, onMoved });
  const reads = withRetries(tables, systemClock);
  return Object.assign(held, { session, tables, reads, epoch, options, heartbeat });
}

class DatabaseSide implements CopySide {
  readonly name: string;
  protected readonly held: Held;

  constructor(held: Held) {
    this.name = `schema ${held.options.schema}`;
    this.held = held;
  }

  async segments(): Promise<readonly CopiedSegment[]> {
    const { reads } = this.held;
    const segments: CopiedSegment[] = [];
    for (const { number, firstLsn, salt, crcBefore } of await reads.segments()) {
      const end = Math.max(await reads.endOf(number), SEGMENT_HEADER_BYTES);
      segments.push({ number, firstLsn, salt, crcBefore, end });
    }
    return segments;
  }

  async *frames(segment: CopiedSegment, from: number): AsyncGenerator<readonly ScannedFrame[]> {
    const { number, salt, end } = segment;
    const joiner = new FrameJoiner(
      { name: segmentTable(number), salt },
      Math.max(from, SEGMENT_HEADER_BYTES),
    );
    while (joiner.end < end) {
      this.requireOwned();
      const rows = await this.held.reads.frames(number, joiner.end);
      if (rows.length === 0) throw damage(segmentTable(number), joiner.end, "rows are missing");
      const frames: ScannedFrame[] = [];
      for (const row of rows) {
        const frame = joiner.add(row);
        if (frame !== undefined) frames.push(frame);
      }
      if (frames.length > 0) yield frames;
    }
  }

  images(): Promise<readonly ImageRow[]> {
    return this.held.reads.images();
  }

  async openImage({ lsn }: CopiedImage): Promise<ByteSource> {
    const image = (await this.images()).find((row) => row.lsn === lsn);
    if (image === undefined) throw damage(`hapax_image ${lsn}`, 0, "it is missing");
    return new ImageSource(this.held.reads, image);
  }

  protected requireOwned(): void {
    if (this.held.moved !== undefined) throw this.held.moved;
  }
}

/** Opens the tables to copy them. No living server may own them. */
export async function openDatabaseSource(
  session: Session,
  options: CopyDatabaseOptions,
): Promise<CopySource> {
  const cluster = await readCluster(session, options.schema);
  if (cluster === undefined) {
    throw new HapaxError("not_found", `no streams are kept in the schema ${options.schema}`);
  }
  if (cluster.shards !== 1) {
    const what = `hapax copy takes stores of one shard, and these tables have ${cluster.shards}`;
    throw new HapaxError("unsupported", `${what}: schema=${options.schema}`);
  }
  const { schema } = options;
  const { rows } = await session.run(
    `SELECT incarnation, released_lsn, released_crc FROM ${schema}.hapax_cluster, ${schema}.hapax_shard
      WHERE shard = 0`,
    [],
  );
  const row = rows[0] ?? {};
  const lsn = row["released_lsn"];
  const mark =
    lsn === null ? undefined : { lsn: sqlNumber(lsn), crc: sqlNumber(row["released_crc"]) };
  const held = await hold(session, options);
  const incarnation = Math.max(sqlNumber(row["incarnation"]), held.epoch);
  return new DatabaseSource(held, cluster, incarnation, mark);
}

class DatabaseSource extends DatabaseSide implements CopySource {
  readonly storeId: string;
  readonly secret: string;
  readonly incarnation: number;
  readonly mark: EndFrame | undefined;

  constructor(
    held: Held,
    { storeId, secret }: { readonly storeId: string; readonly secret: string },
    incarnation: number,
    mark: EndFrame | undefined,
  ) {
    super(held);
    this.storeId = storeId;
    this.secret = secret;
    this.incarnation = incarnation;
    this.mark = mark;
  }

  async close(last: EndFrame | undefined): Promise<void> {
    this.held.heartbeat.stop();
    await this.held.tables.release(this.held.epoch, last ?? this.mark).catch(() => undefined);
  }
}

/** Opens tables to copy a store into them: there are none yet, or they have the same copy, interrupted. */
export async function openDatabaseTarget(
  session: Session,
  source: Pick<CopySource, "storeId" | "secret">,
  options: CopyDatabaseOptions,
): Promise<CopyTarget> {
  const { schema } = options;
  const { storeId } = source;
  let found = await unfinishedIn(session, schema);
  if (found === undefined) {
    const secret = source.secret ?? systemRandom.id() + systemRandom.id();
    await session.run(
      tablesOf(schema, { id: storeId, secret, format: UNFINISHED_FORMAT, shards: 1 }),
    );
    found = await unfinishedIn(session, schema);
  }
  if (found !== storeId) {
    const what = `the schema ${schema} has an unfinished copy of another store: nothing was changed`;
    throw new HapaxError("format_unknown", what);
  }
  return new DatabaseTarget(await hold(session, options));
}

/** The store that is being copied into the tables. Undefined: there are none. Throws if they are whole. */
async function unfinishedIn(session: Session, schema: string): Promise<string | undefined> {
  try {
    const { rows } = await session.run(
      `SELECT replace(id::text, '-', '') AS id, format FROM ${schema}.hapax_cluster`,
      [],
    );
    const [row] = rows;
    if (row === undefined) return undefined;
    if (sqlNumber(row["format"]) === UNFINISHED_FORMAT) return sqlText(row["id"]);
    const what = `the schema ${schema} has streams already: give another one with --schema; nothing was changed`;
    throw new HapaxError("format_unknown", what);
  } catch (error) {
    if (error instanceof StatementRefused && MISSING.has(error.state)) return undefined;
    throw error;
  }
}

async function formatOf(session: Session, schema: string): Promise<number> {
  const { rows } = await session.run(`SELECT format FROM ${schema}.hapax_cluster`, []);
  return sqlNumber(rows[0]?.["format"]);
}

interface CopiedRow {
  readonly position: number;
  readonly frame: ScannedFrame;
  readonly bytes: Uint8Array;
}

class DatabaseTarget extends DatabaseSide implements CopyTarget {
  readonly #fence: Fence;
  #known: Set<number> | undefined;

  constructor(held: Held) {
    super(held);
    const { tables, epoch, options } = held;
    const { onWarning } = options;
    this.#fence = new Fence({
      tables,
      epoch,
      clock: systemClock,
      onWarning,
      onFull: () => undefined,
    });
  }

  async addSegment({ number, firstLsn, salt, crcBefore }: CopiedSegment): Promise<number> {
    this.#known ??= new Set((await this.held.reads.segments()).map((segment) => segment.number));
    if (this.#known.has(number)) {
      return Math.max(await this.held.reads.endOf(number), SEGMENT_HEADER_BYTES);
    }
    const segment = { number, firstLsn, salt, crcBefore };
    await this.#fence.write({ kind: "segment", segment });
    this.#known.add(number);
    return SEGMENT_HEADER_BYTES;
  }

  async addFrames(
    segment: CopiedSegment,
    frames: AsyncIterable<readonly ScannedFrame[]>,
  ): Promise<void> {
    let rows: CopiedRow[] = [];
    let bytes = 0;
    for await (const batch of frames) {
      for (const frame of batch) {
        const parts = rowsOf(frame);
        // A frame is all rows of one statement, or none.
        if (rows.length > 0 && (rows.length + parts.length > ROWS_MAX || bytes > BYTES_MAX)) {
          await this.#insert(segment.number, rows);
          rows = [];
          bytes = 0;
        }
        rows.push(...parts);
        bytes += frame.bytes.length;
      }
    }
    if (rows.length > 0) await this.#insert(segment.number, rows);
  }

  async dropSegment(number: number): Promise<void> {
    await this.#fence.write({ kind: "retired", number });
    await this.held.tables.sweep(this.held.epoch).catch(() => undefined);
  }

  async addImage({ lsn, bytes }: CopiedImage, source: ByteSource): Promise<void> {
    for (let part = 0; part * PART_BYTES < bytes; part += 1) {
      const at = part * PART_BYTES;
      const block = await source.read(at, Math.min(PART_BYTES, bytes - at));
      await this.#fence.write({ kind: "image_part", lsn, part, bytes: block });
    }
    await this.#fence.write({ kind: "image", lsn, bytes });
  }

  dropImage(lsn: number): Promise<void> {
    return this.#fence.write({ kind: "image_dropped", lsn });
  }

  /** The last statement is a later write than everything else: if it is durable, so is the copy. */
  async finish(source: CopySource, last: EndFrame): Promise<void> {
    const { session, epoch, options } = this.held;
    const { schema } = options;
    await this.#settle(async () => {
      const { rows, isSure } = await session.run(
        `WITH own AS (UPDATE ${schema}.hapax_shard SET owner = NULL, life = NULL, released_lsn = $2, released_crc = $3
            WHERE shard = 0 AND epoch = $1 RETURNING 1),
          secret AS (UPDATE ${schema}.hapax_secret SET secret = coalesce($4::text, secret) FROM own)
        UPDATE ${schema}.hapax_cluster SET format = ${TABLES_FORMAT}, incarnation = $5 FROM own
          RETURNING current_setting('synchronous_commit') AS level,
            current_setting('synchronous_standby_names') AS standbys`,
        [epoch, last.lsn, last.crc, source.secret ?? null, source.incarnation + 1],
      );
      const [row] = rows;
      if (row === undefined) {
        // After a lost answer a server may have opened the finished tables already.
        if ((await formatOf(session, schema)) === TABLES_FORMAT) return true;
        throw movedError(epoch, (await this.held.tables.state()).epoch);
      }
      const isKept = options.keepsPromise(sqlText(row["level"]), sqlText(row["standbys"]));
      return isSure && isKept;
    });
  }

  close(): Promise<void> {
    this.held.heartbeat.stop();
    return Promise.resolve();
  }

  /** Inserts rows behind the last one. What an earlier statement has inserted meanwhile is left out. */
  async #insert(segment: number, all: readonly CopiedRow[]): Promise<void> {
    const { tables, epoch } = this.held;
    let rows = all;
    await this.#settle(async () => {
      this.requireOwned();
      const written = await tables.append(
        epoch,
        segment,
        rows.map(({ position, frame, bytes }) => {
          return { position, lsn: frame.header.lsn, ordinal: frame.header.ordinal, bytes };
        }),
      );
      if (written === rows.length) return true;
      const state = await tables.state();
      if (state.epoch !== epoch) throw movedError(epoch, state.epoch);
      const end = Math.max(await tables.endOf(segment), SEGMENT_HEADER_BYTES);
      rows = rows.filter(({ position }) => position >= end);
      const [first] = rows;
      if (first !== undefined && first.position !== end) {
        const what = "the database has lost what was copied: drop the schema and begin again";
        throw new HapaxError("engine_went_back", what);
      }
      return rows.length === 0;
    });
  }

  /** Repeats a step until it says that it is done. Each step looks at what there is. */
  async #settle(step: () => Promise<boolean>): Promise<void> {
    const begunMs = systemClock.steadyMs();
    for (;;) {
      const isLate = systemClock.steadyMs() - begunMs > PATIENCE_MS;
      try {
        if (await step()) return;
        if (isLate) throw new HapaxError("unreachable", "the database promises too little");
      } catch (error) {
        if (error instanceof HapaxError || isLate) throw error;
        if (error instanceof StatementRefused && /^(42|22|0A)/.test(error.state)) throw error;
      }
      await new Promise<void>((resolve) => {
        systemClock.after(PAUSE_MS, resolve);
      });
    }
  }
}

/** Rows as a server makes them: with the zeros at the end of a frame, and none longer than a part. */
function rowsOf(frame: ScannedFrame): readonly CopiedRow[] {
  const size = alignFrame(frame.bytes.length);
  let whole: Uint8Array = frame.bytes;
  if (size !== whole.length) {
    whole = new Uint8Array(size);
    whole.set(frame.bytes);
  }
  const rows: CopiedRow[] = [];
  for (let at = 0; at < size; at += PART_BYTES) {
    const bytes = whole.subarray(at, at + PART_BYTES);
    rows.push({ position: frame.position + at, frame, bytes });
  }
  return rows;
}
