/**
 * Encodes the Server-Sent Events of the protocol (PROTOCOL.md, SSE). `sse-decoder.ts` decodes them.
 *
 *   id: <offset>           id: <offset>
 *   event: data            event: control
 *   data:<payload line>    data:{"streamNextOffset":"…","streamCursor":"…","upToDate":true}
 *   data:<payload line>
 *
 * The id is the offset at which a reader resumes after this event. A browser's EventSource sends it as Last-Event-ID.
 *
 *   - no payload can end its event or begin another: every CR, LF and CRLF starts a `data:` line;
 *   - a decoder that follows the HTML standard gets the text back, with CR and CRLF as LF. The
 *     format cannot carry more for text; catch-up reads are byte exact, and base64 is too. In
 *     JSON, where line breaks are whitespace, CRLF is two LFs: an event has as many bytes as
 *     were stored, and records have their offsets.
 *
 * Text is passed through as bytes. A text stream that does not hold UTF-8 reaches live readers with
 * replacement characters, because the format is UTF-8 by definition.
 */

import { utf8Of } from "../base/bytes.ts";
import { withoutLastComma } from "./json.ts";

export type SseKind = "json" | "text" | "base64";

export interface ControlEvent {
  readonly streamNextOffset: string;
  readonly streamCursor?: string | undefined;
  readonly upToDate?: boolean | undefined;
  readonly streamClosed?: boolean | undefined;
}

const LF = 0x0a;
const CR = 0x0d;
const SPACE = 0x20;
const PADDING = 0x3d;

// Pure, so that a bundle that only decodes does not contain them.
const DATA_HEAD = /* @__PURE__ */ utf8Of("event: data\ndata:");
const JSON_HEAD = /* @__PURE__ */ utf8Of("event: data\ndata:[");
const JSON_TAIL = /* @__PURE__ */ utf8Of("]\n\n");
const TAIL = /* @__PURE__ */ utf8Of("\n\n");
const NEXT_LINE = /* @__PURE__ */ utf8Of("\ndata:");
const ALPHABET = /* @__PURE__ */ utf8Of(
  "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/",
);

/** Returns how the records of a stream travel in data events. */
export function sseKind(contentType: string): SseKind {
  const parameters = contentType.indexOf(";");
  const essence = (parameters === -1 ? contentType : contentType.slice(0, parameters))
    .trim()
    .toLowerCase();
  if (essence === "application/json") return "json";
  return essence.startsWith("text/") ? "text" : "base64";
}

/** Encodes the line that begins an event. A browser remembers it when the event is complete. */
export function encodeEventId(offset: string): Uint8Array {
  return utf8Of(`id: ${offset}\n`);
}

/** Encodes one complete `data` event that holds the stored bytes. */
export function encodeDataEvent(kind: SseKind, stored: Uint8Array): Uint8Array {
  switch (kind) {
    case "json":
      return frameLines(JSON_HEAD, withoutLastComma(stored), JSON_TAIL, 1);
    case "text":
      return frameLines(firstLineHead(stored), stored, TAIL, 2);
    case "base64":
      return base64Between(DATA_HEAD, stored, TAIL);
  }
}

/** Encodes an event whose data is JSON around the stored records of a JSON stream. */
export function frameJson(head: string, stored: Uint8Array, tail: string): Uint8Array {
  return frameLines(utf8Of(head), withoutLastComma(stored), utf8Of(tail), 1);
}

/** Encodes an event whose data is text around any bytes as base64. */
export function frameBase64(head: string, stored: Uint8Array, tail: string): Uint8Array {
  return base64Between(utf8Of(head), stored, utf8Of(tail));
}

/** Returns how many bytes these appends have as the data of an event, without its few other bytes. */
export function dataEventBytes(kind: SseKind, appends: readonly Uint8Array[]): number {
  let bytes = 0;
  for (const append of appends) {
    if (kind === "base64") bytes += Math.ceil(append.length / 3) * 4;
    else if (append.includes(LF) || append.includes(CR)) bytes += linesSize(append, 1);
    else bytes += append.length;
  }
  return bytes;
}

/** Encodes one complete `control` event. It leaves out members that are not set, as the protocol wants. */
export function encodeControlEvent(control: ControlEvent): Uint8Array {
  const { streamNextOffset, streamCursor, upToDate, streamClosed } = control;
  const json = JSON.stringify({
    streamNextOffset,
    ...(streamCursor === undefined ? {} : { streamCursor }),
    ...(upToDate === true ? { upToDate } : {}),
    ...(streamClosed === true ? { streamClosed } : {}),
  });
  return utf8Of(`id: ${streamNextOffset}\nevent: control\ndata:${json}\n\n`);
}

/** Encodes a comment that decoders skip. It only shows proxies that the connection lives. */
export function encodeHeartbeat(): Uint8Array {
  return utf8Of(":\n\n");
}

/** Decoders drop one space after the colon, so a line that starts with a space gets another one. */
function firstLineHead(payload: Uint8Array): Uint8Array {
  return payload[0] === SPACE ? utf8Of("event: data\ndata: ") : DATA_HEAD;
}

/** `crLf`: how many bytes of a CRLF are one line break. */
function frameLines(
  head: Uint8Array,
  payload: Uint8Array,
  tail: Uint8Array,
  crLf: 1 | 2,
): Uint8Array {
  const hasBreaks = payload.includes(LF) || payload.includes(CR);
  const size = hasBreaks ? linesSize(payload, crLf) : payload.length;
  const frame = new Uint8Array(head.length + size + tail.length);
  frame.set(head);
  if (hasBreaks) writeLines(payload, frame, head.length, crLf);
  else frame.set(payload, head.length);
  frame.set(tail, head.length + size);
  return frame;
}

function linesSize(payload: Uint8Array, crLf: 1 | 2): number {
  let size = payload.length;
  for (let at = 0; at < payload.length; at++) {
    const width = breakWidth(payload, at, crLf);
    if (width === 0) continue;
    at += width - 1;
    size += NEXT_LINE.length - width + (payload[at + 1] === SPACE ? 1 : 0);
  }
  return size;
}

function writeLines(payload: Uint8Array, frame: Uint8Array, offset: number, crLf: 1 | 2): void {
  let to = offset;
  for (let at = 0; at < payload.length; at++) {
    const width = breakWidth(payload, at, crLf);
    if (width === 0) {
      frame[to++] = payload[at] ?? 0;
      continue;
    }
    // One byte at a time: calling `set` for six bytes takes many times as long.
    for (let index = 0; index < NEXT_LINE.length; index++) frame[to++] = NEXT_LINE[index] ?? 0;
    at += width - 1;
    if (payload[at + 1] === SPACE) frame[to++] = SPACE;
  }
}

/** Returns the bytes of the line break at `at`: 1 for a lone CR or LF, `crLf` for CRLF, 0 for anything else. */
function breakWidth(payload: Uint8Array, at: number, crLf: 1 | 2): 0 | 1 | 2 {
  const byte = payload[at];
  if (byte === LF) return 1;
  if (byte !== CR) return 0;
  return payload[at + 1] === LF ? crLf : 1;
}

function base64Between(head: Uint8Array, stored: Uint8Array, tail: Uint8Array): Uint8Array {
  const size = Math.ceil(stored.length / 3) * 4;
  const frame = new Uint8Array(head.length + size + tail.length);
  frame.set(head);
  let to = head.length;
  for (let at = 0; at < stored.length; at += 3) {
    // Past the end the typed array gives undefined; those bits are zero and covered by padding.
    const bits = ((stored[at] ?? 0) << 16) | ((stored[at + 1] ?? 0) << 8) | (stored[at + 2] ?? 0);
    frame[to] = ALPHABET[bits >> 18] ?? 0;
    frame[to + 1] = ALPHABET[(bits >> 12) & 63] ?? 0;
    frame[to + 2] = ALPHABET[(bits >> 6) & 63] ?? 0;
    frame[to + 3] = ALPHABET[bits & 63] ?? 0;
    to += 4;
  }
  const missing = (3 - (stored.length % 3)) % 3;
  frame.fill(PADDING, to - missing, to);
  frame.set(tail, to);
  return frame;
}
