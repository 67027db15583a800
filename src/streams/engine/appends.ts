/**
 * Appends, and what the streams know of those who send them: decide, stage, and wait. An append that is ahead of
 * others of its producer may be held until they have come.
 */

import { type AppendCommand, type AppendDecision, decideAppend } from "../core/append.ts";
import { isFromContent, type KeyDefaults } from "../core/keys.ts";
import { lastEnd, type ProducerState } from "../core/producer.ts";
import type { StreamState } from "../core/stream.ts";
import { assert } from "../../base/assert.ts";
import type { Epoch, Offset, ProducerId, Sequence, StreamId, StreamName } from "../core/types.ts";
import type { Act } from "./acts.ts";
import type { Allowance } from "./holdings.ts";
import type { KeySweeper } from "./key-sweeper.ts";
import { FirstNames } from "./listing.ts";
import { type AppendOutcome, type Gone, GONE, type Missing, MISSING } from "./outcomes.ts";
import { type Held, isAhead, Patience, type Patient } from "./patience.ts";
import type { Writer } from "./writer.ts";

/** What a stream knows of a producer, durably. */
export interface ProducerView {
  readonly id: ProducerId;
  readonly epoch: Epoch;
  readonly lastSequence: Sequence;
  /** Where its last append ended. */
  readonly end: Offset | undefined;
  readonly hasSession: boolean;
}

export type ResetOutcome =
  | { readonly kind: "reset"; readonly before: ProducerView }
  | { readonly kind: "producer_missing" }
  | Missing
  | Gone;

export interface AppendParts {
  readonly writer: Writer;
  readonly keyDefaults: KeyDefaults;
  readonly keySweeper: KeySweeper;
  /** Bytes of appends that wait for their predecessors. */
  readonly heldBytesMax: number;
}

export class Appends {
  readonly #writer: Writer;
  readonly #keyDefaults: KeyDefaults;
  readonly #keySweeper: KeySweeper;
  readonly #patience: Patience<AppendOutcome>;

  constructor({ writer, keyDefaults, keySweeper, heldBytesMax }: AppendParts) {
    this.#writer = writer;
    this.#keyDefaults = keyDefaults;
    this.#keySweeper = keySweeper;
    this.#patience = new Patience(writer.clock, heldBytesMax);
    // What is held is decided now, and refused: the stream has gone.
    writer.expiry.onEnd((id) => {
      this.release(id);
    });
  }

  /** Appends that wait for their predecessors. */
  get held(): number {
    return this.#patience.count;
  }

  append(
    name: StreamName,
    command: AppendCommand,
    patient?: Patient,
    allowance?: Allowance,
  ): Promise<AppendOutcome> {
    const writer = this.#writer;
    writer.room.admit(command.data.length + (command.closes ? writer.closeBytes(name) : 0));
    const state = writer.find(name);
    if (state === undefined) return this.#refuse(name, undefined, command, MISSING);
    if (state.isDeleted) return this.#refuse(name, state, command, GONE);
    const decision = this.#decide(state, command, allowance);
    if (decision.kind !== "accepted") {
      if (patient !== undefined && isAhead(decision)) {
        const held = this.#hold(state, command, patient, allowance);
        if (held !== undefined) return held;
      }
      writer.expiry.touch(state);
      return this.#refuse(name, state, command, decision);
    }
    const { key, closes, producer } = decision.change;
    const batch = writer.stage(decision.change);
    assert(state.tail >= decision.tail, "W1 an append was decided and not applied");
    if (key !== undefined) this.#keySweeper.watch(state);
    if (this.#patience.count > 0) {
      if (closes) this.release(state.id);
      else if (producer !== undefined) this.#releaseNext(state, producer.id);
    }
    return batch.done.then(() => {
      writer.meter?.append(command, decision);
      return decision;
    });
  }

  /** Whether an append without identity is identified by its content. */
  isKeyedByContent(name: StreamName): boolean {
    return isFromContent(this.#writer.find(name)?.keys);
  }

  /** Decides everything that is held, or what is held of one stream: it waits no longer. */
  release(stream?: StreamId): void {
    if (this.#patience.count === 0) return;
    for (const held of this.#patience.takeAll(stream)) this.#resume(held);
  }

  /** What the stream knows of a producer, once that is durable. */
  producer(name: StreamName, id: ProducerId): Promise<ProducerView | undefined> {
    const state = this.#writer.find(name);
    const known = state?.producers?.get(id);
    const view = known === undefined ? undefined : viewProducer(id, known);
    return this.#writer.answer(name, state, view);
  }

  /** Producers of a stream in the order of their ids. A stream may have a million of them: they are looked at in slices. */
  async producers(
    name: StreamName,
    after: string,
    count: number,
    mayShow: (id: ProducerId) => boolean = () => true,
  ): Promise<readonly ProducerView[] | Missing | Gone> {
    const writer = this.#writer;
    const state = writer.find(name);
    if (state === undefined) return writer.answer(name, undefined, MISSING);
    if (state.isDeleted) return writer.answer(name, state, GONE);
    const known = state.producers;
    const slices = writer.slices();
    const names = new FirstNames<ProducerId>(after, count);
    for (const [id, { lastSequence }] of known ?? []) {
      if (!slices.take()) await slices.turn();
      if (lastSequence >= 0 && mayShow(id)) names.add(id);
    }
    const views: ProducerView[] = [];
    for (const id of names.take()) {
      const producer = known?.get(id);
      const view = producer === undefined ? undefined : viewProducer(id, producer);
      if (view !== undefined) views.push(view);
    }
    return writer.answer(name, state, views);
  }

  /** Forgets epoch and sequence of a producer; its sessions stay fenced. */
  resetProducer(name: StreamName, id: ProducerId, act?: Act): Promise<ResetOutcome> {
    const writer = this.#writer;
    writer.room.admit(0);
    const state = writer.find(name);
    if (state === undefined) return writer.answer(name, undefined, MISSING);
    if (state.isDeleted) return writer.answer(name, state, GONE);
    const known = state.producers?.get(id);
    const before = known === undefined ? undefined : viewProducer(id, known);
    if (known === undefined || before === undefined) {
      return writer.answer(name, state, { kind: "producer_missing" } as const);
    }
    act?.guard();
    const resets = known.resets + 1;
    const { id: stream } = state;
    const atMs = writer.nowMs();
    const batch = writer.stage({ kind: "producer_reset", atMs, stream, producer: id, resets });
    act?.note({}, batch);
    if (this.#patience.count > 0) this.#releaseNext(state, id);
    return batch.done.then(() => ({ kind: "reset", before }) as const);
  }

  /** A quota is looked at after the decision: a retry whose original is stored gets its answer. */
  #decide(
    state: StreamState,
    command: AppendCommand,
    allowance: Allowance | undefined,
  ): AppendDecision {
    const writer = this.#writer;
    const atMs = writer.nowMs();
    if (command.key === undefined) {
      const decision = decideAppend(state, command, atMs);
      if (decision.kind === "accepted") allowance?.admit(0, command.data.length);
      return decision;
    }
    const defaults = this.#keyDefaults;
    const durableTail = writer.durableTail(state);
    const scene = { defaults, durableTail, keyMs: writer.keyMs() };
    const decision = decideAppend(state, command, atMs, scene);
    if (decision.kind === "accepted") {
      allowance?.admit(0, command.data.length);
      writer.meter?.keys(state.keys, defaults, decision.change.key?.evictTo ?? 0, atMs);
    }
    return decision;
  }

  #refuse(
    name: StreamName,
    state: StreamState | undefined,
    command: AppendCommand,
    outcome: AppendOutcome,
  ): Promise<AppendOutcome> {
    this.#writer.meter?.append(command, outcome);
    return this.#writer.answer(name, state, outcome);
  }

  #hold(
    state: StreamState,
    command: AppendCommand,
    patient: Patient,
    allowance: Allowance | undefined,
  ): Promise<AppendOutcome> | undefined {
    const resume = (held: Held<AppendOutcome>): void => {
      this.#resume(held);
    };
    const promise = this.#patience.hold(state, command, patient, resume, allowance);
    const { meter } = this.#writer;
    if (promise !== undefined && meter !== undefined) meter.held += 1;
    return promise;
  }

  /** Decides those that have waited for this producer's last append, in order and in the same batch. */
  #releaseNext(state: StreamState, id: ProducerId): void {
    for (;;) {
      const held = this.#patience.next(state, id);
      if (held === undefined) return;
      this.#resume(held);
    }
  }

  #resume(held: Held<AppendOutcome>): void {
    try {
      held.resolve(this.append(held.name, held.command, undefined, held.allowance));
    } catch (error) {
      held.reject(error);
    }
  }
}

function viewProducer(id: ProducerId, state: ProducerState): ProducerView | undefined {
  const { epoch, lastSequence, session } = state;
  if (lastSequence < 0) return undefined; // It was reset, and nothing has come since.
  return { id, epoch, lastSequence, end: lastEnd(state), hasSession: session !== undefined };
}
