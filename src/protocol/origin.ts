/** Origins of web pages, hosts, and which of them mean this machine. Pure: no name is resolved. */

import { isLoopbackAddress } from "./ip-address.ts";
import { isAuthority } from "./target.ts";

/** The host of `host:port` without its port, in lower case, without brackets and without the root's dot. */
export function hostOf(authority: string): string {
  const text = authority.toLowerCase();
  if (text.startsWith("[")) return text.slice(1, Math.max(1, text.indexOf("]")));
  const colon = text.lastIndexOf(":");
  const host = colon === -1 ? text : text.slice(0, colon);
  return host.endsWith(".") ? host.slice(0, -1) : host;
}

/** Whether a host, as `hostOf` returns it, is an address of this machine, `localhost` or a name below it (RFC 6761). */
export function isLoopback(host: string): boolean {
  const name = host.toLowerCase();
  if (name === "localhost" || name.endsWith(".localhost")) return true;
  return isLoopbackAddress(name);
}

/** The `host:port` of an origin such as `https://example.com:8443`; undefined for anything else. */
export function authorityOf(origin: string): string | undefined {
  const text = origin.toLowerCase();
  const start = text.startsWith("http://") ? 7 : text.startsWith("https://") ? 8 : undefined;
  if (start === undefined) return undefined;
  const authority = text.slice(start);
  return isAuthority(authority) ? authority : undefined;
}

/** Whether a text is the origin of a web page as a browser sends it: scheme, host, and a port unless it is the usual one. */
export function isOrigin(text: string): boolean {
  return authorityOf(text) !== undefined && originOf(text) === text.toLowerCase();
}

/** Whether a text is a URL for clients of a server: http or https, without password, query and fragment. */
export function isPublicUrl(text: string): boolean {
  // The parser would also take `http:host`, and drops a lone question mark.
  if (!/^https?:\/\/[^?#]+$/i.test(text) || !URL.canParse(text)) return false;
  const { username, password } = new URL(text);
  return `${username}${password}` === "";
}

/** A URL without what may be a secret in it: its query and its password. For logs. */
export function withoutQuery(url: string): string {
  if (!URL.canParse(url)) return url;
  const { protocol, host, pathname, search } = new URL(url);
  return `${protocol}//${host}${pathname}${search === "" ? "" : "?***"}`;
}

/** The origin of a URL, in lower case. */
export function originOf(url: string): string | undefined {
  return URL.canParse(url) ? new URL(url).origin.toLowerCase() : undefined;
}
