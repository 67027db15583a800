/** How the outbox of a PostgreSQL ledger works: what the user chooses, checked once. */

import type { Clock } from "../../base/clock.ts";
import { HapaxError } from "../../base/errors.ts";
import type { OutboxWay } from "../outbox/log.ts";
import type { OutboxNotify } from "./postgres-outbox-hint.ts";

/** Options of the outbox on PostgreSQL. All have defaults. */
export interface PostgresOutboxOptions {
  /**
   * How relays find events. `log` (default): by comparing snapshots; any number of relays, each with a position, and no
   * write for an event that is published. `rows`: relays take rows in batches and delete them; many relays of one name
   * work at once. `decoding`: rows, read through a replication slot. `messages`: messages in PostgreSQL's journal, read
   * through a slot, without a table.
   */
  readonly way?: OutboxWay;
  /**
   * Wakes relays as soon as events are committed. Without it relays look again after `pollMs`; nothing else differs.
   * With it every transaction that adds events does a NOTIFY, and PostgreSQL commits such transactions one after the
   * other.
   */
  readonly notify?: OutboxNotify;
  /** The schema that has the tables. Default: the search path. */
  readonly schema?: string;
  readonly clock?: Clock;
}

const WAYS: readonly OutboxWay[] = ["log", "rows", "decoding", "messages"];

/** Throws `invalid_options` with everything that is wrong. */
export function checkOutboxOptions(options: PostgresOutboxOptions): void {
  const { way, notify, schema } = options;
  const problems: string[] = [];
  if (way !== undefined && !WAYS.includes(way))
    problems.push(`way=${String(way)} is none of ${WAYS.join(", ")}`);
  if (notify !== undefined && typeof notify.listen !== "function")
    problems.push("notify has no function listen");
  if (schema !== undefined && (schema === "" || schema.includes("\0")))
    problems.push("schema is no name");
  if (problems.length > 0) throw new HapaxError("invalid_options", problems.join("; "));
}
