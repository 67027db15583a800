/**
 * One batch on its way: its content, and the meaning of an answer to it. sender.ts has the consequences for the line, and the
 * invariants.
 */

import { HapaxError, isHapaxError } from "../base/error-codes.ts";
import { refusalIn } from "./attempt.ts";
import { type Deferred, errorOf } from "./deferred.ts";
import type { Backlog, BatchLimits, Receipt } from "./batching.ts";
import { given } from "./create.ts";
import { numberOf, producerStateOf, says } from "./head.ts";
import { appendBodyOf, type WaitingRecord, sizeOf } from "./entries.ts";
import type { SenderIdentity } from "./identity.ts";
import type { Peer } from "./peer.ts";
import type { Codec } from "./records.ts";
import type { ClientAnswer } from "./transport.ts";

/** Seconds that the server may hold a batch for its predecessor: a lost one is sent again sooner. */
const PATIENCE_SECONDS_MAX = 5;

/** The code of a batch whose number was used for other data. */
export const SEQ_REUSED = "producer_seq_reused";

export interface SentBatch {
  readonly sequence: number;
  readonly entries: readonly WaitingRecord[];
  /** The bytes that the entries count as held. */
  readonly heldBytes: number;
  /** The same for all attempts. */
  readonly body: Uint8Array | undefined;
  headers?: Readonly<Record<string, string>>;
  /** Resolves when the sender neither sends this batch nor waits for it any more. */
  readonly done: Deferred<void>;
  /** One for each batch: platforms warn of a signal with many listeners as a leak. */
  readonly abort: AbortController;
  /** An attempt got no answer, or one that leaves its outcome open. */
  wasLost: boolean;
  receipt?: Receipt;
  hasEnded: boolean;
}

/** The meaning of an answer: stored, or an error. */
export interface BatchVerdict {
  readonly receipt?: Receipt;
  readonly error?: HapaxError;
  /** The stream's tail, as the server sent it. */
  readonly tail?: string | undefined;
}

/**
 * Takes the records of the next batch, and returns them with their bytes or an error. A batch of more than
 * `accepted` and less than twice as many bytes is cut down to `accepted`.
 */
export function takeBatch(
  backlog: Backlog,
  limits: BatchLimits,
  codec: Codec | undefined,
  accepted: number,
): { entries: readonly WaitingRecord[]; body?: Uint8Array | undefined; error?: HapaxError } {
  let { bytesMax } = limits;
  for (;;) {
    const entries = backlog.take({ ...limits, bytesMax });
    try {
      const body = appendBodyOf(entries, codec);
      const size = body?.length ?? 0;
      const sizeMax = size > accepted && size < 2 * accepted ? accepted : limits.bytesMax;
      if (size <= sizeMax || entries.length === 1) return { entries, body };
      backlog.putBack(entries);
      // The backlog counted characters; some of them have several bytes.
      bytesMax = Math.floor((sizeOf(entries) * sizeMax) / size);
    } catch (error) {
      return { entries, error: asHapaxError(error) };
    }
  }
}

/** Sets the headers of a batch. Returns an error if it cannot be sent. */
export function dressBatch(
  peer: Peer,
  identity: SenderIdentity,
  batch: SentBatch,
  isPipelined: boolean,
): HapaxError | undefined {
  const { body, sequence } = batch;
  const conditions = conditionsOf(batch);
  if (!identity.isSession && conditions?.["If-Match"] !== undefined) {
    return new HapaxError("unsupported", "no If-Match at this server");
  }
  // Well below the time limit of an attempt, so that a held batch gets an answer, and not an unknown outcome.
  const { timeoutMs } = peer.caller.options;
  const patience = Math.min(PATIENCE_SECONDS_MAX, Math.floor(timeoutMs / 2000));
  const mayWait = identity.isSession && isPipelined && patience > 0;
  batch.headers = given({
    ...identity.headers,
    "Producer-Seq": sequence,
    "Content-Type": body && peer.knownCodec?.contentType,
    Prefer: mayWait ? `wait=${patience}` : undefined,
    ...conditions,
  });
  return undefined;
}

/** Returns the conditions of a batch. A batch with conditions has one record. */
export function conditionsOf({ entries }: SentBatch): WaitingRecord["conditions"] {
  return entries[0]?.conditions;
}

/** Sends a batch until it has an answer. */
export async function askServer(
  peer: Peer,
  identity: SenderIdentity,
  batch: SentBatch,
): Promise<BatchVerdict> {
  const { body, headers = {}, abort } = batch;
  const call = { method: "POST", url: peer.url, headers, body, signal: abort.signal };
  const { answer, wasUnknown } = await peer.caller.untilAnswered(call);
  batch.wasLost ||= wasUnknown;
  let error = await refusalIn(answer);
  // A server of the public protocol has no refusal for a number that was used for other data. PROTOCOL.md §5.2.
  if (says(answer, "producer-seq-reused")) {
    const message = `sequence=${batch.sequence} has other content`;
    error = new HapaxError(SEQ_REUSED, message, { status: 422 });
  }
  // No attempt of this batch was stored, and none can be stored later.
  if (error?.code === SEQ_REUSED) batch.wasLost = false;
  if (error === undefined) return verdictOf(identity, batch, answer);
  return { error, tail: answer.header("stream-next-offset") };
}

function verdictOf(identity: SenderIdentity, batch: SentBatch, answer: ClientAnswer): BatchVerdict {
  const { sequence } = batch;
  const epoch = numberOf(answer, "producer-epoch");
  const isDuplicate = answer.status === 204 && batch.body !== undefined;
  if (epoch === undefined) {
    batch.wasLost = true;
    const message = "answer without Producer-Epoch";
    return { error: new HapaxError("unsupported", message) };
  }
  const mayBeUsed = !identity.isSession && !identity.isRandom;
  if (isDuplicate && !batch.wasLost && mayBeUsed && sequence === 0) {
    // Unless a proxy has sent it twice, the server knows an append of an earlier life.
    batch.wasLost = true;
    const message = `epoch=${epoch} was used before`;
    return { error: new HapaxError("producer_fenced", message) };
  }
  const offset = answer.header("stream-next-offset");
  return { receipt: { offset, epoch, sequence, isDuplicate } };
}

/** Asks the server for the last stored sequence; -1 if it cannot. The answer can only turn `unknown` into stored. */
export async function lastStored(
  peer: Peer,
  identity: SenderIdentity | undefined,
  epoch: number | undefined,
): Promise<number> {
  if (epoch === undefined || identity?.isSession !== true) return -1;
  try {
    const headers = { "Producer-Id": identity.id };
    const answer = await peer.caller.once({ method: "HEAD", url: peer.url, headers });
    answer.discard();
    const state = producerStateOf(answer);
    return state?.epoch === epoch ? state.sequence : -1;
  } catch {
    return -1; // The server is still unreachable: the outcome stays unknown.
  }
}

/** Returns whether the refusal proves that nothing was stored: a repetition of a stored append never gets it. §4.1. */
export function isFinal(identity: SenderIdentity | undefined, { code }: HapaxError): boolean {
  if (identity?.isSession !== true) return false;
  return code === "stream_closed" || code === "tail_moved" || code === "sequence_regression";
}

/** Returns whether a condition of the append can never hold again: an If-Match from before the tail. */
export function isOverForGood(
  { code }: HapaxError,
  conditions: WaitingRecord["conditions"],
  tail = "",
): boolean {
  if (conditions === undefined) return false;
  if (code === "tail_moved") return (conditions["If-Match"] ?? "") < `"${tail}"`;
  return code === "sequence_regression";
}

/** Returns whether a smaller batch may be accepted. */
export function isDivisible({ code }: HapaxError): boolean {
  return code === "body_too_large" || code === "invalid_json";
}

/** Returns the error that ended a batch as an error with a code. */
export function asHapaxError(error: unknown): HapaxError {
  if (isHapaxError(error)) return error;
  return new HapaxError("producer_closed", errorOf(error).message, { cause: error });
}
