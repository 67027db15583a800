/**
 * Keeps the newest key set of a provider.
 *
 *   - it is read again once in a while, and when a token names a key that is not in it, but then not more often than the cool-down
 *     allows: strangers can invent names of keys;
 *   - requests make it read: an idle server has no timer for it, which would keep a Durable Object awake. The request that finds it due
 *     does not wait. One that finds it long overdue does, so that a key which was taken back meanwhile lets no one in;
 *   - while it cannot be read, the last one goes on, and it is tried again after pauses that double;
 *   - a request waits for it only a short time, and a read has a time limit.
 */

import { doubledMs } from "../../base/backoff.ts";
import type { Clock } from "../../base/clock.ts";
import { isLoopback } from "../../protocol/origin.ts";
import { LIMITS } from "../../protocol/all-limits.ts";
import { type KeySet, parseKeySet } from "./jwks.ts";

/** Reads the text of a key set. The signal aborts when it takes too long. */
export type ReadKeySet = (signal: AbortSignal) => Promise<string>;

export interface KeeperOptions {
  readonly clock: Clock;
  readonly refreshMs: number;
  readonly onNote: (note: string) => void;
  /** Ends the reading. */
  readonly signal: AbortSignal | undefined;
}

const RETRY = { pauseMs: LIMITS.jwksRetryMsMin, pauseMsMax: LIMITS.jwksRetryMsMax };

export class KeyKeeper {
  readonly #read: ReadKeySet;
  readonly #options: KeeperOptions;
  #keys: KeySet | undefined;
  #attempt: Promise<void> | undefined;
  /** When it is to be read again, on the steady clock. It is being read for the first time: never. */
  #dueAtMs = Infinity;
  #failures = 0;
  #askedAtMs = -Infinity;
  #lastNote = "";

  constructor(read: ReadKeySet, options: KeeperOptions) {
    this.#read = read;
    this.#options = options;
    this.#begin();
  }

  /** Undefined: none could be read yet. */
  get keys(): KeySet | undefined {
    return this.#keys;
  }

  /** The last try has failed, so that there may be newer keys. */
  get isBehind(): boolean {
    return this.#failures > 0;
  }

  /** For each request with a token: reads the set again if it is due. The promise, if any, is to be waited for. */
  refresh(): Promise<void> | undefined {
    const { clock, refreshMs } = this.#options;
    const lateMs = clock.steadyMs() - this.#dueAtMs;
    if (lateMs < 0) return undefined;
    this.#begin();
    if (lateMs < refreshMs || this.#attempt === undefined) return undefined;
    return within(clock, LIMITS.jwksWaitMs, this.#attempt);
  }

  /** For a token whose key is not in the set. Resolves when it is worth to look again; not later than `jwksWaitMs`. */
  async lookAgain(): Promise<void> {
    const { clock } = this.#options;
    if (this.#attempt === undefined) {
      if (clock.steadyMs() - this.#askedAtMs < LIMITS.jwksCoolDownMs) return;
      this.#askedAtMs = clock.steadyMs();
      this.#begin();
    }
    await within(clock, LIMITS.jwksWaitMs, this.#attempt ?? Promise.resolve());
  }

  #begin(): void {
    if (this.#attempt !== undefined || this.#options.signal?.aborted === true) return;
    this.#attempt = this.#try().finally(() => {
      this.#attempt = undefined;
      const { clock, refreshMs } = this.#options;
      const failedMs = doubledMs(Math.max(1, this.#failures), RETRY);
      const pauseMs = this.#failures === 0 ? refreshMs : Math.min(refreshMs, failedMs);
      this.#dueAtMs = clock.steadyMs() + pauseMs;
    });
  }

  async #try(): Promise<void> {
    try {
      const text = await this.#limited();
      this.#take(parseKeySet(text).after(this.#keys));
      this.#failures = 0;
    } catch (error) {
      this.#failures += 1;
      const goesOn = this.#keys === undefined ? "tokens are refused" : "the last keys go on";
      this.#note(`jwt: the key set cannot be used, so ${goesOn}: ${wordsOf(error)}`);
    }
  }

  #take(next: KeySet): void {
    const last = this.#keys;
    this.#keys = next;
    if (last?.equals(next) === true) {
      if (this.#failures > 0) this.#note("jwt: the key set can be read again");
      return;
    }
    this.#note(`jwt: ${last === undefined ? "" : "new "}key set with ${next.size} usable keys`);
  }

  /** Also ends if the read does not obey its signal. */
  async #limited(): Promise<string> {
    const { clock } = this.#options;
    const limit = new AbortController();
    const slow = new Error(`it did not arrive within ${LIMITS.jwksTimeoutMs} ms`);
    const cancel = clock.after(LIMITS.jwksTimeoutMs, () => limit.abort(slow));
    const aborted = new Promise<never>((_, reject) => {
      limit.signal.addEventListener("abort", () => reject(slow), { once: true });
    });
    try {
      return await Promise.race([this.#read(limit.signal), aborted]);
    } finally {
      cancel();
    }
  }

  /** A file is looked at every second; the same words once are enough. */
  #note(note: string): void {
    if (note === this.#lastNote) return;
    this.#lastNote = note;
    this.#options.onNote(note);
  }
}

/** Whether keys may be fetched from here: over https, or from this machine. */
export function isKeySetUrl(text: string): boolean {
  if (!URL.canParse(text)) return false;
  const { protocol, hostname, username, password } = new URL(text);
  if (`${username}${password}` !== "") return false;
  const host = hostname.replace(/^\[(.*)\]$/, "$1");
  return protocol === "https:" || (protocol === "http:" && isLoopback(host));
}

/** Fetches a key set: without redirects, which could lead to clear text or elsewhere, and not more than `jwksBytesMax`. */
export function fetchKeySet(url: string): ReadKeySet {
  return async (signal) => {
    const answer = await fetch(url, {
      redirect: "manual",
      signal,
      headers: { accept: "application/jwk-set+json, application/json" },
    });
    if (answer.status !== 200) {
      await answer.body?.cancel();
      throw new Error(`the answer has status ${answer.status}; it must be 200, without redirects`);
    }
    return readLimited(answer);
  };
}

async function readLimited({ body }: Response): Promise<string> {
  const decoder = new TextDecoder("utf-8", { fatal: true });
  let text = "";
  let bytes = 0;
  const reader = body?.getReader();
  for (;;) {
    const { done = true, value } = (await reader?.read()) ?? {};
    if (done) return text + decoder.decode();
    bytes += value?.length ?? 0;
    if (bytes > LIMITS.jwksBytesMax) {
      await reader?.cancel();
      throw new Error(`the key set is larger than ${LIMITS.jwksBytesMax} bytes`);
    }
    text += decoder.decode(value, { stream: true });
  }
}

async function within(clock: Clock, ms: number, work: Promise<void>): Promise<void> {
  let cancel = (): void => {};
  const limit = new Promise<void>((resolve) => (cancel = clock.after(ms, resolve)));
  await Promise.race([work, limit]);
  cancel();
}

/** The platform says only `fetch failed`, and has the reason in the cause. */
function wordsOf(error: unknown): string {
  if (!(error instanceof Error)) return "the read failed";
  const { cause } = error;
  if (cause instanceof Error) return "code" in cause ? String(cause.code) : cause.message;
  return error.message;
}
