/** The bodies of a transaction's appends. The frame around them is protocol/transaction-frame.ts. PROTOCOL.md §19.1. */

import { decodeText, joinBytes, utf8Of } from "../../base/bytes.ts";
import { splitFrame } from "../../protocol/transaction-frame.ts";
import { type Codec, type Encoded, misfit } from "../records.ts";

/** Returns how many operations a frame has. */
export function operationsIn(frame: Uint8Array): number {
  // Cast: this process has encoded it.
  const head = JSON.parse(decodeText(splitFrame(frame).head)) as {
    readonly operations: readonly unknown[];
  };
  return head.operations.length;
}

/** Returns the body of one append; one array for a JSON stream. Throws `invalid_request` for data that does not fit. */
export function frameBodyOf(records: readonly Encoded[], codec: Codec): Uint8Array {
  if (codec.isJson) {
    const texts = records.map(({ form, content }) => {
      if (form !== "json") throw misfit(codec);
      return content;
    });
    return utf8Of(`[${texts.join(",")}]`);
  }
  return joinBytes(records.map((record) => bytesOf(record, codec)));
}

function bytesOf({ form, content }: Encoded, codec: Codec): Uint8Array {
  if (typeof content !== "string") return content;
  // The record may come from before the type was known: then a string is kept as JSON.
  const text: unknown = form === "json" ? JSON.parse(content) : content;
  if (typeof text !== "string" || text === "") throw misfit(codec);
  return utf8Of(text);
}
