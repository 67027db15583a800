/** Names and texts in statements of SQL. Values go as parameters; these are for what can be none. */

/** Quotes a name, so that it stands for itself with any characters. */
export function quotedName(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}

/** Quotes a text. */
export function quotedText(text: string): string {
  return `'${text.replaceAll("'", "''")}'`;
}

/** Returns what stands before the names in a schema. */
export function prefixOf(schema: string | undefined): string {
  return schema === undefined ? "" : `${quotedName(schema)}.`;
}
