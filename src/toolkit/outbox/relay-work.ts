/**
 * The work of a relay on a log under its lease: which events it sends, under which identity, and what it records.
 *
 *   - the relay stores the span and its number before it sends anything, so a crash repeats the same events under the
 *     same identity;
 *   - the position and the held events change in one transaction, under the token of the lease: a relay that has lost
 *     the lease changes nothing;
 *   - a batch with an unknown outcome is repeated with the same events under the same identity, until the outcome is
 *     known;
 *   - a key that waits delays no other key, and no event overtakes a waiting event of its key.
 */

import {
  applyOutcomes,
  beginIntent,
  decideFailed,
  headsOf,
  type Intent,
  markGone,
  type RelayState,
  selectEvents,
} from "../rules/outbox.ts";
import { isHapaxError } from "../../base/errors.ts";
import { failpoint } from "../../base/failpoint.ts";
import type { Ledger } from "../ledgers/ledger.ts";
import type { Claim } from "../once/claiming.ts";
import type { HeldEvent, HeldWrite, OutboxEvent, OutboxLog } from "./log.ts";
import {
  backOff,
  cancelUntilKnown,
  fittingCount,
  publishUntilKnown,
  type RelayParts,
  type Sending,
  type Tried,
} from "./publishing.ts";
import type { ResolvedRelayOptions } from "./relay-options.ts";
import { encodeState, parseState, tellNewRelay } from "./relay-state.ts";

/** The delay of events behind a failed one: they are not due before that one is settled. A hundred years. */
const PARKED_MS = 36_600 * 86_400_000;

/** An event that is being sent. */
interface Going extends Tried {
  readonly key: string | undefined;
}

/** Stands for an event that an operator has deleted since the intent was stored. */
const GONE = { event: undefined, key: undefined, attempts: 0 } as const;

type Placed = Going | typeof GONE;

export class RelayWork<Tx> {
  readonly #parts: RelayParts<Tx>;
  readonly #claim: Claim<Tx>;
  readonly #outbox: OutboxLog<Tx>;
  /** Created once: a combined signal stays in memory as long as the signals that it listens to. */
  readonly #publishing: AbortSignal;
  readonly #pausing: AbortSignal;
  #state: RelayState;
  /** When the first event that failed here is due, by the steady clock. */
  #dueAtMs = Infinity;

  constructor(parts: RelayParts<Tx>, claim: Claim<Tx>) {
    this.#parts = parts;
    this.#claim = claim;
    this.#outbox = parts.outbox;
    this.#publishing = AbortSignal.any([claim.signal, parts.cut]);
    this.#pausing = AbortSignal.any([claim.signal, parts.stopping]);
    this.#state = parseState(claim.data);
  }

  get position(): string | undefined {
    return this.#state.position;
  }

  /** The longest time to wait until an event is due, in milliseconds. */
  get idleMs(): number {
    const { options } = this.#parts;
    const leftMs = this.#dueAtMs - options.clock.steadyMs();
    return Math.max(1, Math.min(options.pollMs, leftMs));
  }

  /** Finds the start of a new relay. */
  async begin(): Promise<void> {
    const { options, ledger } = this.#parts;
    const { way } = this.#outbox;
    const { life, position } = this.#state;
    const isNew = this.#claim.data === undefined;
    if (!isNew && (way === "rows" || position !== undefined)) return;
    const begun = {
      ...this.#state,
      life: isNew ? options.random.id() : life,
      position:
        this.#outbox.way === "rows"
          ? undefined
          : await this.#outbox.spans.start(options.from, options.name),
    };
    await ledger.transaction(async (tx) => {
      const joined = ledger.in(tx);
      await tellNewRelay(joined);
      await this.#claim.progress(joined, encodeState(begun));
    });
    this.#state = begun;
  }

  /** Sends the batch that was begun, then the due events, then the next span. Returns whether there was anything to send. */
  async step(): Promise<boolean> {
    const { intent } = this.#state;
    if (intent !== undefined) {
      const events = await this.#readAgain(intent);
      await this.#finish(await this.#withoutGone(intent, events), events);
      return true;
    }
    const hadDue = await this.#sendDue();
    return (await this.#sendNext()) || hadDue;
  }

  /** Sends the held events that are due: the first of each key. */
  async #sendDue(): Promise<boolean> {
    const { name, batchMax } = this.#parts.options;
    const filter = { relay: name, state: "waiting", isDue: true, max: batchMax } as const;
    const held = await this.#outbox.held.list(filter);
    if (held.length === 0) return false;
    this.#dueAtMs = Infinity;
    const heads = headsOf(held.map(goingOf));
    const subject = { kind: "held", ids: heads.map(({ event }) => event.id) } as const;
    await this.#finish(
      beginIntent(subject, heads, () => false),
      heads,
    );
    return true;
  }

  async #sendNext(): Promise<boolean> {
    const outbox = this.#outbox;
    const { position } = this.#state;
    if (outbox.way === "rows" || position === undefined) return false;
    const span = await outbox.spans.plan(position, this.#parts.options.batchMax);
    if (span === undefined) return false;
    const events = (await outbox.spans.read(span)).map(newGoing);
    const waiting = await this.#waitingKeys(events);
    const ids = events.map(({ event }) => event.id);
    const subject = { kind: "span", from: span.from, to: span.to, ids } as const;
    await this.#finish(
      beginIntent(subject, events, (key) => waiting.has(key)),
      events,
    );
    return true;
  }

  /** Returns the keys of these events that have held events, for which they must wait. */
  async #waitingKeys(events: readonly Going[]): Promise<ReadonlySet<string>> {
    const { name, retry } = this.#parts.options;
    const keys = events.flatMap(({ key }) => (key === undefined ? [] : [key]));
    const state = retry.afterDead === "block" ? undefined : "waiting";
    return await this.#outbox.held.keys(name, keys, state);
  }

  /** Reads the events of a stored intent, in the same places as before. */
  async #readAgain({ subject }: Intent): Promise<readonly Placed[]> {
    const { ids } = subject;
    const found = await this.#readSubject(subject);
    const byId = new Map(found.map((one) => [one.event.id, one]));
    return ids.map((id) => byId.get(id) ?? GONE);
  }

  async #readSubject(subject: Intent["subject"]): Promise<readonly Going[]> {
    const outbox = this.#outbox;
    if (subject.kind === "span") {
      if (outbox.way === "rows") throw new Error("rows have no spans");
      return (await outbox.spans.read(subject)).map(newGoing);
    }
    const { ids } = subject;
    const held = await outbox.held.list({ relay: this.#parts.options.name, ids, max: ids.length });
    return held.map(goingOf);
  }

  /**
   * Handles a batch that cannot be repeated because one of its events was deleted. Either the batch was published, with
   * the deleted event; or it is cancelled, and the other events go under another number.
   */
  async #withoutGone(intent: Intent, events: readonly Placed[]): Promise<Intent> {
    const gone = [...events.keys()].filter((at) => !isThere(events[at]));
    const places = selectEvents(intent, events.length);
    if (!places.some((at) => gone.includes(at))) {
      // The batch itself is whole: it is repeated under its number.
      const marked = gone.length === 0 ? intent : markGone(intent, gone);
      this.#state = { ...this.#state, intent: marked };
      return marked;
    }
    const { publisher, options, tally } = this.#parts;
    const tried = places.map((at) => events[at]).filter(isThere);
    const isPublished =
      publisher.cancel !== undefined &&
      (await cancelUntilKnown(this.#parts, this.#sending(intent, tried, true))) === "published";
    if (isPublished) tally.published += tried.length;
    const outcomes = places.map(() => ({ kind: isPublished ? "published" : "skipped" }) as const);
    const round = applyOutcomes(this.#state, intent, events, places, outcomes, options.retry);
    this.#state = { ...this.#state, epoch: round.epoch, sequence: round.sequence };
    // Nothing was refused: the rest need not go by halves.
    return markGone({ ...round.intent, takeMax: intent.takeMax }, gone);
  }

  /** Sends all events of the intent, in as many batches as needed, and settles it. */
  async #finish(begun: Intent, events: readonly Placed[]): Promise<void> {
    const { ledger, options } = this.#parts;
    let intent = begun;
    let stuck = 0;
    for (;;) {
      const isRetry = intent === this.#state.intent;
      if (!isRetry) intent = this.#fitting(intent, events);
      const places = selectEvents(intent, events.length);
      if (places.length === 0) break;
      if (!isRetry) await this.#keep(ledger, { ...this.#state, intent });
      await failpoint("outbox.planned");
      const tried = places.map((at) => events[at]).filter(isThere);
      const sending = this.#sending(intent, tried, isRetry);
      const outcomes = await publishUntilKnown(this.#parts, sending);
      await failpoint("outbox.published");
      const round = applyOutcomes(this.#state, intent, events, places, outcomes, options.retry);
      stuck = round.hasProgressed ? 0 : stuck + 1;
      // Halves are tried at once; a single event that the publisher neither takes nor refuses needs time.
      if (stuck > 0 && places.length === 1) await backOff(options, stuck, this.#pausing);
      ({ intent } = round);
      this.#state = { ...this.#state, epoch: round.epoch, sequence: round.sequence };
    }
    try {
      await this.#settle(intent, events);
    } catch (error) {
      // What was published is known: the relay that goes on has only to settle.
      if (!isHapaxError(error, "lease_lost")) {
        await this.#keep(ledger, { ...this.#state, intent }).catch(options.onError);
      }
      throw error;
    }
    await failpoint("outbox.settled");
  }

  /** Returns as many events as the publisher takes at once: the number of the batch belongs to them alone. */
  #fitting(intent: Intent, events: readonly Placed[]): Intent {
    const { publisher } = this.#parts;
    const left = { ...intent, sent: undefined };
    const places = selectEvents(left, events.length);
    const tried = places.map((at) => events[at]).filter(isThere);
    const sent = fittingCount(publisher, tried);
    return sent === tried.length ? left : { ...left, sent };
  }

  #sending(intent: Intent, tried: readonly Tried[], isRetry: boolean): Sending {
    const { ledger } = this.#parts;
    const { epoch, sequence } = this.#state;
    return {
      identity: { id: this.#producerId(), epoch, sequence },
      tried,
      isRetry,
      isCancelling: intent.isCancelling,
      onCancel: () =>
        this.#keep(ledger, { ...this.#state, intent: { ...intent, isCancelling: true } }),
      publishing: this.#publishing,
      pausing: this.#pausing,
    };
  }

  #producerId(): string {
    const { source, options } = this.#parts;
    const { life } = this.#state;
    return `outbox:${source}:${options.name}${life === undefined ? "" : `:${life}`}`;
  }

  async #settle(intent: Intent, events: readonly Placed[]): Promise<void> {
    const { ledger, options } = this.#parts;
    const { subject } = intent;
    const position = subject.kind === "span" ? subject.to : this.#state.position;
    const next = { ...this.#state, position, intent: undefined };
    const { puts, removes, freed } = this.#writesOf(intent, events);
    await ledger.transaction(async (tx) => {
      const joined = ledger.in(tx);
      await this.#claim.progress(joined, encodeState(next));
      await hold(joined.outbox, options, puts, removes, freed);
    });
    this.#state = next;
    const dead = puts.filter(({ state }) => state === "dead").length;
    this.#parts.tally.dead += dead;
    if (dead > 0) options.meter.add("dead_letters_total", dead);
    const nowMs = options.clock.steadyMs();
    for (const { state, dueInMs } of puts) {
      if (state === "waiting") this.#dueAtMs = Math.min(this.#dueAtMs, nowMs + dueInMs);
    }
  }

  /** Returns the events to hold, those to hold no more, and the keys whose next event may go. */
  #writesOf({ subject, marks }: Intent, events: readonly Placed[]) {
    const { options } = this.#parts;
    const puts: HeldWrite[] = [];
    const removes: string[] = [];
    const freed = new Set<string>();
    for (const mark of marks) {
      const going = events[mark.at];
      if (going === undefined) throw new Error(`an intent has no event at ${mark.at}`);
      if (!isThere(going)) continue;
      const { event, key } = going;
      const isHeld = subject.kind === "held";
      if (mark.kind === "failed") {
        const { failure, isFinal } = mark;
        const put = heldAfterFailure(options, going, failure, isFinal);
        puts.push(put);
        if (put.state === "dead" && key !== undefined) freed.add(key);
      } else if (mark.kind === "blocked") {
        puts.push({ ...heldFacts(options.name, event), dueInMs: PARKED_MS });
        if (key !== undefined) freed.add(key);
      } else if (isHeld) {
        removes.push(event.id);
        if (key !== undefined) freed.add(key);
      }
    }
    return { puts, removes, freed };
  }

  async #keep(ledger: Ledger<Tx>, state: RelayState): Promise<void> {
    await this.#claim.progress(ledger, encodeState(state));
    this.#state = state;
  }
}

/** Returns an event as it is held after one more failure. */
export function heldAfterFailure(
  { name, retry, random }: ResolvedRelayOptions,
  { event, attempts }: Tried,
  reason: HeldEvent["reason"],
  isFinal: boolean,
): HeldWrite {
  const decided = decideFailed(attempts, isFinal, retry, random.unit());
  return { ...heldFacts(name, event), ...decided, reason };
}

function heldFacts(relay: string, event: OutboxEvent): HeldWrite {
  return { relay, event, state: "waiting", attempts: 0, dueInMs: 0, reason: undefined };
}

/**
 * Changes the held events inside a transaction. Then the first event of each freed key is due at once, unless it waits
 * for its own time or for an operator. It reads that event now and not earlier, because an operator may have changed
 * it.
 */
export async function hold<Tx>(
  outbox: OutboxLog<Tx>,
  { name, retry }: { readonly name: string; readonly retry: { readonly afterDead: string } },
  puts: readonly HeldWrite[],
  removes: readonly string[],
  freed: ReadonlySet<string>,
): Promise<void> {
  if (puts.length > 0 || removes.length > 0) await outbox.held.change(name, puts, removes);
  for (const key of freed) {
    const filter = { relay: name, key, max: 1 };
    const [next] = await outbox.held.list(
      retry.afterDead === "block" ? filter : { ...filter, state: "waiting" },
    );
    const isParked = next?.state === "waiting" && next.reason === undefined && next.dueInMs > 0;
    if (next !== undefined && isParked)
      await outbox.held.change(name, [{ ...next, dueInMs: 0 }], []);
  }
}

function isThere(one: Placed | undefined): one is Going {
  return one?.event !== undefined;
}

function newGoing(event: OutboxEvent): Going {
  return { event, key: event.key, attempts: 0 };
}

function goingOf({ event, attempts }: HeldEvent): Going {
  return { event, key: event.key, attempts };
}
