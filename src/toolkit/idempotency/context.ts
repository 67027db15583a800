/** The context that a handler gets for a request with a key. */

import type { JsonOf } from "../../base/json-of.ts";
import { HapaxError } from "../../base/errors.ts";

/** The argument of a phase. `tx` is undefined if the phase is a call. */
export interface Phase<Tx> {
  readonly tx: Tx;
  /** An idempotency key for a remote service: of this request and this phase, the same in every attempt. */
  readonly key: string;
  /** 1 is the first. */
  readonly attempt: number;
  /** Aborts when another process has taken the request over, or may do so soon. */
  readonly signal: AbortSignal;
}

/** The context of a handler. */
export interface IdempotencyContext<Tx> {
  /** The key of the request. Undefined if the request has none, and needs none. */
  readonly key: string | undefined;
  readonly scope: string | undefined;
  /** How often this request was begun; 1 is the first. */
  readonly attempt: number;
  /** Aborts when another process has taken the request over, or may do so soon: later work is not kept. */
  readonly signal: AbortSignal;
  /** The transaction that is committed with the answer. Throws `unsupported` in the mode `phases`. */
  readonly tx: Tx;
  /**
   * Runs a step of the work. Its writes with `tx` and its value are committed together; a later attempt gets the value, and
   * does not run the step again. Values go through JSON, the first time too: a `Date` becomes a string. Only in the mode
   * `phases`, one after the other, each with a name of its own.
   */
  phase<T>(this: void, name: string, work: (phase: Phase<Tx>) => Promise<T>): Promise<JsonOf<T>>;
  /** Runs a call to another service, without a transaction: after a crash it is repeated with the same `key`. */
  phase<T>(
    this: void,
    name: string,
    work: (phase: Phase<undefined>) => Promise<T>,
    options: { readonly effect: "call" },
  ): Promise<JsonOf<T>>;
  /** Declares that the work has not begun: the answer is not kept, nothing is written, and the key is free. */
  notStarted(this: void): void;
  notStarted<T>(this: void, answer: T): T;
}

/**
 * Throw it in a handler before its work begins, if the client is not allowed to do this or the request is invalid. The key
 * stays free.
 *
 * ```ts
 * import { createIdempotency, GLOBAL, NotStarted } from "hapax/idempotency";
 * import { memoryLedger } from "hapax/ledgers/memory";
 *
 * const idempotency = createIdempotency(memoryLedger(), { scope: GLOBAL });
 * const headers = { "Idempotency-Key": "k1" };
 * const request = new Request("http://localhost/pay", { method: "POST", headers });
 * const answer = await idempotency.handle(request, async () => {
 *   throw new NotStarted(new Response("who are you?", { status: 401 }));
 * });
 * console.assert(answer.status === 401);
 * ```
 */
export class NotStarted extends Error {
  override readonly name = "NotStarted";
  /** The answer, in `fetch` style. Elsewhere the error handler of the framework answers. */
  readonly response: Response | undefined;

  constructor(response?: Response, options?: ErrorOptions) {
    super("the work has not begun", options);
    this.response = response;
  }
}

/** Returns the context of a request that takes no key. A new one each time, so that listeners of its signal can be freed. */
export function noContext(): IdempotencyContext<unknown> {
  return {
    key: undefined,
    scope: undefined,
    attempt: 1,
    signal: new AbortController().signal,
    get tx(): unknown {
      throw new HapaxError("unsupported", "requests of this method have no transaction");
    },
    phase: () =>
      Promise.reject(new HapaxError("unsupported", "requests of this method have no phases")),
    notStarted: <T>(answer?: T): T => answer as T,
  };
}

/** The contexts of requests that run. */
export class Contexts<Tx> {
  /** The name under which a request has its context: entries of weak maps cost each collection of garbage. */
  readonly #name = Symbol("idempotency context");
  /** Of requests that take no members. */
  readonly #others = new WeakMap<object, IdempotencyContext<Tx>>();

  of(source: object): IdempotencyContext<Tx> | undefined {
    // Cast: nothing else has this name.
    const known = source as { readonly [name: symbol]: IdempotencyContext<Tx> | undefined };
    return known[this.#name] ?? this.#others.get(source);
  }

  add(source: object, context: IdempotencyContext<Tx>): void {
    if (!Reflect.set(source, this.#name, context)) this.#others.set(source, context);
  }
}
