/**
 * A sink for pipelines: a stream of another server. The ids of outputs are idempotency keys there.
 * PROTOCOL.md §16.
 *
 *   - the server forgets an id by its age alone, never because many came after it: a stream whose window is full
 *     refuses new ones until the oldest is old enough;
 *   - a stream with another window is refused before anything is written;
 *   - an output is stored as if `stream.append` had been called with it at once.
 */

import { HapaxError } from "../../base/errors.ts";
import { LIMITS } from "../../protocol/limits.ts";
import { utf8Of } from "../../base/bytes.ts";
import { codecOf, encode, JsonText } from "../records.ts";
import type { Stream } from "../stream.ts";
import { keyOf } from "./pipeline-parts.ts";
import type { DeduplicatingSink } from "./pipeline-options.ts";

/** The brackets around a record of JSON. */
const FRAME_BYTES = 2;

/** Options of `streamSink`. All are optional. */
export interface StreamSinkOptions {
  /**
   * How long the stream remembers ids, in seconds. Default 86,400. Choose it longer than a pipeline may ever stand still:
   * when it starts again, it delivers outputs again that were not committed.
   */
  readonly keyWindowSeconds?: number;
  /**
   * The most ids in that time, about 50 bytes of memory each. Beyond it, new outputs wait until older ids are forgotten.
   * Default 10,000,000.
   */
  readonly keyMax?: number;
  /** The media type of the stream. Default `application/json`. */
  readonly contentType?: string;
}

/**
 * Returns a sink that appends outputs to a stream, usually of another server, each under its id. An output is stored once, even
 * if it is delivered several times. Creates the stream if it does not exist. Outputs must be the same in every attempt: other
 * content under a known id throws `key_reused`, and ends the pipeline.
 *
 * ```ts
 * import { startNodeServer } from "hapax/node";
 * import { connectServer, streamSink } from "hapax/processing";
 *
 * const [near, far] = await Promise.all([startNodeServer({ store: "memory", port: 0 }), startNodeServer({ store: "memory", port: 0 })]);
 * const hapax = connectServer(near.url);
 * const orders = hapax.stream("/v1/stream/orders");
 * await orders.create();
 * await orders.append({ id: 1 });
 *
 * const copies = connectServer(far.url).stream("/v1/stream/copies");
 * const pipeline = hapax.pipeline<{ id: number }>({
 *   from: { streams: [orders] },
 *   group: "copy",
 *   sink: streamSink(copies, { keyWindowSeconds: 7 * 86_400 }),
 *   each: (order) => order,
 *   onProgress: () => void pipeline.close(),
 * });
 * await pipeline.run();
 * console.assert((await copies.read().values()).length === 1);
 * await Promise.all([near.stop(), far.stop()]);
 * ```
 */
export function streamSink(stream: Stream, options: StreamSinkOptions = {}): DeduplicatingSink {
  const {
    keyWindowSeconds = 86_400,
    keyMax = 10_000_000,
    contentType = "application/json",
  } = options;
  const codec = codecOf(contentType);
  return {
    deduplicates: true,
    target: stream,
    async prepare() {
      await stream.create({ contentType, keyWindowSeconds, keyMax, keyOverflow: "reject" });
    },
    check(data) {
      const { form, content } = encode(data, codec);
      requireRoom(content);
      // A clone would lose the `toJSON` of a class.
      return form === "json" ? new JsonText(content) : content;
    },
    async write(outputs, { signal, isEnding }) {
      // One after the other: concurrent appends with keys have no order.
      for (const [index, { id, data }] of outputs.entries()) {
        if (index > 0 && isEnding()) return { stored: index };
        await stream.append(data, { key: await keyOf(id), signal });
      }
      return { stored: outputs.length };
    },
  };
}

function requireRoom(content: string | Uint8Array): void {
  const max = LIMITS.bodyBytesMax - FRAME_BYTES;
  // A character is three bytes at most.
  if (content.length * 3 <= max) return;
  const size = typeof content === "string" ? utf8Of(content).length : content.length;
  if (size <= max) return;
  throw new HapaxError("body_too_large", `an output has ${String(size)} bytes`);
}
