/** Gzip of Node. It compresses one body at a time, so that commits always find free threads in the pool. */

import { promisify } from "node:util";
import { gzip, type ZlibOptions } from "node:zlib";
import { Turns } from "../../base/turns.ts";
import type { Compress } from "../server/policy.ts";

const gzipAsync = promisify<Uint8Array, ZlibOptions, Buffer>(gzip);
const turns = new Turns(1);

export const nodeGzip: Compress = (body) => turns.run(() => gzipAsync(body, { level: 1 }));
