/**
 * Holds the answer of a handler of `node:http` and Express back until it is committed.
 *
 *   - nothing of an answer reaches the client before `send`, with every way to write it;
 *   - the handler sees the same response as without this: sent headers, an ended response.
 *
 * Other middleware may replace functions of the response, before or after this: all replacements are called.
 */

import { joinBytes } from "../../base/bytes.ts";
import type { OutgoingHttpHeader, OutgoingHttpHeaders, ServerResponse } from "node:http";
import type { HttpAnswer } from "./answer.ts";

/** A method of a response. Its overloads cannot be written as one type. */
type Method = (...all: readonly unknown[]) => unknown;
type Methods = Readonly<Record<"writeHead" | "write" | "end" | "flushHeaders" | "destroy", Method>>;

type Callback = (error?: Error | null) => void;

/** The arguments after a chunk: an encoding, a callback, or both. */
type Rest = readonly (BufferEncoding | Callback | undefined)[];

type WriteHeadArguments = readonly (
  | string
  | OutgoingHttpHeaders
  | OutgoingHttpHeader[]
  | undefined
)[];

interface Head {
  readonly status: number;
  /** A copy. */
  readonly headers: OutgoingHttpHeaders;
}

function headOf(response: ServerResponse): Head {
  return { status: response.statusCode, headers: response.getHeaders() };
}

const HELD = Symbol("held answer");

type HeldResponse = ServerResponse & { readonly [HELD]: HeldAnswer };

/** What the handler sees of its response. The same functions for all responses: others would make all further use of it slow. */
const SEEN = {
  headersSent: {
    configurable: true,
    get(this: HeldResponse): boolean {
      return this[HELD].isBegun || this[HELD].real("headersSent");
    },
  },
  writableEnded: {
    configurable: true,
    get(this: HeldResponse): boolean {
      return this[HELD].isEnded || this[HELD].real("writableEnded");
    },
  },
};

/** Ends the work of a response with an error. Returns whether there was any. */
export function abortWork(response: ServerResponse, error: unknown): boolean {
  const abort = (response as Partial<HeldResponse>)[HELD]?.abort;
  abort?.(error);
  return abort !== undefined;
}

export class HeldAnswer {
  /** Ends the work with an error. Undefined: none runs. */
  abort: ((error: unknown) => void) | undefined;
  /** Resolves when the handler has ended its response; rejects if it has destroyed it. */
  readonly ended: Promise<HttpAnswer>;
  readonly #response: ServerResponse;
  readonly #chunks: Uint8Array[] = [];
  /** All chunks, when the handler has ended the response. */
  #body: Uint8Array = new Uint8Array(0);
  readonly #before: Head;
  /** The head when the handler ended the response. */
  #after: Head;
  #isHolding = true;
  #isBegun = false;
  #isEnded = false;
  #end: (answer: HttpAnswer) => void = () => undefined;
  #fail: (error: Error) => void = () => undefined;
  #onSent: Callback | undefined;
  /** Ends the response. Middleware may have replaced our `end`, and does not expect a second call. */
  #realEnd: (body: Uint8Array | undefined) => void = () => undefined;

  constructor(response: ServerResponse) {
    this.#response = response;
    this.#before = headOf(response);
    this.#after = this.#before;
    this.ended = new Promise((resolve, reject) => {
      this.#end = resolve;
      this.#fail = reject;
    });
    this.ended.catch(() => undefined); // The owner awaits `ended`, or has ended the work before.
    this.#takeOver();
  }

  /** Sends the held answer, with further headers. */
  send(extra: HttpAnswer["headers"]): void {
    const response = this.#response;
    this.#isHolding = false;
    // Nothing was sent so far, and middleware that compresses answers reads this before it writes the head.
    this.#isBegun = false;
    this.#restore();
    for (const [name, value] of extra) response.setHeader(name, value);
    if (this.#onSent !== undefined) response.once("finish", this.#onSent);
    this.#realEnd(this.#body.length === 0 ? undefined : this.#body);
  }

  /** Sends another answer in place of the held one. */
  replace(answer: HttpAnswer): void {
    this.drop();
    putHead(this.#response, answer);
    this.#realEnd(answer.body);
  }

  get isEnded(): boolean {
    return this.#isEnded;
  }

  /** Drops the held answer: the response is as it was before the handler, so that other code can answer. */
  drop(): void {
    const response = this.#response;
    this.#isHolding = false;
    this.#isBegun = false;
    this.#isEnded = false;
    for (const name of response.getHeaderNames()) response.removeHeader(name);
    for (const [name, value] of Object.entries(this.#before.headers))
      if (value !== undefined) response.setHeader(name, value);
    response.statusCode = this.#before.status;
    response.statusMessage = "";
  }

  /** Stops holding. Drops what was written; from now on writes go out at once. */
  release(): void {
    this.#isHolding = false;
    this.#isBegun = false;
    this.#isEnded = false;
    this.#chunks.length = 0;
  }

  /** Whether the handler has written any part of an answer. */
  get isBegun(): boolean {
    return this.#isBegun;
  }

  /** What the prototype of the response says: the answer that is held back is not in it. */
  real(name: "headersSent" | "writableEnded"): boolean {
    return Reflect.get(Object.getPrototypeOf(this.#response), name, this.#response);
  }

  /** Undoes changes of the head after the end: without this they would not have been sent either. */
  #restore(): void {
    const response = this.#response;
    const { status, headers } = this.#after;
    response.statusCode = status;
    for (const name of response.getHeaderNames())
      if (headers[name] === undefined) response.removeHeader(name);
    for (const name of Object.keys(headers)) {
      const value = headers[name];
      if (value !== undefined && value !== response.getHeader(name))
        response.setHeader(name, value);
    }
  }

  #takeOver(): void {
    const response = this.#response;
    const { writeHead, write, end, flushHeaders, destroy } = response as unknown as Methods;
    const real: Methods = { writeHead, write, end, flushHeaders, destroy };
    this.#realEnd = (body) => void Reflect.apply(real.end, response, [body]);
    const own = {
      writeHead: (status: number, ...rest: WriteHeadArguments) => {
        if (!this.#isHolding) return Reflect.apply(real.writeHead, response, [status, ...rest]);
        this.#writeHead(status, rest);
        return response;
      },
      write: (chunk: unknown, ...rest: Rest) => {
        if (!this.#isHolding)
          return Reflect.apply(real.write, response, [chunk, ...rest]) as boolean;
        this.#write(chunk, rest);
        return true;
      },
      end: (...all: readonly unknown[]) => {
        if (!this.#isHolding) return Reflect.apply(real.end, response, all);
        this.#endWith(all);
        return response;
      },
      flushHeaders: () => {
        if (this.#isHolding) this.#isBegun = true;
        else Reflect.apply(real.flushHeaders, response, []);
      },
      destroy: (error?: Error) => {
        if (this.#isHolding && !this.#isEnded)
          this.#fail(error ?? new Error("the handler has destroyed its response"));
        return Reflect.apply(real.destroy, response, [error]);
      },
    };
    // Overloads of the types cannot be written as one function.
    Object.assign(response, own as object, { [HELD]: this });
    Object.defineProperties(response, SEEN);
  }

  #writeHead(status: number, rest: WriteHeadArguments): void {
    const response = this.#response;
    const [first, second] = rest;
    response.statusCode = status;
    if (typeof first === "string") response.statusMessage = first;
    for (const [name, value] of pairsOf(typeof first === "string" ? second : first))
      response.setHeader(name, value);
    this.#isBegun = true;
  }

  #write(chunk: unknown, rest: Rest): void {
    const [first] = rest;
    const encoding = typeof first === "string" ? first : "utf8";
    const callback = rest.find((one) => typeof one === "function");
    if (this.#isEnded) {
      callback?.(new Error("write after end"));
      return;
    }
    this.#isBegun = true;
    this.#keep(chunk, encoding);
    if (callback !== undefined) queueMicrotask(callback);
  }

  #endWith(all: readonly unknown[]): void {
    const callback = all.find((one): one is Callback => typeof one === "function");
    if (this.#isEnded) {
      if (callback !== undefined) queueMicrotask(callback);
      return;
    }
    const [chunk, encoding] = all;
    if (chunk !== undefined && chunk !== null && typeof chunk !== "function")
      this.#keep(chunk, typeof encoding === "string" ? (encoding as BufferEncoding) : "utf8");
    this.#isBegun = true;
    this.#isEnded = true;
    this.#onSent = callback;
    this.#body = joinBytes(this.#chunks);
    this.#after = headOf(this.#response);
    const { status, headers } = this.#after;
    this.#end({ status, headers: headersOf(headers), body: this.#body });
  }

  #keep(chunk: unknown, encoding: BufferEncoding): void {
    if (typeof chunk !== "string" && !(chunk instanceof Uint8Array))
      throw new TypeError("a response takes strings and bytes only");
    // A copy of bytes: their owner may use the memory again after the call.
    const bytes = typeof chunk === "string" ? Buffer.from(chunk, encoding) : Uint8Array.from(chunk);
    this.#chunks.push(bytes);
  }
}

/** The headers of `writeHead`: an object, a flat list, or a list of pairs. */
function pairsOf(
  headers: WriteHeadArguments[number],
): readonly (readonly [string, number | string | readonly string[]])[] {
  if (headers === undefined || typeof headers === "string") return [];
  if (!Array.isArray(headers))
    return Object.entries(headers).flatMap(([name, value]) =>
      value === undefined ? [] : [[name, value] as const],
    );
  // A name may come several times.
  const all = new Map<string, [name: string, values: string[]]>();
  const add = (name: string, value: unknown): void => {
    const values = Array.isArray(value) ? value.map(String) : [String(value)];
    const before = all.get(name.toLowerCase())?.[1] ?? [];
    all.set(name.toLowerCase(), [name, [...before, ...values]]);
  };
  for (let at = 0; at < headers.length; at += 1) {
    const one = headers[at];
    if (Array.isArray(one)) add(String(one[0]), one[1]);
    else {
      at += 1;
      add(String(one), headers[at] ?? "");
    }
  }
  return [...all.values()].map(([name, values]) => [
    name,
    values.length === 1 ? (values[0] ?? "") : values,
  ]);
}

function headersOf(headers: OutgoingHttpHeaders): HttpAnswer["headers"] {
  const pairs: [string, string][] = [];
  for (const name of Object.keys(headers)) {
    const value = headers[name];
    if (value === undefined) continue;
    if (Array.isArray(value)) for (const one of value) pairs.push([name, one]);
    else pairs.push([name, String(value)]);
  }
  return pairs;
}

/** Sends an answer of the engine: a repetition or a refusal. */
export function sendNodeAnswer(response: ServerResponse, answer: HttpAnswer): void {
  putHead(response, answer);
  response.end(answer.body);
}

function putHead(response: ServerResponse, { status, headers }: HttpAnswer): void {
  response.statusCode = status;
  const all = new Map<string, string[]>();
  for (const [name, value] of headers) all.set(name, [...(all.get(name) ?? []), value]);
  for (const [name, values] of all)
    response.setHeader(name, values.length === 1 ? (values[0] ?? "") : values);
}
