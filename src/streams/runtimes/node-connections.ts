/**
 * The connections of `node:http`. Requests of one connection are answered one after the other:
 *
 * - a request begins when those before it are answered, so that none is decided by one behind it;
 * - what cannot be parsed is refused behind the answers that are owed; a request that breaks within its body gets one
 *   answer, its own;
 * - a client that has sent its last byte gets what it is owed, and then the end;
 * - nothing more is read from a connection that has `pipelinedMax` requests.
 */

import type { IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { ErrorCode, HapaxError } from "../../base/errors.ts";
import { LIMITS } from "../../protocol/limits.ts";
import { brokenBody } from "./node-exchange.ts";

/** A request and what a connection must be able to do with it. */
export interface Turn {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  /** Begins to answer it. Called at most once. */
  readonly run: () => void;
  /** The other side sends no more and may have gone: what waits on its behalf need not. */
  readonly abort: () => void;
  /** The rest of the body does not come. */
  readonly fail: (error: HapaxError) => void;
}

export interface ConnectionParts {
  /** Answers a socket without a request, and ends it. */
  readonly refuse: (code: ErrorCode, socket: Socket) => void;
  /** Ends a socket whose last answer is written, and which may still send. */
  readonly end: (socket: Socket) => void;
}

/** What becomes of a connection when nothing is owed any more. */
type Ending = ErrorCode | "end";

export class HttpConnection {
  readonly #socket: Socket;
  readonly #parts: ConnectionParts;
  /** Requests without a whole answer, oldest first. The first one runs. */
  readonly #turns: Turn[] = [];
  /** The newest request, answered or not: it may still be coming. */
  #newest: IncomingMessage | undefined;
  #ending: Ending | undefined;
  #isHeld = false;
  #isDraining = false;

  constructor(socket: Socket, parts: ConnectionParts) {
    this.#socket = socket;
    this.#parts = parts;
    socket.on("end", this.#onEnd);
    // Node resumes a socket whenever a body is read or dropped.
    socket.on("resume", this.#holdBack);
  }

  /** Begins a request, now or when those before it are answered. */
  begin(turn: Turn): void {
    this.#newest = turn.request;
    if (this.#ending !== undefined) return; // The connection ends before this one: it was never begun.
    this.#turns.push(turn);
    turn.response.once("close", this.#onAnswered);
    if (this.#turns.length === 1) turn.run();
    else this.#holdBack();
  }

  /** Whether the connection ends with the answer that runs. */
  get isLast(): boolean {
    return this.#turns.length === 1 && (this.#isDraining || this.#ending === "end");
  }

  /** These bytes are no request, or took too long to become one. */
  refuse(code: ErrorCode): void {
    if (this.#ending !== undefined) return;
    const broken = this.#newest?.complete === false ? this.#newest : undefined;
    this.#ending = broken === undefined ? code : "end";
    // Node would reset a connection that still sends, and the other side would lose its last answer.
    this.#socket.destroySoon = () => {
      this.#parts.end(this.#socket);
    };
    const turn = this.#turns.at(-1);
    if (broken !== undefined && turn?.request === broken) {
      turn.fail(brokenBody(code));
    }
    this.#endIfPaid();
  }

  /** Ends the connection if nothing is owed; otherwise the last answer does. */
  drain(): void {
    this.#isDraining = true;
    this.#endIfPaid();
  }

  readonly #onAnswered = (): void => {
    this.#turns.shift();
    if (this.#socket.destroyed) {
      this.#turns.length = 0; // Their answers have nowhere to go.
      return;
    }
    const [next] = this.#turns;
    if (next === undefined)
      this.#newest = this.#newest?.complete === true ? undefined : this.#newest;
    else next.run();
    this.#endIfPaid();
    if (this.#isHeld && !this.#isFull) {
      this.#isHeld = false;
      this.#socket.resume();
    }
  };

  readonly #onEnd = (): void => {
    for (const turn of this.#turns) turn.abort();
  };

  get #isFull(): boolean {
    return this.#turns.length >= LIMITS.pipelinedMax;
  }

  readonly #holdBack = (): void => {
    if (!this.#isFull) return;
    this.#isHeld = true;
    this.#socket.pause();
  };

  #endIfPaid(): void {
    if (this.#turns.length > 0) return;
    if (this.#ending === undefined) {
      if (this.#isDraining) this.#socket.destroySoon();
    } else if (this.#ending === "end") this.#parts.end(this.#socket);
    else this.#parts.refuse(this.#ending, this.#socket);
  }
}

/**
 * The open connections. Node's own closeIdleConnections would also cut sockets whose last answer is written but not
 * yet taken, and would leave those that said nothing yet.
 */
export class Connections {
  readonly #parts: ConnectionParts;
  readonly #open = new Map<Socket, HttpConnection>();
  #isDraining = false;

  constructor(parts: ConnectionParts) {
    this.#parts = parts;
  }

  add(socket: Socket): void {
    const connection = new HttpConnection(socket, this.#parts);
    this.#open.set(socket, connection);
    socket.once("close", () => this.#open.delete(socket));
    if (this.#isDraining) connection.drain();
  }

  of(socket: Socket): HttpConnection | undefined {
    return this.#open.get(socket);
  }

  /** Ends the sockets that owe nothing, now and as soon as they have answered. */
  drain(): void {
    this.#isDraining = true;
    for (const connection of this.#open.values()) connection.drain();
  }
}
