/**
 * Adds events to the outbox, in the transaction of the business data.
 *
 *   - an event is published if and only if the transaction that added it is committed;
 *   - the outbox keeps a payload as it was at the call, and its content type says what it is. It refuses a value that
 *     it cannot keep unchanged, and the error names the place of that value in the event;
 *   - an event carries the headers of the trace in which it was added.
 */

import { exactJson, hasHalfPair } from "../../base/exact-json.ts";
import { HapaxError } from "../../base/errors.ts";
import { failpoint } from "../../base/failpoint.ts";
import type { Ledger } from "../ledgers/ledger.ts";
import type { NewOutboxEvent } from "./log.ts";

/** An event to publish. */
export interface OutboxMessage {
  /** Says what the event is about. A publisher may choose its target by the topic. */
  readonly topic: string;
  /** Events with the same key are published in the order in which they were added. Events without a key have no order. */
  readonly key?: string;
  /**
   * Bytes and strings are kept unchanged; every other value is kept as JSON. `add` refuses a value that JSON would drop
   * or change: a `Map`, `NaN`, half of a surrogate pair.
   */
  readonly payload: unknown;
  /** Headers of the event. The outbox adds `content-type` if you do not set it. */
  readonly headers?: Readonly<Record<string, string>>;
}

/** Options of `createOutbox`. All are optional. */
export interface OutboxOptions {
  /**
   * Returns the headers of the current trace, such as `traceparent` and `tracestate`. Called for every event. Default:
   * events carry no trace.
   */
  readonly trace?: () => Readonly<Record<string, string>>;
}

/** Adds events to your transactions. `createOutbox` creates it. */
export interface Outbox<Tx> {
  /** Adds an event to your transaction. Returns the id of the event. Throws `invalid_request`. */
  add(tx: Tx, message: OutboxMessage): Promise<string>;
  /** Adds several events in their order. Returns their ids. */
  addAll(tx: Tx, messages: readonly OutboxMessage[]): Promise<readonly string[]>;
}

const JSON_TYPE = "application/json";
const TEXT_TYPE = "text/plain; charset=utf-8";
const BYTES_TYPE = "application/octet-stream";
/** Topics and keys are parts of indexes. */
const NAME_BYTES_MAX = 512;

const encoder = new TextEncoder();

/**
 * Creates the outbox of a ledger. A relay publishes an event if and only if the transaction that added it is committed.
 * Throws `unsupported` if the ledger has no outbox.
 *
 * ```ts
 * import { memoryLedger } from "hapax/ledgers/memory";
 * import { createOutbox } from "hapax/outbox";
 *
 * const ledger = memoryLedger();
 * const outbox = createOutbox(ledger);
 * const id = await ledger.transaction(async (tx) => {
 *   // The order itself is written here, in the same transaction.
 *   return outbox.add(tx, { topic: "orders", key: "order-17", payload: { cents: 500 } });
 * });
 * console.assert(id !== "");
 * ```
 */
export function createOutbox<Tx>(ledger: Ledger<Tx>, options: OutboxOptions = {}): Outbox<Tx> {
  if (ledger.supports.outbox.length === 0) {
    throw new HapaxError("unsupported", `the ledger has no outbox; ledger=${ledger.name}`);
  }
  const { trace = () => ({}) } = options;
  const addAll = async (tx: Tx, messages: readonly OutboxMessage[]): Promise<readonly string[]> => {
    const traced = messages.length === 0 ? {} : trace();
    const events = messages.map((message) => newOutboxEvent(message, traced));
    if (events.length === 0) return [];
    const ids = await ledger.in(tx).outbox.add(tx, events);
    await failpoint("outbox.added");
    return ids;
  };
  return {
    addAll,
    async add(tx, message) {
      const [id] = await addAll(tx, [message]);
      if (id === undefined) throw new Error("an event that was added has an id");
      return id;
    },
  };
}

/** Returns the event of a message, as a log keeps it. Throws `invalid_request`. */
export function newOutboxEvent(
  { topic, key, payload, headers = {} }: OutboxMessage,
  traced: Readonly<Record<string, string>> = {},
): NewOutboxEvent {
  requireName("topic", topic);
  if (key !== undefined) requireName("key", key);
  const { bytes, contentType } = encode(payload);
  const all = { "content-type": contentType, ...lowered(traced), ...lowered(headers) };
  return { topic, ...(key === undefined ? {} : { key }), payload: bytes, headers: all };
}

function requireName(what: string, name: string): void {
  requireText(what, name);
  if (encoder.encode(name).length <= NAME_BYTES_MAX) return;
  throw new HapaxError("invalid_request", `${what} must have at most ${NAME_BYTES_MAX} bytes`);
}

/** Throws for a text that the database would change or refuse. */
function requireText(what: string, text: unknown): asserts text is string {
  const problem =
    typeof text !== "string"
      ? "is not a text"
      : text.includes("\0")
        ? "has a NUL character"
        : hasHalfPair(text)
          ? "has half of a surrogate pair"
          : undefined;
  if (problem !== undefined) throw new HapaxError("invalid_request", `${what} ${problem}`);
}

function encode(payload: unknown): { readonly bytes: Uint8Array; readonly contentType: string } {
  // A copy, because buffers are often filled again by their owner.
  if (payload instanceof Uint8Array) {
    return { bytes: new Uint8Array(payload), contentType: BYTES_TYPE };
  }
  if (typeof payload === "string") {
    if (hasHalfPair(payload)) {
      throw new HapaxError("invalid_request", "payload has half of a surrogate pair");
    }
    return { bytes: encoder.encode(payload), contentType: TEXT_TYPE };
  }
  const json = exactJson(payload, "payload");
  if ("text" in json) return { bytes: encoder.encode(json.text), contentType: JSON_TYPE };
  const words = `${json.path} ${json.problem}: give a value that JSON keeps, a text or bytes`;
  throw new HapaxError("invalid_request", words);
}

function lowered(headers: Readonly<Record<string, string>>): Record<string, string> {
  const all: Record<string, string> = {};
  for (const [name, value] of Object.entries(headers)) {
    const what = `header ${JSON.stringify(name)}`;
    requireText(what, name);
    requireText(what, value);
    all[name.toLowerCase()] = value;
  }
  return all;
}
