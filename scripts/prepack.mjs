/** `npm pack` and `npm publish` begin with this: a package without `dist` would install, and do nothing. */

import { buildIfNeeded, install, main } from "./prepare.mjs";

await main(async () => {
  await install();
  await buildIfNeeded();
});
