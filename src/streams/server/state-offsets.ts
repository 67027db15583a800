/** `headers.offset` for readers that ask for it: each append with its own end. PROTOCOL.md §7.8. */

import { advance, type Offset } from "../core/types.ts";
import { addStateOffsets } from "../../protocol/state-offset.ts";
import { formatOffset } from "../../protocol/values.ts";

/** The appends of a JSON stream that follow each other from `start` on. */
export function addOffsets(start: Offset, appends: readonly Uint8Array[]): Uint8Array[] {
  let end = start;
  return appends.map((append) => {
    end = advance(end, append.length);
    return addStateOffsets(append, formatOffset(end));
  });
}
