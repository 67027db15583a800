/**
 * Leases: one holder of an identity at a time, and a token that proves to the database which holder is the newest.
 *
 *   - a lease has one holder at a time; others get nothing meanwhile, or wait;
 *   - tokens of a lease only rise: after a release, a crash, a sweep and a restart too;
 *   - a lease is renewed until it is released, and its signal aborts before it is over;
 *   - a guarded transaction checks at its end, under a lock, whether its token is the newest: if not, it rolls back;
 *   - the database's clock alone decides how long a lease lasts.
 */

import { waitingClock } from "../../base/clock.ts";
import { HapaxError } from "../../base/errors.ts";
import { failpoint } from "../../base/failpoint.ts";
import { pause } from "../../base/pause.ts";
import type { Ledger, Place } from "../ledgers/ledger.ts";
import type { ScopedKey } from "../rules/scoped-key.ts";
import { Check, requireJoined } from "./check.ts";
import { acquire, type Acquired, type Claim } from "./claiming.ts";
import { resolveTools, type Tools } from "./tools.ts";
import * as limits from "./limits.ts";
import { growingPauses } from "./pauses.ts";

/** Options of a lease. All are optional. */
export interface LeaseOptions extends Tools {
  /** How long the lease lasts if its holder crashes, in milliseconds. Default 30 s. */
  readonly leaseMs?: number;
  /** How long to wait for the lease, in milliseconds. Default 0: do not wait. */
  readonly waitMs?: number;
  /** Stops waiting. */
  readonly signal?: AbortSignal | undefined;
}

/** A lease that this process holds, with its identity. */
export interface HeldLease<Tx> extends ScopedKey, AsyncDisposable {
  /** Proves that the lease is held: see `fenced`. Greater than that of every holder before. */
  readonly token: number;
  /** Aborts when the lease is lost, or may be lost soon. Its reason is `lease_lost`. */
  readonly signal: AbortSignal;
  /** Runs a transaction. Commits it only if the lease is still held at its end; else rolls back with `lease_lost`. */
  transaction<T>(work: (tx: Tx) => T | Promise<T>): Promise<T>;
  /** Gives the lease back at once. Does nothing if it is lost already. */
  release(): Promise<void>;
}

/**
 * Takes a lease, and renews it until you release it. Returns undefined if another holder keeps it for longer than `waitMs`.
 * Throws `invalid_request` for the identity, `invalid_options`, and the signal's reason.
 *
 * ```ts
 * import { acquireLease, GLOBAL } from "hapax/ledger";
 * import { memoryLedger } from "hapax/ledgers/memory";
 *
 * const ledger = memoryLedger();
 * const nightly = { scope: GLOBAL, key: "nightly report" };
 * const lease = await acquireLease(ledger, nightly, { leaseMs: 10_000 });
 * const other = await acquireLease(ledger, nightly);
 * const report = await lease?.transaction(() => "written");
 * await lease?.release();
 * console.assert(other === undefined && report === "written");
 * ```
 */
export async function acquireLease<Tx>(
  ledger: Ledger<Tx>,
  identity: ScopedKey,
  options: LeaseOptions = {},
): Promise<HeldLease<Tx> | undefined> {
  const place = placeOf(identity);
  const { leaseMs, waitMs } = resolve(options);
  const { signal, clock = waitingClock } = options;
  if (ledger.isJoined)
    throw new HapaxError("unsupported", "a lease is of no use before the transaction is committed");
  const tools = resolveTools(options);
  const terms = {
    fingerprint: undefined,
    effect: "repeatable",
    attemptsMax: Number.MAX_SAFE_INTEGER,
    leaseMs,
    retainMs: Math.max(limits.RETAIN_MS_DEFAULT, leaseMs),
  } as const;
  const endMs = clock.steadyMs() + waitMs;
  const nextMs = growingPauses(tools.random);
  for (let isKnown = false; ; isKnown = true) {
    signal?.throwIfAborted();
    const acquired: Acquired<Tx> = await acquire(ledger, place, terms, tools, isKnown);
    if (acquired.kind === "claimed") {
      await failpoint("lease.acquired");
      return new Held(ledger, acquired.claim);
    }
    const leftMs = endMs - clock.steadyMs();
    if (leftMs <= 0) return undefined;
    const leaseLeftMs = Math.ceil(acquired.entry.leaseLeftMs ?? 0);
    await pause(clock, Math.max(1, Math.min(nextMs(), leftMs, leaseLeftMs)), signal);
  }
}

function resolve(options: LeaseOptions): { readonly leaseMs: number; readonly waitMs: number } {
  const check = new Check();
  const { LEASE_MS_DEFAULT, LEASE_MS_MIN, LEASE_MS_MAX, WAIT_MS_MAX } = limits;
  const resolved = {
    leaseMs: check.whole("leaseMs", options.leaseMs, LEASE_MS_DEFAULT, LEASE_MS_MIN, LEASE_MS_MAX),
    waitMs: check.whole("waitMs", options.waitMs, 0, 0, WAIT_MS_MAX),
  };
  check.end();
  return resolved;
}

function placeOf(identity: ScopedKey): Place {
  const check = new Check();
  const place = { kind: "lease", ...check.identity(identity) };
  check.end("invalid_request");
  return place;
}

/**
 * Checks, inside the guarded transaction, that the token is still the newest of its lease: pass `ledger.in(tx)`. No other
 * holder can take the lease until the transaction ends. Call it last. Throws `lease_lost`: let that error roll the
 * transaction back. Another process can call it for the holder, if it gets the identity and the token.
 *
 * ```ts
 * import { acquireLease, fenced, GLOBAL } from "hapax/ledger";
 * import { memoryLedger } from "hapax/ledgers/memory";
 *
 * const ledger = memoryLedger();
 * const nightly = { scope: GLOBAL, key: "nightly report" };
 * const lease = await acquireLease(ledger, nightly);
 * if (lease === undefined) throw new Error("another process writes it");
 * const { token } = lease;
 * const prove = () => ledger.transaction((tx) => fenced(ledger.in(tx), nightly, token));
 * await prove();
 * await lease.release();
 * const refused = await prove().catch((error) => error);
 * console.assert(refused.code === "lease_lost");
 * ```
 */
export async function fenced<Tx>(
  ledger: Ledger<Tx>,
  identity: ScopedKey,
  token: number,
  { meter }: Pick<Tools, "meter"> = {},
): Promise<void> {
  const place = placeOf(identity);
  // Outside a transaction another holder could take the lease right after the check.
  requireJoined(ledger, "the check");
  const entry = await ledger.entries.find(place);
  if (entry?.token !== token || entry.state !== "running") {
    meter?.add("fenced_total", 1, { primitive: "lease" });
    const newest = entry?.token ?? "none";
    const facts = `scope=${place.scope} key=${place.key} token=${token} newest=${newest}`;
    throw new HapaxError(
      "lease_lost",
      `the lease was given back, or taken by another holder; ${facts}`,
    );
  }
  await failpoint("lease.checked");
}

class Held<Tx> implements HeldLease<Tx> {
  readonly scope: string;
  readonly key: string;
  readonly token: number;
  readonly #ledger: Ledger<Tx>;
  readonly #claim: Claim<Tx>;

  constructor(ledger: Ledger<Tx>, claim: Claim<Tx>) {
    this.#ledger = ledger;
    this.#claim = claim;
    this.scope = claim.place.scope;
    this.key = claim.place.key;
    this.token = claim.token;
  }

  get signal(): AbortSignal {
    return this.#claim.signal;
  }

  async transaction<T>(work: (tx: Tx) => T | Promise<T>): Promise<T> {
    const ledger = this.#ledger;
    if (!ledger.supports.isExclusive) return await this.#guarded(work);
    // CK4: other transactions may be in front of it.
    this.#claim.pause();
    try {
      return await this.#guarded(work);
    } finally {
      await this.#claim.resume();
    }
  }

  #guarded<T>(work: (tx: Tx) => T | Promise<T>): Promise<T> {
    return this.#ledger.transaction(async (tx) => {
      const result = await work(tx);
      await fenced(this.#ledger.in(tx), this, this.token, { meter: this.#claim.meter });
      return result;
    }, this.#claim.signal);
  }

  release(): Promise<void> {
    return this.#claim.release();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.release();
  }
}
