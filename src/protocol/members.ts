/**
 * Reads members of JSON objects in the bodies of our own routes. An error names the member that is wrong. Unknown
 * members are ignored, so that later clients can use this server. PROTOCOL.md §19, §20.
 */

import type { StreamName } from "../streams/core/types.ts";
import { HapaxError } from "../base/errors.ts";
import { LIMITS } from "./all-limits.ts";
import { isReserved } from "./reserved.ts";
import { BETWEEN } from "../streams/core/scoped-name.ts";
import { invalid } from "./refusal.ts";
import { encodeStreamPath, parseStreamPath } from "./values.ts";

const utf8 = new TextDecoder("utf-8", { fatal: true });
const encoder = new TextEncoder();
const SURROGATE = /\p{Surrogate}/u;

/** Parses a body. An empty body is an object without members. */
export function parseMembers(body: Uint8Array): Members {
  let value: unknown;
  try {
    value = body.length === 0 ? {} : JSON.parse(utf8.decode(body));
  } catch (cause) {
    throw new HapaxError("invalid_json", "the body is not JSON in UTF-8", { cause });
  }
  return new Members(value, "the body");
}

/** One JSON object. `null` counts as left out, because some clients write it for that. */
export class Members {
  readonly #values: ReadonlyMap<string, unknown>;
  readonly #what: string;

  /** `what` names the object in messages. */
  constructor(value: unknown, what: string) {
    if (typeof value !== "object" || value === null || Array.isArray(value)) {
      throw invalid(what, "is not a JSON object");
    }
    this.#values = new Map(Object.entries(value));
    this.#what = what;
  }

  has(name: string): boolean {
    return this.get(name) !== undefined;
  }

  get(name: string): unknown {
    return this.#values.get(name) ?? undefined;
  }

  names(): readonly string[] {
    return [...this.#values.keys()].filter((name) => this.has(name));
  }

  object(name: string): Members {
    return new Members(this.#require(name), name);
  }

  text(name: string): string {
    const value = this.#require(name);
    if (typeof value !== "string") throw invalid(name, "is not a string");
    // Half of a surrogate pair is no character, and would be stored as another one.
    if (SURROGATE.test(value)) throw invalid(name, "has half of a surrogate pair");
    return value;
  }

  /** The id or name of a group or member. */
  name(name: string): string {
    return checkName(name, this.text(name));
  }

  flag(name: string): boolean {
    const value = this.get(name);
    if (value !== undefined && typeof value !== "boolean") {
      throw invalid(name, "is not true or false");
    }
    return value === true;
  }

  count(name: string, min = 0, max: number = Number.MAX_SAFE_INTEGER): number {
    const value = this.#require(name);
    if (!Number.isSafeInteger(value) || (value as number) < min || (value as number) > max) {
      const until = max === Number.MAX_SAFE_INTEGER ? "2^53-1" : String(max);
      throw invalid(name, `is not a whole number from ${min} to ${until}`);
    }
    return value as number; // The check above proves it.
  }

  path(name: string): StreamName {
    return checkPath(name, this.text(name));
  }

  /** Parses each entry of a list, with its index. */
  list<T>(name: string, parse: (entry: unknown, index: number) => T): readonly T[] {
    const value = this.#require(name);
    if (!Array.isArray(value)) throw invalid(name, "is not an array");
    return value.map((entry: unknown, index) => parse(entry, index));
  }

  #require(name: string): unknown {
    const value = this.get(name);
    if (value === undefined) throw invalid(name, `is missing in ${this.#what}`);
    return value;
  }
}

/** Checks the path of a stream in a body: absolute, and not percent-encoded. */
export function checkPath(field: string, text: string): StreamName {
  if (!text.startsWith("/")) throw invalid(field, "is not an absolute path");
  // A character has at least one byte, so a longer text needs no further check.
  if (text.length > LIMITS.pathBytesMax) {
    throw invalid(field, `is longer than ${LIMITS.pathBytesMax} bytes`);
  }
  if (SURROGATE.test(text)) throw invalid(field, "has half of a surrogate pair");
  // Parsed like the path of a request, so that the same rules hold. A `%` that is left belongs to the name.
  const path = parseStreamPath(encodeStreamPath(text as StreamName));
  if (path.kind === "invalid") throw invalid(field, `is not the path of a stream: ${path.reason}`);
  if (isReserved(path.name)) throw invalid(field, "is a reserved path");
  return path.name;
}

export function checkName(field: string, text: string): string {
  const max = LIMITS.groupIdBytesMax;
  if (text === "" || encoder.encode(text).length > max) {
    throw invalid(field, `has not 1 to ${max} bytes`);
  }
  if (text.includes(BETWEEN)) throw invalid(field, "has a NUL");
  return text;
}
