// PROTOCOL.md §1, behind Caddy with the configuration of deploy/proxies.
import { runPublishedSuiteBehind } from "../deploy/proxies-suite.ts";

runPublishedSuiteBehind("Caddy");
