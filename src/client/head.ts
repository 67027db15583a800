/** What a stream says of itself, from the headers of an answer. PROTOCOL.md §7.7 and §18. */

import type { ClientAnswer } from "./transport.ts";

/** A stream, as `HEAD` describes it. */
export interface StreamHead {
  /** The tail: where the next append goes. Opaque. */
  readonly offset: string;
  /** Names this life of the path: a stream that is created anew there has another one. Only Hapax says it. */
  readonly life: string | undefined;
  readonly contentType: string;
  readonly isClosed: boolean;
  /** The sliding expiry, in seconds. */
  readonly ttlSeconds: number | undefined;
  /** The absolute expiry, as the server writes it. */
  readonly expiresAt: string | undefined;
  /** How long keys are remembered, if the stream says so itself. */
  readonly keyWindowSeconds: number | undefined;
}

/** What a stream knows of a producer: the last append that it accepted. */
export interface ProducerState {
  readonly epoch: number;
  readonly sequence: number;
  /** Where the stream went on after that append. */
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
  };
}

export function producerStateOf(answer: ClientAnswer): ProducerState | undefined {
  const epoch = numberOf(answer, "producer-epoch");
  const sequence = numberOf(answer, "producer-seq");
  if (epoch === undefined || sequence === undefined) return undefined;
  return { epoch, sequence, offset: answer.header("producer-next-offset") };
}

/** A header that is a whole number, or nothing. */
export function numberOf(answer: ClientAnswer, name: string): number | undefined {
  const text = answer.header(name);
  return text !== undefined && /^\d{1,16}$/.test(text) ? Number(text) : undefined;
}

/** Whether a header says `true`, in any case. */
export function says(answer: ClientAnswer, name: string): boolean {
  return answer.header(name)?.toLowerCase() === "true";
}
