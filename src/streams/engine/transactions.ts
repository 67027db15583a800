/**
 * Transactions: identity, operations and answer are staged as one batch, in one synchronous step. PROTOCOL.md §19.
 *
 *   - a transaction is one batch: readers see all of it or nothing, and so does recovery;
 *   - a known identity is answered as its original was, before anything else is looked at;
 *   - a refused transaction has changed nothing, and consumed no identity.
 */

import { type AppendCommand, decideAppend } from "../core/append.ts";
import type { Change } from "../core/change.ts";
import { type KeyClaim, type KeyDefaults, type KeyRefusal, windowMsOf } from "../core/keys.ts";
import {
  decideProducer,
  type ProducerClaim,
  type ProducerRefusal,
  type ProducerState,
} from "../core/producer.ts";
import { NEVER_EXPIRES, type StreamState } from "../core/stream.ts";
import { decideOperations, type OperationRefusal, type Step } from "../core/transaction.ts";
import {
  type Operation,
  type OperationOutcome,
  transactionLogOf,
} from "../core/transaction-state.ts";
import { assert } from "../../base/assert.ts";
import type { Epoch, Offset, Sequence, StreamName, TimeMs } from "../core/types.ts";
import type { World } from "../core/world.ts";
import { LIMITS } from "../../protocol/all-limits.ts";
import { type Act, type ActOutcome, ActRepeated } from "./acts.ts";
import type { Appends } from "./appends.ts";
import type { CommitBatch } from "./commit.ts";
import type { Boundaries, OffsetCheck } from "./boundaries.ts";
import type { Allowance } from "./holdings.ts";
import type { KeySweeper } from "./key-sweeper.ts";
import type { Writer } from "./writer.ts";

/** What makes a transaction the same one when it comes again, within its namespace. */
export type TransactionIdentity = {
  /** Of its sender. Default: none. */
  readonly namespace?: string | undefined;
} &
  /** `digest` is that of the request; without one it is a look. */
  (
    | {
        readonly kind: "producer";
        readonly claim: ProducerClaim;
        readonly digest: number | undefined;
      }
    | { readonly kind: "key"; readonly claim: KeyClaim }
  );

export interface TransactionCommand {
  readonly identity: TransactionIdentity;
  readonly operations: readonly Operation[];
  /** Bytes of all appends. */
  readonly bytes: number;
  /** What the sender may store. Default: anything. */
  readonly allowance?: Allowance | undefined;
}

/** One entry for each operation; undefined where it is not about a stream. */
export type OperationOutcomes = readonly (OperationOutcome | undefined)[];

export interface TransactionCommitted {
  readonly kind: "committed";
  /** Undefined: it was committed, and what it answered is kept no more. */
  readonly operations: OperationOutcomes | undefined;
  readonly isDuplicate: boolean;
  readonly producer: { readonly epoch: Epoch; readonly sequence: Sequence } | undefined;
}

export type TransactionResult =
  | TransactionCommitted
  | ProducerRefusal
  | KeyRefusal
  | { readonly kind: "refused"; readonly operation: number; readonly refusal: OperationRefusal };

export type LostOutcome =
  | TransactionCommitted
  | { readonly kind: "missing" }
  /** A later epoch or session has begun: what the earlier one did is known no more. */
  | { readonly kind: "fenced"; readonly currentEpoch: Epoch };

export interface TransactionParts {
  readonly writer: Writer;
  readonly boundaries: Boundaries;
  /** The close of a stream decides what it holds. */
  readonly appends: Appends;
  readonly keyDefaults: KeyDefaults;
  readonly keySweeper: KeySweeper;
  readonly outcomeBytesMax: number;
}

export class Transactions {
  readonly #parts: TransactionParts;
  readonly #writer: Writer;
  readonly #world: World;

  constructor(parts: TransactionParts) {
    this.#parts = parts;
    this.#writer = parts.writer;
    this.#world = parts.writer.world;
  }

  /**
   * `read` gives the transaction as it is to be decided at this moment. It is called again if the decision had to
   * wait for a look at the store, because streams may have changed meanwhile. `wakeId`: never used before, for the
   * wakes that it may begin.
   */
  async commit(read: () => TransactionCommand, wakeId: string): Promise<TransactionResult> {
    const check = this.#parts.boundaries.check();
    for (;;) {
      const command = read();
      const deciding = this.#decide(command, wakeId, check);
      if (deciding !== undefined) {
        const outcome = await deciding;
        this.#writer.meter?.transaction(outcome, command.operations);
        return outcome;
      }
      await check.learn();
    }
  }

  /** Undefined: the store has to be looked at first, and nothing has been decided. */
  #decide(
    command: TransactionCommand,
    wakeId: string,
    check: OffsetCheck,
  ): Promise<TransactionResult> | undefined {
    const log = this.#log(command.identity.namespace);
    for (const operation of command.operations) this.#expire(operation);
    const atMs = this.#writer.nowMs();
    const identified = this.#identify(log, command.identity, atMs);
    if (identified.kind === "known") return this.#replay(log, identified);
    if (identified.kind !== "new") return this.#writer.answer(log.name, log, identified);
    // A retry is answered also when there is no room for anything new.
    this.#writer.room.admit(command.bytes + this.#eventBytes(command.operations));
    const { streams } = this.#world;
    const { wakeStreamsMax } = LIMITS;
    const { isBoundary } = check;
    const { run, retentionDefault } = this.#writer;
    const scene = { streams, run, retentionDefault, atMs, wakeId, wakeStreamsMax, isBoundary };
    const decision = decideOperations(this.#world, command.operations, scene);
    if (check.isOpen) return undefined;
    if (decision.kind === "refused") {
      // What it speaks of may be any part of the state.
      return this.#writer.settled().then(() => decision);
    }
    command.allowance?.admit(countCreated(decision.steps), command.bytes);
    const batch = this.#writer.begin();
    const operations = decision.steps.map((step) => this.#stage(batch, step));
    const { change } = identified;
    this.#stageLog(batch, log, { ...change, data: encodeOutcomes(operations) });
    const { producer: mark } = change;
    const producer =
      mark === undefined ? undefined : { epoch: mark.epoch, sequence: mark.sequence };
    return batch.done.then(() => ({ kind: "committed", operations, isDuplicate: false, producer }));
  }

  /** What its creations and closes may write into registries. */
  #eventBytes(operations: readonly Operation[]): number {
    let bytes = 0;
    for (const operation of operations) {
      if (operation.kind === "create") {
        const { name, contentType } = operation.command;
        bytes += this.#writer.eventBytes(name, contentType ?? "", 2);
      } else if (operation.kind === "close" || (operation.kind === "append" && operation.closes)) {
        bytes += this.#writer.closeBytes(operation.stream);
      }
    }
    return bytes;
  }

  /** An act of administration under a key, which belongs to the same window as those of transactions. */
  act(claim: KeyClaim, namespace?: string): Act {
    const identify = (): Identified =>
      this.#identify(this.#logOfActs(namespace), { kind: "key", claim }, this.#writer.nowMs());
    return {
      look: () => {
        const found = identify();
        if (found.kind === "new") return found;
        if (found.kind !== "known") return found as KeyRefusal; // A key is refused in no other way.
        const log = this.#log(namespace);
        return { kind: "done", outcome: () => this.#readAct(log, found) };
      },
      guard: () => {
        if (identify().kind !== "new") throw new ActRepeated();
      },
      note: (outcome, batch) => {
        const found = identify();
        assert(found.kind === "new", "an act is noted twice");
        const data = encoder.encode(JSON.stringify(outcome));
        this.#stageLog(batch, this.#log(namespace), { ...found.change, data });
      },
    };
  }

  async #readAct(log: StreamState, { end }: Known): Promise<ActOutcome> {
    await this.#writer.answer(log.name, log, undefined);
    const record = end === undefined ? undefined : await this.#readRecord(log, end);
    return record === undefined ? {} : (JSON.parse(decoder.decode(record)) as ActOutcome);
  }

  /** What an append to this stream has to be, at this moment. */
  contentTypeOf(name: StreamName): string | undefined {
    return this.#writer.find(name)?.contentType;
  }

  /** What became of a transaction whose answer was lost. */
  async find(identity: TransactionIdentity): Promise<LostOutcome> {
    const log = this.#writer.find(transactionLogOf(identity.namespace));
    if (log === undefined) return { kind: "missing" };
    const found =
      identity.kind === "key"
        ? this.#findKey(log, identity.claim)
        : findSequence(log, identity.claim);
    if (found.kind === "known") return this.#replay(log, found);
    return this.#writer.answer(log.name, log, found);
  }

  #findKey(log: StreamState, claim: KeyClaim): Known | { readonly kind: "missing" } {
    const window = log.keys?.window;
    const ordinal = window?.find(claim.mark);
    if (window === undefined || ordinal === undefined) return { kind: "missing" };
    const windowMs = windowMsOf(log.keys?.policy, this.#parts.keyDefaults);
    const isOver = this.#writer.nowMs() - window.timeOf(ordinal) >= windowMs;
    return isOver
      ? { kind: "missing" }
      : { kind: "known", end: window.endOf(ordinal), producer: undefined };
  }

  /** The log is made by the first transaction or act of its namespace, and again after it was forgotten. */
  #log(namespace: string | undefined): StreamState {
    const name = transactionLogOf(namespace);
    const existing = this.#world.streams.get(name);
    if (existing !== undefined) return existing;
    this.#writer.room.admit(0);
    return this.#makeLog(name);
  }

  /** A deletion is taken by a full store too, so its key must be. */
  #logOfActs(namespace: string | undefined): StreamState {
    const name = transactionLogOf(namespace);
    const existing = this.#world.streams.get(name);
    if (existing !== undefined) return existing;
    this.#writer.room.admitRemoval();
    return this.#makeLog(name);
  }

  #makeLog(name: StreamName): StreamState {
    const writer = this.#writer;
    writer.stage({
      kind: "created",
      atMs: writer.nowMs(),
      stream: this.#world.nextId,
      run: writer.run,
      name,
      contentType: "application/json",
      expiry: NEVER_EXPIRES,
      fork: undefined,
      keys: undefined,
    });
    const log = this.#world.streams.get(name);
    assert(log !== undefined, "the log of transactions was not made");
    return log;
  }

  #expire(operation: Operation): void {
    if ("stream" in operation) this.#writer.find(operation.stream);
    else if (operation.kind === "create") this.#writer.find(operation.command.name);
    else if ("lease" in operation) this.#writer.find(operation.lease.stream);
  }

  #identify(log: StreamState, identity: TransactionIdentity, atMs: TimeMs): Identified {
    const producer = identity.kind === "producer" ? identity.claim : undefined;
    const command: AppendCommand = {
      data: NOTHING,
      contentType: undefined,
      closes: false,
      producer,
      ...(identity.kind === "producer" && identity.digest !== undefined
        ? { digest: identity.digest }
        : {}),
      key: identity.kind === "key" ? identity.claim : undefined,
      streamSeq: undefined,
      expectedTail: undefined,
    };
    const { keyDefaults: defaults } = this.#parts;
    const durableTail = this.#writer.durableTail(log);
    const scene = { defaults, durableTail, keyMs: this.#writer.keyMs() };
    const decision = decideAppend(log, command, atMs, scene);
    switch (decision.kind) {
      case "accepted":
        return { kind: "new", change: decision.change };
      case "replayed":
        return { kind: "known", end: decision.end, producer: undefined };
      case "duplicate": {
        const { epoch } = decision;
        const sequence = producer?.sequence ?? decision.lastSequence;
        // Transactions are ours: nothing in the public protocol says that this is a success.
        if (decision.isOther) return { kind: "reused", received: sequence };
        return { kind: "known", end: endOf(log, producer), producer: { epoch, sequence } };
      }
      case "fenced":
      case "gap":
      case "epoch_start":
      case "epoch_exhausted":
      case "reused":
      case "key_reused":
      case "key_expired":
      case "key_window_full":
        return decision;
      default:
        throw new Error(`the log of transactions answers ${decision.kind}`);
    }
  }

  #stage(batch: CommitBatch, step: Step): OperationOutcome | undefined {
    if (step.kind === "nothing") return undefined;
    const { observer, expiry } = this.#writer;
    const changes =
      step.kind === "ack" ? (observer?.acked(step.changes) ?? step.changes) : step.changes;
    for (const change of changes) this.#writer.stage(change, batch);
    if (step.kind !== "stream") return undefined;
    const state = this.#world.streams.get(step.name);
    if (state === undefined) return undefined;
    for (const { kind } of step.changes) if (kind === "created") expiry.watch(state);
    if (state.isClosed) this.#parts.appends.release(state.id);
    return { stream: step.name, tail: state.tail };
  }

  #stageLog(
    batch: CommitBatch,
    log: StreamState,
    change: Extract<Change, { kind: "appended" }>,
  ): void {
    const before = log.tail;
    this.#writer.stage(change, batch);
    if (change.key !== undefined) this.#parts.keySweeper.watch(log);
    // Half of what is kept, each time that another half has come: no state is needed to know when.
    const half = Math.floor(this.#outcomeBytesMax(log) / 2);
    const halves = Math.floor(log.tail / half);
    if (halves === Math.floor(before / half) || halves < 2) return;
    const to = ((halves - 1) * half) as Offset;
    this.#writer.stage({ kind: "trimmed", atMs: change.atMs, stream: log.id, to }, batch);
  }

  #outcomeBytesMax({ name }: StreamState): number {
    const { outcomeBytesMax } = this.#parts;
    if (name === transactionLogOf(undefined)) return outcomeBytesMax;
    return Math.min(outcomeBytesMax, LIMITS.namespaceOutcomeBytesMax);
  }

  async #replay(log: StreamState, known: Known): Promise<TransactionCommitted> {
    const { end, producer } = known;
    await this.#writer.answer(log.name, log, undefined);
    const operations = end === undefined ? undefined : await this.#readOutcomes(log, end);
    return { kind: "committed", operations, isDuplicate: true, producer };
  }

  async #readOutcomes(log: StreamState, end: Offset): Promise<OperationOutcomes | undefined> {
    const record = await this.#readRecord(log, end);
    return record === undefined ? undefined : decodeOutcomes(record);
  }

  async #readRecord(log: StreamState, end: Offset): Promise<Uint8Array | undefined> {
    const page = await this.#writer.store.read(log.id, (end - 1) as Offset, end, 1);
    return page.appends[0];
  }
}

interface Known {
  readonly kind: "known";
  /** Where its record in the log ends; undefined: that is known no more. */
  readonly end: Offset | undefined;
  readonly producer: TransactionCommitted["producer"];
}

type Identified =
  | Known
  | { readonly kind: "new"; readonly change: Extract<Change, { kind: "appended" }> }
  | ProducerRefusal
  | KeyRefusal;

const NOTHING = new Uint8Array();
const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** A transaction may name a stream that is there already: it creates nothing. */
function countCreated(steps: readonly Step[]): number {
  let created = 0;
  for (const step of steps) {
    if (step.kind !== "stream") continue;
    for (const { kind } of step.changes) if (kind === "created") created += 1;
  }
  return created;
}

/** The end of the claim's own record, if the log still knows it. */
function endOf(log: StreamState, claim: ProducerClaim | undefined): Offset | undefined {
  if (claim === undefined) return undefined;
  const decision = decideProducer(log.producers?.get(claim.id), claim, undefined);
  return decision.kind === "duplicate" ? decision.end : undefined;
}

function findSequence(
  log: StreamState,
  claim: ProducerClaim,
): Known | Exclude<LostOutcome, TransactionCommitted> {
  const state: ProducerState | undefined = log.producers?.get(claim.id);
  if (state === undefined) return { kind: "missing" };
  const decision = decideProducer(state, claim, undefined);
  if (decision.kind === "fenced") return decision;
  if (decision.kind !== "duplicate") return { kind: "missing" };
  const { epoch } = state;
  return { kind: "known", end: decision.end, producer: { epoch, sequence: claim.sequence } };
}

/** A record of the log: the tail after each operation, by stream. */
function encodeOutcomes(outcomes: OperationOutcomes): Uint8Array {
  const list = outcomes.map((outcome) =>
    outcome === undefined ? 0 : [outcome.stream, outcome.tail],
  );
  return encoder.encode(JSON.stringify(list));
}

function decodeOutcomes(record: Uint8Array): OperationOutcomes | undefined {
  const list = JSON.parse(decoder.decode(record)) as
    | readonly (0 | readonly [StreamName, Offset])[]
    | ActOutcome;
  // The key of an act: it has no operations.
  if (!("map" in list)) return undefined;
  return list.map((entry) => (entry === 0 ? undefined : { stream: entry[0], tail: entry[1] }));
}
