/**
 * Which web pages may call this server, and under which names it answers. It decides before a handler sees the request.
 *
 * A browser sends the requests of every page that a person opens, also to servers on the person's own machine. What it adds
 * tells them apart from those of a program:
 *
 *   - a page of an origin that is not allowed gets nothing: every request with its `Origin` is refused. Its preflight is answered
 *     without `Access-Control-Allow-Origin`, which a browser takes as a refusal.
 *   - a request for a picture, a script or a frame of such a page has no `Origin`. The browser says `Sec-Fetch-Site:
 *     cross-site`, and it is refused. A person who follows a link is not.
 *   - a page can give its own name an address of this machine (DNS rebinding), and is then of the same origin. The name is in `Host`,
 *     so a server that listens on loopback without authentication answers under its own names only.
 *
 * PROTOCOL.md §13.6.
 */

import { HapaxError } from "../../base/errors.ts";
import type { OptionsCheck } from "../../base/options-check.ts";
import {
  authorityOf,
  hostOf,
  isLoopback,
  isOrigin,
  isPublicUrl,
  originOf,
} from "../../protocol/origin.ts";
import type { Exchange } from "./exchange.ts";

export interface DoorOptions {
  /** Origins beside those of this machine, or `*` for every page. */
  readonly corsOrigins: "*" | readonly string[];
  /** The address that the runtime listens on. Undefined: a platform brings the requests. */
  readonly address: string | undefined;
  /** Where clients reach this server, if that was given. */
  readonly publicUrl: string | undefined;
  /**
   * Whether a page may call the server under whose name it was opened, as the dashboard does. Only where requests need a
   * credential: a page that gives its own name the address of the server has none.
   */
  readonly takesOwnOrigin?: boolean;
}

export class Doors {
  readonly #isOpen: boolean;
  readonly #origins: ReadonlySet<string>;
  readonly #takesOwnOrigin: boolean;
  /** Undefined: the server answers under every name. */
  readonly #hosts: ReadonlySet<string> | undefined;
  /** The last authority that was let in: nearly every request has the same one. */
  #known: string | undefined;

  constructor({ corsOrigins, address, publicUrl, takesOwnOrigin = false }: DoorOptions) {
    this.#takesOwnOrigin = takesOwnOrigin;
    this.#isOpen = corsOrigins === "*";
    const listed = corsOrigins === "*" ? [] : corsOrigins;
    const origins = new Set(listed.map((origin) => origin.toLowerCase()));
    const publicOrigin = publicUrl === undefined ? undefined : originOf(publicUrl);
    if (publicOrigin !== undefined) origins.add(publicOrigin);
    this.#origins = origins;
    if (address === undefined || !isLoopback(address)) return;
    const hosts = new Set([address.toLowerCase()]);
    if (publicOrigin !== undefined) hosts.add(hostOf(authorityOf(publicOrigin) ?? ""));
    this.#hosts = hosts;
  }

  /** Whether every page may see every answer, so that answers need not differ by origin. */
  get isOpen(): boolean {
    return this.#isOpen;
  }

  /** Whether a page of this origin may call the server and see its answers. */
  allows(origin: string): boolean {
    if (this.#isOpen) return true;
    if (this.#origins.has(origin.toLowerCase())) return true;
    const authority = authorityOf(origin);
    return authority !== undefined && isLoopback(hostOf(authority));
  }

  /** Refuses a request that a page of another origin makes, or that is for another server. */
  check(exchange: Exchange): void {
    this.#checkHost(exchange.authority);
    if (this.#isOpen || exchange.method === "OPTIONS") return;
    const origin = exchange.header("origin");
    if (origin !== undefined) {
      if (this.#isOwn(origin, exchange.authority)) return;
      if (!this.allows(origin)) throw refusedOrigin(origin);
      return;
    }
    // Browsers send an Origin with every other method.
    const isRead = exchange.method === "GET" || exchange.method === "HEAD";
    if (isRead && exchange.header("sec-fetch-site") === "cross-site" && !isVisit(exchange)) {
      throw refusedOrigin("another site");
    }
  }

  /** The scheme is not compared: a proxy may have ended TLS. */
  #isOwn(origin: string, authority: string | undefined): boolean {
    if (!this.#takesOwnOrigin || authority === undefined) return false;
    return authorityOf(origin)?.toLowerCase() === authority.toLowerCase();
  }

  #checkHost(authority: string | undefined): void {
    const hosts = this.#hosts;
    // Programs of HTTP/1.0 send no Host. Browsers do.
    if (hosts === undefined || authority === undefined || authority === this.#known) return;
    const host = hostOf(authority);
    if (!hosts.has(host) && !isLoopback(host)) {
      throw new HapaxError("host_not_served", `host=${host} is no name of this server`);
    }
    this.#known = authority;
  }
}

/** A person follows a link or types the address: the answer becomes a page of its own, not a part of another. */
function isVisit(exchange: Exchange): boolean {
  const [mode, destination] = [
    exchange.header("sec-fetch-mode"),
    exchange.header("sec-fetch-dest"),
  ];
  return mode === "navigate" && destination === "document";
}

function refusedOrigin(origin: string): HapaxError {
  return new HapaxError("origin_not_allowed", `a page of ${origin} may not call this server`);
}

/** Reports origins that no browser would send. */
export function checkOrigins(origins: "*" | readonly string[], check: OptionsCheck): void {
  if (origins === "*") return;
  for (const origin of origins) {
    if (!isOrigin(origin)) {
      check.problem(
        `corsOrigins=${origin} is not an origin such as https://app.example.com, nor *`,
      );
    }
  }
}

/** Reports a public URL without a scheme: its origin would be `null`, which is that of every sandboxed page. */
export function checkPublicUrl(publicUrl: string | undefined, check: OptionsCheck): void {
  if (publicUrl === undefined || isPublicUrl(publicUrl)) return;
  check.problem(
    `publicUrl=${publicUrl} is not an http or https URL without password, query and fragment`,
  );
}

/** Refuses a server that every client of a network could use. `address` undefined: a platform brings the requests. */
export function checkReach(address: string | undefined, check: OptionsCheck): void {
  if (address !== undefined && isLoopback(address)) return;
  const where = address === undefined ? "the platform's address" : `host=${address}`;
  check.problem(
    `${where} is not an address of this machine, and without authentication every client that reaches it can read, ` +
      "write and delete: listen on 127.0.0.1 behind a proxy that authenticates, or set insecurePublic if you trust the whole network",
  );
}
