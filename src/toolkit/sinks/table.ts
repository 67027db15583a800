/** What all SQL sinks share: the table, and when a position may move. */

import { HapaxError } from "../../base/errors.ts";
import type { SinkPlace } from "../../client/processing/sink.ts";

export const CREATE_TABLE = `CREATE TABLE IF NOT EXISTS hapax_positions (
  pipeline TEXT NOT NULL,
  stream TEXT NOT NULL,
  position TEXT,
  token BIGINT NOT NULL,
  PRIMARY KEY (pipeline, stream)
)`;

/** A row as the database answers it: numbers may come as text or as big integers. */
export interface PositionRow {
  readonly position: string | null;
  readonly token: number | bigint | string;
}

export function readRow(row: unknown): PositionRow | undefined {
  if (typeof row !== "object" || row === null) return undefined;
  const { position, token } = row as Partial<Record<keyof PositionRow, unknown>>;
  if (position !== null && typeof position !== "string") return undefined;
  if (typeof token !== "number" && typeof token !== "bigint" && typeof token !== "string") {
    return undefined;
  }
  return { position, token };
}

/** SK2 */
export function requireToken(row: PositionRow | undefined, place: SinkPlace, token: number): void {
  if (row === undefined || Number(row.token) <= token) return;
  throw lost(place, `token ${token} was followed by ${row.token}`);
}

/** SK2, SK3 */
export function requireMovable(
  row: PositionRow | undefined,
  place: SinkPlace,
  token: number,
  from: string | undefined,
): void {
  requireToken(row, place, token);
  if (row === undefined) throw lost(place, "the place was never taken");
  const at = row.position ?? undefined;
  if (at !== from)
    throw lost(place, `it is at ${at ?? "its beginning"}, not at ${from ?? "its beginning"}`);
}

function lost({ pipeline, stream }: SinkPlace, reason: string): HapaxError {
  return new HapaxError("lease_lost", `${stream} of ${pipeline}: ${reason}`);
}
