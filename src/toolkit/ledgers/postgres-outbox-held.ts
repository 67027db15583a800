/**
 * Held events in PostgreSQL: the same table for every way of the outbox.
 *
 *   - a held event keeps its content and its place among the others, however often it fails; it goes only by its id.
 */

import type { Query, Row } from "../databases/postgres.ts";
import type { HeldEvent, HeldEvents, HeldFilter, HeldWrite } from "../outbox/log.ts";
import {
  boundedMs,
  EVENT_COLUMNS,
  eventOf,
  number,
  optionalText,
  type OutboxTables,
  text,
} from "./postgres-outbox-tables.ts";

/** Thirteen values each. */
const HELD_PER_STATEMENT = 250;
const VALUES_PER_HELD = 13;

const HELD_COLUMNS = `relay, ${EVENT_COLUMNS.replace("id::text", "event_id")}, state, attempts::text AS attempts,
  (extract(epoch FROM due_at - clock_timestamp()) * 1000)::text AS due, fingerprint, message`;

/** `moves`: an event that is held is no row of the outbox any more. */
export function createPostgresHeld(query: Query, tables: OutboxTables, moves: boolean): HeldEvents {
  return {
    async list(filter) {
      const { where, values } = conditionsOf(filter);
      const rows = await query(
        `SELECT ${HELD_COLUMNS} FROM ${tables.held} WHERE ${where} ORDER BY place LIMIT $${values.length + 1}`,
        [...values, filter.max],
      );
      return rows.map(heldOf);
    },
    async count(filter) {
      const { where, values } = conditionsOf(filter);
      const rows = await query(
        `SELECT count(*)::text AS count FROM
           (SELECT 1 FROM ${tables.held} WHERE ${where} LIMIT $${values.length + 1}) AS counted`,
        [...values, filter.max],
      );
      return number(rows[0], "count");
    },
    // Key by key through the index: one key may have very many.
    async keys(relay, among, state) {
      if (among.length === 0) return new Set();
      const isSo = state === undefined ? "" : "AND state = $3";
      const rows = await query(
        `SELECT key FROM json_array_elements_text($2::text::json) AS asked (key)
         WHERE EXISTS (SELECT 1 FROM ${tables.held} AS held WHERE relay = $1 AND held.key = asked.key ${isSo})`,
        [relay, JSON.stringify([...new Set(among)]), ...(state === undefined ? [] : [state])],
      );
      return new Set(rows.map((row) => text(row, "key")));
    },
    async change(relay, puts, removes) {
      // One statement cannot put an event twice: the last one counts.
      const byId = new Map(puts.map((put) => [put.event.id, put]));
      const all = [...byId.values()];
      for (let at = 0; at < all.length; at += HELD_PER_STATEMENT)
        await put(query, tables, relay, all.slice(at, at + HELD_PER_STATEMENT));
      if (moves && all.length > 0)
        await query(`DELETE FROM ${tables.outbox} WHERE id = ANY($1::text::bigint[])`, [
          `{${[...byId.keys()].filter(isNumber).join()}}`,
        ]);
      if (removes.length > 0)
        await query(
          `DELETE FROM ${tables.held} WHERE relay = $1 AND event_id IN (SELECT json_array_elements_text($2::text::json))`,
          [relay, JSON.stringify(removes)],
        );
    },
  };
}

/** Of one that is there, only what its last failure changes. */
async function put(
  query: Query,
  { held, places }: OutboxTables,
  relay: string,
  puts: readonly HeldWrite[],
): Promise<void> {
  const rows = puts.map((_, index) => {
    const at = (offset: number): string => `$${index * VALUES_PER_HELD + offset}`;
    return `(${at(1)}, ${at(2)}, COALESCE(${at(3)}::text::bigint, nextval(${places})), ${at(4)}, ${at(5)}, ${at(6)}::bytea,
      ${at(7)}::text::jsonb, to_timestamp(${at(8)}::text::float8 / 1000), ${at(9)}, ${at(10)}::text::integer,
      clock_timestamp() + ${at(11)}::text::float8 * interval '1 millisecond', ${at(12)}, ${at(13)})`;
  });
  await query(
    `INSERT INTO ${held} (relay, event_id, place, topic, key, payload, headers, added_at, state, attempts, due_at,
       fingerprint, message) VALUES ${rows.join(", ")}
     ON CONFLICT (relay, event_id) DO UPDATE SET state = excluded.state, attempts = excluded.attempts,
       due_at = excluded.due_at, fingerprint = excluded.fingerprint, message = excluded.message`,
    puts.flatMap(({ event, state, attempts, dueInMs, reason }) => [
      relay,
      event.id,
      isNumber(event.id) ? event.id : null,
      event.topic,
      event.key ?? null,
      event.payload,
      JSON.stringify(event.headers),
      String(event.addedAtMs),
      state,
      String(attempts),
      String(boundedMs(dueInMs)),
      reason?.fingerprint ?? null,
      // For people: what PostgreSQL cannot keep of it is left out.
      reason?.message.replaceAll("\0", "") ?? null,
    ]),
  );
}

function isNumber(id: string): boolean {
  return /^\d{1,18}$/.test(id);
}

function conditionsOf(filter: HeldFilter): {
  readonly where: string;
  readonly values: readonly string[];
} {
  const values: string[] = [];
  const bound = (value: string): string => `$${values.push(value)}`;
  const parts = [`relay = ${bound(filter.relay)}`];
  if (filter.state !== undefined) parts.push(`state = ${bound(filter.state)}`);
  if (filter.key !== undefined) parts.push(`key = ${bound(filter.key)}`);
  if (filter.fingerprint !== undefined) parts.push(`fingerprint = ${bound(filter.fingerprint)}`);
  if (filter.ids !== undefined)
    parts.push(
      `event_id IN (SELECT json_array_elements_text(${bound(JSON.stringify(filter.ids))}::text::json))`,
    );
  // Not clock_timestamp(), which no index can be asked for.
  if (filter.isDue === true) parts.push("due_at <= statement_timestamp()");
  return { where: parts.join(" AND "), values };
}

function heldOf(row: Row): HeldEvent {
  const fingerprint = optionalText(row, "fingerprint");
  return {
    relay: text(row, "relay"),
    event: eventOf(row),
    state: text(row, "state") === "dead" ? "dead" : "waiting",
    attempts: number(row, "attempts"),
    dueInMs: number(row, "due"),
    reason:
      fingerprint === undefined
        ? undefined
        : { fingerprint, message: optionalText(row, "message") ?? "" },
  };
}
