/**
 * The result of an append: counted while the command runs, printed at its end.
 *
 *   - what is reported as stored was acknowledged; what is unknown is called unknown.
 */

import {
  IDEMPOTENCY_REPLAYED,
  PRODUCER_EPOCH,
  PRODUCER_SEQ_REUSED,
  STREAM_NEXT_OFFSET,
} from "../protocol/header-names.ts";
import type { InputBatch } from "./batches.ts";
import type { Invocation } from "./command.ts";
import type { Context } from "./context.ts";
import { CommandFailure, EXIT } from "./failure.ts";
import { type CliAnswer, refusal, type Retried } from "./http.ts";
import { type AppendIdentity, shellWord } from "./identity.ts";
import type { Source } from "./input.ts";
import type { Target } from "./target.ts";
import { countOf, createPaint, printable } from "./terminal.ts";

export interface AppendTally {
  /** Requests that were answered; the number of the next one. */
  sequence: number;
  /** Acknowledged by the server, in this run or before. */
  records: number;
  bytes: number;
  lastLine: number;
  /** Of them, known to the server before this run sent them. */
  knownRecords: number;
  knownRequests: number;
  nextOffset: string;
  /** The epoch that the server gave a session. */
  epoch: number | undefined;
  /** The batch whose answer is awaited. */
  underWay: InputBatch | undefined;
  wasCutByPause: boolean;
}

export function emptyTally(): AppendTally {
  return {
    sequence: 0,
    records: 0,
    bytes: 0,
    lastLine: 0,
    knownRecords: 0,
    knownRequests: 0,
    nextOffset: "",
    epoch: undefined,
    underWay: undefined,
    wasCutByPause: false,
  };
}

export function count(
  tally: AppendTally,
  identity: AppendIdentity,
  batch: InputBatch | undefined,
  { answer, attempts }: Retried,
): void {
  tally.underWay = undefined;
  tally.sequence += 1;
  tally.nextOffset = answer.header(STREAM_NEXT_OFFSET) ?? tally.nextOffset;
  const epoch = answer.header(PRODUCER_EPOCH);
  if (epoch !== undefined) tally.epoch = Number(epoch);
  if (batch === undefined) return;
  tally.records += batch.records;
  tally.bytes += batch.body.length;
  tally.lastLine = batch.lastLine;
  // Known to a first attempt: it was stored before this run. After a retry it may be ours.
  if (isRepetition(identity, answer) && attempts === 1) {
    tally.knownRecords += batch.records;
    tally.knownRequests += 1;
  }
}

function isRepetition(identity: AppendIdentity, answer: CliAnswer): boolean {
  if (identity.kind === "key") return answer.header(IDEMPOTENCY_REPLAYED) === "true";
  return answer.status === 204;
}

export async function report(
  invocation: Invocation,
  context: Context,
  identity: AppendIdentity,
  closes: boolean,
  tally: AppendTally,
): Promise<void> {
  const { records, bytes, nextOffset, knownRecords, knownRequests } = tally;
  if (invocation.has("json")) {
    const facts = { records, bytes, requests: tally.sequence, knownRecords, knownRequests };
    const { kind: _, ...own } = identity;
    // A session learns its epoch from the server; a key has none.
    const epoch = identity.kind === "session" ? { epoch: tally.epoch } : {};
    const line = JSON.stringify({ ...facts, nextOffset, ...own, ...epoch, closed: closes });
    await context.stdout.write(`${line}\n`);
    return;
  }
  const paint = createPaint(context.stdout, context.env);
  const what = records > 0 ? countOf(records, "record") : countOf(bytes, "byte");
  const isAllKnown = knownRequests > 0 && knownRequests === tally.sequence;
  const verb = isAllKnown ? "already stored" : "appended";
  const some = knownRequests > 0 && !isAllKnown ? `, ${knownWords(tally)} already stored` : "";
  const closed = closes ? ", stream closed" : "";
  const next = nextOffset === "" ? "" : `, next offset ${nextOffset}`;
  await context.stdout.write(`${paint("green", verb)} ${what}${some}${closed}${next}\n`);
}

function knownWords({ knownRecords, knownRequests }: AppendTally): string {
  return knownRecords > 0
    ? `${countOf(knownRecords, "record")} of them`
    : `${countOf(knownRequests, "request")} of them`;
}

function amount({ records, bytes, lastLine }: AppendTally): string {
  const lines = lastLine > 0 ? `, up to line ${String(lastLine)}` : "";
  return records > 0 ? `${countOf(records, "record")}${lines}` : countOf(bytes, "byte");
}

/** What is stored after a failure, and how to go on. `option` is what the same command must add for that. */
export function whatIsStored(
  tally: AppendTally,
  option: string | undefined,
  source: Source["kind"],
): string[] {
  if (tally.underWay === undefined) {
    return tally.sequence === 0 ? [] : [`stored before that: ${amount(tally)}; nothing after`];
  }
  const batch = tally.underWay;
  const unknown =
    batch.records > 0 ? countOf(batch.records, "record") : countOf(batch.body.length, "byte");
  const lines = batch.lastLine > 0 ? `, up to line ${String(batch.lastLine)}` : "";
  const known = tally.sequence === 0 ? "nothing" : amount(tally);
  const again =
    option === undefined
      ? "the same command with the same input"
      : `the same command, the same input, and ${option}`;
  const next =
    tally.wasCutByPause || source === "nothing"
      ? "before you send the rest, read the end of the stream to see whether they are stored"
      : `to finish without duplicates: ${again}`;
  return [`known to be stored: ${known}; unknown: the ${unknown} after that${lines}`, next];
}

/** These say what the stream has, after the look for a duplicate: no attempt of the append was stored. */
const FINAL_CODES: readonly (string | undefined)[] = [
  "tail_moved",
  "key_reused",
  "producer_seq_reused",
];

/** The failure that a refused append means. `expectedTail` is the tail that the request named. */
export function appendRefusal(
  target: Target,
  identity: AppendIdentity,
  { answer, attempts }: Retried,
  expectedTail: string | undefined,
  tally: AppendTally,
): CommandFailure {
  const failure = refusal(target, answer);
  // A refusal of the first attempt is final and nothing of it is stored. After an unanswered attempt
  // only the server's own memory could tell, and most refusals do not speak of it.
  const isFinal = attempts === 1 || FINAL_CODES.includes(failure.problem.code);
  if (isFinal && answer.status < 500) tally.underWay = undefined;
  if (answer.status === 412 && expectedTail !== undefined) {
    return tailMoved(target, answer, expectedTail, failure, tally);
  }
  const newer = answer.header(PRODUCER_EPOCH);
  if (answer.status !== 403 || newer === undefined || identity.kind === "key") return failure;
  const how = identity.kind === "session" ? "a new --session" : `--epoch ${epochAfter(newer)}`;
  return failure.withAdvice([`to take over from it: ${how}`]);
}

/**
 * A server of the public protocol answers 204 to every number that it knows, with any content. Ours adds a header if the
 * content is another one: then the server stored nothing of it.
 */
export function reusedNumber(
  target: Target,
  identity: AppendIdentity,
  { answer }: Retried,
  tally: AppendTally,
): CommandFailure | undefined {
  if (answer.header(PRODUCER_SEQ_REUSED) !== "true") return undefined;
  tally.underWay = undefined;
  const epoch = answer.header(PRODUCER_EPOCH) ?? "0";
  const id = identity.kind === "key" ? "" : ` ${shellWord(identity.producerId)}`;
  return new CommandFailure(
    EXIT.refused,
    `append ${String(tally.sequence)} of producer${id} was stored before with other content: ${target.label}`,
    [
      "the server stored nothing of this append. To append other input, use another --producer,",
      `or start a new epoch of this one with --epoch ${epochAfter(epoch)}`,
    ],
    { code: "producer_seq_reused" },
  );
}

const epochAfter = (epoch: string): string => String(Number(epoch) + 1);

function tailMoved(
  target: Target,
  answer: CliAnswer,
  expectedTail: string,
  { problem }: CommandFailure,
  tally: AppendTally,
): CommandFailure {
  const tail = printable(answer.header(STREAM_NEXT_OFFSET) ?? "");
  const code = problem.code === undefined ? "" : ` ${problem.code}`;
  const where = `${target.label} (412${code})`;
  const now = tail === "" ? "" : `it is ${tail}, `;
  const since = `hapax read ${shellWord(target.label)} --offset ${expectedTail}`;
  const rest =
    tally.lastLine > 0 ? `the rest, from line ${String(tally.lastLine + 1)} on` : "the rest";
  const again =
    tally.sequence === 0
      ? `then decide again, and append with --if-match ${tail}`
      : `then decide again, and append ${rest}, with another identity and --if-match ${tail}`;
  return new CommandFailure(
    EXIT.refused,
    `the tail has moved: ${now}not ${expectedTail}: ${where}`,
    [`see what was appended since: ${since}`, ...(tail === "" ? [] : [again])],
    { ...problem, ...(tail === "" ? {} : { tail }) },
  );
}
