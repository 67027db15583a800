/**
 * Requests to the server that the page came from, with the token that the person has typed in.
 *
 *   - all URLs begin where the script lies, so that the page works below any path;
 *   - the token is in the header of requests and in sessionStorage, and never in a URL.
 */

import { addressOf, type PathLike } from "./address.ts";
import { Refusal, refusalOf } from "./refusal.ts";
import { Shared } from "./store.ts";

/** Where the server begins: two folders above the script, `/_hapax/ui/app.js`. */
export const BASE = new URL("../..", import.meta.url);

const TOKEN_ITEM = "hapax-token";

/** `needed`: the last answer was 401. */
export type Identity = "unknown" | "needed" | "accepted";

export const identity = new Shared<Identity>("unknown");
export const token = new Shared(sessionStorage.getItem(TOKEN_ITEM) ?? "");

export function keepToken(text: string): void {
  if (text === "") sessionStorage.removeItem(TOKEN_ITEM);
  else sessionStorage.setItem(TOKEN_ITEM, text);
  token.set(text);
  identity.set("unknown");
}

export interface CallOptions {
  readonly query?: Readonly<Record<string, string | undefined>>;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | Uint8Array;
  readonly signal?: AbortSignal;
  /** A 401 does not ask for a token: the request works without one too. */
  readonly isQuiet?: boolean;
}

/** Sends a request. Throws a `Refusal` for every answer that is not a success. */
export async function call(
  method: string,
  path: PathLike,
  options: CallOptions = {},
): Promise<Response> {
  const { query, headers = {}, body, signal, isQuiet = false } = options;
  const sent = token.value;
  const authorization = sent === "" ? {} : { Authorization: `Bearer ${sent}` };
  const url = addressOf(BASE, path, query);
  if (url === undefined) throw notSendable();
  let response: Response;
  try {
    response = await fetch(url, {
      method,
      headers: headersOf({ ...headers, ...authorization }),
      cache: "no-store",
      credentials: "same-origin",
      ...(body === undefined ? {} : { body: body as BodyInit }),
      ...(signal === undefined ? {} : { signal }),
    });
  } catch (error) {
    if (signal?.aborted === true || error instanceof Refusal) throw error;
    throw new Refusal(0, "unreachable", "the server does not answer", "The page tries again.");
  }
  if (response.ok || response.status === 304) {
    if (!isQuiet) identity.set("accepted");
    return response;
  }
  // An answer to an older token says nothing of the present one.
  if (response.status === 401 && !isQuiet && sent === token.value) identity.set("needed");
  throw await refusalOf(response);
}

/** Keys, producers and tokens are headers, and a browser sends no header with other letters. */
function headersOf(all: Readonly<Record<string, string>>): Headers {
  try {
    return new Headers(all);
  } catch {
    throw notSendable();
  }
}

function notSendable(): Refusal {
  return new Refusal(
    400,
    "not_sendable",
    "a name, key or token has letters that a request cannot carry",
    "Keys, producers and tokens are printable ASCII; a name is not . or ..",
  );
}

export async function getJson<T>(
  path: PathLike,
  query: CallOptions["query"] = {},
  options: Omit<CallOptions, "query"> = {},
): Promise<T> {
  const response = await call("GET", path, { ...options, query });
  // The server is of the same version as the page.
  return (await response.json()) as T;
}

/** A name that no other act has. `crypto.randomUUID` is only for pages with TLS. */
export function newKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
