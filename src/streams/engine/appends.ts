/**
 * Appends, and what the streams know of those who send them: decide, stage, and wait. An append that is ahead of
 * others of its producer may be held until they have come.
 */

import { type AppendCommand, type AppendDecision, decideAppend } from "../core/append.ts";
import type { Change } from "../core/change.ts";
import { isFromContent, type KeyDefaults } from "../core/keys.ts";
import { lastEnd, type ProducerState } from "../core/producer.ts";
import type { StreamState } from "../core/stream.ts";
import type { Epoch, Offset, ProducerId, Sequence, StreamName, TimeMs } from "../core/types.ts";
import type { Clock } from "../../base/clock.ts";
import type { StreamId } from "../core/types.ts";
import type { Act } from "./acts.ts";
import type { Batch, GroupCommit } from "./commit.ts";
import type { AppendOutcome, Gone, Missing } from "./outcomes.ts";
import type { KeySweeper } from "./key-sweeper.ts";
import { FirstNames } from "./listing.ts";
import type { Meter } from "./meter.ts";
import { type Held, isAhead, Patience, type Patient } from "./patience.ts";
import { Slices } from "./turn-budget.ts";

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

/** What the engine lends. */
export interface AppendParts {
  readonly clock: Clock;
  readonly commit: GroupCommit;
  readonly meter: Meter;
  readonly keyDefaults: KeyDefaults;
  readonly keySweeper: KeySweeper;
  readonly nowMs: () => TimeMs;
  /** What the time that a key carries is compared with. */
  readonly keyMs: () => number;
  readonly find: (name: StreamName) => StreamState | undefined;
  readonly stage: (batch: Batch, change: Change) => void;
  readonly touch: (state: StreamState) => void;
  readonly answer: <T>(name: StreamName, state: StreamState | undefined, outcome: T) => Promise<T>;
}

const MISSING: Missing = { kind: "missing" };
const GONE: Gone = { kind: "gone" };

export class Appends {
  readonly #parts: AppendParts;
  readonly #commit: GroupCommit;
  readonly #patience: Patience<AppendOutcome>;

  constructor(parts: AppendParts) {
    this.#parts = parts;
    this.#commit = parts.commit;
    this.#patience = new Patience(parts.clock);
  }

  /** Appends that wait for their predecessors. */
  get held(): number {
    return this.#patience.count;
  }

  append(name: StreamName, command: AppendCommand, patient?: Patient): Promise<AppendOutcome> {
    this.#commit.admit(command.data.length);
    const state = this.#parts.find(name);
    if (state === undefined) return this.#refuse(name, undefined, command, MISSING);
    if (state.isDeleted) return this.#refuse(name, state, command, GONE);
    const decision = this.#decide(state, command);
    if (decision.kind !== "accepted") {
      if (patient !== undefined && isAhead(decision)) {
        const held = this.#hold(state, command, patient);
        if (held !== undefined) return held;
      }
      this.#parts.touch(state);
      return this.#refuse(name, state, command, decision);
    }
    const { key, closes, producer } = decision.change;
    const batch = this.#commit.begin();
    this.#parts.stage(batch, decision.change);
    this.#parts.meter.append(command, decision);
    if (key !== undefined) this.#parts.keySweeper.watch(state);
    if (this.#patience.count > 0) {
      if (closes) this.release(state.id);
      else if (producer !== undefined) this.#releaseNext(state, producer.id);
    }
    return batch.done.then(() => decision);
  }

  /** Whether an append without identity is identified by its content. */
  isKeyedByContent(name: StreamName): boolean {
    return isFromContent(this.#parts.find(name)?.keys);
  }

  /** Decides everything that is held, or what is held of one stream: it waits no longer. */
  release(stream?: StreamId): void {
    if (this.#patience.count === 0) return;
    for (const held of this.#patience.takeAll(stream)) this.#resume(held);
  }

  /** What the stream knows of a producer, once that is durable. */
  producer(name: StreamName, id: ProducerId): Promise<ProducerView | undefined> {
    const state = this.#parts.find(name);
    const known = state?.producers?.get(id);
    const view = known === undefined ? undefined : viewProducer(id, known);
    return this.#parts.answer(name, state, view);
  }

  /** Producers of a stream in the order of their ids. A stream may have a million of them: they are looked at in slices. */
  async producers(
    name: StreamName,
    after: string,
    count: number,
  ): Promise<readonly ProducerView[] | Missing | Gone> {
    const state = this.#parts.find(name);
    if (state === undefined) return this.#parts.answer(name, undefined, MISSING);
    if (state.isDeleted) return this.#parts.answer(name, state, GONE);
    const known = state.producers;
    const slices = new Slices(this.#parts.clock);
    const names = new FirstNames<ProducerId>(after, count);
    for (const [id, { lastSequence }] of known ?? []) {
      if (!slices.take()) await slices.turn();
      if (lastSequence >= 0) names.add(id);
    }
    const views: ProducerView[] = [];
    for (const id of names.take()) {
      const producer = known?.get(id);
      const view = producer === undefined ? undefined : viewProducer(id, producer);
      if (view !== undefined) views.push(view);
    }
    return this.#parts.answer(name, state, views);
  }

  /** Forgets epoch and sequence of a producer; its sessions stay fenced. */
  resetProducer(name: StreamName, id: ProducerId, act?: Act): Promise<ResetOutcome> {
    this.#commit.admit(0);
    const { find, answer, stage, nowMs } = this.#parts;
    const state = find(name);
    if (state === undefined) return answer(name, undefined, MISSING);
    if (state.isDeleted) return answer(name, state, GONE);
    const known = state.producers?.get(id);
    const before = known === undefined ? undefined : viewProducer(id, known);
    if (known === undefined || before === undefined) {
      return answer(name, state, { kind: "producer_missing" } as const);
    }
    act?.guard();
    const resets = known.resets + 1;
    const batch = this.#commit.begin();
    const { id: stream } = state;
    stage(batch, { kind: "producer_reset", atMs: nowMs(), stream, producer: id, resets });
    act?.note({});
    if (this.#patience.count > 0) this.#releaseNext(state, id);
    return batch.done.then(() => ({ kind: "reset", before }) as const);
  }

  #decide(state: StreamState, command: AppendCommand): AppendDecision {
    const atMs = this.#parts.nowMs();
    if (command.key === undefined) return decideAppend(state, command, atMs);
    const { keyDefaults: defaults, meter } = this.#parts;
    const keyMs = this.#parts.keyMs();
    const scene = { defaults, durableTail: this.#commit.durableTail(state), keyMs };
    const decision = decideAppend(state, command, atMs, scene);
    if (decision.kind === "accepted") {
      meter.keys(state.keys, defaults, decision.change.key?.evictTo ?? 0, atMs);
    }
    return decision;
  }

  #refuse(
    name: StreamName,
    state: StreamState | undefined,
    command: AppendCommand,
    outcome: AppendOutcome,
  ): Promise<AppendOutcome> {
    this.#parts.meter.append(command, outcome);
    return this.#parts.answer(name, state, outcome);
  }

  #hold(
    state: StreamState,
    command: AppendCommand,
    patient: Patient,
  ): Promise<AppendOutcome> | undefined {
    const promise = this.#patience.hold(state, command, patient, (held) => {
      this.#resume(held);
    });
    if (promise !== undefined) this.#parts.meter.held += 1;
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
      held.resolve(this.append(held.name, held.command));
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
