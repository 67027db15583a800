/** The tables of a ledger, for users who make them by hand. */

import { wholeSchema } from "./migrations.ts";
import { POSTGRES_MIGRATIONS_TABLE, POSTGRES_PARTS } from "./postgres-schema.ts";
import { SQLITE_MIGRATIONS_TABLE, SQLITE_NOW, SQLITE_PARTS } from "./sqlite-schema.ts";

/**
 * Returns the statements that create the tables of a ledger, for a migration tool of your own. Run them in one
 * transaction, in their order, in an empty schema. `ledger.migrate()` then finds nothing to do.
 *
 * ```ts
 * import { ledgerSchema } from "hapax/ledgers/sqlite";
 *
 * console.assert(ledgerSchema("postgres").some((sql) => sql.includes("hapax_entries")));
 * ```
 */
export function ledgerSchema(dialect: "postgres" | "sqlite"): readonly string[] {
  return dialect === "postgres"
    ? wholeSchema(POSTGRES_MIGRATIONS_TABLE, POSTGRES_PARTS, "clock_timestamp()")
    : wholeSchema(SQLITE_MIGRATIONS_TABLE, SQLITE_PARTS, SQLITE_NOW);
}
