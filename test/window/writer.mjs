/** A process that runs a case of cases.mjs, and is killed at a failpoint: `node writer.mjs <options as JSON>`. */

import { writeSync } from "node:fs";
import { setFailpoint } from "../../dist/testing/failpoints.js";
import * as api from "../../dist/toolkit/window.js";
import { cases, createWorld } from "./cases.mjs";

const { name, store, killAt } = JSON.parse(process.argv[2] ?? "{}");
const objects = store.folder === undefined ? api.s3Objects(store) : api.fileObjects(store.folder);

let reached = 0;
setFailpoint(() => {
  reached += 1;
  if (reached === killAt) process.kill(process.pid, "SIGKILL");
});

// The timers of a case do not keep the process alive.
setInterval(() => undefined, 60_000);

const found = cases.find((one) => one.name === name);
// Written at once: what is acknowledged must be known when the process dies.
const world = createWorld(api, objects, (line) => writeSync(1, `${line}\n`));
await found.run(world);
process.exit(0);
