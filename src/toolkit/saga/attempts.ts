/**
 * Does the tasks that toolkit/rules/saga.ts has decided: runs steps, asks for their outcome and undoes them, and
 * records the results.
 *
 *   - a function that throws, does not end, or returns a value that cannot be kept fails its own step and nothing else;
 *   - an error that comes after the claim is lost is not recorded: the next owner decides.
 */

import { onAbort, unlessAborted } from "../../base/aborts.ts";
import { backoffMs } from "../../base/backoff.ts";
import { wordsOfError } from "../../base/error-words.ts";
import { HapaxError, isHapaxError } from "../../base/errors.ts";
import { failpoint } from "../../base/failpoint.ts";
import type { Reconciled } from "../once/options.ts";
import { remoteKey } from "../once/remote-key.ts";
import type { SagaTask } from "../rules/saga.ts";
import type { SagaEvent } from "../rules/saga-events.ts";
import { type SagaFailure, sagaStep } from "../rules/saga-plan.ts";
import type { SagaWork } from "./definition.ts";
import type { HeldSaga } from "./held.ts";
import { SAGA_FAILURE_CHARS_MAX, SAGA_MS_MAX } from "./limits.ts";
import { jsonOf, parsed, resultsOf } from "./values.ts";
import type { SagaContext, SagaTxContext } from "./work.ts";

type Direction = "forward" | "undo";

/**
 * Does the next tasks. Returns when all of them have settled. Throws if this process has lost the saga, or the database
 * does not answer.
 */
export async function runTasks<Tx>(
  held: HeldSaga<Tx>,
  tasks: readonly SagaTask[],
  direction: Direction,
): Promise<void> {
  const intents = tasks.flatMap((task) => intentOf(held, task, direction) ?? []);
  const names = tasks.map(({ step }) => step);
  try {
    // SA2: before anything is sent. Decided anew if an operator or a signal came first.
    if (!(await held.begin(names, intents))) return;
    if (intents.length > 0) await failpoint("saga.intended");
    await runBegun(held, tasks, new Set(intents.map(({ step }) => step)), direction);
  } finally {
    held.land();
  }
}

async function runBegun<Tx>(
  held: HeldSaga<Tx>,
  tasks: readonly SagaTask[],
  begun: ReadonlySet<string>,
  direction: Direction,
): Promise<void> {
  const isTx = ({ step, mode }: SagaTask): boolean =>
    mode === "run" && workOf(held, step).plan.kind === "tx";
  const inTurn = async (): Promise<void> => {
    // SA10: one after the other.
    for (const task of tasks.filter(isTx)) await transact(held, task.step, direction);
  };
  const calls = tasks.filter((task) => !isTx(task) && (task.mode === "ask" || isCall(held, task)));
  const settled = await Promise.allSettled([
    inTurn(),
    ...calls.map((task) =>
      task.mode === "ask"
        ? ask(held, task.step, direction)
        : begun.has(task.step) && call(held, task.step, direction),
    ),
  ]);
  const failed = settled.find(({ status }) => status === "rejected");
  if (failed?.status === "rejected") throw failed.reason;
}

function isCall<Tx>(held: HeldSaga<Tx>, { step }: SagaTask): boolean {
  const { kind } = workOf(held, step).plan;
  return kind === "call" || kind === "probe";
}

function workOf<Tx>(held: HeldSaga<Tx>, step: string): SagaWork<Tx> {
  const work = held.definition.works.get(step);
  if (work === undefined) throw new Error(`SA8 the definition has no step ${step}`);
  return work;
}

function intentOf<Tx>(
  held: HeldSaga<Tx>,
  { step, mode }: SagaTask,
  direction: Direction,
): SagaEvent | undefined {
  const { plan, timeoutMs } = workOf(held, step);
  if (mode === "sleep") return sleepOf(held, step);
  if (mode === "listen") return { kind: "began", step, forMs: timeoutMs };
  if (mode === "ask" || plan.kind === "tx") return undefined;
  return { kind: direction === "undo" ? "undo began" : "began", step };
}

/** Computes the length of a sleep. A function that throws or returns no valid number fails the step. */
function sleepOf<Tx>(held: HeldSaga<Tx>, step: string): SagaEvent {
  try {
    const forMs = workOf(held, step).sleepMs?.(givenOf(held)) ?? 0;
    if (!(forMs >= 0 && forMs <= SAGA_MS_MAX))
      throw new RangeError(`a sleep of ${String(forMs)} ms is not from 0 to ${SAGA_MS_MAX}`);
    return { kind: "began", step, forMs: Math.ceil(forMs) };
  } catch (error) {
    const failure = failureOf(error);
    return { kind: "failed", step, failure, isCertain: true, isFinal: true, pauseMs: 0 };
  }
}

/** Returns input, results and identity for a function. Each call gets a copy of its own, which it may change. */
function givenOf<Tx>(
  held: HeldSaga<Tx>,
): Pick<SagaContext<unknown, unknown>, "input" | "results" | "identity"> {
  const { progress, ref } = held;
  const identity = { scope: ref.scope, key: ref.key };
  return { input: parsed(progress.input), results: resultsOf(progress), identity };
}

async function contextOf<Tx>(
  held: HeldSaga<Tx>,
  step: string,
  direction: Direction,
  attempt: number,
  signal: AbortSignal,
): Promise<SagaContext<unknown, unknown>> {
  return { ...givenOf(held), key: await keyOf(held, step, direction), attempt, signal };
}

function keyOf<Tx>({ ref }: HeldSaga<Tx>, step: string, direction: Direction): Promise<string> {
  const { saga, scope, key } = ref;
  // SA3: without an attempt and without a version.
  const parts = [scope, saga, key, step, ...(direction === "undo" ? ["undo"] : [])];
  return remoteKey(parts);
}

/** Runs an undo. It gets the outcome of the step that it undoes. */
async function undoStep<Tx>(
  held: HeldSaga<Tx>,
  { plan: { name: step }, undo }: SagaWork<Tx>,
  context: SagaContext<unknown, unknown>,
): Promise<SagaEvent> {
  const at = sagaStep(held.progress, step);
  const result = parsed(at?.result);
  const outcome = at?.outcome === "done" ? { kind: "done", result } : { kind: "unknown" };
  const runKey = await keyOf(held, step, "forward");
  // No token stops an effect elsewhere: a process that has slept must not send it any more.
  held.claim.requireHeld();
  // The builder has paired the undo with the result of its step.
  await undo?.({ ...context, runKey, result, outcome } as never);
  return { kind: "undone", step };
}

/** Runs a function with a signal that aborts at its time limit, or when the claim is lost. */
async function signalled<Tx, T>(
  held: HeldSaga<Tx>,
  timeoutMs: number | undefined,
  run: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const over = new AbortController();
  const { signal: lost } = held.claim;
  const unlisten = onAbort(lost, () => {
    over.abort(lost.reason);
  });
  if (lost.aborted) over.abort(lost.reason);
  const cancel = held.shop.clock.after(timeoutMs ?? SAGA_MS_MAX, () => {
    over.abort(new HapaxError("request_timeout", `no end within timeoutMs=${timeoutMs}`));
  });
  try {
    return await run(over.signal);
  } finally {
    cancel();
    unlisten();
  }
}

/** Does the same, and rejects when the signal aborts, even if the function goes on. */
function limited<Tx, T>(
  held: HeldSaga<Tx>,
  timeoutMs: number | undefined,
  run: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  return signalled(held, timeoutMs, (signal) => unlessAborted(run(signal), signal));
}

async function transact<Tx>(held: HeldSaga<Tx>, step: string, direction: Direction): Promise<void> {
  const work = workOf(held, step);
  const attempt = attemptOf(held, step, direction) + 1;
  try {
    // The ledger rolls back at once when the signal aborts. What it says counts: the commit may have come first.
    const isWritten = await signalled(held, work.timeoutMs, (signal) =>
      held.transact(async (tx, heard) => {
        const context = { ...(await contextOf(held, step, direction, attempt, heard)), tx };
        return await inTransaction(held, work, direction, context);
      }, signal),
    );
    if (isWritten) count(held, direction === "undo" ? "undone" : "done");
  } catch (error) {
    // It is rolled back: for certain, nothing has happened.
    await fail(held, work, direction, error, true, attempt);
  }
}

async function inTransaction<Tx>(
  held: HeldSaga<Tx>,
  work: SagaWork<Tx>,
  direction: Direction,
  context: SagaTxContext<Tx, unknown, unknown>,
): Promise<SagaEvent> {
  if (direction === "undo") return await undoStep(held, work, context);
  return { kind: "done", step: work.plan.name, result: jsonOf(await work.run?.(context)) };
}

async function call<Tx>(held: HeldSaga<Tx>, step: string, direction: Direction): Promise<void> {
  const work = workOf(held, step);
  const attempt = attemptOf(held, step, direction);
  let event: SagaEvent;
  try {
    event = await limited(held, work.timeoutMs, async (signal) => {
      const context = await contextOf(held, step, direction, attempt, signal);
      if (direction === "undo") return await undoStep(held, work, context);
      // As in an undo.
      held.claim.requireHeld();
      // A call has no `tx`: its type has none.
      const result = await work.run?.(context as SagaTxContext<Tx, unknown, unknown>);
      return { kind: "done", step, result: keptOf(result) };
    });
  } catch (error) {
    await fail(held, work, direction, error, false, attempt);
    return;
  }
  await failpoint("saga.called");
  try {
    await held.record([event]);
  } catch (error) {
    if (!isHapaxError(error, "invalid_request")) throw error;
    // All results together are too large. It has happened, and cannot go on.
    await fail(held, work, direction, new Unkept(error.message), false, attempt);
    return;
  }
  count(held, direction === "undo" ? "undone" : "done");
  await failpoint("saga.recorded");
}

/**
 * The error of a step that has had its effect and returned a value that cannot be kept. Another attempt would return
 * the same value.
 */
class Unkept extends Error {}

function keptOf(result: unknown): string | undefined {
  try {
    return jsonOf(result);
  } catch (error) {
    throw new Unkept(error instanceof Error ? error.message : String(error), { cause: error });
  }
}

/** Asks the probe of a step whether its effect happened. If the probe throws, the outcome stays unknown. */
async function ask<Tx>(held: HeldSaga<Tx>, step: string, direction: Direction): Promise<void> {
  const work = workOf(held, step);
  const at = sagaStep(held.progress, step);
  const pauseMs = pauseOf(held, work, (at?.asks ?? 0) + 1);
  let event: SagaEvent;
  try {
    event = await limited(held, work.timeoutMs, async (signal) => {
      // The key is that of the step: its effect is what is asked for, in both directions.
      const context = await contextOf(held, step, "forward", at?.attempts ?? 1, signal);
      const answer = (await work.probe?.(context)) as Reconciled<unknown>;
      if (answer.kind === "done")
        return { kind: "asked", step, answer: "done", result: jsonOf(answer.result), pauseMs };
      const { kind } = answer;
      return { kind: "asked", step, answer: kind === "not_done" ? kind : "unknown", pauseMs };
    });
  } catch (error) {
    if (held.isGone) throw error;
    event = { kind: "asked", step, answer: "unknown", pauseMs };
  }
  if (event.kind === "asked" && event.answer === "unknown") {
    count(held, "unknown");
    held.shop.tools.meter.add("unknown_total", 1, { primitive: "saga" });
  }
  if (direction === "undo") await failpoint("saga.undo.asked");
  else await failpoint("saga.asked");
  try {
    await held.record([event]);
  } catch (error) {
    if (!isHapaxError(error, "invalid_request")) throw error;
    // There is no room for what it has found: as if it had found nothing.
    await held.record([{ kind: "asked", step, answer: "unknown", pauseMs }]);
  }
}

async function fail<Tx>(
  held: HeldSaga<Tx>,
  work: SagaWork<Tx>,
  direction: Direction,
  error: unknown,
  isRolledBack: boolean,
  attempt: number,
): Promise<void> {
  if (held.isGone) throw error;
  const isUnkept = error instanceof Unkept;
  const saysFinal = !isUnkept && isFinal(work, error);
  const isUnkeepable = isRolledBack && isHapaxError(error, "invalid_request");
  const event: SagaEvent = {
    kind: direction === "undo" ? "undo failed" : "failed",
    step: work.plan.name,
    failure: failureOf(error),
    isCertain: isRolledBack || saysFinal,
    isFinal: saysFinal || isUnkept || isUnkeepable,
    pauseMs: pauseOf(held, work, attempt),
  };
  held.shop.tools.meter.add("failures_total", 1, { primitive: "saga" });
  count(held, direction === "undo" ? "undo_failed" : "failed");
  await held.record([event]);
}

function isFinal<Tx>({ isFinal: says }: SagaWork<Tx>, error: unknown): boolean {
  try {
    return says?.(error) === true;
  } catch {
    // A function that cannot say it has not said it.
    return false;
  }
}

function failureOf(error: unknown): SagaFailure {
  const { name, message } = wordsOfError(error, SAGA_FAILURE_CHARS_MAX);
  return { name, message };
}

function attemptOf<Tx>(held: HeldSaga<Tx>, step: string, direction: Direction): number {
  const at = sagaStep(held.progress, step);
  if (direction === "undo" && at?.state !== "undoing") return 0;
  return at?.attempts ?? 0;
}

function pauseOf<Tx>(
  { shop }: HeldSaga<Tx>,
  { pauseMs, pauseMsMax }: SagaWork<Tx>,
  failures: number,
): number {
  return Math.ceil(backoffMs(failures, { pauseMs, pauseMsMax }, shop.tools.random.unit()));
}

function count<Tx>({ shop, ref }: HeldSaga<Tx>, outcome: string): void {
  shop.tools.meter.add("saga_steps_total", 1, { saga: ref.saga, outcome });
}
