/** The file with the keys that sign URLs: `{ "keys": [{ "id": "…", "secret": "…" }] }`. The first one signs, all verify. */

import { parseUniqueJson } from "../../base/unique-json.ts";
import { urlKeyProblem, type UrlKey } from "./signed-url.ts";

const KEYS_MAX = 20;

/** Parses the text of the file. Throws an error whose text says what is wrong, without a word of the secrets. */
export function parseUrlKeys(text: string): readonly [UrlKey, ...UrlKey[]] {
  const json = parseUniqueJson(text, 4)?.value;
  if (!isObject(json) || !Array.isArray(json["keys"]) || Object.keys(json).length !== 1) {
    throw new Error('it must be JSON: {"keys": [{"id": "...", "secret": "..."}]}');
  }
  const keys = json["keys"].map((entry: unknown, at) => readKey(entry, at));
  const [first, ...others] = keys;
  if (first === undefined || keys.length > KEYS_MAX) {
    throw new Error(`keys must have 1 to ${KEYS_MAX} entries`);
  }
  const ids = new Set(keys.map(({ id }) => id));
  if (ids.size < keys.length) throw new Error("two keys have the same id");
  return [first, ...others];
}

function readKey(entry: unknown, at: number): UrlKey {
  if (!isObject(entry) || !Object.keys(entry).every((name) => name === "id" || name === "secret")) {
    throw new Error(`keys[${at}] must have id and secret, and nothing else`);
  }
  const key = { id: entry["id"], secret: entry["secret"] } as UrlKey; // The check follows.
  const problem = urlKeyProblem(key);
  if (problem !== undefined) throw new Error(`keys[${at}] ${problem}`);
  return key;
}

function isObject(json: unknown): json is Readonly<Record<string, unknown>> {
  return typeof json === "object" && json !== null && !Array.isArray(json);
}
