/** Parses the target of a request and its host. RFC 9112, 3.2. */

/** Where a request goes. */
export interface RequestTarget {
  /** The path as sent: still percent-encoded, without the query. */
  readonly path: string;
  /** The query as sent, without the question mark. */
  readonly query: string;
  /** The host of the absolute form. It replaces the `Host` header. */
  readonly authority: string | undefined;
}

/** The longest host and port: names have at most 253 characters. */
const AUTHORITY_CHARS_MAX = 262;
const AUTHORITY = /^(?:[A-Za-z0-9._~%-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?$/;

/** Whether a text is a host with an optional port: a name, an IPv4 address, or an IPv6 address in brackets. */
export function isAuthority(text: string): boolean {
  return text.length <= AUTHORITY_CHARS_MAX && AUTHORITY.test(text);
}

/** Reads the origin form (`/path?query`) and the absolute form (`http://host/path?query`); undefined for others. */
export function parseTarget(target: string): RequestTarget | undefined {
  if (target.startsWith("/")) return split(target, undefined);
  const start = schemeEnd(target);
  if (start === undefined) return undefined;
  let end = start;
  while (end < target.length && target[end] !== "/" && target[end] !== "?") end += 1;
  const rest = target.slice(end);
  return split(rest.startsWith("/") ? rest : `/${rest}`, target.slice(start, end));
}

function schemeEnd(target: string): number | undefined {
  const start = target.slice(0, 8).toLowerCase();
  if (start === "https://") return 8;
  return start.startsWith("http://") ? 7 : undefined;
}

function split(text: string, authority: string | undefined): RequestTarget {
  const mark = text.indexOf("?");
  if (mark === -1) return { path: text, query: "", authority };
  return { path: text.slice(0, mark), query: text.slice(mark + 1), authority };
}
