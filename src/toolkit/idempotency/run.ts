/**
 * Runs one request with a key, from its claim to its end.
 *
 *   - an answer leaves only when it is committed: with its record, and with the writes of its transaction;
 *   - an answer that is not kept, and a failure, leave no writes of the transaction behind, and free the key at once;
 *   - a commit with an unknown outcome is looked up in the ledger before anything is answered;
 *   - work that another process has taken over answers `in_progress`, and nothing of it is kept.
 */

import { HapaxError, isHapaxError } from "../../base/errors.ts";
import { failpoint } from "../../base/failpoint.ts";
import type { Ledger } from "../ledgers/ledger.ts";
import type { Claim } from "../once/claiming.ts";
import { untilEnded } from "../once/locking.ts";
import { type HttpAnswer, keptHeaders, problemOf, withExpiry } from "./answer.ts";
import { type IdempotencyContext, NotStarted } from "./context.ts";
import { derivedKey } from "./fingerprint.ts";
import { type OpenTransaction, openTransaction } from "./open-transaction.ts";
import { Phases } from "./phases.ts";
import { encodeAnswer, type Progress } from "./record.ts";
import type { ResolvedOptions } from "./options.ts";

export interface RunParts<Tx> {
  readonly ledger: Ledger<Tx>;
  readonly options: Omit<ResolvedOptions<never>, "scope" | "fingerprint">;
  /** Undefined for a request without a key. */
  readonly claim: Claim<Tx> | undefined;
  /** Aborts when the work may not go on. */
  readonly signal: AbortSignal;
  readonly progress: Progress;
  /** Called once, with the answer if it is kept. */
  readonly onEnd: (kept: Kept | undefined) => void;
}

/** An answer that is committed. */
export interface Kept {
  readonly answer: HttpAnswer;
  readonly expiresAtMs: number;
}

export class Run<Tx> {
  readonly context: IdempotencyContext<Tx>;
  readonly #parts: RunParts<Tx>;
  readonly #transaction: OpenTransaction<Tx> | undefined;
  readonly #phases: Phases<Tx>;
  #isNotStarted = false;
  #isOver = false;

  /** `opened`: the transaction in which the claim was made. */
  static async open<Tx>(parts: RunParts<Tx>, opened?: OpenTransaction<Tx>): Promise<Run<Tx>> {
    const { ledger, options, claim, signal, onEnd } = parts;
    if (options.mode === "phases") return new Run(parts, undefined);
    try {
      const transaction = opened ?? (await openTransaction(ledger, signal));
      // While an exclusive transaction is open, no other process can take the claim, and this one cannot renew it.
      if (ledger.supports.isExclusive) claim?.pause();
      return new Run(parts, transaction);
    } catch (error) {
      await freeing(parts, (held) => held.release());
      onEnd(undefined);
      throw error;
    }
  }

  private constructor(parts: RunParts<Tx>, transaction: OpenTransaction<Tx> | undefined) {
    const { ledger, options, claim, signal, progress } = parts;
    this.#parts = parts;
    this.#transaction = transaction;
    const { scope, key } = claim?.place ?? {};
    // Without a key every request is separate work.
    const root = claim === undefined ? [options.tools.random.id()] : [scope ?? "", key ?? ""];
    const keyOf = (name: string): Promise<string> => derivedKey([...root, name], options.digest);
    this.#phases = new Phases({ ledger, claim, progress, signal, keyOf });
    this.context = this.#contextOf(scope, key, signal);
  }

  /** Commits the work. Returns the answer to send. Rejects if the work is not committed. */
  async finish(answer: HttpAnswer): Promise<HttpAnswer> {
    if (this.#isOver) return answer;
    if (this.#isNotStarted || !(await this.#isKept(answer))) {
      // A refusal leaves no entry, so a stranger who tries many keys cannot fill the table.
      if (REFUSALS.has(answer.status)) this.#isNotStarted = true;
      await this.#undo();
      return answer;
    }
    this.#isOver = true;
    const { options, claim } = this.#parts;
    // Counted from before the commit: the retention in the database begins later, so it also ends later.
    const expiresAtMs = options.tools.clock.nowMs() + options.retainMs;
    let kept: Kept | undefined;
    try {
      await this.#commit(answer);
      if (isStorable(answer, options.answerBytesMax))
        kept = { answer: { ...answer, headers: keptHeaders(answer.headers) }, expiresAtMs };
      await failpoint("http.committed");
      return claim === undefined ? answer : withExpiry(answer, expiresAtMs);
    } catch (error) {
      if (!isHapaxError(error, "lease_lost")) throw error;
      return takenOver(options.describedBy);
    } finally {
      this.#parts.onEnd(kept);
    }
  }

  /** Ends work that has failed. The caller reports the error. */
  async fail(error: unknown): Promise<void> {
    if (this.#isOver) return;
    if (error instanceof NotStarted) this.#isNotStarted = true;
    else this.#parts.options.tools.meter.add("failures_total", 1, { primitive: "http" });
    await this.#undo();
  }

  /** Returns the answer if the work has failed because another process has it, or may soon have it. */
  answerTo(error: unknown): HttpAnswer | undefined {
    const { aborted, reason } = this.context.signal;
    // The error may be the handler's own: its transaction ended with the lease, so its next write was refused.
    const isLost = [error, reason].some((each) => isHapaxError(each, "lease_lost"));
    return aborted && isLost ? takenOver(this.#parts.options.describedBy) : undefined;
  }

  /** Asks the user's rule, which may fail like a handler. */
  async #isKept(answer: HttpAnswer): Promise<boolean> {
    try {
      return isKept(this.#parts.options.keep, answer);
    } catch (error) {
      await this.fail(error);
      throw error;
    }
  }

  async #commit(answer: HttpAnswer): Promise<void> {
    const { ledger, options, claim } = this.#parts;
    const data = isStorable(answer, options.answerBytesMax) ? encodeAnswer(answer) : undefined;
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
      // The claim is gone, so there is nothing to look up and nothing to free.
      if (isHapaxError(error, "lease_lost")) throw error;
      // This comes first: where one transaction excludes all others, nothing can be looked up while it is open.
      await this.#rollBack();
      if (await this.#isCommitted()) return;
      await this.#free();
      throw error;
    }
  }

  async #isCommitted(): Promise<boolean> {
    const { ledger, claim, options } = this.#parts;
    if (claim === undefined) return false;
    try {
      const entry = await (ledger.supports.transactions
        ? untilEnded(ledger, claim.place, options.leaseMs, options.tools)
        : ledger.entries.find(claim.place));
      return entry?.token === claim.token && entry.state === "done";
    } catch (error) {
      options.onError(error);
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
      // Uncommitted writes are gone, also if the rollback fails.
      this.#parts.options.onError(error);
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
    const {
      claim,
      options: { mode },
    } = this.#parts;
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
        if (mode === "phases")
          return phases.run(name, work as never, options?.effect ?? "transaction");
        return Promise.reject(new HapaxError("unsupported", "phases need mode=phases"));
      },
      notStarted: <T>(answer?: T): T => {
        this.#isNotStarted = true;
        return answer as T; // Undefined if the caller passed nothing.
      },
    };
  }
}

/** Returns the answer for the client. It does not mention the lost lease; the client just asks again. */
function takenOver(describedBy: string | undefined): HttpAnswer {
  const detail = "another process has taken the work over";
  return problemOf("in_progress", detail, { retryAfterMs: 1000, describedBy });
}

/** Frees the key. Never rejects: a key that cannot be freed now is free when its lease ends. */
async function freeing<Tx>(
  { claim, options }: Pick<RunParts<Tx>, "claim" | "options">,
  end: (claim: Claim<Tx>) => Promise<void>,
): Promise<void> {
  if (claim === undefined) return;
  try {
    await end(claim);
  } catch (error) {
    options.onError(error);
  }
}

/** Statuses that mean "try again later". */
const PASSING = new Set([409, 425, 429]);
/** Statuses that mean "not you" or "not here": the work has not begun, and a later attempt may be accepted. */
const REFUSALS = new Set([401, 403, 404]);

function isKept(rule: ResolvedOptions<never>["keep"], { status, headers }: HttpAnswer): boolean {
  if (typeof rule === "function") return rule(status);
  if (rule === "success") return status >= 200 && status < 300;
  const saysLater = headers.some(([name]) => name.toLowerCase() === "retry-after");
  return !PASSING.has(status) && !REFUSALS.has(status) && !(status === 503 && saysLater);
}

function isStorable({ body, rest }: HttpAnswer, bytesMax: number): boolean {
  return rest === undefined && body.length <= bytesMax;
}
