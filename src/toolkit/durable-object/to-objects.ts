/**
 * Publishes events to other objects: each to the object that its key names, in order and once, by the numbers of
 * toolkit/rules/delivery.ts.
 *
 *   - numbers are stored before anything is sent: an entry for each receiver;
 *   - a receiver that does not answer holds up its own events alone.
 */

import { decodeText } from "../../base/bytes.ts";
import { HapaxError } from "../../base/errors.ts";
import { failpoint } from "../../base/failpoint.ts";
import type { Entry, Ledger, Place } from "../ledgers/ledger.ts";
import type { OutboxEvent } from "../outbox/log.ts";
import type { PublishBatch, Publisher, PublishOutcome } from "../outbox/publisher.ts";
import {
  applyAcknowledged,
  applyDeliveryRefused,
  applyOpened,
  hasArrived,
  NEW_PEER,
  numberEvents,
  type DeliveryPeer,
} from "../rules/delivery.ts";
import type { DeliveryAnswer, ObjectDelivery, ObjectMessage } from "./receiving.ts";

/** The members of a binding of Durable Objects that are used. */
export interface DeliveryNamespace<Id = unknown> {
  idFromName(name: string): Id;
  get(id: Id): object;
}

const PUBLISHED: PublishOutcome = { kind: "published" };
const SKIPPED: PublishOutcome = { kind: "skipped" };
/** A refusal opens a new epoch; then the same events go again. More than so many refusals are no accident. */
const REFUSALS_MAX = 5;

/** Receivers that are known in memory. What is stored is enough. */
const LIVE_MAX = 1000;

const encoder = new TextEncoder();

/**
 * Makes a publisher that delivers each event to the object which its `key` names, by calling `method` of the object. The method
 * returns `fromObjects(once, delivery, work)`. Events for one object are handled in the order in which they were emitted, each
 * once, also after lost answers, evictions and crashes on both sides. An event without a key becomes a dead letter.
 *
 * ```ts
 * import { type ObjectDelivery, toObjects } from "hapax/durable-object";
 * import { memoryLedger } from "hapax/ledgers/memory";
 * import { createOutbox, createRelay } from "hapax/outbox";
 *
 * // In an object: `outbox: (ledger) => createRelay(ledger, toObjects(ledger, this.env.ACCOUNTS, "receive"))`.
 * const received: unknown[] = [];
 * const account = {
 *   receive: async ({ sequence, messages }: ObjectDelivery) => {
 *     received.push(...messages.map(({ payload }) => payload));
 *     return { kind: "received", last: sequence + messages.length - 1 };
 *   },
 * };
 * const accounts = { idFromName: (name: string) => name, get: () => account };
 * const ledger = memoryLedger();
 * await ledger.transaction((tx) => createOutbox(ledger).add(tx, { topic: "booked", key: "ann", payload: 5 }));
 * await createRelay(ledger, toObjects(ledger, accounts, "receive")).runOnce();
 * console.assert(received.join() === "5");
 * ```
 */
export function toObjects<Tx, Id>(
  ledger: Ledger<Tx>,
  namespace: DeliveryNamespace<Id>,
  method: string,
): Publisher {
  const peers = new Peers(ledger);
  return {
    async publish(batch) {
      const outcomes: PublishOutcome[] = batch.events.map(() => SKIPPED);
      const lines = linesOf(batch.events);
      const work = async (): Promise<void> => {
        for (let line = lines.shift(); line !== undefined; line = lines.shift())
          await sendLine(peers, batch, line, outcomes, receiverOf(namespace, method, line.key));
      };
      const workers = Array.from({ length: Math.min(batch.concurrency, lines.length) }, work);
      await Promise.all(workers);
      return outcomes;
    },
  };
}

interface Line {
  readonly key: string | undefined;
  readonly places: readonly number[];
}

/** The events of each receiver, by their places in the batch. */
function linesOf(events: readonly OutboxEvent[]): Line[] {
  const byKey = new Map<string | undefined, number[]>();
  for (const [at, { key }] of events.entries()) {
    const known = byKey.get(key);
    if (known === undefined) byKey.set(key, [at]);
    else known.push(at);
  }
  return [...byKey].map(([key, places]) => ({ key, places }));
}

/** An object that gets events. */
interface Receiver {
  /** Another one for objects of the same name of two namespaces. */
  readonly id: string;
  readonly send: (delivery: ObjectDelivery) => Promise<DeliveryAnswer>;
}

function receiverOf<Id>(
  namespace: DeliveryNamespace<Id>,
  method: string,
  key: string | undefined,
): Receiver | undefined {
  if (key === undefined) return undefined;
  const id = namespace.idFromName(key);
  return {
    id: String(id),
    async send(delivery) {
      // Casts: any text is a method of a stub, and its type is the promise of `toObjects`.
      const stub = namespace.get(id) as Record<
        string,
        (delivery: ObjectDelivery) => Promise<DeliveryAnswer>
      >;
      const answer = await stub[method]?.(delivery);
      const kind: unknown = Object(answer).kind;
      if (answer !== undefined && (kind === "received" || kind === "refused")) return answer;
      const words = `the method must return what fromObjects returns; method=${method}`;
      throw new HapaxError("invalid_request", words);
    },
  };
}

async function sendLine<Tx>(
  peers: Peers<Tx>,
  { source, events, signal }: PublishBatch,
  { key = "", places }: Line,
  outcomes: PublishOutcome[],
  receiver: Receiver | undefined,
): Promise<void> {
  const fail = (at: number | undefined, error: unknown, isFinal: boolean): void => {
    if (at !== undefined) outcomes[at] = { kind: "failed", error, isFinal };
  };
  if (receiver === undefined) {
    const error = new HapaxError("invalid_request", "an event for an object needs its name as key");
    for (const at of places) fail(at, error, true);
    return;
  }
  const { id, send } = receiver;
  const left = [...places];
  try {
    for (let refusals = 0; left.length > 0;) {
      signal.throwIfAborted();
      const peer = await peers.find(id);
      const names = left.map((at) => nameOf(events[at]));
      if (hasArrived(peer, names[0] ?? "")) {
        settle(outcomes, left, 1);
        continue;
      }
      const arrived = names.findIndex((name) => hasArrived(peer, name));
      const numbered = numberEvents(peer, arrived < 0 ? names : names.slice(0, arrived));
      await peers.keep(id, numbered.peer);
      await failpoint("delivery.numbered");
      const { sequence, count } = numbered;
      const messages = left.slice(0, count).map((at) => messageOf(events[at], key));
      const answer = await send({ from: source, epoch: numbered.peer.epoch, sequence, messages });
      await failpoint("delivery.answered");
      if (answer.kind === "refused") {
        refusals += 1;
        if (refusals > REFUSALS_MAX) throw refusedFor(key);
        await peers.keep(id, applyDeliveryRefused(numbered.peer, answer.currentEpoch));
      } else if (count === 0) await peers.keep(id, applyOpened(numbered.peer, answer.before));
      else {
        peers.remember(id, applyAcknowledged(numbered.peer, sequence, answer.last));
        settle(outcomes, left, answer.last - sequence + 1);
        if (answer.failure !== undefined) {
          const error = new Error(answer.failure.message);
          error.name = answer.failure.name;
          fail(left[0], error, false);
          return;
        }
      }
    }
  } catch (error) {
    // The first of the rest may have arrived: it is sent again under its number. Those behind it wait.
    fail(left[0], error, false);
  }
}

function settle(outcomes: PublishOutcome[], left: number[], count: number): void {
  for (const at of left.splice(0, count)) outcomes[at] = PUBLISHED;
}

function refusedFor(key: string): HapaxError {
  return new HapaxError("producer_fenced", `the object refuses every epoch; object=${key}`);
}

/** With the time: an object that was restored from a copy gives an id again. */
function nameOf(event: OutboxEvent | undefined): string {
  return event === undefined ? "" : `${event.id}@${event.addedAtMs}`;
}

function messageOf(event: OutboxEvent | undefined, key: string): ObjectMessage {
  if (event === undefined) throw new Error("a place of a batch has an event");
  const { topic, headers } = event;
  return { id: nameOf(event), topic, key, headers, payload: payloadOf(event) };
}

function payloadOf({ payload, headers }: OutboxEvent): unknown {
  const type = headers["content-type"] ?? "";
  if (type.startsWith("application/json")) return JSON.parse(decodeText(payload)) as unknown;
  return type.startsWith("text/") ? decodeText(payload) : payload;
}

/** The receivers of a ledger's events, each in an entry. */
class Peers<Tx> {
  readonly #ledger: Ledger<Tx>;
  /** What this life knows beyond what is stored: acknowledgements. */
  readonly #live = new Map<
    string,
    { readonly peer: DeliveryPeer; readonly entry: Pick<Entry, "token" | "revision"> | undefined }
  >();

  constructor(ledger: Ledger<Tx>) {
    this.#ledger = ledger;
  }

  async find(key: string): Promise<DeliveryPeer> {
    const known = this.#live.get(key);
    if (known !== undefined) return known.peer;
    // The oldest: those that were looked up last are in use.
    const [oldest] = this.#live.size >= LIVE_MAX ? this.#live.keys() : [];
    if (oldest !== undefined) this.#live.delete(oldest);
    const entry = await this.#ledger.entries.find(placeOf(key));
    // Cast: only this class writes it.
    const peer =
      entry?.data === undefined ? NEW_PEER : (JSON.parse(decodeText(entry.data)) as DeliveryPeer);
    this.#live.set(key, { peer, entry });
    return peer;
  }

  /** Before anything is sent under its numbers. */
  async keep(key: string, peer: DeliveryPeer): Promise<void> {
    const known = this.#live.get(key);
    if (known?.peer === peer && known.entry !== undefined) return;
    // If the write fails, what is stored is read again.
    this.#live.delete(key);
    const expected =
      known?.entry === undefined
        ? ({ kind: "absent" } as const)
        : ({ kind: "unchanged", ...tokenOf(known.entry) } as const);
    const entry = await this.#ledger.entries.put(placeOf(key), expected, {
      state: "released",
      token: known?.entry === undefined ? "next" : "same",
      attempts: 1,
      leaseMs: undefined,
      keepMs: undefined,
      fingerprint: { value: undefined },
      data: { value: encoder.encode(JSON.stringify(peer)) },
    });
    if (entry === undefined)
      throw new HapaxError("lease_lost", `another relay sends to the object; object=${key}`);
    this.#live.set(key, { peer, entry });
  }

  remember(key: string, peer: DeliveryPeer): void {
    const known = this.#live.get(key);
    if (known !== undefined) this.#live.set(key, { ...known, peer });
  }
}

function placeOf(key: string): Place {
  return { kind: "peer", scope: "objects", key };
}

function tokenOf({ token, revision }: Pick<Entry, "token" | "revision">) {
  return { token, revision };
}
