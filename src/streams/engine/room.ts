/**
 * Whether there is room for a write. It is asked before anything is decided, in the same synchronous step, so that a full
 * disk refuses writes and breaks nothing.
 */

import { HapaxError } from "../../base/errors.ts";
import { LIMITS } from "../../protocol/limits.ts";
import type { StoreRoom } from "../store.ts";
import type { GroupCommit } from "./commit.ts";

/** What a change without data takes in a store, at most. */
const CHANGE_BYTES = 64;

export class Room {
  readonly #room: StoreRoom;
  readonly #commit: GroupCommit;
  readonly #pendingBytesMax: number;

  constructor(
    room: StoreRoom,
    commit: GroupCommit,
    pendingBytesMax: number = LIMITS.pendingBytesMax,
  ) {
    this.#room = room;
    this.#commit = commit;
    this.#pendingBytesMax = pendingBytesMax;
  }

  /** Refuses a write of this size before anything is decided. */
  admit(bytes: number): void {
    const { stopped, pendingBytes } = this.#commit;
    if (stopped !== undefined) throw stopped;
    if (pendingBytes + bytes > this.#pendingBytesMax) {
      throw new HapaxError("too_many", `too many bytes wait for the disk: ${pendingBytes}`);
    }
    if (pendingBytes + bytes > this.#room.bytes) {
      throw new HapaxError("store_full", `there is no room for ${bytes} more bytes`);
    }
  }

  /** Whether `admit` would take a write of this size. */
  has(bytes: number): boolean {
    const { stopped, pendingBytes } = this.#commit;
    const left = Math.min(this.#pendingBytesMax, this.#room.bytes);
    return stopped === undefined && pendingBytes + bytes <= left;
  }

  /** The same for a change that frees room. */
  admitRemoval(): void {
    const { stopped } = this.#commit;
    if (stopped !== undefined) throw stopped;
    if (this.#room.bytes < -1) {
      throw new HapaxError("store_full", "there is no room even for a delete");
    }
  }

  /** For what frees room, and no request waits for. */
  get mayFree(): boolean {
    return this.#commit.stopped === undefined && this.#room.bytes >= -1;
  }

  /** For what can wait: on a full disk it must not take the room that deletes need. */
  get hasRoomToSpare(): boolean {
    const { stopped, waitingChanges } = this.#commit;
    return stopped === undefined && waitingChanges * CHANGE_BYTES <= this.#room.bytes;
  }

  /** Whether a write fits that no request waits for. It leaves half of the room that requests have. */
  canTake(bytes: number): boolean {
    const { stopped, pendingBytes } = this.#commit;
    const isPatient = pendingBytes + bytes <= this.#pendingBytesMax / 2;
    return stopped === undefined && isPatient && pendingBytes + bytes <= this.#room.bytes;
  }

  /** The store takes no data. */
  get isFull(): boolean {
    return this.#room.bytes <= 0;
  }
}
