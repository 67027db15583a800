/** Opens a store in PostgreSQL: checks the server, takes the shard over, replays its log, and begins to write. */

import { systemClock } from "../../../base/clock.ts";
import { HapaxError } from "../../../base/errors.ts";
import { systemRandom } from "../../../base/random.ts";
import { damage } from "../journal/bytes.ts";
import { type JournalStore, openJournal } from "../journal/journal-store.ts";
import { type RecoveryProgress, replayLog } from "../journal/replay.ts";
import { TableContents } from "./contents.ts";
import type { PostgresStore, PostgresStoreOptions } from "./contract.ts";
import { keepsPromise } from "./engine-checks.ts";
import { Fence } from "./fence.ts";
import type { ShardFollower } from "./follower.ts";
import { Heartbeat, takeOver } from "./ownership.ts";
import { PostgresLog } from "./postgres-log.ts";
import { PostgresRoom } from "./postgres-room.ts";
import { PostgresTables } from "./postgres-tables.ts";
import { withRetries } from "./retries.ts";
import { type ClusterRow, openTables, quoteSchema } from "./schema.ts";
import type { Session } from "./session.ts";
import type { ReleaseMark, ShardTables } from "./tables.ts";

const LEASE_MS = 5000;
const SEGMENT_BYTES = 64 * 1024 * 1024;

/** Opens the store over a session. The checks of the server were made. */
export async function openOnSession(
  session: Session,
  options: PostgresStoreOptions,
): Promise<PostgresStore> {
  const schema = quoteSchema(options.schema ?? "hapax");
  const cluster = await openTables(session, schema, options.random ?? systemRandom, 1);
  if (cluster.shards !== 1) {
    const what = `the tables are those of a cluster of ${cluster.shards} shards`;
    throw new HapaxError("invalid_options", `${what}: start a node of it, with --peers`);
  }
  const tables = new PostgresTables(session, {
    schema,
    shard: 0,
    keepsPromise: (level, standbys) => keepsPromise(options, level, standbys),
  });
  return openOnTables(tables, cluster, options, () => session.close());
}

/** What a node of a cluster opens a shard with. */
export interface ShardParts {
  /** Of a process that owns several shards. */
  readonly life?: string;
  /** A warm copy, which ends here. */
  readonly follower?: ShardFollower | undefined;
}

export interface ShardStore extends PostgresStore {
  /** It goes on with the world of a warm copy. */
  readonly isWarm: boolean;
}

/** Opens the store over any tables. `end`: called when it is closed. */
export async function openOnTables(
  statements: ShardTables,
  { storeId, secret }: Pick<ClusterRow, "storeId" | "secret">,
  options: PostgresStoreOptions,
  end: () => Promise<void>,
  { life: ownLife, follower }: ShardParts = {},
): Promise<ShardStore> {
  const { clock = systemClock, random = systemRandom, leaseMs = LEASE_MS } = options;
  const begunMs = clock.steadyMs();
  const tables = withRetries(statements, clock);
  const warn = options.onWarning ?? (() => undefined);
  const life = ownLife ?? random.id();
  const owner = { node: options.node ?? life, life };
  const { takeover = "refuse", signal } = options;
  const { epoch, timeMs } = await takeOver(tables, owner, clock, { takeover, leaseMs, signal });
  let store: JournalStore | undefined;
  const lose = (error: Error): void => {
    store?.stop(error);
    options.onLost?.(error);
  };
  // From here on: a replay may take longer than a lease.
  const heartbeat = new Heartbeat(tables, owner, epoch, { clock, leaseMs, onMoved: lose });
  const room = new PostgresRoom(options.bytesMax);
  const onFull = (isFull: boolean): void => room.refused(isFull);
  const fence = new Fence({ tables, epoch, clock, onWarning: warn, onFull });
  room.onStopWaiting(() => fence.stopWaiting());
  const release = async (mark: ReleaseMark | undefined): Promise<void> => {
    heartbeat.stop();
    // Best effort: without it the next owner waits for a lease.
    await tables.release(epoch, mark).catch(() => undefined);
    await end();
  };
  try {
    const onProgress = options.onProgress ?? (() => undefined);
    const warm = await follower?.end(tables, onProgress);
    const { contents, replayed } = warm ?? (await replayAll(tables, storeId, onProgress));
    const [known] = contents.known;
    if (known !== undefined && replayed.nextLsn <= known.lsn) {
      throw damage(
        "hapax_shard",
        0,
        `the end of the journal is missing: LSN ${replayed.nextLsn} to ${known.lsn}`,
      );
    }
    const { nextLsn, lastCrc } = replayed;
    const segmentBytes = options.segmentBytes ?? SEGMENT_BYTES;
    const parts = { tables, fence, contents, room, epoch, storeId, segmentBytes, random };
    const log = new PostgresLog({ ...parts, nextLsn, lastCrc, release });
    const supports = { durability: options.durability ?? "replicated" } as const;
    store = await openJournal(
      {
        log,
        replayed,
        supports,
        secret: () => Promise.resolve(secret),
        begunMs,
        openedAtMs: timeMs,
      },
      options,
    );
    return withCounts(store, fence, { epoch, isWarm: warm !== undefined });
  } catch (error) {
    await release(undefined);
    throw error;
  }
}

async function replayAll(tables: ShardTables, storeId: string, onProgress: RecoveryProgress) {
  const contents = await TableContents.list(tables, storeId);
  return { contents, replayed: await replayLog(contents, onProgress) };
}

function withCounts(
  journal: JournalStore,
  fence: Fence,
  { epoch, isWarm }: Pick<ShardStore, "epoch" | "isWarm">,
): ShardStore {
  const stats = journal.stats.bind(journal);
  return Object.assign(journal, {
    epoch,
    isWarm,
    stats: () => ({ ...stats(), epoch, ...fence.counts }),
  });
}

/** What makes an option useless, said before anything is opened. */
export function requireOptions(options: PostgresStoreOptions): void {
  const { leaseMs = LEASE_MS, segmentBytes = SEGMENT_BYTES } = options;
  if (!(leaseMs >= 50 && leaseMs <= 600_000)) {
    throw new HapaxError("invalid_options", `leaseMs must be 50 to 600,000: leaseMs=${leaseMs}`);
  }
  if (!(segmentBytes >= 4096 && segmentBytes <= 2 ** 31)) {
    const what = "segmentBytes must be 4,096 to 2,147,483,648";
    throw new HapaxError("invalid_options", `${what}: segmentBytes=${segmentBytes}`);
  }
}
