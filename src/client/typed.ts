/**
 * A stream whose records fit a schema, when they are written and when they are read. Any library of Standard Schema makes the
 * schema (https://standardschema.dev), such as Zod, Valibot or ArkType.
 *
 *   - what is stored is what was given: the input of the schema. A reader gets what the schema makes of it, its output;
 *   - a record that does not fit is not sent;
 *   - records are stored in the order of the calls, also if the schema takes its time for some of them.
 */

import { HapaxError } from "../base/error-codes.ts";
import type { Appended } from "./appends.ts";
import { type Batch, recordsOf, type StreamRecord } from "./batches.ts";
import { nothing } from "./deferred.ts";
import type { Following, FollowOptions } from "./follow.ts";
import type { StreamHead } from "./head.ts";
import type { Producer, ProducerOptions } from "./producer.ts";
import type { Reading, ReadOptions } from "./reading.ts";
import type { AppendOptions, Stream, UpdateOptions } from "./stream.ts";

/** A problem that a schema has found. */
export interface SchemaIssue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

type SchemaResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly SchemaIssue[] };

/** A schema of any library that follows Standard Schema, version 1. */
export interface StandardSchema<Input = unknown, Output = Input> {
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => SchemaResult<Output> | Promise<SchemaResult<Output>>;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
  };
}

/** A record does not fit the schema of its stream. */
export class SchemaFailure extends HapaxError {
  /** What the schema says. */
  declare readonly issues: readonly SchemaIssue[];
  /** The record. */
  declare readonly value: unknown;
  /** The offset after the batch that has the record, for a record that was read. Go on from there to leave the record out. */
  declare readonly nextOffset: string | undefined;

  constructor(issues: readonly SchemaIssue[], value: unknown, nextOffset?: string) {
    const [first] = issues;
    const at = (first?.path ?? []).map((part) =>
      String(typeof part === "object" ? part.key : part),
    );
    const where = at.length === 0 ? "" : ` at=${at.join(".")}`;
    super("invalid_request", `a record does not fit the schema: ${first?.message ?? ""}${where}`);
    this.issues = issues;
    this.value = value;
    this.nextOffset = nextOffset;
  }
}

/** Options of the reads of a typed stream. */
export interface TypedReadOptions {
  /**
   * Called with each record that does not fit the schema; the reader then skips it. Default: the reader throws the
   * failure.
   */
  readonly onMisfit?: (failure: SchemaFailure) => void;
}

/** A producer whose records fit a schema. The schema must answer at once. */
export type TypedProducer<Input> = Pick<
  Producer<Input>,
  "append" | "send" | "flush" | "close" | "ready" | "pendingCount" | typeof Symbol.asyncDispose
>;

/** A stream whose records fit a schema. `typed` creates it. */
export interface TypedStream<Input, Output> {
  readonly url: string;
  /** The stream without the schema. */
  readonly stream: Stream;
  /** As `stream.append`. Rejects with a `SchemaFailure`, and sends nothing, if the record does not fit. */
  append(data: Input, options?: AppendOptions): Promise<Appended>;
  /** As `stream.update`. */
  update(
    decide: (head: StreamHead) => Input | undefined | Promise<Input | undefined>,
    options?: UpdateOptions,
  ): Promise<Appended | undefined>;
  /**
   * As `stream.producer`. `append` throws a `SchemaFailure`, and `send` rejects with it, if a record does not fit; the producer goes
   * on. Both need a schema that answers at once; otherwise they fail with `invalid_options`.
   */
  producer(options?: ProducerOptions): TypedProducer<Input>;
  /** As `stream.read`. The bytes are not checked. */
  read(options?: ReadOptions & TypedReadOptions): Reading<Output>;
  /** As `stream.follow`. */
  follow(options?: FollowOptions & TypedReadOptions): Following<Output>;
}

/**
 * Returns a stream whose records are checked by a schema when they are written and when they are read.
 *
 * ```ts
 * import { connect, SchemaFailure, type StandardSchema, typed } from "hapax/client";
 * import { startNodeServer } from "hapax/node";
 *
 * // With Zod: const order = z.object({ id: z.number() });
 * const order: StandardSchema<{ id: number }> = {
 *   "~standard": {
 *     version: 1,
 *     vendor: "example",
 *     validate(value) {
 *       const id = Object(value).id;
 *       return typeof id === "number" ? { value: { id } } : { issues: [{ message: "no id" }] };
 *     },
 *   },
 * };
 * const server = await startNodeServer({ store: "memory", port: 0 });
 * const orders = typed(connect(`${server.url}/v1/stream/orders`), order);
 * await orders.stream.create();
 * await orders.append({ id: 1 });
 * const wrong = JSON.parse("{}");
 * const refused = await orders.append(wrong).catch((error: unknown) => error);
 * console.assert(refused instanceof SchemaFailure);
 * for await (const { value } of orders.read()) console.assert(value.id === 1);
 * await server.stop();
 * ```
 */
export function typed<Input, Output>(
  stream: Stream,
  schema: StandardSchema<Input, Output>,
): TypedStream<Input, Output> {
  const { validate } = schema["~standard"];
  /** The last check that takes its time. */
  let checking: Promise<unknown> | undefined;

  const check = (data: unknown): void | Promise<void> => {
    const result = validate(data);
    if (result instanceof Promise) {
      return result.then(({ issues }) => {
        if (issues !== undefined) throw new SchemaFailure(issues, data);
      });
    }
    if (result.issues !== undefined) throw new SchemaFailure(result.issues, data);
  };
  const append = async (data: Input, options: AppendOptions = {}): Promise<Appended> => {
    const checked = check(data);
    // A schema that answers at once lets the append go at once, with the data as they are now.
    if (checked === undefined && checking === undefined) return stream.append(data, options);
    const before = checking;
    const turn = Promise.allSettled([before, checked]);
    checking = turn;
    await turn;
    if (checking === turn) checking = undefined;
    await checked;
    return stream.append(data, options);
  };

  return {
    url: stream.url,
    stream,
    append,
    update: (decide, options = {}) =>
      stream.update(async (head) => {
        const data = await decide(head);
        if (data !== undefined) await check(data);
        return data;
      }, options),
    producer: (options = {}) => checkedProducer<Input>(stream.producer(options), check),
    read(options = {}) {
      const reading = stream.read(options);
      const pages = (): AsyncIterableIterator<Batch<Output>> =>
        fitting(reading.pages(), validate, options);
      return {
        pages,
        [Symbol.asyncIterator]: () => recordByRecord(pages()),
        async values() {
          const values: Output[] = [];
          for await (const { records } of pages()) for (const value of records) values.push(value);
          return values;
        },
        bytes: () => reading.bytes(),
      };
    },
    follow(options = {}) {
      const following = stream.follow(options);
      const batches = (): AsyncIterableIterator<Batch<Output>> =>
        fitting(following.batches(), validate, options);
      return { batches, [Symbol.asyncIterator]: () => recordByRecord(batches()) };
    },
  };
}

/** A producer that checks each record before it takes it. */
function checkedProducer<Input>(
  producer: Producer,
  check: (data: unknown) => void | Promise<void>,
): TypedProducer<Input> {
  const checkNow = (data: Input): void => {
    const checked = check(data);
    if (checked === undefined) return;
    checked.catch(nothing);
    throw new HapaxError("invalid_options", "a producer needs a schema that answers at once");
  };
  return {
    append(data) {
      checkNow(data);
      producer.append(data);
    },
    async send(data) {
      checkNow(data);
      return producer.send(data);
    },
    flush: () => producer.flush(),
    close: () => producer.close(),
    get ready() {
      return producer.ready;
    },
    get pendingCount() {
      return producer.pendingCount;
    },
    [Symbol.asyncDispose]: () => producer.close(),
  };
}

/** Yields the batches with what the schema makes of their records. */
async function* fitting<Output>(
  batches: AsyncIterable<Batch<unknown>>,
  validate: StandardSchema<unknown, Output>["~standard"]["validate"],
  { onMisfit }: TypedReadOptions,
): AsyncGenerator<Batch<Output>, void, undefined> {
  for await (const batch of batches) {
    const records: Output[] = [];
    for (const value of batch.records) {
      const checked = validate(value);
      // Awaited only if it must be: there are many records.
      const result = checked instanceof Promise ? await checked : checked;
      if (result.issues === undefined) {
        records.push(result.value);
        continue;
      }
      const failure = new SchemaFailure(result.issues, value, batch.nextOffset);
      if (onMisfit === undefined) throw failure;
      onMisfit(failure);
    }
    const { offset, nextOffset, position, upToDate, closed, contentType } = batch;
    yield {
      records,
      get bytes() {
        return batch.bytes;
      },
      offset,
      nextOffset,
      position,
      upToDate,
      closed,
      contentType,
    };
  }
}

/** Yields record by record. */
async function* recordByRecord<Output>(
  batches: AsyncIterable<Batch<Output>>,
): AsyncGenerator<StreamRecord<Output>, void, undefined> {
  for await (const batch of batches) yield* recordsOf(batch);
}
