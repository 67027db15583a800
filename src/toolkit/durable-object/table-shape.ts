/** What the tables of an object look like, and how their values go into lines of an export and come back. */

import { decodeBase64, encodeBase64 } from "../../base/base64.ts";
import { HapaxError } from "../../base/errors.ts";
import { quotedName, quotedText } from "../databases/quoting.ts";
import { type ObjectRow, type ObjectSql, objectRows } from "./context.ts";

/** A statement that made something, as SQLite keeps it. */
export interface Made {
  readonly type: string;
  readonly name: string;
  readonly sql: string;
}

/** The table where an import waits until all of it has come. */
export const IMPORT_TABLE = "hapax_import";

/** Tables first, then what needs them. Without what SQLite and the platform make by themselves. */
export function madeIn(sql: ObjectSql): readonly Made[] {
  const rows = objectRows(
    sql,
    `SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'
     AND name NOT LIKE '\\_cf\\_%' ESCAPE '\\' AND tbl_name <> ? ORDER BY type <> 'table', rowid`,
    IMPORT_TABLE,
  );
  return rows.map(({ type, name, sql: text }) => ({
    type: String(type),
    name: String(name),
    sql: String(text),
  }));
}

/** The columns of a table that can be written, and what its rows are ordered by. */
export interface TableShape {
  readonly name: string;
  readonly columns: readonly string[];
  /** The name of its hidden number; undefined if a column has it, or if there is none. */
  readonly rowid: string | undefined;
  /** The columns that tell rows apart, in the order of the index. */
  readonly key: readonly string[];
}

/** Throws `unsupported` for what cannot be exported. */
export function shapeOf(sql: ObjectSql, { name, sql: text }: Made): TableShape {
  if (/^\s*CREATE\s+VIRTUAL/i.test(text))
    throw new HapaxError("unsupported", `a virtual table cannot be exported; table=${name}`);
  const infos = objectRows(sql, `PRAGMA table_xinfo(${quotedText(name)})`);
  // Generated columns are hidden, with 2 or 3.
  const columns = infos.filter(({ hidden }) => hidden === 0).map((info) => String(info["name"]));
  const listed = objectRows(sql, "PRAGMA table_list").find((one) => one["name"] === name);
  const key = infos
    .filter(({ pk }) => Number(pk) > 0)
    .toSorted((one, other) => Number(one["pk"]) - Number(other["pk"]))
    .map((info) => String(info["name"]));
  if (listed?.["wr"] === 1) return { name, columns, rowid: undefined, key };
  const lower = new Set(columns.map((column) => column.toLowerCase()));
  const rowid = ["rowid", "_rowid_", "oid"].find((one) => !lower.has(one));
  if (rowid === undefined)
    throw new HapaxError("unsupported", `columns hide the number of its rows; table=${name}`);
  // A column that is the number of its rows: it is written once.
  const [only, ...others] = key;
  if (only !== undefined && others.length === 0) {
    const differing = `SELECT 1 FROM ${quotedName(name)} WHERE ${quotedName(only)} IS NOT ${rowid} LIMIT 1`;
    if (objectRows(sql, differing).length === 0) return { name, columns, rowid: undefined, key };
  }
  return { name, columns, rowid, key: [rowid] };
}

/** SQLite lets an expression be so deep. */
const TYPES_AT_ONCE = 25;

/** Columns with the types of all values, a few joined in each: a result has at most 100 columns. */
export function typeColumns(columns: readonly string[]): readonly string[] {
  const groups: string[] = [];
  for (let at = 0; at < columns.length; at += TYPES_AT_ONCE) {
    const some = columns.slice(at, at + TYPES_AT_ONCE);
    const joined = some.map((column) => `substr(typeof(${quotedName(column)}), 1, 1)`).join(" || ");
    groups.push(`${joined} AS types${groups.length}`);
  }
  return groups;
}

/** The first letters of the types of a row: n, i, r, t, b. */
export function typesOf(row: ObjectRow, columns: readonly string[]): string {
  const groups = Math.ceil(columns.length / TYPES_AT_ONCE);
  return Array.from({ length: groups }, (_, at) => String(row[`types${at}`])).join("");
}

/** A value as a line has it. `exact` reads an integer that JavaScript cannot hold. */
export function lineValue(type: string | undefined, value: unknown, exact: () => string): unknown {
  switch (type) {
    case "i":
      return ["i", Number.isSafeInteger(value) ? String(value) : exact()];
    case "r":
      return ["r", Object.is(value, -0) ? "-0" : String(value)];
    case "b":
      // Cast: the platform gives bytes as an ArrayBuffer.
      return ["b", encodeBase64(new Uint8Array(value as ArrayBuffer))];
    default:
      return value;
  }
}

/** What a value of a line is bound to, and as. */
export function boundValue(value: unknown): { readonly sql: string; readonly value: unknown } {
  if (!Array.isArray(value)) return { sql: "?", value };
  const [type, text] = value as readonly unknown[];
  // A number is bound as a real one, and not all integers are numbers.
  if (type === "i") return { sql: "CAST(? AS INTEGER)", value: text };
  if (type === "r") return { sql: "?", value: Number(text) };
  if (type === "b") return { sql: "?", value: decodeBase64(String(text)) };
  throw new HapaxError("invalid_request", `the export has a value of an unknown type`);
}
