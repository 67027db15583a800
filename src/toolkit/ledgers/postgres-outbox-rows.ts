/**
 * Events as rows that relays take in batches. A batch is a list of ids under a lease; what is in no batch is free. Claims
 * are short transactions, one at a time, so that each sees all batches before it.
 *
 *   - an event is in one batch at most, and the events of a key in one batch at a time, in the order of their ids;
 *     a key that has held events has none, unless all are dead and the relay goes on without them;
 *   - a batch whose lease is over is taken as a whole, under its id and a greater token: the one before can then
 *     neither renew nor settle it;
 *   - what was done is deleted with the batch, in the caller's transaction; what was not is free again.
 *
 * A claim passes over the rows of keys that may not go. A key with a long backlog behind a held event makes claims slower
 * until an operator has seen to it; the log (postgres-outbox-spans.ts) does not have that.
 */

import type { PostgresSession, Query } from "../databases/postgres.ts";
import type { OutboxBatch, RowsOutbox } from "../outbox/log.ts";
import {
  boundedMs,
  EVENT_COLUMNS,
  eventOf,
  number,
  type OutboxTables,
  text,
} from "./postgres-outbox-tables.ts";

type Rows<Tx> = Pick<RowsOutbox<Tx>, "way" | "rows" | "lag">;

/** A relay that stops inside a claim holds up the others for so long at most: then the database ends its session. */
const CLAIM_STALL_MS = 10_000;

/** `query` joins the caller's transaction where there is one; a claim has always its own. */
export function createPostgresRows<Tx>(
  session: PostgresSession<Tx>,
  query: Query,
  tables: OutboxTables,
): Rows<Tx> {
  return {
    way: "rows",
    rows: {
      claim: (relay, max, leaseMs, afterDead) =>
        session.transaction(async (tx) => {
          const inside = session.in(tx);
          await beginClaim(inside, tables);
          return (
            (await takeOver(inside, tables, relay, leaseMs)) ??
            (await claimFree(inside, tables, relay, max, leaseMs, afterDead))
          );
        }),
      async renew({ id, token }, leaseMs) {
        const rows = await query(
          `UPDATE ${tables.batches} SET lease_until = ${leaseEnd("$3")} WHERE id = $1 AND token = $2 RETURNING 1 AS one`,
          [id, token, String(boundedMs(leaseMs))],
        );
        return rows.length > 0;
      },
      // Waits for a claim that is taking it over, and then does not find its token.
      async settle({ id, token }, done) {
        const [batch] = await query(
          `DELETE FROM ${tables.batches} WHERE id = $1 AND token = $2 RETURNING event_ids::text AS ids`,
          [id, token],
        );
        if (batch === undefined) return false;
        await query(
          `DELETE FROM ${tables.outbox} WHERE id = ANY($1::text::bigint[])
           AND id::text IN (SELECT json_array_elements_text($2::text::json))`,
          [text(batch, "ids"), JSON.stringify(done)],
        );
        return true;
      },
      async giveUp(relay) {
        await query(
          `DELETE FROM ${tables.batches} WHERE relay = $1 AND lease_until <= clock_timestamp()`,
          [relay],
        );
        const left = await query(
          `SELECT 1 AS one FROM ${tables.batches} WHERE relay = $1 LIMIT 1`,
          [relay],
        );
        return left.length === 0;
      },
    },
    async lag() {
      const [row] = await query(
        `SELECT COALESCE(extract(epoch FROM clock_timestamp() - min(added_at)) * 1000, 0)::text AS age
         FROM (SELECT added_at FROM ${tables.outbox} ORDER BY id LIMIT 1) AS oldest`,
      );
      return { oldestMs: Math.max(0, number(row, "age")), slotBytes: undefined };
    },
  };
}

function leaseEnd(leaseMs: string): string {
  return `clock_timestamp() + ${leaseMs}::text::float8 * interval '1 millisecond'`;
}

/** Under another isolation, what was committed while this one waited for the lock would not be seen. */
async function beginClaim(query: Query, { batches }: OutboxTables): Promise<void> {
  await query("SET TRANSACTION ISOLATION LEVEL READ COMMITTED");
  await query(`SET LOCAL idle_in_transaction_session_timeout = ${CLAIM_STALL_MS}`);
  await query("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", [batches]);
}

async function takeOver(
  query: Query,
  tables: OutboxTables,
  relay: string,
  leaseMs: number,
): Promise<OutboxBatch | undefined> {
  const { outbox, batches, nextToken } = tables;
  for (;;) {
    const [row] = await query(
      `UPDATE ${batches} SET token = ${nextToken}, lease_until = ${leaseEnd("$2")} WHERE id =
         (SELECT id FROM ${batches} WHERE relay = $1 AND lease_until <= clock_timestamp() ORDER BY id LIMIT 1)
       RETURNING id::text AS id, token::text AS token, event_ids::text AS ids,
         cardinality(event_ids)::text AS count`,
      [relay, String(boundedMs(leaseMs))],
    );
    if (row === undefined) return undefined;
    const [id, token] = [number(row, "id"), number(row, "token")];
    const rows = await query(
      `SELECT ${EVENT_COLUMNS} FROM ${outbox} WHERE id = ANY($1::text::bigint[]) ORDER BY ${outbox}.id`,
      [text(row, "ids")],
    );
    const missing = number(row, "count") - rows.length;
    if (rows.length > 0) return { id, token, isTakeover: true, events: rows.map(eventOf), missing };
    // All its rows were deleted by hand: there is nothing to relay any more.
    await query(`DELETE FROM ${batches} WHERE id = $1 AND token = $2`, [id, token]);
  }
}

async function claimFree(
  query: Query,
  { outbox, batches, held, nextToken }: OutboxTables,
  relay: string,
  max: number,
  leaseMs: number,
  afterDead: "block" | "continue",
): Promise<OutboxBatch | undefined> {
  const isWaiting = afterDead === "continue" ? "AND state = 'waiting'" : "";
  const rows = await query(
    `SELECT ${EVENT_COLUMNS} FROM ${outbox} AS event
     WHERE id NOT IN (SELECT unnest(event_ids) FROM ${batches})
       AND (key IS NULL OR key NOT IN (SELECT unnest(keys) FROM ${batches}
         UNION ALL SELECT key FROM ${held} WHERE relay = $1 AND key IS NOT NULL ${isWaiting}))
     ORDER BY event.id LIMIT $2`,
    [relay, max],
  );
  if (rows.length === 0) return undefined;
  const events = rows.map(eventOf);
  const keys = new Set(events.flatMap(({ key }) => (key === undefined ? [] : [key])));
  const [row] = await query(
    `INSERT INTO ${batches} (relay, token, lease_until, event_ids, keys)
     VALUES ($1, ${nextToken}, ${leaseEnd("$2")}, $3::text::bigint[],
       ARRAY(SELECT json_array_elements_text($4::text::json)))
     RETURNING id::text AS id, token::text AS token`,
    [
      relay,
      String(boundedMs(leaseMs)),
      `{${events.map(({ id }) => id).join()}}`,
      JSON.stringify([...keys]),
    ],
  );
  const [id, token] = [number(row, "id"), number(row, "token")];
  return { id, token, isTakeover: false, events, missing: 0 };
}
