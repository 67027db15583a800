/** All parts, and all routes: what a server has from which nothing was left out. The tests of access read them. */

import {
  access,
  compression,
  dashboard,
  description,
  followAll,
  groups,
  logs,
  observation,
  registries,
  retention,
  subscriptions,
  testFaults,
  transactions,
} from "./optional-parts.ts";
import { RouteBook } from "./route-book.ts";
import type { ServerPart } from "./server-part.ts";

export { STREAM_ROUTE } from "./route-book.ts";

export const ALL_PARTS: readonly ServerPart[] = [
  access,
  compression,
  logs,
  transactions,
  groups,
  registries,
  retention,
  followAll,
  observation,
  dashboard,
  description,
  subscriptions,
  testFaults,
];

/** Routes of fixed paths. They come before streams. */
export const RESERVED_ROUTES = new RouteBook(ALL_PARTS).all;
