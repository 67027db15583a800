/**
 * Where a request goes and what it carries.
 *
 * A stream argument is a name (`orders` is `/v1/stream/orders`), a path, or a full URL. Names and paths
 * are written as people read them: each segment is encoded here, once. The token belongs to the server
 * of `--url`: it is never sent to another origin, so that pasting a URL cannot give it away.
 */

import type { Dynamic } from "../client/options.ts";
import { withoutLastSlashes } from "../protocol/slashes.ts";
import { quote } from "./arguments.ts";
import type { Invocation } from "./command.ts";
import type { Context } from "./context.ts";
import { usageFailure } from "./failure.ts";

const DEFAULT_URL = "http://127.0.0.1:4437";
const STREAM_ROOT = "/v1/stream/";

export interface Target {
  readonly url: string;
  readonly headers: Headers;
  /** Undefined if there is none, if it is for another server, or if `--header` has a credential. */
  readonly token: Dynamic | undefined;
  /** For messages: what the person wrote, or the path of the URL. */
  readonly label: string;
}

export function resolveStream(invocation: Invocation, context: Context, argument: string): Target {
  const base = baseUrl(invocation, context);
  if (/^https?:\/\//i.test(argument)) {
    const url = parseUrl("the stream", argument);
    return target(invocation, context, base, url, decodedPath(url));
  }
  const path = streamPath(argument);
  return target(invocation, context, base, joined(base, path), path);
}

export function resolvePath(invocation: Invocation, context: Context, path: string): Target {
  const base = baseUrl(invocation, context);
  return target(invocation, context, base, joined(base, path), path);
}

/** A route that is encoded already; `label` is for messages. */
export function resolveEncoded(
  invocation: Invocation,
  context: Context,
  route: string,
  label: string,
): Target {
  const base = baseUrl(invocation, context);
  const url = new URL(`${base.origin}${basePath(base)}${route}`);
  return target(invocation, context, base, url, label);
}

/** A route of the server that has the stream, encoded, and the stream's path as a query names it. */
export function resolveRoute(
  invocation: Invocation,
  context: Context,
  argument: string,
  route: string,
): { readonly target: Target; readonly stream: string } {
  const base = baseUrl(invocation, context);
  const { url, label } = resolveStream(invocation, context, argument);
  // The path of --url belongs to a proxy, which removes it; in a full URL such a part cannot be known.
  const isUrl = /^https?:\/\//i.test(argument);
  const place = isUrl ? new URL(url).origin : `${base.origin}${basePath(base)}`;
  // Decoded, as in listings: the query encodes it, once.
  const stream = isUrl ? decodedPath(new URL(url)) : label;
  return { target: target(invocation, context, base, new URL(place + route), label), stream };
}

/** `orders` and `/v1/stream/orders` are the same stream. The answer is decoded, as in listings. */
export function streamPath(argument: string): string {
  const path = argument.startsWith("/") ? argument : `${STREAM_ROOT}${argument}`;
  const segments = path.slice(1).split("/");
  if (argument === "" || segments.some((segment) => segment === "." || segment === "..")) {
    throw usageFailure(`${quote(argument)} is not a stream`, [
      "give a name such as orders, a path such as /v1/stream/orders, or a full URL",
    ]);
  }
  return path;
}

export function encodePath(path: string): string {
  return path
    .split("/")
    .map((segment) => encodeURIComponent(segment))
    .join("/");
}

function joined(base: URL, path: string): URL {
  return new URL(`${base.origin}${basePath(base)}${encodePath(path)}`);
}

function basePath(base: URL): string {
  return withoutLastSlashes(base.pathname);
}

function baseUrl(invocation: Invocation, context: Context): URL {
  const flag = invocation.value("url");
  if (flag !== undefined) return parseUrl("--url", flag);
  const fromEnvironment = context.env["HAPAX_URL"] ?? "";
  return fromEnvironment === "" ? new URL(DEFAULT_URL) : parseUrl("HAPAX_URL", fromEnvironment);
}

function parseUrl(what: string, text: string): URL {
  const refuse = (reason: string) => usageFailure(`${what} is ${quote(text)}: ${reason}`);
  if (!URL.canParse(text)) throw refuse("not a URL such as http://127.0.0.1:4437");
  const url = new URL(text);
  if (url.protocol !== "http:" && url.protocol !== "https:") throw refuse("not http or https");
  if (url.username !== "" || url.password !== "") {
    throw refuse("a URL must not carry a password; use HAPAX_TOKEN or --token-file");
  }
  if (url.search !== "" || url.hash !== "") throw refuse("leave out the part from ? or # on");
  return url;
}

function decodedPath(url: URL): string {
  try {
    return decodeURIComponent(url.pathname);
  } catch {
    // The server judges a bad percent-encoding; here the label is only shown.
    return url.pathname;
  }
}

function target(
  invocation: Invocation,
  context: Context,
  base: URL,
  url: URL,
  label: string,
): Target {
  const headers = new Headers();
  for (const line of invocation.values("header")) {
    const colon = line.indexOf(":");
    if (colon < 1) throw usageFailure(`--header is ${quote(line)}; write it as 'Name: value'`);
    setHeader(headers, line.slice(0, colon).trim(), line.slice(colon + 1).trim());
  }
  const isElsewhere = url.origin !== base.origin || headers.has("Authorization");
  return { url: url.href, headers, token: isElsewhere ? undefined : context.token, label };
}

/** Values are not repeated in the message: they may be secrets. */
function setHeader(headers: Headers, name: string, value: string): void {
  try {
    headers.set(name, value);
  } catch (cause) {
    throw usageFailure(`--header: ${quote(name)} is not a header that can be sent`, [
      `reason: ${cause instanceof Error ? cause.name : "unknown"}`,
    ]);
  }
}
