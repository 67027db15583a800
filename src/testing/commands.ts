/** Commands in one line each, so that a test of the rules or the engine reads as a story. */

import type { AppendCommand } from "../core/append.ts";
import type { CreateCommand } from "../core/create.ts";
import type { ProducerClaim } from "../core/producer.ts";
import { NEVER } from "../core/stream.ts";
import type { Epoch, ProducerId, Sequence, StreamName } from "../core/types.ts";

const encoder = new TextEncoder();
const decoder = new TextDecoder();

export const TEXT = "text/plain";

/**
 * A creation of a text stream without expiry; `parts` changes what it says.
 *
 * ```ts
 * import { createCommand } from "hapax/testing";
 *
 * const command = createCommand("/v1/stream/orders", { isClosed: true });
 * console.assert(command.isClosed && command.data.length === 0);
 * ```
 */
export function createCommand(
  name: string,
  parts: Partial<Omit<CreateCommand, "name" | "data">> & { readonly text?: string } = {},
): CreateCommand {
  const { text = "", ...rest } = parts;
  return {
    name: name as StreamName,
    contentType: TEXT,
    expiry: NEVER,
    isClosed: false,
    fork: undefined,
    ...rest,
    data: encoder.encode(text),
  };
}

/**
 * An append of a text; `parts` adds a producer, a Stream-Seq, a close or another type.
 *
 * ```ts
 * import { appendCommand, producerClaim } from "hapax/testing";
 *
 * const command = appendCommand("paid", { producer: producerClaim("till", 0, 7) });
 * console.assert(command.producer?.sequence === 7);
 * ```
 */
export function appendCommand(
  text: string,
  parts: Partial<Omit<AppendCommand, "data">> = {},
): AppendCommand {
  return {
    contentType: TEXT,
    closes: false,
    producer: undefined,
    streamSeq: undefined,
    ...parts,
    data: encoder.encode(text),
  };
}

/**
 * What a producer says of one append.
 *
 * ```ts
 * import { producerClaim } from "hapax/testing";
 *
 * console.assert(producerClaim("till", 1, 0).epoch === 1);
 * ```
 */
export function producerClaim(id: string, epoch: number, sequence: number): ProducerClaim {
  return { id: id as ProducerId, epoch: epoch as Epoch, sequence: sequence as Sequence };
}

/**
 * The text of appends that were read back.
 *
 * ```ts
 * import { textOf } from "hapax/testing";
 *
 * console.assert(textOf([new TextEncoder().encode("a"), new TextEncoder().encode("b")]) === "ab");
 * ```
 */
export function textOf(appends: readonly Uint8Array[]): string {
  return appends.map((append) => decoder.decode(append)).join("");
}
