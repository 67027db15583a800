/** Turns a request of Node into an Exchange, and sends a ServerAnswer back over HTTP/1.1. */

import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Readable, Writable } from "node:stream";
import { TLSSocket } from "node:tls";
import { systemClock } from "../../base/clock.ts";
import { type ErrorCode, HapaxError } from "../../base/errors.ts";
import type {
  ServerAnswer,
  Exchange,
  LiveAnswer,
  LiveSink,
  WholeAnswer,
} from "../server/exchange.ts";
import type { ClientCertificate } from "../access/identity.ts";
import type { BodyBudget } from "../server/body-budget.ts";
import { checkHead } from "../server/request-head.ts";
import { BodyPieces } from "../../base/body-pieces.ts";
import { certificateOf } from "./node-certificate.ts";
import { parseTarget } from "../../protocol/target.ts";
import { whenStuck } from "../server/stuck.ts";

const EMPTY = new Uint8Array(0);

/** A request of HTTP/1.1 or HTTP/2, as far as an exchange needs it. */
export interface NodeRequest {
  readonly method: string;
  readonly target: string;
  readonly version: string;
  readonly scheme: "http" | "https";
  /** `:authority` of HTTP/2. */
  readonly authority: string | undefined;
  readonly headers: IncomingHttpHeaders;
  /** Names and values in turn, as they were sent. */
  readonly lines: readonly string[];
  readonly peer: string;
  readonly certificate: ClientCertificate | undefined;
  readonly hasBody: boolean;
  /** Brings the body. */
  readonly incoming: Pick<Readable, "on">;
  /** Takes the answer. */
  readonly outgoing: Pick<Writable, "once" | "closed">;
  readonly isGone: boolean;
  /** Whether a body that has ended has come whole. */
  isWhole(): boolean;
  /** Says to a client that waits that its body is wanted. */
  beginBody(): void;
}

export class NodeExchange implements Exchange {
  readonly method: string;
  readonly path: string;
  readonly query: string;
  readonly #request: NodeRequest;
  readonly #budget: BodyBudget;
  readonly #publicUrl: string | undefined;
  readonly authority: string | undefined;
  #bodyBytes = 0;
  #isAborted = false;
  #aborts: (() => void)[] | undefined;
  #failure: HapaxError | undefined;
  #onFailure: ((error: HapaxError) => void) | undefined;

  constructor(request: NodeRequest, budget: BodyBudget, publicUrl: string | undefined) {
    const { target } = request;
    // A target that is neither a path nor an absolute form is refused, except `OPTIONS *`.
    const parts = parseTarget(target) ?? { path: target, query: "", authority: undefined };
    this.method = request.method;
    this.path = parts.path;
    this.query = parts.query;
    this.authority = parts.authority ?? request.authority ?? request.headers.host;
    this.#request = request;
    this.#budget = budget;
    this.#publicUrl = publicUrl;
  }

  get baseUrl(): string {
    return this.#publicUrl ?? `${this.#request.scheme}://${this.authority ?? "localhost"}`;
  }

  get peer(): string {
    return this.#request.peer;
  }

  get certificate(): ClientCertificate | undefined {
    return this.#request.certificate;
  }

  get isGone(): boolean {
    return this.#request.isGone;
  }

  checkHead(): void {
    const { target, version, lines, headers, authority } = this.#request;
    checkHead(this.method, {
      target,
      version,
      lines,
      // Node has joined or dropped headers that were sent twice: then there are fewer names than lines.
      names: Object.keys(headers).length,
      ...(authority === undefined ? {} : { authority }),
      field: (name) => this.header(name),
    });
  }

  lines(): readonly string[] {
    return this.#request.lines;
  }

  get hasBody(): boolean {
    return this.#request.hasBody;
  }

  get bodyBytes(): number {
    return this.#bodyBytes;
  }

  header(name: string): string | undefined {
    const value = this.#request.headers[name];
    return Array.isArray(value) ? value.join(", ") : value;
  }

  body(bytesMax: number): Promise<Uint8Array> {
    if (!this.hasBody) return Promise.resolve(EMPTY);
    const announced = Number(this.#request.headers["content-length"] ?? 0);
    if (announced > bytesMax) return Promise.reject(tooLarge(bytesMax));
    if (this.#failure !== undefined) return Promise.reject(this.#failure);
    this.#request.beginBody();
    return new Promise((resolve, reject) => {
      const take = (body: Uint8Array): void => {
        this.#bodyBytes = body.length;
        resolve(body);
      };
      this.#onFailure = receive(this.#request, bytesMax, this.#budget, { resolve: take, reject });
    });
  }

  onAbort(run: () => void): void {
    const { outgoing } = this.#request;
    // The other side may have gone while the request waited for something else.
    if (this.#isAborted || outgoing.closed) {
      run();
      return;
    }
    if (this.#aborts === undefined) outgoing.once("close", this.abort);
    (this.#aborts ??= []).push(run);
  }

  /** The other side sends no more and may have gone. Work that waits for it can stop. */
  readonly abort = (): void => {
    this.#isAborted = true;
    for (const run of this.#aborts?.splice(0) ?? []) run();
  };

  /** Says that the rest of the body does not come. */
  readonly fail = (error: HapaxError): void => {
    this.#failure = error;
    this.#onFailure?.(error);
  };
}

/** A request of HTTP/1.1, as an exchange needs it. */
export class Http1Request implements NodeRequest {
  readonly incoming: IncomingMessage;
  readonly outgoing: ServerResponse;
  readonly authority = undefined;
  #isAwaited: boolean;

  /** `isAwaited`: the client sends the body only when it is asked for it. */
  constructor(request: IncomingMessage, response: ServerResponse, isAwaited: boolean) {
    this.incoming = request;
    this.outgoing = response;
    this.#isAwaited = isAwaited;
  }

  /** Whether the client has announced a body that the server has not asked for: it may come now, or never. */
  get isBodyUnclear(): boolean {
    return this.#isAwaited && this.hasBody;
  }

  get method(): string {
    return this.incoming.method ?? "GET";
  }

  get target(): string {
    return this.incoming.url ?? "/";
  }

  get version(): string {
    return this.incoming.httpVersion;
  }

  get scheme(): "http" | "https" {
    return this.incoming.socket instanceof TLSSocket ? "https" : "http";
  }

  get headers(): IncomingHttpHeaders {
    return this.incoming.headers;
  }

  get lines(): readonly string[] {
    return this.incoming.rawHeaders;
  }

  get peer(): string {
    return this.incoming.socket.remoteAddress ?? "";
  }

  get certificate(): ClientCertificate | undefined {
    return certificateOf(this.incoming.socket);
  }

  get isGone(): boolean {
    return this.outgoing.closed || this.incoming.socket.destroyed;
  }

  get hasBody(): boolean {
    const { headers } = this.incoming;
    return headers["transfer-encoding"] !== undefined || Number(headers["content-length"] ?? 0) > 0;
  }

  isWhole(): boolean {
    return this.incoming.complete;
  }

  beginBody(): void {
    if (this.#isAwaited) this.outgoing.writeContinue();
    this.#isAwaited = false;
  }
}

export function brokenBody(code: ErrorCode): HapaxError {
  return new HapaxError(code, "the body did not come as it was announced");
}

export function tooLarge(bytesMax: number): HapaxError {
  return new HapaxError("body_too_large", `the limit is ${bytesMax} bytes`);
}

interface Waiter {
  readonly resolve: (body: Uint8Array) => void;
  readonly reject: (error: unknown) => void;
}

/** Receives a body for a waiter. The returned function ends that with an error. */
function receive(
  request: NodeRequest,
  bytesMax: number,
  budget: BodyBudget,
  { resolve, reject }: Waiter,
): (error: HapaxError) => void {
  const pieces = new BodyPieces();
  let isOver = false;
  // The listeners stay: to remove them costs more than the request that goes with them. After a refusal they drop the
  // rest of the body, so that the client can see the answer.
  const finish = (error?: unknown): void => {
    if (isOver) return;
    isOver = true;
    share.end();
    if (error !== undefined) {
      pieces.clear();
      reject(error);
      return;
    }
    resolve(pieces.whole());
  };
  const share = budget.begin({ peer: request.peer, cut: finish });
  const onData = (chunk: Buffer): void => {
    if (isOver) return;
    try {
      if (pieces.bytes + chunk.length > bytesMax) throw tooLarge(bytesMax);
      share.take(chunk.length);
      pieces.add(chunk);
    } catch (error) {
      finish(error);
    }
  };
  const onClose = (): void => {
    if (isOver) return;
    finish(new HapaxError("request_timeout", "the connection ended before the body did"));
  };
  const onEnd = (): void => {
    if (request.isWhole()) finish();
    else onClose();
  };
  // Node reports an error only to its listeners, and `close` follows every error.
  request.incoming.on("data", onData).on("end", onEnd).on("close", onClose);
  return finish;
}

export interface AnswerSending {
  /** The connection ends with this answer. */
  readonly isLast: boolean;
  /** Milliseconds for which the other side may take nothing before it is cut. */
  readonly stallMs: number;
}

export function sendAnswer(
  request: IncomingMessage,
  response: ServerResponse,
  answer: ServerAnswer,
  sending: AnswerSending,
): void {
  if (!("live" in answer) && answer.share !== undefined) {
    const { share } = answer;
    share.onCut(() => request.socket.destroy());
    // `close` comes once: when the answer has left or the connection has gone.
    if (response.closed || response.destroyed) share.release();
    else response.once("close", share.release);
  }
  if (response.destroyed) return;
  if ("live" in answer) {
    sendLive(request, response, answer, sending.stallMs);
    return;
  }
  if (answer.drop === true) {
    request.socket.destroy();
    return;
  }
  const pieces = bodyPieces(request.method === "HEAD", answer);
  let bytes = 0;
  for (const piece of pieces) bytes += piece.length;
  const headers = flatten(answer, sending.isLast);
  if (answer.status !== 204 && answer.status !== 304 && request.method !== "HEAD") {
    headers.push("Content-Length", String(bytes));
  }
  response.writeHead(answer.status, headers);
  // `finish` comes when the kernel has taken the last byte. It does not come if the connection breaks before.
  if (answer.onSent !== undefined) response.once("finish", answer.onSent);
  finish(request, response, pieces, sending.stallMs);
}

export function bodyPieces(isHead: boolean, answer: WholeAnswer): readonly Uint8Array[] {
  if (answer.body === undefined || isHead) return [];
  return answer.body instanceof Uint8Array ? [answer.body] : answer.body;
}

function finish(
  request: IncomingMessage,
  response: ServerResponse,
  pieces: readonly Uint8Array[],
  stallMs: number,
): void {
  if (pieces.length <= 1) {
    response.end(pieces[0]);
  } else {
    response.cork();
    for (const piece of pieces) response.write(piece);
    response.uncork();
    response.end();
  }
  if (!response.writableFinished && response.writableLength > 0) {
    cutWhenStuck(request.socket, response, stallMs);
  }
}

// A client that does not take its answer must not keep it in memory.
function cutWhenStuck(socket: Socket, response: ServerResponse, stallMs: number): void {
  const cancel = whenSocketStuck(socket, response, stallMs, () => {
    socket.destroy();
  });
  response.once("close", cancel);
}

function whenSocketStuck(
  socket: Socket,
  response: ServerResponse,
  delayMs: number,
  run: () => void,
): () => void {
  return whenStuck(
    systemClock,
    () => takenFrom(socket),
    delayMs,
    () => {
      // An answer without a socket waits behind another answer, and not for the other side.
      if (response.socket !== null) run();
    },
  );
}

/**
 * What Node shows of a socket only through its handle: bytes handed to the kernel, and those that the kernel has not
 * taken yet.
 */
interface SocketHandle {
  readonly bytesWritten?: number;
  readonly writeQueueSize?: number;
}

function handleOf(socket: Socket): SocketHandle {
  const { _handle: handle } = socket as { _handle?: SocketHandle | null };
  return handle ?? {};
}

/** Returns how many bytes the kernel has taken from a socket in all. */
export function takenFrom(socket: Socket): number {
  const { bytesWritten = 0, writeQueueSize = 0 } = handleOf(socket);
  return bytesWritten - writeQueueSize;
}

/** Returns a value that changes when the other side takes something. */
export function untakenOf(socket: Socket): string {
  return `${socket.writableLength} ${handleOf(socket).writeQueueSize ?? 0}`;
}

function flatten({ headers }: ServerAnswer, isLast: boolean): string[] {
  const lines: string[] = [];
  for (const name in headers) {
    const value = headers[name];
    if (value !== undefined) lines.push(name, value);
  }
  if (isLast) lines.push("Connection", "close");
  return lines;
}

function sendLive(
  request: IncomingMessage,
  response: ServerResponse,
  answer: LiveAnswer,
  stallMs: number,
): void {
  response.writeHead(answer.status, flatten(answer, false));
  response.flushHeaders();
  answer.live(createSink(request.socket, response, stallMs));
}

function createSink(socket: Socket, response: ServerResponse, stallMs: number): LiveSink {
  return {
    write(bytes) {
      if (!response.destroyed) response.write(bytes);
    },
    get queuedBytes() {
      return response.writableLength;
    },
    onDrain(run) {
      if (response.writableNeedDrain) response.once("drain", run);
      else queueMicrotask(run);
    },
    onStuck: (delayMs, run) => whenSocketStuck(socket, response, delayMs, run),
    onClose(run) {
      response.once("close", run);
    },
    end() {
      response.end();
      if (response.writableLength > 0) cutWhenStuck(socket, response, stallMs);
    },
    cut() {
      response.destroy();
    },
  };
}
