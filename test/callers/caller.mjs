/**
 * One call of an operation in a process of its own, so that it can be killed: `node caller.mjs <options as JSON>`.
 * Prints the status of the answer. See fetch.test.ts.
 */

import { createIdempotentFetch } from "../../dist/toolkit/idempotency/fetch.js";
import { fileKeyStore } from "../../dist/toolkit/idempotency/key-file.js";
import { setFailpoint } from "../../dist/base/failpoint.js";

const { url, folder, operation, dieAt } = JSON.parse(process.argv[2] ?? "{}");
setFailpoint((name) => {
  if (name === dieAt) process.kill(process.pid, "SIGKILL");
});
const call = createIdempotentFetch({
  store: fileKeyStore(folder),
  windowMs: 600_000,
  retry: { pauseMs: 10 },
});
const response = await call(operation, url, { json: { operation } });
console.log(response.status);
