/**
 * The statements that lock a place and that end it, as texts with their values inside: they are sent with BEGIN and COMMIT, so that
 * work of one statement is three round trips. The first sets the mark of the transaction, and the second fails without it.
 */

import { systemRandom } from "../../base/random.ts";
import type { Enclosed } from "../databases/postgres.ts";
import { type Keepable, KeptStatements } from "../databases/postgres-keeping.ts";
import { IF_MARKED, MARKS } from "../databases/postgres-lending.ts";
import { literalOf } from "../databases/quoting.ts";
import { type Dialect, endStatement, lockStatement, type Statement } from "./entry-statements.ts";
import type { EntryWrite, Place } from "./ledger.ts";
import { requirePlace } from "./places.ts";
import { dialectOf } from "./postgres-entries.ts";

/** Results that are larger go as parameters: as text they are twice as large. */
const TEXT_BYTES_MAX = 16_384;

const LOCK_TYPES = ["text", "text", "text"];
const ANY_PLACE: Place = { kind: "", scope: "", key: "" };
const DONE: EntryWrite = {
  state: "done",
  token: { drawn: 0 },
  attempts: 1,
  leaseMs: undefined,
  keepMs: undefined,
  fingerprint: { value: undefined },
  data: { value: undefined },
};
/** The two forms of the statement that ends a lock: `processOnce` mostly leaves the same, and binds less. */
const ENDS: readonly { readonly place: Place; readonly types: readonly string[] }[] = [
  {
    place: ANY_PLACE,
    types: ["text", "text", "text", "bigint", "text", "integer", "float8", "text", "bytea"],
  },
  {
    place: { kind: "once", scope: "", key: "" },
    types: ["text", "text", "bigint", "float8", "bytea"],
  },
];

export class PostgresLocks {
  readonly kept: KeptStatements;
  /** With values between NUL characters: no name has one, so nothing else looks like a place for a value. */
  readonly #dialect: Dialect;
  readonly #lock: Keepable;
  /** By their texts in the dialect. */
  readonly #ends: ReadonlyMap<string, Keepable>;

  constructor(schema: string | undefined) {
    const dialect = dialectOf(schema, undefined);
    const own: Dialect = {
      ...dialect,
      ofLock: `WHEN ${MARKS} IS NULL THEN -1 ${dialect.ofLock}`,
      ofGiven: "",
      writing: "",
      endingRevision: IF_MARKED,
    };
    this.#dialect = { ...own, placeholder: (place) => `\0${place}\0` };
    // Of this ledger alone: behind a pooler, others with another text may meet it.
    const id = systemRandom.id();
    this.#lock = {
      name: `hapax_lock_${id}`,
      types: LOCK_TYPES,
      text: lockStatement(own, ANY_PLACE).text,
    };
    this.#ends = new Map(
      ENDS.map(({ place, types }, index) => [
        endStatement(this.#dialect, place, DONE).text,
        {
          name: `hapax_end${index}_${id}`,
          types,
          text: endStatement(own, place, DONE).text,
        },
      ]),
    );
    this.kept = new KeptStatements([this.#lock, ...this.#ends.values()]);
  }

  lock(place: Place): Enclosed {
    requirePlace(place);
    const statement = lockStatement(this.#dialect, place);
    return {
      text: (isKept) => (isKept ? executed(this.#lock, statement) : inlined(statement)),
      call: { name: this.#lock.name, values: statement.values },
      column: "drawn",
    };
  }

  /** It fails if there is an entry. Undefined: it is too large for a text. */
  end(place: Place, write: EntryWrite): Enclosed | undefined {
    const { data } = write;
    const bytes = data === "same" ? 0 : (data.value?.byteLength ?? 0);
    if (bytes > TEXT_BYTES_MAX) return undefined;
    const statement = endStatement(this.#dialect, place, write);
    const kept = this.#ends.get(statement.text);
    return {
      text: (isKept) =>
        isKept && kept !== undefined ? executed(kept, statement) : inlined(statement),
      call: kept && { name: kept.name, values: statement.values },
    };
  }
}

function executed({ name }: Keepable, { values }: Statement): string {
  return `EXECUTE ${name}(${values.map(literalOf).join()})`;
}

function inlined({ text, values }: Statement): string {
  return text
    .split("\0")
    .map((part, index) => (index % 2 === 0 ? part : literalOf(values[Number(part) - 1] ?? null)))
    .join("");
}

/** Whether the error says that there was an entry. */
export function isThereAlready(error: unknown): boolean {
  const { code, table } = Object(error) as { readonly code?: unknown; readonly table?: unknown };
  return code === "23505" && table === "hapax_entries";
}
