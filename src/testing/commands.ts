/** Makes commands in one line each, so that a test of the rules or the engine reads as a story. */

import type { AppendCommand } from "../streams/core/append.ts";
import type { CreateCommand } from "../streams/core/create.ts";
import type { KeyClaim } from "../streams/core/keys.ts";
import type { ProducerClaim } from "../streams/core/producer.ts";
import { NEVER_EXPIRES } from "../streams/core/stream.ts";
import type {
  Epoch,
  ProducerId,
  RunId,
  Sequence,
  SessionNonce,
  StreamName,
} from "../streams/core/types.ts";

const encoder = new TextEncoder();
const decoder = new TextDecoder();

export const TEXT = "text/plain";
/** The run of the process that creates the streams of a test. */
export const RUN = 1 as RunId;

/** Makes a creation of a text stream without expiry. `parts` replaces members. */
export function createCommand(
  name: string,
  parts: Partial<Omit<CreateCommand, "name" | "data">> & { readonly text?: string } = {},
): CreateCommand {
  const { text = "", ...rest } = parts;
  return {
    name: name as StreamName,
    contentType: TEXT,
    expiry: NEVER_EXPIRES,
    isClosed: false,
    fork: undefined,
    keys: undefined,
    isNew: false,
    ...rest,
    data: encoder.encode(text),
  };
}

/** Makes an append of a text. `parts` adds a producer, a key, a Stream-Seq, a close or another type. */
export function appendCommand(
  text: string,
  parts: Partial<Omit<AppendCommand, "data">> = {},
): AppendCommand {
  return {
    contentType: TEXT,
    closes: false,
    producer: undefined,
    key: undefined,
    streamSeq: undefined,
    expectedTail: undefined,
    ...parts,
    data: encoder.encode(text),
  };
}

/** Makes the claim of a producer for one append. */
export function producerClaim(id: string, epoch: number, sequence: number): ProducerClaim {
  const numbers = { epoch: epoch as Epoch, sequence: sequence as Sequence };
  return { id: id as ProducerId, ...numbers, session: undefined };
}

/** Makes the claim of a producer for one append of a session. */
export function sessionClaim(id: string, session: string, sequence: number): ProducerClaim {
  const nonce = session as SessionNonce;
  return { id: id as ProducerId, epoch: undefined, sequence: sequence as Sequence, session: nonce };
}

/** Makes a claim of an idempotency key and its content. `parts` makes it a content key or one with a time. */
export function keyClaim(
  key: string,
  content: string,
  parts: Partial<Omit<KeyClaim, "mark">> = {},
): KeyClaim {
  const mark = Uint32Array.from([...wordsOf(`key ${key}`, 4), ...wordsOf(`body ${content}`, 2)]);
  return { isContent: false, timeMs: undefined, ...parts, mark };
}

/** Returns words that differ as those of a digest do. Not safe against a search for equal words. */
function wordsOf(text: string, count: number): number[] {
  return Array.from({ length: count }, (_, word) => {
    let hash = 0x811c_9dc5 + word;
    for (const byte of encoder.encode(text)) hash = Math.imul(hash ^ byte, 0x0100_0193);
    hash = Math.imul(hash ^ (hash >>> 16), 0x85eb_ca6b);
    return (hash ^ (hash >>> 13)) >>> 0;
  });
}

/** Returns the text of appends that were read back. */
export function joinedText(appends: readonly Uint8Array[]): string {
  return appends.map((append) => decoder.decode(append)).join("");
}
