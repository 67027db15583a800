/**
 * Encodes answers as the bytes that `node:http` would send, in one string: names, values and their order are the
 * same. Bodies are bytes, and are in the string as latin1.
 *
 *   - an answer on the lane has the same bytes as the same answer through `node:http`;
 *   - a header whose value cannot be sent is an error and never splits an answer.
 */

import { STATUS_CODES } from "node:http";
import { HEADER } from "../../protocol/headers.ts";
import type { AnswerHeaders, ServerAnswer, WholeAnswer } from "../server/exchange.ts";
import { FinishedAnswer } from "../server/finished-answer.ts";

/** Characters that no header value may hold: the rule of `node:http`. */
// oxlint-disable-next-line no-control-regex -- Control characters are what it looks for.
const UNSENDABLE = /[^\t\x20-\x7e\x80-\xff]/;

const REQUEST_ID = `\r\n${HEADER.requestId}: `;

// Lines begin with their line break here, so that a line is its name, which is known, and its value: fewer pieces of text.
const statusLines = new Map<number, string>();

function startOf(status: number): string {
  let line = statusLines.get(status);
  if (line === undefined) {
    line = `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? "unknown"}`;
    statusLines.set(status, line);
  }
  return line;
}

/** The end of every head: the date, which changes once a second, and whether the connection stays open. */
export class HeadEnds {
  readonly #keepAlive: string;
  #second = 0;
  #closed = "";
  #kept = "";

  constructor(keepAliveTimeoutMs: number) {
    const timeout = `Keep-Alive: timeout=${Math.floor(keepAliveTimeoutMs / 1000)}\r\n`;
    this.#keepAlive = `Connection: keep-alive\r\n${keepAliveTimeoutMs > 0 ? timeout : ""}\r\n`;
  }

  /** For a connection that stays open. */
  get kept(): string {
    this.#refresh();
    return this.#kept;
  }

  /** For a connection that ends. The other headers already say so. */
  get closed(): string {
    this.#refresh();
    return this.#closed;
  }

  #refresh(): void {
    const second = Math.floor(Date.now() / 1000);
    if (second === this.#second) return;
    this.#second = second;
    const date = `\r\nDate: ${new Date(second * 1000).toUTCString()}\r\n`;
    this.#closed = `${date}\r\n`;
    this.#kept = date + this.#keepAlive;
  }
}

/** Encodes the whole answer in latin1. `isLast`: the connection ends with it. */
export function encodeLaneAnswer(answer: WholeAnswer, ends: HeadEnds, isLast: boolean): string {
  const { status, body } = answer;
  let text: string;
  if (answer instanceof FinishedAnswer) {
    // A request id has no character that cannot be sent: it was made here, or its grammar was checked.
    text = withLines(commonStart(status, answer.common) + answer.requestId, answer.own);
  } else text = withLines(startOf(status), answer.headers);
  if (isLast) text += "\r\nConnection: close";
  const end = isLast ? ends.closed : ends.kept;
  if (status === 204 || status === 304) return text + end;
  const content = latin1Of(body);
  return `${text}\r\nContent-Length: ${content.length}${end}${content}`;
}

const lineStarts = new Map<string, string>();

/** Names come from handlers, never from clients, so there are few. */
function lineStartOf(name: string): string {
  let start = lineStarts.get(name);
  if (start === undefined) {
    start = `\r\n${name}: `;
    lineStarts.set(name, start);
  }
  return start;
}

function withLines(start: string, headers: AnswerHeaders): string {
  let text = start;
  for (const name in headers) {
    const value = headers[name];
    if (value === undefined) continue;
    if (UNSENDABLE.test(value)) throw new Error(`the value of ${name} cannot be sent`);
    text += lineStartOf(name) + value;
  }
  return text;
}

const commonStarts = new WeakMap<AnswerHeaders, Map<number, string>>();

/** Encoded once, up to the value of the request id: all appends have the same few sets of these headers. */
function commonStart(status: number, headers: AnswerHeaders): string {
  let starts = commonStarts.get(headers);
  if (starts === undefined) {
    starts = new Map();
    commonStarts.set(headers, starts);
  }
  let start = starts.get(status);
  if (start === undefined) {
    // Joined, it is one text; a sum would be put together again for each answer.
    start = [withLines(startOf(status), headers), REQUEST_ID].join("");
    starts.set(status, start);
  }
  return start;
}

/** Returns the answer, if appends can have it: it is complete and never compressed. Throws otherwise. */
export function requireWhole(answer: ServerAnswer): WholeAnswer {
  if ("live" in answer || answer.mayCompress === true) {
    throw new Error("an answer of this kind has no place on the lane");
  }
  return answer;
}

function latin1Of(body: WholeAnswer["body"]): string {
  if (body === undefined) return "";
  if (!(body instanceof Uint8Array)) return body.map((piece) => latin1Of(piece)).join("");
  return Buffer.from(body.buffer, body.byteOffset, body.byteLength).toString("latin1");
}
