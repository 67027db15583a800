/**
 * One name, many streams: records of the same key go to the same stream, in order.
 *
 *   - the partition of a key is FNV-1a (32 bits) of its UTF-8 bytes, then the finaliser of MurmurHash3, modulo the
 *     number of partitions. It is part of the data, and never changes.
 */

import { FNV_START, fnvStep } from "../../base/fnv.ts";
import { withoutLastSlashes } from "../../protocol/slashes.ts";
import { HapaxError } from "../../base/errors.ts";
import type { Appended } from "../appends.ts";
import type { Receipt } from "../batching.ts";
import type { CreateOptions } from "../create.ts";
import type { Producer, ProducerOptions } from "../producer.ts";
import type { AppendOptions, Stream } from "../stream.ts";

/** The most partitions of one name: a group can still share them out. */
const PARTITIONS_MAX = 10_000;

const encoder = new TextEncoder();

export function partitionOf(key: string, count: number): number {
  let hash = FNV_START;
  for (const byte of encoder.encode(key)) hash = fnvStep(hash, byte);
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return ((hash ^ (hash >>> 16)) >>> 0) % count;
}

/**
 * The handle of the streams `<name>/0` to `<name>/<count - 1>`. `connection.partitioned()` creates it.
 *
 * ```ts
 * import { startNodeServer } from "hapax/node";
 * import { connectServer } from "hapax/processing";
 *
 * const server = await startNodeServer({ store: "memory", port: 0 });
 * const hapax = connectServer(server.url);
 * const orders = hapax.partitioned("/v1/stream/orders", 4);
 * await orders.create();
 * for (const id of [1, 2, 3]) await orders.append("customer-7", { id });
 *
 * const mine = orders.streams[orders.partitionOf("customer-7")];
 * const values = await hapax.stream(mine ?? "").read<{ id: number }>().values();
 * console.assert(values.map(({ id }) => id).join() === "1,2,3");
 * await server.stop();
 * ```
 */
export class Partitioned {
  readonly name: string;
  /** The paths, in the order of their numbers. */
  readonly streams: readonly string[];
  readonly #open: (path: string) => Stream;
  readonly #handles = new Map<number, Stream>();

  constructor(name: string, count: number, open: (path: string) => Stream) {
    if (!Number.isInteger(count) || count < 1 || count > PARTITIONS_MAX) {
      const range = `a whole number from 1 to ${String(PARTITIONS_MAX)}`;
      throw new HapaxError("invalid_options", `count=${String(count)} is not ${range}`);
    }
    this.name = withoutLastSlashes(name);
    this.streams = Array.from({ length: count }, (_, index) => `${this.name}/${String(index)}`);
    this.#open = open;
  }

  /** Returns the number of the partition of a key. */
  partitionOf(key: string): number {
    return partitionOf(key, this.streams.length);
  }

  /** Creates all partitions. Partitions that exist with the same configuration stay unchanged. */
  async create(options: CreateOptions = {}): Promise<void> {
    const streams = this.streams.map((_, index) => this.partition(index));
    await Promise.all(streams.map((stream) => stream.create(options)));
  }

  /** Appends a record to the partition of its key, exactly once and in the order of the calls. */
  append(key: string, data: unknown, options: AppendOptions = {}): Promise<Appended> {
    return this.partition(this.partitionOf(key)).append(data, options);
  }

  /** Returns the handle of one partition. */
  partition(index: number): Stream {
    const path = this.streams[index];
    if (path === undefined) {
      throw new HapaxError("invalid_request", `there is no partition=${String(index)}`);
    }
    const stream = this.#handles.get(index) ?? this.#open(path);
    this.#handles.set(index, stream);
    return stream;
  }

  /** Creates a producer for many records: one for each written partition. An `id` gets the partition's number. */
  producer(options: ProducerOptions = {}): PartitionedProducer {
    return new PartitionedProducer(this, options);
  }
}

/** Writes many records fast, by key. `partitioned.producer()` creates it. */
export class PartitionedProducer {
  readonly #partitioned: Partitioned;
  readonly #options: ProducerOptions;
  readonly #producers = new Map<number, Producer>();

  constructor(partitioned: Partitioned, options: ProducerOptions) {
    this.#partitioned = partitioned;
    this.#options = options;
  }

  /** Resolves when no partition holds too much. */
  get ready(): Promise<void> {
    return this.#all((producer) => producer.ready);
  }

  /** Takes a record and does not wait. Throws like `producer.append`. */
  append(key: string, data: unknown): void {
    this.#of(key).append(data);
  }

  /** Takes a record; resolves when it is stored. */
  send(key: string, data: unknown): Promise<Receipt> {
    return this.#of(key).send(data);
  }

  /** Resolves if and only if all earlier records are stored. */
  flush(): Promise<void> {
    return this.#all((producer) => producer.flush());
  }

  /** Takes no more records and flushes. */
  close(): Promise<void> {
    return this.#all((producer) => producer.close());
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #of(key: string): Producer {
    const index = this.#partitioned.partitionOf(key);
    const existing = this.#producers.get(index);
    if (existing !== undefined) return existing;
    const { id } = this.#options;
    const own = id === undefined ? {} : { id: `${id}-${String(index)}` };
    const producer = this.#partitioned.partition(index).producer({ ...this.#options, ...own });
    this.#producers.set(index, producer);
    return producer;
  }

  /** Waits for all producers. Throws the first failure. */
  async #all(wait: (producer: Producer) => Promise<void>): Promise<void> {
    const endings = await Promise.allSettled([...this.#producers.values()].map(wait));
    for (const ending of endings) {
      // Throws the producer's error unchanged.
      if (ending.status === "rejected") throw ending.reason as Error;
    }
  }
}
