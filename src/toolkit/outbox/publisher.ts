/**
 * The port of publishers, and the publisher that calls a function for each event.
 *
 *   - events of one key are tried one after the other, in their order. Up to `concurrency` keys are tried at once;
 *   - after a failed event the later events of its key are not tried in this batch;
 *   - an event has the same idempotency key in every attempt, and no event of any other database has it;
 *   - an error of the function fails its event alone. If the signal aborts, the outcome of the whole batch is unknown;
 *   - a call that takes longer than `callMs` fails its event, and delays neither other keys nor later batches.
 */

import { onAbort } from "../../base/aborts.ts";
import { type Clock, waitingClock } from "../../base/clock.ts";
import { HapaxError } from "../../base/errors.ts";
import type { OutboxEvent } from "./log.ts";

/** The identity of a batch. The same events always have the same identity, and no other events have it. */
export type BatchIdentity =
  /** For a log: consecutive numbers, which one relay at a time gives out. */
  | { readonly id: string; readonly epoch: number; readonly sequence: number }
  /** For rows, which any relay may take. */
  | { readonly key: string };

/** The argument of `Publisher.publish`: one batch of events. */
export interface PublishBatch {
  readonly relay: string;
  /** The id of the database. Events of two databases can have the same ids. */
  readonly source: string;
  readonly identity: BatchIdentity;
  readonly events: readonly OutboxEvent[];
  /** The number of the attempt for each event; 1 is the first. A repetition after an unknown outcome does not count. */
  readonly attempts: readonly number[];
  /** Whether the batch may have been sent before, by this relay or by an earlier one. */
  readonly isRetry: boolean;
  /** What `target` of the publisher returned when the relay met it first. Nothing may go to another target. */
  readonly target?: string | undefined;
  /** How many keys a publisher should serve at once if it sends events one by one. */
  readonly concurrency: number;
  /** Aborts when the relay has lost its lease, or may lose it soon. */
  readonly signal: AbortSignal;
}

/**
 * The outcome of an event. `skipped`: it was certainly not published, because of another event: the relay sends it
 * again under another identity. `failed` with `isFinal`: another attempt is useless.
 */
export type PublishOutcome =
  | { readonly kind: "published" }
  | { readonly kind: "skipped" }
  | { readonly kind: "failed"; readonly error: unknown; readonly isFinal: boolean };

/** The batch was refused, but an earlier attempt may still arrive. The relay cancels the batch before it sends anything else. */
export interface UncertainRefusal {
  readonly isUncertain: true;
  readonly outcomes: readonly PublishOutcome[];
}

/**
 * Publishes batches of events. `publish` returns the outcome of each event, in their order. If it throws, the outcome
 * of all is unknown, and the relay repeats the same batch under the same identity until it is known.
 *
 * Only a publisher that takes or refuses whole batches has `cancel`. `cancel` makes sure that a batch can never be
 * published any more, or returns that it was published.
 *
 * ```ts
 * import { memoryLedger } from "hapax/ledgers/memory";
 * import { createOutbox, createRelay, type Publisher } from "hapax/outbox";
 *
 * const sent: string[] = [];
 * const publisher: Publisher = {
 *   async publish({ events }) {
 *     sent.push(...events.map(({ topic }) => topic));
 *     return events.map(() => ({ kind: "published" }));
 *   },
 * };
 *
 * const ledger = memoryLedger();
 * await ledger.transaction((tx) => createOutbox(ledger).add(tx, { topic: "orders", payload: 1 }));
 * const { published } = await createRelay(ledger, publisher).runOnce();
 * console.assert(published === 1 && sent.join() === "orders");
 * ```
 */
export interface Publisher {
  publish(batch: PublishBatch): Promise<readonly PublishOutcome[] | UncertainRefusal>;
  cancel?(batch: PublishBatch): Promise<"published" | "cancelled">;
  /**
   * Names what it publishes to, as it is now: a server that was restored from a backup has another name, and lacks what was
   * published since. The relay asks once, and keeps the name.
   */
  target?(signal: AbortSignal): Promise<string | undefined>;
  /**
   * Returns how many of the first events one batch may have. The relay asks before it numbers the batch. The answer
   * must depend on the events alone. Default: all.
   */
  fits?(events: readonly OutboxEvent[]): number;
}

/** The second argument of the function of `functionPublisher`. */
export interface PublishContext {
  /** Send it as the idempotency key. It is the same in every attempt, and the receiver must ignore a repetition. */
  readonly idempotencyKey: string;
  /** 1 is the first. */
  readonly attempt: number;
  readonly signal: AbortSignal;
}

/** Options of `functionPublisher`. All are optional. */
export interface FunctionPublisherOptions {
  /**
   * Returns true for an error after which another attempt is useless: the event becomes a dead letter at once. Default:
   * never.
   */
  readonly isFinal?: (error: unknown) => boolean;
  /**
   * The time limit of one call, in milliseconds. After it the signal of the call aborts, and the event counts as failed
   * and is tried again; the first call may still arrive. Default 60,000.
   */
  readonly callMs?: number;
  readonly clock?: Clock;
}

const CALL_MS = 60_000;
const DAY_MS = 86_400_000;

const PUBLISHED: PublishOutcome = { kind: "published" };
const SKIPPED: PublishOutcome = { kind: "skipped" };

/**
 * Creates a publisher from a function of yours, such as an HTTP call or a client of a broker. The relay may call it
 * more than once for an event, always with the same idempotency key. If the function throws, or takes longer than
 * `callMs`, the event counts as failed and is tried again. Throws `invalid_options`.
 *
 * ```ts
 * import { memoryLedger } from "hapax/ledgers/memory";
 * import { createOutbox, createRelay, functionPublisher } from "hapax/outbox";
 *
 * const ledger = memoryLedger();
 * const outbox = createOutbox(ledger);
 * await ledger.transaction((tx) => outbox.add(tx, { topic: "orders", key: "17", payload: { cents: 5 } }));
 *
 * const bodies: string[] = [];
 * const publisher = functionPublisher(async ({ payload }, { idempotencyKey }) => {
 *   console.assert(idempotencyKey !== "");
 *   bodies.push(new TextDecoder().decode(payload));
 * });
 * await createRelay(ledger, publisher).runOnce();
 * console.assert(bodies.join() === '{"cents":5}');
 * ```
 */
export function functionPublisher(
  publish: (event: OutboxEvent, context: PublishContext) => Promise<void>,
  options: FunctionPublisherOptions = {},
): Publisher {
  const { isFinal = () => false, callMs = CALL_MS, clock = waitingClock } = options;
  if (!(Number.isSafeInteger(callMs) && callMs >= 1 && callMs <= DAY_MS)) {
    const words = `callMs=${callMs} is not a whole number from 1 to ${DAY_MS}`;
    throw new HapaxError("invalid_options", words);
  }
  return {
    async publish({ events, attempts, source, concurrency, signal }) {
      const outcomes: PublishOutcome[] = events.map(() => SKIPPED);
      const tryOne = async (event: OutboxEvent, at: number): Promise<boolean> => {
        signal.throwIfAborted();
        const idempotencyKey = `outbox:${source}:${event.id}`;
        try {
          const attempt = attempts[at] ?? 1;
          await within(clock, callMs, signal, (own) =>
            publish(event, { idempotencyKey, attempt, signal: own }),
          );
          outcomes[at] = PUBLISHED;
          return true;
        } catch (error) {
          outcomes[at] = failedBy(error, isFinal);
          return false;
        }
      };
      const lines = linesOf(events);
      const work = async (): Promise<void> => {
        // Shared by all workers: each takes the next line that no other has.
        for (let line = lines.shift(); line !== undefined; line = lines.shift()) {
          for (const { event, at } of line) {
            if (!(await tryOne(event, at))) break;
          }
        }
      };
      const workers = Array.from({ length: Math.min(concurrency, lines.length) }, work);
      const ends = await Promise.allSettled(workers);
      // Only a lost lease ends a worker early. No worker is at work any more.
      const broken = ends.find((end) => end.status === "rejected");
      if (broken !== undefined) throw broken.reason;
      return outcomes;
    },
  };
}

/** Returns the failure of an event. If `isFinal` itself throws, the event fails with that error. */
function failedBy(error: unknown, isFinal: (error: unknown) => boolean): PublishOutcome {
  try {
    return { kind: "failed", error, isFinal: isFinal(error) };
  } catch (thrown) {
    return { kind: "failed", error: thrown, isFinal: false };
  }
}

/** Not `AbortSignal.any`: what it makes stays with the signal of the relay, which lives for days. */
async function within(
  clock: Clock,
  callMs: number,
  signal: AbortSignal,
  call: (signal: AbortSignal) => Promise<void>,
): Promise<void> {
  const own = new AbortController();
  const stopListening = onAbort(signal, () => {
    own.abort(signal.reason);
  });
  let cancel: () => void = () => undefined;
  const over = new Promise<never>((_, reject) => {
    cancel = clock.after(callMs, () => {
      const words = `the call has not ended within callMs=${callMs}, and may still arrive`;
      const late = new HapaxError("outcome_unknown", words);
      own.abort(late);
      reject(late);
    });
  });
  try {
    await Promise.race([call(own.signal), over]);
  } finally {
    cancel();
    stopListening();
  }
}

interface Placed {
  readonly event: OutboxEvent;
  readonly at: number;
}

/** Groups the events by key. An event without a key is a group of its own. */
function linesOf(events: readonly OutboxEvent[]): Placed[][] {
  const lines: Placed[][] = [];
  const byKey = new Map<string, Placed[]>();
  for (const [at, event] of events.entries()) {
    const { key } = event;
    const known = key === undefined ? undefined : byKey.get(key);
    if (known !== undefined) {
      known.push({ event, at });
      continue;
    }
    const line = [{ event, at }];
    lines.push(line);
    if (key !== undefined) byKey.set(key, line);
  }
  return lines;
}
