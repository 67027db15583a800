/**
 * Turns a history into a ledger: the attempts, the outcome of each record, and where the final reader found it.
 *
 *   - all attempts of a record count together: it must be there if one of them was acknowledged, may be there if
 *     one is unknown, and must not be there if all were refused;
 *   - `earliest` and `latest` are the events between which a record took effect, as far as the answers show.
 */

import type {
  HistoryCall,
  ClaimResult,
  FoundRecord,
  HistoryEvent,
  Ordered,
  ReadResult,
  WrittenCommit,
  WrittenRecord,
} from "./checker-history.ts";

export interface CallAttempt {
  readonly process: string;
  readonly call: HistoryCall;
  /** Indexes of events. NEVER: the attempt has not ended. */
  readonly invokedAt: number;
  endedAt: number;
  outcome: "ok" | "fail" | "unknown";
  code: string | undefined;
  result: ClaimResult | ReadResult | undefined;
}

export interface LedgerRecord {
  readonly stream: string;
  readonly id: string;
  /** The first attempt that was not refused, or else the first one. Undefined: no process asked for the record. */
  attempt: CallAttempt | undefined;
  attempts: number;
  written: WrittenRecord | undefined;
  /** Whether all attempts that were not refused are of one process, and of one producer if they have any. */
  isOfOneProcess: boolean;
  isOfOneProducer: boolean;
  outcome: "ok" | "fail" | "unknown" | "never";
  /** Numbers in the order of invocations: of the first attempt, and of the last that may have counted. */
  firstNumber: number;
  lastNumber: number;
  earliest: number;
  latest: number;
  /** The same as `latest`, but from what readers saw of the other parts of its transaction. */
  latestOfWhole: number;
  /** Index in the final stream. -1: not found. */
  position: number;
  /** The transactions that may have written it. */
  transactions: readonly LedgerTransaction[];
}

export interface LedgerTransaction {
  readonly attempt: CallAttempt;
  readonly id: string | undefined;
  readonly parts: LedgerRecord[];
  readonly commits: readonly WrittenCommit[];
  /** The last check that has looked at it. */
  seenBy: number;
}

export interface LedgerStream {
  readonly name: string;
  readonly byId: Map<string, LedgerRecord>;
  found: readonly FoundRecord[];
  /** The found records, in order. A record that was found twice is in it twice. */
  readonly order: LedgerRecord[];
}

export interface HistoryLedger {
  readonly attempts: readonly CallAttempt[];
  /** Begins and ends in the order of their events. */
  readonly timeline: readonly { readonly attempt: CallAttempt; readonly isEnd: boolean }[];
  readonly streams: ReadonlyMap<string, LedgerStream>;
  readonly transactions: readonly LedgerTransaction[];
  readonly eventCount: number;
}

/** Later than every event. A small integer, because each larger number would cost an allocation. */
export const NEVER = 2 ** 30 - 1;

const NO_TRANSACTIONS: readonly LedgerTransaction[] = [];

/** Compares two offsets or two tokens of one stream and group. */
export function compareOrdered(one: Ordered, other: Ordered): number {
  if (typeof one !== typeof other) {
    throw new TypeError(`${JSON.stringify(one)} and ${JSON.stringify(other)} cannot be compared`);
  }
  return one < other ? -1 : Number(one > other);
}

export function buildLedger(
  events: Iterable<HistoryEvent>,
  final: Readonly<Record<string, readonly FoundRecord[]>>,
): HistoryLedger {
  const { attempts, timeline, eventCount } = readAttempts(events);
  const streams = new Map<string, LedgerStream>();
  const transactions: LedgerTransaction[] = [];
  const writer = new LedgerWriter(streams, transactions);
  for (const attempt of attempts) writer.take(attempt);
  for (const [name, found] of Object.entries(final)) {
    const stream = streamOf(streams, name);
    stream.found = found;
    for (const [position, { id }] of found.entries()) {
      const record = recordOf(stream, id);
      if (record.position < 0) record.position = position;
      stream.order.push(record);
    }
  }
  return { attempts, timeline, streams, transactions, eventCount };
}

function readAttempts(events: Iterable<HistoryEvent>) {
  const attempts: CallAttempt[] = [];
  const timeline: { attempt: CallAttempt; isEnd: boolean }[] = [];
  const open = new Map<number, CallAttempt>();
  let index = 0;
  for (const event of events) {
    if (event.type === "invoke") {
      if (open.has(event.op))
        throw new Error(`event ${index}: operation ${event.op} has begun before`);
      const { process, call } = event;
      const attempt: CallAttempt = {
        process,
        call,
        invokedAt: index,
        endedAt: NEVER,
        outcome: "unknown",
        code: undefined,
        result: undefined,
      };
      open.set(event.op, attempt);
      attempts.push(attempt);
      if (isOfGroup(call)) timeline.push({ attempt, isEnd: false });
    } else {
      const attempt = open.get(event.op);
      if (attempt === undefined)
        throw new Error(`event ${index}: operation ${event.op} is not open`);
      open.delete(event.op);
      attempt.outcome = event.type;
      attempt.endedAt = index;
      if (event.type === "fail") attempt.code = event.code;
      if (event.type === "ok") attempt.result = event.result;
      if (isOfGroup(attempt.call)) timeline.push({ attempt, isEnd: true });
    }
    index += 1;
  }
  return { attempts, timeline, eventCount: index };
}

function isOfGroup(call: HistoryCall): boolean {
  return (
    call.kind === "commit" ||
    call.kind === "claim" ||
    (call.kind === "transaction" && call.commits !== undefined)
  );
}

class LedgerWriter {
  readonly #streams: Map<string, LedgerStream>;
  readonly #transactions: LedgerTransaction[];
  readonly #byId = new Map<string, LedgerTransaction>();
  #shared: readonly LedgerTransaction[] = NO_TRANSACTIONS;
  #number = 0;

  constructor(streams: Map<string, LedgerStream>, transactions: LedgerTransaction[]) {
    this.#streams = streams;
    this.#transactions = transactions;
  }

  take(attempt: CallAttempt): void {
    const { call } = attempt;
    if (call.kind === "append") {
      for (const written of call.records) this.#write(attempt, call.stream, written, undefined);
    }
    if (call.kind !== "transaction") return;
    const transaction = attempt.outcome === "fail" ? undefined : this.#transactionOf(attempt);
    for (const { stream, records } of call.appends) {
      for (const written of records) this.#write(attempt, stream, written, transaction);
    }
  }

  #transactionOf(attempt: CallAttempt): LedgerTransaction | undefined {
    const { call } = attempt;
    if (call.kind !== "transaction") return undefined;
    const partCount = call.appends.reduce((sum, { records }) => sum + records.length, 0);
    const known = call.id === undefined ? undefined : this.#byId.get(call.id);
    if (known?.parts.length === partCount) return known;
    const transaction = {
      attempt,
      id: call.id,
      parts: [],
      commits: call.commits ?? [],
      seenBy: -1,
    };
    if (call.id !== undefined) this.#byId.set(call.id, transaction);
    this.#transactions.push(transaction);
    return transaction;
  }

  /** Returns a list of one, which all records of the transaction share. */
  #alone(transaction: LedgerTransaction): readonly LedgerTransaction[] {
    if (this.#shared[0] !== transaction) this.#shared = [transaction];
    return this.#shared;
  }

  #write(
    attempt: CallAttempt,
    streamName: string,
    written: WrittenRecord,
    transaction: LedgerTransaction | undefined,
  ): void {
    const record = recordOf(streamOf(this.#streams, streamName), written.id);
    const number = this.#number;
    this.#number += 1;
    record.attempts += 1;
    if (attempt.outcome === "fail") {
      if (record.outcome !== "never") return;
      record.attempt = attempt;
      record.written = written;
      record.outcome = "fail";
      return;
    }
    if (record.outcome === "never" || record.outcome === "fail") {
      record.attempt = attempt;
      record.written = written;
      record.outcome = "unknown";
      record.firstNumber = number;
      record.earliest = attempt.invokedAt;
    } else if (record.lastNumber >= 0 && record.attempt === attempt) {
      throw new Error(
        `event ${attempt.invokedAt}: id ${written.id} twice for the stream ${streamName}`,
      );
    }
    if (record.attempt?.process !== attempt.process) record.isOfOneProcess = false;
    if (producerOf(record.attempt) !== producerOf(attempt)) record.isOfOneProducer = false;
    // An attempt that began after an acknowledgement did not move the record.
    if (record.latest > attempt.invokedAt) record.lastNumber = number;
    if (attempt.outcome === "ok") {
      record.outcome = "ok";
      record.latest = Math.min(record.latest, attempt.endedAt);
    }
    if (transaction === undefined || record.transactions.includes(transaction)) return;
    const { transactions } = record;
    record.transactions =
      transactions.length === 0 ? this.#alone(transaction) : [...transactions, transaction];
    transaction.parts.push(record);
  }
}

export function producerOf(attempt: CallAttempt | undefined): string | undefined {
  const call = attempt?.call;
  return call?.kind === "append" || call?.kind === "transaction" ? call.producer : undefined;
}

function streamOf(streams: Map<string, LedgerStream>, name: string): LedgerStream {
  let stream = streams.get(name);
  if (stream === undefined) {
    stream = { name, byId: new Map(), found: [], order: [] };
    streams.set(name, stream);
  }
  return stream;
}

function recordOf(stream: LedgerStream, id: string): LedgerRecord {
  let record = stream.byId.get(id);
  if (record === undefined) {
    record = {
      stream: stream.name,
      id,
      attempt: undefined,
      attempts: 0,
      written: undefined,
      isOfOneProcess: true,
      isOfOneProducer: true,
      outcome: "never",
      firstNumber: -1,
      lastNumber: -1,
      earliest: -1,
      latest: NEVER,
      latestOfWhole: NEVER,
      position: -1,
      transactions: NO_TRANSACTIONS,
    };
    stream.byId.set(id, record);
  }
  return record;
}

/** Describes an attempt, for problems. */
export function tellAttempt({
  process,
  call,
  invokedAt,
  endedAt,
  outcome,
  code,
}: CallAttempt): string {
  const what =
    call.kind === "transaction" && call.id !== undefined ? `transaction ${call.id}` : call.kind;
  const end =
    outcome === "fail" ? `refused (${code ?? ""}) at ${endedAt}` : `acknowledged at ${endedAt}`;
  return `${what} of ${process}, begun at event ${invokedAt}, ${outcome === "unknown" ? "outcome unknown" : end}`;
}

/** Describes a record, for problems. */
export function tellRecord(record: LedgerRecord): string {
  const { stream, id, attempt, attempts, written, position } = record;
  const key = written?.key === undefined ? "" : ` with key ${JSON.stringify(written.key)}`;
  const story = attempt === undefined ? "no attempt wrote it" : tellAttempt(attempt);
  const isAnswered = record.outcome === "ok" && attempt?.outcome !== "ok";
  const more =
    attempts > 1 ? `, ${attempts} attempts${isAnswered ? ", one of them acknowledged" : ""}` : "";
  const found = position < 0 ? "not found" : `found at position ${position}`;
  return `record ${JSON.stringify(id)}${key} of ${stream} (${story}${more}; ${found})`;
}
