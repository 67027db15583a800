/** Routes as templates, for logs and spans: there are few of them, however many streams there are. */

import { OWN_PREFIX, SUBSCRIPTIONS_PREFIX, TEST_PREFIX } from "../../protocol/reserved.ts";
import { RouteTable } from "./route.ts";
import { RESERVED_ROUTES, STREAM_ROUTE } from "./routes.ts";

const TABLE = new RouteTable(RESERVED_ROUTES);
const PREFIXES = [OWN_PREFIX, SUBSCRIPTIONS_PREFIX, TEST_PREFIX];

/** The template of the route at a path. A reserved path without a route is that of its prefix, with a star. */
export function routeNameOf(path: string): string {
  const known = TABLE.find(path)?.route.path;
  if (known !== undefined) return known;
  const prefix = PREFIXES.find((one) => path.startsWith(one));
  return prefix === undefined ? STREAM_ROUTE.path : `${prefix}*`;
}
