// PROTOCOL.md §1, behind a route of Hono.
import { skipShort } from "../kits/fetch-hosts.ts";
import { startOnHono } from "../kits/framework-hosts.ts";
import { runPublishedSuiteOn } from "./published-suite.ts";

if (!skipShort("Hono")) runPublishedSuiteOn("fetch in Hono", startOnHono);
