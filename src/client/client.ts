/**
 * `hapax/client`: writes that happen exactly once, and reads that miss and repeat nothing. Runs on every platform with
 * `fetch`, and works with every server of the Durable Streams protocol. It uses the extensions of Hapax if the server
 * has them.
 */

import { Caller } from "./attempt.ts";
import { type ClientOptions, resolveClientOptions } from "./options.ts";
import { Stream } from "./stream.ts";
import { HapaxError } from "../base/error-codes.ts";

export type { ErrorCode } from "../base/errors.ts";
export { HapaxError, isHapaxError } from "../base/error-codes.ts";
export type { Batch, StreamRecord } from "./batches.ts";
export type { CreateOptions } from "./create.ts";
export { AppendFailure } from "./failure.ts";
export type { FollowOptions } from "./follow.ts";
export {
  followAll,
  type FollowAllOptions,
  type FollowedBatch,
  type FollowedSource,
} from "./follow-all.ts";
export { gzipTransport, type GzipTransportOptions } from "./gzip-transport.ts";
export type { ClientOptions } from "./options.ts";
export { ownerTransport } from "./owner-transport.ts";
export { memoryPosition, type PositionStore, storagePosition } from "./positions.ts";
export type { Producer, ProducerOptions } from "./producer.ts";
export type { ReadOptions } from "./reading.ts";
export type { AppendOptions, Stream } from "./stream.ts";
export {
  type ClientAnswer,
  type ClientRequest,
  fetchTransport,
  type Transport,
} from "./transport.ts";
export { SchemaFailure, type StandardSchema, typed, type TypedStream } from "./typed.ts";
export { TrimmedFailure } from "./trimmed.ts";
export { documentVisibility, type Visibility } from "./visibility.ts";

/**
 * Creates the handle of a stream. Sends nothing yet. Throws `invalid_options`. `connect<Order>(…)` gives its records a type.
 *
 * ```ts
 * import { connect } from "hapax/client";
 * import { startNodeServer } from "hapax/node";
 *
 * const server = await startNodeServer({ store: "memory", port: 0 });
 * const stream = connect(`${server.url}/v1/stream/greetings`, {
 *   token: () => "from-your-provider", // Called again when the server answers 401.
 *   retry: { totalMs: 10_000 },
 * });
 * await stream.create({ contentType: "text/plain" });
 * const { offset } = await stream.append("hello");
 * console.assert((await stream.head()).offset === offset);
 * await server.stop();
 * ```
 */
export function connect<T = unknown>(url: string | URL, options: ClientOptions = {}): Stream<T> {
  let href: string;
  try {
    ({ href } = new URL(url));
  } catch (error) {
    throw new HapaxError("invalid_options", `url=${String(url)} is not a URL`, { cause: error });
  }
  return new Stream<T>(new Caller(resolveClientOptions(options, href)), href);
}
