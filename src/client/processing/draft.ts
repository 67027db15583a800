/**
 * Collects the operations of a transaction until its callback has returned.
 *
 *   - nothing is sent before the callback has returned; if it throws, nothing is sent at all;
 *   - data is encoded at the call: later changes by its owner have no effect;
 *   - appends to one stream become one operation, unless the stream is created or closed between them.
 */

import { assert } from "../../base/assert.ts";
import { HapaxError } from "../../base/errors.ts";
import { type Codec, codecOf, encode, type Encoded } from "../records.ts";
import type { Codecs } from "./codecs.ts";
import { encodeFrame } from "../../protocol/transaction-frame.ts";
import { frameBodyOf } from "./frame.ts";
import { type JobLease, type Lease, wireLease } from "./lease.ts";
import type { Addresses, StreamTarget } from "./paths.ts";

/** Options of `tx.create`. All are optional. */
export interface TransactionCreateOptions {
  /** The media type of the stream. Default `application/json`. */
  readonly contentType?: string;
  /** Deletes the stream when it was not used for this time, in seconds. Default: it does not expire. */
  readonly ttlSeconds?: number;
  /** Deletes the stream at this time, in RFC 3339. Default: it does not expire. */
  readonly expiresAt?: string;
}

/** Acknowledges the wake of a subscription, as in `ack` of PROTOCOL.md §11.6. */
export interface SubscriptionAck {
  readonly subscription: string;
  readonly token: string;
  readonly wakeId: string;
  readonly generation: number;
  readonly acks: readonly { readonly stream: string; readonly offset: string }[];
  readonly done?: boolean;
}

/** The argument of `tx.commit` without an offset: a batch of a consumer. */
export interface Committable {
  readonly lease: Lease;
  readonly nextOffset: string;
}

/**
 * The operations of a transaction, for its callback. The methods only collect the operations. After the
 * callback has returned they throw `invalid_request`.
 */
export interface Transaction {
  /** Appends a record; the stream must exist, or be created before in this transaction. */
  append(stream: StreamTarget, data: unknown): void;
  /** Creates a stream. Does nothing if it exists with this configuration. */
  create(stream: StreamTarget, options?: TransactionCreateOptions): void;
  /** Closes a stream. Does nothing if it is closed already. */
  close(stream: StreamTarget): void;
  /** Commits the offset of a lease, or of a batch: its records count as processed, together with this transaction. */
  commit(batch: Committable): void;
  commit(lease: Lease, offset: string): void;
  /** Ends a job together with this transaction, or refuses it with `lease_lost` if the job is another worker's. */
  done(job: JobLease): void;
  /** Acknowledges the wake of a subscription. */
  ack(ack: SubscriptionAck): void;
  /** Commits the transaction only if the tail of the stream is this offset (else `tail_moved`), or if it does not exist. */
  expect(
    stream: StreamTarget,
    expected: { readonly offset: string } | { readonly absent: true },
  ): void;
  /** Commits the transaction only if the lease is valid; else `lease_lost`. */
  expectLease(lease: Lease): void;
}

interface AppendDraft {
  readonly kind: "append";
  readonly stream: string;
  readonly records: Encoded[];
  /** The codec of a stream that this transaction creates. */
  readonly createdAs: Codec | undefined;
}

interface OtherDraft {
  readonly kind: "other";
  readonly operation: unknown;
}

/** A lease that a transaction names. */
export interface NamedLease {
  readonly lease: Lease;
  /** The offset that it commits; undefined if it only expects the lease. */
  readonly offset: string | undefined;
}

export class Draft implements Transaction {
  readonly #addresses: Addresses;
  readonly #codecs: Codecs;
  readonly #operations: (AppendDraft | OtherDraft)[] = [];
  /** The number of the call that made each operation. */
  readonly calls: number[] = [];
  /** The named leases, by the index of their operation. */
  readonly leases = new Map<number, NamedLease>();
  /** Streams that this transaction creates, with their types. */
  readonly created = new Map<string, Codec>();
  readonly #open = new Map<string, AppendDraft>();
  #calls = 0;
  #isSealed = false;

  constructor(addresses: Addresses, codecs: Codecs) {
    this.#addresses = addresses;
    this.#codecs = codecs;
  }

  get isEmpty(): boolean {
    return this.#operations.length === 0;
  }

  /** The streams to which it appends. */
  get appended(): readonly string[] {
    return this.#operations.flatMap((one) => (one.kind === "append" ? [one.stream] : []));
  }

  /** Ends the collection. Later calls throw. */
  seal(): void {
    this.#isSealed = true;
  }

  append(target: StreamTarget, data: unknown): void {
    const stream = this.#pathOf(target);
    const createdAs = this.created.get(stream);
    const record = encode(data, createdAs ?? this.#codecs.known(stream));
    const open = this.#open.get(stream);
    if (open !== undefined) {
      open.records.push(record);
      this.#calls += 1;
      return;
    }
    const draft: AppendDraft = { kind: "append", stream, records: [record], createdAs };
    this.#open.set(stream, draft);
    this.#add(draft);
  }

  create(target: StreamTarget, options: TransactionCreateOptions = {}): void {
    const stream = this.#pathOf(target);
    const contentType = options.contentType ?? "application/json";
    this.#open.delete(stream);
    this.created.set(stream, codecOf(contentType));
    this.#other({ create: { ...options, stream, contentType } });
  }

  close(target: StreamTarget): void {
    const stream = this.#pathOf(target);
    this.#open.delete(stream);
    this.#other({ close: { stream } });
  }

  commit(what: Lease | Committable, offset?: string): void {
    this.#checkOpen();
    const lease = "lease" in what ? what.lease : what;
    const to = "lease" in what ? what.nextOffset : offset;
    if (to === undefined) throw new HapaxError("invalid_request", "commit needs an offset");
    this.leases.set(this.#operations.length, { lease, offset: to });
    this.#other({ commit: { ...wireLease(lease), offset: to } });
  }

  done(job: JobLease): void {
    this.#other({ done: { ...wireLease(job), offset: job.offset } });
  }

  ack(ack: SubscriptionAck): void {
    this.#other({ ack: structuredClone(ack) });
  }

  expect(
    target: StreamTarget,
    expected: { readonly offset: string } | { readonly absent: true },
  ): void {
    this.#other({ expect: { stream: this.#pathOf(target), ...expected } });
  }

  expectLease(lease: Lease): void {
    this.#checkOpen();
    this.leases.set(this.#operations.length, { lease, offset: undefined });
    this.#other({ expect: wireLease(lease) });
  }

  /** Returns the request. Asks the server for the types of unknown streams. */
  async frame(signal: AbortSignal | undefined): Promise<Uint8Array> {
    const bodies: Uint8Array[] = [];
    const operations: unknown[] = [];
    const existing = this.#operations.flatMap((one) =>
      one.kind === "append" && one.createdAs === undefined ? [one.stream] : [],
    );
    await Promise.all(existing.map((stream) => this.#codecs.get(stream, signal)));
    for (const one of this.#operations) {
      if (one.kind === "other") {
        operations.push(one.operation);
        continue;
      }
      const { stream, records, createdAs } = one;
      const codec = createdAs ?? (await this.#codecs.get(stream, signal));
      const body = frameBodyOf(records, codec);
      bodies.push(body);
      const { contentType } = codec;
      operations.push({ append: { stream, contentType, bytes: body.length } });
    }
    return encodeFrame(operations, bodies);
  }

  #pathOf(target: StreamTarget): string {
    this.#checkOpen();
    return this.#addresses.pathOf(target);
  }

  #other(operation: unknown): void {
    this.#checkOpen();
    this.#add({ kind: "other", operation });
  }

  #add(draft: AppendDraft | OtherDraft): void {
    this.#operations.push(draft);
    this.calls.push(this.#calls);
    this.#calls += 1;
    assert(this.calls.length === this.#operations.length, "an operation has not one call");
  }

  #checkOpen(): void {
    if (!this.#isSealed) return;
    throw new HapaxError("invalid_request", "the callback of the transaction has returned");
  }
}
