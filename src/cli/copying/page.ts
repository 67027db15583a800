/** What moves in a copy of streams: pages of stored bytes, each with the offset of the source at which it ends. */

import { createHash, type Hash } from "node:crypto";
import { HapaxError, isHapaxError } from "../../base/error-codes.ts";
import { joinBytes } from "../../base/bytes.ts";
import { sseKind } from "../../protocol/sse.ts";
import { CommandFailure, EXIT } from "../failure.ts";

/** A stream of the source, and what makes another one like it. */
export interface StreamFacts {
  /** Decoded. */
  readonly path: string;
  readonly life: string;
  /** Where the data begins that the source can give. */
  readonly from: string;
  /** Where the source ended when the copy began; undefined if it cannot tell. */
  readonly tail: string | undefined;
  /** Whether something before `from` was copied earlier: then the target must have it. */
  readonly isContinued?: boolean;
  /** The headers of a creation: type, expiry, retention, keys. */
  readonly headers: Readonly<Record<string, string>>;
  /** The rule of a changelog. The target does not get it: what compaction appends there would be in the way of the copy. */
  readonly compactKey?: string;
}

/** Whole appends of the source. */
export interface CopyPage {
  /** As an append takes it: bytes, or an array of records. */
  readonly body: Uint8Array;
  /** The offset of the source after it. */
  readonly end: string;
  /** Whether the source is closed, and this is its end. */
  readonly isClosed: boolean;
}

export interface SourceStream {
  readonly facts: StreamFacts;
  /** The data behind an offset. */
  pages(after: string): AsyncIterable<CopyPage>;
  /** The digest of the stored bytes between two offsets; undefined if they cannot be read a second time. */
  digest(from: number, to: number): Promise<string | undefined>;
  /** Where the data begins that can be read a second time. */
  earliest(): Promise<number>;
}

/** The result of the copy of one stream. */
export interface StreamCopy {
  readonly stream: string;
  /** Stored bytes of the source that this run has copied. */
  readonly bytes: number;
  /** The end in the source. */
  readonly end: string;
  readonly closed: boolean;
  /** Of the bytes that were compared; absent without a comparison. */
  readonly sha256?: string;
  /** The rule of the source, which the target does not have. */
  readonly compactKey?: string;
}

/** An offset as a count. Copies number appends by the bytes of the source, so other grammars are refused. */
export function bytesBefore(offset: string): number {
  const digits = /^\d{16}_(\d{16})$/.exec(offset)?.[1];
  if (digits === undefined) {
    throw new CommandFailure(EXIT.refused, `the source has offsets such as ${offset}`, [
      "a copy needs a Hapax server, whose offsets count bytes",
    ]);
  }
  return Number(digits);
}

export function offsetOf(count: number): string {
  return `0000000000000000_${String(count).padStart(16, "0")}`;
}

export function isJsonType(contentType: string | undefined): boolean {
  return sseKind(contentType ?? "") === "json";
}

/** The bytes of a page as they are stored: an array has a bracket more, and stored records end with a comma. */
export function storedOf(body: Uint8Array, isArray: boolean): Uint8Array {
  if (!isArray) return body;
  if (body.length <= 2) return new Uint8Array(0);
  const stored = body.slice(1);
  stored[stored.length - 1] = COMMA;
  return stored;
}

const COMMA = 0x2c;

/** The page with these stored bytes. */
export function bodyFromStored(stored: Uint8Array, isArray: boolean): Uint8Array {
  if (!isArray) return stored;
  const body = joinBytes([Uint8Array.of(0x5b), stored]);
  body[body.length - 1] = 0x5d;
  return body;
}

/** A digest of the stored bytes between two offsets, given pieces that begin at `at`. */
export class RangeDigest {
  readonly #hash: Hash = createHash("sha256");
  readonly #from: number;
  readonly #to: number;
  #at: number;

  constructor(at: number, from: number, to: number) {
    this.#at = at;
    this.#from = from;
    this.#to = to;
  }

  get isWhole(): boolean {
    return this.#at >= this.#to;
  }

  add(stored: Uint8Array): void {
    const from = Math.max(0, this.#from - this.#at);
    const to = Math.max(from, this.#to - this.#at);
    this.#hash.update(stored.subarray(from, to));
    this.#at += stored.length;
  }

  hex(): string {
    return this.#hash.digest("hex");
  }
}

/** Whose appends a copy of a stream makes: the same for each run, under any URL of the source. */
export function producerIdOf({ path, life }: StreamFacts): string {
  const name = createHash("sha256").update(path).digest("hex").slice(0, 16);
  return `hapax-copy:${name}:${life}`;
}

/** Errors of the client, for people. */
export function asCopyFailure(error: unknown, label: string): unknown {
  if (!isHapaxError(error)) return error;
  const advice = error.code === "offset_trimmed" ? [TRIMMED] : [helpOf(error)];
  const isMissing = error.code === "stream_not_found" || error.code === "stream_gone";
  const isSilent = error.code === "unreachable";
  const exit = isMissing ? EXIT.notFound : isSilent ? EXIT.unreachable : EXIT.refused;
  const message = `cannot read ${label}: ${error.message}`;
  return new CommandFailure(exit, message, advice, { code: error.code }, { cause: error });
}

const TRIMMED =
  "the source has trimmed data that was not copied yet: what the target has is whole up to there; delete it to begin anew";

function helpOf(error: HapaxError): string {
  return error.code === "unreachable"
    ? "run the same command again to go on"
    : "nothing was copied twice; run the same command again to go on";
}
