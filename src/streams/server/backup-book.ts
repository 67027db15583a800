/**
 * The backups that clients are making. Each has an instant of the store, and keeps what that consists of until it is done, or until
 * no request has come for a minute.
 */

import type { Clock } from "../../base/clock.ts";
import { HapaxError } from "../../base/errors.ts";
import { LIMITS } from "../../protocol/all-limits.ts";
import type { StoreBackup } from "../store.ts";

/** A backup, while it is made. */
export interface OpenBackup {
  readonly id: string;
  /** Wall clock of its instant. */
  readonly takenAtMs: number;
  readonly store: StoreBackup;
}

interface Kept {
  readonly backup: OpenBackup;
  heardAtMs: number;
  cancel: () => void;
}

/** The last backup that a client has finished. */
export interface LastBackup {
  readonly takenAtMs: number;
  readonly lsn: number;
  readonly bytes: number;
}

export class BackupBook {
  readonly #clock: Clock;
  readonly #open = new Map<string, Kept>();
  #beginning = 0;
  /** Since the server was started. */
  last: LastBackup | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get running(): number {
    return this.#open.size + this.#beginning;
  }

  async begin(id: string, take: () => Promise<StoreBackup>): Promise<OpenBackup> {
    if (this.running >= LIMITS.backupsMax) this.#endSilent();
    if (this.running >= LIMITS.backupsMax) {
      throw new HapaxError("too_many", `${LIMITS.backupsMax} backups are running`);
    }
    this.#beginning += 1;
    try {
      const store = await take();
      const backup = { id, takenAtMs: this.#clock.nowMs(), store };
      const heardAtMs = this.#clock.steadyMs();
      this.#open.set(id, { backup, heardAtMs, cancel: this.#endLater(id) });
      return backup;
    } finally {
      this.#beginning -= 1;
    }
  }

  /** Throws `backup_over` for one that is not there, or not any more. A request for it keeps it. */
  find(id: string): OpenBackup {
    const found = this.#open.get(id);
    if (found === undefined) throw new HapaxError("backup_over", "no such backup is running");
    found.cancel();
    found.cancel = this.#endLater(id);
    found.heardAtMs = this.#clock.steadyMs();
    return found.backup;
  }

  /** `isDone`: the client has all of it. A repetition changes nothing. */
  end(id: string, isDone: boolean): OpenBackup | undefined {
    const found = this.#open.get(id);
    if (found === undefined) return undefined;
    const { backup } = found;
    found.cancel();
    this.#open.delete(id);
    backup.store.release();
    if (isDone) {
      const { takenAtMs, store } = backup;
      this.last = { takenAtMs, lsn: store.lsn, bytes: heldBytes(store) };
    }
    return backup;
  }

  /** Clients that were killed must not keep others out for as long as their backups are held. */
  #endSilent(): void {
    const nowMs = this.#clock.steadyMs();
    for (const [id, { heardAtMs }] of this.#open) {
      if (nowMs - heardAtMs >= LIMITS.backupSilentMs) this.end(id, false);
    }
  }

  #endLater(id: string): () => void {
    return this.#clock.after(LIMITS.backupLeaseMs, () => {
      this.end(id, false);
    });
  }
}

/** What a backup consists of. */
export function heldBytes({ segments, images }: StoreBackup): number {
  let bytes = 0;
  for (const { end } of segments) bytes += end;
  for (const image of images) bytes += image.bytes;
  return bytes;
}
