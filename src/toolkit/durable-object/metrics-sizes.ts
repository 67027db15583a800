/** The sizes of what an object keeps. Counted when they are asked for, and not with every event. */

import type { Ledger } from "../ledgers/ledger.ts";
import { type ObjectSql, objectRows } from "./context.ts";
import type { ExactlyOnceMetrics } from "./metrics.ts";

/** Stuck sagas and dead letters are counted up to here. */
const COUNTED_MAX = 1000;

interface Sizes extends Pick<
  ExactlyOnceMetrics,
  "walEntriesPending" | "sagasStuck" | "deadLetters" | "oldestPendingMs"
> {
  /** Results of `process` and `processOnce`. */
  readonly kept: number;
}

export async function readSizes<Tx>(
  sql: ObjectSql,
  ledger: Ledger<Tx>,
  {
    relay,
    hasSagas,
    nowMs,
  }: { readonly relay: string | undefined; readonly hasSagas: boolean; readonly nowMs: number },
): Promise<Sizes> {
  const stuck = hasSagas
    ? await ledger.entries.scan({ kind: "saga", state: "failed", max: COUNTED_MAX })
    : [];
  const dead = { relay: relay ?? "", state: "dead", max: COUNTED_MAX } as const;
  const deadLetters = relay === undefined ? 0 : await ledger.outbox.held.count(dead);
  // In a turn of the ledger: not inside the open transaction of another.
  return ledger.transaction(async () => {
    const count = (query: string): number => Number(objectRows(sql, query)[0]?.["count"] ?? 0);
    const kept = tablesOf(sql)
      .map((table) =>
        count(`SELECT COUNT(*) AS count FROM ${table} WHERE kind = 'once' AND state = 'done'`),
      )
      .reduce((sum, size) => sum + size, 0);
    const begun = count(
      "SELECT COUNT(*) AS count FROM hapax_open WHERE state = 'running' AND kind NOT IN ('lease', 'relay')",
    );
    const events = count("SELECT COUNT(*) AS count FROM hapax_outbox");
    const held = count("SELECT COUNT(*) AS count FROM hapax_outbox_held WHERE state = 'waiting'");
    const [oldest] = objectRows(
      sql,
      `SELECT MIN(added_at) AS oldest FROM (SELECT MIN(added_at) AS added_at FROM hapax_outbox
       UNION ALL SELECT MIN(added_at) FROM hapax_outbox_held WHERE state = 'waiting')`,
    );
    const since = oldest?.["oldest"];
    return {
      kept,
      walEntriesPending: begun + events + held,
      sagasStuck: stuck.length,
      deadLetters,
      oldestPendingMs: typeof since === "number" ? Math.max(0, nowMs - since) : 0,
    };
  });
}

function tablesOf(sql: ObjectSql): readonly string[] {
  const query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name GLOB 'hapax_done_*'";
  return ["hapax_open", ...objectRows(sql, query).map(({ name }) => String(name))];
}
