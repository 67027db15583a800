/**
 * Runs one request with a key, from its claim to its end.
 *
 *   - an answer leaves only when it is committed: with its record, and with the writes of its transaction;
 *   - an answer that is not kept, and a failure, leave no writes of the transaction behind, and free the key at once;
 *   - a commit with an unknown outcome is looked up in the ledger before anything is answered;
 *   - work that another process has taken over answers `in_progress`, and nothing of it is kept.
 */

import { HapaxError, isHapaxError } from "../../base/errors.ts";
import { failpoint, hasFailpoint } from "../../base/failpoint.ts";
import type { Ledger } from "../ledgers/ledger.ts";
import type { Claim } from "../once/claiming.ts";
import { untilEnded } from "../once/locking.ts";
import { type HttpAnswer, keptOf, problemOf, withExpiry } from "./answer.ts";
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
  /** Aborts when the work may not go on. It may be made when it is asked for. */
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
  /** Undefined in the mode `transaction`. */
  readonly #phases: Phases<Tx> | undefined;
  #isNotStarted = false;
  #isOver = false;

  static async open<Tx>(parts: RunParts<Tx>): Promise<Run<Tx>> {
    const { ledger, options, signal, onEnd } = parts;
    if (options.mode === "phases") return new Run(parts, undefined);
    try {
      return Run.in(parts, await openTransaction(ledger, signal));
    } catch (error) {
      await freeing(parts, (held) => held.release());
      onEnd(undefined);
      throw error;
    }
  }

  /** Returns the run of an open transaction. */
  static in<Tx>(parts: RunParts<Tx>, transaction: OpenTransaction<Tx>): Run<Tx> {
    // While an exclusive transaction is open, no other process can take the claim, and this one cannot renew it.
    if (parts.ledger.supports.isExclusive) parts.claim?.pause();
    return new Run(parts, transaction);
  }

  private constructor(parts: RunParts<Tx>, transaction: OpenTransaction<Tx> | undefined) {
    this.#parts = parts;
    this.#transaction = transaction;
    this.#phases = transaction === undefined ? phasesOf(parts) : undefined;
    this.context = this.#contextOf();
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
    const keptAnswer = isStorable(answer, options.answerBytesMax) ? keptOf(answer) : undefined;
    let kept: Kept | undefined;
    try {
      await this.#commit(keptAnswer);
      if (keptAnswer !== undefined) kept = { answer: keptAnswer, expiresAtMs };
      if (hasFailpoint()) await failpoint("http.committed");
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

  async #commit(kept: HttpAnswer | undefined): Promise<void> {
    const { ledger, claim } = this.#parts;
    const data = kept === undefined ? undefined : encodeAnswer(kept);
    try {
      if (hasFailpoint()) await failpoint("http.worked");
      if (this.#transaction === undefined) {
        await claim?.complete(ledger, "done", data);
        await failpoint("http.completed");
        return;
      }
      await this.#transaction.commit(async (tx) => {
        const entry = claim?.end(data);
        if (entry === undefined) await claim?.complete(ledger.in(tx), "done", data);
        if (hasFailpoint()) await failpoint("http.completed");
        return entry;
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
    const hasPhases = this.#phases?.hasAny ?? this.#parts.progress.phases.size > 0;
    const isAsNew = this.#isNotStarted && !hasPhases;
    await freeing(this.#parts, (held) => (isAsNew ? held.forget() : held.release()));
  }

  #contextOf(): IdempotencyContext<Tx> {
    const parts = this.#parts;
    const { claim } = parts;
    const transaction = this.#transaction;
    const phases = this.#phases;
    return {
      key: claim?.place.key,
      scope: claim?.place.scope,
      attempt: claim?.attempts ?? 1,
      get signal() {
        return parts.signal;
      },
      get tx(): Tx {
        if (transaction !== undefined) return transaction.tx;
        throw new HapaxError("unsupported", "in the mode phases, each phase has a tx of its own");
      },
      phase: (name, work, options?: { readonly effect: "call" }) => {
        if (phases !== undefined)
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

function phasesOf<Tx>({ ledger, options, claim, progress, signal }: RunParts<Tx>): Phases<Tx> {
  const { scope, key } = claim?.place ?? {};
  // Without a key every request is separate work.
  const root = claim === undefined ? [options.tools.random.id()] : [scope ?? "", key ?? ""];
  const keyOf = (name: string): Promise<string> => derivedKey([...root, name], options.digest);
  return new Phases({ ledger, claim, progress, signal, keyOf });
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
