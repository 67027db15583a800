/**
 * The API keys of a running server: those of the file, read again when it changes, and the server's own token. A file that can no
 * longer be used is reported, and the keys that were read before stay in force. PROTOCOL.md §21.8.
 */

import { HapaxError } from "../../base/errors.ts";
import { LIMITS } from "../../protocol/all-limits.ts";
import { API_KEY_PREFIX, parseApiKey } from "../access/api-key.ts";
import { apiKeyAuthorize, ApiKeys, serverTokenAuthorize } from "../access/api-keys.ts";
import type { Authorize } from "../access/identity.ts";
import { withShownKeys } from "../access/shown-keys.ts";
import { fileState, FileWatch } from "./node-file-watch.ts";
import { nodeDigest } from "./node-digest.ts";
import { readKeyFile } from "./node-key-file.ts";

export interface KeyFileOptions {
  readonly path: string;
  /** Whether a missing file is refused. Otherwise it is as one without keys. */
  readonly mustExist: boolean;
  /** Gets a line for each key that was added, changed, revoked or removed. */
  readonly onAudit: (line: string) => void;
  readonly onNote: (line: string) => void;
  readonly onFault: (error: unknown) => void;
}

export interface OpenKeys {
  /** Whether there was a file when it was opened. */
  readonly hasFile: boolean;
  readonly authorize: Authorize;
  /** How many keys are in force now. */
  readonly count: () => number;
  /** No longer looks at the file. */
  readonly close: () => void;
}

/** Reads the file, and looks at it from then on. Throws `invalid_options` if it cannot be used. */
export async function openKeys(options: KeyFileOptions): Promise<OpenKeys> {
  const { path, mustExist, onAudit, onNote, onFault } = options;
  const state = await fileState([path]);
  const first = await readKeyFile(path);
  if (first === undefined && mustExist) {
    throw new HapaxError(
      "invalid_options",
      `there is no file ${path}: make a key with hapax tokens create --tokens-file ${path}`,
    );
  }
  const keys = new ApiKeys();
  keys.replace(first ?? []);
  const count = (): number => keys.count(Date.now());
  const watched = {
    paths: [path],
    everyMs: LIMITS.keysCheckMs,
    isPatient: false,
    async load() {
      const records = await readKeyFile(path);
      if (records === undefined) throw new HapaxError("invalid_options", `${path} is gone`);
      for (const change of keys.replace(records)) onAudit(`API keys: ${change}`);
      onNote(`keys: ${path} has changed, ${countedNoun(count(), "key")} in force`);
    },
    onBroken(error: unknown) {
      const why = error instanceof Error ? error.message : String(error);
      const detail = `THE OLD KEYS STAY IN FORCE, also those that were revoked since: ${why}`;
      onFault(new HapaxError("invalid_options", detail, { cause: error }));
    },
  };
  const watch = new FileWatch(watched, state);
  const parts = { digest: nodeDigest, nowMs: () => Date.now() };
  return {
    hasFile: first !== undefined,
    authorize: withShownKeys(apiKeyAuthorize(keys, parts), () => keys.shown()),
    count,
    close: () => {
      watch.close();
    },
  };
}

const TOKEN_CHARS_MIN = 32;
const TOKEN = /^[A-Za-z0-9\-._~+/]+=*$/;

/** An `Authorize` for the one token of the environment. Throws `invalid_options` if it is too weak, without its value. */
export function openServerToken(token: string, name: string): Authorize {
  const refuse = (why: string): HapaxError => new HapaxError("invalid_options", `${name} ${why}`);
  if (token.startsWith(API_KEY_PREFIX) && parseApiKey(token) === undefined) {
    throw refuse(`begins with ${API_KEY_PREFIX} and is no API key: it was cut or mistyped`);
  }
  if (token.length < TOKEN_CHARS_MIN || !TOKEN.test(token)) {
    const rule = "at least 32 letters, digits or characters of -._~+/";
    throw refuse(`must have ${rule}; openssl rand -hex 32 makes one`);
  }
  return serverTokenAuthorize(token, { digest: nodeDigest });
}

export function countedNoun(count: number, noun: string): string {
  return `${String(count)} ${noun}${count === 1 ? "" : "s"}`;
}
