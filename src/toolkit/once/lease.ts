/**
 * Leases: one holder of a name at a time, and a token that proves to the database which holder is the newest.
 *
 *   - a name has one holder at a time; others get nothing meanwhile, or wait;
 *   - tokens of a name only rise: after a release, a crash, a sweep and a restart too;
 *   - a lease is renewed until it is released, and its signal aborts before it is over;
 *   - a guarded transaction checks at its end, under a lock, whether its token is the newest: if not, it rolls back;
 *   - the database's clock alone decides how long a lease lasts.
 */

import { waitingClock } from "../../base/clock.ts";
import { HapaxError } from "../../base/errors.ts";
import { failpoint } from "../../base/failpoint.ts";
import { pause } from "../../base/pause.ts";
import type { Ledger, Place } from "../ledgers/ledger.ts";
import { Check, GLOBAL } from "./check.ts";
import { acquire, type Acquired, type Claim, resolveTools, type Tools } from "./claiming.ts";
import * as limits from "./limits.ts";
import { growingPauses } from "./pauses.ts";

/** Options of a lease. All are optional. */
export interface LeaseOptions extends Tools {
  /** The same name in two scopes is two leases. Default `GLOBAL`. */
  readonly scope?: string;
  /** How long the lease lasts if its holder crashes, in milliseconds. Default 30 s. */
  readonly leaseMs?: number;
  /** How long to wait for the lease, in milliseconds. Default 0: do not wait. */
  readonly waitMs?: number;
  /** Stops waiting. */
  readonly signal?: AbortSignal | undefined;
}

/** Proves that a lease is held. The holder can hand it to another process that works for it. */
export interface LeaseProof {
  readonly name: string;
  readonly token: number;
  /** Default `GLOBAL`. */
  readonly scope?: string;
}

/** A lease that this process holds. */
export interface HeldLease<Tx> extends Required<LeaseProof>, AsyncDisposable {
  /** Aborts when another holder has the lease, or may soon have it. Its reason is `lease_lost`. */
  readonly signal: AbortSignal;
  /** Runs a transaction. Commits it only if the lease is still held at its end; else rolls back with `lease_lost`. */
  transaction<T>(work: (tx: Tx) => T | Promise<T>): Promise<T>;
  /** Gives the lease back at once. Does nothing if it is lost already. */
  release(): Promise<void>;
}

/**
 * Takes the lease of a name, and renews it until you release it. Returns undefined if another holder keeps it for longer
 * than `waitMs`. Throws `invalid_options`, and the signal's reason.
 *
 * ```ts
 * import { acquireLease } from "hapax/ledger";
 * import { memoryLedger } from "hapax/ledgers/memory";
 *
 * const ledger = memoryLedger();
 * const lease = await acquireLease(ledger, "nightly report", { leaseMs: 10_000 });
 * const other = await acquireLease(ledger, "nightly report");
 * const report = await lease?.transaction(() => "written");
 * await lease?.release();
 * console.assert(other === undefined && report === "written");
 * ```
 */
export async function acquireLease<Tx>(
  ledger: Ledger<Tx>,
  name: string,
  options: LeaseOptions = {},
): Promise<HeldLease<Tx> | undefined> {
  const { leaseMs, waitMs, place } = resolve(name, options);
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

function resolve(
  name: string,
  options: LeaseOptions,
): { readonly leaseMs: number; readonly waitMs: number; readonly place: Place } {
  const check = new Check();
  const place = placeOf({ name, scope: options.scope ?? GLOBAL }, check);
  const { LEASE_MS_DEFAULT, LEASE_MS_MIN, LEASE_MS_MAX, WAIT_MS_MAX } = limits;
  const { leaseMs, waitMs } = options;
  const resolved = {
    leaseMs: check.whole("leaseMs", leaseMs, LEASE_MS_DEFAULT, LEASE_MS_MIN, LEASE_MS_MAX),
    waitMs: check.whole("waitMs", waitMs, 0, 0, WAIT_MS_MAX),
    place,
  };
  check.end();
  return resolved;
}

function placeOf({ name, scope }: { name: string; scope: string }, check: Check): Place {
  check.name("name", name);
  check.name("scope", scope);
  return { kind: "lease", scope, key: name };
}

/**
 * Checks, inside the guarded transaction, that the token is still the newest of its lease. No other holder can take the
 * lease until the transaction ends. Call it last. Throws `lease_lost`: let it roll the transaction back.
 *
 * ```ts
 * import { acquireLease, fenced } from "hapax/ledger";
 * import { memoryLedger } from "hapax/ledgers/memory";
 *
 * const ledger = memoryLedger();
 * const lease = await acquireLease(ledger, "nightly report");
 * if (lease === undefined) throw new Error("another process writes it");
 * const proof = { name: lease.name, token: lease.token };
 * await ledger.transaction((tx) => fenced(ledger, tx, proof));
 * await lease.release();
 * const refused = await ledger.transaction((tx) => fenced(ledger, tx, proof)).catch((error) => error);
 * console.assert(refused.code === "lease_lost");
 * ```
 */
export async function fenced<Tx>(
  ledger: Ledger<Tx>,
  tx: Tx,
  { name, token, scope = GLOBAL }: LeaseProof,
  { meter }: Pick<Tools, "meter"> = {},
): Promise<void> {
  const check = new Check();
  const place = placeOf({ name, scope }, check);
  check.end("invalid_request");
  const entry = await ledger.in(tx).entries.find(place);
  if (entry?.token !== token || entry.state !== "running") {
    meter?.add("fenced_total", 1, { primitive: "lease" });
    const newest = entry?.token ?? "none";
    const facts = `name=${name} scope=${scope} token=${token} newest=${newest}`;
    throw new HapaxError(
      "lease_lost",
      `the lease was given back, or taken by another holder; ${facts}`,
    );
  }
  await failpoint("lease.checked");
}

class Held<Tx> implements HeldLease<Tx> {
  readonly name: string;
  readonly scope: string;
  readonly token: number;
  readonly #ledger: Ledger<Tx>;
  readonly #claim: Claim<Tx>;

  constructor(ledger: Ledger<Tx>, claim: Claim<Tx>) {
    this.#ledger = ledger;
    this.#claim = claim;
    this.name = claim.place.key;
    this.scope = claim.place.scope;
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
      await fenced(this.#ledger, tx, this, { meter: this.#claim.meter });
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
