/**
 * What an error says of itself, as texts that every database can keep. Anything can be thrown: also what cannot be made a
 * text, whose members throw when they are read, or whose message has half of a surrogate pair. Reading it never throws.
 */

/** The words of an error. `code` only if it is a text. */
export interface ErrorWords {
  readonly name: string;
  readonly message: string;
  readonly code: string | undefined;
}

const NAME_CHARS_MAX = 100;

/** At most `messageCharsMax` characters of the message. */
export function wordsOfError(error: unknown, messageCharsMax: number): ErrorWords {
  const isObject = typeof error === "object" && error !== null;
  const [name, message, code] = isObject
    ? [memberOf(error, "name"), memberOf(error, "message"), memberOf(error, "code")]
    : [undefined, undefined, undefined];
  return {
    name: storable(typeof name === "string" ? name : "Error", NAME_CHARS_MAX),
    message: storable(message === undefined ? textOf(error) : textOf(message), messageCharsMax),
    code: typeof code === "string" ? storable(code, NAME_CHARS_MAX) : undefined,
  };
}

/** Calls those who want to know of an error. If they throw, that changes nothing for the caller. */
export function tellSafely(tell: (error: unknown) => unknown, error: unknown): void {
  try {
    const told = tell(error);
    if (told instanceof Promise) told.catch(() => undefined);
  } catch {
    // There is no one left to tell.
  }
}

function memberOf(value: object, name: string): unknown {
  try {
    return (value as Readonly<Record<string, unknown>>)[name];
  } catch {
    return undefined;
  }
}

function textOf(value: unknown): string {
  try {
    return String(value);
  } catch {
    return `a ${typeof value} that cannot be read`;
  }
}

/** Not every database keeps a NUL in a text, and UTF-8 has no half characters: also none that the cut makes. */
function storable(text: string, charsMax: number): string {
  return text
    .slice(0, charsMax)
    .replaceAll("\0", "")
    .replaceAll(/\p{Surrogate}/gu, "\ufffd");
}
