/**
 * The receiver of events of other objects: in their order, each once. The rule is toolkit/rules/delivery.ts.
 *
 *   - the work of an event and its number are one transaction, which is one row for each event;
 *   - what was received before is acknowledged again;
 *   - one row for each sender is kept for good: it is what tells a repetition from a new event.
 */

import { wordsOfError } from "../../base/error-words.ts";
import { HapaxError } from "../../base/errors.ts";
import { failpoint } from "../../base/failpoint.ts";
import { Check } from "../once/check.ts";
import {
  decideDelivery,
  DELIVERY_MAX,
  type DeliveryDecision,
  type EpochEnd,
  type SenderState,
} from "../rules/delivery.ts";
import { type ObjectSql, objectRows } from "./context.ts";
import {
  type ExactlyOnce,
  type ExactlyOnceStorage,
  type OnceInsides,
  onceInsides,
} from "./contract.ts";
import { type ObjectWork, requireSync } from "./steps.ts";

/** An event of another object. */
export interface ObjectMessage {
  /** Unique among the events of its sender. */
  readonly id: string;
  readonly topic: string;
  readonly key: string;
  /** What was emitted: the parsed value of JSON, a string for text, else bytes. */
  readonly payload: unknown;
  readonly headers: Readonly<Record<string, string>>;
}

/** One call from object to object. Made by `toObjects`; give it to `fromObjects` as it is. */
export interface ObjectDelivery {
  readonly from: string;
  readonly epoch: number;
  /** The number of the first event. */
  readonly sequence: number;
  /** The events. Empty in the call that opens an epoch. */
  readonly messages: readonly ObjectMessage[];
}

/** The answer to a delivery. Return it to the caller as it is. */
export type DeliveryAnswer =
  /** All events up to `last` were handled, now or before. `failure` says why the next one was not. */
  | {
      readonly kind: "received";
      readonly last: number;
      readonly before: EpochEnd | undefined;
      readonly failure?: { readonly name: string; readonly message: string };
    }
  | { readonly kind: "refused"; readonly currentEpoch: number };

const TABLE = `CREATE TABLE IF NOT EXISTS hapax_senders (sender TEXT PRIMARY KEY, state TEXT NOT NULL) WITHOUT ROWID`;
const FIND = "SELECT state FROM hapax_senders WHERE sender = ?";
const PUT = "INSERT OR REPLACE INTO hapax_senders (sender, state) VALUES (?, ?)";
const FAILURE_CHARS_MAX = 1000;

/**
 * Handles a call that `toObjects` of another object makes: it does the work for each event once, in order. The work must not be
 * async: its writes and the number of the event are one transaction. Return the answer to the caller as it is. Throws
 * `invalid_request`.
 *
 * ```ts
 * import { type ExactlyOnce, type ExactlyOnceStorage, fromObjects, type ObjectDelivery } from "hapax/durable-object";
 *
 * // In an object: `receive(delivery) { return receive(this.#once, delivery); }`.
 * export const receive = <Storage extends ExactlyOnceStorage>(once: ExactlyOnce<Storage>, delivery: ObjectDelivery) =>
 *   fromObjects(once, delivery, ({ payload }, { tx }) => {
 *     tx.sql.exec("INSERT INTO received (payload) VALUES (?)", JSON.stringify(payload));
 *   });
 * ```
 */
export async function fromObjects<Storage extends ExactlyOnceStorage>(
  once: ExactlyOnce<Storage>,
  delivery: ObjectDelivery,
  work: (message: ObjectMessage, work: ObjectWork<Storage>) => void,
): Promise<DeliveryAnswer> {
  requireDelivery(delivery);
  // Cast: as it was put in.
  const insides = onceInsides.get(once) as OnceInsides<Storage> | undefined;
  if (insides === undefined)
    throw new HapaxError("invalid_request", "fromObjects needs what exactlyOnce has made");
  const { sql, steps, ready } = insides;
  await ready();
  // Writes nothing if it is there.
  await steps.run(() => sql.exec(TABLE));
  await failpoint("delivery.began");
  if (delivery.messages.length === 0) return await openEpoch(insides, delivery);
  const answer = await takeAll(insides, delivery, work);
  await failpoint("delivery.committed");
  return answer;
}

async function takeAll<Storage extends ExactlyOnceStorage>(
  { sql, steps, onDuplicate }: OnceInsides<Storage>,
  { from, epoch, sequence, messages }: ObjectDelivery,
  handle: (message: ObjectMessage, work: ObjectWork<Storage>) => void,
): Promise<DeliveryAnswer> {
  let before: EpochEnd | undefined;
  for (const [at, message] of messages.entries()) {
    const number = { epoch, sequence: sequence + at };
    let decision: DeliveryDecision;
    try {
      decision = await steps.run((work) => {
        const decided = decideDelivery(findSender(sql, from), number, message.id);
        if (decided.kind !== "accepted") return decided;
        requireSync<unknown>(handle(message, work));
        sql.exec(PUT, from, JSON.stringify(decided.state));
        return decided;
      });
    } catch (error) {
      const { name, message: text } = wordsOfError(error, FAILURE_CHARS_MAX);
      const last = number.sequence - 1;
      return { kind: "received", last, before, failure: { name, message: text } };
    }
    if (decision.kind === "refused") return decision;
    if (decision.kind === "duplicate") onDuplicate();
    ({ before } = decision.state);
  }
  return { kind: "received", last: sequence + messages.length - 1, before };
}

async function openEpoch<Storage extends ExactlyOnceStorage>(
  { sql, steps }: OnceInsides<Storage>,
  { from, epoch }: ObjectDelivery,
): Promise<DeliveryAnswer> {
  const decision = await steps.run(() => {
    const decided = decideDelivery(findSender(sql, from), { epoch, sequence: 0 }, "");
    if (decided.kind === "accepted") sql.exec(PUT, from, JSON.stringify(decided.state));
    return decided;
  });
  if (decision.kind === "refused") return decision;
  return { kind: "received", last: 0, before: decision.state.before };
}

function findSender(sql: ObjectSql, from: string): SenderState | undefined {
  const [row] = objectRows(sql, FIND, from);
  // Cast: only this file writes it.
  return row === undefined ? undefined : (JSON.parse(String(row["state"])) as SenderState);
}

/** What comes over the wire is checked: types say nothing about it. */
function requireDelivery(delivery: ObjectDelivery): void {
  const check = new Check();
  const given: Partial<ObjectDelivery> = Object(delivery);
  check.name("from", given.from as string);
  const { MAX_SAFE_INTEGER } = Number;
  check.whole("epoch", given.epoch, -1, 0, MAX_SAFE_INTEGER);
  check.whole("sequence", given.sequence, -1, 0, MAX_SAFE_INTEGER - DELIVERY_MAX);
  const { messages } = given;
  if (!Array.isArray(messages) || messages.length > DELIVERY_MAX)
    check.problem(`messages is not a list of at most ${DELIVERY_MAX}`);
  else if (messages.some((message) => typeof Object(message).id !== "string"))
    check.problem("messages has one without an id");
  check.end("invalid_request");
}
