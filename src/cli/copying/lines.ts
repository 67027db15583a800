/**
 * Streams as lines of JSON. A file has sections, each the data of one stream between two offsets:
 *
 *   {"hapax":"stream","stream":"/v1/stream/orders","life":"…","from":"…","headers":{"content-type":"application/json"}}
 *   {"value":{"id":1}}
 *   {"offset":"0000000000000000_0000000000000018","value":{"id":2}}
 *   {"end":"0000000000000000_0000000000000018","closed":false,"sha256":"…"}
 *
 *   - `value` has the bytes of a JSON record. A record with a line break between its tokens, and the bytes of all other
 *     streams, are `base64`: every byte comes back;
 *   - `offset` is the offset of the source behind the line. Only the last line of a page has it: a file that was cut is
 *     good up to the last one;
 *   - `sha256` is of the stored bytes of the section. A later section of the same stream goes on where the last one ended.
 */

import type { FileHandle } from "node:fs/promises";
import { decodeBase64, encodeBase64 } from "../../base/base64.ts";
import { decodeText, joinBytes, utf8Of } from "../../base/bytes.ts";
import { splitStoredJson } from "../../protocol/json.ts";
import { CommandFailure, EXIT } from "../failure.ts";
import { isJsonType, storedOf, type StreamFacts } from "./page.ts";

const NEWLINE = 0x0a;
const READ_BYTES = 256 * 1024;
/** Of text as base64, so that a line stays far below what other programs can read. */
const PIECE_BYTES = 768 * 1024;

export type CopyLine =
  | { readonly kind: "begin"; readonly facts: StreamFacts }
  | { readonly kind: "data"; readonly bytes: Uint8Array; readonly offset: string | undefined }
  | {
      readonly kind: "end";
      readonly end: string;
      readonly closed: boolean;
      readonly sha256: string;
    };

/** A line, and the place in the file after it. */
export interface PlacedLine {
  readonly line: CopyLine;
  readonly number: number;
  /** The byte of the file at which the line begins, and the one after it. */
  readonly at: number;
  readonly to: number;
}

/** The whole lines of a file from a byte on. A last line without its end is left out. */
export async function* readLines(
  file: FileHandle,
  path: string,
  from = 0,
): AsyncGenerator<PlacedLine> {
  let held: Uint8Array[] = [];
  let at = from;
  let position = from;
  for (let number = 1; ;) {
    const buffer = new Uint8Array(READ_BYTES);
    const { bytesRead } = await file.read(buffer, 0, READ_BYTES, position);
    if (bytesRead === 0) return;
    position += bytesRead;
    let start = 0;
    const chunk = buffer.subarray(0, bytesRead);
    for (let end = chunk.indexOf(NEWLINE); end >= 0; end = chunk.indexOf(NEWLINE, start)) {
      const bytes = joinBytes([...held, chunk.subarray(start, end)]);
      held = [];
      start = end + 1;
      const to = at + bytes.length + 1;
      yield { line: parseLine(bytes, number, path), number, at, to };
      at = to;
      number += 1;
    }
    if (start < bytesRead) held.push(chunk.slice(start));
  }
}

/** Where the value begins in a line of data. The writer has no other spelling, and users may edit values only. */
const VALUE = /^\{(?:"offset":"(\d{16}_\d{16})",)?"(value|base64)":/;

function parseLine(bytes: Uint8Array, number: number, path: string): CopyLine {
  const head = VALUE.exec(decodeText(bytes.subarray(0, 64)));
  try {
    if (head !== null) {
      const value = bytes.subarray(head[0].length, -1);
      const parsed: unknown = JSON.parse(decodeText(value));
      const isEncoded = head[2] === "base64";
      if (bytes.at(-1) !== CLOSING_BRACE || (isEncoded && typeof parsed !== "string")) {
        throw new TypeError(head[2]);
      }
      const data = isEncoded ? decodeBase64(String(parsed)) : value;
      return { kind: "data", bytes: data, offset: head[1] };
    }
    const fields = new Map<string, unknown>(Object.entries(JSON.parse(decodeText(bytes))));
    const text = (name: string): string => {
      const field = fields.get(name);
      if (typeof field !== "string") throw new TypeError(name);
      return field;
    };
    if (fields.has("end")) {
      const closed = fields.get("closed") === true;
      return { kind: "end", end: text("end"), closed, sha256: text("sha256") };
    }
    if (text("hapax") !== "stream") throw new TypeError("hapax");
    const headers = Object.entries(fields.get("headers") ?? {});
    const facts = {
      path: text("stream"),
      life: text("life"),
      from: text("from"),
      tail: undefined,
      isContinued: fields.get("continued") === true,
      headers: Object.fromEntries(headers.map(([name, value]) => [name, String(value)])),
    };
    return { kind: "begin", facts };
  } catch (cause) {
    throw notOurs(path, number, cause);
  }
}

const CLOSING_BRACE = 0x7d;

export function notOurs(path: string, number: number, cause?: unknown): CommandFailure {
  return new CommandFailure(
    EXIT.refused,
    `line ${String(number)} of ${path} is not a line that hapax copy writes`,
    ["for lines of your own use: hapax append <stream> --file <file>"],
    {},
    { cause },
  );
}

export function headerLine(facts: StreamFacts, from: string, isContinued: boolean): string {
  const { path, life, headers } = facts;
  const more = isContinued ? { continued: true } : {};
  return `${JSON.stringify({ hapax: "stream", stream: path, life, from, ...more, headers })}\n`;
}

export function endLine(end: string, closed: boolean, sha256: string): string {
  return `${JSON.stringify({ end, closed, sha256 })}\n`;
}

/** The lines of a page. */
export function dataLines(body: Uint8Array, contentType: string | undefined, end: string): string {
  const values = isJsonType(contentType)
    ? splitStoredJson(storedOf(body, true)).map(recordMember)
    : piecesOf(body).map(base64Member);
  return values
    .map((value, i) => (i < values.length - 1 ? `{${value}}\n` : `{"offset":"${end}",${value}}\n`))
    .join("");
}

function recordMember(record: Uint8Array): string {
  const hasBreak = record.includes(NEWLINE) || record.includes(0x0d);
  return hasBreak ? base64Member(record) : `"value":${decodeText(record)}`;
}

function base64Member(bytes: Uint8Array): string {
  return `"base64":"${encodeBase64(bytes)}"`;
}

function piecesOf(body: Uint8Array): Uint8Array[] {
  const pieces: Uint8Array[] = [];
  for (let at = 0; at < body.length; at += PIECE_BYTES) {
    pieces.push(body.subarray(at, at + PIECE_BYTES));
  }
  return pieces;
}

/** The bytes that a line stands for, as they are stored. */
export function storedOfLine(bytes: Uint8Array, contentType: string | undefined): Uint8Array {
  return isJsonType(contentType) ? joinBytes([bytes, utf8Of(",")]) : bytes;
}
