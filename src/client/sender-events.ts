/** What a sender is told, and what it tells. */

import type { HapaxError } from "../base/errors.ts";
import type { BatchLimits, NotConfirmed, Receipt } from "./batching.ts";
import type { Entry } from "./entries.ts";

export interface SenderSettings extends BatchLimits {
  readonly inFlightMax: number;
  readonly lingerMs: number;
  /** From here on a batch is worth a request of its own beside those on their way. */
  readonly pipelinedBytesMin: number;
}

/** What `onBatchAck` hears of one stored batch. */
export interface BatchAck extends Receipt {
  /** How many records the batch had. */
  readonly records: number;
}

/** What a sender tells its owner. */
export interface SenderEvents {
  onAck?(ack: BatchAck): void;
  /** These were not confirmed, and their listeners have been told. */
  onUnconfirmed?(entries: readonly Entry[], ending: NotConfirmed): void;
  /** The writer takes no more records: what comes now goes to another. None has been told yet. */
  onEnding?(): void;
  /** The writer has ended, and all listeners have been told. */
  onEnd?(error: HapaxError): void;
}
