/** `npm run build`: compiles src into dist. */

import { build, install, main } from "./prepare.mjs";

await main(async () => {
  await install();
  await build();
});
