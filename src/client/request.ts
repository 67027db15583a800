/**
 * One attempt of a call: its request and then its answer, one object with one end.
 *
 *   RQ1  it ends at its time limit, when a signal aborts, and when a page is hidden that it is for; whoever waits
 *        for it hears why, also if the transport does not look at its signal;
 *   RQ2  whatever else goes wrong is `unreachable`: no answer came, or not the whole of it.
 */

import { HapaxError, isHapaxError } from "../base/errors.ts";
import type { Call, Caller } from "./attempt.ts";
import { errorOf, nothing } from "./deferred.ts";
import type { ClientAnswer } from "./transport.ts";

/** Until there is one. */
const NO_ANSWER = {} as ClientAnswer;

/** One attempt: the request, with its time limit and the signals that end it, and then its answer. */
export class Attempt implements ClientAnswer {
  readonly #controller = new AbortController();
  readonly #caller: Caller;
  readonly #call: Call;
  #answer: ClientAnswer = NO_ANSWER;
  #unlisten: () => void;
  #cancelTimer = nothing;
  /** Tells the one who waits. */
  #giveUp: (reason: unknown) => void = nothing;
  /** Its time was over. */
  isSilent = false;

  constructor(caller: Caller, call: Call) {
    this.#caller = caller;
    this.#call = call;
    this.arm(call.timeoutMs ?? caller.settings.timeoutMs);
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

  /** Gives it so much time from now, instead of what it had. */
  arm(timeoutMs: number): void {
    this.#cancelTimer();
    if (timeoutMs === Infinity) return;
    this.#cancelTimer = this.#caller.settings.clock.after(timeoutMs, () => {
      this.isSilent = true;
      this.cut(new HapaxError("unreachable", `no answer within ms=${timeoutMs}`));
    });
  }

  /** Sends the call; resolves when the head of the answer is there. */
  async send(): Promise<this> {
    const { method, body } = this.#call;
    const { signal } = this.#controller;
    try {
      const [headers, url] = await this.#orEnd(this.#caller.dressed(this.#call));
      const { transport } = this.#caller.settings;
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

  /** Whoever takes the body in pieces gives each its time. */
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
      // Not waited for: it may stand behind a piece that never comes.
      pieces.return?.().catch(nothing);
    }
  }

  discard(): void {
    this.#end();
    this.#answer.discard();
  }

  /** Ends it, and the request with it. */
  cut(reason?: unknown): void {
    this.#end();
    this.#controller.abort(reason);
    this.#giveUp(reason);
  }

  /** It needs no limits any more. */
  #end(): void {
    this.#cancelTimer();
    this.#unlisten();
    this.#unlisten = nothing;
  }

  /** The promise, unless the attempt ends before it: a transport need not look at its signal. */
  #orEnd<Value>(promise: Promise<Value>): Promise<Value> {
    const { signal } = this.#controller;
    // No race: what a long answer is raced against would hold a listener for every piece.
    return new Promise((resolve, reject) => {
      this.#giveUp = reject;
      if (signal.aborted) reject(signal.reason);
      promise.then(resolve, reject);
    });
  }

  /** What a failure means to whoever called: given up by the signal's owner, or not reached. */
  #errorOf(error: unknown): Error {
    const aborted = this.#caller.abortedBy(this.#call.signal);
    if (aborted !== undefined) return aborted;
    if (isHapaxError(error)) return error;
    // `fetch failed` alone says nothing: what failed is its cause.
    const { message, cause } = errorOf(error);
    const why = cause === undefined ? message : `${message}: ${causeOf(cause)}`;
    return new HapaxError("unreachable", `no answer (${why}) url=${this.#call.url}`, {
      cause: error,
    });
  }
}

/** The code of the system, such as ECONNREFUSED, or the words. */
function causeOf(cause: unknown): string {
  // Cast: every value but null and undefined has members, if only unknown ones.
  const { code, message } = cause as { readonly code?: unknown; readonly message?: unknown };
  return String(code ?? message ?? cause);
}
