/** The rules about what readers saw, and about whole transactions. Labels: checker.ts. */

import type { Observation, ReadResult } from "./checker-history.ts";
import {
  type CallAttempt,
  type HistoryLedger,
  type LedgerRecord,
  type LedgerStream,
  type LedgerTransaction,
  NEVER,
  tellAttempt,
  tellRecord,
} from "./checker-ledger.ts";
import type { ProblemLog } from "./checker-problems.ts";

interface SeenToTail {
  readonly attempt: CallAttempt;
  readonly stream: string;
  readonly end: number;
}

const BROKEN = -1;

/** Checks LC6, LC9, and LC10 for reads. Updates `latest` from what readers saw. */
export function checkReads(ledger: HistoryLedger, log: ProblemLog): number {
  const readers = new Map<string, Map<string, number>>();
  const toTail: SeenToTail[] = [];
  let reads = 0;
  for (const attempt of ledger.attempts) {
    if (attempt.call.kind !== "read" || attempt.outcome !== "ok") continue;
    reads += 1;
    const { observed } = attempt.result as ReadResult; // A read has this result.
    let reader = readers.get(attempt.process);
    if (reader === undefined) readers.set(attempt.process, (reader = new Map()));
    const ends = new Map<string, number>();
    const seen: LedgerRecord[] = [];
    for (const observation of observed) {
      const end = follow(
        ledger,
        attempt,
        observation,
        reader.get(observation.stream) ?? 0,
        seen,
        log,
      );
      reader.set(observation.stream, end);
      if (end === BROKEN) continue;
      ends.set(observation.stream, end);
      if (observation.isComplete === true || attempt.call.isCut === true) {
        toTail.push({ attempt, stream: observation.stream, end });
      }
    }
    if (attempt.call.isCut === true) checkCut(attempt, ends, seen, log);
  }
  spreadOverTransactions(ledger);
  checkFreshness(ledger, toTail, log);
  return reads;
}

/**
 * Compares an observation with the final stream. Returns where it ended, or BROKEN if it is not a part of the stream.
 */
function follow(
  ledger: HistoryLedger,
  attempt: CallAttempt,
  observation: Observation,
  continued: number,
  seen: LedgerRecord[],
  log: ProblemLog,
): number {
  const { records, begins = "start" } = observation;
  const stream = ledger.streams.get(observation.stream);
  let at = begins === "continued" ? continued : 0;
  const [first] = records;
  if (begins === "anywhere" && first !== undefined)
    at = Math.max(0, stream?.byId.get(first.id)?.position ?? 0);
  if (at === BROKEN) return BROKEN; // The problem was already reported.
  for (const { id, offset } of records) {
    const record = stream?.order[at];
    const there = stream?.found[at]?.offset;
    const hasOtherOffset = offset !== undefined && there !== undefined && offset !== there;
    if (record === undefined || record.id !== id || hasOtherOffset) {
      const { process, invokedAt } = attempt;
      const where = { stream: observation.stream, id, position: at, process, event: invokedAt };
      log.add("prefix", where, () => tellAstray(stream, attempt, where, [offset, there]));
      return BROKEN;
    }
    if (record.earliest > attempt.endedAt) {
      const where = { stream: record.stream, id, position: at, process: attempt.process };
      log.add(
        "time",
        where,
        () => `${tellAttempt(attempt)} saw ${tellRecord(record)} before it was asked for`,
      );
    }
    record.latest = Math.min(record.latest, attempt.endedAt);
    seen.push(record);
    at += 1;
  }
  return at;
}

function tellAstray(
  stream: LedgerStream | undefined,
  attempt: CallAttempt,
  where: { readonly stream: string; readonly id: string; readonly position: number },
  [offset, there]: readonly unknown[],
): string {
  const { id, position } = where;
  const record = stream?.byId.get(id);
  const final = stream?.order[position];
  const saw =
    record === undefined
      ? `record "${id}" of ${where.stream} (no attempt wrote it)`
      : tellRecord(record);
  let instead =
    final === undefined ? "where the final stream has ended" : `instead of ${tellRecord(final)}`;
  if (final?.id === id) instead = `with offset ${String(offset)} instead of ${String(there)}`;
  return `${tellAttempt(attempt)} saw at position ${position} ${saw} ${instead}`;
}

/**
 * Checks that a cut shows whole transactions. Only those of records that it shows for the first time need a check.
 */
function checkCut(
  attempt: CallAttempt,
  ends: ReadonlyMap<string, number>,
  seen: readonly LedgerRecord[],
  log: ProblemLog,
): void {
  const hiddenPart = ({ parts }: LedgerTransaction): LedgerRecord | undefined =>
    parts.find(({ stream, position }) => position >= (ends.get(stream) ?? NEVER));
  for (const record of seen) {
    const [transaction] = record.transactions;
    if (transaction === undefined || transaction.seenBy === attempt.invokedAt) continue;
    if (record.transactions.length === 1) transaction.seenBy = attempt.invokedAt;
    if (record.transactions.some((one) => hiddenPart(one) === undefined)) continue;
    transaction.seenBy = attempt.invokedAt;
    const hidden = hiddenPart(transaction);
    if (hidden === undefined) continue;
    const { stream, id, position } = record;
    log.add(
      "whole",
      { stream, id, position, process: attempt.process, event: attempt.invokedAt },
      () => {
        return `${tellAttempt(attempt)} saw ${tellRecord(record)} without ${tellRecord(hidden)} of the same transaction`;
      },
    );
  }
}

/** Applies what readers saw of one part of a transaction to its other parts. */
function spreadOverTransactions(ledger: HistoryLedger): void {
  for (const { parts } of ledger.transactions) {
    if (parts.length < 2 || parts.some(({ transactions }) => transactions.length > 1)) continue;
    const latest = parts.reduce((least, part) => Math.min(least, part.latest), NEVER);
    for (const part of parts) part.latestOfWhole = latest;
  }
}

/** Checks that a read up to the tail shows all records that were known to be there when it began. */
function checkFreshness(
  ledger: HistoryLedger,
  toTail: readonly SeenToTail[],
  log: ProblemLog,
): void {
  const leastBehind = new Map<string, Int32Array>();
  for (const { attempt, stream: name, end } of toTail) {
    const order = ledger.streams.get(name)?.order ?? [];
    let least = leastBehind.get(name);
    if (least === undefined) leastBehind.set(name, (least = leastLatestBehind(order)));
    if ((least[end] ?? NEVER) >= attempt.invokedAt) continue;
    const isMissing = (record: LedgerRecord): boolean =>
      record.position >= end && Math.min(record.latest, record.latestOfWhole) < attempt.invokedAt;
    const missing = order.find(isMissing);
    if (missing === undefined) continue;
    const isKnownByItself = missing.latest < attempt.invokedAt;
    const { id, position } = missing;
    const where = {
      stream: name,
      id,
      position,
      process: attempt.process,
      event: attempt.invokedAt,
    };
    const why = isKnownByItself
      ? `though it was known to be there at event ${missing.latest}`
      : `though another part of its transaction was seen at event ${missing.latestOfWhole}`;
    log.add(isKnownByItself ? "time" : "whole", where, () => {
      return `${tellAttempt(attempt)} read to the tail and did not see ${tellRecord(missing)}, ${why}`;
    });
  }
}

function leastLatestBehind(order: readonly LedgerRecord[]): Int32Array {
  const least = new Int32Array(order.length + 1).fill(NEVER);
  for (let at = order.length - 1; at >= 0; at -= 1) {
    const { latest = NEVER, latestOfWhole = NEVER } = order[at] ?? {};
    least[at] = Math.min(latest, latestOfWhole, least[at + 1] ?? NEVER);
  }
  return least;
}

/** LC6 in the final state: all records of a transaction are there, or none. */
export function checkWhole(ledger: HistoryLedger, log: ProblemLog): void {
  const isWhole = ({ parts }: LedgerTransaction): boolean =>
    parts.every(({ position }) => position >= 0);
  for (const transaction of ledger.transactions) {
    const missing = transaction.parts.find(({ position }) => position < 0);
    if (missing === undefined) continue;
    const torn = transaction.parts.find(
      ({ position, transactions }) => position >= 0 && !transactions.some(isWhole),
    );
    if (torn === undefined) continue;
    const { stream, id, position } = torn;
    const { process, invokedAt } = transaction.attempt;
    log.add("whole", { stream, id, position, process, event: invokedAt }, () => {
      return `${tellRecord(torn)} is there without ${tellRecord(missing)} of the same transaction`;
    });
  }
}
