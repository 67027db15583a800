/**
 * The plain appends of a handle. Each happens exactly once, through an implied producer with a random id.
 *
 *   - appends are stored in the order of the calls, also of calls that do not wait for each other;
 *   - an append that is given up is over for its caller at once. When no other waits, nothing more is sent, and a
 *     process that has nothing else to do can end. Data that was sent may still be stored. It comes
 *     before later appends, unless it was the first append of all;
 *   - a refused append does not fail its neighbours: those that were certainly not stored
 *     go on under a new identity, in their order. If the outcome of one is unknown, those behind it are
 *     refused as well, because they could be stored before it.
 */

import { HapaxError } from "../base/error-codes.ts";
import type { Ending } from "./batching.ts";
import type { WaitingRecord, Listener } from "./entries.ts";
import { failureOf, unconfirmed } from "./failure.ts";
import { identityFor } from "./identity.ts";
import type { Peer } from "./peer.ts";
import { encode, NO_DATA } from "./records.ts";
import { Sender } from "./sender.ts";
import type { SenderOptions } from "./sender-events.ts";

/** The result of `append()`: the server has stored the data. */
export interface Appended {
  /** The offset after the append. `undefined` if the server did not send it, for a repetition. */
  readonly offset: string | undefined;
  /** An earlier attempt had stored it. */
  readonly isDuplicate: boolean;
}

const SETTINGS: SenderOptions = {
  inFlightMax: 5,
  bytesMax: 1024 * 1024,
  recordsMax: Infinity,
  lingerMs: 0,
  // The caller is waiting, so an append waits for another one only if it must.
  pipelinedBytesMin: 0,
};
/** The most bytes that all unanswered calls may hold together. */
const PENDING_BYTES_MAX = 64 * 1024 * 1024;

export class AppendCalls {
  readonly #peer: Peer;
  #sender: Sender | undefined;
  /** The id of a writer that was given up. */
  #usedId: string | undefined;
  /** The number of calls that are not answered. */
  #waiting = 0;

  constructor(peer: Peer) {
    this.#peer = peer;
  }

  /** Appends data, or nothing with conditions (a close). */
  append(
    data: unknown,
    conditions: Readonly<Record<string, string>> | undefined,
    signal: AbortSignal | undefined,
  ): Promise<Appended> {
    const { caller, knownCodec } = this.#peer;
    return new Promise((resolve, reject) => {
      const aborted = caller.abortedBy(signal);
      if (aborted !== undefined) throw aborted;
      const encoded = data === undefined ? NO_DATA : encode(data, knownCodec);
      let isAnswered = false;
      const finish = (): void => {
        isAnswered = true;
        if (this.#waiting < 1) throw new HapaxError("internal", "not last");
        this.#waiting -= 1;
        unlisten();
      };
      const listener: Listener = (ending) => {
        if (isAnswered) return;
        if (goesOn(ending)) {
          this.#push(entry, Infinity);
          return;
        }
        finish();
        if ("receipt" in ending) resolve(ending.receipt);
        else reject(failureOf(ending.error, [unconfirmed(data, ending)]));
      };
      const entry = { encoded, listener, conditions };
      this.#push(entry, PENDING_BYTES_MAX);
      this.#waiting += 1;
      const unlisten = caller.onAbort(signal, () => {
        if (isAnswered) return;
        const sender = this.#sender;
        sender?.withdraw(listener);
        finish();
        // The next append can use a sender that has sent nothing, or has nothing on its way.
        if (this.#waiting === 0 && sender && (sender.inFlight > 0 || sender.epoch === undefined)) {
          this.#usedId = sender.abandon();
          this.#sender = undefined;
        }
        reject(caller.abortedBy(signal));
      });
    });
  }

  #push(entry: WaitingRecord, heldBytesMax: number): void {
    // A sender that has stopped still takes entries, and hands them back in order.
    this.#sender ??= this.#open();
    this.#sender.push(entry, heldBytesMax);
  }

  #open(): Sender {
    const sender = new Sender(
      this.#peer,
      SETTINGS,
      (signal) => identityFor(this.#peer, undefined, undefined, signal, this.#usedId),
      {
        onEnding: () => {
          // From here on its successor takes the entries that it hands back.
          if (this.#sender === sender) this.#sender = undefined;
        },
      },
    );
    return sender;
  }
}

function goesOn(ending: Ending): boolean {
  return !("receipt" in ending) && !ending.isCause && ending.isOpen;
}
