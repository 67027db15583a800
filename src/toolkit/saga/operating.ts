/**
 * Lists sagas, and applies the acts of operators and signals. Needs no definition.
 *
 *   - SA6: an act is one write, under the revision for which it was decided. If a runner was faster, it is decided
 *     anew;
 *   - an act on a saga that a runner holds leaves the saga with that runner, which takes the act over with its next
 *     write.
 */

import { HapaxError, isHapaxError } from "../../base/errors.ts";
import { pause } from "../../base/pause.ts";
import type { Entry, Place, PlacedEntry } from "../ledgers/ledger.ts";
import { Check } from "../once/check.ts";
import { growingPauses } from "../once/pauses.ts";
import type { EntryState } from "../rules/claim.ts";
import { decideAct, decideSignal, type SagaAct, type SagaActDecision } from "../rules/saga-acts.ts";
import type { SagaProgress } from "../rules/saga-plan.ts";
import type { SagaShop } from "./held.ts";
import { SAGA_LIST_MAX } from "./limits.ts";
import {
  decodeSaga,
  encodeSaga,
  placeOfSaga,
  refOfPlace,
  SAGA_KIND,
  type SagaRef,
} from "./record.ts";
import { type SagaState, type SagaView, sagaStateOf, sagaViewOf } from "./view.ts";

/** Selects sagas for `list()`. All members are optional. */
export interface SagaFilter {
  readonly saga?: string;
  readonly scope?: string;
  readonly state?: SagaState;
  /** The most sagas that are returned. Default 100. */
  readonly max?: number;
}

/** Who acts on a saga, and why. The history of the saga keeps both. */
export interface SagaActor {
  readonly by: string;
  readonly note?: string;
}

/** Reads sagas, oldest first. */
export async function listSagas<Tx>(
  { ledger }: SagaShop<Tx>,
  { saga, scope, state, max = 100 }: SagaFilter,
  onError: (error: unknown) => void,
): Promise<readonly SagaView[]> {
  const check = new Check();
  check.whole("max", max, max, 1, SAGA_LIST_MAX);
  check.end("invalid_request");
  const isWhole = saga !== undefined && scope !== undefined;
  // What the database cannot choose is chosen here.
  const isChosen = state === undefined && (isWhole || (saga === undefined && scope === undefined));
  const found: PlacedEntry[] = [];
  for (const stored of state === undefined ? [undefined] : STORED_AS[state])
    found.push(
      ...(await ledger.entries.scan({
        kind: SAGA_KIND,
        ...(isWhole ? { scope: `${saga}/${scope}` } : {}),
        ...(stored === undefined ? {} : { state: stored }),
        max: isChosen ? max : SAGA_LIST_MAX,
      })),
    );
  const views = found
    .filter(({ place }) => {
      const ref = refOfPlace(place);
      return (
        (saga === undefined || ref.saga === saga) && (scope === undefined || ref.scope === scope)
      );
    })
    .flatMap((entry) => readable(entry, onError) ?? [])
    .filter((view) => state === undefined || view.state === state);
  // Those that are stuck come from two searches, each oldest first.
  const isMixed = state === "stuck";
  return (isMixed ? views.toSorted((one, other) => other.ageMs - one.ageMs) : views).slice(0, max);
}

/** The state of the stored entry for each state of a saga. A saga without its definition is stuck, and stays due. */
const STORED_AS: Readonly<Record<SagaState, readonly EntryState[]>> = {
  running: ["running"],
  sleeping: ["running"],
  undoing: ["running"],
  stuck: ["failed", "running"],
  completed: ["done"],
  undone: ["done"],
  finished: ["done"],
};

/** SA9: a saga that cannot be read does not hide the others. */
function readable(entry: PlacedEntry, onError: (error: unknown) => void): SagaView | undefined {
  try {
    return sagaViewOf(entry.place, entry);
  } catch (error) {
    onError(error);
    return undefined;
  }
}

/** Sets the gauges of sagas. Reads at most `SAGA_LIST_MAX` of those that have not ended. */
export async function measureSagas<Tx>({ ledger, tools }: SagaShop<Tx>): Promise<void> {
  const counts = { running: 0, sleeping: 0, undoing: 0, stuck: 0 };
  let oldestMs = 0;
  for (const state of ["running", "failed"] as const) {
    for (const entry of await ledger.entries.scan({ kind: SAGA_KIND, state, max: SAGA_LIST_MAX })) {
      const at = stateIn(entry);
      if (at !== undefined && at in counts) counts[at as keyof typeof counts] += 1;
      oldestMs = Math.max(oldestMs, entry.ageMs);
    }
  }
  for (const [state, count] of Object.entries(counts)) tools.meter.set("sagas", count, { state });
  tools.meter.set("oldest_pending_seconds", oldestMs / 1000, { primitive: "saga" });
}

function stateIn({ data }: Entry): SagaState | undefined {
  try {
    return sagaStateOf(decodeSaga(data));
  } catch {
    return undefined;
  }
}

export async function findSaga<Tx>(
  { ledger }: SagaShop<Tx>,
  ref: SagaRef,
): Promise<SagaView | undefined> {
  const place = placeOfSaga(ref.saga, ref);
  const entry = await ledger.entries.find(place);
  return entry === undefined ? undefined : sagaViewOf(place, entry);
}

/** Applies the act of an operator. Throws `saga_not_found`, and `act_refused` if the saga is not in a state for it. */
export async function actOnSaga<Tx>(
  shop: SagaShop<Tx>,
  ref: SagaRef,
  act: SagaAct,
): Promise<SagaView> {
  const check = new Check();
  check.name("by", act.by);
  if (act.note !== undefined) check.name("note", act.note);
  check.end("invalid_request");
  const bringsValue = act.kind === "skip" && act.result !== undefined;
  return await change(shop, ref, bringsValue, (progress, nowMs) => decideAct(progress, act, nowMs));
}

/**
 * Sends a signal to a saga that waits for it now or later. `payloadFor` returns the payload as JSON, for the steps of
 * the saga.
 */
export async function signalSaga<Tx>(
  shop: SagaShop<Tx>,
  ref: SagaRef,
  name: string,
  payloadFor: (progress: SagaProgress) => string | undefined,
): Promise<SagaView> {
  return await change(shop, ref, true, (progress, nowMs) =>
    decideSignal(progress, name, payloadFor(progress), nowMs),
  );
}

/** How often an act is tried while a runner writes at the same moment. The saga has advanced each time. */
const TRIES_MAX = 1_000;

async function change<Tx>(
  shop: SagaShop<Tx>,
  ref: SagaRef,
  bringsValue: boolean,
  decide: (progress: SagaProgress, nowMs: number) => SagaActDecision,
): Promise<SagaView> {
  const place = placeOfSaga(ref.saga, ref);
  const nextMs = growingPauses(shop.tools.random);
  for (let tries = 1; ; tries += 1) {
    const entry = await shop.ledger.entries.find(place);
    if (entry === undefined) throw new HapaxError("saga_not_found", whereOf(ref));
    const progress = decodeSaga(entry.data);
    const decision = decide(progress, Math.max(0, Math.floor(entry.ageMs)));
    if (decision.kind === "refused")
      throw new HapaxError("act_refused", `${decision.why}; ${whereOf(ref)}`);
    if (decision.kind === "unchanged") return sagaViewOf(place, entry);
    if (await write(shop, place, entry, progress, decision.progress, bringsValue)) {
      const after = await shop.ledger.entries.find(place);
      return sagaViewOf(place, after ?? entry);
    }
    if (tries >= TRIES_MAX)
      throw new HapaxError("in_progress", `a runner is faster; ${whereOf(ref)}`);
    // In a transaction of the caller nothing else can come in between.
    if (!shop.ledger.isJoined) await pause(shop.clock, nextMs());
  }
}

async function write<Tx>(
  { ledger, retainMs }: SagaShop<Tx>,
  place: Place,
  { token, revision, attempts, leaseLeftMs, state }: Entry,
  before: SagaProgress,
  after: SagaProgress,
  bringsValue: boolean,
): Promise<boolean> {
  const isHeld = state === "running" && before.waiting === undefined;
  const isOver = after.ended !== undefined;
  const progress = isHeld || isOver ? after : { ...after, waiting: { for: "runner" } as const };
  try {
    const written = await ledger.entries.put(
      place,
      { kind: "unchanged", token, revision },
      {
        state: isOver ? "done" : "running",
        token: "same",
        attempts,
        // A runner that holds it keeps it. Else it is due at once.
        leaseMs: isOver ? undefined : isHeld ? Math.max(0, leaseLeftMs ?? 0) : 0,
        keepMs: isOver ? retainMs : undefined,
        fingerprint: "same",
        data: { value: encodeSaga(progress, bringsValue) },
      },
    );
    return written !== undefined;
  } catch (error) {
    // A transaction of its runner has it locked.
    if (isHapaxError(error, "in_progress") && !ledger.isJoined) return false;
    throw error;
  }
}

function whereOf({ saga, scope, key }: SagaRef): string {
  return `saga=${saga} scope=${scope} key=${key}`;
}
