/**
 * Verifies the tables of a shard: every row, every checksum, the chain of frames, the snapshots and the index.
 *
 * Everything is read in one transaction that may not write, and sees one moment: a server goes on meanwhile. It holds the
 * segments as a backup does, so that none is dropped before it was read.
 *
 *   - what one owner has acknowledged before the beginning is checked, and nothing that comes later;
 *   - a changed byte that has any effect is a problem with its table, its position and what it means;
 *   - sound tables have no problem, also while a server writes.
 */

import { HapaxError, isHapaxError } from "../../../base/errors.ts";
import { Chain, type KnownFrame } from "../journal/chain.ts";
import { damaged } from "../journal/bytes.ts";
import type { Extent } from "../journal/extents.ts";
import { describeLink, FrameCheck } from "../journal/frame-check.ts";
import { type ExtentSource, IndexCheck } from "../journal/index-check.ts";
import { type StoreProblem, storeProblem } from "../journal/problem.ts";
import { otherStore, type ReplayedLog, replayLog } from "../journal/replay.ts";
import { scanSnapshot, type SnapshotScan } from "../journal/snapshot-scan.ts";
import type { Verification, VerificationEvents } from "../journal/verification.ts";
import { imageTable, segmentTable, TableContents, type TableSegment } from "./contents.ts";
import { PostgresTables } from "./postgres-tables.ts";
import { type DamagedRows, scanRows } from "./row-scan.ts";
import { type ClusterRow, readCluster } from "./schema.ts";
import type { Session } from "./session.ts";
import type { ShardTables } from "./tables.ts";
import { sqlText } from "./values.ts";

/** A segment may be dropped between the list and the first look at it. Then the list is made anew. */
const ATTEMPTS_MAX = 5;
const GOES_BACK = "put it back from a backup of the database";

/** Verifies all shards, one after the other, over a session that has one connection. `schema` is quoted. */
export async function verifyTables(
  session: Session,
  schema: string,
  events: VerificationEvents,
): Promise<Verification> {
  const cluster = await readCluster(session, schema);
  if (cluster === undefined) throw new HapaxError("not_found", noTables(schema));
  if (cluster.shards === 1) return verifyShard(session, schema, 0, events);
  const named = (shard: number): VerificationEvents => ({
    ...events,
    onProblem: (problem) =>
      events.onProblem({ ...problem, file: `shard ${shard}: ${problem.file}` }),
  });
  let all = await verifyShard(session, schema, 0, named(0));
  for (let shard = 1; shard < cluster.shards; shard += 1) {
    all = together(all, await verifyShard(session, schema, shard, named(shard)));
  }
  return all;
}

function together(one: Verification, other: Verification): Verification {
  return {
    problems: one.problems + other.problems,
    refusal: one.refusal ?? other.refusal,
    torn: one.torn ?? other.torn,
    segments: one.segments + other.segments,
    frames: one.frames + other.frames,
    records: one.records + other.records,
    snapshots: one.snapshots + other.snapshots,
    blocks: one.blocks + other.blocks,
    streams: one.streams + other.streams,
    extents: one.extents + other.extents,
    bytes: one.bytes + other.bytes,
    isIndexChecked: one.isIndexChecked && other.isIndexChecked,
    nextLsn: Math.max(one.nextLsn, other.nextLsn),
  };
}

async function verifyShard(
  session: Session,
  schema: string,
  shard: number,
  events: VerificationEvents,
): Promise<Verification> {
  const tables = new PostgresTables(session, { schema, shard, keepsPromise: () => true });
  for (let attempt = 1; ; attempt += 1) {
    await session.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
    try {
      const begun = await momentOf(session);
      const cluster = await readCluster(session, schema);
      if (cluster === undefined) throw new HapaxError("not_found", noTables(schema));
      const missing = await missingTables(session, tables);
      if (missing.length > 0 && attempt < ATTEMPTS_MAX) continue;
      const result = await new Verifier(tables, cluster, new Set(missing), events).run();
      if ((await momentOf(session)) !== begun) {
        throw new HapaxError("unreachable", "the connection was lost while the tables were read");
      }
      return result;
    } finally {
      await session.run("ROLLBACK").catch(() => undefined);
    }
  }
}

export function noTables(schema: string): string {
  return `no streams are kept in the schema ${schema}`;
}

/** Every statement of a transaction says the same. */
async function momentOf(session: Session): Promise<string> {
  const { rows } = await session.run("SELECT now()::text AS moment", []);
  return sqlText(rows[0]?.["moment"]);
}

async function missingTables(session: Session, tables: PostgresTables): Promise<number[]> {
  const missing: number[] = [];
  for (const { number } of await tables.segments()) {
    const { rows } = await session.run("SELECT to_regclass($1) IS NOT NULL AS is_there", [
      tables.nameOf(number),
    ]);
    if (rows[0]?.["is_there"] !== true) missing.push(number);
    else await tables.endOf(number); // From now on it cannot be dropped.
  }
  return missing;
}

class Verifier {
  readonly #tables: ShardTables;
  readonly #cluster: ClusterRow;
  readonly #missing: ReadonlySet<number>;
  readonly #events: VerificationEvents;
  #bytes = 0;
  #bytesTotal = 0;
  #problems = 0;
  #frames = 0;
  #records = 0;
  #nextLsn = 1;
  #replayLsn = 1;
  #refusal: string | undefined;
  #index: IndexCheck | undefined;
  #chain = new Chain([]);

  constructor(
    tables: ShardTables,
    cluster: ClusterRow,
    missing: ReadonlySet<number>,
    events: VerificationEvents,
  ) {
    this.#tables = withoutTables(tables, missing);
    this.#cluster = cluster;
    this.#missing = missing;
    this.#events = events;
  }

  async run(): Promise<Verification> {
    const contents = await TableContents.list(this.#tables, this.#cluster.storeId);
    for (const { end } of contents.segments) this.#bytesTotal += end;
    for (const lsn of contents.images) this.#bytesTotal += contents.imageBytes(lsn);
    const snapshots: SnapshotScan[] = [];
    for (const lsn of contents.images) snapshots.push(await this.#checkImage(contents, lsn));
    const replayed = await this.#replay(contents);
    if (replayed !== undefined) {
      const { world, index } = replayed;
      this.#index = new IndexCheck(world, index, new TableExtents(this.#tables, this.#missing));
    }
    await this.#checkJournal(contents, snapshots);
    await this.#checkReach(contents, snapshots);
    if (this.#index !== undefined) {
      for await (const problem of this.#index.finish()) await this.#report(problem);
    }
    if (this.#refusal !== undefined && this.#problems === 0) {
      const what = this.#refusal;
      const meaning = "a server does not start on these tables";
      const file = "the journal";
      await this.#report(
        storeProblem({ kind: "refused", file, offset: 0, what, meaning, stopsServer: true }),
      );
    }
    return {
      problems: this.#problems,
      refusal: this.#refusal,
      torn: undefined,
      segments: contents.segments.length,
      frames: this.#frames,
      records: this.#records,
      snapshots: snapshots.length,
      blocks: snapshots.reduce((sum, { blocks }) => sum + blocks, 0),
      streams: replayed?.world.byId.size ?? 0,
      extents: this.#index?.extents ?? 0,
      bytes: this.#bytes,
      isIndexChecked: replayed !== undefined,
      nextLsn: this.#nextLsn,
    };
  }

  async #report(problem: StoreProblem): Promise<void> {
    this.#problems += 1;
    await this.#events.onProblem(problem);
  }

  async #advance(bytes: number): Promise<void> {
    this.#bytes += bytes;
    await this.#events.onProgress(this.#bytes, this.#bytesTotal);
  }

  async #checkImage(contents: TableContents, lsn: number): Promise<SnapshotScan> {
    const name = imageTable(lsn);
    const scan = await scanSnapshot(await contents.openImage(lsn), name);
    await this.#advance(scan.bytes);
    let { fault } = scan;
    const { head } = scan;
    if (fault === undefined && head?.lsn !== lsn) {
      fault = { offset: 0, what: `it is the snapshot of LSN ${head?.lsn}` };
    }
    const { storeId } = this.#cluster;
    const isOther = head !== undefined && head.storeId !== storeId;
    if (fault === undefined && isOther) {
      fault = { offset: 0, what: otherStore(head.storeId, storeId) };
    }
    if (fault !== undefined) {
      const meaning = "it is not used; a start takes an older one, or all frames";
      const stopsServer = isOther;
      await this.#report(
        storeProblem({ kind: "snapshot", file: name, lsn, meaning, stopsServer, ...fault }),
      );
    }
    return { ...scan, fault };
  }

  /** What a server would know. Undefined if it would know nothing. */
  async #replay(contents: TableContents): Promise<ReplayedLog | undefined> {
    try {
      return await replayLog(contents, () => undefined);
    } catch (error) {
      if (!isHapaxError(error, "data_damaged")) throw error;
      this.#refusal = error.message;
    }
    try {
      return await replayLog(contents, () => undefined, true);
    } catch (error) {
      if (!isHapaxError(error, "data_damaged")) throw error;
      return undefined;
    }
  }

  async #checkJournal(contents: TableContents, snapshots: readonly SnapshotScan[]): Promise<void> {
    const whole = snapshots.filter(({ fault }) => fault === undefined);
    this.#replayLsn = (whole[0]?.head?.lsn ?? 0) + 1;
    const oldestLsn = (whole.at(-1)?.head?.lsn ?? 0) + 1;
    const { segments } = contents;
    const replayFrom = segments.findLast(({ firstLsn }) => firstLsn <= this.#replayLsn);
    const known: KnownFrame[] = [...contents.known];
    for (const { name, head } of whole) if (head !== undefined) known.push({ ...head, by: name });
    this.#chain = new Chain(known);
    let previous: TableSegment | undefined;
    for (const [at, segment] of segments.entries()) {
      await this.#checkGap(previous, segment, oldestLsn);
      const next = segments[at + 1];
      const follower = next?.number === segment.number + 1 ? next.firstLsn : undefined;
      const isReplayed = segment.number >= (replayFrom?.number ?? 0);
      await this.#checkSegment(segment, follower, isReplayed);
      previous = segment;
    }
  }

  /** Segments from the older snapshot on must follow each other. Before it there are gaps where room was freed. */
  async #checkGap(
    previous: TableSegment | undefined,
    { number, firstLsn }: TableSegment,
    oldestLsn: number,
  ): Promise<void> {
    const isNext = number === (previous?.number ?? 0) + 1;
    const lsn = previous === undefined ? oldestLsn : this.#nextLsn;
    if (firstLsn <= oldestLsn || (isNext && firstLsn === lsn)) return;
    const file = segmentTable(isNext ? number : number - 1);
    const what = `frames are missing: LSN ${lsn} to ${firstLsn - 1}`;
    const meaning = `what they contain is lost, or ${GOES_BACK}`;
    const stopsServer = firstLsn > this.#replayLsn;
    await this.#report(
      storeProblem({ kind: "missing_segment", file, offset: 0, lsn, what, meaning, stopsServer }),
    );
  }

  async #checkSegment(
    segment: TableSegment,
    follower: number | undefined,
    isReplayed: boolean,
  ): Promise<void> {
    const { name, number, firstLsn } = segment;
    const found: StoreProblem[] = [];
    const link = this.#chain.segment(name, segment);
    if (link !== undefined) found.push(describeLink(name, 0, firstLsn, link, isReplayed));
    else if (firstLsn === 1 && segment.crcBefore !== 0) {
      found.push(describeLink(name, 0, 1, "there is no frame before LSN 1", false));
    }
    if (this.#missing.has(number)) {
      found.push(describeMissing(name, firstLsn, isReplayed));
      this.#index?.endOfSegment(number, name, true);
      this.#nextLsn = follower ?? firstLsn;
    } else {
      const check = new FrameCheck(segment, this.#index, found, this.#replayLsn, this.#chain);
      const scan = await scanRows(this.#tables, segment, follower, (frame) => check.take(frame));
      for (const range of scan.damage) found.push(describeRows(name, range, isReplayed));
      found.push(...(this.#index?.endOfSegment(number, name, scan.damage.length > 0) ?? []));
      this.#frames += scan.frames;
      this.#records += check.records;
      this.#nextLsn = scan.nextLsn;
    }
    for (const problem of found) await this.#report(problem);
    await this.#advance(segment.end);
  }

  /** Checks that the journal reaches as far as its snapshots and its last owner say. */
  async #checkReach(contents: TableContents, snapshots: readonly SnapshotScan[]): Promise<void> {
    const meaning = `what it contained was acknowledged, and is lost, or ${GOES_BACK}`;
    for (const { lsn, by } of contents.known) {
      if (lsn < this.#nextLsn) continue;
      const what = `the end of the journal is missing: LSN ${this.#nextLsn} to ${lsn}`;
      const problem = { kind: "missing_end", file: by, offset: 0, lsn, what, meaning } as const;
      await this.#report(storeProblem({ ...problem, stopsServer: true }));
    }
    for (const { name, head, fault } of snapshots) {
      if (fault !== undefined || head === undefined || head.lsn < this.#nextLsn) continue;
      const { lsn } = head;
      const what = `it goes beyond the journal, which ends at LSN ${this.#nextLsn - 1}`;
      const problem = { kind: "snapshot", file: name, offset: 0, lsn, what, meaning } as const;
      await this.#report(storeProblem({ ...problem, stopsServer: true }));
    }
  }
}

/** A segment without its table has no rows. */
function withoutTables(tables: ShardTables, missing: ReadonlySet<number>): ShardTables {
  if (missing.size === 0) return tables;
  return {
    ...boundReads(tables),
    endOf: (segment) => (missing.has(segment) ? Promise.resolve(0) : tables.endOf(segment)),
    frames: (segment, from) => {
      return missing.has(segment) ? Promise.resolve([]) : tables.frames(segment, from);
    },
  };
}

function boundReads(tables: ShardTables): ShardTables {
  const refuse = (): never => {
    throw new Error("a verification writes nothing");
  };
  return {
    state: () => tables.state(),
    take: refuse,
    release: refuse,
    beat: refuse,
    write: refuse,
    confirm: refuse,
    look: refuse,
    sweep: refuse,
    frames: (segment, from) => tables.frames(segment, from),
    read: (segment, position, length) => tables.read(segment, position, length),
    endOf: (segment) => tables.endOf(segment),
    segments: () => tables.segments(),
    images: () => tables.images(),
    imagePart: (image, part) => tables.imagePart(image, part),
    released: () => tables.released(),
  };
}

/** Reads extents for the check of the index. */
class TableExtents implements ExtentSource {
  readonly #tables: ShardTables;
  readonly #missing: ReadonlySet<number>;
  #known: ReadonlySet<number> | undefined;

  constructor(tables: ShardTables, missing: ReadonlySet<number>) {
    this.#tables = tables;
    this.#missing = missing;
  }

  nameOf(segment: number): string {
    return segmentTable(segment);
  }

  async read({ segment, position, bytes }: Extent): Promise<Buffer> {
    this.#known ??= new Set((await this.#tables.segments()).map(({ number }) => number));
    if (!this.#known.has(segment) || this.#missing.has(segment)) {
      throw damaged("the segment is missing");
    }
    const pieces = await this.#tables.read(segment, position, bytes);
    const whole: Uint8Array[] = [];
    let end = position;
    for (const piece of pieces) {
      if (piece.position !== end) break;
      whole.push(piece.bytes);
      end += piece.bytes.length;
    }
    return Buffer.concat(whole);
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}

function describeMissing(file: string, lsn: number, stopsServer: boolean): StoreProblem {
  const what = "the table is missing";
  const meaning = stopsServer
    ? `a server does not start; ${GOES_BACK}`
    : "data that is lost with it is listed as such";
  return storeProblem({
    kind: "missing_segment",
    file,
    offset: 0,
    lsn,
    what,
    meaning,
    stopsServer,
  });
}

function describeRows(file: string, range: DamagedRows, stopsServer: boolean): StoreProblem {
  const { position, end, firstLsn, lastLsn } = range;
  const frames =
    lastLsn > firstLsn ? `frames LSN ${firstLsn} to ${lastLsn}` : `frame LSN ${firstLsn}`;
  const where = end > position ? `${end - position} bytes` : "the rows are missing";
  const what =
    lastLsn >= firstLsn
      ? `${frames} cannot be read (${where})`
      : `${where} before LSN ${firstLsn} are no frame`;
  const meaning = stopsServer
    ? `a server does not start; ${GOES_BACK}`
    : "a snapshot has its state; data that is lost with it is listed as such";
  const lsn = firstLsn;
  return storeProblem({ kind: "frames", file, offset: position, lsn, what, meaning, stopsServer });
}
