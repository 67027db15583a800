/** Describes thrown values: functions of users may throw any value. */

/** Returns the name and the message of a thrown value. Never throws. */
export function wordsOf(thrown: unknown): { readonly name: string; readonly message: string } {
  try {
    const isObject = typeof thrown === "object" && thrown !== null;
    const name: unknown = isObject && "name" in thrown ? thrown.name : undefined;
    const message: unknown = isObject && "message" in thrown ? thrown.message : undefined;
    return {
      name: typeof name === "string" && name !== "" ? name : "Error",
      message: typeof message === "string" ? message : textOf(thrown),
    };
  } catch {
    return { name: "Error", message: UNSPEAKABLE };
  }
}

const UNSPEAKABLE = "something was thrown that has no text";

function textOf(thrown: unknown): string {
  try {
    return String(thrown);
  } catch {
    return UNSPEAKABLE; // It has no prototype, or its `toString` throws.
  }
}
