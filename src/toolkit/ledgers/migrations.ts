/**
 * Which steps bring the tables of a database up to date. The parts have versions of their own, each step is one version,
 * and the table hapax_migrations has those that were applied. How they are run is the dialects'.
 *
 *   - a step is applied once, in the order of its part, with the row that says so, or not at all;
 *   - tables that a newer version made are refused, and left as they are;
 *   - `ledgerSchema`, run by hand, makes what `migrate` makes, and `migrate` then finds nothing to do.
 */

import { HapaxError } from "../../base/errors.ts";

/** One step. Statements are run one by one. */
export interface Migration {
  /** For people: what it makes. */
  readonly id: string;
  readonly sql: readonly string[];
}

/** Tables that change together. */
export interface MigrationPart {
  readonly name: string;
  /** The first is version 1. Never changed, only added to. */
  readonly steps: readonly Migration[];
}

export interface PendingStep {
  readonly part: string;
  readonly version: number;
  readonly sql: readonly string[];
}

/** What is still to do, in its order. `applied` has the newest version of each part. */
export function pendingSteps(
  parts: readonly MigrationPart[],
  applied: ReadonlyMap<string, number>,
): readonly PendingStep[] {
  // All parts are looked at before any is changed.
  const newer = parts.filter(({ name, steps }) => (applied.get(name) ?? 0) > steps.length);
  if (newer.length > 0) {
    const facts = newer.map(
      ({ name, steps }) => `${name}=${applied.get(name) ?? 0} known=${steps.length}`,
    );
    throw new HapaxError("schema_newer", `the tables are newer; ${facts.join(" ")}`);
  }
  return parts.flatMap(({ name, steps }) =>
    steps
      .map(({ sql }, index) => ({ part: name, version: index + 1, sql }))
      .filter(({ version }) => version > (applied.get(name) ?? 0)),
  );
}

/** All statements of all steps, with the rows that say that they were applied. */
export function wholeSchema(
  table: string,
  parts: readonly MigrationPart[],
  now: string,
): readonly string[] {
  return [
    table,
    ...pendingSteps(parts, new Map()).flatMap(({ part, version, sql }) => [
      ...sql,
      `INSERT INTO hapax_migrations (part, version, applied_at) VALUES ('${part}', ${version}, ${now})
  ON CONFLICT (part, version) DO NOTHING`,
    ]),
  ];
}
