/**
 * Decides which requests with an Idempotency-Key are worked on, and what the others get. All adapters share it.
 *
 *   - of all requests with one key, one is worked on at a time, in all processes; the others wait for its answer as long
 *     as they may, or get 409 with `Retry-After`;
 *   - a key that comes with other content is refused, also while the first request still runs;
 *   - a process that dies frees its keys when their leases end, and never later;
 *   - the keys of two scopes never meet.
 *
 * The standard is draft-ietf-httpapi-idempotency-key-header-07. toolkit/rules/claim.ts decides who may work.
 */

import { unlessAborted } from "../../base/aborts.ts";
import { failpoint, hasFailpoint } from "../../base/failpoint.ts";
import { isOtherContent } from "../../base/content-fingerprint.ts";
import { keyProblem, parseIdempotencyKey } from "../../protocol/idempotency-key.ts";
import { parseWaitMs } from "../../protocol/prefer.ts";
import { type ErrorCode, HapaxError, isHapaxError } from "../../base/errors.ts";
import { pause } from "../../base/pause.ts";
import type { Entry, Ledger, Place } from "../ledgers/ledger.ts";
import { Check } from "../once/check.ts";
import { GLOBAL } from "../rules/scoped-key.ts";
import { acquire, type Acquired, type Claim, type ClaimTerms } from "../once/claiming.ts";
import { endedOf, mayLock } from "../once/locking.ts";
import { growingPauses } from "../once/pauses.ts";
import { keyTimeMs } from "../../protocol/key.ts";
import { type HttpAnswer, answerOf, problemOf, duplicateOf, responseOf } from "./answer.ts";
import { type Completer, type CompleterOptions, createCompleter } from "./completer.ts";
import { Contexts, type IdempotencyContext, noContext, NotStarted } from "./context.ts";
import { fingerprintOf } from "./fingerprint.ts";
import { WAITING_MAX } from "./limits.ts";
import {
  decodeAnswer,
  decodeProgress,
  encodeProgress,
  NO_PROGRESS,
  type StoredRequest,
} from "./record.ts";
import {
  type AdaptedRequest,
  bytesOf,
  type IdempotencyRequest,
  readBody,
  unreadRequest,
} from "./request.ts";
import { type FlightId, flightIdOf, Flights } from "./flights.ts";
import { type OpenedLock, openLocked } from "./open-transaction.ts";
import { type Kept, Run } from "./run.ts";
import { entryLeftMs, flightLeftMs } from "./retry-after.ts";
import type { IdempotencyOptions, ResolvedOptions } from "./options.ts";
import { resolveOptions } from "./options.ts";

/** A handler in `fetch` style. */
export type FetchHandler<Tx> = (
  request: Request,
  context: IdempotencyContext<Tx>,
) => Response | Promise<Response>;

/** The result of `Idempotency.begin()`: send this answer, or run the handler and report its end to `run`. */
export type Begun<Tx> =
  | { readonly kind: "answer"; readonly answer: HttpAnswer }
  | { readonly kind: "run"; readonly run: Run<Tx> };

type Acquirable<Tx> = Acquired<Tx> | Extract<Begun<Tx>, { readonly kind: "run" }>;

/** The engine of idempotency keys over one ledger. `createIdempotency` creates it. */
export class Idempotency<Tx, Source = unknown> {
  readonly options: ResolvedOptions<Source>;
  readonly #ledger: Ledger<Tx>;
  readonly #flights: Flights;
  /** How many repetitions wait now. */
  #waiting = 0;
  readonly #contexts = new Contexts<Tx>();

  constructor(ledger: Ledger<Tx>, options: IdempotencyOptions<Source>) {
    this.#ledger = ledger;
    this.options = resolveOptions(ledger, options);
    this.#flights = new Flights(this.options.tools.clock);
  }

  /** Answers a request in `fetch` style: by the handler, with the kept answer, or with a refusal. */
  async handle(request: Request, handler: FetchHandler<Tx>): Promise<Response> {
    if (!this.concerns(request.method, request.headers.has(this.options.header)))
      return handler(request, noContext() as IdempotencyContext<Tx>);
    const refusal = this.refusalOf(request.method, request.headers.get(this.options.header));
    if (refusal !== undefined) return responseOf(refusal);
    let bytes: Uint8Array;
    try {
      bytes = await readBody(request, this.options.bodyBytesMax);
    } catch (error) {
      if (!isHapaxError(error, "body_too_large")) throw error;
      return responseOf(this.problem(error.code, error.message));
    }
    const { method, url, headers, signal } = request;
    const begun = await this.begin({
      method,
      url,
      headers,
      body: { kind: "bytes", bytes },
      source: request as Source, // Cast: in `fetch` style `Source` is the type of the request.
      signal,
    });
    if (begun.kind === "answer") return responseOf(begun.answer);
    const unread = request.body === null ? request : unreadRequest(request, bytes);
    return responseOf(await this.perform(begun.run, unread, handler));
  }

  /** Runs a handler in `fetch` style to its end. */
  async perform(run: Run<Tx>, request: Request, handler: FetchHandler<Tx>): Promise<HttpAnswer> {
    let answer: HttpAnswer;
    try {
      const response = await handler(request, run.context);
      answer = await answerOf(response, this.options.answerBytesMax);
    } catch (error) {
      await run.fail(error);
      if (error instanceof NotStarted && error.response !== undefined)
        return answerOf(error.response, this.options.answerBytesMax);
      const lost = run.answerTo(error);
      if (lost !== undefined) return lost;
      throw error;
    }
    return run.finish(answer);
  }

  /**
   * Creates a completer, which finishes requests that a crash has interrupted and whose clients never came back.
   * Needs the option `completes`.
   */
  completer(
    handlerFor: CompleterOptions<Tx>["handlerFor"],
    options: Omit<CompleterOptions<Tx>, "handlerFor"> = {},
  ): Completer {
    return createCompleter(
      {
        ledger: this.#ledger,
        options: this.options,
        claim: (place, terms) => acquire(this.#ledger, place, terms, this.options.tools, true),
        start: (claim, fingerprint) => this.#start(claim, fingerprint, undefined),
        perform: (run, request, handler) => this.perform(run, request, handler),
      },
      { ...options, handlerFor },
    );
  }

  /** Returns the context of a request that came through an adapter. Throws `unsupported` for others. */
  contextOf(source: object): IdempotencyContext<Tx> {
    const context = this.#contexts.of(source);
    if (context !== undefined) return context;
    throw new HapaxError("unsupported", "the request did not come through an idempotency adapter");
  }

  /** For adapters: remembers the context of a run, for `contextOf`. */
  remember(source: object, run: Run<Tx>): void {
    this.#contexts.add(source, run.context);
  }

  /** For adapters: returns whether the engine must see this request. It refuses a key that would protect nothing. */
  concerns(method: string, hasKey: boolean): boolean {
    return hasKey || this.options.methods.has(method);
  }

  /** For adapters: returns a refusal that needs no body; undefined if there is none. */
  refusalOf(method: string, header: string | null): HttpAnswer | undefined {
    const name = this.options.header;
    if (!this.options.methods.has(method)) {
      const detail = `${name} is not taken for ${method}, and would protect nothing: leave it out`;
      return this.problem("invalid_request", `${detail}, or see the option methods of the server`);
    }
    if (header === null)
      return this.options.isRequired
        ? this.problem("key_missing", `${method} needs the header ${name}`)
        : undefined;
    return parseIdempotencyKey(header) === undefined
      ? this.problem("invalid_request", `${name} ${keyProblem(header)}`)
      : undefined;
  }

  /** For adapters: returns a refusal with everything that the options add. */
  problem(code: ErrorCode, detail: string, retryAfterMs?: number): HttpAnswer {
    const { describedBy } = this.options;
    return problemOf(code, detail, {
      describedBy,
      ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
    });
  }

  /** For adapters: claims the key of a request, or finds its answer. */
  async begin(request: AdaptedRequest<Source>): Promise<Begun<Tx>> {
    const header = (request.reader ?? request.headers).get(this.options.header);
    const refusal = this.refusalOf(request.method, header);
    if (refusal !== undefined) return { kind: "answer", answer: refusal };
    const key = header === null ? undefined : parseIdempotencyKey(header);
    if (key === undefined) return { kind: "run", run: await this.#openKeyless() };
    let place: Place;
    let fingerprint: string | undefined;
    try {
      // Most requests find all of this at once: an `await` costs more than the rest.
      const { scope, fingerprint: own, digest } = this.options;
      place = { kind: "http", scope: scope === GLOBAL ? scope : await this.#scopeOf(request), key };
      const made = own === undefined ? fingerprintOf(request, digest) : own(request);
      fingerprint = made === undefined || typeof made === "string" ? made : await made;
    } catch (error) {
      if (!isHapaxError(error, "invalid_request")) throw error;
      return { kind: "answer", answer: this.problem(error.code, error.message) };
    }
    return this.#claim(place, fingerprint, request);
  }

  async #claim(
    place: Place,
    fingerprint: string | undefined,
    request: AdaptedRequest<Source>,
  ): Promise<Begun<Tx>> {
    const { tools } = this.options;
    const expired = this.options.refusesOldKeys ? await this.#refuseOld(place) : undefined;
    if (expired !== undefined) return expired;
    const prefer = (request.reader ?? request.headers).get("prefer");
    const untilMs = tools.clock.steadyMs() + this.#waitMs(prefer);
    const leftMsOf = (): number => {
      const mayWait = request.signal?.aborted !== true && this.#waiting < WAITING_MAX;
      return mayWait ? untilMs - tools.clock.steadyMs() : 0;
    };
    const id = flightIdOf(place);
    let pauses: (() => number) | undefined;
    for (let isKnown = false; ; isKnown = true) {
      const flight = this.#flights.at(id);
      if (flight?.isClaimed === false) {
        await flight.claimed;
        continue;
      }
      if (flight !== undefined) {
        if (isOtherContent(flight.fingerprint, fingerprint)) return this.#mismatch();
        const leftMs = leftMsOf();
        if (leftMs <= 0)
          return this.#inProgress(flightLeftMs(tools.clock.steadyMs() - flight.claimedMs));
        const kept = await this.#within(flight.ended, leftMs, request.signal);
        if (kept !== undefined)
          return this.#duplicate(kept.answer, kept.expiresAtMs - tools.clock.nowMs());
        continue;
      }
      const acquired = await this.#acquire(place, id, fingerprint, isKnown);
      switch (acquired.kind) {
        case "run":
          return acquired;
        case "claimed":
          return { kind: "run", run: await this.#start(acquired.claim, fingerprint, request) };
        case "mismatch":
          return this.#mismatch();
        case "done":
        case "failed":
          return this.#answerOf(acquired.entry);
        case "exhausted":
          return this.#refuse("attempts_exhausted", `begun attempts=${acquired.entry.attempts}`);
        case "running": {
          const leftMs = leftMsOf();
          if (leftMs <= 0)
            return this.#inProgress(entryLeftMs(acquired.entry, this.options.leaseMs));
          pauses ??= growingPauses(tools.random);
          const pauseMs = Math.min(pauses(), leftMs);
          // The end of work in this process wakes the request at once.
          const own = this.#flights.at(id)?.ended ?? new Promise<undefined>(() => undefined);
          await this.#within(own, pauseMs, request.signal);
        }
      }
    }
  }

  #acquire(
    place: Place,
    id: FlightId,
    fingerprint: string | undefined,
    isKnown: boolean,
  ): Promise<Acquirable<Tx>> {
    const terms = this.#terms(fingerprint);
    const { tools } = this.options;
    const ledger = this.#ledger;
    if (!mayLock(ledger, terms)) return acquire(ledger, place, terms, tools, isKnown);
    if (isKnown) return this.#acquireKnown(place, id, terms);
    return this.#startLocked(place, id, terms).then(
      (locked): Acquirable<Tx> | Promise<Acquirable<Tx>> =>
        locked.kind === "claims first" ? acquire(ledger, place, terms, tools, true) : locked,
    );
  }

  async #acquireKnown(place: Place, id: FlightId, terms: ClaimTerms): Promise<Acquirable<Tx>> {
    const known = await this.#ledger.entries.find(place);
    const locked =
      known === undefined
        ? await this.#startLocked(place, id, terms)
        : (endedOf(known, terms) ?? { kind: "claims first" });
    if (locked.kind !== "claims first") return locked;
    return acquire(this.#ledger, place, terms, this.options.tools, true);
  }

  /** CK7: begins the transaction of the work, and claims the key in it. */
  async #startLocked(
    place: Place,
    id: FlightId,
    terms: ClaimTerms,
  ): Promise<
    | Exclude<OpenedLock<Tx>, { readonly kind: "locked" }>
    | Extract<Begun<Tx>, { readonly kind: "run" }>
  > {
    const ledger = this.#ledger;
    const { options } = this;
    const flight = this.#flights.start(id, terms.fingerprint);
    const onEnd = (kept: Kept | undefined): void => {
      flight.end(kept);
    };
    try {
      const opened = await openLocked(ledger, place, terms, options.tools, () => {
        onEnd(undefined);
      });
      if (opened.kind !== "locked") {
        onEnd(undefined);
        return opened;
      }
      if (hasFailpoint()) await failpoint("http.claimed");
      // Those who wait for it would go on inside this transaction.
      if (ledger.supports.absorbsResumed !== true) flight.claim();
      const { claim, transaction } = opened;
      const parts = {
        ledger,
        options,
        claim,
        get signal() {
          return claim.signal;
        },
        progress: NO_PROGRESS,
        onEnd,
      };
      return { kind: "run", run: Run.in(parts, transaction) };
    } catch (error) {
      onEnd(undefined);
      throw error;
    }
  }

  /** Starts the work of a claim. From now on the work counts as begun in this process. */
  async #start(
    claim: Claim<Tx>,
    fingerprint: string | undefined,
    request: AdaptedRequest<Source> | undefined,
  ): Promise<Run<Tx>> {
    const flight = this.#flights.start(flightIdOf(claim.place), fingerprint);
    flight.claim();
    const onEnd = (kept: Kept | undefined): void => {
      flight.end(kept);
    };
    // Requests that wait for lost work read from the ledger who has it now.
    claim.signal.addEventListener("abort", () => {
      onEnd(undefined);
    });
    let progress: ReturnType<typeof decodeProgress>;
    try {
      progress = decodeProgress(claim.data);
      const stored = request === undefined ? undefined : this.#storedOf(request);
      if (stored !== undefined && progress.request === undefined) {
        progress = { ...progress, request: stored };
        await claim.progress(this.#ledger, encodeProgress(progress));
      }
    } catch (error) {
      claim.stop();
      onEnd(undefined);
      throw error;
    }
    const { signal } = claim;
    return Run.open({
      ledger: this.#ledger,
      options: this.options,
      claim,
      signal,
      progress,
      onEnd,
    });
  }

  /** CK5: opens a run without a key. It has no claim that would end it, so it has a timer of its own. */
  #openKeyless(): Promise<Run<Tx>> {
    const { tools, workMsMax } = this.options;
    const overtime = new AbortController();
    const cancel = tools.clock.after(workMsMax, () => {
      const what = `the handler took longer than workMsMax=${workMsMax}`;
      overtime.abort(new Error(`${what}: its transaction is rolled back`));
    });
    return Run.open({
      ledger: this.#ledger,
      options: this.options,
      claim: undefined,
      signal: overtime.signal,
      progress: NO_PROGRESS,
      onEnd: cancel,
    });
  }

  async #scopeOf(request: IdempotencyRequest<Source>): Promise<string> {
    const { scope } = this.options;
    if (scope === GLOBAL) return GLOBAL;
    const check = new Check();
    const found = check.scope(await scope(request));
    // A tenant must not be able to take the keys of those who have none.
    if (found === GLOBAL) check.problem("scope is GLOBAL, which no request may choose");
    check.end("invalid_request");
    return found;
  }

  #terms(fingerprint: string | undefined): ClaimTerms {
    const { leaseMs, workMsMax, retainMs, attemptsMax, mode, claimsFirst } = this.options;
    const effect = mode === "transaction" ? "transaction" : "repeatable";
    const locks = effect === "transaction" && !claimsFirst;
    return { fingerprint, effect, attemptsMax, leaseMs, workMsMax, retainMs, locks };
  }

  #storedOf(request: AdaptedRequest<Source>): StoredRequest | undefined {
    const { completes, storedHeaders, storedBytesMax } = this.options;
    if (!completes) return undefined;
    const read = request.reader ?? request.headers;
    const body = bytesOf(request.body, read);
    if (body === undefined || body.length > storedBytesMax) return undefined;
    const headers = storedHeaders.flatMap((name): [string, string][] => {
      const value = read.get(name);
      return value === null ? [] : [[name, value]];
    });
    return { method: request.method, url: request.url, headers, body };
  }

  /** Only with `refusesOldKeys`: refuses a key whose answer may have been forgotten, instead of taking it as new. */
  async #refuseOld(place: Place): Promise<Begun<Tx> | undefined> {
    const { refusesOldKeys, retainMs, tools } = this.options;
    const timeMs = refusesOldKeys ? keyTimeMs(place.key) : undefined;
    if (timeMs === undefined || timeMs >= tools.clock.nowMs() - retainMs) return undefined;
    const entry = await this.#ledger.entries.find(place);
    if (entry !== undefined && (entry.keepLeftMs ?? 1) > 0) return undefined;
    tools.meter.add("expired_total", 1, { primitive: "http" });
    return this.#refuse(
      "key_expired",
      `the key is older than answers are kept; retainMs=${retainMs}`,
    );
  }

  #waitMs(prefer: string | null): number {
    const wanted = parseWaitMs(prefer ?? undefined);
    return wanted === undefined ? this.options.waitMs : Math.min(wanted, this.options.waitMsMax);
  }

  /** Returns the value of the promise if it comes in time and the client still waits; else undefined. */
  async #within<T>(
    promise: Promise<T>,
    waitMs: number,
    signal: AbortSignal | undefined,
  ): Promise<T | undefined> {
    const timer = new AbortController();
    const time = pause(this.options.tools.clock, waitMs, timer.signal);
    this.#waiting += 1;
    try {
      return await unlessAborted(Promise.race([promise, time.then(() => undefined)]), signal);
    } catch (error) {
      if (signal?.aborted === true) return undefined;
      throw error;
    } finally {
      this.#waiting -= 1;
      timer.abort();
      time.catch(() => undefined); // The line above has ended it.
    }
  }

  #answerOf(entry: Entry): Begun<Tx> {
    const kept = decodeAnswer(entry.data);
    if (kept !== undefined) return this.#duplicate(kept, entry.keepLeftMs);
    return this.#refuse("answer_not_kept", "the work of this key is done");
  }

  #duplicate(kept: HttpAnswer, keepLeftMs: number | undefined): Begun<Tx> {
    const { tools, retainMs } = this.options;
    tools.meter.add("duplicates_total", 1, { primitive: "http" });
    const expiresAtMs = keepLeftMs === undefined ? undefined : tools.clock.nowMs() + keepLeftMs;
    if (keepLeftMs !== undefined)
      tools.meter.set("window_headroom_ratio", Math.max(0, keepLeftMs / retainMs), {
        primitive: "http",
      });
    return { kind: "answer", answer: duplicateOf(kept, expiresAtMs) };
  }

  #mismatch(): Begun<Tx> {
    this.options.tools.meter.add("mismatches_total", 1, { primitive: "http" });
    return this.#refuse("key_reused", "the key came before with another request");
  }

  #inProgress(retryAfterMs: number): Begun<Tx> {
    this.options.tools.meter.add("in_progress_total", 1, { primitive: "http" });
    const detail = "the first request with this key still runs";
    return { kind: "answer", answer: this.problem("in_progress", detail, retryAfterMs) };
  }

  #refuse(code: ErrorCode, detail: string): Begun<Tx> {
    return { kind: "answer", answer: this.problem(code, detail) };
  }
}
