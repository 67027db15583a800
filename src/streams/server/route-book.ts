/**
 * The routes of one server: those of every server, and those of its parts. The router, the log and the description of the interface
 * read them.
 */

import { HapaxError } from "../../base/errors.ts";
import {
  CLUSTER_PATH,
  FOLLOW_PATH,
  METRICS_PATH,
  OWN_PREFIX,
  SUBSCRIPTIONS_PREFIX,
  TEST_PREFIX,
} from "../../protocol/reserved.ts";
import type { ServerAnswer } from "./exchange.ts";
import { FRONT_ROUTES } from "./front.ts";
import { OWN_ROUTES } from "./own-routes.ts";
import { READ } from "./reads.ts";
import { type Route, type RouteMatch, type RouteOperation, RouteTable } from "./route.ts";
import { withoutPart } from "../engine/wings.ts";
import type { PartName, ServerPart } from "./server-part.ts";
import { APPEND, CREATE, DELETE, LOOK } from "./streams.ts";

/** Every path that is not reserved is a stream. */
export const STREAM_ROUTE: Route = {
  path: "/{stream...}",
  methods: { GET: READ, HEAD: LOOK, POST: APPEND, PUT: CREATE, DELETE },
  allow: "GET, POST, PUT, DELETE, HEAD, OPTIONS",
};

const PREFIXES = [OWN_PREFIX, SUBSCRIPTIONS_PREFIX, TEST_PREFIX];

/** The paths of each part, for the refusals of a server without it. */
const PATHS: Readonly<Record<PartName, readonly string[]>> = {
  // Without paths of their own: a server refuses the options that need them.
  access: [],
  compression: [],
  logs: [],
  registries: [],
  dashboard: ["/_hapax/ui", "/_hapax/ui/{rest...}"],
  description: ["/_hapax/openapi.json"],
  observation: [
    METRICS_PATH,
    "/_hapax/metrics",
    "/_hapax/stream",
    "/_hapax/keys",
    "/_hapax/subscriptions",
    "/_hapax/tokens",
    CLUSTER_PATH,
    "/_hapax/backups",
    "/_hapax/backups/{rest...}",
  ],
  followAll: [FOLLOW_PATH],
  groups: ["/_hapax/groups", "/_hapax/groups/{rest...}"],
  retention: ["/_hapax/trim", "/_hapax/retention", "/_hapax/compaction"],
  transactions: ["/_hapax/transactions", "/_hapax/transactions/{rest...}"],
  subscriptions: [`${SUBSCRIPTIONS_PREFIX}{rest...}`],
  // The router knows them only where faults are enabled.
  testFaults: [],
};

export class RouteBook {
  /** Without the routes that only refuse. */
  readonly all: readonly Route[];
  readonly #table: RouteTable;
  readonly #fronts: ReadonlySet<string>;
  readonly #parts: readonly ServerPart[];

  constructor(parts: readonly ServerPart[]) {
    this.#parts = parts;
    this.all = [...FRONT_ROUTES, ...OWN_ROUTES, ...parts.flatMap(({ routes }) => routes.flat())];
    const known = [...this.all, ...refusingRoutes(parts)];
    this.#table = new RouteTable(known);
    this.#fronts = new Set(
      known.map(({ path }) => path).filter((path) => !path.startsWith("/_") && !path.includes("{")),
    );
  }

  /** Whether a path that does not begin as the reserved ones may have a route. */
  isFront(path: string): boolean {
    return this.#fronts.has(path);
  }

  find(path: string): RouteMatch | undefined {
    return this.#table.find(path);
  }

  /** The answer of a part to a path of its own that no route takes. */
  unknown(path: string): ServerAnswer | undefined {
    for (const { unknown } of this.#parts) {
      const answer = unknown?.(path);
      if (answer !== undefined) return answer;
    }
    return undefined;
  }

  /**
   * The template of the route at a path, for logs and spans: there are few of them, however many streams there are. A reserved path
   * without a route is that of its prefix, with a star.
   */
  nameOf(path: string): string {
    const known = this.find(path)?.route.path;
    if (known !== undefined) return known;
    const prefix = PREFIXES.find((one) => path.startsWith(one));
    return prefix === undefined ? STREAM_ROUTE.path : `${prefix}*`;
  }
}

/** A path of a part that is not there must not answer as if it were none, nor become a stream. */
function refusingRoutes(parts: readonly ServerPart[]): Route[] {
  const names = new Set(parts.map(({ name }) => name));
  // The keys of a total record.
  const missing = (Object.keys(PATHS) as PartName[]).filter((name) => !names.has(name));
  return missing.flatMap((name) => {
    const refusing: RouteOperation = {
      needs: "nothing",
      handle: () => {
        if (name === "dashboard") throw new HapaxError("not_found", "this server has no dashboard");
        throw withoutPart(name);
      },
    };
    const methods = {
      GET: refusing,
      HEAD: refusing,
      POST: refusing,
      PUT: refusing,
      DELETE: refusing,
    };
    return PATHS[name].map((path) => ({ path, methods, allow: STREAM_ROUTE.allow }));
  });
}
