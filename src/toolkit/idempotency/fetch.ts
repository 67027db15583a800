/**
 * `hapax/idempotency/fetch`: calls HTTP APIs with idempotency keys. Each operation has one effect, also if the network
 * fails or the calling process crashes.
 *
 *   - the key of an operation is durable before anything is sent, and all its attempts have that key: also those of
 *     other processes, and of this one after a restart;
 *   - no attempt is begun that could arrive when the server has forgotten the key: by its published window, or by the
 *     `Idempotency-Expires` that it has sent. Options that would allow such an attempt are refused;
 *   - the name of an operation belongs to one content: with another it is refused before anything is sent;
 *   - no answer, a part of one, 408, 425, 429, 5xx and 409 while the work still runs are repeated, after a pause that
 *     doubles with jitter and is never shorter than `Retry-After`. Every other answer is final, and so is a kept one. An
 *     attempt ends with its time and with the caller's signal, also if the given `fetch` ignores its signal;
 *   - all attempts send the same bytes; a body that may not be readable twice is refused, and a redirection is not
 *     followed unless the caller asks for it;
 *   - a name is free again when the caller calls `done`, and never by itself: not even past the window, for then a
 *     repeated call would be a second effect.
 *
 * The wall clock measures the age of a key between calls, and the steady clock within a call.
 */

import { IDEMPOTENCY_REPLAYED } from "../../protocol/header-names.ts";
import { encodeKey } from "../../protocol/idempotency-key.ts";
import { parseWaitMs } from "../../protocol/prefer.ts";
import { applyExpiry, decideUse, isWorthRepeating, type KeyRecord } from "../rules/caller-key.ts";
import { unlessAborted } from "../../base/aborts.ts";
import { backoffMs } from "../../base/backoff.ts";
import { HapaxError } from "../../base/errors.ts";
import { failpoint } from "../../base/failpoint.ts";
import { pause } from "../../base/pause.ts";
import { repeat } from "../../base/repeat.ts";
import { type Content, contentOf, type IdempotentInit } from "./fetch-body.ts";
import { expiryOf, retryAfterMsOf } from "./fetch-dates.ts";
import {
  type IdempotentFetchOptions,
  type ResolvedFetchOptions,
  resolveFetchOptions,
} from "./fetch-options.ts";

export type { IdempotentInit } from "./fetch-body.ts";
export type { IdempotentFetchOptions } from "./fetch-options.ts";
export { type KeyStore, memoryKeyStore, storageKeyStore } from "./key-store.ts";

/** Calls an operation by its name. See `createIdempotentFetch`. */
export interface IdempotentFetch {
  /**
   * Sends the call until it gets a final answer, always under the one key of the operation. `operation` is your own name for
   * it, the same after a restart: `charge order 17`. The method is `POST` unless `init` has another one.
   *
   * When time or attempts run out, it returns the last answer; if there was none, it throws `unreachable`: call again later.
   * Throws `key_expired` if the server may have forgotten the key: find out whether the operation happened, then call `done`.
   * Throws `key_reused` if the name was used for another content, `invalid_request` if the call cannot be repeated, and the
   * reason of `init.signal` if that aborts.
   */
  (operation: string, url: string | URL, init?: IdempotentInit): Promise<Response>;
  /**
   * Ends the operation, and frees its name for another one. Call it when you have stored the answer and its consequences:
   * until then a repeated call gets the same answer. Throws `in_progress` while a call of the operation runs here.
   */
  done(operation: string): Promise<void>;
}

/**
 * Creates a `fetch` whose operations happen once. On Node, `fileKeyStore` of `hapax/idempotency/node` keeps the keys.
 *
 * ```ts
 * import { createServer } from "node:http";
 * import { createIdempotentFetch, memoryKeyStore } from "hapax/idempotency/fetch";
 *
 * // A server that is busy at first.
 * const keys: unknown[] = [];
 * const server = createServer((request, response) => {
 *   keys.push(request.headers["idempotency-key"]);
 *   response.writeHead(keys.length === 1 ? 503 : 201).end();
 * });
 * const port = await new Promise<number>((resolve) => {
 *   server.listen(0, () => {
 *     const address = server.address();
 *     resolve(typeof address === "object" && address !== null ? address.port : 0);
 *   });
 * });
 *
 * const call = createIdempotentFetch({
 *   store: memoryKeyStore(),
 *   windowMs: 24 * 3_600_000,
 *   retry: { pauseMs: 10 },
 * });
 * const url = `http://127.0.0.1:${port}/charges`;
 * const answer = await call("charge order 17", url, { json: { order: 17, cents: 500 } });
 * console.assert(answer.status === 201 && keys.length === 2 && keys[0] === keys[1]);
 * await call.done("charge order 17");
 * server.closeAllConnections();
 * server.close();
 * ```
 */
export function createIdempotentFetch(options: IdempotentFetchOptions): IdempotentFetch {
  const caller = new IdempotentCaller(resolveFetchOptions(options));
  const call = (operation: string, url: string | URL, init: IdempotentInit = {}) =>
    caller.call(operation, url, init);
  return Object.assign(call, { done: (operation: string) => caller.done(operation) });
}

/** The longest name of an operation, in characters: it is part of messages, and of a line of a file. */
const OPERATION_CHARS_MAX = 512;

/** One call: the data that all its attempts share. */
interface Call {
  readonly operation: string;
  readonly content: Content;
  readonly init: IdempotentInit;
  /** Returns the time of the wall clock at the start of the call, plus the steady time since then. */
  readonly nowMs: () => number;
  readonly deadlineMs: number;
}

type Heard =
  | { readonly kind: "answer"; readonly response: Response; readonly isFinal: boolean }
  | { readonly kind: "nothing"; readonly error: unknown };

/** What the attempts of a call share. */
interface Used {
  record: KeyRecord;
  attempts: number;
  /** Why the last attempt got no answer. */
  last: unknown;
}

class IdempotentCaller {
  readonly #options: ResolvedFetchOptions;
  readonly #underWay = new Map<string, number>();

  constructor(options: ResolvedFetchOptions) {
    this.#options = options;
  }

  async call(operation: string, url: string | URL, init: IdempotentInit): Promise<Response> {
    checkName(operation);
    this.#count(operation, 1);
    try {
      const { clock, retry, keyHeader } = this.#options;
      const content = await contentOf(url, init, keyHeader);
      const skewMs = clock.nowMs() - clock.steadyMs();
      const nowMs = (): number => clock.steadyMs() + skewMs;
      const deadlineMs = nowMs() + retry.totalMs;
      return await this.#untilAnswered({ operation, content, init, nowMs, deadlineMs });
    } finally {
      this.#count(operation, -1);
    }
  }

  async done(operation: string): Promise<void> {
    checkName(operation);
    if (this.#underWay.has(operation)) {
      throw new HapaxError("in_progress", `a call of it still runs: operation=${operation}`);
    }
    await this.#options.store.remove(operation);
  }

  #count(operation: string, change: number): void {
    const count = (this.#underWay.get(operation) ?? 0) + change;
    if (count === 0) this.#underWay.delete(operation);
    else this.#underWay.set(operation, count);
  }

  async #untilAnswered(call: Call): Promise<Response> {
    const { retry, clock } = this.#options;
    const used: Used = { record: await this.#keyOf(call), attempts: 0, last: undefined };
    const heard = await repeat(
      clock,
      retry.totalMs,
      () => this.#attemptUnder(call, used),
      (one, attempts) => {
        const isOver = attempts >= retry.attemptsMax || (one.kind === "answer" && one.isFinal);
        return isOver ? undefined : this.#pauseMs(attempts, one, call.nowMs());
      },
      (delayMs) => pause(clock, delayMs, call.init.signal ?? undefined),
    );
    if (heard.kind === "nothing") {
      const detail = `operation=${call.operation} attempts=${used.attempts}`;
      throw new HapaxError("unreachable", `no answer; ${detail}`, { cause: heard.error });
    }
    if (heard.isFinal) await failpoint("fetch.answered");
    return heard.response;
  }

  /** One attempt under the kept key, if that may still be sent. What the server says of the key is kept too. */
  async #attemptUnder(call: Call, used: Used): Promise<Heard> {
    const { windowMs, store } = this.#options;
    const startMs = call.nowMs();
    const timeoutMs = Math.min(this.#options.timeoutMs, Math.max(1, call.deadlineMs - startMs));
    this.#check(used.record, call, used.last);
    const heard = await this.#attempt(call, used.record.key, timeoutMs);
    used.attempts += 1;
    if (heard.kind === "nothing") {
      used.last = heard.error;
      return heard;
    }
    const next = applyExpiry(used.record, expiryOf(heard.response.headers, startMs), windowMs);
    // The call keeps its own key, even if the operation has another key by now.
    if (next !== used.record) await store.update(call.operation, next);
    used.record = next;
    return heard;
  }

  /** Returns the key of the operation. It is durable by then. */
  async #keyOf({ operation, content, nowMs }: Call): Promise<KeyRecord> {
    const { store, random } = this.#options;
    const kept = await store.get(operation);
    if (kept !== undefined) return kept;
    const fresh = { key: random.id(), digest: content.digest, madeAtMs: nowMs() };
    const record = await store.put(operation, fresh);
    await failpoint("fetch.persisted");
    return record;
  }

  #check(record: KeyRecord, call: Call, last: unknown): void {
    // The whole time of an attempt, also if the call ends earlier: an abandoned request may still be on its way.
    const { windowMs, timeoutMs } = this.#options;
    const { digest } = call.content;
    const use = decideUse(record, { digest, nowMs: call.nowMs(), windowMs, timeoutMs });
    const where = `operation=${call.operation} key=${record.key}`;
    if (use === "reused") {
      throw new HapaxError("key_reused", `the name was used for another content; ${where}`);
    }
    if (use === "expired") {
      const message = `the server may have forgotten the key; ${where} windowMs=${windowMs}`;
      throw new HapaxError("key_expired", message, last === undefined ? {} : { cause: last });
    }
  }

  async #attempt({ content, init }: Call, key: string, timeoutMs: number): Promise<Heard> {
    const { clock, keyHeader, keySyntax } = this.#options;
    const { signal, body: _body, json: _json, ...rest } = init;
    signal?.throwIfAborted();
    const ended = new AbortController();
    const end = (): void => {
      ended.abort(signal?.aborted === true ? signal.reason : undefined);
    };
    const cancel = clock.after(timeoutMs, end);
    signal?.addEventListener("abort", end);
    const headers = new Headers(content.headers);
    headers.set(keyHeader, (keySyntax === "quoted" ? encodeKey(key) : undefined) ?? key);
    const waitSeconds = Math.floor(this.#options.waitMs / 1000);
    if (waitSeconds > 0 && mayPrefer(content.url, headers)) {
      headers.append("Prefer", `wait=${waitSeconds}`);
    }
    try {
      // A `fetch` of the caller need not look at its signal.
      const sending = this.#options.fetch(content.url, {
        ...rest,
        // After 301 to 303 `fetch` would send a GET without the content, and return its answer as that of the call.
        redirect: rest.redirect ?? "manual",
        method: content.method,
        headers,
        // Not the bytes themselves: Node 20 cannot send them again after a 307 or 308.
        body: content.body === undefined ? null : new Blob([content.body]),
        signal: ended.signal,
      });
      const response = await unlessAborted(sending, ended.signal);
      // An answer counts when it is there as a whole; its reader has a copy that cannot fail.
      const bytes = await unlessAborted(response.clone().arrayBuffer(), ended.signal);
      return { kind: "answer", response, isFinal: !isAgain(response, bytes) };
    } catch (error) {
      signal?.throwIfAborted();
      return { kind: "nothing", error };
    } finally {
      cancel();
      signal?.removeEventListener("abort", end);
    }
  }

  /** Half the ceiling and a random half; `Retry-After` if that is longer. */
  #pauseMs(failures: number, heard: Heard, nowMs: number): number {
    const { random, retry } = this.#options;
    const ownMs = backoffMs(failures, retry, random.unit());
    if (heard.kind === "nothing") return ownMs;
    return Math.max(ownMs, retryAfterMsOf(heard.response.headers, nowMs));
  }
}

/** Whether to send `Prefer: wait`: not if the caller has set it, nor from a page to another origin, which must allow it. */
function mayPrefer(url: string, headers: Headers): boolean {
  if (parseWaitMs(headers.get("prefer") ?? undefined) !== undefined) return false;
  const page: unknown = Reflect.get(globalThis, "location");
  const isPage = typeof page === "object" && page !== null && "origin" in page;
  return !isPage || new URL(url).origin === page.origin;
}

function checkName(operation: string): void {
  if (operation !== "" && operation.length <= OPERATION_CHARS_MAX) return;
  const given = `chars=${operation.length} max=${OPERATION_CHARS_MAX}`;
  throw new HapaxError(
    "invalid_request",
    `the name of an operation is empty or too long; ${given}`,
  );
}

const REPLAYED = [IDEMPOTENCY_REPLAYED, "idempotent-replayed"] as const;
const IN_PROGRESS = "urn:hapax:error:in_progress";

function isAgain(response: Response, bytes: ArrayBuffer): boolean {
  const { status, headers } = response;
  const isDuplicate = REPLAYED.some((name) => headers.get(name)?.toLowerCase() === "true");
  // A conflict of the application is final. If the work still runs, the answer has our problem type or `Retry-After`.
  const isInProgress =
    status === 409 && (headers.has("retry-after") || problemType(bytes) === IN_PROGRESS);
  return isWorthRepeating({ status, isDuplicate, isInProgress });
}

function problemType(bytes: ArrayBuffer): unknown {
  try {
    const value: unknown = JSON.parse(new TextDecoder().decode(bytes));
    return typeof value === "object" && value !== null && "type" in value ? value.type : undefined;
  } catch {
    return undefined; // Not JSON, so it is not a problem document.
  }
}
