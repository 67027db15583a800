/** The outbox of a PostgreSQL ledger, in the way that the user has chosen. */

import { waitingClock } from "../../base/clock.ts";
import type { PostgresSession, Query } from "../databases/postgres.ts";
import type { OutboxLog } from "../outbox/log.ts";
import { createPostgresDecoding } from "./postgres-decoding.ts";
import { createPostgresHeld } from "./postgres-outbox-held.ts";
import { waitForHint } from "./postgres-outbox-hint.ts";
import { createPostgresRows } from "./postgres-outbox-rows.ts";
import { checkOutboxOptions, type PostgresOutboxOptions } from "./postgres-outbox-options.ts";
import { createPostgresSpans } from "./postgres-outbox-spans.ts";
import { addEvents, outboxTables } from "./postgres-outbox-tables.ts";

export { type OutboxNotify, pgListener } from "./postgres-outbox-hint.ts";
export type { PostgresOutboxOptions } from "./postgres-outbox-options.ts";

/** `joined`: inside the transaction of the caller; undefined: each call alone. */
export function createPostgresOutbox<Tx>(
  session: PostgresSession<Tx>,
  joined: Query | undefined,
  options: PostgresOutboxOptions,
): OutboxLog<Tx> {
  checkOutboxOptions(options);
  const { way = "log", clock = waitingClock, notify, schema } = options;
  const tables = outboxTables(schema);
  const query = joined ?? session.query;
  const common: Pick<OutboxLog<Tx>, "add" | "wait" | "held"> = {
    held: createPostgresHeld(query, tables, way === "rows"),
    add: (tx, events) => addEvents(session.in(tx), tables, events, notify !== undefined),
    wait: (delayMs, signal) => waitForHint(delayMs, signal, clock, notify),
  };
  switch (way) {
    case "log":
      return { ...common, ...createPostgresSpans(session, query, tables) };
    case "rows":
      return { ...common, ...createPostgresRows(session, query, tables) };
    case "decoding":
    case "messages":
      return createPostgresDecoding(session, joined, options);
  }
}
