/**
 * One batch on its way: what it carries, and what an answer to it means. What follows from that for the line is
 * in sender.ts, and so are the invariants.
 */

import { HapaxError, isHapaxError } from "../errors.ts";
import { refusalOf } from "./attempt.ts";
import type { Item, Receipt } from "./batching.ts";
import { numberOf } from "./head.ts";
import type { Identity } from "./identity.ts";
import type { Peer } from "./peer.ts";
import { join } from "./records.ts";
import type { ClientAnswer } from "./transport.ts";

/** Seconds that the server may hold a batch for its predecessor: a lost one is sent again sooner. */
const PATIENCE_SECONDS_MAX = 5;

export interface Batch {
  readonly sequence: number;
  readonly items: readonly Item[];
  readonly body: Uint8Array | undefined;
  readonly headers: Readonly<Record<string, string>>;
  /** Ends when this batch is neither sent nor waited for any more. */
  readonly done: Promise<void>;
  readonly finish: () => void;
  /** One for each batch: a signal with many listeners is taken for a leak. */
  readonly abort: AbortController;
  /** An attempt got no answer, or one that leaves its outcome open. */
  wasLost: boolean;
  receipt: Receipt | undefined;
  hasEnded: boolean;
}

export type Verdict =
  | { readonly kind: "stored"; readonly receipt: Receipt }
  | { readonly kind: "gap"; readonly error: HapaxError }
  | { readonly kind: "refused"; readonly error: HapaxError };

/** The bytes and the identity of a batch, made once for all its attempts. */
export function dressBatch(
  peer: Peer,
  identity: Identity,
  items: readonly Item[],
  sequence: number,
  isPipelined: boolean,
): Pick<Batch, "body" | "headers"> {
  const conditions = items[0]?.conditions;
  if (identity.kind === "epoch" && conditions?.["If-Match"] !== undefined) {
    throw new HapaxError("unsupported", "the server does not have If-Match");
  }
  const codec = peer.knownCodec;
  const pieces = items.flatMap(({ piece }) => (piece === undefined ? [] : [piece]));
  const body = codec === undefined || pieces.length === 0 ? undefined : join(pieces, codec);
  // Well below the time limit of an attempt, so that what is held has an answer, and not an unknown outcome.
  const { timeoutMs } = peer.caller.settings;
  const patience = Math.min(PATIENCE_SECONDS_MAX, Math.floor(timeoutMs / 2000));
  const mayWait = identity.kind === "session" && isPipelined && patience > 0;
  const headers = {
    ...identity.headers,
    "Producer-Seq": String(sequence),
    ...(body === undefined ? {} : { "Content-Type": codec?.contentType ?? "" }),
    ...(mayWait ? { Prefer: `wait=${String(patience)}` } : {}),
    ...conditions,
  };
  return { body, headers };
}

/** Sends a batch until it has an answer; `onLost` hears of every attempt that has none. */
export async function askServer(
  peer: Peer,
  identity: Identity,
  batch: Batch,
  onLost: () => void,
): Promise<Verdict> {
  const { body, headers, abort } = batch;
  const call = { method: "POST", url: peer.url, headers, signal: abort.signal };
  const { answer, wasUnknown } = await peer.caller.untilAnswered(
    body === undefined ? call : { ...call, body },
    {
      onRetry: ({ isUnknown }) => {
        batch.wasLost ||= isUnknown;
        if (isUnknown) onLost();
      },
    },
  );
  batch.wasLost ||= wasUnknown;
  if (answer.status !== 200 && answer.status !== 204) {
    const error = await refusalOf(answer);
    return { kind: error.code === "producer_gap" ? "gap" : "refused", error };
  }
  answer.discard();
  return verdictOf(identity, batch, answer);
}

function verdictOf(identity: Identity, batch: Batch, answer: ClientAnswer): Verdict {
  const { sequence } = batch;
  const epoch = numberOf(answer, "producer-epoch");
  const isDuplicate = answer.status === 204 && batch.body !== undefined;
  if (epoch === undefined) {
    batch.wasLost = true;
    const message = "the server took an append and said nothing of its producer";
    return { kind: "refused", error: new HapaxError("unsupported", message) };
  }
  if (isDuplicate && !batch.wasLost && identity.isChosen && sequence === 0) {
    // Unless a proxy has sent it twice, it is another life's append that the server knows.
    batch.wasLost = true;
    const message = `epoch=${String(epoch)} was used before: the append counted as a repetition`;
    return { kind: "refused", error: new HapaxError("producer_fenced", message) };
  }
  const offset = answer.header("stream-next-offset");
  return { kind: "stored", receipt: { offset, epoch, sequence, isDuplicate } };
}

/** Refusals that an append which is stored never gets when it is repeated. PROTOCOL.md §4.1. */
export function isFinal(identity: Identity | undefined, { code }: HapaxError): boolean {
  if (identity?.kind !== "session") return false;
  return code === "stream_closed" || code === "tail_moved" || code === "sequence_regression";
}

/** A condition of the append that does not hold. */
export function isConditional({ code }: HapaxError): boolean {
  return code === "tail_moved" || code === "sequence_regression";
}

/** Refusals that a smaller batch may not get. */
export function isDivisible({ code }: HapaxError): boolean {
  return code === "body_too_large" || code === "invalid_json";
}

/** Whatever ended a batch, as an error with a code. */
export function asHapaxError(error: unknown): HapaxError {
  if (isHapaxError(error)) return error;
  const message = error instanceof Error ? error.message : String(error);
  return new HapaxError("producer_closed", `given up: ${message}`, { cause: error });
}
