/** Reads the query and the body of a request. What is too long or no text is refused. */

import { BodyPieces } from "../../base/body-pieces.ts";
import { HapaxError } from "../../base/errors.ts";
import { BODY_BYTES_MAX, NAME_CHARS_MAX } from "./limits.ts";

export class ConsoleQuery {
  readonly #values: URLSearchParams;

  constructor(values: URLSearchParams) {
    this.#values = values;
  }

  /** The text of a name; undefined if it is not there, or empty. */
  find(name: string): string | undefined {
    const value = this.#values.get(name) ?? "";
    if (value.length > NAME_CHARS_MAX) throw invalidAsk(`${name} is too long`);
    return value === "" ? undefined : value;
  }

  need(name: string): string {
    const value = this.find(name);
    if (value === undefined) throw invalidAsk(`${name} is missing`);
    return value;
  }

  word<Word extends string>(name: string, words: readonly [Word, ...Word[]]): Word {
    const value = this.find(name) ?? words[0];
    const found = words.find((word) => word === value);
    if (found === undefined) throw invalidAsk(`${name} must be one of ${words.join(", ")}`);
    return found;
  }
}

/** The members of the JSON object of an act. */
export class ActBody {
  readonly #members: Readonly<Record<string, unknown>>;

  constructor(members: Readonly<Record<string, unknown>>) {
    this.#members = members;
  }

  find(name: string): string | undefined {
    const value = Object.hasOwn(this.#members, name) ? this.#members[name] : undefined;
    if (value === undefined) return undefined;
    if (typeof value !== "string" || value === "") throw invalidAsk(`${name} must be a text`);
    return value;
  }

  need(name: string): string {
    const value = this.find(name);
    if (value === undefined) throw invalidAsk(`${name} is missing`);
    return value;
  }

  /** A list of texts. */
  list(name: string, most: number): readonly string[] | undefined {
    const value = Object.hasOwn(this.#members, name) ? this.#members[name] : undefined;
    if (value === undefined) return undefined;
    const texts: readonly unknown[] = Array.isArray(value) ? value : [];
    const kept = texts.filter((text) => typeof text === "string");
    if (kept.length === 0 || kept.length > most || kept.length !== texts.length)
      throw invalidAsk(`${name} must be a list of 1 to ${most} texts`);
    return kept;
  }
}

/** Reads the body of an act. Stops at the first byte that is too much. */
export async function readAct(request: Request): Promise<ActBody> {
  const pieces = new BodyPieces();
  const reader = request.body?.getReader();
  for (;;) {
    const { done, value } = (await reader?.read()) ?? { done: true, value: undefined };
    if (done || value === undefined) break;
    pieces.add(value as Uint8Array);
    if (pieces.bytes <= BODY_BYTES_MAX) continue;
    await reader?.cancel();
    throw new HapaxError("body_too_large", `an act has at most ${BODY_BYTES_MAX} bytes`);
  }
  let parsed: unknown;
  try {
    parsed = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(pieces.whole()));
  } catch {
    throw invalidAsk("the body is no JSON");
  }
  if (typeof parsed !== "object" || parsed === null || Array.isArray(parsed))
    throw invalidAsk("the body must be an object");
  return new ActBody({ ...parsed });
}

export function invalidAsk(message: string): HapaxError {
  return new HapaxError("invalid_request", message);
}
