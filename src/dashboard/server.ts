/**
 * Requests to the server that the page came from, with the token that the person has typed in.
 *
 *   - all URLs begin where the script lies, so that the page works below any path;
 *   - the token is in the header of requests and in sessionStorage, and never in a URL.
 */

import { Shared } from "./store.ts";

/** Where the server begins: two folders above the script, `/_hapax/ui/app.js`. */
export const BASE = new URL("../..", import.meta.url);

const TOKEN_ITEM = "hapax-token";

/** What the server answered in place of what was asked for. */
export class Refusal extends Error {
  /** 0: there was no answer. */
  readonly status: number;
  readonly code: string;
  readonly help: string;

  constructor(status: number, code: string, detail: string, help: string) {
    super(detail);
    this.status = status;
    this.code = code;
    this.help = help;
  }
}

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

/** A path such as `/v1/stream/orders`, or its segments, which may have slashes themselves. Encoded here. */
export type PathLike = string | readonly string[];

export function urlOf(path: PathLike, query: CallOptions["query"] = {}): URL {
  const segments = typeof path === "string" ? path.slice(1).split("/") : path;
  const url = new URL(segments.map(encodeURIComponent).join("/"), BASE);
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined) url.searchParams.set(name, value);
  }
  return url;
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
  let response: Response;
  try {
    response = await fetch(urlOf(path, query), {
      method,
      headers: { ...headers, ...authorization },
      cache: "no-store",
      credentials: "same-origin",
      ...(body === undefined ? {} : { body: body as BodyInit }),
      ...(signal === undefined ? {} : { signal }),
    });
  } catch (error) {
    if (signal?.aborted === true) throw error;
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

async function refusalOf(response: Response): Promise<Refusal> {
  const { status } = response;
  const text = await response.text().catch(() => "");
  let problem: Readonly<Record<string, unknown>> = {};
  try {
    const parsed: unknown = JSON.parse(text);
    if (typeof parsed === "object" && parsed !== null) problem = { ...parsed };
  } catch {
    // A proxy answers in its own words.
  }
  const word = (name: string, otherwise: string): string => {
    const value = problem[name];
    return typeof value === "string" ? value : otherwise;
  };
  const detail = word("detail", `the answer is ${String(status)}`);
  return new Refusal(status, word("code", String(status)), detail, word("help", ""));
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
