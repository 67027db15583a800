/** `/_hapax/openapi.json`: the description of the interface, of the routes that this server has. PROTOCOL.md §12.8. */

import type { ServerAnswer, WholeAnswer } from "./exchange.ts";
import { json } from "./json.ts";
import { describeRoutes } from "./open-api.ts";
import { readRoute, type Route, type RouteCall } from "./route.ts";
import { type RouteBook, STREAM_ROUTE } from "./route-book.ts";

export const DESCRIPTION_ROUTES: readonly Route[] = [
  readRoute("/_hapax/openapi.json", {
    needs: "nothing",
    handle: showDescription,
  }),
];

const described = new WeakMap<RouteBook, WholeAnswer>();

/** Made when it is first asked for: it never changes. */
function showDescription({ parts: { routes } }: RouteCall): ServerAnswer {
  let answer = described.get(routes);
  if (answer === undefined) {
    answer = { ...json(200, describeRoutes([...routes.all, STREAM_ROUTE])), mayCompress: true };
    described.set(routes, answer);
  }
  return answer;
}
