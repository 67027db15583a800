/**
 * Quotas and rates: what a request of an identity takes before its body is read, and gives back when it is over. PROTOCOL.md §21.9.
 *
 *   - rates and counts belong to the identity, streams and stored bytes to its namespace. Without a namespace they are compared with
 *     all streams of the server;
 *   - a request has one ticket. The router releases it when the request is answered, however that ends;
 *   - a server without authentication has no tickets.
 */

import type { Clock } from "../../base/clock.ts";
import { assert } from "../../base/assert.ts";
import type { Access } from "../access/access.ts";
import type { Quotas } from "../access/identity.ts";
import { QuotaRefusal, type UsageQuota } from "../access/quota-refusal.ts";
import { type Usage, UsageBook, type UsageLimits, usageLimits } from "../access/usage.ts";
import { encodeRates } from "../../protocol/rate-limit.ts";
import { Allowance, type Holding, type Holdings, type StorageQuota } from "../engine/holdings.ts";
import type { Exchange } from "./exchange.ts";

export type QuotaName = UsageQuota | StorageQuota;
export type Refusals = Record<QuotaName, number>;

/** Namespaces whose refusals are counted by themselves. */
const NAMESPACES_MAX = 1000;

/** What is known of an access before it asks. */
interface Caller {
  /** The name of the identity with its namespace. */
  readonly key: string;
  readonly name: string;
  readonly limits: UsageLimits;
  /** The server's quotas that the limits were made with. */
  readonly defaults: Quotas;
}

export class QuotaBook {
  readonly clock: Clock;
  readonly holdings: Holdings;
  readonly usages = new UsageBook();
  /** Refusals since the start. */
  readonly refusals: Refusals = noRefusals();
  readonly #ofNamespaces = new Map<string, Refusals>();
  readonly #callers = new WeakMap<Access, Caller>();
  /** The access of the last request, and what is known of it: often the next one has it too. */
  #last: { readonly access: Access; readonly caller: Caller } | undefined;

  constructor(clock: Clock, holdings: Holdings) {
    this.clock = clock;
    this.holdings = holdings;
  }

  /** Takes a place among the requests of the caller, or throws the refusal. */
  begin(access: Access, defaults: Quotas): Ticket {
    const { key, name, limits } = this.#callerOf(access, defaults);
    const { namespace } = access;
    const usage = this.usages.of(key, namespace, name, limits, this.clock);
    try {
      usage.beginRequest();
    } catch (error) {
      this.noteRefusal(namespace, error);
      throw error;
    }
    return new Ticket(this, usage, limits);
  }

  /** Counts the refusal if the error is one of a quota. */
  noteRefusal(namespace: string | undefined, error: unknown): void {
    if (error instanceof QuotaRefusal) this.countRefusal(namespace, error.quota);
  }

  countRefusal(namespace: string | undefined, quota: QuotaName): void {
    this.refusals[quota] += 1;
    if (namespace === undefined) return;
    let own = this.#ofNamespaces.get(namespace);
    if (own === undefined) {
      // A counter that begins anew is no news to those who read it: servers restart too.
      if (this.#ofNamespaces.size >= NAMESPACES_MAX) this.#ofNamespaces.clear();
      this.#ofNamespaces.set(namespace, (own = noRefusals()));
    }
    own[quota] += 1;
  }

  refusalsOf(namespace: string): Readonly<Refusals> {
    return this.#ofNamespaces.get(namespace) ?? noRefusals();
  }

  /** Worked out once, until the defaults change. */
  #callerOf(access: Access, defaults: Quotas): Caller {
    let caller = this.#last?.access === access ? this.#last.caller : this.#callers.get(access);
    if (caller?.defaults !== defaults) {
      const { name = "" } = access;
      const limits = usageLimits(access.quotas, defaults);
      caller = { key: access.scoped(name), name, limits, defaults };
      this.#callers.set(access, caller);
    }
    if (this.#last?.caller !== caller) this.#last = { access, caller };
    return caller;
  }
}

/** What one request takes. */
export class Ticket {
  readonly #book: QuotaBook;
  readonly #usage: Usage;
  readonly #limits: UsageLimits;
  #holding: Holding | undefined;
  #isReleased = false;
  /** The bytes of the body were taken when its head came. */
  #hasBytes = false;

  constructor(book: QuotaBook, usage: Usage, limits: UsageLimits) {
    this.#book = book;
    this.#usage = usage;
    this.#limits = limits;
  }

  /** Before the body is read: takes one append, and its bytes if their number is known. */
  takeHead(exchange: Exchange, bytesMax: number): void {
    if (!this.#hasRates) return;
    const bytes = announcedBytes(exchange, bytesMax);
    this.#hasBytes = bytes !== undefined;
    this.takeAppends(1, bytes ?? 0);
  }

  /** With the body: takes its bytes, if their number was not known before. */
  takeBody(bytes: number): void {
    if (!this.#hasRates || this.#hasBytes) return;
    try {
      this.takeAppends(0, bytes);
    } catch (error) {
      this.#usage.giveAppend();
      throw error;
    }
  }

  /** Before the body of a transaction is read: refuses it if not even one append is possible, and takes nothing. */
  checkHead(exchange: Exchange, bytesMax: number): void {
    if (!this.#hasRates) return;
    const bytes = announcedBytes(exchange, bytesMax) ?? 0;
    try {
      this.#usage.checkRates(1, bytes, this.#book.clock.steadyMs());
    } catch (error) {
      throw this.#noted(error);
    }
  }

  /** Takes the appends of a transaction and the bytes of its body: all, or none. */
  takeAppends(appends: number, bytes: number): void {
    if (!this.#hasRates) return;
    try {
      this.#usage.takeRates(appends, bytes, this.#book.clock.steadyMs());
    } catch (error) {
      throw this.#noted(error);
    }
  }

  /** The headers of an answer to a request that could write: what is left of the rates. Undefined: there are none. */
  rateHeaders(): Record<string, string> | undefined {
    if (!this.#hasRates) return undefined;
    return encodeRates(this.#usage.ratesLeft(this.#book.clock.steadyMs()));
  }

  /** Takes a place among the live readers. The returned function gives it back; more calls do nothing. */
  openReader(): () => void {
    try {
      return this.#usage.beginReader();
    } catch (error) {
      throw this.#noted(error);
    }
  }

  /** What the request may store. Undefined: no quota limits it. */
  allowance(): Allowance | undefined | Promise<Allowance> {
    const { streamsMax, storedBytesMax } = this.#limits;
    if (streamsMax === Infinity && storedBytesMax === Infinity) return undefined;
    assert(this.#holding === undefined, "a request asks twice what it may store");
    const holding = this.#book.holdings.open(this.#usage.namespace);
    return holding instanceof Promise
      ? holding.then((counted) => this.#allow(counted))
      : this.#allow(holding);
  }

  /** The request is over. */
  release(): void {
    assert(!this.#isReleased, "a ticket is released twice");
    this.#isReleased = true;
    this.#usage.endRequest();
    if (this.#holding !== undefined) this.#book.holdings.close(this.#holding);
  }

  #allow(holding: Holding): Allowance {
    this.#holding = holding;
    return new Allowance(holding, this.#limits, (quota) => {
      this.#book.countRefusal(this.#usage.namespace, quota);
    });
  }

  get #hasRates(): boolean {
    const { appendsPerSecond, bytesPerSecond } = this.#limits;
    return appendsPerSecond !== Infinity || bytesPerSecond !== Infinity;
  }

  #noted(error: unknown): unknown {
    this.#book.noteRefusal(this.#usage.namespace, error);
    return error;
  }
}

/** A body that is larger than allowed is refused for that, and takes no more than an allowed one. */
function announcedBytes(exchange: Exchange, bytesMax: number): number | undefined {
  // A compressed body counts by what it decodes to, which is known when it is there.
  if (exchange.header("content-encoding") !== undefined) return undefined;
  const { received } = exchange;
  if (received !== undefined) return Math.min(received.length, bytesMax);
  if (!exchange.hasBody) return 0;
  const text = exchange.header("content-length") ?? "";
  return /^\d+$/.test(text) ? Math.min(Number(text), bytesMax) : undefined;
}

function noRefusals(): Refusals {
  return {
    requests: 0,
    live_readers: 0,
    appends_per_second: 0,
    bytes_per_second: 0,
    streams: 0,
    stored_bytes: 0,
  };
}
