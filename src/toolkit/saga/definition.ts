/**
 * Definitions of sagas. A definition is a value: each method returns a new one with one more step, which knows the
 * types of the results before it. The function of a step is found by the name of the step, so any process that has the
 * definition can go on with a saga, forward or back.
 */

import type { JsonOf } from "../../base/json-of.ts";
import { Check } from "../once/check.ts";
import { outlineOf } from "../rules/saga-outline.ts";
import type { SagaPlan, SagaStagePlan, SagaStepKind, SagaStepPlan } from "../rules/saga-plan.ts";
import * as limits from "./limits.ts";
import type { SagaMigrate } from "./migration.ts";
import type {
  SagaCallStep,
  SagaCallWork,
  SagaContext,
  SagaProbeStep,
  SagaProbeWork,
  SagaSignalStep,
  SagaStepOptions,
  SagaTxContext,
  SagaTxStep,
  SagaTxWork,
} from "./work.ts";

/** Options of a definition. All are optional. */
export interface SagaDefinitionOptions<Input> {
  /** Raise it with each change of steps, and keep the old definition registered until its sagas have ended. Default 1. */
  readonly version?: number;
  /** How long the outcome of a `probe` step may stay unknown before the saga is stuck, in milliseconds. Default one day. */
  readonly deadlineMs?: number;
  /**
   * Says how a saga goes on that was started with older steps, whose definition is not registered any more. Default:
   * the saga is stuck (`definition_changed`) until a process that has the old definition continues it.
   */
  readonly migrate?: SagaMigrate<Input>;
}

type With<Results, Name extends string, Value> = {
  readonly [K in keyof Results | Name]: K extends keyof Results ? Results[K] : Value;
};

type Both<Results, Added> = {
  readonly [K in keyof Results | keyof Added]: K extends keyof Results
    ? Results[K]
    : K extends keyof Added
      ? Added[K]
      : never;
};

/** The parts of a definition that a runner needs. */
export interface SagaDefinition<Tx> {
  readonly name: string;
  readonly version: number;
  /** The names, kinds, order, groups and undos of the steps. A saga goes on only with a definition of the same outline. */
  readonly outline: string;
  readonly plan: SagaPlan;
  readonly works: ReadonlyMap<string, SagaWork<Tx>>;
  /** Called for sagas of older versions. */
  readonly migrate?: SagaMigrate<unknown>;
}

type Loose = SagaContext<unknown, unknown>;

/** The functions of a step. They get the values that the types of the builder promise. */
export interface SagaWork<Tx> {
  readonly plan: SagaStepPlan;
  readonly run?: (context: SagaTxContext<Tx, unknown, unknown>) => unknown;
  readonly undo?: (context: never) => unknown;
  readonly probe?: (context: Loose) => unknown;
  readonly isFinal?: (error: unknown) => boolean;
  readonly pauseMs: number;
  readonly pauseMsMax: number;
  readonly timeoutMs: number | undefined;
  /** The length of a sleep. */
  readonly sleepMs?: (context: Pick<Loose, "input" | "results" | "identity">) => number;
  /** The check of a signal's payload. */
  readonly parse?: (payload: unknown) => unknown;
}

/** A saga: its steps, in order. Each method adds one step and returns a new definition. */
export interface Saga<Input, Results, Tx = unknown> {
  readonly name: string;
  readonly version: number;
  /** The parts that a runner needs. */
  readonly definition: SagaDefinition<Tx>;
  /** Writes to the ledger's database. The writes and the record of the step are one transaction. */
  tx<const Name extends string, T>(
    name: Name,
    step: SagaTxStep<Tx, Input, Results, T>,
  ): Saga<Input, With<Results, Name, JsonOf<T>>, Tx>;
  /** Calls another system that recognises `key`, so that a repeated call has one effect. */
  call<const Name extends string, T>(
    name: Name,
    step: SagaCallStep<Input, Results, T>,
  ): Saga<Input, With<Results, Name, JsonOf<T>>, Tx>;
  /** Calls another system. Before the call is repeated or undone, `probe` asks that system whether it happened. */
  probe<const Name extends string, T>(
    name: Name,
    step: SagaProbeStep<Input, Results, T>,
  ): Saga<Input, With<Results, Name, JsonOf<T>>, Tx>;
  /** Runs `tx`, `call` and `probe` steps side by side. The saga goes on, or is undone, when all of them have settled. */
  parallel<Added>(
    name: string,
    build: (group: SagaGroup<Input, Results, Tx, unknown>) => SagaGroup<Input, Results, Tx, Added>,
  ): Saga<Input, Both<Results, Added>, Tx>;
  /** The point of no return: after this step the saga only goes forward. Later steps are tried again, and never undone. */
  pivot<const Name extends string, T>(
    name: Name,
    step: SagaTxWork<Tx, Input, Results, T> & { readonly kind?: "tx" },
  ): Saga<Input, With<Results, Name, JsonOf<T>>, Tx>;
  /** The same with a call to another system. */
  pivot<const Name extends string, T>(
    name: Name,
    step: SagaCallWork<Input, Results, T> & { readonly kind: "call" },
  ): Saga<Input, With<Results, Name, JsonOf<T>>, Tx>;
  /** The same with a call whose outcome a probe can ask for. */
  pivot<const Name extends string, T>(
    name: Name,
    step: SagaProbeWork<Input, Results, T> & { readonly kind: "probe" },
  ): Saga<Input, With<Results, Name, JsonOf<T>>, Tx>;
  /** Waits for a number of milliseconds. No process needs to run meanwhile. */
  sleep(
    name: string,
    ms:
      | number
      | ((context: Pick<SagaContext<Input, Results>, "input" | "results" | "identity">) => number),
  ): Saga<Input, Results, Tx>;
  /** Waits for a `signal()` of this name. Its payload is the result of the step. */
  signal<const Name extends string, T = unknown>(
    name: Name,
    step?: SagaSignalStep<T>,
  ): Saga<Input, With<Results, Name, JsonOf<T> | undefined>, Tx>;
}

/** Collects the steps that run side by side, for `parallel()` of a saga. */
export interface SagaGroup<Input, Results, Tx, Added> {
  /** The steps so far. */
  readonly works: readonly SagaWork<Tx>[];
  tx<const Name extends string, T>(
    name: Name,
    step: SagaTxStep<Tx, Input, Results, T>,
  ): SagaGroup<Input, Results, Tx, Added & { readonly [K in Name]: JsonOf<T> }>;
  call<const Name extends string, T>(
    name: Name,
    step: SagaCallStep<Input, Results, T>,
  ): SagaGroup<Input, Results, Tx, Added & { readonly [K in Name]: JsonOf<T> }>;
  probe<const Name extends string, T>(
    name: Name,
    step: SagaProbeStep<Input, Results, T>,
  ): SagaGroup<Input, Results, Tx, Added & { readonly [K in Name]: JsonOf<T> }>;
}

/**
 * Defines a saga: steps with their undos. The saga runs to its end or is undone, over crashes and restarts. `Input` is
 * the type of its input; `Tx` is the transaction type of the ledger's client, for `tx` steps. A definition does nothing
 * by itself: pass it to `createSagas`. Throws `invalid_options`.
 *
 * ```ts
 * import { createSagas, defineSaga } from "hapax/saga";
 * import { memoryLedger } from "hapax/ledgers/memory";
 *
 * const charges = new Map<string, number>(); // Stands for a payment provider that knows idempotency keys.
 * const checkout = defineSaga<{ cents: number }>("checkout")
 *   .call("charge", {
 *     run: ({ key, input }) => ({ paid: charges.set(key, input.cents).size }),
 *     undo: ({ outcome }) => console.log("refund", outcome),
 *   })
 *   .call("ship", { run: ({ results }) => `parcel for ${results.charge.paid}` });
 *
 * const sagas = createSagas(memoryLedger(), [checkout]);
 * const order = { scope: "shop 1", key: "order 17" };
 * const ended = await sagas.start(checkout, order, { cents: 500 }, { waitMs: 5_000 });
 * console.assert(ended.state === "completed" && ended.results.ship === "parcel for 1");
 * await sagas.stop();
 * ```
 */
export function defineSaga<Input, Tx = unknown>(
  name: string,
  options: SagaDefinitionOptions<Input> = {},
): Saga<Input, Record<never, never>, Tx> {
  const check = new Check();
  checkName(check, "the name of a saga", name);
  const version = check.whole("version", options.version, 1, 1, Number.MAX_SAFE_INTEGER);
  const { SAGA_DEADLINE_MS_DEFAULT: fallback, SAGA_MS_MAX } = limits;
  const deadlineMs = check.whole("deadlineMs", options.deadlineMs, fallback, 1, SAGA_MS_MAX);
  const { migrate } = options;
  if (migrate !== undefined && typeof migrate !== "function")
    check.problem("migrate is not a function");
  check.end();
  const parts = { name, version, deadlineMs, stages: [], ...(migrate && { migrate }) };
  return sagaOf<Input, Record<never, never>, Tx>(parts);
}

interface Stage<Tx> {
  readonly group: string | undefined;
  readonly works: readonly SagaWork<Tx>[];
}

interface Parts<Tx> {
  readonly name: string;
  readonly version: number;
  readonly deadlineMs: number;
  readonly stages: readonly Stage<Tx>[];
  readonly migrate?: SagaMigrate<unknown>;
}

function sagaOf<Input, Results, Tx>(parts: Parts<Tx>): Saga<Input, Results, Tx> {
  const add = (works: readonly SagaWork<Tx>[], group?: string): never => {
    checkStages(parts, works, group);
    const stages = [...parts.stages, { group, works }];
    // Each method says in its type what it has added.
    return sagaOf({ ...parts, stages }) as never;
  };
  return {
    name: parts.name,
    version: parts.version,
    definition: definitionOf(parts),
    tx: (name, step) => add([workOf("tx", name, step as AnyStep<Tx>)]),
    call: (name, step) => add([workOf("call", name, step as AnyStep<Tx>)]),
    probe: (name, step) => add([workOf("probe", name, step as AnyStep<Tx>)]),
    pivot: (name: string, step: object) => {
      const pivot = step as AnyStep<Tx> & { readonly kind?: "tx" | "call" | "probe" };
      return add([workOf(pivot.kind ?? "tx", name, pivot, true)]);
    },
    parallel: (name, build) => add(build(groupOf([])).works, name),
    sleep: (name, ms) =>
      add([waitOf("sleep", name, { sleepMs: typeof ms === "number" ? () => ms : (ms as never) })]),
    signal: (name, step = {}) => add([signalOf(name, step)]),
  };
}

function groupOf<Input, Results, Tx, Added>(
  works: readonly SagaWork<Tx>[],
): SagaGroup<Input, Results, Tx, Added> {
  const add = (work: SagaWork<Tx>): never => groupOf([...works, work]) as never;
  return {
    works,
    tx: (name, step) => add(workOf("tx", name, step as AnyStep<Tx>)),
    call: (name, step) => add(workOf("call", name, step as AnyStep<Tx>)),
    probe: (name, step) => add(workOf("probe", name, step as AnyStep<Tx>)),
  };
}

/** A step without the types of its input and results. */
type AnyStep<Tx> = SagaStepOptions &
  Pick<SagaWork<Tx>, "run" | "undo" | "probe"> & { readonly kind?: string };

function workOf<Tx>(
  kind: "tx" | "call" | "probe",
  name: string,
  step: AnyStep<Tx>,
  isPivot = false,
): SagaWork<Tx> {
  const check = new Check();
  checkName(check, "the name of a step", name);
  check.word("kind", kind, ["tx", "call", "probe"]);
  const { run, undo, probe, isFinal, retry = {} } = Object(step) as AnyStep<Tx>;
  if (typeof run !== "function") check.problem(`step=${name} has no run`);
  if (kind === "probe" && typeof probe !== "function") check.problem(`step=${name} has no probe`);
  if (isPivot && undo !== undefined) check.problem(`step=${name} is a pivot: it has no undo`);
  const {
    SAGA_ATTEMPTS_DEFAULT,
    SAGA_ATTEMPTS_MAX,
    SAGA_MS_MAX,
    SAGA_PAUSE_MS_DEFAULT,
    SAGA_PAUSE_MS_MAX_DEFAULT,
    SAGA_TIMEOUT_MS_DEFAULT,
  } = limits;
  const most = SAGA_ATTEMPTS_MAX;
  const attemptsMax = check.whole("attemptsMax", retry.attemptsMax, SAGA_ATTEMPTS_DEFAULT, 1, most);
  const pauseMs = check.whole("pauseMs", retry.pauseMs, SAGA_PAUSE_MS_DEFAULT, 0, SAGA_MS_MAX);
  const longestMs = Math.max(pauseMs, SAGA_PAUSE_MS_MAX_DEFAULT);
  const pauseMsMax = check.whole("pauseMsMax", retry.pauseMsMax, longestMs, pauseMs, SAGA_MS_MAX);
  const { timeoutMs: givenMs } = step;
  const timeoutMs = check.whole("timeoutMs", givenMs, SAGA_TIMEOUT_MS_DEFAULT, 1, SAGA_MS_MAX);
  check.end();
  const hasUndo = undo !== undefined;
  return {
    plan: { name, kind, isPivot, hasUndo, attemptsMax, onTimeout: "stuck" },
    pauseMs,
    pauseMsMax,
    timeoutMs,
    ...(run === undefined ? {} : { run }),
    ...(undo === undefined ? {} : { undo }),
    ...(probe === undefined ? {} : { probe }),
    ...(isFinal === undefined ? {} : { isFinal }),
  };
}

function waitOf<Tx>(
  kind: "sleep" | "signal",
  name: string,
  more: Pick<SagaWork<Tx>, "sleepMs" | "parse"> & {
    readonly timeoutMs?: number | undefined;
    readonly onTimeout?: SagaStepPlan["onTimeout"];
  },
): SagaWork<Tx> {
  const check = new Check();
  checkName(check, "the name of a step", name);
  check.end();
  const { timeoutMs, onTimeout = "stuck", ...functions } = more;
  const plan = { name, kind, isPivot: false, hasUndo: false, attemptsMax: 1, onTimeout };
  return { plan, pauseMs: 0, pauseMsMax: 0, timeoutMs, ...functions };
}

function signalOf<Tx, T>(
  name: string,
  { timeoutMs, onTimeout = "stuck", parse }: SagaSignalStep<T>,
): SagaWork<Tx> {
  const check = new Check();
  check.word("onTimeout", onTimeout, ["undo", "continue", "stuck"]);
  if (timeoutMs !== undefined)
    check.whole("timeoutMs", timeoutMs, timeoutMs, 0, limits.SAGA_MS_MAX);
  check.end();
  return waitOf("signal", name, { timeoutMs, onTimeout, ...(parse && { parse }) });
}

/** Names have letters, digits, and characters that join them, because they are parts of keys, of scopes, and of drawings. */
const NAME = /^[\p{L}\p{N}][\p{L}\p{N} ._-]*$/u;

function checkName(check: Check, what: string, name: unknown): void {
  if (typeof name !== "string" || !NAME.test(name) || name.length > limits.SAGA_NAME_CHARS_MAX) {
    const max = limits.SAGA_NAME_CHARS_MAX;
    check.problem(
      `${what} begins with a letter or a digit, and has at most ${max} letters, digits, spaces, dots, dashes and underscores; name=${String(name)}`,
    );
  }
}

function checkStages<Tx>(
  { stages }: Parts<Tx>,
  works: readonly SagaWork<Tx>[],
  group: string | undefined,
): void {
  const check = new Check();
  const before = stages.flatMap((stage) => stage.works);
  const names = new Set([
    ...stages.flatMap((stage) => stage.group ?? []),
    ...before.map(({ plan }) => plan.name),
  ]);
  const isPastPivot = before.some(({ plan }) => plan.isPivot);
  if (group !== undefined) checkName(check, "the name of a group", group);
  if (works.length === 0) check.problem(`group=${group} has no steps`);
  if (before.length + works.length > limits.SAGA_STEPS_MAX)
    check.problem(`there are more than ${limits.SAGA_STEPS_MAX} steps`);
  for (const name of [...works.map(({ plan }) => plan.name), ...(group ? [group] : [])]) {
    if (names.has(name)) check.problem(`name=${name} comes twice`);
    names.add(name);
  }
  for (const { plan } of isPastPivot ? works : []) {
    const { name, isPivot, hasUndo, onTimeout } = plan;
    if (isPivot) check.problem(`step=${name} is a second pivot`);
    // SA6: it would never be called.
    if (hasUndo) check.problem(`step=${name} comes after the pivot: it cannot be undone`);
    if (onTimeout === "undo")
      check.problem(`step=${name} comes after the pivot: onTimeout cannot be undo`);
  }
  check.end();
}

function definitionOf<Tx>(parts: Parts<Tx>): SagaDefinition<Tx> {
  const { name, version, deadlineMs, stages, migrate } = parts;
  const plans: readonly SagaStagePlan[] = stages.map(({ group, works }) => ({
    group,
    steps: works.map(({ plan }) => plan),
  }));
  const works = new Map(stages.flatMap((stage) => stage.works.map((one) => [one.plan.name, one])));
  return {
    name,
    version,
    outline: outlineOf(plans),
    plan: { stages: plans, deadlineMs },
    works,
    ...(migrate && { migrate }),
  };
}

/** The shape of each kind of step in a drawing. */
const SHAPES: Readonly<Record<SagaStepKind, readonly [string, string]>> = {
  tx: ["[(", ")]"],
  call: ["[", "]"],
  probe: ["[/", "/]"],
  sleep: ["([", "])"],
  signal: ["{{", "}}"],
};

/**
 * Draws a saga as a Mermaid flowchart. Solid arrows are the steps, dotted arrows the undos, and the pivot has a thick
 * border.
 *
 * ```ts
 * import { defineSaga, describeSaga } from "hapax/saga";
 *
 * const checkout = defineSaga<string>("checkout")
 *   .call("charge", { run: () => "paid", undo: () => undefined })
 *   .sleep("cool off", 60_000);
 * console.assert(describeSaga(checkout).includes('s1 --> s2(["cool off"])'));
 * ```
 */
export function describeSaga<Input, Results, Tx>({ definition }: Saga<Input, Results, Tx>): string {
  const { stages } = definition.plan;
  const ids = new Map<string, string>();
  for (const { steps } of stages) for (const { name } of steps) ids.set(name, `s${ids.size + 1}`);
  const drawn = new Set<string>();
  const draw = ({ name, kind }: SagaStepPlan): string => {
    const id = ids.get(name) ?? "";
    if (drawn.has(id)) return id;
    drawn.add(id);
    const [open, close] = SHAPES[kind];
    return `${id}${open}"${name}"${close}`;
  };
  const lines = ["flowchart LR"];
  for (const [at, { group, steps }] of stages.entries()) {
    const before = stages[at - 1]?.steps ?? [];
    const forward =
      before.length === 0
        ? steps.map((step) => `  ${draw(step)}`)
        : before.flatMap((one) => steps.map((step) => `  ${draw(one)} --> ${draw(step)}`));
    lines.push(...forward);
    if (group !== undefined)
      lines.push(
        `  subgraph "${group}"`,
        ...steps.map(({ name }) => `    ${ids.get(name)}`),
        "  end",
      );
  }
  lines.push(...undoLines(stages, ids));
  const pivot = stages.flatMap(({ steps }) => steps).find(({ isPivot }) => isPivot);
  if (pivot !== undefined) lines.push(`  style ${ids.get(pivot.name)} stroke-width:4px`);
  return `${lines.join("\n")}\n`;
}

/** Draws the undos: the step that began last is undone first. */
function undoLines(
  stages: readonly SagaStagePlan[],
  ids: ReadonlyMap<string, string>,
): readonly string[] {
  const undone = stages
    .flatMap(({ steps }) => steps)
    .filter(({ hasUndo }) => hasUndo)
    .toReversed();
  return undone
    .slice(1)
    .map(({ name }, at) => `  ${ids.get(undone[at]?.name ?? "")} -.->|undo| ${ids.get(name)}`);
}
