/**
 * Who may use a server that `hapax serve` runs: clients with an API key of a file, with the one token of the environment, with a token of an
 * identity provider, or with a signed URL. If there is none of these, the server has no authentication. PROTOCOL.md §21.
 */

import { join } from "node:path";
import { HapaxError } from "../../base/errors.ts";
import { LIMITS } from "../../protocol/all-limits.ts";
import { anyOf } from "../access/any-of.ts";
import type { Authorize } from "../access/identity.ts";
import {
  noCredentialText,
  SERVER_TOKEN_VARIABLE,
  TOKENS_FILE_NAME,
} from "../access/key-document.ts";
import { fileState, FileWatch } from "./node-file-watch.ts";
import { countedNoun, type OpenKeys, openKeys, openServerToken } from "./node-keys.ts";
import { openTokens, type TokenOptions } from "./node-tokens.ts";

export interface AccessOptions extends TokenOptions {
  /** Directory of the store. Undefined: in memory. */
  readonly dir?: string;
  /** The file of API keys, which must exist. Default: `tokens.json` in the directory, if there is one. */
  readonly tokensFile?: string;
  /** One token with all rights. */
  readonly serverToken?: string;
  /** Refuses to start where no way to get a credential is configured. Default false. */
  readonly requireAuth?: boolean;
}

export interface AccessListeners {
  readonly onAudit: (line: string) => void;
  readonly onNote: (line: string, level?: "warn") => void;
  readonly onFault: (error: unknown) => void;
}

export interface OpenAccess {
  /** Undefined: no authentication. */
  readonly authorize: Authorize | undefined;
  /** For the operator, once the server listens: a start that fails says only why. */
  readonly warning?: string;
  readonly close: () => void;
}

/** Throws `invalid_options` for files and tokens that cannot be used. */
export async function openAccess(
  options: AccessOptions,
  listeners: AccessListeners,
): Promise<OpenAccess> {
  const { dir, tokensFile, serverToken } = options;
  const own =
    serverToken === undefined ? [] : [openServerToken(serverToken, SERVER_TOKEN_VARIABLE)];
  const path = tokensFile ?? (dir === undefined ? undefined : join(dir, TOKENS_FILE_NAME));
  const mustExist = tokensFile !== undefined;
  const keys = path === undefined ? undefined : await openKeys({ path, mustExist, ...listeners });
  const tokens = await openTokens(options, listeners).catch((error: unknown) => {
    keys?.close();
    throw error;
  });
  const others = [...own, ...tokens.authorizers];
  if (keys?.hasFile !== true && others.length === 0) {
    keys?.close();
    return withoutAuthentication(options, path, listeners);
  }
  const authorizers = [...(keys === undefined ? [] : [keys.authorize]), ...others];
  const line = describe(path, keys, own.length > 0);
  const isShut = others.length === 0 && keys?.count() === 0;
  const advice = isShut ? "; NO CLIENT CAN GET IN, see: hapax tokens create" : "";
  listeners.onNote(`every request needs a credential${line}${advice}`);
  return {
    authorize: anyOf(...authorizers),
    close() {
      keys?.close();
      tokens.close();
    },
  };
}

/** What this file opens. Providers and signed URLs have lines of their own. */
function describe(path: string | undefined, keys: OpenKeys | undefined, hasOwn: boolean): string {
  const file =
    keys?.hasFile === true ? [`${countedNoun(keys.count(), "key")} of ${path ?? ""}`] : [];
  const ways = [...file, ...(hasOwn ? [SERVER_TOKEN_VARIABLE] : [])];
  return ways.length === 0 ? "" : `: ${ways.join(", or ")}`;
}

/** A missing file of keys must not open a server in silence. */
function withoutAuthentication(
  { requireAuth = false }: AccessOptions,
  path: string | undefined,
  listeners: AccessListeners,
): OpenAccess {
  if (requireAuth) throw new HapaxError("invalid_options", noCredentialText(path));
  const close = path === undefined ? () => undefined : watchForFirstKey(path, listeners);
  return { authorize: undefined, warning: NO_AUTHENTICATION, close };
}

const NO_AUTHENTICATION =
  "NO AUTHENTICATION: every client that reaches this server can read, write and delete; " +
  "hapax tokens create makes a key, --require-auth refuses to start without one";

/** A person who makes a first key believes that the server now demands it. The returned function ends the watch. */
function watchForFirstKey(path: string, { onNote, onFault }: AccessListeners): () => void {
  const warn = async (): Promise<void> => {
    if ((await fileState([path])) === "missing") return;
    onNote(`${path} is there now, and THIS SERVER STILL LETS EVERY CLIENT IN: restart it`, "warn");
  };
  const watched = {
    paths: [path],
    everyMs: LIMITS.keysCheckMs,
    isPatient: false,
    load: warn,
    onBroken: onFault,
  };
  const watch = new FileWatch(watched, "missing");
  return () => {
    watch.close();
  };
}
