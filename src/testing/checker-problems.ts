/** What a checker finds: the rules by name, and problems that say what happened to which record. */

/** The rules of the ledger checker, and what each demands. */
export const CHECKER_RULES = {
  lost: "every record that was acknowledged is in its stream",
  invented: "every record that is there was asked for, and not refused",
  duplicated: "no record is there twice",
  order: "producers, keys and offsets keep their order",
  once: "each input of a pipeline has exactly its outputs",
  whole: "all of a transaction is visible, or nothing of it",
  offset: "a committed offset never goes back",
  fence: "an older token commits nothing once a newer one was given",
  prefix: "readers see the final stream from its beginning, without a gap",
  time: "what was over before something began is before it",
} as const;

/** The name of a rule. */
export type CheckerRule = keyof typeof CHECKER_RULES;

/**
 * Where a problem was found. `event` is the index of the event in the history, `position` the index in the stream.
 */
export interface ProblemPlace {
  readonly stream?: string;
  readonly id?: string;
  readonly position?: number;
  readonly process?: string;
  readonly event?: number;
  readonly group?: string;
}

/** A broken rule, and what happened. */
export interface CheckerProblem {
  readonly rule: CheckerRule;
  readonly detail: string;
  readonly where: ProblemPlace;
}

/** Collects problems. Counts all, and keeps the first ones of each rule. */
export class ProblemLog {
  readonly problems: CheckerProblem[] = [];
  readonly counts = new Map<CheckerRule, number>();
  readonly #keptMax: number;

  constructor(keptMax: number) {
    this.#keptMax = keptMax;
  }

  /** Adds a problem. Calls `tell` only if the problem is kept: there may be as many problems as records. */
  add(rule: CheckerRule, where: ProblemPlace, tell: () => string): void {
    const count = (this.counts.get(rule) ?? 0) + 1;
    this.counts.set(rule, count);
    if (count <= this.#keptMax) this.problems.push({ rule, detail: tell(), where });
  }
}
