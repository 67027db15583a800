// PROTOCOL.md §1, behind the exports of a route handler, called as Next.js calls them.
import { skipShort } from "../kits/fetch-hosts.ts";
import { startAsRouteHandler } from "../kits/framework-hosts.ts";
import { runPublishedSuiteOn } from "./published-suite.ts";

if (!skipShort("a route handler")) {
  runPublishedSuiteOn("fetch in a route handler", startAsRouteHandler);
}
