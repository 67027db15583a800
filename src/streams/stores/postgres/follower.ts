/**
 * A warm copy of a shard that another server owns: its world and its index, a moment behind. A takeover then reads only what came
 * since.
 *
 *   - FL1 what a follower has read may be visible and not durable, so it answers nothing and acknowledges nothing. It counts only after
 *     a takeover was acknowledged, and if the last frame that it has read is still there, the same by its LSN and CRC;
 *   - FL2 a follower that does not fit the log is thrown away, and the log is replayed from its snapshot: it makes a takeover faster,
 *     and never wrong.
 */

import { isHapaxError } from "../../../base/errors.ts";
import { LogReplay, type RecoveryProgress, type ReplayedLog } from "../journal/replay.ts";
import { TableContents } from "./contents.ts";
import type { ShardTables } from "./tables.ts";

export class ShardFollower {
  readonly #tables: ShardTables;
  readonly #storeId: string;
  #contents: TableContents | undefined;
  #replay: LogReplay | undefined;
  #running: Promise<void> = Promise.resolve();
  #isEnded = false;

  constructor(tables: ShardTables, storeId: string) {
    this.#tables = tables;
    this.#storeId = storeId;
  }

  /** The LSN of the next frame that it waits for. Undefined: it has nothing yet. */
  get nextLsn(): number | undefined {
    return this.#replay?.nextLsn;
  }

  /** Reads what is new. Rejects if the database does not answer, and if what is there does not fit: the next look begins anew. */
  look(): Promise<void> {
    const looking = this.#running.then(() => (this.#isEnded ? undefined : this.#look()));
    this.#running = looking.catch(() => undefined);
    return looking;
  }

  /**
   * Ends the copy, for a takeover that was acknowledged. `tables`: those of the owner. Undefined: it has nothing that fits, and why.
   */
  async end(
    tables: ShardTables,
    onProgress: RecoveryProgress,
  ): Promise<{ readonly contents: TableContents; readonly replayed: ReplayedLog } | undefined> {
    this.#isEnded = true;
    await this.#running;
    const [replay, known] = [this.#replay, this.#contents];
    this.stop();
    if (replay === undefined) return undefined;
    try {
      const contents = await TableContents.list(tables, this.#storeId, known);
      await replay.advance(contents, onProgress);
      return { contents, replayed: replay.finish(contents) };
    } catch (error) {
      if (isHapaxError(error, "data_damaged")) return undefined; // What is wrong is found by the whole replay.
      throw error;
    }
  }

  /** Frees its memory. */
  stop(): void {
    this.#isEnded = true;
    this.#replay = undefined;
    this.#contents = undefined;
  }

  async #look(): Promise<void> {
    if (this.#replay !== undefined && !(await this.#hasNews())) return;
    try {
      const contents = await TableContents.list(this.#tables, this.#storeId, this.#contents);
      const replay = this.#replay ?? (await LogReplay.begin(contents));
      await replay.advance(contents, () => undefined);
      if (this.#isEnded) return;
      this.#replay = replay;
      this.#contents = contents;
    } catch (error) {
      // A lost connection leaves whole frames behind. Anything else is a copy that nothing can be said about.
      if (isHapaxError(error)) {
        this.#replay = undefined;
        this.#contents = undefined;
      }
      throw error;
    }
  }

  /** Whether the last segment has grown, or there is another one. One small statement each, while nothing happens. */
  async #hasNews(): Promise<boolean> {
    const last = this.#contents?.segments.at(-1);
    if (last === undefined) return true;
    if ((await this.#tables.endOf(last.number)) !== last.end) return true;
    return (await this.#tables.segments()).at(-1)?.number !== last.number;
  }
}
