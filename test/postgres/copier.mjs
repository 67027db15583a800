// Copies a store in a process of its own, which a test kills: node test/postgres/copier.mjs <from> <to> <schema>
import { copyBetween } from "../../dist/streams/stores/copy/between.js";

const [, , from, to, schema] = process.argv;
const onProgress = async () => undefined;
console.log("begun");
const options = { schema, durability: "os", leaseMs: 300, onProgress };
console.log(JSON.stringify(await copyBetween({ from, to }, options)));
process.exit(0);
