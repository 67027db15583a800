/** The parts and helpers that the strategies of a pipeline share. */

import { KEY_CHARS_MAX } from "../../protocol/idempotency-key.ts";
import { hexOf } from "../../base/hex.ts";
import { webDigest } from "../../base/digest.ts";
import { isHapaxError } from "../../base/errors.ts";
import { decodeText } from "../../base/bytes.ts";
import { JsonText } from "../records.ts";
import type { Connection } from "./connection.ts";
import type { Borders } from "./pipeline-borders.ts";
import { envelopeOf, type GivenUp } from "./dead-letter.ts";
import type { LeasedBatch } from "./held.ts";
import type { StreamTarget } from "./paths.ts";
import {
  type SpanOutcome,
  type PipelinePage,
  RecordFailure,
  recordId,
} from "./pipeline-attempts.ts";
import type { ResolvedPipelineOptions } from "./pipeline-options.ts";

/** The result of one commit. */
export interface PipelineAdvance {
  readonly stream: string;
  readonly offset: string;
  readonly records: number;
  readonly outputs: number;
  readonly deadLetters: number;
}

/** Stores effects and offsets together. There are three strategies. */
export interface Strategy<T> {
  prepare(): Promise<void>;
  /** Resolves when the batch is processed and committed. */
  process(batch: LeasedBatch<T>): Promise<void>;
}

/** The parts of a strategy. */
export interface PipelineParts<T, Tx> {
  readonly hapax: Connection;
  readonly options: ResolvedPipelineOptions<T, Tx>;
  readonly borders: Borders;
  /** Aborts when the pipeline must end. */
  readonly stop: AbortSignal;
  readonly counters: { failures: number };
  readonly advance: (advance: PipelineAdvance) => void;
}

/** Another member has the lease, although the server has not reported it yet: leave, and join anew. */
export class Overtaken extends Error {
  override readonly name = "Overtaken";
}

/** Keeps a value as long as its lease. */
export class PerLease<Value> {
  readonly #values = new Map<number, Promise<Value>>();

  /** Returns the value of the lease. Makes it with the first batch; forgets it with the lease, or if `make` fails. */
  get<T>({ lease, signal }: LeasedBatch<T>, make: () => Promise<Value>): Promise<Value> {
    const { token } = lease;
    const existing = this.#values.get(token);
    if (existing !== undefined) return existing;
    const forget = (): void => {
      this.#values.delete(token);
    };
    const made = make();
    made.catch(forget);
    this.#values.set(token, made);
    signal.addEventListener("abort", forget, { once: true });
    if (signal.aborted) forget();
    return made;
  }
}

/** Returns the dead letter of a record. Throws a `RecordFailure` if the pipeline has no stream for it. */
export function deadLetterOf<T, Tx>(
  { group, deadLetter }: ResolvedPipelineOptions<T, Tx>,
  page: PipelinePage<T>,
  index: number,
  { error, attempts }: Extract<SpanOutcome<unknown>, { kind: "failed" }>,
): GivenUp {
  const { stream, places } = page;
  const offset = places.offsetAt(index);
  const id = recordId(group, page, offset);
  if (deadLetter === undefined) throw new RecordFailure(id, stream, attempts, error);
  return { id, stream, offset, record: recordIn(page, index), error, attempts };
}

/** Returns the record as it was stored. */
function recordIn<T>({ records, places }: PipelinePage<T>, index: number): JsonText | Uint8Array {
  const record: unknown = records[index];
  if (record instanceof Uint8Array) return record;
  // In a stream that is not JSON the record is a text.
  return new JsonText(places.isJson ? decodeText(places.bytesAt(index)) : JSON.stringify(record));
}

/** Puts a record aside under its own id: a repetition changes nothing as long as the stream remembers keys. */
export async function putAside<T, Tx>(
  { hapax, options }: PipelineParts<T, Tx>,
  letter: GivenUp,
  signal: AbortSignal,
): Promise<void> {
  const { deadLetter, clock } = options;
  if (deadLetter === undefined) return;
  const stream = hapax.stream(deadLetter);
  const key = await keyOf(letter.id);
  for (let isBare = false; ; isBare = true) {
    try {
      await stream.append(envelopeOf(letter, clock, isBare), { key, signal });
      return;
    } catch (error) {
      // The letter of an earlier attempt is stored, with another time or message.
      if (isHapaxError(error, "key_reused")) return;
      if (isBare || !isHapaxError(error, "body_too_large")) throw error;
    }
  }
}

/** An id as an idempotency key. */
export async function keyOf(id: string): Promise<string> {
  if (id.length <= KEY_CHARS_MAX) return id;
  const digest = await webDigest(new TextEncoder().encode(id));
  return `sha-256:${hexOf(digest)}`;
}

/** Creates a JSON stream if the path has no stream of any configuration. */
export async function createUnlessThere(
  hapax: Connection,
  path: StreamTarget,
  signal: AbortSignal,
): Promise<void> {
  const stream = hapax.stream(path);
  try {
    await stream.head({ signal });
  } catch (error) {
    if (!isHapaxError(error, "stream_not_found")) throw error;
    await stream.create({ contentType: "application/json", signal });
  }
}
