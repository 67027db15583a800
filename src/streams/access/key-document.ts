/**
 * The document that holds API keys: JSON with a version and a record for each key. Of a secret it has the SHA-256 alone.
 *
 *     { "version": 1, "keys": [ { "id": …, "name": …, "sha256": …, "createdAt": …, "grants": [ … ] } ] }
 *
 * It is read strictly. A document with an unknown member, an unknown action or a bad pattern is refused as a whole, with the
 * path of each problem. No message holds a value of the document. PROTOCOL.md §21.8.
 */

import { HapaxError } from "../../base/errors.ts";
import { parseUniqueJson } from "../../base/unique-json.ts";
import { parseRfc3339 } from "../../protocol/values.ts";
import { isApiKeyId } from "./api-key.ts";
import {
  type MemberCheck,
  checkGrants,
  checkMembers,
  checkNamespace,
  checkQuotas,
  type Problem,
} from "./check-identity.ts";
import type { Grant, Quotas } from "./identity.ts";

/** The name of the file of keys in the directory of the streams. */
export const TOKENS_FILE_NAME = "tokens.json";

/** The variable of the environment that has the server's own token. */
export const SERVER_TOKEN_VARIABLE = "HAPAX_SERVER_TOKEN";

/** Why a server that requires authentication does not start. `path`: where a file of keys would be. */
export function noCredentialText(path: string | undefined): string {
  const file = path === undefined ? "" : `there is no ${path}; `;
  return (
    `authentication is required, and no credential is configured: ${file}make a key with hapax tokens create, ` +
    `or set ${SERVER_TOKEN_VARIABLE}, --jwt-jwks or --signing-keys-file`
  );
}

/** What is kept of a key. Times are texts such as `2026-11-17T09:00:00.000Z`. */
export interface ApiKeyRecord {
  readonly id: string;
  /** For people, logs and metrics. Two keys may have the same name, such as an old key and the one that replaces it. */
  readonly name: string;
  /** SHA-256 of the secret, in lower-case hexadecimal digits. */
  readonly sha256?: string;
  /** In place of a secret: a name in the client's certificate, or its SHA-256 in lower-case hexadecimal digits. */
  readonly certificate?: string;
  readonly createdAt: string;
  /** From this time on the key is refused as expired. Default: it does not expire. */
  readonly expiresAt?: string;
  readonly grants: readonly Grant[];
  readonly namespace?: string;
  readonly quotas?: Quotas;
  /** The key is refused. */
  readonly revokedAt?: string;
}

/** The keys after a change, and what the change answers. */
export interface KeyChange<T> {
  readonly keys: readonly ApiKeyRecord[];
  readonly answer: T;
}

const VERSION = 1;
const NAME = /^[\w.@-]{1,64}$/;
const DIGEST = /^[0-9a-f]{64}$/;
const CERTIFICATE_NAME = /^[!-~]{1,253}$/;
const PROBLEMS_SHOWN_MAX = 20;
/** The document nests six deep: keys, a key, its grants, a grant, its streams. */
const DEPTH_MAX = 8;

/** What the name of a key may be, in words. */
export const KEY_NAME_RULE = "1 to 64 letters, digits, dots, dashes, underscores or at signs";

/** What the name of a certificate may be, in words. */
export const CERTIFICATE_RULE = "a name of 1 to 253 visible characters, or 64 hexadecimal digits";

export function isCertificateName(text: string): boolean {
  return CERTIFICATE_NAME.test(text);
}

export function isKeyName(text: string): boolean {
  return NAME.test(text);
}

/** Reads a document. `source` names it in messages. Throws `invalid_options` with all problems. */
export function parseKeyDocument(text: string, source: string): readonly ApiKeyRecord[] {
  const problems: string[] = [];
  const json = parseUniqueJson(text, DEPTH_MAX);
  if (json === undefined) problems.push("it is not JSON, or has a member twice");
  else checkDocument(json.value, (problem) => problems.push(problem));
  if (json !== undefined && problems.length === 0) {
    return (json.value as { readonly keys: readonly ApiKeyRecord[] }).keys; // It was just checked.
  }
  const shown = problems.slice(0, PROBLEMS_SHOWN_MAX);
  if (problems.length > shown.length) shown.push(`and ${problems.length - shown.length} more`);
  throw new HapaxError("invalid_options", `${source} cannot be used: ${shown.join("; ")}`);
}

export function encodeKeyDocument(keys: readonly ApiKeyRecord[]): string {
  return `${JSON.stringify({ version: VERSION, keys }, undefined, 2)}\n`;
}

function checkDocument(document: unknown, problem: Problem): void {
  checkMembers(document, "the document", DOCUMENT, ["version", "keys"], problem);
}

const DOCUMENT: Readonly<Record<"version" | "keys", MemberCheck>> = {
  version: (value, at, problem) => {
    if (value !== VERSION) problem(`${at} must be ${VERSION}; this program knows no other`);
  },
  keys: (value, _at, problem) => {
    if (!Array.isArray(value)) {
      problem("keys must be a list");
      return;
    }
    const ids = new Set<unknown>();
    for (const [index, entry] of (value as readonly unknown[]).entries()) {
      checkMembers(entry, `keys[${index}]`, RECORD, REQUIRED, problem);
      const id = typeof entry === "object" && entry !== null && "id" in entry ? entry.id : index;
      if (waysOf(entry) !== 1) {
        problem(`keys[${index}] must have exactly one of sha256 and certificate`);
      }
      if (ids.has(id)) problem(`keys[${index}].id is the id of another key in the list`);
      ids.add(id);
    }
  },
};

/** How many ways there are to prove that one has the key. */
function waysOf(entry: unknown): number {
  if (typeof entry !== "object" || entry === null) return 1; // It is no record at all, and that was reported.
  return Number("sha256" in entry) + Number("certificate" in entry);
}

const REQUIRED = [
  "id",
  "name",
  "createdAt",
  "grants",
] as const satisfies readonly (keyof ApiKeyRecord)[];

const time = text(
  (given) => parseRfc3339(given) !== undefined,
  "a time such as 2026-11-17T09:00:00Z",
);

const RECORD: Readonly<Record<keyof ApiKeyRecord, MemberCheck>> = {
  id: text(isApiKeyId, "12 letters and digits"),
  name: text(isKeyName, KEY_NAME_RULE),
  sha256: text((given) => DIGEST.test(given), "64 hexadecimal digits in lower case"),
  certificate: text((given) => CERTIFICATE_NAME.test(given), CERTIFICATE_RULE),
  createdAt: time,
  expiresAt: time,
  grants: checkGrants,
  namespace: checkNamespace,
  quotas: checkQuotas,
  revokedAt: time,
};

function text(isFit: (given: string) => boolean, rule: string): MemberCheck {
  return (value, at, problem) => {
    if (typeof value !== "string" || !isFit(value)) problem(`${at} must be ${rule}`);
  };
}
