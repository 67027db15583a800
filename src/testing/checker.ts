/**
 * The ledger checker: reads a history of operations and returns a verdict. For your own pipelines, and for our tests.
 *
 *   LC1   lost: every record that was acknowledged is in its stream at the end;
 *   LC2   invented: a process asked for every record that is there, and not every answer refused it;
 *   LC3   duplicated: no record is there twice, for any number of attempts;
 *   LC4   order: the records of a producer, and those of a key of one process, are in the order of their
 *         invocations; outputs are in the order of their inputs for each key, and offsets never go down;
 *   LC5   once: each input of a pipeline has exactly its outputs, and each output has an input;
 *   LC6   whole: everything of a transaction is visible, or nothing: at the end, in every cut, and to a reader that
 *         looks at one part after another; its commits are part of it;
 *   LC7   offset: after an acknowledged commit no later commit goes below it, nor the answer to a claim, nor the
 *         offset at the end;
 *   LC8   fence: once a newer token was given, an operation that begins with an older one is not done; a token has
 *         one holder;
 *   LC9   prefix: a reader saw the final stream from where it began, without a gap;
 *   LC10  time: an append that was known to be there before another one began has the lower position; a reader that
 *         reads to the tail sees it; and no reader sees a record before a process asked for it.
 *
 * Valid histories always pass: if answers leave several explanations, as after a lost answer, each is allowed. No
 * search is needed, because the final stream gives the order. The time is linear in the length of the history.
 */

import { checkCommits, type FoundCommit } from "./checker-commits.ts";
import type { FoundRecord, HistoryEvent } from "./checker-history.ts";
import { buildLedger, type HistoryLedger } from "./checker-ledger.ts";
import {
  CHECKER_RULES,
  type CheckerRule,
  type CheckerProblem,
  ProblemLog,
} from "./checker-problems.ts";
import { checkReads, checkWhole } from "./checker-reads.ts";
import {
  checkOrder,
  checkPipelines,
  checkPresence,
  type PipelineShape,
} from "./checker-streams.ts";

/** What a reader found when everything had ended. A stream that is not named is empty. */
export interface FinalState {
  /** All records of each stream from its beginning, in order. */
  readonly streams: Readonly<Record<string, readonly FoundRecord[]>>;
  /** The offsets of groups that you want to check. */
  readonly commits?: readonly FoundCommit[] | undefined;
}

/** Options of a check. */
export interface CheckOptions {
  /** Which streams are made from which. `once` checks only these. */
  readonly pipelines?: readonly PipelineShape[] | undefined;
  /** Most problems of each rule that the verdict contains; all are counted. Default: 20. */
  readonly problemsMax?: number | undefined;
}

/** How much was checked. A verdict about an empty history is worth nothing: compare these with what you expect. */
export interface VerdictCounts {
  readonly events: number;
  readonly operations: number;
  readonly acknowledged: number;
  readonly refused: number;
  readonly unknown: number;
  /** Different records that processes asked for. */
  readonly records: number;
  /** Records of the final state. */
  readonly found: number;
  readonly transactions: number;
  readonly reads: number;
  /** Number of all problems by rule, including those that `problems` leaves out. */
  readonly problems: Readonly<Partial<Record<CheckerRule, number>>>;
}

/** The result of `checkHistory()`. */
export interface Verdict {
  /** Whether no rule is broken. */
  readonly ok: boolean;
  readonly problems: readonly CheckerProblem[];
  readonly counts: VerdictCounts;
}

/**
 * Checks the calls and their answers against the final state, rule by rule.
 *
 * ```ts
 * import { checkHistory, createHistory, explainVerdict } from "hapax/testing";
 *
 * const history = createHistory();
 * const write = (stream: string, id: string, of?: string) =>
 *   history.invoke({ process: "p1", kind: "append", stream, records: [{ id, of }] });
 * write("orders", "o1").ok();
 * write("invoices", "i1", "o1").unknown(); // The answer was lost: the record may be there or not.
 * write("invoices", "i1b", "o1").ok(); // So it was done again, under another id.
 *
 * const final = { streams: { orders: [{ id: "o1" }], invoices: [{ id: "i1" }, { id: "i1b" }] } };
 * const pipelines = [{ from: ["orders"], to: ["invoices"] }];
 * const verdict = checkHistory(history.events, final, { pipelines });
 * console.assert(!verdict.ok && verdict.counts.problems.once === 1);
 * console.assert(explainVerdict(verdict).includes('input record "o1" of orders'));
 * ```
 */
export function checkHistory(
  history: Iterable<HistoryEvent>,
  final: FinalState,
  options: CheckOptions = {},
): Verdict {
  const ledger = buildLedger(history, final.streams);
  const log = new ProblemLog(options.problemsMax ?? 20);
  checkPresence(ledger, log);
  checkWhole(ledger, log);
  const reads = checkReads(ledger, log); // Before the order: a record that a reader saw was there.
  checkOrder(ledger, log);
  checkPipelines(ledger, options.pipelines ?? [], log);
  checkCommits(ledger, final.commits ?? [], log);
  return {
    ok: log.counts.size === 0,
    problems: log.problems,
    counts: { ...countLedger(ledger), reads, problems: Object.fromEntries(log.counts) },
  };
}

function countLedger({ attempts, streams, transactions, eventCount }: HistoryLedger) {
  let [acknowledged, refused, records, found] = [0, 0, 0, 0];
  for (const { outcome } of attempts) {
    if (outcome === "ok") acknowledged += 1;
    if (outcome === "fail") refused += 1;
  }
  for (const { byId, order } of streams.values()) {
    found += order.length;
    for (const { outcome } of byId.values()) if (outcome !== "never") records += 1;
  }
  const operations = attempts.length;
  const unknown = operations - acknowledged - refused;
  const base = { events: eventCount, operations, acknowledged, refused, unknown };
  return { ...base, records, found, transactions: transactions.length };
}

/** Describes the verdict for people: how much was checked, and what happened for each broken rule. */
export function explainVerdict({ ok, problems, counts }: Verdict): string {
  const lines = [
    `${counts.operations} operations (${counts.acknowledged} acknowledged, ${counts.refused} refused, ` +
      `${counts.unknown} unknown), ${counts.records} records asked for, ${counts.found} found, ${counts.reads} reads`,
  ];
  for (const [rule, demand] of Object.entries(CHECKER_RULES)) {
    const told = problems.filter((problem) => problem.rule === rule);
    if (told.length === 0) continue;
    const count = new Map(Object.entries(counts.problems)).get(rule) ?? told.length;
    lines.push(`${rule}: broken ${count} times (${demand})`);
    for (const { detail } of told) lines.push(`  ${detail}`);
    if (count > told.length) lines.push(`  and ${count - told.length} more`);
  }
  lines.push(ok ? "every rule is kept" : "NOT KEPT");
  return lines.join("\n");
}
