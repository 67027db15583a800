/** Texts of strangers in lines that people and programs read. */

/** Encodes a value as JSON in visible ASCII, so that no text in it can end a line, forge another one or steer a terminal. */
export function asciiJson(value: unknown): string {
  return (JSON.stringify(value) ?? "null").replaceAll(
    /[^ -~]/g,
    (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}
