// PROTOCOL.md §1, behind nginx with the configuration of deploy/proxies.
import { runPublishedSuiteBehind } from "../deploy/proxies-suite.ts";

runPublishedSuiteBehind("nginx");
