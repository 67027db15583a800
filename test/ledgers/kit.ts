/** What the tests of ledgers share: a claim, and files of SQLite that go with their test. */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Database from "libsql";
import { afterEach } from "vitest";
import type { EntryWrite, Place } from "../../src/toolkit/ledgers/ledger.ts";

export type Connection = InstanceType<typeof Database>;

export const ABSENT = { kind: "absent" } as const;

export const CLAIM: EntryWrite = {
  state: "running",
  token: "next",
  attempts: 1,
  leaseMs: 60_000,
  keepMs: undefined,
  fingerprint: { value: undefined },
  data: { value: undefined },
};

export const placeOf = (key: string): Place => ({ kind: "once", scope: "", key });

/** Called, last first, after each test. */
export const endings: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of endings.splice(0).toReversed()) await end();
});

export function newFile(): string {
  const folder = mkdtempSync(join(tmpdir(), "hapax-ledger-"));
  endings.push(() => {
    rmSync(folder, { recursive: true });
  });
  return join(folder, "ledger.db");
}

export function connect(file: string): Connection {
  const connection = new Database(file, { timeout: 0 });
  endings.push(() => {
    connection.close();
  });
  return connection;
}

export function tablesOf(connection: Connection): readonly string[] {
  const rows = connection
    .prepare(
      "SELECT type || ' ' || name || ' ' || coalesce(sql, '') AS text FROM sqlite_master ORDER BY name",
    )
    .all() as readonly { readonly text: string }[];
  return rows.map(({ text }) => text);
}
