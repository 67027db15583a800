// PROTOCOL.md §1, in a Durable Object of workerd.
import { skipWithout, startOnWorkerd, workerdProgram } from "../kits/fetch-hosts.ts";
import { runPublishedSuiteOn } from "./published-suite.ts";

const workerd = workerdProgram();
if (workerd === undefined) skipWithout("workerd");
else runPublishedSuiteOn("fetch in workerd", (longPollMs) => startOnWorkerd(workerd, longPollMs));
