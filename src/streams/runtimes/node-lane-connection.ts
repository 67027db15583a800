/**
 * One connection of the lane: takes appends from its bytes, and sends their answers in order.
 *
 *   - answers leave in the order of their requests, also if a later one is ready first;
 *   - requests are decided in their order, however the network has cut them: what comes in one piece with the end of a body begins in
 *     the turn after it;
 *   - a connection is handed over before the first byte of an unusual request, after all earlier answers;
 *     `node:http` gets every byte from there on and keeps the connection;
 *   - a connection holds at most `pipelinedMax` requests, and takes none while answers pile up;
 *   - a client that sends nothing, sends slowly or does not take its answers is ended by the same limits as in
 *     `node:http`.
 */

import { assert } from "../../base/assert.ts";
import type { Socket } from "node:net";
import { type ErrorCode, isHapaxError } from "../../base/errors.ts";
import { LIMITS } from "../../protocol/all-limits.ts";
import type { RequestServer } from "../server.ts";
import type { ServerAnswer, WholeAnswer } from "../server/exchange.ts";
import type { BodyBudget } from "../server/body-budget.ts";
import { brokenBody, untakenOf } from "./node-exchange.ts";
import { namedFailure } from "./node-listener.ts";
import { encodeLaneAnswer, type HeadEnds, requireWhole } from "./node-lane-answer.ts";
import { LaneExchange } from "./node-lane-exchange.ts";
import { LaneMemory } from "./node-lane-memory.ts";
import { HeadParser } from "./node-lane-parser.ts";

export interface LaneOptions {
  readonly headersTimeoutMs: number;
  readonly requestTimeoutMs: number;
  readonly keepAliveTimeoutMs: number;
  readonly stallMs: number;
  readonly publicUrl: string | undefined;
}

export interface LaneParts {
  readonly server: Pick<RequestServer, "handle" | "isDraining" | "nextRequestId">;
  readonly budget: BodyBudget;
  readonly options: LaneOptions;
  /** Gives a socket to `node:http`. Bytes that were not used are put back before. */
  readonly handOver: (socket: Socket) => void;
  /** Answers a socket without a request, and ends it. */
  readonly refuse: (code: ErrorCode, socket: Socket) => void;
  /** Ends a socket whose last answer is written. The other side may still send. */
  readonly end: (socket: Socket) => void;
  readonly onFault: (error: unknown) => void;
}

/** What all connections of a lane share. */
export interface LaneCommon extends LaneParts {
  readonly ends: HeadEnds;
  /** The time of the last check. It is exact enough for limits of seconds, and costs nothing. */
  readonly checkedAtMs: number;
  readonly forget: (connection: LaneConnection) => void;
}

/** Node waits this much longer than it announces, so that a request at the last moment is not lost. */
const KEEP_ALIVE_EXTRA_MS = 1000;
/** Calls of the parser never overlap, so one serves all connections. */
const parser = new HeadParser();

export class LaneConnection {
  readonly #socket: Socket;
  readonly #lane: LaneCommon;
  readonly #memory = new LaneMemory();
  /** Requests without an answer, oldest first. */
  readonly #owed: LaneExchange[] = [];
  /** Bytes that were read and not used: the start of a head, or requests that must wait. */
  #rest: Buffer | undefined;
  /** The request whose body is still coming. */
  #receiving: LaneExchange | undefined;
  /** A body has just come whole, and its request is decided before the bytes behind it begin. */
  #isHeldBack = false;
  /** The next request is for `node:http`. */
  #isLeaving = false;
  #isPaused = false;
  #isFlushing = false;
  /** The other side will send no more. */
  #isEnded = false;
  /** The connection takes nothing more: its last answer is on its way. */
  #isOver = false;
  /** The body that was coming does not come. The answer to its request is the last one. */
  #isBroken = false;
  #hasAsked = false;
  /** When the current request began, or when the last one was answered. */
  #sinceMs: number;
  #untaken = "";
  #untakenSinceMs = 0;

  constructor(socket: Socket, lane: LaneCommon) {
    this.#socket = socket;
    this.#lane = lane;
    this.#sinceMs = lane.checkedAtMs;
    socket.on("data", this.#onData);
    socket.on("drain", this.#onDrain);
    socket.on("end", this.#onEnd);
    socket.on("error", ignore); // `close` follows.
    socket.on("close", this.#onClose);
  }

  readonly #onData = (chunk: Buffer): void => {
    if (this.#isOver || this.#isBroken) return;
    if (this.#rest === undefined && this.#receiving === undefined) {
      this.#sinceMs = this.#lane.checkedAtMs;
    }
    this.#hasAsked = true;
    if (this.#receiving !== undefined) {
      const { bytesLeft } = this.#receiving;
      this.#receiveBody(this.#receiving, chunk.subarray(0, bytesLeft));
      if (chunk.length > bytesLeft) this.#holdBack(chunk.subarray(bytesLeft));
      return;
    }
    const bytes = this.#rest === undefined ? chunk : Buffer.concat([this.#rest, chunk]);
    if (this.#isHeldBack) this.#rest = bytes;
    else this.#take(bytes);
  };

  /** A handler that waits for its body goes on behind the caller of this, and would be overtaken by the next request. */
  #holdBack(bytes: Buffer): void {
    this.#rest = bytes;
    this.#isHeldBack = true;
    setImmediate(this.#goOn);
  }

  readonly #goOn = (): void => {
    this.#isHeldBack = false;
    if (this.#isOver || this.#isBroken) return;
    if (this.#rest !== undefined) this.#take(this.#rest);
    if (this.#isEnded) this.#endIfEnded();
  };

  readonly #onDrain = (): void => {
    this.#proceed();
  };

  readonly #onEnd = (): void => {
    this.#isEnded = true;
    for (const exchange of this.#owed) exchange.abort();
    this.#endIfEnded();
  };

  readonly #onClose = (): void => {
    this.#lane.forget(this);
    this.#isOver = true;
    this.#receiving?.close();
    for (const exchange of this.#owed) if (exchange !== this.#receiving) exchange.close();
  };

  #receiveBody(exchange: LaneExchange, piece: Buffer): void {
    exchange.receive(piece);
    if (exchange.bytesLeft === 0) this.#receiving = undefined;
  }

  get #mustWait(): boolean {
    return this.#owed.length >= LIMITS.pipelinedMax || this.#socket.writableNeedDrain;
  }

  /** Begins all requests in the bytes that can begin, and keeps the rest. */
  #take(bytes: Buffer): void {
    let at = 0;
    let isBlocked = false;
    while (at < bytes.length && !this.#isLeaving) {
      isBlocked = this.#mustWait;
      if (isBlocked) break;
      const verdict = parser.parse(bytes, at, this.#memory);
      if (verdict === "partial") break;
      if (verdict === "unusual") this.#isLeaving = true;
      else at = this.#begin(bytes);
    }
    if (at > 0) this.#sinceMs = this.#lane.checkedAtMs;
    this.#rest = at < bytes.length ? (at === 0 ? bytes : bytes.subarray(at)) : undefined;
    if (this.#isLeaving && this.#owed.length === 0) this.#leave();
    else if (this.#isLeaving || isBlocked) this.#pause();
  }

  /** Begins the request that was parsed. Returns where its bytes end. */
  #begin(bytes: Buffer): number {
    const { end, contentLength } = parser;
    const { budget, options } = this.#lane;
    const bodyEnd = end + contentLength;
    const body = bodyEnd <= bytes.length ? bytes.subarray(end, bodyEnd) : undefined;
    const exchange = new LaneExchange(
      bytes,
      parser,
      body,
      budget,
      options.publicUrl,
      this.#socket,
      this.#memory,
    );
    assert(this.#receiving === undefined, "a request begins within the body of another one");
    this.#owed.push(exchange);
    if (body === undefined) {
      this.#receiving = exchange;
      if (end < bytes.length) exchange.receive(bytes.subarray(end));
    }
    this.#serve(exchange);
    return body === undefined ? bytes.length : bodyEnd;
  }

  // Not async: an answer goes from its handler to the socket in as few steps as can be.
  #serve(exchange: LaneExchange): void {
    const fail = (error: unknown): void => {
      this.#fail(exchange, error);
    };
    try {
      this.#lane.server.handle(exchange).then((answer) => {
        this.#answer(exchange, answer);
      }, fail);
    } catch (error) {
      fail(error);
    }
  }

  #answer(exchange: LaneExchange, answer: ServerAnswer): void {
    try {
      exchange.answer = requireWhole(answer);
    } catch (error) {
      this.#fail(exchange, error);
      return;
    }
    this.#flushSoon(exchange);
  }

  #fail(exchange: LaneExchange, error: unknown): void {
    if (!isHapaxError(error)) this.#lane.onFault(error);
    exchange.answer = namedFailure(this.#lane.server, error);
    this.#flushSoon(exchange);
  }

  #flushSoon(exchange: LaneExchange): void {
    if (exchange.answer?.drop === true) this.#socket.destroy();
    if (this.#owed[0] !== exchange || this.#isFlushing || this.#isOver) return;
    if (this.#owed.length === 1) {
      this.#flush();
      return;
    }
    // More answers may be ready in this turn: one write sends them all.
    this.#isFlushing = true;
    process.nextTick(this.#flush);
  }

  readonly #flush = (): void => {
    this.#isFlushing = false;
    const socket = this.#socket;
    if (this.#isOver || socket.destroyed) return;
    try {
      let text = "";
      let answer: WholeAnswer | undefined;
      while ((answer = this.#owed[0]?.answer) !== undefined) {
        const mustEnd = this.#isBroken || this.#lane.server.isDraining;
        const isLast = this.#owed.length === 1 && mustEnd;
        text += encodeLaneAnswer(answer, this.#lane.ends, isLast);
        const exchange = this.#owed.shift();
        if (exchange === this.#receiving) exchange?.drop(); // Answered before its body has come.
        if (isLast) this.#isOver = true;
      }
      socket.write(text, "latin1");
    } catch (error) {
      this.#lane.onFault(error);
      socket.destroy();
      return;
    }
    if (!this.#isOver) this.#proceed();
    else if (this.#isBroken) this.#lane.end(socket);
    else socket.destroySoon();
  };

  /** Continues with requests that had to wait for answers. */
  #proceed(): void {
    if (this.#isOver) return;
    if (this.#rest === undefined && this.#receiving === undefined) {
      this.#sinceMs = this.#lane.checkedAtMs;
    }
    if (this.#isEnded && !this.#mustWait) this.#endIfEnded();
    if (!this.#isPaused || this.#isOver) return;
    if (this.#isLeaving) {
      if (this.#owed.length === 0) this.#leave();
      return;
    }
    if (this.#mustWait) return;
    this.#isPaused = false;
    if (this.#rest !== undefined) this.#take(this.#rest);
    if (!this.#isPaused && !this.#isLeaving) this.#socket.resume();
  }

  #pause(): void {
    this.#isPaused = true;
    this.#socket.pause();
  }

  /** Ends the connection after the client's last byte and after all answers. */
  #endIfEnded(): void {
    if (this.#isOver || this.#isBusy || this.#isPaused || this.#isHeldBack) return;
    if (this.#receiving !== undefined) this.#break("invalid_request");
    else if (this.#rest !== undefined) this.#refuse("invalid_request");
    else {
      this.#isOver = true;
      this.#socket.end();
    }
  }

  /** Whether the server owes an answer that does not wait for the other side. */
  get #isBusy(): boolean {
    const [first] = this.#owed;
    return first !== undefined && first !== this.#receiving;
  }

  #leave(): void {
    const rest = this.#rest ?? Buffer.alloc(0);
    this.#detach();
    const socket = this.#socket;
    socket.off("close", this.#onClose);
    socket.off("error", ignore);
    if (this.#isEnded) {
      // Bytes cannot be put back into a socket that has ended, so `node:http` gets both events again.
      this.#lane.handOver(socket);
      socket.emit("data", rest);
      socket.emit("end");
      return;
    }
    socket.pause(); // There is no listener now: without a pause the bytes would be lost.
    socket.unshift(rest);
    this.#lane.handOver(socket);
    socket.resume();
  }

  #detach(): void {
    this.#isOver = true;
    this.#lane.forget(this);
    this.#socket.off("data", this.#onData);
    this.#socket.off("drain", this.#onDrain);
    this.#socket.off("end", this.#onEnd);
  }

  /** Answers a request that breaks within its body. It gets one answer, and may have it already. */
  #break(code: ErrorCode): void {
    const broken = this.#receiving;
    if (broken === undefined || this.#isBroken) return;
    this.#isBroken = true;
    if (this.#owed.includes(broken)) broken.fail(brokenBody(code));
    else this.#lane.end(this.#socket);
  }

  #refuse(code: ErrorCode): void {
    this.#detach();
    this.#lane.refuse(code, this.#socket);
  }

  /** Ends the connection, after its last answer. */
  drain(): void {
    if (this.#owed.length > 0 || this.#isHeldBack) return;
    this.#isOver = true;
    this.#socket.destroySoon();
  }

  cut(): void {
    this.#socket.destroy();
  }

  /** Checks the limits of time. `slackMs` is how old the times may be that it compares. */
  check(nowMs: number, slackMs: number): void {
    this.#checkTaking(nowMs);
    if (this.#isBusy || this.#isPaused || this.#isOver) return;
    const { headersTimeoutMs, requestTimeoutMs, keepAliveTimeoutMs } = this.#lane.options;
    const elapsedMs = nowMs - this.#sinceMs - slackMs;
    const isOverdue = (limitMs: number): boolean => limitMs > 0 && elapsedMs >= limitMs;
    if (this.#receiving !== undefined) {
      if (isOverdue(requestTimeoutMs)) this.#break("request_timeout");
    } else if (this.#rest !== undefined || !this.#hasAsked) {
      if (isOverdue(headersTimeoutMs)) this.#refuse("request_timeout");
    } else if (keepAliveTimeoutMs > 0 && isOverdue(keepAliveTimeoutMs + KEEP_ALIVE_EXTRA_MS)) {
      this.#socket.destroy();
    }
  }

  /** A client that does not take its answers must not keep them in memory. */
  #checkTaking(nowMs: number): void {
    if (this.#socket.writableLength === 0) {
      this.#untaken = "";
      return;
    }
    const untaken = untakenOf(this.#socket);
    if (untaken !== this.#untaken) {
      this.#untaken = untaken;
      this.#untakenSinceMs = nowMs;
    } else if (nowMs - this.#untakenSinceMs >= this.#lane.options.stallMs) {
      this.#socket.destroy();
    }
  }
}

const ignore = (): void => undefined;
