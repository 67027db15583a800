/**
 * Turns an error into texts that every database can keep. A program can throw anything: values that cannot be made a
 * text, whose members throw when they are read, or whose message has half of a surrogate pair. Reading them here
 * never throws.
 */

/** The texts of an error. `code` only if it is a text. */
export interface ErrorWords {
  readonly name: string;
  readonly message: string;
  readonly code: string | undefined;
}

const NAME_CHARS_MAX = 100;

/** Reads the texts of an error. Keeps at most `messageCharsMax` characters of the message. */
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

/** Calls a handler of errors. If the handler throws, the caller does not notice. */
export function tellSafely(tell: (error: unknown) => unknown, error: unknown): void {
  try {
    const told = tell(error);
    if (told instanceof Promise) told.catch(() => undefined);
  } catch {
    // The handler of errors has failed itself.
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

/** Removes what a database may refuse: NUL, and half characters, also those that the cut makes. */
function storable(text: string, charsMax: number): string {
  return text
    .slice(0, charsMax)
    .replaceAll("\0", "")
    .replaceAll(/\p{Surrogate}/gu, "\ufffd");
}
