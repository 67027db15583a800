/** All routes: one table. The router, the description of the interface and the tests of access read it. */

import { FRONT_ROUTES } from "./front.ts";
import { OWN_ROUTES } from "./own-routes.ts";
import { READ } from "./reads.ts";
import type { Route } from "./route.ts";
import { APPEND, CREATE, DELETE, LOOK } from "./streams.ts";
import { SUBSCRIPTION_ROUTES } from "./subscriptions.ts";

/** Every path that is not reserved is a stream. */
export const STREAM_ROUTE: Route = {
  path: "/{stream...}",
  methods: { GET: READ, HEAD: LOOK, POST: APPEND, PUT: CREATE, DELETE },
  allow: "GET, POST, PUT, DELETE, HEAD, OPTIONS",
};

/** Routes of fixed paths. They come before streams. */
export const RESERVED_ROUTES: readonly Route[] = [
  ...FRONT_ROUTES,
  ...OWN_ROUTES,
  ...SUBSCRIPTION_ROUTES,
];
