/** The rules about groups: committed offsets, tokens, and the commits of transactions. Labels: checker.ts. */

import type { ClaimResult, Ordered, WrittenCommit } from "./checker-history.ts";
import {
  type CallAttempt,
  compareOrdered,
  type HistoryLedger,
  tellAttempt,
} from "./checker-ledger.ts";
import type { ProblemLog } from "./checker-problems.ts";

/** The offset of a group on a stream at the end. */
export interface FoundCommit {
  readonly group: string;
  readonly stream: string;
  readonly offset: Ordered;
}

interface Known {
  readonly value: Ordered;
  readonly attempt: CallAttempt;
}

interface Cursor {
  /** The highest offset that was acknowledged. */
  offset: Known | undefined;
  /** The newest token that any process has received. */
  token: Known | undefined;
  readonly holders: Map<Ordered, CallAttempt>;
  /** Offsets that may have been committed, each with one attempt that wanted it. */
  readonly possible: Map<Ordered, CallAttempt>;
}

interface Floor {
  readonly offset: Known | undefined;
  readonly token: Known | undefined;
}

/** Replays commits and claims in the order of their events. */
class CommitCheck {
  readonly #cursors = new Map<string, Map<string, Cursor>>();
  readonly #floors = new Map<CallAttempt, readonly Floor[]>();
  /** A retry gets the answer of the first attempt, so changes in between do not count. */
  readonly #floorsById = new Map<string, readonly Floor[]>();
  readonly #log: ProblemLog;

  constructor(log: ProblemLog) {
    this.#log = log;
  }

  cursorOf(group: string, stream: string): Cursor {
    let cursors = this.#cursors.get(group);
    if (cursors === undefined) this.#cursors.set(group, (cursors = new Map()));
    let cursor = cursors.get(stream);
    if (cursor === undefined) {
      cursor = { offset: undefined, token: undefined, holders: new Map(), possible: new Map() };
      cursors.set(stream, cursor);
    }
    return cursor;
  }

  begin(attempt: CallAttempt): void {
    const { call, outcome } = attempt;
    if (outcome === "fail") return;
    const places = call.kind === "claim" ? leasesOf(attempt) : commitsOf(attempt);
    const id = call.kind === "transaction" ? call.id : undefined;
    let floors = id === undefined ? undefined : this.#floorsById.get(id);
    floors ??= places.map(({ group, stream }) => {
      const { offset, token } = this.cursorOf(group, stream);
      return { offset, token };
    });
    if (id !== undefined) this.#floorsById.set(id, floors);
    if (outcome === "ok") this.#floors.set(attempt, floors);
    for (const { group, stream, offset } of commitsOf(attempt)) {
      const { possible } = this.cursorOf(group, stream);
      if (!possible.has(offset)) possible.set(offset, attempt);
    }
  }

  end(attempt: CallAttempt): void {
    if (attempt.outcome !== "ok") return;
    const floors = this.#floors.get(attempt) ?? [];
    this.#floors.delete(attempt);
    const places = attempt.call.kind === "claim" ? leasesOf(attempt) : commitsOf(attempt);
    for (const [index, place] of places.entries()) this.#endOne(attempt, place, floors[index]);
  }

  #endOne(
    attempt: CallAttempt,
    {
      group,
      stream,
      token,
      offset,
    }: Omit<WrittenCommit, "offset"> & { readonly offset?: Ordered | undefined },
    floor: Floor | undefined,
  ): void {
    const where = { group, stream, process: attempt.process, event: attempt.invokedAt };
    const told = `${tellAttempt(attempt)}, for ${stream} in group ${group}`;
    const cursor = this.cursorOf(group, stream);
    const attained = floor?.offset;
    if (
      attained !== undefined &&
      offset !== undefined &&
      compareOrdered(offset, attained.value) < 0
    ) {
      this.#log.add("offset", where, () => {
        const by = tellAttempt(attained.attempt);
        return `${told}, went back to offset ${offset}: ${attained.value} was committed by ${by}`;
      });
    }
    const newer = floor?.token;
    if (newer !== undefined && compareOrdered(token, newer.value) < 0) {
      this.#log.add("fence", where, () => {
        const from = tellAttempt(newer.attempt);
        return `${told}, was done with token ${token}: ${newer.value} was known from ${from}`;
      });
    }
    if (attempt.call.kind === "claim") {
      const holder = cursor.holders.get(token);
      if (holder !== undefined && holder.process !== attempt.process) {
        this.#log.add(
          "fence",
          where,
          () => `${told}, was given token ${token} again, after ${tellAttempt(holder)}`,
        );
      }
      cursor.holders.set(token, attempt);
    } else if (offset !== undefined) {
      cursor.offset = higher(cursor.offset, { value: offset, attempt });
    }
    cursor.token = higher(cursor.token, { value: token, attempt });
  }
}

function higher(one: Known | undefined, other: Known): Known {
  return one !== undefined && compareOrdered(one.value, other.value) >= 0 ? one : other;
}

function commitsOf({ call }: CallAttempt): readonly WrittenCommit[] {
  if (call.kind === "commit") return [call];
  return call.kind === "transaction" ? (call.commits ?? []) : [];
}

function leasesOf({ call, result }: CallAttempt) {
  if (call.kind !== "claim" || result === undefined) return [];
  const { leases } = result as ClaimResult; // A claim has this result.
  return leases.map((lease) => ({ ...lease, group: call.group }));
}

/** LC7, LC8, and LC6 for the commits of transactions. */
export function checkCommits(
  ledger: HistoryLedger,
  final: readonly FoundCommit[],
  log: ProblemLog,
): void {
  const check = new CommitCheck(log);
  for (const { attempt, isEnd } of ledger.timeline) {
    if (isEnd) check.end(attempt);
    else check.begin(attempt);
  }
  const found = new Map<Cursor, FoundCommit>();
  for (const commit of final) {
    const cursor = check.cursorOf(commit.group, commit.stream);
    found.set(cursor, commit);
    checkFinalOffset(commit, cursor, log);
  }
  checkTransactionCommits(ledger, check, found, log);
}

function checkFinalOffset(
  { group, stream, offset }: FoundCommit,
  cursor: Cursor,
  log: ProblemLog,
): void {
  const { offset: attained, possible } = cursor;
  if (attained === undefined) return;
  const where = {
    group,
    stream,
    process: attained.attempt.process,
    event: attained.attempt.invokedAt,
  };
  const told = `the final offset of ${stream} in group ${group} is ${offset}`;
  if (compareOrdered(offset, attained.value) < 0) {
    log.add(
      "offset",
      where,
      () => `${told}: ${attained.value} was committed by ${tellAttempt(attained.attempt)}`,
    );
  } else if (!possible.has(offset)) {
    log.add("offset", where, () => `${told}, which was never committed`);
  }
}

/** Checks that the records of a transaction and its commits are there together. */
function checkTransactionCommits(
  ledger: HistoryLedger,
  check: CommitCheck,
  found: ReadonlyMap<Cursor, FoundCommit>,
  log: ProblemLog,
): void {
  for (const { attempt, parts, commits } of ledger.transactions) {
    if (parts.length === 0 || parts.some(({ transactions }) => transactions.length > 1)) continue;
    const isThere = parts.every(({ position }) => position >= 0);
    const isNowhere = parts.every(({ position }) => position < 0);
    for (const { group, stream, offset } of commits) {
      const cursor = check.cursorOf(group, stream);
      const final = found.get(cursor);
      if (final === undefined) continue;
      const where = { group, stream, process: attempt.process, event: attempt.invokedAt };
      const told = `${tellAttempt(attempt)}: its offset ${offset} of ${stream} in group ${group}`;
      if (isThere && compareOrdered(final.offset, offset) < 0) {
        log.add(
          "whole",
          where,
          () => `${told} is not committed (it is ${final.offset}), its records are there`,
        );
      }
      if (
        isNowhere &&
        final.offset === offset &&
        isSoleCommitOf(ledger, attempt, { group, stream, offset })
      ) {
        log.add("whole", where, () => `${told} is committed, its records are not there`);
      }
    }
  }
}

/** Whether only this attempt explains the offset. Called for the few transactions that left no record. */
function isSoleCommitOf(ledger: HistoryLedger, sole: CallAttempt, commit: FoundCommit): boolean {
  const isSame = (one: { group: string; stream: string; offset?: Ordered | undefined }): boolean =>
    one.group === commit.group && one.stream === commit.stream && one.offset === commit.offset;
  return ledger.timeline.every(({ attempt }) => {
    if (attempt === sole || attempt.outcome === "fail" || isRetry(attempt, sole)) return true;
    return !commitsOf(attempt).some(isSame) && !leasesOf(attempt).some(isSame);
  });
}

function isRetry({ call }: CallAttempt, { call: first }: CallAttempt): boolean {
  if (call.kind !== "transaction" || first.kind !== "transaction") return false;
  return call.id !== undefined && call.id === first.id;
}
