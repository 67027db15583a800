/** `hapax saga`: which sagas there are, what has happened to one, and what operators do about those that are stuck. */

import { createSagas, type SagaRef, type Sagas, type SagaView } from "../toolkit/saga.ts";
import { nearest, parseCountOption, quote } from "./arguments.ts";
import type { Command, Invocation } from "./command.ts";
import { confirm } from "./confirm.ts";
import type { Context } from "./context.ts";
import { CommandFailure, EXIT, usageFailure } from "./failure.ts";
import { tell } from "./tell.ts";
import { countOf, createPaint, formatPairs, formatTable } from "./terminal.ts";

const LISTED = { min: 1, max: 10_000, fallback: 100 };
const STATES = [
  "running",
  "sleeping",
  "undoing",
  "stuck",
  "completed",
  "undone",
  "finished",
] as const;

interface Work {
  readonly invocation: Invocation;
  readonly context: Context;
  readonly sagas: Sagas<unknown>;
}

const ACTIONS = { list, show, retry, skip, abort, finish } as const;
type ActionName = keyof typeof ACTIONS;

/** The options that belong to some actions only. */
const OPTIONS_OF: Readonly<Record<string, readonly ActionName[]>> = {
  saga: ["list"],
  state: ["list"],
  max: ["list"],
  by: ["retry", "skip", "abort", "finish"],
  note: ["retry", "skip", "abort", "finish"],
  result: ["skip"],
  yes: ["abort", "finish"],
};

async function runSaga(invocation: Invocation, context: Context): Promise<number> {
  const action = checkWords(invocation);
  const text = invocation.value("database") ?? context.env["HAPAX_DATABASE"];
  if (text === undefined || text === "") {
    throw usageFailure("saga needs --database", [
      "--database is a URL such as postgres://user@host/name, or the path of a SQLite file",
    ]);
  }
  const options = { directory: process.cwd(), schema: invocation.value("schema") };
  // Loaded only here: every other command starts faster without it.
  const { databaseFailure, openOutboxDatabase } = await import("./outbox-database.ts");
  try {
    const database = await openOutboxDatabase(text, options);
    try {
      const onError = (error: unknown): void => {
        void context.stderr.write(`one saga cannot be read: ${String(error)}\n`);
      };
      const sagas = createSagas(database.ledger, [], { onError });
      return await ACTIONS[action]({ invocation, context, sagas });
    } finally {
      await database.close();
    }
  } catch (error) {
    throw databaseFailure(error);
  }
}

function checkWords(invocation: Invocation): ActionName {
  const [word = "", ...rest] = invocation.positionals;
  const names = Object.keys(ACTIONS) as ActionName[];
  const action = names.find((name) => name === word);
  if (action === undefined) {
    const near = nearest(word, names);
    const advice = near === undefined ? `actions: ${names.join(", ")}` : `did you mean ${near}?`;
    throw usageFailure(`unknown action ${quote(word)} of saga`, [advice]);
  }
  for (const [option, actions] of Object.entries(OPTIONS_OF)) {
    if (invocation.has(option) && !actions.includes(action)) {
      throw usageFailure(`--${option} is for saga ${actions.join(", ")}`);
    }
  }
  const wanted = action === "list" ? 0 : action === "skip" ? 3 : 2;
  if (rest.length !== wanted) {
    const words = ["", "", "<saga> <key>", "<saga> <key> <step>"][wanted] ?? "";
    throw usageFailure(`usage: hapax saga ${action} ${words}`.trim());
  }
  return action;
}

function refOf(invocation: Invocation): SagaRef {
  const [, saga = "", key = ""] = invocation.positionals;
  return { saga, scope: invocation.value("scope") ?? "*", key };
}

function nameOf({ saga, scope, key }: SagaRef): string {
  return scope === "*" ? `${saga} ${key}` : `${saga} ${key} of ${scope}`;
}

function actorOf({ invocation, context }: Work): { readonly by: string; readonly note?: string } {
  const by = invocation.value("by") ?? context.env["USER"] ?? "";
  if (by === "") throw usageFailure("say who you are: --by <name>");
  const note = invocation.value("note");
  return note === undefined ? { by } : { by, note };
}

async function list({ invocation, context, sagas }: Work): Promise<number> {
  const given = invocation.value("state");
  const state = STATES.find((one) => one === given);
  if (given !== undefined && state === undefined) {
    throw usageFailure(`--state is ${quote(given)}; allowed: ${STATES.join(", ")}`);
  }
  const max = parseCountOption("max", invocation.value("max"), LISTED);
  const [saga, scope] = [invocation.value("saga"), invocation.value("scope")];
  const found = await sagas.list({
    max,
    ...(saga === undefined ? {} : { saga }),
    ...(scope === undefined ? {} : { scope }),
    ...(state === undefined ? {} : { state }),
  });
  if (invocation.has("json")) {
    for (const one of found) await context.stdout.write(`${JSON.stringify(one)}\n`);
    return EXIT.done;
  }
  if (found.length === 0) {
    await context.stderr.write("no sagas\n");
    return EXIT.done;
  }
  const rows = found.map((view) => [
    view.saga,
    view.scope,
    view.key,
    view.state,
    seconds(view.ageMs),
    whyOf(view),
  ]);
  const header = ["SAGA", "SCOPE", "KEY", "STATE", "AGE", "WHY"];
  await context.stdout.write(formatTable(header, rows, createPaint(context.stdout, context.env)));
  if (found.length === max) {
    await context.stderr.write(`the first ${countOf(max, "saga")}; --max shows more\n`);
  }
  return EXIT.done;
}

function whyOf({ stuck, waiting, cause, state }: SagaView): string {
  if (stuck !== undefined)
    return [stuck.reason, stuck.step ?? "", stuck.message].filter((one) => one !== "").join(": ");
  if (state === "sleeping" && waiting !== undefined) return `waits for ${waiting.for}`;
  if (cause === undefined) return "";
  return cause.step === undefined ? cause.message : `${cause.step}: ${cause.message}`;
}

function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(1)} s`;
}

async function show({ invocation, context, sagas }: Work): Promise<number> {
  const ref = refOf(invocation);
  const view = await sagas.find(ref);
  if (view === undefined) {
    throw new CommandFailure(EXIT.notFound, `there is no saga ${nameOf(ref)}`, [
      "its scope is given by --scope; see: hapax saga list",
    ]);
  }
  if (invocation.has("json")) {
    await context.stdout.write(`${JSON.stringify(view)}\n`);
    return EXIT.done;
  }
  const paint = createPaint(context.stdout, context.env);
  const pairs: (readonly [string, string])[] = [
    ["saga", `${view.saga}, version ${view.version}`],
    ["scope", view.scope],
    ["key", view.key],
    ["state", view.state],
    ["age", seconds(view.ageMs)],
  ];
  const why = whyOf(view);
  if (why !== "") pairs.push(["why", why]);
  const steps = view.steps.map(({ name, state, attempts, failure }) => [
    name,
    state,
    String(attempts),
    failure === undefined ? "" : `${failure.name}: ${failure.message}`,
  ]);
  const line = view.history.map(({ atMs, what, step, by, note }) => [
    `+${seconds(atMs)}`,
    what,
    step ?? "",
    by ?? "",
    note ?? "",
  ]);
  await context.stdout.write(
    [
      formatPairs(pairs, paint),
      formatTable(["STEP", "STATE", "ATTEMPTS", "FAILURE"], steps, paint),
      formatTable(["TIME", "WHAT", "STEP", "BY", "NOTE"], line, paint),
    ].join("\n"),
  );
  return EXIT.done;
}

async function retry(work: Work): Promise<number> {
  const view = await work.sagas.retry(refOf(work.invocation), actorOf(work));
  return await told(work, view, "retried");
}

async function skip(work: Work): Promise<number> {
  const [, , , step = ""] = work.invocation.positionals;
  const text = work.invocation.value("result");
  const view = await work.sagas.skip(refOf(work.invocation), step, {
    ...actorOf(work),
    ...(text === undefined ? {} : { result: resultOf(text) }),
  });
  return await told(work, view, "skipped", `${step} of `);
}

function resultOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new CommandFailure(EXIT.usage, `--result is no JSON: ${quote(text)}`, [], {}, { cause });
  }
}

async function abort(work: Work): Promise<number> {
  const { invocation, context } = work;
  const actor = actorOf(work);
  const ref = refOf(invocation);
  await confirm(invocation, context, `Undo ${nameOf(ref)}?`, "aborted");
  return await told(work, await work.sagas.abort(ref, actor), "aborted");
}

async function finish(work: Work): Promise<number> {
  const { invocation, context } = work;
  const actor = actorOf(work);
  const ref = refOf(invocation);
  const question = `End ${nameOf(ref)} as it is? What it has done stays. This cannot be undone.`;
  await confirm(invocation, context, question, "finished");
  return await told(work, await work.sagas.finish(ref, actor), "finished");
}

async function told(
  { invocation, context }: Work,
  view: SagaView,
  verb: string,
  what = "",
): Promise<number> {
  const rest = `${what}${nameOf(view)}: it is ${view.state}`;
  await tell(invocation, context, view, verb, rest);
  return EXIT.done;
}

export const sagaCommand: Command = {
  name: "saga",
  summary: "list sagas, show what has happened to one, and act on those that are stuck",
  usage: [
    "hapax saga list --database <database> [--state stuck] [options]",
    "hapax saga show --database <database> <saga> <key> [--scope <scope>]",
    "hapax saga retry --database <database> <saga> <key> [--by <name>] [--note <text>]",
    "hapax saga skip --database <database> <saga> <key> <step> [--result <json>]",
    "hapax saga abort | finish --database <database> <saga> <key>",
  ],
  positionalsMin: 1,
  positionalsMax: 4,
  options: [
    {
      name: "database",
      value: "database",
      env: "HAPAX_DATABASE",
      help: "postgres://…, or the path of a SQLite file",
    },
    { name: "schema", value: "name", help: "PostgreSQL: where the tables are" },
    { name: "scope", value: "scope", help: "the scope of the saga (default *; list: all)" },
    { name: "saga", value: "name", help: "list: only sagas of this definition" },
    { name: "state", value: "state", help: `list: only ${STATES.join(", ")}` },
    { name: "max", value: "count", help: "list: show at most this many (default 100)" },
    { name: "by", value: "name", help: "acts: who you are, for the history (default $USER)" },
    { name: "note", value: "text", help: "acts: why, for the history" },
    { name: "result", value: "json", help: "skip: what the step has returned" },
    { name: "yes", short: "y", help: "abort, finish: do not ask" },
  ],
  details: [
    "A stuck saga does nothing until you act:",
    "  retry    tries the step again, with new attempts",
    "  skip     marks the step as done, with a result, or marks its undo as done",
    "  abort    undoes the saga; not after its pivot",
    "  finish   ends the saga without another step",
    "",
    "Your application goes on with the saga: this command only writes down what you want. It opens the database with a",
    "driver in your working directory, as hapax outbox does.",
  ],
  examples: [
    ["which ones need you?", "hapax saga list --database shop.db --state stuck"],
    ["what has happened?", "hapax saga show --database shop.db checkout 'order 17' --scope shop-1"],
    [
      "the provider is back",
      "hapax saga retry --database shop.db checkout 'order 17' --scope shop-1 --note 'provider is back'",
    ],
  ],
  run: runSaga,
};
