/**
 * Publishes the events that business transactions have added to the outbox. On a log one relay of a name works at a
 * time, and any number of others wait to take over. On rows all relays of a name work at once.
 *
 *   - every committed event is published, in the order of its key, and under the same identity, however often relays
 *     die;
 *   - `onError` gets every error, and the relay goes on from its stored state. Only `stop` and the signal end it;
 *   - only events that every relay has passed are deleted.
 */

import { HapaxError, isHapaxError } from "../../base/errors.ts";
import { pause } from "../../base/pause.ts";
import type { Ledger } from "../ledgers/ledger.ts";
import { acquire, type Claim } from "../once/claiming.ts";
import type { Publisher } from "./publisher.ts";
import { backOff, createBreath, type RelayParts } from "./publishing.ts";
import { RowsWork } from "./relay-rows.ts";
import {
  type RelayOptions,
  type ResolvedRelayOptions,
  resolveRelayOptions,
} from "./relay-options.ts";
import { ledgerId, relayPlace } from "./relay-state.ts";
import { RelayWork } from "./relay-work.ts";
import { asRestored, meetTarget } from "./target.ts";
import { Upkeep } from "./upkeep.ts";

/** How long the entry of a relay is kept: a hundred years stand for "never expires". */
const RETAIN_MS = 36_600 * 86_400_000;

/** How long `run` may take to give its lease back when its signal has aborted, in milliseconds. */
const CUT_GRACE_MS = 1000;

/** The counts of one `runOnce`. An event may have failed more than once. */
type RelayReport = {
  readonly published: number;
  readonly failed: number;
  /** Events that became dead letters. */
  readonly dead: number;
};

/**
 * Creates a relay. Nothing happens until `run` or `runOnce`. Throws `invalid_options`, and `unsupported` if the ledger
 * has no outbox.
 *
 * ```ts
 * import { memoryLedger } from "hapax/ledgers/memory";
 * import { createOutbox, createRelay, functionPublisher } from "hapax/outbox";
 *
 * const ledger = memoryLedger();
 * const outbox = createOutbox(ledger);
 * const seen: string[] = [];
 * const publisher = functionPublisher(async ({ topic }) => void seen.push(topic));
 * const relay = createRelay(ledger, publisher, { name: "to-the-log" });
 *
 * await ledger.transaction((tx) => outbox.add(tx, { topic: "orders", payload: { id: 1 } }));
 * const { published } = await relay.runOnce();
 * console.assert(published === 1 && seen.join() === "orders");
 * ```
 */
export function createRelay<Tx>(
  ledger: Ledger<Tx>,
  publisher: Publisher,
  options: RelayOptions = {},
): Relay<Tx> {
  const resolved = resolveRelayOptions(options);
  if (ledger.supports.outbox.length === 0) {
    throw new HapaxError("unsupported", `the ledger has no outbox; ledger=${ledger.name}`);
  }
  return new Relay(ledger, publisher, resolved);
}

/** Publishes the events of an outbox until it is stopped. `createRelay` creates it. */
export class Relay<Tx> {
  readonly #ledger: Ledger<Tx>;
  readonly #publisher: Publisher;
  readonly options: ResolvedRelayOptions;
  #current: { readonly stopping: AbortController; readonly ended: Promise<unknown> } | undefined;

  constructor(ledger: Ledger<Tx>, publisher: Publisher, options: ResolvedRelayOptions) {
    this.#ledger = ledger;
    this.#publisher = publisher;
    this.options = options;
  }

  /**
   * Publishes until it is stopped. Passes every error to `onError`, and tries again. If the signal aborts, the relay
   * ends at once, and the next one repeats the batch that was being published.
   * Rejects with `server_restored` if its target was restored from a backup.
   */
  async run(signal?: AbortSignal): Promise<void> {
    await this.#alone(signal, Infinity, (parts) => this.#runOn(parts)).catch(unlessStopped);
  }

  /**
   * Publishes all events that can go now, and returns. Throws `in_progress` if another relay of the name is at work,
   * and the publisher's error if an outcome stays unknown: the next run repeats that batch.
   */
  async runOnce(signal?: AbortSignal): Promise<RelayReport> {
    const { attemptsMax } = this.options.retry;
    return await this.#alone(signal, attemptsMax, async (parts) => {
      await this.#passOnce(parts);
      return { ...parts.tally };
    });
  }

  /** Ends the relay after the current batch. Resolves when the outcome of that batch is stored. */
  async stop(): Promise<void> {
    const current = this.#current;
    current?.stopping.abort(new Stopped());
    // How it ended is for the caller of `run` or `runOnce`.
    await current?.ended.catch(() => undefined);
  }

  async #alone<T>(
    signal: AbortSignal | undefined,
    repeatsMax: number,
    work: (parts: RelayParts<Tx>) => Promise<T>,
  ): Promise<T> {
    if (this.#current !== undefined) {
      throw new HapaxError("invalid_request", `the relay is running; name=${this.options.name}`);
    }
    const [stopping, cut] = [new AbortController(), new AbortController()];
    const end = (): void => {
      cut.abort(new Stopped());
      stopping.abort(new Stopped());
    };
    if (signal?.aborted === true) end();
    signal?.addEventListener("abort", end);
    const running = this.#open(repeatsMax, stopping.signal, cut.signal)
      .then(work)
      .catch((error: unknown) => {
        throw asRestored(this.options.name, error);
      });
    this.#current = { stopping, ended: running };
    const over = running.finally(() => {
      signal?.removeEventListener("abort", end);
      this.#current = undefined;
    });
    return await Promise.race([over, this.#afterCut(cut.signal, over)]);
  }

  /** Waits only a short time for the database after the signal has aborted: the lease ends by itself. */
  async #afterCut(cut: AbortSignal, over: Promise<unknown>): Promise<never> {
    const { clock } = this.options;
    return await new Promise((_, reject) => {
      let cancel: () => void = () => undefined;
      const onCut = (): void => {
        cancel = clock.after(CUT_GRACE_MS, () => {
          reject(new Stopped());
        });
      };
      cut.addEventListener("abort", onCut);
      if (cut.aborted) onCut();
      const clear = (): void => {
        cancel();
        cut.removeEventListener("abort", onCut);
      };
      over.then(clear, clear);
    });
  }

  async #open(
    repeatsMax: number,
    stopping: AbortSignal,
    cut: AbortSignal,
  ): Promise<RelayParts<Tx>> {
    const { options } = this;
    const [ledger, publisher] = [this.#ledger, this.#publisher];
    const tally = { published: 0, failed: 0, dead: 0 };
    const source = await untilDone(options, stopping, repeatsMax, () =>
      ledgerId(ledger, options.random),
    );
    const target = await untilDone(options, stopping, repeatsMax, () =>
      meetTarget(ledger, publisher, options.name, cut),
    );
    const { outbox } = ledger;
    return { ledger, outbox, publisher, options, source, target, repeatsMax, stopping, cut, tally };
  }

  async #passOnce(parts: RelayParts<Tx>): Promise<void> {
    const { outbox } = parts;
    const acquired = await this.#acquire();
    const rows = outbox.way === "rows" ? new RowsWork(parts, outbox.rows) : undefined;
    if (acquired.kind === "busy" && rows === undefined) {
      const words = `another relay is at work; name=${this.options.name}`;
      throw new HapaxError("in_progress", words);
    }
    const upkeep = new Upkeep(parts);
    const breathe = createBreath(parts);
    await this.#under(acquired, async (claim) => {
      const work = claim === undefined ? undefined : new RelayWork(parts, claim);
      await work?.begin();
      for (let isLeft = true; isLeft && !parts.stopping.aborted;) {
        isLeft = (await work?.step()) === true;
        if (rows !== undefined) isLeft = (await rows.step()) || isLeft;
        await breathe();
      }
      while (await upkeep.run(work?.position));
    });
  }

  async #runOn(parts: RelayParts<Tx>): Promise<void> {
    const { options } = this;
    const { stopping } = parts;
    for (let failures = 0; !stopping.aborted;) {
      try {
        await this.#runUnder(parts, () => {
          failures = 0;
        });
      } catch (error) {
        if (error instanceof Stopped) return;
        // It went back in time, and a person has to decide what becomes of the events that it lacks.
        if (isHapaxError(error, "server_restored")) throw error;
        failures += 1;
        options.onError(error);
        await backOff(options, failures, stopping).catch(unlessStopped);
      }
    }
  }

  async #runUnder(parts: RelayParts<Tx>, onStep: () => void): Promise<void> {
    const { stopping, options, outbox } = parts;
    const acquired = await this.#acquire();
    if (acquired.kind === "busy" && outbox.way !== "rows") {
      const waitMs = Math.max(1, Math.min(options.pollMs, acquired.leaseLeftMs));
      await pause(options.clock, waitMs, stopping);
      return;
    }
    const upkeep = new Upkeep(parts);
    const breathe = createBreath(parts);
    const rows = outbox.way === "rows" ? new RowsWork(parts, outbox.rows) : undefined;
    // Without the lease only rows are sent; it is asked for again after as long as it lasts.
    const untilMs =
      acquired.kind === "busy" ? options.clock.steadyMs() + options.leaseMs : Infinity;
    await this.#under(acquired, async (claim) => {
      const work = claim === undefined ? undefined : new RelayWork(parts, claim);
      await work?.begin();
      while (!stopping.aborted && options.clock.steadyMs() < untilMs) {
        claim?.signal.throwIfAborted();
        let hadAny = (await work?.step()) === true;
        if (rows !== undefined) hadAny = (await rows.step()) || hadAny;
        if (hadAny) onStep();
        await breathe();
        const hasMore = await upkeep.run(work?.position);
        if (!hadAny && !hasMore) {
          await idle(parts, work?.idleMs ?? options.pollMs);
          onStep();
        }
      }
    });
  }

  async #acquire(): Promise<Acquisition<Tx>> {
    const { name, leaseMs, clock, random, meter } = this.options;
    const terms = {
      fingerprint: undefined,
      effect: "repeatable",
      attemptsMax: Number.MAX_SAFE_INTEGER,
      leaseMs,
      retainMs: RETAIN_MS,
    } as const;
    const acquired = await acquire(this.#ledger, relayPlace(name), terms, { clock, random, meter });
    if (acquired.kind === "claimed") return { kind: "claimed", claim: acquired.claim };
    return { kind: "busy", leaseLeftMs: acquired.entry.leaseLeftMs ?? 0 };
  }

  /** Works under a lease, and gives it back, so that the next relay need not wait. */
  async #under(
    acquired: Acquisition<Tx>,
    work: (claim: Claim<Tx> | undefined) => Promise<void>,
  ): Promise<void> {
    if (acquired.kind === "busy") {
      await work(undefined);
      return;
    }
    const { claim } = acquired;
    try {
      await work(claim);
    } finally {
      // What led here is the error to tell; the lease ends by itself.
      await claim.release().catch(this.options.onError);
    }
  }
}

type Acquisition<Tx> =
  | { readonly kind: "claimed"; readonly claim: Claim<Tx> }
  | { readonly kind: "busy"; readonly leaseLeftMs: number };

/** The reason of the relay's signals when `stop` was called. */
class Stopped extends Error {
  override readonly name = "AbortError";

  constructor() {
    super("the relay was stopped");
  }
}

function unlessStopped(error: unknown): void {
  if (!(error instanceof Stopped)) throw error;
}

/** Repeats a step that comes before the first lease. `runOnce` does not wait for a database that is away. */
async function untilDone<T>(
  options: ResolvedRelayOptions,
  stopping: AbortSignal,
  repeatsMax: number,
  work: () => Promise<T>,
): Promise<T> {
  for (let failures = 1; ; failures += 1) {
    try {
      return await work();
    } catch (error) {
      const isFinal = isHapaxError(error, "unsupported") || isHapaxError(error, "server_restored");
      if (repeatsMax !== Infinity || isFinal) throw error;
      options.onError(error);
      await backOff(options, failures, stopping);
    }
  }
}

/** Until something may be there. The hint may have timers that do not keep a process alive; this one does. */
async function idle<Tx>(
  { options, stopping, outbox }: RelayParts<Tx>,
  delayMs: number,
): Promise<void> {
  const cancel = options.clock.after(delayMs, () => undefined);
  try {
    await outbox.wait(delayMs, stopping);
  } finally {
    cancel();
  }
}
