/**
 * Appends that came before their predecessors and may wait for them. PROTOCOL.md §17.
 *
 *   - what is held is bounded: in number for each producer, in number and bytes in all;
 *   - a held append is decided when its predecessors are, in the order of the sequences;
 *   - every held append is answered: by its turn, by its time, or because its client has gone.
 */

import { assert } from "../../base/assert.ts";
import type { Clock } from "../../base/clock.ts";
import type { AppendCommand } from "../core/append.ts";
import { decideProducer, type ProducerClaim } from "../core/producer.ts";
import type { StreamState } from "../core/stream.ts";
import type { ProducerId, StreamId, StreamName } from "../core/types.ts";
import { LIMITS } from "../../protocol/limits.ts";
import type { Allowance } from "./holdings.ts";

/** How long an append may wait, and how to hear that its client has gone. */
export interface Patient {
  readonly waitMs: number;
  readonly onAbort: (run: () => void) => void;
  /** Set once the append has been held. */
  wasHeld: boolean;
}

export interface Held<T> {
  readonly stream: StreamId;
  readonly name: StreamName;
  readonly command: AppendCommand;
  readonly claim: ProducerClaim;
  readonly allowance: Allowance | undefined;
  readonly resolve: (outcome: T | Promise<T>) => void;
  readonly reject: (reason: unknown) => void;
  cancelTimer: () => void;
}

export class Patience<T> {
  readonly #clock: Clock;
  readonly #bytesMax: number;
  readonly #streams = new Map<StreamId, Map<ProducerId, Held<T>[]>>();
  #count = 0;
  #bytes = 0;

  /** `bytesMax`: bytes of everything that is held. */
  constructor(clock: Clock, bytesMax: number) {
    this.#clock = clock;
    this.#bytesMax = bytesMax;
  }

  get count(): number {
    return this.#count;
  }

  /** The outcome to come, or undefined if it cannot be held. `onTime` answers it when its time is over. */
  hold(
    state: StreamState,
    command: AppendCommand,
    patient: Patient,
    onTime: (held: Held<T>) => void,
    allowance?: Allowance,
  ): Promise<T> | undefined {
    const claim = command.producer;
    if (claim === undefined || patient.waitMs <= 0) return undefined;
    const { length } = command.data;
    if (this.#count >= LIMITS.heldMax || this.#bytes + length > this.#bytesMax) {
      return undefined;
    }
    const list = this.#listOf(state.id, claim.id);
    if (list.length >= LIMITS.heldPerProducerMax) return undefined;
    return new Promise<T>((resolve, reject) => {
      const { name, id: stream } = state;
      const cancelTimer = (): void => undefined;
      const held: Held<T> = {
        stream,
        name,
        command,
        claim,
        allowance,
        resolve,
        reject,
        cancelTimer,
      };
      held.cancelTimer = this.#clock.after(patient.waitMs, () => {
        if (this.#drop(held)) onTime(held);
      });
      const at = list.findIndex((other) => other.claim.sequence > claim.sequence);
      list.splice(at === -1 ? list.length : at, 0, held);
      this.#count += 1;
      this.#bytes += length;
      patient.wasHeld = true;
      // The client is gone and gets no answer: the append only must not stay in memory.
      patient.onAbort(() => {
        if (this.#drop(held)) onTime(held);
      });
    });
  }

  /** Takes out the next append of this producer that has waited long enough: nothing is missing before it. */
  next(state: StreamState, id: ProducerId): Held<T> | undefined {
    const list = this.#streams.get(state.id)?.get(id);
    const known = state.producers?.get(id);
    const held = list?.find(({ claim }) => !isAhead(decideProducer(known, claim, undefined)));
    if (held !== undefined) this.#drop(held);
    return held;
  }

  /** Takes out everything that is held, or everything of one stream. */
  takeAll(stream?: StreamId): readonly Held<T>[] {
    const producers =
      stream === undefined ? [...this.#streams.values()] : [this.#streams.get(stream)];
    const all = producers
      .flatMap((lists) => (lists === undefined ? [] : [...lists.values()]))
      .flat();
    for (const held of all) this.#drop(held);
    return all;
  }

  #listOf(stream: StreamId, id: ProducerId): Held<T>[] {
    let producers = this.#streams.get(stream);
    if (producers === undefined) {
      producers = new Map();
      this.#streams.set(stream, producers);
    }
    let list = producers.get(id);
    if (list === undefined) {
      list = [];
      producers.set(id, list);
    }
    return list;
  }

  #drop(held: Held<T>): boolean {
    const producers = this.#streams.get(held.stream);
    const list = producers?.get(held.claim.id);
    const at = list?.indexOf(held) ?? -1;
    if (producers === undefined || list === undefined || at === -1) return false;
    list.splice(at, 1);
    if (list.length === 0) producers.delete(held.claim.id);
    if (producers.size === 0) this.#streams.delete(held.stream);
    held.cancelTimer();
    this.#count -= 1;
    this.#bytes -= held.command.data.length;
    assert(this.#count >= 0 && this.#bytes >= 0, "more is let go than was held");
    return true;
  }
}

/** Whether an append may succeed later, once others have come. */
export function isAhead(decision: { readonly kind: string }): boolean {
  return decision.kind === "gap" || decision.kind === "epoch_start";
}
