/**
 * The plain appends of a handle: exactly once by themselves, through an implied producer of a random id.
 *
 *   AP1  appends are stored in the order of the calls, also of calls that do not wait for each other;
 *   AP2  an append that is refused takes none of its neighbours with it: those that were certainly not stored
 *        go on under a new identity, in their order. If the outcome of one is unknown, those behind it are
 *        refused as well, because they could end up before it.
 */

import { HapaxError } from "../errors.ts";
import { type Ending, type Item, weightOf } from "./batching.ts";
import { failureOf } from "./failure.ts";
import { identityFor } from "./identity.ts";
import type { Peer } from "./peer.ts";
import { encode } from "./records.ts";
import { Sender, type SenderSettings } from "./sender.ts";

/** The server's word that an append is stored. */
export interface Appended {
  /** Where the stream went on after it. `undefined` if the server did not say so, for a repetition. */
  readonly offset: string | undefined;
  /** An earlier attempt had stored it. */
  readonly isDuplicate: boolean;
}

const SETTINGS: SenderSettings = {
  inFlightMax: 5,
  bytesMax: 1024 * 1024,
  recordsMax: Infinity,
  lingerMs: 0,
  // Whoever calls is waiting: no append waits for another if it need not.
  pipelinedBytesMin: 0,
};
/** What all calls together may hold that are not answered yet. */
const PENDING_BYTES_MAX = 64 * 1024 * 1024;

export class Appends {
  readonly #peer: Peer;
  #sender: Sender | undefined;
  #pendingBytes = 0;

  constructor(peer: Peer) {
    this.#peer = peer;
  }

  /** Appends data, or nothing with conditions (a close). */
  append(
    data: unknown,
    conditions: Readonly<Record<string, string>> | undefined,
    signal: AbortSignal | undefined,
  ): Promise<Appended> {
    return new Promise((resolve, reject) => {
      const aborted = this.#peer.caller.abortedBy(signal);
      if (aborted !== undefined) throw aborted;
      const piece = data === undefined ? undefined : encode(data, this.#peer.knownCodec);
      const onAbort = (): void => {
        this.#sender?.withdraw(item);
        finish();
        reject(this.#peer.caller.abortedBy(signal) ?? new Error("aborted"));
      };
      const finish = (): void => {
        unlisten();
        this.#pendingBytes -= weightOf(item);
      };
      const item: Item = {
        data,
        piece,
        conditions,
        end: (ending) => {
          if (isAnswered) return;
          if (this.#goesOn(ending)) {
            this.#push(item);
            return;
          }
          isAnswered = true;
          finish();
          if (ending.kind === "stored") resolve(ending.receipt);
          else {
            const { error, outcome, isCause } = ending;
            reject(failureOf(error, [{ data, outcome, isCause }]));
          }
        },
      };
      let isAnswered = false;
      const unlisten = this.#peer.caller.onAbort(signal, () => {
        if (isAnswered) return;
        isAnswered = true;
        onAbort();
      });
      this.#pendingBytes += weightOf(item);
      if (this.#pendingBytes > PENDING_BYTES_MAX) {
        finish();
        throw new HapaxError("producer_full", "too many appends of this handle have no answer yet");
      }
      this.#push(item);
    });
  }

  /** AP2. */
  #goesOn(ending: Ending): boolean {
    if (ending.kind === "stored" || ending.isCause) return false;
    return ending.outcome === "not_stored" && ending.isOpen;
  }

  #push(item: Item): void {
    // A sender that has stopped still takes what comes, and hands it back in order.
    this.#sender ??= this.#open();
    this.#sender.push(item);
  }

  #open(): Sender {
    const sender = new Sender(this.#peer, SETTINGS, () => identityFor(this.#peer), {
      onAck: () => undefined,
      onEnd: () => undefined,
      onEnding: () => {
        // From here on what is handed back belongs to its successor.
        if (this.#sender === sender) this.#sender = undefined;
      },
    });
    return sender;
  }
}
