/** The failure of a reader whose data was trimmed. PROTOCOL.md §23.2 */

import { HapaxError } from "../base/error-codes.ts";

/**
 * The error `offset_trimmed` of a reader: the data at its offset was removed, by `trim` or by retention.
 *
 * ```ts
 * import { TrimmedFailure } from "hapax/client";
 * import { startNodeServer } from "hapax/node";
 * import { connectServer } from "hapax/processing";
 *
 * const server = await startNodeServer({ store: "memory", port: 0, onAudit: () => undefined });
 * const hapax = connectServer(server.url);
 * const stream = hapax.stream<number>("/v1/stream/orders");
 * await stream.create();
 * const { offset = "" } = await stream.append(1);
 * await stream.append(2);
 * await hapax.trim(stream, offset);
 *
 * const from = "0000000000000000_0000000000000000"; // Where a reader had stopped.
 * try {
 *   await stream.read({ from }).values();
 * } catch (error) {
 *   console.assert(error instanceof TrimmedFailure && error.earliestOffset === offset);
 * }
 * const rest = await stream.read<number>({ from, onTrimmed: "skip" }).values();
 * console.assert(rest.join() === "2");
 * await server.stop();
 * ```
 */
export class TrimmedFailure extends HapaxError {
  /** Where the stream begins now. */
  declare readonly earliestOffset: string;

  constructor(message: string, earliestOffset: string) {
    super("offset_trimmed", message, { status: 410 });
    this.earliestOffset = earliestOffset;
  }
}
