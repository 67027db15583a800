/** What the two ways of a relay share: a batch is published until its outcome is known, with pauses. */

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

/** What the parts of a relay share. */
export interface RelayParts<Tx> {
  readonly ledger: Ledger<Tx>;
  /** The ledger's; one for all parts, because it remembers which hints it has seen. */
  readonly outbox: OutboxLog<Tx>;
  readonly publisher: Publisher;
  readonly options: ResolvedRelayOptions;
  /** Of the database. */
  readonly source: string;
  /** How often an unknown outcome is repeated; `Infinity` for a relay that runs on. */
  readonly repeatsMax: number;
  /** Ends pauses. */
  readonly stopping: AbortSignal;
  /** Ends also what is being published. */
  readonly cut: AbortSignal;
  readonly tally: Tally;
}

/** What a relay has done. */
export interface Tally {
  published: number;
  failed: number;
  dead: number;
}

/** An event, and how often it was tried before. */
export interface Tried {
  readonly event: OutboxEvent;
  readonly attempts: number;
}

/** One batch on its way. */
export interface Sending {
  readonly identity: BatchIdentity;
  readonly tried: readonly Tried[];
  /** It may have been sent before. */
  readonly isRetry: boolean;
  /** It was refused before, and is to be cancelled. */
  readonly isCancelling: boolean;
  /** Called before it is cancelled. */
  readonly onCancel: () => Promise<void>;
  /** Ends what is being published. */
  readonly publishing: AbortSignal;
  /** Ends the pauses. */
  readonly pausing: AbortSignal;
}

/**
 * Repeats the same batch under the same identity while its outcome is unknown. A refusal that an earlier attempt may
 * overtake is made certain first. Throws what the signals say.
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

/** Sees to it that a batch can never be published any more, or says that it was. */
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
      if (isHapaxError(error, "lease_lost")) throw error;
      options.meter.add("publish_failures_total", 1, { outcome: "unknown" });
      if (repeats > repeatsMax) throw error;
      options.onError(error);
      await backOff(options, repeats, sending.pausing);
    }
  }
}

function batchOf<Tx>(
  { options, source }: RelayParts<Tx>,
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
    concurrency: options.concurrency,
    signal: publishing,
  };
}

/** What was said of a batch is true if it is cancelled; otherwise it was published after all. */
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

/** What a publisher has said, as it is kept. */
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

/** How many of the first events the publisher takes under one identity; one at least. */
export function fittingCount(publisher: Publisher, tried: readonly Tried[]): number {
  if (publisher.fits === undefined) return tried.length;
  const count = publisher.fits(tried.map(({ event }) => event));
  return Math.min(tried.length, Math.max(1, count));
}

/** The pause after the n-th failure in a row. */
export function backOff(
  { clock, retry, random }: ResolvedRelayOptions,
  failures: number,
  signal: AbortSignal,
): Promise<void> {
  return pause(clock, backoffMs(failures, retry, random.unit()), signal);
}

/** How long a relay works without a pause in which others of its process get on. */
const BREATH_MS = 20;

/** Clients that answer at once, and functions that do, would leave no time to anybody else. */
export function createBreath<Tx>({ options, stopping }: RelayParts<Tx>): () => Promise<void> {
  const { clock } = options;
  let sinceMs = clock.steadyMs();
  return async () => {
    if (clock.steadyMs() - sinceMs < BREATH_MS || stopping.aborted) return;
    await pause(clock, 0, stopping);
    sinceMs = clock.steadyMs();
  };
}
