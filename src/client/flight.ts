/**
 * One batch on its way: what it carries, and what an answer to it means. What follows from that for the line is
 * in sender.ts, and so are the invariants.
 */

import { HapaxError, isHapaxError } from "../base/errors.ts";
import { refusalIn } from "./attempt.ts";
import { type Deferred, errorOf } from "./deferred.ts";
import type { Backlog, BatchLimits, Receipt } from "./batching.ts";
import { given } from "./create.ts";
import { numberOf, producerStateOf } from "./head.ts";
import { bodyOf, type Entry, sizeOf } from "./entries.ts";
import type { Identity } from "./identity.ts";
import type { Peer } from "./peer.ts";
import type { Codec } from "./records.ts";
import type { ClientAnswer } from "./transport.ts";

/** Seconds that the server may hold a batch for its predecessor: a lost one is sent again sooner. */
const PATIENCE_SECONDS_MAX = 5;

/** The number of a batch is that of other data. */
export const SEQ_REUSED = "producer_seq_reused";

export interface Batch {
  readonly sequence: number;
  readonly entries: readonly Entry[];
  /** What they count as held. */
  readonly heldBytes: number;
  /** One for all attempts. */
  readonly body: Uint8Array | undefined;
  headers?: Readonly<Record<string, string>>;
  /** Resolves when this batch is neither sent nor waited for any more. */
  readonly done: Deferred<void>;
  /** One for each batch: a signal with many listeners is taken for a leak. */
  readonly abort: AbortController;
  /** An attempt got no answer, or one that leaves its outcome open. */
  wasLost: boolean;
  receipt?: Receipt;
  hasEnded: boolean;
}

/** What an answer means: stored, or an error. */
export interface Verdict {
  readonly receipt?: Receipt;
  readonly error?: HapaxError;
  /** What the server said of the stream's end. */
  readonly tail?: string | undefined;
}

/**
 * BQ2, SD7. The records of the next batch, and their bytes or what is wrong with them. Less than twice `accepted`
 * bytes are cut down to these.
 */
export function takeBatch(
  backlog: Backlog,
  limits: BatchLimits,
  codec: Codec | undefined,
  accepted: number,
): { entries: readonly Entry[]; body?: Uint8Array | undefined; error?: HapaxError } {
  let { bytesMax } = limits;
  for (;;) {
    const entries = backlog.take({ ...limits, bytesMax });
    try {
      const body = bodyOf(entries, codec);
      const size = body?.length ?? 0;
      const sizeMax = size > accepted && size < 2 * accepted ? accepted : limits.bytesMax;
      if (size <= sizeMax || entries.length === 1) return { entries, body };
      backlog.putBack(entries);
      // Characters were counted, of which some are more bytes.
      bytesMax = Math.floor((sizeOf(entries) * sizeMax) / size);
    } catch (error) {
      return { entries, error: asHapaxError(error) };
    }
  }
}

/** Gives a batch its headers, or says why it cannot be sent. */
export function dressBatch(
  peer: Peer,
  identity: Identity,
  batch: Batch,
  isPipelined: boolean,
): HapaxError | undefined {
  const { body, sequence } = batch;
  const conditions = conditionsOf(batch);
  if (!identity.isSession && conditions?.["If-Match"] !== undefined) {
    return new HapaxError("unsupported", "no If-Match at this server");
  }
  // Well below the time limit of an attempt, so that what is held has an answer, and not an unknown outcome.
  const { timeoutMs } = peer.caller.settings;
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

/** The conditions of a batch, which then is one record. */
export function conditionsOf({ entries }: Batch): Entry["conditions"] {
  return entries[0]?.conditions;
}

/** Sends a batch until it has an answer. */
export async function askServer(peer: Peer, identity: Identity, batch: Batch): Promise<Verdict> {
  const { body, headers = {}, abort } = batch;
  const call = { method: "POST", url: peer.url, headers, body, signal: abort.signal };
  const { answer, wasUnknown } = await peer.caller.untilAnswered(call);
  batch.wasLost ||= wasUnknown;
  let error = await refusalIn(answer);
  // A server of the public protocol has no refusal for a number that was used for other data. PROTOCOL.md §5.2.
  if (answer.header("producer-seq-reused") === "true") {
    const message = `sequence=${batch.sequence} has other content`;
    error = new HapaxError(SEQ_REUSED, message, { status: 422 });
  }
  // No attempt of this batch was stored, and none can be.
  if (error?.code === SEQ_REUSED) batch.wasLost = false;
  if (error === undefined) return verdictOf(identity, batch, answer);
  return { error, tail: answer.header("stream-next-offset") };
}

function verdictOf(identity: Identity, batch: Batch, answer: ClientAnswer): Verdict {
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
    // Unless a proxy has sent it twice, it is another life's append that the server knows.
    batch.wasLost = true;
    const message = `epoch=${epoch} was used before`;
    return { error: new HapaxError("producer_fenced", message) };
  }
  const offset = answer.header("stream-next-offset");
  return { receipt: { offset, epoch, sequence, isDuplicate } };
}

/** One last question to the server, which can only turn `unknown` into stored: the last sequence, or -1. */
export async function lastStored(
  peer: Peer,
  identity: Identity | undefined,
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
    return -1; // Not reachable, as before: it stays unknown.
  }
}

/** Refusals that an append which is stored never gets when it is repeated. PROTOCOL.md §4.1. */
export function isFinal(identity: Identity | undefined, { code }: HapaxError): boolean {
  if (identity?.isSession !== true) return false;
  return code === "stream_closed" || code === "tail_moved" || code === "sequence_regression";
}

/** A condition of the append that does not hold, and never will: an If-Match from before the tail. */
export function isOverForGood(
  { code }: HapaxError,
  conditions: Entry["conditions"],
  tail = "",
): boolean {
  if (conditions === undefined) return false;
  if (code === "tail_moved") return (conditions["If-Match"] ?? "") < `"${tail}"`;
  return code === "sequence_regression";
}

/** Refusals that a smaller batch may not get. */
export function isDivisible({ code }: HapaxError): boolean {
  return code === "body_too_large" || code === "invalid_json";
}

/** Whatever ended a batch, as an error with a code. */
export function asHapaxError(error: unknown): HapaxError {
  if (isHapaxError(error)) return error;
  return new HapaxError("producer_closed", errorOf(error).message, { cause: error });
}
