/**
 * The connections of `node:http`. Requests of one connection are answered one after the other:
 *
 * - a request begins when those before it are answered, so that a later request never decides an earlier one;
 * - bytes that cannot be parsed are refused after all earlier answers; a request that breaks within its body gets one
 *   answer, its own;
 * - a client that has sent its last byte still gets its answers, and then the end;
 * - the server reads no more from a connection that has `pipelinedMax` requests.
 */

import type { IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { ErrorCode, HapaxError } from "../../base/errors.ts";
import { LIMITS } from "../../protocol/all-limits.ts";
import { brokenBody } from "./node-exchange.ts";

/** A request, and what a connection can do with it. */
export interface Turn {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  /** Begins to answer it. Called at most once. */
  readonly run: () => void;
  /** The other side sends no more and may have gone. Work that waits for it can stop. */
  readonly abort: () => void;
  /** Says that the rest of the body does not come. */
  readonly fail: (error: HapaxError) => void;
}

export interface ConnectionParts {
  /** Answers a socket without a request, and ends it. */
  readonly refuse: (code: ErrorCode, socket: Socket) => void;
  /** Ends a socket whose last answer is written. The other side may still send. */
  readonly end: (socket: Socket) => void;
}

/** How a connection ends after its last answer. */
type Ending = ErrorCode | "end";

export class HttpConnection {
  readonly #socket: Socket;
  readonly #parts: ConnectionParts;
  /** Requests without a complete answer, oldest first. The first one runs. */
  readonly #turns: Turn[] = [];
  /** The newest request, answered or not. Its body may still be coming. */
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
    if (this.#ending !== undefined) return; // The connection ends before this request, which never begins.
    this.#turns.push(turn);
    turn.response.once("close", this.#onAnswered);
    if (this.#turns.length === 1) turn.run();
    else this.#holdBack();
  }

  /** Whether the connection ends with the running answer. */
  get isLast(): boolean {
    return this.#turns.length === 1 && (this.#isDraining || this.#ending === "end");
  }

  /** Refuses bytes that are no request, or that took too long to become one. */
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

  /** Ends the connection, after its last answer. */
  drain(): void {
    this.#isDraining = true;
    this.#endIfPaid();
  }

  readonly #onAnswered = (): void => {
    this.#turns.shift();
    if (this.#socket.destroyed) {
      this.#turns.length = 0; // The connection is gone, so their answers cannot be sent.
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
 * read yet, and would leave sockets that have sent nothing yet.
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

  /** Ends all sockets, each after its last answer. */
  drain(): void {
    this.#isDraining = true;
    for (const connection of this.#open.values()) connection.drain();
  }
}
