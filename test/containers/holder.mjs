// Opens a directory as a server does, says what became of it, and holds it until it is killed.
//
//   node test/containers/holder.mjs <directory>

import { openFileStore } from "../../dist/streams/stores/file.js";

try {
  await openFileStore(process.argv[2] ?? "", { segmentBytes: 65_536 });
  console.log("held");
  setInterval(() => undefined, 60_000);
} catch (error) {
  console.log(`${error.code}: ${error.message}`);
}
