/**
 * Names of the tables, and events into and out of them. Everything but bytes comes as text, and columns have one lower
 * case word: the answer is the same with all type parsers and name transforms that the user has given the client.
 *
 *   - ids are given in the order in which events are added, within a transaction and over all of them.
 */

import { prefixOf, quotedText } from "../databases/quoting.ts";
import { hasHalfPair } from "../../base/exact-json.ts";
import type { Query, Row } from "../databases/postgres.ts";
import { HapaxError } from "../../base/errors.ts";
import type { NewOutboxEvent, OutboxEvent } from "../outbox/log.ts";

export interface OutboxTables {
  readonly outbox: string;
  readonly origin: string;
  readonly batches: string;
  readonly held: string;
  /** As literals, for nextval. */
  /** A token that was never given, also not before a restore (LG3). */
  readonly nextToken: string;
  readonly places: string;
}

export function outboxTables(schema: string | undefined): OutboxTables {
  const prefix = prefixOf(schema);
  return {
    outbox: `${prefix}hapax_outbox`,
    origin: `${prefix}hapax_outbox_origin`,
    batches: `${prefix}hapax_outbox_batches`,
    held: `${prefix}hapax_outbox_held`,
    nextToken: `${prefix}hapax_next_token(${quotedText(`${prefix}hapax_outbox_tokens`)})`,
    places: quotedText(`${prefix}hapax_outbox_places`),
  };
}

/** What NOTIFY is sent on. One for all schemas: a hint too many does no harm. */
export const OUTBOX_CHANNEL = "hapax_outbox";

/** An event of the outbox, for `eventOf`. */
export const EVENT_COLUMNS =
  "id::text AS id, topic, key, payload, headers::text AS headers, floor(extract(epoch FROM added_at) * 1000)::text AS added";

/** Four values each: far below the 65,535 that a statement may have. */
const EVENTS_PER_STATEMENT = 500;

/** The rows of a statement get their ids one after the other. */
export async function addEvents(
  query: Query,
  { outbox }: OutboxTables,
  events: readonly NewOutboxEvent[],
  notifies: boolean,
): Promise<readonly string[]> {
  for (const event of events) requireStorable(event);
  const ids: string[] = [];
  for (let at = 0; at < events.length; at += EVENTS_PER_STATEMENT) {
    const some = events.slice(at, at + EVENTS_PER_STATEMENT);
    const rows = await query(
      `INSERT INTO ${outbox} (topic, key, payload, headers) VALUES ${some.map((_, index) => rowOf(index)).join(", ")}
       RETURNING id::text AS id`,
      some.flatMap(({ topic, key, payload, headers }) => [
        topic,
        key ?? null,
        payload,
        JSON.stringify(headers ?? {}),
      ]),
    );
    ids.push(...rows.map((row) => text(row, "id")));
  }
  if (notifies && ids.length > 0) await query("SELECT pg_notify($1, '')", [OUTBOX_CHANNEL]);
  return ids;
}

// postgres.js turns what goes into a parameter of type json into JSON again: this one is text.
function rowOf(index: number): string {
  const first = index * 4 + 1;
  return `($${first}, $${first + 1}, $${first + 2}::bytea, $${first + 3}::text::jsonb)`;
}

/** PostgreSQL keeps no NUL in text, and no half of a surrogate pair in JSON. */
export function requireStorable({ topic, key, headers }: NewOutboxEvent): void {
  const texts = [topic, key ?? "", ...Object.entries(headers ?? {}).flat()];
  if (texts.some((one) => one.includes("\0") || hasHalfPair(one)))
    throw new HapaxError(
      "invalid_request",
      "topic, key and headers of an event cannot have a NUL character or half of a surrogate pair on PostgreSQL",
    );
}

export function eventOf(row: Row): OutboxEvent {
  return {
    id: text(row, "id"),
    topic: text(row, "topic"),
    key: optionalText(row, "key"),
    payload: bytes(row, "payload"),
    headers: JSON.parse(text(row, "headers")) as Readonly<Record<string, string>>,
    addedAtMs: number(row, "added"),
  };
}

export function text(row: Row | undefined, name: string): string {
  const value = row?.[name];
  if (typeof value !== "string") throw new Error(`PostgreSQL answered no text column=${name}`);
  return value;
}

export function optionalText(row: Row, name: string): string | undefined {
  return row[name] === null ? undefined : text(row, name);
}

export function number(row: Row | undefined, name: string): number {
  return Number(text(row, name));
}

/** A copy: clients answer windows into buffers that are much larger. */
function bytes(row: Row, name: string): Uint8Array {
  const value = row[name];
  if (!(value instanceof Uint8Array))
    throw new Error(`PostgreSQL answered no bytes column=${name}`);
  return new Uint8Array(value);
}

/** Bounds milliseconds to what an interval can hold: "never" becomes a hundred years. */
export function boundedMs(ms: number): number {
  return Math.min(Math.max(Number.isNaN(ms) ? 0 : ms, -MS_MAX), MS_MAX);
}

const MS_MAX = 100 * 366 * 86_400_000;
