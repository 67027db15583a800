/**
 * What a route is: a path, and for each method what the caller needs and who answers. A method without a declared need does
 * not compile.
 */

import type { HapaxError } from "../../base/errors.ts";
import type { Access, AccessSubject } from "../access/access.ts";
import type { Action } from "../access/identity.ts";
import type { Exchange, ServerAnswer } from "./exchange.ts";
import type { ServerParts } from "./parts.ts";
import type { Ticket } from "./quotas.ts";

/** One request on its way to its handler. */
export interface RouteCall {
  readonly exchange: Exchange;
  readonly parts: ServerParts;
  readonly access: Access;
  /** What the request takes of its caller's quotas. Undefined: nothing limits it. */
  readonly ticket: Ticket | undefined;
  /** The parts of the path that the template leaves open, as sent. */
  readonly params: readonly string[];
}

export type RouteMethod = "GET" | "HEAD" | "POST" | "PUT" | "DELETE";

/**
 * What a caller needs. Actions: a grant with one of them; handlers ask for more where the head or the body names more. `nothing`:
 * everybody may. `token`: the token of a wake or a claim, which the handler checks.
 */
export type Need = readonly [Action, ...Action[]] | "nothing" | "token";

export interface RouteOperation {
  readonly needs: Need;
  /** The names in the request's head that the need is about. */
  readonly subject?: (exchange: Exchange, params: readonly string[]) => AccessSubject;
  /** The handler counts it in the rates of the caller. Otherwise the router counts one for each method that can write. */
  readonly countsItself?: true;
  readonly handle: (call: RouteCall) => ServerAnswer | Promise<ServerAnswer>;
}

export interface Route {
  /** Segments in braces are open; one with three dots takes the rest of the path. */
  readonly path: string;
  readonly methods: Readonly<Partial<Record<RouteMethod, RouteOperation>>>;
  /** The value of `Allow`. */
  readonly allow: string;
  /** Is answered also while the server stops. */
  readonly isProbe?: boolean;
  /** How this route shows a refusal. Default: as all others. */
  readonly refuse?: (error: HapaxError) => ServerAnswer;
}

export interface RouteMatch {
  readonly route: Route;
  readonly params: readonly string[];
}

/** Finds the route of a path. */
export class RouteTable {
  readonly #plain = new Map<string, Route>();
  readonly #open: { readonly route: Route; readonly segments: readonly string[] }[] = [];

  constructor(routes: readonly Route[]) {
    for (const route of routes) {
      if (route.path.includes("{")) this.#open.push({ route, segments: route.path.split("/") });
      else this.#plain.set(route.path, route);
    }
  }

  find(path: string): RouteMatch | undefined {
    const plain = this.#plain.get(path);
    if (plain !== undefined) return { route: plain, params: [] };
    const given = path.split("/");
    for (const { route, segments } of this.#open) {
      const params = paramsOf(segments, given);
      if (params !== undefined) return { route, params };
    }
    return undefined;
  }
}

function paramsOf(
  segments: readonly string[],
  given: readonly string[],
): readonly string[] | undefined {
  const params: string[] = [];
  for (const [index, segment] of segments.entries()) {
    const value = given[index];
    if (value === undefined) return undefined;
    if (segment.endsWith("...}")) return [...params, given.slice(index).join("/")];
    if (!segment.startsWith("{")) {
      if (segment !== value) return undefined;
    } else if (value === "") {
      return undefined;
    } else {
      params.push(value);
    }
  }
  return segments.length === given.length ? params : undefined;
}

/** A route that is only read. */
export function readRoute(
  path: string,
  operation: RouteOperation,
  more: Pick<Route, "isProbe"> = {},
): Route {
  const methods = { GET: operation, HEAD: operation };
  return { path, methods, allow: "GET, HEAD, OPTIONS", ...more };
}
