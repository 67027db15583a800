/**
 * The batches that a reader gets, and the records in them.
 *
 *   - a batch ends at a safe point: reading from `nextOffset` gives the records after it, nothing twice and
 *     nothing left out. Inside a batch there is no such point;
 *   - a batch is parsed when its records are first read, and once;
 *   - no text ends inside a character: if a writer cuts its text inside one, the reader gets that append
 *     together with the next one. Only at the tail of a `read()`, and where a stream is closed, there is no next one;
 *   - `bytes` are the bytes of the answer: JSON numbers that JavaScript cannot hold are still in them.
 *
 * Offsets are opaque: the client compares them as text, as the protocol allows, and never parses them.
 */

import { HapaxError } from "../base/error-codes.ts";
import { utf8Of, joinBytes, decodeText } from "../base/bytes.ts";
import { SSE_EVENT_CHARS_MAX } from "../protocol/limits.ts";
import { kindOf } from "./records.ts";
import type { SseKind } from "../protocol/sse.ts";

/**
 * One record: a JSON value, or a piece of text or bytes of streams that have no records of their own.
 *
 * Only the last record of a batch has an `offset`. Store it together with the effect of the records up to here, and go on
 * from it after a restart: then each effect happens exactly once.
 *
 * ```ts
 * import { connect } from "hapax/client";
 * import { startNodeServer } from "hapax/node";
 *
 * const server = await startNodeServer({ store: "memory", port: 0 });
 * const stream = connect(`${server.url}/v1/stream/orders`);
 * await stream.create();
 * for (const id of [1, 2]) await stream.append({ id });
 *
 * const places: boolean[] = [];
 * for await (const { offset } of stream.read()) places.push(offset !== undefined);
 * console.assert(places.join() === "false,true"); // Both came in one batch.
 * await server.stop();
 * ```
 */
export interface StreamRecord<T> {
  readonly value: T;
  /** Where to go on after this record. Absent inside a batch: a reader cannot go on there. */
  readonly offset?: string;
}

/**
 * Records that arrived together. A batch begins and ends at a safe point: an offset at which a reader can go
 * on.
 *
 * ```ts
 * import { connect } from "hapax/client";
 * import { startNodeServer } from "hapax/node";
 *
 * const server = await startNodeServer({ store: "memory", port: 0 });
 * const stream = connect(`${server.url}/v1/stream/orders`);
 * await stream.create();
 * await stream.append({ id: 1 });
 * await stream.close({ id: 2 });
 *
 * let place = "-1"; // The beginning.
 * for await (const batch of stream.follow<{ id: number }>().batches()) {
 *   console.assert(batch.offset === place); // Nothing between two batches is left out.
 *   place = batch.nextOffset;
 *   if (batch.closed) console.assert(batch.upToDate);
 * }
 * console.assert(place === (await stream.head()).offset);
 * await server.stop();
 * ```
 */
export interface Batch<T> {
  /** JSON: the values, parsed at the first access. Text: one string. Other types: one `Uint8Array`. */
  readonly records: readonly T[];
  /** The bytes as they came; one array for a JSON stream. */
  readonly bytes: Uint8Array;
  /** The safe point before the batch. */
  readonly offset: string;
  /** The safe point after the batch. */
  readonly nextOffset: string;
  /**
   * The text to store, and to go on from: `nextOffset` and the life of the stream (an id that is new after each creation).
   * If the stream was deleted and created again since, the server refuses the position with `stream_replaced`; an offset
   * alone could fit both streams. It is `nextOffset` if the server does not name lives.
   */
  readonly position: string;
  /** The batch reaches the tail, as the server saw it. */
  readonly upToDate: boolean;
  /** The stream is closed, and this is its last batch. */
  readonly closed: boolean;
  /** The content type of the stream. */
  readonly contentType: string;
}

/** The parts of a batch. */
export interface BatchParts {
  readonly contentType: string;
  /** The body of a page, or the texts of the data events of one control event. */
  readonly body: Uint8Array | readonly string[];
  readonly isBase64?: boolean;
  readonly offset: string;
  readonly life?: string | undefined;
  readonly nextOffset: string;
  readonly upToDate: boolean;
  readonly closed: boolean;
}

/** A batch that parses its records at the first access. */
export class LazyBatch<T> implements Batch<T> {
  // Declared, and set by the constructor: as fields they would be written out in every page.
  declare readonly offset: string;
  declare readonly nextOffset: string;
  declare readonly position: string;
  declare readonly upToDate: boolean;
  declare readonly closed: boolean;
  declare readonly contentType: string;
  readonly #life: string | undefined;
  readonly #kind: SseKind;
  #body: Uint8Array | readonly string[];
  readonly #isBase64: boolean;
  #records: readonly T[] | undefined;

  constructor(parts: BatchParts) {
    this.offset = parts.offset;
    this.nextOffset = parts.nextOffset;
    this.#life = parts.life;
    this.position = parts.nextOffset + (parts.life ? `/${parts.life}` : "");
    this.upToDate = parts.upToDate || parts.closed;
    this.closed = parts.closed;
    this.contentType = parts.contentType;
    this.#kind = kindOf(parts.contentType);
    this.#body = parts.body;
    this.#isBase64 = parts.isBase64 ?? false;
  }

  /** Whether the batch has no record. Does not parse the body. */
  get isEmpty(): boolean {
    const body = this.#body;
    if (!(body instanceof Uint8Array)) return body.every((text) => isNothing(this.#kind, text));
    return body.length <= 8 && isNothing(this.#kind, decodeText(body));
  }

  /** The last bytes are the beginning of a character. */
  get isCut(): boolean {
    const body = this.#body;
    if (this.#kind !== "text" || this.closed || !(body instanceof Uint8Array)) return false;
    const decoder = new TextDecoder();
    decoder.decode(body.subarray(-3), { stream: true });
    return decoder.decode() !== "";
  }

  /** Returns the batch before this one and this one, as one batch. */
  behind(before: LazyBatch<T>): LazyBatch<T> {
    const { nextOffset, upToDate, closed, contentType } = this;
    const facts = { nextOffset, upToDate, closed, contentType, life: this.#life };
    const body = joinBytes([before.bytes, this.bytes]);
    return new LazyBatch<T>({ ...facts, offset: before.offset, body });
  }

  get bytes(): Uint8Array {
    const body = this.#body;
    if (body instanceof Uint8Array) return body;
    const bytes = this.#isBase64 ? joinBytes(body.map(fromBase64)) : utf8Of(this.#text());
    this.#body = bytes;
    return bytes;
  }

  get records(): readonly T[] {
    this.#records ??= this.isEmpty ? [] : this.#parse();
    return this.#records;
  }

  #text(): string {
    const body = this.#body;
    if (body instanceof Uint8Array || this.#isBase64) return decodeText(this.bytes);
    return this.#kind === "json" ? joinArrays(body) : body.join("");
  }

  #parse(): readonly T[] {
    // Casts: the reader knows what its stream holds; `T` is the reader's claim.
    if (this.#kind === "json") return parseArray(this.#text());
    return [(this.#kind === "text" ? this.#text() : this.bytes) as T];
  }
}

/** Joins batches of text, so that none ends inside a character. */
export class Seam<T> {
  #held: LazyBatch<T> | undefined;

  /** Returns the batch with the part that was held back before; undefined if it holds this one back too. */
  join(next: LazyBatch<T>, isLast: boolean): LazyBatch<T> | undefined {
    const held = this.#held;
    const batch = held === undefined ? next : next.behind(held);
    // If the next byte does not continue a UTF-8 character, or the batch grows too large, it is not held any longer.
    const goesOn = held === undefined || ((next.bytes[0] ?? 0x80) & 0xc0) === 0x80;
    const isHeld = !isLast && goesOn && batch.isCut && batch.bytes.length < SSE_EVENT_CHARS_MAX;
    this.#held = isHeld ? batch : undefined;
    return isHeld ? undefined : batch;
  }
}

/** Returns the records of a batch, the last one with the offset after it. */
export function* recordsOf<T>(batch: Batch<T>): Generator<StreamRecord<T>, void, undefined> {
  const { records, nextOffset } = batch;
  for (const [index, value] of records.entries()) {
    yield index === records.length - 1 ? { value, offset: nextOffset } : { value };
  }
}

/** Joins several JSON arrays into one, without parsing them. */
export function joinArrays(texts: readonly string[]): string {
  const [first] = texts;
  if (first !== undefined && texts.length === 1) return first;
  const insides = texts.map((text) => text.trim().slice(1, -1).trim());
  return `[${insides.filter((inside) => inside !== "").join(",")}]`;
}

function isNothing(kind: SseKind, text: string): boolean {
  return text === "" || (kind === "json" && /^\s*\[\s*\]\s*$/.test(text));
}

function parseArray<T>(text: string): readonly T[] {
  let cause: unknown;
  try {
    const value: unknown = JSON.parse(text);
    // Cast: the claim of the reader about its own records.
    if (Array.isArray(value)) return value as readonly T[];
  } catch (error) {
    cause = error;
  }
  throw new HapaxError("internal", "no JSON array", { cause });
}

/** As `decodeBase64` of base, which as a function of its own would cost the bundle 10 bytes. */
function fromBase64(text: string): Uint8Array {
  let binary: string;
  try {
    binary = atob(text); // Ignores line breaks, as the protocol requires.
  } catch (cause) {
    throw new HapaxError("internal", "no base64", { cause });
  }
  const bytes = new Uint8Array(binary.length);
  for (let at = 0; at < binary.length; at++) bytes[at] = binary.charCodeAt(at);
  return bytes;
}
