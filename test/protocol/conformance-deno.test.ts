// PROTOCOL.md §1, on Deno.
import { denoProgram, skipShort, skipWithout, startOnDeno } from "../kits/fetch-hosts.ts";
import { runPublishedSuiteOn } from "./published-suite.ts";

const deno = denoProgram();
if (deno === undefined) skipWithout("deno");
else if (!skipShort("Deno")) {
  runPublishedSuiteOn("fetch in Deno", (longPollMs) => startOnDeno(deno, longPollMs));
}
