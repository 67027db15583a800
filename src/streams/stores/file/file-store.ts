/** The file store over any disk: it recovers a directory, and opens its journal. */

import { systemClock } from "../../../base/clock.ts";
import { systemRandom } from "../../../base/random.ts";
import type { Store } from "../../store.ts";
import { type JournalOptions, type JournalStats, openJournal } from "../journal/journal-store.ts";
import type { RecoveryReport } from "../journal/replay.ts";
import type { Disk } from "./disk.ts";
import { FileLog } from "./file-log.ts";
import { recover } from "./recovery.ts";

/** Options of the file store. The defaults prefer safety to speed. */
export interface FileStoreOptions extends JournalOptions {
  /** `fsync`: a commit survives a power cut. `os`: it survives the end of the process. Default `fsync`. */
  readonly durability?: "fsync" | "os";
  /** Size of a journal file in bytes. Default 64 MiB. */
  readonly segmentBytes?: number;
}

/** Sizes of the journal at this moment. */
export type FileStoreStats = JournalStats;

/** A store in a directory. See `openFileStore`. */
export interface FileStore extends Store {
  readonly recovery: RecoveryReport;
  stats(): FileStoreStats;
  /** Writes a snapshot now and frees the disk space that nothing needs. */
  maintain(): Promise<void>;
}

/** Opens a file store over any disk. Calls `release` when the store is closed. `secret`: what the store has as its own. */
export async function openOnDisk(
  disk: Disk,
  options: FileStoreOptions,
  release: () => Promise<void>,
  secret?: () => Promise<string>,
): Promise<FileStore> {
  const { clock = systemClock, random = systemRandom } = options;
  const begunMs = clock.steadyMs();
  const recovered = await recover(disk, options.onProgress ?? (() => undefined));
  const segmentBytes = options.segmentBytes ?? 64 * 1024 * 1024;
  const log = new FileLog({ disk, clock, random, segmentBytes, recovered, release });
  const supports = { durability: options.durability ?? "fsync" };
  return openJournal({ log, replayed: recovered, supports, secret, begunMs }, options);
}
