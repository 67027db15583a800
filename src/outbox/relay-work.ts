/**
 * The work of a relay under its lease: what goes, under which identity, and what becomes of it.
 *
 *   OR1  what is to be published is kept, with its number, before anything is sent: a crash repeats the same under the same;
 *   OR2  the position and the held events change in one transaction, under the token of the lease: who lost it changes nothing;
 *   OR3  an unknown outcome is repeated with the same events under the same identity, until it is known;
 *   OR4  a key that waits holds up nobody else, and no event goes before one of its key that waits.
 */

import {
  applyOutcomes,
  beginIntent,
  decideFailed,
  headsOf,
  type Intent,
  type Outcome,
  type RelayState,
  selectEvents,
} from "../core/outbox.ts";
import { failpoint } from "../failpoint.ts";
import type { Ledger } from "../ledger.ts";
import type { Claim } from "../once/claiming.ts";
import type { HeldEvent, HeldWrite, OutboxEvent, OutboxLog } from "../outbox-log.ts";
import { backOff, publishUntilKnown, type RelayParts, type Tried } from "./publishing.ts";
import type { ResolvedRelaySettings } from "./relay-settings.ts";
import { encodeState, parseState, tellNewRelay } from "./relay-state.ts";

/** Those behind a failure wait with it: they are not due before it is dealt with. A hundred years. */
const PARKED_MS = 36_600 * 86_400_000;

/** An event on its way. */
interface Going extends Tried {
  readonly key: string | undefined;
}

export class RelayWork<Tx> {
  readonly #parts: RelayParts<Tx>;
  readonly #claim: Claim<Tx>;
  readonly #outbox: OutboxLog<Tx>;
  /** Made once: a signal of signals stays with those that it listens to. */
  readonly #publishing: AbortSignal;
  readonly #pausing: AbortSignal;
  #state: RelayState;
  /** When the first of those that failed here is due, by the steady clock. */
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

  /** How long it may wait, at most, until something is due. */
  get idleMs(): number {
    const { settings } = this.#parts;
    const leftMs = this.#dueAtMs - settings.clock.steadyMs();
    return Math.max(1, Math.min(settings.pollMs, leftMs));
  }

  /** A new relay finds its beginning. */
  async begin(): Promise<void> {
    const { settings, ledger } = this.#parts;
    const { way } = this.#outbox;
    const { life, position } = this.#state;
    const isNew = this.#claim.data === undefined;
    if (!isNew && (way === "rows" || position !== undefined)) return;
    const begun = {
      ...this.#state,
      life: isNew ? settings.random.id() : life,
      position:
        this.#outbox.way === "rows"
          ? undefined
          : await this.#outbox.start(settings.from, settings.name),
    };
    // OR9
    await ledger.transaction(async (tx) => {
      const joined = ledger.in(tx);
      await tellNewRelay(joined);
      await this.#claim.progress(joined, encodeState(begun));
    });
    this.#state = begun;
  }

  /** What was begun, what is due, and the next stretch. Answers whether there was anything. */
  async step(): Promise<boolean> {
    const { intent } = this.#state;
    if (intent !== undefined) {
      await this.#finish(intent, await this.#readAgain(intent));
      return true;
    }
    const hadDue = await this.#sendDue();
    return (await this.#sendNext()) || hadDue;
  }

  /** Held events that are due: the first of each key. */
  async #sendDue(): Promise<boolean> {
    const { name, batchMax } = this.#parts.settings;
    const filter = { relay: name, state: "waiting", isDue: true, max: batchMax } as const;
    const held = await this.#outbox.held(filter);
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
    const span = await outbox.plan(position, this.#parts.settings.batchMax);
    if (span === undefined) return false;
    const events = (await outbox.read(span)).map(newGoing);
    const waiting = await this.#waitingKeys(events);
    const subject = { kind: "span", from: span.from, to: span.to } as const;
    await this.#finish(
      beginIntent(subject, events, (key) => waiting.has(key)),
      events,
    );
    return true;
  }

  /** OR4: the keys of these events behind which they have to wait. */
  async #waitingKeys(events: readonly Going[]): Promise<ReadonlySet<string>> {
    const { name, retry } = this.#parts.settings;
    const keys = events.flatMap(({ key }) => (key === undefined ? [] : [key]));
    const state = retry.afterDead === "block" ? undefined : "waiting";
    return await this.#outbox.heldKeys(name, keys, state);
  }

  /** OR1: the same events in the same order as when the intent was kept. */
  async #readAgain({ subject }: Intent): Promise<readonly Going[]> {
    const outbox = this.#outbox;
    if (subject.kind === "span") {
      if (outbox.way === "rows") throw new Error("OR1 rows have no spans");
      return (await outbox.read(subject)).map(newGoing);
    }
    const { ids } = subject;
    const held = await outbox.held({ relay: this.#parts.settings.name, ids, max: ids.length });
    const byId = new Map(held.map((one) => [one.event.id, one]));
    return ids.map((id) => {
      const found = byId.get(id);
      if (found === undefined)
        throw new Error(`OR1 a held event is gone while it is sent; id=${id}`);
      return goingOf(found);
    });
  }

  /** Sends in as many batches as it takes, then settles. */
  async #finish(begun: Intent, events: readonly Going[]): Promise<void> {
    const { ledger, settings } = this.#parts;
    let intent = begun;
    let stuck = 0;
    for (;;) {
      const places = selectEvents(intent, events.length);
      if (places.length === 0) break;
      const isRepeat = intent === this.#state.intent;
      // OR1
      if (!isRepeat) await this.#keep(ledger, { ...this.#state, intent });
      await failpoint("outbox.planned");
      const tried = places.map((at) => events[at]).filter((one) => one !== undefined);
      const outcomes = await this.#publish(intent, tried, isRepeat);
      await failpoint("outbox.published");
      const round = applyOutcomes(this.#state, intent, events, places, outcomes, settings.retry);
      stuck = round.hasProgressed ? 0 : stuck + 1;
      // Halves are tried at once; a single event that nobody takes or refuses needs time.
      if (stuck > 0 && places.length === 1) await backOff(settings, stuck, this.#pausing);
      ({ intent } = round);
      this.#state = { ...this.#state, epoch: round.epoch, sequence: round.sequence };
    }
    await this.#settle(intent, events);
    await failpoint("outbox.settled");
  }

  /** OR3 */
  #publish(
    intent: Intent,
    tried: readonly Tried[],
    isRepeat: boolean,
  ): Promise<readonly Outcome[]> {
    const { ledger } = this.#parts;
    const { epoch, sequence } = this.#state;
    return publishUntilKnown(this.#parts, {
      identity: { id: this.#producerId(), epoch, sequence },
      tried,
      isRepeat,
      isCancelling: intent.isCancelling,
      onCancel: () =>
        this.#keep(ledger, { ...this.#state, intent: { ...intent, isCancelling: true } }),
      publishing: this.#publishing,
      pausing: this.#pausing,
    });
  }

  #producerId(): string {
    const { source, settings } = this.#parts;
    const { life } = this.#state;
    return `outbox:${source}:${settings.name}${life === undefined ? "" : `:${life}`}`;
  }

  /** OR2 */
  async #settle(intent: Intent, events: readonly Going[]): Promise<void> {
    const { ledger, settings } = this.#parts;
    const { subject } = intent;
    const position = subject.kind === "span" ? subject.to : this.#state.position;
    const next = { ...this.#state, position, intent: undefined };
    const { puts, removes, freed } = this.#writesOf(intent, events);
    await ledger.transaction(async (tx) => {
      const joined = ledger.in(tx);
      await this.#claim.progress(joined, encodeState(next));
      await hold(joined.outbox, settings, puts, removes, freed);
    });
    this.#state = next;
    const dead = puts.filter(({ state }) => state === "dead").length;
    this.#parts.tally.dead += dead;
    if (dead > 0) settings.meter.add("dead_letters_total", dead);
    const nowMs = settings.clock.steadyMs();
    for (const { state, dueInMs } of puts) {
      if (state === "waiting") this.#dueAtMs = Math.min(this.#dueAtMs, nowMs + dueInMs);
    }
  }

  /** What is put among the held, what leaves them, and the keys whose next event may go. */
  #writesOf({ subject, marks }: Intent, events: readonly Going[]) {
    const { settings } = this.#parts;
    const puts: HeldWrite[] = [];
    const removes: string[] = [];
    const freed = new Set<string>();
    for (const mark of marks) {
      const going = events[mark.at];
      if (going === undefined) throw new Error(`OR1 an intent has no event at ${mark.at}`);
      const { event, key } = going;
      const isHeld = subject.kind === "held";
      if (mark.kind === "failed") {
        const { failure, isFinal } = mark;
        const put = heldAfterFailure(settings, going, failure, isFinal);
        puts.push(put);
        if (put.state === "dead" && key !== undefined) freed.add(key);
      } else if (mark.kind === "blocked") {
        puts.push({ ...heldFacts(settings.name, event), dueInMs: PARKED_MS });
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

/** What an event is after one more failure. */
export function heldAfterFailure(
  { name, retry, random }: ResolvedRelaySettings,
  { event, attempts }: Tried,
  failure: HeldEvent["failure"],
  isFinal: boolean,
): HeldWrite {
  const decided = decideFailed(attempts, isFinal, retry, random.unit());
  return { ...heldFacts(name, event), ...decided, failure };
}

function heldFacts(relay: string, event: OutboxEvent): HeldWrite {
  return { relay, event, state: "waiting", attempts: 0, dueInMs: 0, failure: undefined };
}

/**
 * Changes the held events, inside a transaction; then the first event of each freed key is due at once, unless it waits for
 * its own time, or for an operator. Looked up here, and not before: an operator may have changed it meanwhile.
 */
export async function hold<Tx>(
  outbox: OutboxLog<Tx>,
  { name, retry }: { readonly name: string; readonly retry: { readonly afterDead: string } },
  puts: readonly HeldWrite[],
  removes: readonly string[],
  freed: ReadonlySet<string>,
): Promise<void> {
  if (puts.length > 0 || removes.length > 0) await outbox.hold(name, puts, removes);
  for (const key of freed) {
    const filter = { relay: name, key, max: 1 };
    const [next] = await outbox.held(
      retry.afterDead === "block" ? filter : { ...filter, state: "waiting" },
    );
    const isParked = next?.state === "waiting" && next.failure === undefined && next.dueInMs > 0;
    if (next !== undefined && isParked) await outbox.hold(name, [{ ...next, dueInMs: 0 }], []);
  }
}

function newGoing(event: OutboxEvent): Going {
  return { event, key: event.key, attempts: 0 };
}

function goingOf({ event, attempts }: HeldEvent): Going {
  return { event, key: event.key, attempts };
}
