/**
 * Claims sagas, and runs each as far as possible: to its end, until it is stuck, or until it has to wait.
 *
 *   - SA8: a saga goes on only with a definition of its own outline, or with a newer one that migrates it. A saga
 *     without such a definition here is left to a process that has one;
 *   - if a process ends during a `tx` step, that counts as an attempt of the step; if it ends during a probe, that
 *     counts as a probe without an answer. The step itself may be what ends the process.
 */

import { HapaxError } from "../../base/errors.ts";
import { failpoint } from "../../base/failpoint.ts";
import { rest } from "../../base/pause.ts";
import type { Entry, EntryWrite, Place, PlacedEntry } from "../ledgers/ledger.ts";
import { Claim, type ClaimTerms } from "../once/claiming.ts";
import { decideNext } from "../rules/saga.ts";
import { applySagaEvent } from "../rules/saga-events.ts";
import type { SagaPlan, SagaProgress } from "../rules/saga-plan.ts";
import { runTasks } from "./attempts.ts";
import type { SagaDefinition } from "./definition.ts";
import { HeldSaga, type SagaReading, type SagaShop } from "./held.ts";
import { SAGA_HELD_WAIT_MS, SAGA_LATER_MS } from "./limits.ts";
import { migrateSaga } from "./migration.ts";
import { decodeSaga, encodeSaga } from "./record.ts";

/** The definitions of this process, by name. */
export type SagaDefinitions<Tx> = ReadonlyMap<string, readonly SagaDefinition<Tx>[]>;

export function definitionFor<Tx>(
  definitions: SagaDefinitions<Tx>,
  saga: string,
  outline: string,
): SagaDefinition<Tx> | undefined {
  return definitions.get(saga)?.find((one) => one.outline === outline);
}

/** Returns the definitions of a name, the newest version first. */
export function newestFirst<Tx>(
  definitions: SagaDefinitions<Tx>,
  saga: string,
): readonly SagaDefinition<Tx>[] {
  return (definitions.get(saga) ?? []).toSorted((one, other) => other.version - one.version);
}

/**
 * Runs a saga until it ends, is stuck, waits, or this process has to stop. Throws if the saga is lost, or the database
 * does not answer.
 */
export async function drive<Tx>(held: HeldSaga<Tx>, stopping: AbortSignal): Promise<void> {
  try {
    while (!held.isOver) {
      if (stopping.aborted) {
        await held.park({ for: "runner" }, 0);
        continue;
      }
      const { next } = held.decide();
      switch (next.kind) {
        case "run":
          await runTasks(held, next.tasks, "forward");
          break;
        case "undo":
          await runTasks(held, [next.task], "undo");
          break;
        case "end":
        case "stuck":
          // It followed from the time, or from an act: nothing has written it yet.
          await held.record([]);
          break;
        case "wait": {
          const { for: reason, step, untilMs } = next;
          const leftMs = untilMs === undefined ? undefined : untilMs - held.nowMs();
          if (leftMs === undefined || leftMs > SAGA_HELD_WAIT_MS)
            await held.park({ for: reason, step }, leftMs);
          else await rest(held.shop.clock, Math.max(1, leftMs), stopping, held.claim.signal);
          held.claim.signal.throwIfAborted();
        }
      }
    }
  } finally {
    held.claim.stop();
  }
}

function termsOf<Tx>({ leaseMs, retainMs }: SagaShop<Tx>): ClaimTerms {
  const attemptsMax = Number.MAX_SAFE_INTEGER;
  // `probed`: what was begun is not forgotten before it has ended.
  return { fingerprint: undefined, effect: "probed", attemptsMax, leaseMs, retainMs };
}

function heldAs<Tx>(
  shop: SagaShop<Tx>,
  definition: SagaDefinition<Tx>,
  place: Place,
  written: { readonly token: number; readonly attempts: number },
  reading: SagaReading,
  startedMs: number,
): HeldSaga<Tx> {
  const facts = { place, ...written, isTakeover: written.attempts > 1, data: undefined };
  const claim = new Claim(shop.ledger, facts, termsOf(shop), shop.tools, startedMs);
  shop.tools.meter.add("claims_total", 1, { primitive: "saga" });
  return new HeldSaga(shop, definition, claim, reading);
}

/** Creates the entry of a new saga under a claim of this process. Returns undefined if the entry exists. */
export async function makeSaga<Tx>(
  shop: SagaShop<Tx>,
  definition: SagaDefinition<Tx>,
  place: Place,
  progress: SagaProgress,
  fingerprint: string,
): Promise<HeldSaga<Tx> | undefined> {
  const startedMs = shop.tools.clock.steadyMs();
  const written = await shop.ledger.entries.put(
    place,
    { kind: "absent" },
    { ...firstWrite(progress, fingerprint), leaseMs: shop.leaseMs },
  );
  if (written === undefined) return undefined;
  const { token, revision } = written;
  const reading = { progress, revision, ageMs: 0, readMs: shop.tools.clock.steadyMs() };
  await failpoint("saga.started");
  return heldAs(shop, definition, place, { token, attempts: 1 }, reading, startedMs);
}

/** Returns the first entry of a saga: due at once, for any runner. */
export function firstWrite(progress: SagaProgress, fingerprint: string): EntryWrite {
  return {
    state: "running",
    token: "next",
    attempts: 1,
    leaseMs: 0,
    keepMs: undefined,
    fingerprint: { value: fingerprint },
    data: { value: encodeSaga(progress, true) },
  };
}

/** Claims a saga that is due. Returns undefined if this process cannot run it, or another process was faster. */
export async function takeSaga<Tx>(
  shop: SagaShop<Tx>,
  definitions: SagaDefinitions<Tx>,
  entry: PlacedEntry,
  readMs: number,
): Promise<HeldSaga<Tx> | undefined> {
  const { place } = entry;
  const found = decodeSaga(entry.data);
  const nowMs = Math.max(0, Math.floor(entry.ageMs));
  const fitting = fit(definitions, found, nowMs);
  if (fitting.definition === undefined) {
    await leaveForOthers(shop, entry, found, fitting.why);
    return undefined;
  }
  const { definition } = fitting;
  const { waiting: wait, stuck, ...rested } = fitting.progress;
  const free = stuck?.reason === "definition_changed" ? rested : { ...rested, stuck };
  const progress = wait === undefined ? afterLoss(definition.plan, free, nowMs) : free;
  const startedMs = shop.tools.clock.steadyMs();
  const attempts = entry.attempts + 1;
  const written = await shop.ledger.entries.put(
    place,
    { kind: "unchanged", token: entry.token, revision: entry.revision },
    {
      state: "running",
      token: "next",
      attempts,
      leaseMs: shop.leaseMs,
      keepMs: undefined,
      fingerprint: "same",
      data: { value: encodeSaga(progress) },
    },
  );
  if (written === undefined) return undefined;
  if (wait === undefined) shop.tools.meter.add("takeovers_total", 1, { primitive: "saga" });
  const { token, revision } = written;
  const reading = { progress, revision, ageMs: entry.ageMs, readMs };
  const held = heldAs(shop, definition, place, { token, attempts }, reading, startedMs);
  try {
    await failpoint("saga.claimed");
  } catch (error) {
    held.claim.stop();
    throw error;
  }
  return held;
}

/** Counts the loss after another process died with the saga: a `tx` step and a probe leave no intent behind. */
function afterLoss(plan: SagaPlan, found: SagaProgress, nowMs: number): SagaProgress {
  const { progress, next } = decideNext(plan, found, nowMs);
  const tasks = next.kind === "run" ? next.tasks : next.kind === "undo" ? [next.task] : [];
  const steps = plan.stages.flatMap((stage) => stage.steps);
  const tx = tasks.find(({ step, mode }) => {
    const kind = steps.find(({ name }) => name === step)?.kind;
    return mode === "run" && kind === "tx";
  });
  const asks = tasks.filter(({ mode }) => mode === "ask");
  return [...asks, ...(tx === undefined ? [] : [tx])].reduce(
    (before, { step }) => applySagaEvent(plan, before, { kind: "lost", step }, nowMs),
    progress,
  );
}

/**
 * The definition with which a saga goes on, or the reason why it does not. `why` undefined: this process has only older
 * definitions.
 */
type Fitting<Tx> =
  | { readonly definition: SagaDefinition<Tx>; readonly progress: SagaProgress }
  | { readonly definition?: undefined; readonly why: string | undefined };

/** SA8: returns the definition of the same outline; else the newest one, if it is newer than the saga and migrates it. */
function fit<Tx>(
  definitions: SagaDefinitions<Tx>,
  progress: SagaProgress,
  nowMs: number,
): Fitting<Tx> {
  const { saga, digest, version } = progress;
  const same = definitionFor(definitions, saga, digest);
  if (same !== undefined) return { definition: same, progress };
  const [newest] = newestFirst(definitions, saga);
  if (newest === undefined || newest.version < version) return { why: undefined };
  const why = `no definition here has the steps of version ${version}`;
  if (newest.migrate === undefined || newest.version === version) return { why };
  const migration = migrateSaga(newest, progress, nowMs);
  if (migration.kind === "refused")
    return { why: `${why}, and version ${newest.version} does not take it: ${migration.why}` };
  return { definition: newest, progress: migration.progress };
}

/**
 * SA8: leaves a saga for another process. If this process has a definition that is as new or newer, the steps have
 * changed, and the entry says so for operators. The saga stays due, after a while.
 */
async function leaveForOthers<Tx>(
  shop: SagaShop<Tx>,
  entry: PlacedEntry,
  progress: SagaProgress,
  why: string | undefined,
): Promise<void> {
  if (why === undefined) {
    await postpone(shop, entry, entry.data);
    return;
  }
  const stuck = { reason: "definition_changed", message: why } as const;
  const data = encodeSaga({ ...progress, stuck, waiting: { for: "definition" } });
  // With a new token: a process that wakes and has the definition must not record on top of it.
  await postpone(shop, entry, data, "next");
}

/** Makes a saga due later, so that the sagas after it get their turn. */
export async function postpone<Tx>(
  { ledger }: SagaShop<Tx>,
  { place, token, revision, attempts }: Entry & { readonly place: Place },
  data: Uint8Array | undefined,
  after: "same" | "next" = "same",
): Promise<void> {
  await ledger.entries.put(
    place,
    { kind: "unchanged", token, revision },
    {
      state: "running",
      token: after,
      attempts,
      leaseMs: SAGA_LATER_MS,
      keepMs: undefined,
      fingerprint: "same",
      data: { value: data },
    },
  );
}

/** Returns the progress of a saga that has not begun. */
export function beginningOf<Tx>(
  { name, version, outline }: SagaDefinition<Tx>,
  input: string | undefined,
): SagaProgress {
  return {
    saga: name,
    version,
    digest: outline,
    input,
    direction: "forward",
    steps: {},
    signals: {},
    isPastPivot: false,
    history: [{ atMs: 0, what: "started", note: `version ${version}` }],
  };
}

/** Throws `unsupported` if the ledger cannot do what a definition needs. */
export function requireDefinable<Tx>(
  { ledger }: SagaShop<Tx>,
  { name, plan }: SagaDefinition<Tx>,
): void {
  const steps = plan.stages.flatMap((stage) => stage.steps);
  const needing = steps.find(({ kind }) => kind === "tx");
  if (needing === undefined || ledger.supports.transactions) return;
  throw new HapaxError(
    "unsupported",
    `ledger=${ledger.name} has no transactions: make it a call or a probe; saga=${name} step=${needing.name}`,
  );
}
