/**
 * `npm start`: from a fresh clone to a running server. Installs and builds if that is needed, then
 * serves in this very process, so that signals and the exit code are the server's own.
 */

import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { buildIfNeeded, install, main } from "./prepare.mjs";
import { root } from "./run.mjs";

const bin = join(root, "dist", "bin.js");

await main(async () => {
  await install();
  await buildIfNeeded();
});
process.argv = [process.argv[0], bin, "serve", ...process.argv.slice(2)];
await import(pathToFileURL(bin).href);
