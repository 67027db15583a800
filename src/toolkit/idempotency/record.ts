/**
 * The format of the data of an entry of kind `http`.
 *
 *   byte 0      the version of the format: 1
 *   bytes 1-4   the length of the head, big-endian
 *   head        JSON: while it runs, the request and the values of finished phases; when it is done, the answer
 *   rest        the bytes of the body of that request or answer
 *
 *   - every body comes back byte by byte.
 */

import { HapaxError } from "../../base/errors.ts";
import { isPlainText, plainBytes } from "../../base/plain-text.ts";
import type { HttpAnswer } from "./answer.ts";

/** A stored request, which a completer can repeat. */
export interface StoredRequest {
  readonly method: string;
  readonly url: string;
  readonly headers: readonly (readonly [string, string])[];
  readonly body: Uint8Array;
}

/** The progress of an unfinished request. */
export interface Progress {
  readonly request: StoredRequest | undefined;
  /** The JSON of each finished phase; undefined if it returned nothing. */
  readonly phases: ReadonlyMap<string, string | undefined>;
}

export const NO_PROGRESS: Progress = { request: undefined, phases: new Map() };

const VERSION = 1;
const PREFIX = 5;
const NOTHING = new Uint8Array(0);
const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true });

interface ProgressHead {
  readonly kind: "progress";
  readonly request?: Omit<StoredRequest, "body">;
  /** Each has a name, and a value unless the phase returned nothing. */
  readonly phases: readonly (readonly [string, ...string[]])[];
}

interface AnswerHead {
  readonly kind: "answer";
  readonly status: number;
  readonly headers: HttpAnswer["headers"];
}

export function encodeProgress({ request, phases }: Progress): Uint8Array {
  const kept = [...phases].map(([name, value]): [string, ...string[]] =>
    value === undefined ? [name] : [name, value],
  );
  const head: ProgressHead = { kind: "progress", phases: kept };
  if (request === undefined) return encode(head, NOTHING);
  const { body, ...rest } = request;
  return encode({ ...head, request: rest }, body);
}

/** Returns the progress of earlier attempts. It is empty for an answer, and for no data. */
export function decodeProgress(data: Uint8Array | undefined): Progress {
  if (data === undefined) return NO_PROGRESS;
  const { head, body } = decode(data);
  if (head.kind !== "progress") return NO_PROGRESS;
  const request = head.request === undefined ? undefined : { ...head.request, body };
  return { request, phases: new Map(head.phases.map(([name, value]) => [name, value])) };
}

/** Encodes the part of an answer that is kept. */
export function encodeAnswer({ status, headers, body }: HttpAnswer): Uint8Array {
  return encode({ kind: "answer", status, headers }, body);
}

/** Returns the kept answer; undefined if it was too large. */
export function decodeAnswer(data: Uint8Array | undefined): HttpAnswer | undefined {
  if (data === undefined) return undefined;
  const { head, body } = decode(data);
  if (head.kind !== "answer") return undefined;
  return { status: head.status, headers: head.headers, body };
}

function encode(head: ProgressHead | AnswerHead, body: Uint8Array): Uint8Array {
  const text = JSON.stringify(head);
  const json = isPlainText(text) ? plainBytes(text) : encoder.encode(text);
  const { length } = json;
  const bytes = new Uint8Array(PREFIX + length + body.length);
  bytes.set([VERSION, length >>> 24, length >>> 16, length >>> 8, length]);
  bytes.set(json, PREFIX);
  bytes.set(body, PREFIX + json.length);
  return bytes;
}

function decode(bytes: Uint8Array): {
  readonly head: ProgressHead | AnswerHead;
  readonly body: Uint8Array;
} {
  if (bytes[0] !== VERSION || bytes.length < PREFIX)
    throw new HapaxError("schema_newer", `an entry of another version; version=${bytes[0]}`);
  const length = new DataView(bytes.buffer, bytes.byteOffset).getUint32(1);
  const head = JSON.parse(decoder.decode(bytes.subarray(PREFIX, PREFIX + length))) as
    | ProgressHead
    | AnswerHead;
  return { head, body: bytes.subarray(PREFIX + length) };
}
