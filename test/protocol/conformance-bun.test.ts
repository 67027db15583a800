// PROTOCOL.md §1, on Bun.
import { bunProgram, skipShort, skipWithout, startOnBun } from "../kits/fetch-hosts.ts";
import { runPublishedSuiteOn } from "./published-suite.ts";

const bun = bunProgram();
if (bun === undefined) skipWithout("bun");
else if (!skipShort("Bun")) {
  runPublishedSuiteOn("fetch in Bun", (longPollMs) => startOnBun(bun, longPollMs));
}
