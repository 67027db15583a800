/**
 * What a server must promise before a store trusts it. A setting that is too weak is refused, or, where the operator has
 * asked for less, said.
 */

import { HapaxError } from "../../../base/errors.ts";
import type { PostgresStoreOptions } from "./contract.ts";
import type { Session } from "./session.ts";
import { sqlNumber, sqlText } from "./values.ts";

/** PostgreSQL 14. */
const VERSION_MIN = 140_000;
/** Levels of synchronous_commit that wait until the standby has the commit on its disk. */
const REPLICATED = new Set(["on", "remote_apply"]);
/** Levels that wait at least for the disk of the primary. */
const FSYNCED = new Set(["on", "remote_apply", "remote_write", "local"]);

type Needs = Pick<PostgresStoreOptions, "durability" | "replication">;

export interface EngineSettings {
  readonly version: number;
  readonly isInRecovery: boolean;
  readonly isReadOnly: boolean;
  readonly fsync: string;
  readonly fullPageWrites: string;
  readonly level: string;
  readonly standbys: string;
}

export async function readSettings(session: Session): Promise<EngineSettings> {
  const { rows } = await session.run(
    `SELECT current_setting('server_version_num') AS version, pg_is_in_recovery() AS is_in_recovery,
      current_setting('transaction_read_only') AS read_only, current_setting('fsync') AS fsync,
      current_setting('full_page_writes') AS full_page_writes, current_setting('synchronous_commit') AS level,
      current_setting('synchronous_standby_names') AS standbys`,
    [],
  );
  const row = rows[0] ?? {};
  return {
    version: sqlNumber(row["version"]),
    isInRecovery: row["is_in_recovery"] === true,
    isReadOnly: row["read_only"] !== "off",
    fsync: sqlText(row["fsync"]),
    fullPageWrites: sqlText(row["full_page_writes"]),
    level: sqlText(row["level"]),
    standbys: sqlText(row["standbys"]),
  };
}

/** Whether a write that was answered under these settings is as durable as the store promises. */
export function keepsPromise(needs: Needs, level: string, standbys: string): boolean {
  const { durability = "replicated", replication = "standby" } = needs;
  if (durability === "os") return true;
  if (durability === "fsync" || replication === "storage") return FSYNCED.has(level);
  return REPLICATED.has(level) && standbys.trim() !== "";
}

/** Throws `invalid_options` with every reason why the server is not enough. Warns of what the operator has allowed. */
export function requireSettings(
  found: EngineSettings,
  needs: Needs,
  warn: (warning: string) => void,
): void {
  const { durability = "replicated" } = needs;
  const faults: string[] = [];
  if (found.version < VERSION_MIN) {
    faults.push(`it is version ${Math.floor(found.version / 10_000)}, and at least 14 is needed`);
  }
  if (found.isInRecovery)
    faults.push("it is a standby: give the address of the primary, or all addresses");
  else if (found.isReadOnly)
    faults.push("its transactions are read-only (default_transaction_read_only)");
  const weak = weaknessesOf(found, needs);
  if (durability === "os") for (const what of weak) warn(`the database may lose commits: ${what}`);
  else faults.push(...weak);
  if (durability === "fsync" && found.standbys.trim() === "") {
    warn(
      "the database has no synchronous standby: a failover may lose commits that were acknowledged",
    );
  }
  if (faults.length === 0) return;
  throw new HapaxError(
    "invalid_options",
    `the database does not keep what durability ${durability} promises: ${faults.join("; ")}`,
  );
}

function weaknessesOf(found: EngineSettings, needs: Needs): readonly string[] {
  const { durability = "replicated", replication = "standby" } = needs;
  const { fsync, fullPageWrites, level, standbys } = found;
  const weak: string[] = [];
  if (fsync !== "on") weak.push("fsync is off");
  if (fullPageWrites !== "on" && replication !== "storage") weak.push("full_page_writes is off");
  const needed = durability === "replicated" && replication === "standby" ? REPLICATED : FSYNCED;
  if (!needed.has(level))
    weak.push(`synchronous_commit is ${level}, and must be ${[...needed].join(" or ")}`);
  if (durability === "replicated" && replication === "standby" && standbys.trim() === "") {
    weak.push(
      "synchronous_standby_names is empty: set it, or choose durability fsync and accept that a failover loses commits, " +
        "or say replication storage if the storage is replicated",
    );
  }
  return weak;
}
