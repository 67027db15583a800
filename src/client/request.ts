/**
 * One attempt of a call: its request and then its answer, one object with one end.
 *
 *   - it ends at its time limit, when a signal aborts, and when its page is hidden; its promise then rejects with the
 *     reason, also if the transport ignores its signal;
 *   - every other failure is `unreachable`: no answer came, or only a part of it.
 */

import { HapaxError, isHapaxError } from "../base/error-codes.ts";
import type { Call, Caller } from "./attempt.ts";
import { errorOf, nothing } from "./deferred.ts";
import type { ClientAnswer } from "./transport.ts";

/** Stands for the answer before it arrives. */
const NO_ANSWER = {} as ClientAnswer;

/** One attempt: the request, with its time limit and the signals that end it, and then its answer. */
export class RequestAttempt implements ClientAnswer {
  readonly #controller = new AbortController();
  readonly #caller: Caller;
  readonly #call: Call;
  #answer: ClientAnswer = NO_ANSWER;
  #unlisten: () => void;
  #cancelTimer = nothing;
  /** Rejects the promise that the caller awaits. */
  #giveUp: (reason: unknown) => void = nothing;
  /** Whether the time limit ended it. */
  isSilent = false;

  constructor(caller: Caller, call: Call) {
    this.#caller = caller;
    this.#call = call;
    this.arm(call.timeoutMs ?? caller.options.timeoutMs);
    const { signal, visibility } = call;
    const onAbort = (): void => {
      const reason = caller.abortedBy(signal);
      if (reason !== undefined) this.cut(reason);
    };
    const unlisten = caller.onAbort(signal, onAbort);
    const forget = visibility?.onChange(() => {
      if (visibility.isHidden()) this.cut(new HapaxError("unreachable", "hidden"));
    });
    this.#unlisten = () => {
      unlisten();
      forget?.();
    };
    onAbort();
  }

  /** Sets a new time limit, counted from now. */
  arm(timeoutMs: number): void {
    this.#cancelTimer();
    if (timeoutMs === Infinity) return;
    this.#cancelTimer = this.#caller.options.clock.after(timeoutMs, () => {
      this.isSilent = true;
      this.cut(new HapaxError("unreachable", `no answer within ms=${timeoutMs}`));
    });
  }

  /** Sends the call; resolves when the head of the answer has arrived. */
  async send(): Promise<this> {
    const { method, body } = this.#call;
    const { signal } = this.#controller;
    if (this.#answer !== NO_ANSWER) throw new HapaxError("internal", "not last");
    try {
      const [headers, url] = await this.#orEnd(this.#caller.dressed(this.#call));
      const { transport } = this.#caller.options;
      const sent = transport({ method, url, headers, body, signal });
      this.#answer = await this.#orEnd(sent);
      return this;
    } catch (error) {
      this.#end();
      throw this.#errorOf(error);
    }
  }

  get status(): number {
    return this.#answer.status;
  }

  header(name: string): string | undefined {
    return this.#answer.header(name);
  }

  async bytes(): Promise<Uint8Array> {
    try {
      return await this.#orEnd(this.#answer.bytes());
    } catch (error) {
      throw this.#errorOf(error);
    } finally {
      this.#end();
    }
  }

  /** Yields the body in pieces. The caller sets the time limit of each with `arm`. */
  async *chunks(): AsyncGenerator<Uint8Array> {
    const pieces = this.#answer.chunks()[Symbol.asyncIterator]();
    try {
      for (;;) {
        const piece = await this.#orEnd(pieces.next());
        if (piece.done) return;
        yield piece.value;
      }
    } catch (error) {
      throw this.#errorOf(error);
    } finally {
      this.#end();
      // Not awaited: it may wait for a piece that never comes.
      pieces.return?.().catch(nothing);
    }
  }

  discard(): void {
    this.#end();
    this.#answer.discard();
  }

  /** Ends the attempt and its request. */
  cut(reason?: unknown): void {
    this.#end();
    this.#controller.abort(reason);
    this.#giveUp(reason);
  }

  /** Removes the time limit and the listeners. */
  #end(): void {
    this.#cancelTimer();
    this.#unlisten();
    this.#unlisten = nothing;
  }

  /** Settles as the promise does, or rejects when the attempt ends first: a transport may ignore its signal. */
  #orEnd<Value>(promise: Promise<Value>): Promise<Value> {
    const { signal } = this.#controller;
    // Not `Promise.race`: with a long answer it would keep a listener for every piece.
    return new Promise((resolve, reject) => {
      this.#giveUp = reject;
      if (signal.aborted) reject(signal.reason);
      promise.then(resolve, reject);
    });
  }

  /** Returns the error for the caller: the signal's reason, or `unreachable`. */
  #errorOf(error: unknown): Error {
    const aborted = this.#caller.abortedBy(this.#call.signal);
    if (aborted !== undefined) return aborted;
    if (isHapaxError(error)) return error;
    // `fetch failed` alone explains nothing: its cause says what failed.
    const { message, cause } = errorOf(error);
    const why = cause === undefined ? message : `${message}: ${causeOf(cause)}`;
    return new HapaxError("unreachable", `no answer (${why}) url=${this.#call.url}`, {
      cause: error,
    });
  }
}

/** Returns the code of the system, such as ECONNREFUSED, or the message. */
function causeOf(cause: unknown): string {
  // Cast: every value but null and undefined can be asked for members; each of them is unknown.
  const { code, message } = cause as { readonly code?: unknown; readonly message?: unknown };
  return String(code ?? message ?? cause);
}
