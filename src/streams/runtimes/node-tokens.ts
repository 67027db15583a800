/**
 * Tokens of an identity provider and signed URLs for `hapax serve`: reads their keys from files, at the start and when they change.
 * PROTOCOL.md §21.6, §21.7.
 */

import { HapaxError } from "../../base/errors.ts";
import { LIMITS } from "../../protocol/all-limits.ts";
import type { Authorize } from "../access/identity.ts";
import { parseKeySet } from "../access/jwks.ts";
import { jwtAuthorize } from "../access/jwt.ts";
import { signedUrlAuthorize, type UrlKey } from "../access/signed-url.ts";
import { parseUrlKeys } from "../access/url-keys.ts";
import { fileState, FileWatch } from "./node-file-watch.ts";
import { withoutQuery } from "../../protocol/origin.ts";
import { readSecretFile, readTrustedFile } from "./node-secret-file.ts";

export interface TokenOptions {
  /** A file, or a URL. Undefined: no tokens of a provider. */
  readonly jwtJwks?: string;
  readonly jwtIssuer?: string;
  readonly jwtAudience?: readonly string[];
  readonly jwtClaim?: string;
  readonly jwtLeewaySeconds?: number;
  /** Undefined: no signed URLs. */
  readonly signingKeysFile?: string;
}

export interface TokenListeners {
  readonly onNote: (note: string) => void;
  readonly onFault: (error: unknown) => void;
}

export interface OpenTokens {
  readonly authorizers: readonly Authorize[];
  close(): void;
}

/** How often the files are looked at. */
const LOOK_SECONDS = 1;

/** Throws `invalid_options` for files that cannot be used. A provider that cannot be reached is no reason not to start. */
export async function openTokens(
  options: TokenOptions,
  listeners: TokenListeners,
): Promise<OpenTokens> {
  const ending = new AbortController();
  const opened = [
    await openProvider(options, listeners, ending.signal),
    await openSignedUrls(options, listeners, ending.signal),
  ];
  return {
    authorizers: opened.filter((one) => one !== undefined),
    close: () => ending.abort(),
  };
}

async function openProvider(
  options: TokenOptions,
  { onNote }: TokenListeners,
  signal: AbortSignal,
): Promise<Authorize | undefined> {
  const { jwtJwks: place, jwtIssuer: issuer = "", jwtAudience: audience = [] } = options;
  if (place === undefined) return undefined;
  const isUrl = /^https?:\/\//i.test(place);
  if (!isUrl) await checkKeySetFile(place);
  onNote(`tokens of ${issuer} are accepted; keys: ${isUrl ? withoutQuery(place) : place}`);
  return jwtAuthorize({
    jwks: isUrl ? place : () => readKeySetFile(place),
    ...(isUrl ? {} : { refreshSeconds: LOOK_SECONDS }),
    issuer,
    audience,
    ...(options.jwtClaim === undefined ? {} : { claim: options.jwtClaim }),
    ...(options.jwtLeewaySeconds === undefined ? {} : { leewaySeconds: options.jwtLeewaySeconds }),
    onNote,
    signal,
  });
}

async function checkKeySetFile(path: string): Promise<void> {
  try {
    parseKeySet(await readKeySetFile(path));
  } catch (error) {
    throw unusable("the key set", path, error);
  }
}

/** Its keys are public. A user who can change them can sign tokens that the server takes. */
function readKeySetFile(path: string): Promise<string> {
  return readTrustedFile(path, LIMITS.jwksBytesMax);
}

async function openSignedUrls(
  { signingKeysFile: path }: TokenOptions,
  { onNote, onFault }: TokenListeners,
  signal: AbortSignal,
): Promise<Authorize | undefined> {
  if (path === undefined) return undefined;
  const state = await fileState([path]);
  let keys: readonly UrlKey[] = await readUrlKeys(path);
  const load = async (): Promise<void> => {
    keys = await readUrlKeys(path);
    onNote(`signed URLs: the keys of ${path} were read again; ids: ${idsOf(keys)}`);
  };
  const watched = { paths: [path], everyMs: LOOK_SECONDS * 1000, isPatient: false, load };
  const watch = new FileWatch({ ...watched, onBroken: onFault }, state);
  signal.addEventListener("abort", () => watch.close(), { once: true });
  onNote(`signed URLs are accepted; keys: ${path}, ids: ${idsOf(keys)}`);
  return signedUrlAuthorize({ keys: () => keys });
}

async function readUrlKeys(path: string): Promise<readonly UrlKey[]> {
  try {
    return parseUrlKeys(await readSecretFile(path));
  } catch (error) {
    throw unusable("the signing keys", path, error);
  }
}

function idsOf(keys: readonly UrlKey[]): string {
  return keys.map(({ id }) => id).join(", ");
}

function unusable(what: string, path: string, cause: unknown): HapaxError {
  const reason = cause instanceof Error ? cause.message : String(cause);
  return new HapaxError("invalid_options", `${what} in ${path} cannot be used: ${reason}`, {
    cause,
  });
}
