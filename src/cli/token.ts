/**
 * The token of the commands that talk to a server: from `HAPAX_TOKEN`, or from the file of `--token-file`.
 *
 *   - no argument has a token: every user of the machine can list the arguments of a process;
 *   - a file that other users can open is refused;
 *   - a file is read again when the server refuses its token, so that `hapax tail` goes on after a new one was written;
 *   - no message has the token.
 */

import { open } from "node:fs/promises";
import type { Dynamic } from "../client/options.ts";
import { isBearerToken } from "../client/token.ts";
import { quote } from "./arguments.ts";
import type { Invocation } from "./command.ts";
import type { Context } from "./context.ts";
import { CommandFailure, EXIT, systemCode, usageFailure } from "./failure.ts";

/** More than any token has; a larger file is another file. */
const FILE_BYTES_MAX = 64 * 1024;
/** The permissions of users other than the owner. */
const OTHERS = 0o077;

/** Where a token comes from: an option that names a file, or a variable. */
export interface TokenPlaces {
  readonly option: string;
  readonly variable: string;
}

const OF_URL: TokenPlaces = { option: "token-file", variable: "HAPAX_TOKEN" };

/** Returns the token for the server of `--url`, or from other places. Throws if it cannot be read or sent. */
export async function tokenOf(
  invocation: Invocation,
  context: Context,
  { option, variable }: TokenPlaces = OF_URL,
): Promise<Dynamic | undefined> {
  const path = invocation.value(option);
  if (path !== undefined) {
    const { token, isFile } = await readTokenFile(option, path);
    // A pipe, as of `<(…)`, can be read once.
    return isFile ? async () => (await readTokenFile(option, path)).token : token;
  }
  // An empty variable counts as absent.
  const token = context.env[variable] ?? "";
  return token === "" ? undefined : checked(variable, token);
}

async function readTokenFile(
  option: string,
  path: string,
): Promise<{ readonly token: string; readonly isFile: boolean }> {
  const name = `--${option} ${quote(path)}`;
  try {
    await using file = await open(path);
    const facts = await file.stat();
    const isFile = facts.isFile();
    // Windows has no such bits.
    if (isFile && process.platform !== "win32" && (facts.mode & OTHERS) !== 0) {
      throw usageFailure(`${name} can be opened by other users, so it is not used`, [
        `allow yourself alone: chmod 600 ${quote(path)}; if others may have read it, make a new token`,
      ]);
    }
    const buffer = Buffer.alloc(FILE_BYTES_MAX);
    let length = 0;
    for (;;) {
      const { bytesRead } = await file.read(buffer, length, buffer.length - length);
      length += bytesRead;
      if (bytesRead === 0) break;
    }
    // Editors and `echo` end a file with a line feed.
    const text = buffer.toString("utf8", 0, length).replace(/\r?\n$/, "");
    return { token: checked(name, text), isFile };
  } catch (error) {
    const code = systemCode(error);
    if (code === undefined) throw error;
    const message = `cannot read ${name} (${code})`;
    throw new CommandFailure(EXIT.usage, message, [], { code }, { cause: error });
  }
}

/** The message does not repeat the value. */
function checked(name: string, token: string): string {
  if (isBearerToken(token)) return token;
  throw usageFailure(`${name} has no token that can be sent`, [
    "a token is one line of ASCII characters, without blanks",
  ]);
}

/** What to do about a refusal of the credential; nothing for every other refusal. */
export function accessAdvice(
  { status, code }: { readonly status: number; readonly code?: string | undefined },
  hasToken: boolean,
): readonly string[] {
  if (status === 401 && !hasToken) {
    return ["set HAPAX_TOKEN or give --token-file; make a token with: hapax tokens create"];
  }
  if (status === 401) {
    return [
      "the server does not take this token (any more); make one with: hapax tokens create; then set HAPAX_TOKEN or give --token-file",
    ];
  }
  // Other 403s are about producers and pages. An answer to HEAD has no code.
  if (status === 403 && (code ?? "not_allowed") === "not_allowed") {
    return [
      "use a token that may do this, in HAPAX_TOKEN or --token-file; make one with: hapax tokens create",
    ];
  }
  return [];
}
