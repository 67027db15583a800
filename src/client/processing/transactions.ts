/**
 * Runs the transactions of one connection: collects and frames them, and sends them under one identity until the outcome is
 * known. PROTOCOL.md §19.
 *
 *   - after a lost answer the same request is sent again: the transaction happens once, and its answer is the original;
 *   - `not_stored` is certain; an outcome that cannot be known is `unknown`;
 *   - with a key no attempt begins later than 0.8 of the window after the first: the server would have forgotten it;
 *   - the caller's own numbers are sent unchanged: a known number gets its original answer, also with other content.
 */

import { encodeKey } from "../../protocol/idempotency-key.ts";
import {
  IDEMPOTENCY_KEY,
  IDEMPOTENCY_REPLAYED,
  PRODUCER_EPOCH,
  PRODUCER_ID,
  PRODUCER_SEQ,
  STREAM_INCARNATION,
} from "../../protocol/header-names.ts";
import { HapaxError, isHapaxError } from "../../base/errors.ts";
import type { Caller } from "../attempt.ts";
import { listOf, mapOf, memberMapOf, type SettledCall, settleCall } from "./calls.ts";
import type { Codecs } from "./codecs.ts";
import { Draft, type Transaction } from "./draft.ts";
import { type TransactionFailure, transactionFailure } from "./failure.ts";
import { TRANSACTION_TYPE } from "../../protocol/transaction-frame.ts";
import { FINAL, Lanes } from "./lanes.ts";
import { type Lease, listenerOf } from "./lease.ts";
import type { Addresses } from "./paths.ts";

/** Options of `transaction`. All are optional. */
export interface TransactionOptions {
  /**
   * An idempotency key of your own, for retries by other processes: the same key is the same transaction, for as
   * long as the server remembers it.
   */
  readonly key?: string;
  /**
   * Your own identity for the transaction, which the server never forgets: consecutive numbers, each for one transaction. A
   * new epoch begins at sequence 0 and ends those before it. If you use a number again for other content, you get the result
   * of the first commit under it.
   */
  readonly producer?: TransactionProducer;
  /**
   * The incarnation of the server that you expect, as `incarnation()` returns it. A server of another incarnation
   * refuses the whole transaction with `server_restored`.
   */
  readonly incarnation?: string | undefined;
  /** Stops waiting, with the signal's reason. A transaction that was sent may still be stored. */
  readonly signal?: AbortSignal | undefined;
}

/** The identity of a transaction, like that of a producer: PROTOCOL.md §5. It belongs to the server, and to no stream. */
export interface TransactionProducer {
  readonly id: string;
  readonly epoch: number;
  readonly sequence: number;
}

/** The result of a committed transaction. */
export interface Committed<Value> {
  /** The return value of the callback. */
  readonly value: Value;
  /**
   * The tail of each stream after the transaction, by path. Empty if the server does not keep the answer any more; that
   * happens only with an identity of your own.
   */
  readonly offsets: ReadonlyMap<string, string>;
  /** False if it is committed, but the server does not keep the answer any more. */
  readonly hasAnswer: boolean;
  /** An earlier attempt, or with a key an earlier call, had committed it. */
  readonly isDuplicate: boolean;
}

const WINDOW_SHARE = 0.8;

export class ClientTransactions {
  readonly #caller: Caller;
  readonly #addresses: Addresses;
  readonly #codecs: Codecs;
  readonly #lanes: Lanes;

  constructor(caller: Caller, addresses: Addresses, codecs: Codecs) {
    this.#caller = caller;
    this.#addresses = addresses;
    this.#codecs = codecs;
    this.#lanes = new Lanes(caller, addresses.transactions);
  }

  async run<Value>(
    collect: (tx: Transaction) => Value | Promise<Value>,
    options: TransactionOptions = {},
  ): Promise<Committed<Value>> {
    const { key, producer } = options;
    if (key !== undefined) this.#checkKey(key);
    if (producer !== undefined) checkProducer(producer, key);
    if (options.incarnation !== undefined && (key ?? producer) === undefined) {
      throw invalid("a transaction with an incarnation needs an identity: key or producer");
    }
    const draft = new Draft(this.#addresses, this.#codecs);
    let value: Value;
    try {
      value = await collect(draft);
    } finally {
      draft.seal();
    }
    if (draft.isEmpty) return { value, offsets: new Map(), hasAnswer: true, isDuplicate: false };
    const settled = await this.#commit(draft, options);
    for (const { lease, offset } of draft.leases.values()) {
      if (offset !== undefined) listenerOf(lease)?.committed(offset);
    }
    for (const [stream, { contentType }] of draft.created) this.#codecs.learn(stream, contentType);
    const isDuplicate = settled.header(IDEMPOTENCY_REPLAYED) === "true";
    return { value, ...answerOf(settled.text), isDuplicate };
  }

  /** Commits one lease alone. A repetition gets the original answer, also if the lease has ended with it. */
  async commitLease(lease: Lease, offset: string, signal?: AbortSignal): Promise<void> {
    const options = signal === undefined ? {} : { signal };
    await this.run((tx) => {
      tx.commit(lease, offset);
    }, options);
  }

  async #commit(draft: Draft, options: TransactionOptions): Promise<SettledCall> {
    const { signal } = options;
    const frame = await this.#frame(draft, signal);
    const identity = identityHeaders(options);
    let settled: SettledCall;
    try {
      settled = await (identity === undefined
        ? this.#lanes.send(frame, signal)
        : this.#sendAs(frame, identity, signal));
    } catch (error) {
      if (isHapaxError(error) && !("outcome" in error)) throw transactionFailure(error, "unknown");
      throw error;
    }
    const { refusal } = settled;
    if (refusal === undefined) return settled;
    throw this.#refused(draft, refusal.error, refusal.members.get("operation"));
  }

  async #frame(draft: Draft, signal: AbortSignal | undefined): Promise<Uint8Array> {
    try {
      return await draft.frame(signal);
    } catch (error) {
      // Nothing was sent yet.
      throw isHapaxError(error) ? transactionFailure(error, "not_stored") : error;
    }
  }

  #refused(draft: Draft, error: HapaxError, operation: unknown): TransactionFailure {
    const index = typeof operation === "number" ? operation : undefined;
    const named = index === undefined ? undefined : draft.leases.get(index);
    if (named !== undefined) listenerOf(named.lease)?.refused(error);
    if (error.code === "content_type_mismatch") {
      for (const stream of draft.appended) this.#codecs.forget(stream);
    }
    return transactionFailure(
      error,
      "not_stored",
      index === undefined ? undefined : draft.calls[index],
    );
  }

  /** Sends under an identity that the caller has chosen. */
  async #sendAs(
    body: Uint8Array,
    identity: Readonly<Record<string, string>>,
    signal: AbortSignal | undefined,
  ): Promise<SettledCall> {
    const headers = { "Content-Type": TRANSACTION_TYPE, ...identity };
    const url = this.#addresses.transactions;
    const settled = await settleCall(this.#caller, { method: "POST", url, headers, body, signal });
    const { refusal, wasUnknown } = settled;
    const isFinal = refusal !== undefined && FINAL.has(refusal.error.code);
    // Nothing is fenced here: an attempt without an answer may arrive after the refusal.
    if (refusal !== undefined && wasUnknown && !isFinal) {
      throw transactionFailure(refusal.error, "unknown");
    }
    return settled;
  }

  #checkKey(key: string): void {
    if (!/^[\x20-\x7e]{1,255}$/.test(key)) {
      throw new HapaxError("invalid_request", "key must be 1 to 255 characters from space to ~");
    }
    const { keyWindowSeconds, retry } = this.#caller.options;
    const limitMs = WINDOW_SHARE * keyWindowSeconds * 1000;
    if (retry.totalMs <= limitMs) return;
    const words = `retry.totalMs=${String(retry.totalMs)} outlives the keys of the server`;
    throw new HapaxError("invalid_options", `${words}: at most ${String(limitMs)}`);
  }
}

function answerOf(text: string): Pick<Committed<unknown>, "offsets" | "hasAnswer"> {
  const offsets = new Map<string, string>();
  const operations = memberMapOf(text).get("operations");
  for (const operation of listOf(operations)) {
    const members = mapOf(operation);
    const [stream, nextOffset] = [members.get("stream"), members.get("nextOffset")];
    if (typeof stream === "string" && typeof nextOffset === "string") {
      offsets.set(stream, nextOffset);
    }
  }
  return { offsets, hasAnswer: Array.isArray(operations) };
}

/** Returns the headers of the caller's identity; undefined if the caller has not chosen one. */
function identityHeaders({
  key,
  producer,
  incarnation,
}: TransactionOptions): Readonly<Record<string, string>> | undefined {
  const known = incarnation === undefined ? {} : { [STREAM_INCARNATION]: incarnation };
  if (producer === undefined)
    return key === undefined ? undefined : { ...known, [IDEMPOTENCY_KEY]: encodeKey(key) ?? key };
  const { id, epoch, sequence } = producer;
  return {
    ...known,
    [PRODUCER_ID]: id,
    [PRODUCER_EPOCH]: String(epoch),
    [PRODUCER_SEQ]: String(sequence),
  };
}

function checkProducer(
  { id, epoch, sequence }: TransactionProducer,
  key: string | undefined,
): void {
  const isNumber = (value: number): boolean => Number.isSafeInteger(value) && value >= 0;
  if (key !== undefined) throw invalid("a transaction has one identity: key or producer");
  if (!/^[\x21-\x7e]{1,256}$/.test(id)) throw invalid("producer.id must be 1 to 256 of ! to ~");
  if (!isNumber(epoch) || !isNumber(sequence)) {
    throw invalid("producer.epoch and producer.sequence must be whole numbers from 0");
  }
}

function invalid(words: string): HapaxError {
  return new HapaxError("invalid_request", words);
}
