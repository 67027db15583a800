/**
 * What an identity uses at this moment: requests and live readers at once, appends and bytes in a second. PROTOCOL.md §21.9.
 *
 *   - a rate is a bucket that holds one second and runs empty linearly: no timer, and no more than twice the rate in any second;
 *   - what is refused takes nothing;
 *   - one write that is larger than a second's worth is taken when the bucket is empty, and the next one waits for all of it;
 *   - an identity that uses nothing is forgotten, so that memory follows those that are there.
 */

import type { RateLeft } from "../../protocol/rate-limit.ts";
import { assert } from "../../base/assert.ts";
import type { Clock } from "../../base/clock.ts";
import type { Quotas } from "./identity.ts";
import { QuotaRefusal, type UsageQuota } from "./quota-refusal.ts";

/** Requests and readers end when they end. */
const COUNT_RETRY_SECONDS = 1;
/** For a quota of nothing, and for waits that are longer. */
const RETRY_SECONDS_MAX = 3600;
/** Sums of fractions are not exact: this much of one unit is no reason to refuse. */
const TOLERANCE = 1e-6;
/** Usages that are kept before the idle ones are looked for. */
const USAGES_MAX = 1000;

/** What was taken of a rate, and has not run out yet. */
class RateBucket {
  #level = 0;
  #atMs = 0;
  #perSecond = Infinity;

  /** What is in it now. Undefined as the rate: the last one. */
  levelAt(nowMs: number, perSecond = this.#perSecond): number {
    if (this.#level === 0) return 0;
    return Math.max(0, this.#level - ((nowMs - this.#atMs) * perSecond) / 1000);
  }

  /** Seconds until this much is possible: 0 if it is now. */
  waitSeconds(amount: number, perSecond: number, nowMs: number): number {
    if (perSecond === Infinity || amount === 0) return 0;
    if (perSecond === 0) return RETRY_SECONDS_MAX;
    const over = this.levelAt(nowMs, perSecond) + Math.min(amount, perSecond) - perSecond;
    if (over <= TOLERANCE) return 0;
    return Math.min(RETRY_SECONDS_MAX, Math.ceil(over / perSecond));
  }

  /** What can be taken, and when all of the rate can be. */
  left(perSecond: number, nowMs: number): Omit<RateLeft, "name"> {
    const level = this.levelAt(nowMs, perSecond);
    const left = Math.max(0, Math.floor(perSecond - level + TOLERANCE));
    const waitSeconds = perSecond === 0 ? RETRY_SECONDS_MAX : Math.ceil(level / perSecond);
    return { perSecond, left, resetSeconds: Math.min(RETRY_SECONDS_MAX, waitSeconds) };
  }

  take(amount: number, perSecond: number, nowMs: number): void {
    if (perSecond === Infinity || amount === 0) return;
    this.#level = this.levelAt(nowMs, perSecond) + amount;
    this.#atMs = nowMs;
    this.#perSecond = perSecond;
  }

  give(amount: number): void {
    this.#level = Math.max(0, this.#level - amount);
  }
}

/** The limits of one identity: its own, and else those of the server. Infinity: none. */
export type UsageLimits = Required<Quotas>;

export class Usage {
  readonly namespace: string | undefined;
  readonly name: string;
  /** Those of the last request. */
  limits: UsageLimits;
  requests = 0;
  liveReaders = 0;
  readonly #appends = new RateBucket();
  readonly #bytes = new RateBucket();

  constructor(namespace: string | undefined, name: string, limits: UsageLimits) {
    this.namespace = namespace;
    this.name = name;
    this.limits = limits;
  }

  /** Takes a place among the requests; `endRequest` gives it back. */
  beginRequest(): void {
    const { requestsMax } = this.limits;
    if (this.requests >= requestsMax) {
      throw new QuotaRefusal("requests", requestsMax, COUNT_RETRY_SECONDS);
    }
    this.requests += 1;
  }

  endRequest(): void {
    this.requests -= 1;
    assert(this.requests >= 0, "a request ends twice");
  }

  /** Takes a place among the live readers. The returned function gives it back, once. */
  beginReader(): () => void {
    const { liveReadersMax } = this.limits;
    if (this.liveReaders >= liveReadersMax) {
      throw new QuotaRefusal("live_readers", liveReadersMax, COUNT_RETRY_SECONDS);
    }
    this.liveReaders += 1;
    let isOpen = true;
    return () => {
      if (isOpen) this.liveReaders -= 1;
      isOpen = false;
    };
  }

  /** Refuses what is not possible now, and takes nothing. */
  checkRates(appends: number, bytes: number, nowMs: number): void {
    const { appendsPerSecond, bytesPerSecond } = this.limits;
    const forAppends = this.#appends.waitSeconds(appends, appendsPerSecond, nowMs);
    const forBytes = this.#bytes.waitSeconds(bytes, bytesPerSecond, nowMs);
    if (forAppends === 0 && forBytes === 0) return;
    if (forAppends >= forBytes) {
      throw new QuotaRefusal("appends_per_second", appendsPerSecond, forAppends);
    }
    throw new QuotaRefusal("bytes_per_second", bytesPerSecond, forBytes);
  }

  /** Takes both, or refuses and takes none. */
  takeRates(appends: number, bytes: number, nowMs: number): void {
    this.checkRates(appends, bytes, nowMs);
    const { appendsPerSecond, bytesPerSecond } = this.limits;
    this.#appends.take(appends, appendsPerSecond, nowMs);
    this.#bytes.take(bytes, bytesPerSecond, nowMs);
  }

  /** Gives back an append that was taken and is refused after all. */
  giveAppend(): void {
    this.#appends.give(1);
  }

  /** What is left of the rates that are limited. */
  ratesLeft(nowMs: number): readonly RateLeft[] {
    const { appendsPerSecond, bytesPerSecond } = this.limits;
    const rates: RateLeft[] = [];
    if (appendsPerSecond !== Infinity) {
      rates.push({ name: "appends", ...this.#appends.left(appendsPerSecond, nowMs) });
    }
    if (bytesPerSecond !== Infinity) {
      rates.push({ name: "bytes", ...this.#bytes.left(bytesPerSecond, nowMs) });
    }
    return rates;
  }

  /** What is used of each quota. */
  at(nowMs: number): Readonly<Record<UsageQuota, number>> {
    return {
      requests: this.requests,
      live_readers: this.liveReaders,
      appends_per_second: this.#appends.levelAt(nowMs),
      bytes_per_second: this.#bytes.levelAt(nowMs),
    };
  }

  isIdle(nowMs: number): boolean {
    if (this.requests > 0 || this.liveReaders > 0) return false;
    return this.#appends.levelAt(nowMs) === 0 && this.#bytes.levelAt(nowMs) === 0;
  }
}

/** The usages of all identities that use something. */
export class UsageBook {
  readonly #usages = new Map<string, Usage>();
  #sweepAt = USAGES_MAX;

  get size(): number {
    return this.#usages.size;
  }

  get all(): Iterable<Usage> {
    return this.#usages.values();
  }

  /** `key`: the name of the identity with its namespace. The usage is in the book for as long as a request of it is open. */
  of(
    key: string,
    namespace: string | undefined,
    name: string,
    limits: UsageLimits,
    clock: Pick<Clock, "steadyMs">,
  ): Usage {
    let usage = this.#usages.get(key);
    if (usage === undefined) {
      if (this.#usages.size >= this.#sweepAt) this.#sweep(clock.steadyMs());
      usage = new Usage(namespace, name, limits);
      this.#usages.set(key, usage);
    }
    usage.limits = limits;
    return usage;
  }

  #sweep(nowMs: number): void {
    for (const [key, usage] of this.#usages) {
      if (usage.isIdle(nowMs)) this.#usages.delete(key);
    }
    // Twice of what is left: sweeping costs each new identity a constant share.
    this.#sweepAt = Math.max(USAGES_MAX, 2 * this.#usages.size);
  }
}

/** The limits of an identity with these quotas, on a server with those defaults. */
export function usageLimits(quotas: Quotas, defaults: Quotas): UsageLimits {
  return {
    streamsMax: quotas.streamsMax ?? defaults.streamsMax ?? Infinity,
    storedBytesMax: quotas.storedBytesMax ?? defaults.storedBytesMax ?? Infinity,
    requestsMax: quotas.requestsMax ?? defaults.requestsMax ?? Infinity,
    liveReadersMax: quotas.liveReadersMax ?? defaults.liveReadersMax ?? Infinity,
    appendsPerSecond: quotas.appendsPerSecond ?? defaults.appendsPerSecond ?? Infinity,
    bytesPerSecond: quotas.bytesPerSecond ?? defaults.bytesPerSecond ?? Infinity,
  };
}
