/**
 * Names and texts in statements of SQL. Values go as parameters; these are for what can be none, and for statements that are sent
 * together, which PostgreSQL takes without parameters.
 */

import { hexOf } from "../../base/hex.ts";

/** Quotes a name, so that it stands for itself with any characters. */
export function quotedName(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}

/** Quotes a text. */
export function quotedText(text: string): string {
  return `'${text.replaceAll("'", "''")}'`;
}

/** Returns a value as PostgreSQL reads it, with both settings of `standard_conforming_strings`. */
export function literalOf(value: string | number | null | Uint8Array): string {
  if (value === null) return "NULL";
  if (typeof value === "number") return value < 0 ? `(${value})` : String(value);
  if (typeof value !== "string") return ` E'\\\\x${hexOf(value)}'`;
  const quoted = quotedText(value);
  return value.includes("\\") ? ` E${quoted.replaceAll("\\", "\\\\")}` : quoted;
}

/** Returns what stands before the names in a schema. */
export function prefixOf(schema: string | undefined): string {
  return schema === undefined ? "" : `${quotedName(schema)}.`;
}
