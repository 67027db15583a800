/** All routes: one table. The router, the description of the interface and the tests of access read it. */

import { DASHBOARD_ROUTES } from "./dashboard.ts";
import { FRONT_ROUTES } from "./front.ts";
import { describeRoutes } from "./open-api.ts";
import { OWN_ROUTES } from "./own-routes.ts";
import { READ } from "./reads.ts";
import type { ServerAnswer, WholeAnswer } from "./exchange.ts";
import { json } from "./json.ts";
import { readRoute, type Route } from "./route.ts";
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
  ...DASHBOARD_ROUTES,
  readRoute("/_hapax/openapi.json", {
    needs: "nothing",
    summary: "Describes the interface, as an OpenAPI document.",
    handle: showDescription,
  }),
  ...SUBSCRIPTION_ROUTES,
];

let described: WholeAnswer | undefined;

/** Made when it is first asked for: it never changes. */
function showDescription(): ServerAnswer {
  described ??= {
    ...json(200, describeRoutes([...RESERVED_ROUTES, STREAM_ROUTE])),
    mayCompress: true,
  };
  return described;
}
