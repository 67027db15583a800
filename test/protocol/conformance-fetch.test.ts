// PROTOCOL.md §1, on the web platform's Request and Response.
import { skipShort, startOnNode } from "../kits/fetch-hosts.ts";
import { runPublishedSuiteOn } from "./published-suite.ts";

if (!skipShort("Node")) runPublishedSuiteOn("fetch in Node", startOnNode);
