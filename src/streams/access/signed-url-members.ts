/**
 * The members that a signed URL has in its query, and the text that is signed. PROTOCOL.md §21.7.
 *
 *   - every value has one spelling: no grammar here has a character that a URL would encode;
 *   - a member that looks like one of these, in another case or percent-encoded, is refused and not passed over;
 *   - the text that is signed begins with a version and has one line for each part, and no part can hold a line break.
 */

import { decodePercent } from "../../protocol/values.ts";

export type SignedAction = "read" | "append";

/** What a signed URL says. All of it is signed, with the path. */
export interface SignedMembers {
  readonly action: SignedAction;
  /** Unix time. */
  readonly expiresSeconds: number;
  readonly keyId: string;
  /** The lowest offset to read from, as the server writes offsets. */
  readonly from: string | undefined;
  readonly name: string | undefined;
  /** The only id of a producer that appends may carry. */
  readonly producer: string | undefined;
}

export interface SignedQuery extends SignedMembers {
  /** base64url. */
  readonly signature: string;
}

const VERSION = "hapax-url-1";
const GRAMMARS = {
  "hapax-action": /^(?:read|append)$/,
  "hapax-expires": /^[1-9][0-9]{0,11}$/,
  "hapax-from": /^[0-9]{16}_[0-9]{16}$/,
  "hapax-key": /^[A-Za-z0-9._-]{1,64}$/,
  "hapax-name": /^[A-Za-z0-9._~@-]{1,128}$/,
  "hapax-producer": /^[A-Za-z0-9._~@-]{1,128}$/,
  "hapax-signature": /^[A-Za-z0-9_-]{43}$/,
} as const;

type Member = keyof typeof GRAMMARS;

export const isKeyId = (text: string): boolean => GRAMMARS["hapax-key"].test(text);
export const isSignedProducer = (text: string): boolean => GRAMMARS["hapax-producer"].test(text);
export const isSignedName = (text: string): boolean => GRAMMARS["hapax-name"].test(text);

/** Reads the members of a query. `absent`: it has none of them. `invalid`: it has, and they are not those of a signed URL. */
export function readSigned(query: string): SignedQuery | "absent" | "invalid" {
  const found = new Map<string, string>();
  for (const piece of query.split("&")) {
    const equals = piece.indexOf("=");
    const name = equals === -1 ? piece : piece.slice(0, equals);
    if (!looksSigned(name)) continue;
    const value = equals === -1 ? "" : piece.slice(equals + 1);
    if (!isMember(name) || found.has(name) || !GRAMMARS[name].test(value)) return "invalid";
    found.set(name, value);
  }
  if (found.size === 0) return "absent";
  const action = found.get("hapax-action");
  const [expires, keyId] = [found.get("hapax-expires"), found.get("hapax-key")];
  const signature = found.get("hapax-signature");
  const isWhole = expires !== undefined && keyId !== undefined && signature !== undefined;
  if (!isWhole || (action !== "read" && action !== "append")) return "invalid";
  const producer = found.get("hapax-producer");
  if (producer !== undefined && action !== "append") return "invalid";
  return {
    action,
    expiresSeconds: Number(expires),
    keyId,
    from: found.get("hapax-from"),
    name: found.get("hapax-name"),
    producer,
    signature,
  };
}

/** The query of a signed URL. */
export function writeSigned({ signature, ...members }: SignedQuery): string {
  const { action, expiresSeconds, keyId, from, name, producer } = members;
  return [
    `hapax-action=${action}`,
    `hapax-expires=${expiresSeconds}`,
    ...(from === undefined ? [] : [`hapax-from=${from}`]),
    `hapax-key=${keyId}`,
    ...(name === undefined ? [] : [`hapax-name=${name}`]),
    ...(producer === undefined ? [] : [`hapax-producer=${producer}`]),
    `hapax-signature=${signature}`,
  ].join("&");
}

/** What is signed: the path as it is sent, and all members. */
export function signedText(path: string, members: SignedMembers): string {
  const { action, expiresSeconds, keyId, from = "", name = "", producer = "" } = members;
  return [VERSION, action, path, String(expiresSeconds), from, keyId, name, producer].join("\n");
}

/** In any case, and percent-encoded too: a reader on the way might take it as the member. */
function looksSigned(name: string): boolean {
  return (decodePercent(name) ?? name).trim().toLowerCase().startsWith("hapax-");
}

function isMember(name: string): name is Member {
  return Object.hasOwn(GRAMMARS, name);
}
