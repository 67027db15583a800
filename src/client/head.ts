/** Reads the description of a stream from the headers of an answer. PROTOCOL.md §7.7 and §18. */

import type { ClientAnswer } from "./transport.ts";

/** The description of a stream, as `HEAD` returns it. */
export interface StreamHead {
  /** The tail: where the next append goes. Opaque. */
  readonly offset: string;
  /**
   * The id of the stream's life, from its creation to its deletion: a stream that is created again at the path
   * has another one. Only Hapax sends it.
   */
  readonly life: string | undefined;
  readonly contentType: string;
  readonly isClosed: boolean;
  /** How long the stream stays without use, in seconds. */
  readonly ttlSeconds: number | undefined;
  /** The time at which the stream expires, as the server writes it. */
  readonly expiresAt: string | undefined;
  /** How long keys are remembered, if the stream has an option of its own. */
  readonly keyWindowSeconds: number | undefined;
  /** The offset at which the stream begins; older data was trimmed. Only Hapax sends it. */
  readonly earliestOffset: string | undefined;
  /** The rule of retention, as the server writes it. */
  readonly retention: string | undefined;
  /** The key of a changelog, as the server writes it. */
  readonly compactKey: string | undefined;
}

/** The last append of a producer that a stream accepted. */
export interface ProducerHead {
  readonly epoch: number;
  readonly sequence: number;
  /** The offset after that append. */
  readonly offset: string | undefined;
}

export function headOf(answer: ClientAnswer): StreamHead {
  return {
    offset: answer.header("stream-next-offset") ?? "",
    life: answer.header("stream-life"),
    contentType: answer.header("content-type") ?? "",
    isClosed: says(answer, "stream-closed"),
    ttlSeconds: numberOf(answer, "stream-ttl"),
    expiresAt: answer.header("stream-expires-at"),
    keyWindowSeconds: numberOf(answer, "stream-key-window"),
    earliestOffset: answer.header("stream-earliest-offset"),
    retention: answer.header("stream-retention"),
    compactKey: answer.header("stream-compact-key"),
  };
}

export function producerStateOf(answer: ClientAnswer): ProducerHead | undefined {
  const epoch = numberOf(answer, "producer-epoch");
  const sequence = numberOf(answer, "producer-seq");
  if (epoch === undefined || sequence === undefined) return undefined;
  return { epoch, sequence, offset: answer.header("producer-next-offset") };
}

/** Returns a header that is a whole number; else undefined. */
export function numberOf(answer: ClientAnswer, name: string): number | undefined {
  const text = answer.header(name);
  return text !== undefined && /^\d{1,16}$/.test(text) ? Number(text) : undefined;
}

/** Returns whether a header is `true`, in upper or lower case. */
export function says(answer: ClientAnswer, name: string): boolean {
  return answer.header(name)?.toLowerCase() === "true";
}
