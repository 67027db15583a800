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

const REQUEST_ID = `${HEADER.requestId}: `;

const statusLines = new Map<number, string>();

function startOf(status: number): string {
  let line = statusLines.get(status);
  if (line === undefined) {
    line = `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? "unknown"}\r\n`;
    statusLines.set(status, line);
  }
  return line;
}

/** The end of every head: the date, which changes once a second, and whether the connection stays open. */
export class HeadEnds {
  readonly #keepAlive: string;
  #second = 0;
  #date = "";
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
    return `${this.#date}\r\n`;
  }

  #refresh(): void {
    const second = Math.floor(Date.now() / 1000);
    if (second === this.#second) return;
    this.#second = second;
    this.#date = `Date: ${new Date(second * 1000).toUTCString()}\r\n`;
    this.#kept = this.#date + this.#keepAlive;
  }
}

/** Encodes the whole answer in latin1. `isLast`: the connection ends with it. */
export function encodeLaneAnswer(answer: WholeAnswer, ends: HeadEnds, isLast: boolean): string {
  const { status, body } = answer;
  let text = startOf(status);
  if (answer instanceof FinishedAnswer) {
    // A request id has no character that cannot be sent: it was made here, or its grammar was checked.
    text += `${commonText(answer.common)}${REQUEST_ID}${answer.requestId}\r\n${textOf(answer.own)}`;
  } else text += textOf(answer.headers);
  if (isLast) text += "Connection: close\r\n";
  const end = isLast ? ends.closed : ends.kept;
  if (status === 204 || status === 304) return text + end;
  const content = latin1Of(body);
  return `${text}Content-Length: ${content.length}\r\n${end}${content}`;
}

function textOf(headers: AnswerHeaders): string {
  let text = "";
  for (const name in headers) {
    const value = headers[name];
    if (value === undefined) continue;
    if (UNSENDABLE.test(value)) throw new Error(`the value of ${name} cannot be sent`);
    text += `${name}: ${value}\r\n`;
  }
  return text;
}

const commonTexts = new WeakMap<AnswerHeaders, string>();

/** Encoded once: all appends have the same few sets of these headers. */
function commonText(headers: AnswerHeaders): string {
  let text = commonTexts.get(headers);
  if (text === undefined) {
    text = textOf(headers);
    commonTexts.set(headers, text);
  }
  return text;
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
