/** Bodies are taken as they are: a compressed one would be stored compressed and served as if it were not. */

import { HapaxError } from "../base/errors.ts";
import type { HeaderGetter } from "./headers.ts";

export function refuseEncoding(header: HeaderGetter): void {
  const encoding = header("content-encoding");
  if (encoding === undefined || encoding.toLowerCase() === "identity") return;
  throw new HapaxError("unsupported_encoding", `Content-Encoding is ${encoding.slice(0, 64)}`);
}
