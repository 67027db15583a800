/**
 * One request with a key that is being worked on, from its claim to its end.
 *
 *   HI3  an answer leaves only when it is committed: with its record, and with the writes of its transaction;
 *   HI4  an answer that is not kept, and a failure, leave no writes of the transaction behind, and free the key at once;
 *   HI8  a commit of which nobody knows whether it was done is looked for in the ledger before anything is answered;
 *   HI10  work that was taken over by somebody else answers `in_progress`, and nothing of it is kept.
 */

import { HapaxError, isHapaxError } from "../../base/errors.ts";
import { failpoint } from "../../base/failpoint.ts";
import type { Ledger } from "../ledgers/ledger.ts";
import type { Claim } from "../once/claiming.ts";
import { type Answer, keptHeaders, problemOf, withExpiry } from "./answer.ts";
import { type IdempotencyContext, NotStarted } from "./context.ts";
import { derivedKey } from "./fingerprint.ts";
import { type OpenTransaction, openTransaction } from "./open-transaction.ts";
import { Phases } from "./phases.ts";
import { encodeAnswer, type Progress } from "./record.ts";
import type { ResolvedSettings } from "./settings.ts";

export interface RunParts<Tx> {
  readonly ledger: Ledger<Tx>;
  readonly settings: Omit<ResolvedSettings<never>, "scope" | "fingerprint">;
  /** Undefined: a request without a key. */
  readonly claim: Claim<Tx> | undefined;
  /** Aborts when the work may not go on. */
  readonly signal: AbortSignal;
  readonly progress: Progress;
  /** Called once, with the answer if it is kept. */
  readonly onEnd: (kept: Kept | undefined) => void;
}

/** An answer that is committed. */
export interface Kept {
  readonly answer: Answer;
  readonly expiresAtMs: number;
}

export class Run<Tx> {
  readonly context: IdempotencyContext<Tx>;
  readonly #parts: RunParts<Tx>;
  readonly #transaction: OpenTransaction<Tx> | undefined;
  readonly #phases: Phases<Tx>;
  #isNotStarted = false;
  #isOver = false;

  static async open<Tx>(parts: RunParts<Tx>): Promise<Run<Tx>> {
    const { ledger, settings, claim, signal, onEnd } = parts;
    if (settings.mode === "phases") return new Run(parts, undefined);
    try {
      const transaction = await openTransaction(ledger, signal);
      // Nobody can take the claim while an exclusive transaction is open, and it cannot be renewed either.
      if (ledger.supports.isExclusive) claim?.pause();
      return new Run(parts, transaction);
    } catch (error) {
      await freeing(parts, (held) => held.release());
      onEnd(undefined);
      throw error;
    }
  }

  private constructor(parts: RunParts<Tx>, transaction: OpenTransaction<Tx> | undefined) {
    const { ledger, settings, claim, signal, progress } = parts;
    this.#parts = parts;
    this.#transaction = transaction;
    const { scope, key } = claim?.place ?? {};
    // Without a key every attempt is a work of its own.
    const root = claim === undefined ? [settings.tools.random.id()] : [scope ?? "", key ?? ""];
    const keyOf = (name: string): Promise<string> => derivedKey([...root, name], settings.digest);
    this.#phases = new Phases({ ledger, claim, progress, signal, keyOf });
    this.context = this.#contextOf(scope, key, signal);
  }

  /** The answer that goes out. Rejects if the work is not committed. */
  async finish(answer: Answer): Promise<Answer> {
    if (this.#isOver) return answer;
    if (this.#isNotStarted || !(await this.#isKept(answer))) {
      // A refusal leaves no entry: a stranger who tries many keys fills no table.
      if (REFUSALS.has(answer.status)) this.#isNotStarted = true;
      await this.#undo();
      return answer;
    }
    this.#isOver = true;
    const { settings, claim } = this.#parts;
    // From before the commit: the retention of the database begins later, and ends later.
    const expiresAtMs = settings.tools.clock.nowMs() + settings.retainMs;
    let kept: Kept | undefined;
    try {
      await this.#commit(answer);
      if (isStorable(answer, settings.answerBytesMax))
        kept = { answer: { ...answer, headers: keptHeaders(answer.headers) }, expiresAtMs };
      await failpoint("http.committed");
      return claim === undefined ? answer : withExpiry(answer, expiresAtMs);
    } catch (error) {
      if (!isHapaxError(error, "lease_lost")) throw error;
      return takenOver(settings.describedBy);
    } finally {
      this.#parts.onEnd(kept);
    }
  }

  /** HI4: the work has failed. The error is the caller's to tell. */
  async fail(error: unknown): Promise<void> {
    if (this.#isOver) return;
    if (error instanceof NotStarted) this.#isNotStarted = true;
    else this.#parts.settings.tools.meter.add("failures_total", 1, { primitive: "http" });
    await this.#undo();
  }

  /** HI10: what a client is told if the work has failed because it is, or may soon be, somebody else's. */
  answerTo(error: unknown): Answer | undefined {
    const { aborted, reason } = this.context.signal;
    // Also an error of the handler's own: its transaction ended with the lease, so that its next write was refused.
    const isLost = [error, reason].some((each) => isHapaxError(each, "lease_lost"));
    return aborted && isLost ? takenOver(this.#parts.settings.describedBy) : undefined;
  }

  /** The rule is the user's, and may fail as a handler may. */
  async #isKept(answer: Answer): Promise<boolean> {
    try {
      return isKept(this.#parts.settings.keep, answer);
    } catch (error) {
      await this.fail(error);
      throw error;
    }
  }

  /** HI3 */
  async #commit(answer: Answer): Promise<void> {
    const { ledger, settings, claim } = this.#parts;
    const data = isStorable(answer, settings.answerBytesMax) ? encodeAnswer(answer) : undefined;
    try {
      await failpoint("http.worked");
      if (this.#transaction === undefined) {
        await claim?.complete(ledger, "done", data);
        await failpoint("http.completed");
        return;
      }
      await this.#transaction.commit(async (tx) => {
        await claim?.complete(ledger.in(tx), "done", data);
        await failpoint("http.completed");
      });
    } catch (error) {
      // HI10: there is nothing to look for, and nothing to free.
      if (isHapaxError(error, "lease_lost")) throw error;
      // First of all: where one transaction excludes all others, nothing can be looked for while it is open.
      await this.#rollBack();
      if (await this.#isCommitted()) return;
      await this.#free();
      throw error;
    }
  }

  /** HI8 */
  async #isCommitted(): Promise<boolean> {
    const { ledger, claim, settings } = this.#parts;
    if (claim === undefined) return false;
    try {
      // In a transaction it is locked, and so waits for the end of the one that nobody was told of.
      const entry = await (ledger.supports.transactions
        ? ledger.transaction((tx) => ledger.in(tx).entries.find(claim.place))
        : ledger.entries.find(claim.place));
      return entry?.token === claim.token && entry.state === "done";
    } catch (error) {
      settings.onError(error);
      return false;
    }
  }

  async #undo(): Promise<void> {
    this.#isOver = true;
    try {
      await this.#free();
    } finally {
      this.#parts.onEnd(undefined);
    }
  }

  async #rollBack(): Promise<void> {
    try {
      await this.#transaction?.rollBack();
    } catch (error) {
      // What is not committed is not there, whatever the rollback says.
      this.#parts.settings.onError(error);
    }
  }

  async #free(): Promise<void> {
    await this.#rollBack();
    const isAsNew = this.#isNotStarted && !this.#phases.hasAny;
    await freeing(this.#parts, (held) => (isAsNew ? held.forget() : held.release()));
  }

  #contextOf(
    scope: string | undefined,
    key: string | undefined,
    signal: AbortSignal,
  ): IdempotencyContext<Tx> {
    const { settings, claim } = this.#parts;
    const transaction = this.#transaction;
    const phases = this.#phases;
    return {
      key,
      scope,
      attempt: claim?.attempts ?? 1,
      signal,
      get tx(): Tx {
        if (transaction !== undefined) return transaction.tx;
        throw new HapaxError("unsupported", "in the mode phases, each phase has a tx of its own");
      },
      phase: (name, work, options?: { readonly effect: "call" }) => {
        if (settings.mode === "phases")
          return phases.run(name, work as never, options?.effect ?? "transaction");
        return Promise.reject(new HapaxError("unsupported", "phases need mode=phases"));
      },
      notStarted: <T>(answer?: T): T => {
        this.#isNotStarted = true;
        return answer as T; // Nothing, for those who want nothing.
      },
    };
  }
}

/** HI10: that the lease is lost is for this process to know; its client just asks again. */
function takenOver(describedBy: string | undefined): Answer {
  const detail = "somebody else has taken the work over";
  return problemOf("in_progress", detail, { retryAfterMs: 1000, describedBy });
}

/** Never rejects: a key that cannot be freed is free when its lease ends. */
async function freeing<Tx>(
  { claim, settings }: Pick<RunParts<Tx>, "claim" | "settings">,
  end: (claim: Claim<Tx>) => Promise<void>,
): Promise<void> {
  if (claim === undefined) return;
  try {
    await end(claim);
  } catch (error) {
    settings.onError(error);
  }
}

/** Those that say "again, later" by themselves. */
const PASSING = new Set([409, 425, 429]);
/** Those that say "not you" or "not here": the work has not begun, and another attempt may be let through. */
const REFUSALS = new Set([401, 403, 404]);

function isKept(rule: ResolvedSettings<never>["keep"], { status, headers }: Answer): boolean {
  if (typeof rule === "function") return rule(status);
  if (rule === "success") return status >= 200 && status < 300;
  const saysLater = headers.some(([name]) => name.toLowerCase() === "retry-after");
  return !PASSING.has(status) && !REFUSALS.has(status) && !(status === 503 && saysLater);
}

function isStorable({ body, rest }: Answer, bytesMax: number): boolean {
  return rest === undefined && body.length <= bytesMax;
}
