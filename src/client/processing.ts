/**
 * `hapax/processing`: transactions over several streams, groups of consumers that share streams, pipelines,
 * jobs, and streams in partitions. Runs on every platform with `fetch`. Needs a Hapax server.
 */

import type { ClientOptions } from "./options.ts";
import { Connection } from "./processing/connection.ts";

export type { DeadLetterFilter } from "../base/dead-letter.ts";
export type { Connection } from "./processing/connection.ts";
export type { Consumer, ConsumerOptions } from "./processing/consumer.ts";
export type { DeadLetter, DeadLetters } from "./processing/dead-letter.ts";
export type { Transaction } from "./processing/draft.ts";
export { TransactionFailure } from "./processing/failure.ts";
export type { Group, GroupOptions } from "./processing/group.ts";
export type { JobContext, JobOptions } from "./processing/job-options.ts";
export type { JobWorker } from "./processing/jobs.ts";
export type { LeasedBatch } from "./processing/held.ts";
export type { Partitioned } from "./processing/partitioned.ts";
export { RecordFailure } from "./processing/pipeline-attempts.ts";
export type {
  DeduplicatingSink,
  PipelineContext,
  PipelineOptions,
} from "./processing/pipeline-options.ts";
export { streamSink } from "./processing/pipeline-stream-sink.ts";
export type { Pipeline } from "./processing/pipeline.ts";
export type { Sink, SinkPlace } from "./processing/sink.ts";
export type { PipelineState } from "./processing/state.ts";
export type { TransactionOptions } from "./processing/transactions.ts";

/**
 * Creates the handle of a server. Sends nothing yet. Throws `invalid_options`.
 *
 * ```ts
 * import { startNodeServer } from "hapax/node";
 * import { connectServer } from "hapax/processing";
 *
 * const server = await startNodeServer({ store: "memory", port: 0 });
 * const hapax = connectServer(server.url, { retry: { totalMs: 10_000 } });
 * const { value, offsets } = await hapax.transaction((tx) => {
 *   tx.create("/v1/stream/orders");
 *   tx.append("/v1/stream/orders", { id: 1 });
 *   return "stored";
 * });
 * console.assert(value === "stored" && offsets.has("/v1/stream/orders"));
 * await server.stop();
 * ```
 */
export function connectServer(url: string | URL, options: ClientOptions = {}): Connection {
  return new Connection(url, options);
}
