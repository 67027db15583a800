/** Publishes a batch until its outcome is known, with pauses. Relays on logs and on rows share this. */

import { unlessAborted } from "../../base/aborts.ts";
import { backoffMs } from "../../base/backoff.ts";
import type { EventOutcome } from "../rules/outbox.ts";
import { reasonOf } from "../../base/dead-letter.ts";
import { isHapaxError } from "../../base/errors.ts";
import { pause } from "../../base/pause.ts";
import type { Ledger } from "../ledgers/ledger.ts";
import type { OutboxEvent, OutboxLog } from "./log.ts";
import type { BatchIdentity, PublishBatch, Publisher, PublishOutcome } from "./publisher.ts";
import type { ResolvedRelayOptions } from "./relay-options.ts";

/** The parts and settings that all modules of a relay share. */
export interface RelayParts<Tx> {
  readonly ledger: Ledger<Tx>;
  /** The outbox of the ledger. All parts use this one object, because it remembers the hints that it has seen. */
  readonly outbox: OutboxLog<Tx>;
  readonly publisher: Publisher;
  readonly options: ResolvedRelayOptions;
  /** The id of the database. */
  readonly source: string;
  /** What the publisher publishes to. */
  readonly target: string | undefined;
  /** How often a batch with an unknown outcome is repeated. `Infinity` for `run`. */
  readonly repeatsMax: number;
  /** Ends pauses, but not a batch that is being published. */
  readonly stopping: AbortSignal;
  /** Ends pauses, and the batch that is being published. */
  readonly cut: AbortSignal;
  readonly tally: Tally;
}

/** The counts of a relay. */
export interface Tally {
  published: number;
  failed: number;
  dead: number;
}

/** An event with the number of its earlier attempts. */
export interface Tried {
  readonly event: OutboxEvent;
  readonly attempts: number;
}

/** One batch that is being sent. */
export interface Sending {
  readonly identity: BatchIdentity;
  readonly tried: readonly Tried[];
  /** It may have been sent before. */
  readonly isRetry: boolean;
  /** True: an attempt was refused, and the batch must be cancelled. */
  readonly isCancelling: boolean;
  /** Called before the batch is cancelled. */
  readonly onCancel: () => Promise<void>;
  /** Ends the call of the publisher. */
  readonly publishing: AbortSignal;
  /** Ends the pauses. */
  readonly pausing: AbortSignal;
}

/**
 * Repeats the same batch under the same identity while its outcome is unknown. If an earlier attempt may overtake a
 * refusal, it cancels the batch first. Throws the reason of a signal that aborts.
 */
export async function publishUntilKnown<Tx>(
  parts: RelayParts<Tx>,
  sending: Sending,
): Promise<readonly EventOutcome[]> {
  let { isCancelling } = sending;
  let said: readonly PublishOutcome[] = sending.tried.map(() => ({ kind: "skipped" }));
  const outcomes = await untilKnown(parts, sending, async (batch) => {
    if (!isCancelling) {
      const answer = await parts.publisher.publish(batch);
      if (!("isUncertain" in answer)) return requireWhole(sending, answer);
      said = requireWhole(sending, answer.outcomes);
      await sending.onCancel();
      isCancelling = true;
    }
    return await cancelled(parts.publisher, batch, said);
  });
  // Outside of what is repeated: once the publisher has answered, nothing makes it publish again.
  return resolveOutcomes(parts, outcomes);
}

/** Cancels a batch, so that it can never be published any more. Returns whether it was published already. */
export async function cancelUntilKnown<Tx>(
  parts: RelayParts<Tx>,
  sending: Sending,
): Promise<"published" | "cancelled"> {
  return await untilKnown(parts, sending, (batch) => cancel(parts.publisher, batch));
}

async function untilKnown<Tx, T>(
  parts: RelayParts<Tx>,
  sending: Sending,
  attempt: (batch: PublishBatch) => Promise<T>,
): Promise<T> {
  const { options, repeatsMax, cut } = parts;
  for (let repeats = 1; ; repeats += 1) {
    const batch = batchOf(parts, sending, repeats > 1 || sending.isRetry);
    try {
      // A publisher need not listen to the signal.
      return await unlessAborted(attempt(batch), cut);
    } catch (error) {
      sending.publishing.throwIfAborted();
      if (isHapaxError(error, "lease_lost") || isHapaxError(error, "server_restored")) throw error;
      options.meter.add("publish_failures_total", 1, { outcome: "unknown" });
      if (repeats > repeatsMax) throw error;
      options.onError(error);
      await backOff(options, repeats, sending.pausing);
    }
  }
}

function batchOf<Tx>(
  { options, source, target }: RelayParts<Tx>,
  { identity, tried, publishing }: Sending,
  isRetry: boolean,
): PublishBatch {
  return {
    relay: options.name,
    source,
    identity,
    events: tried.map(({ event }) => event),
    attempts: tried.map(({ attempts }) => attempts + 1),
    isRetry,
    target,
    concurrency: options.concurrency,
    signal: publishing,
  };
}

/**
 * Returns the outcomes of a batch that was refused: they are true if the batch could be cancelled. Otherwise it was
 * published after all.
 */
async function cancelled(
  publisher: Publisher,
  batch: PublishBatch,
  said: readonly PublishOutcome[],
): Promise<readonly PublishOutcome[]> {
  const outcome = await cancel(publisher, batch);
  return outcome === "cancelled" ? said : batch.events.map(() => ({ kind: "published" }));
}

async function cancel(
  publisher: Publisher,
  batch: PublishBatch,
): Promise<"published" | "cancelled"> {
  if (publisher.cancel === undefined) throw new Error("a publisher that is uncertain has `cancel`");
  return await publisher.cancel(batch);
}

function requireWhole(
  { tried: { length: count } }: Sending,
  outcomes: readonly PublishOutcome[],
): readonly PublishOutcome[] {
  if (outcomes.length === count) return outcomes;
  throw new Error(`the publisher answered ${outcomes.length} outcomes for ${count} events`);
}

/** Converts the outcomes of a publisher to the form in which the relay keeps them. */
function resolveOutcomes<Tx>(
  { options: { meter }, tally }: RelayParts<Tx>,
  outcomes: readonly PublishOutcome[],
): readonly EventOutcome[] {
  const resolved = outcomes.map((outcome): EventOutcome => {
    if (outcome.kind !== "failed") return outcome;
    const { error, isFinal } = outcome;
    return { kind: "failed", failure: reasonOf(error), isFinal };
  });
  const of = (kind: EventOutcome["kind"]): number =>
    resolved.filter((one) => one.kind === kind).length;
  const [published, failed] = [of("published"), of("failed")];
  tally.published += published;
  tally.failed += failed;
  if (published > 0) meter.add("published_total", published);
  if (failed > 0) meter.add("publish_failures_total", failed, { outcome: "failed" });
  return resolved;
}

/** Returns how many of the first events the publisher takes under one identity: at least one. */
export function fittingCount(publisher: Publisher, tried: readonly Tried[]): number {
  if (publisher.fits === undefined) return tried.length;
  const count = publisher.fits(tried.map(({ event }) => event));
  return Math.min(tried.length, Math.max(1, count));
}

/** Waits after the n-th failure in a row. */
export function backOff(
  { clock, retry, random }: ResolvedRelayOptions,
  failures: number,
  signal: AbortSignal,
): Promise<void> {
  return pause(clock, backoffMs(failures, retry, random.unit()), signal);
}

/** How long a relay works before it lets other code of its process run, in milliseconds. */
const BREATH_MS = 20;

/**
 * Returns a function that lets other code of the process run from time to time. Clients and functions that answer at
 * once would leave no time for it.
 */
export function createBreath<Tx>({ options, stopping }: RelayParts<Tx>): () => Promise<void> {
  const { clock } = options;
  let sinceMs = clock.steadyMs();
  return async () => {
    if (clock.steadyMs() - sinceMs < BREATH_MS || stopping.aborted) return;
    await pause(clock, 0, stopping);
    sinceMs = clock.steadyMs();
  };
}
