/** The options and the events of a sender. */

import type { HapaxError } from "../base/errors.ts";
import type { BatchLimits, NotConfirmed, Receipt } from "./batching.ts";
import type { WaitingRecord } from "./entries.ts";

export interface SenderOptions extends BatchLimits {
  readonly inFlightMax: number;
  readonly lingerMs: number;
  /** A batch of at least this many bytes gets a request of its own beside those on their way. */
  readonly pipelinedBytesMin: number;
}

/** The argument of `onBatchAck`: one stored batch. */
export interface BatchAck extends Receipt {
  /** How many records the batch had. */
  readonly records: number;
}

/** Events for the owner of a sender. */
export interface SenderEvents {
  onAck?(ack: BatchAck): void;
  /** These entries were not confirmed, and their listeners have been called. */
  onUnconfirmed?(entries: readonly WaitingRecord[], ending: NotConfirmed): void;
  /** The writer takes no more records: new ones must go to another writer. No listener has been called yet. */
  onEnding?(): void;
  /** The writer has ended, and all listeners have been called. */
  onEnd?(error: HapaxError): void;
}
