/** `hapax config`: what `serve` would run with, and the schema of its file. */

import { nearest, quote } from "./arguments.ts";
import type { Command, Invocation } from "./command.ts";
import { configSchema } from "./config-schema.ts";
import {
  type LoadedConfiguration,
  loadConfiguration,
  loadFrom,
  shownValue,
  showValue,
} from "./configuration.ts";
import type { Context } from "./context.ts";
import { EXIT, usageFailure } from "./failure.ts";
import { SERVE_OPTIONS, SERVE_TABLE } from "./serve-options.ts";
import { createPaint, formatTable, printable } from "./terminal.ts";

const ACTS = ["check", "schema"];

async function runConfig(invocation: Invocation, context: Context): Promise<number> {
  const [act = "", path] = invocation.positionals;
  if (act === "check") {
    await printConfiguration(await load(invocation, context, path), invocation, context);
    return EXIT.done;
  }
  if (act === "schema" && path === undefined) {
    await context.stdout.write(`${JSON.stringify(configSchema(SERVE_TABLE), undefined, 2)}\n`);
    return EXIT.done;
  }
  if (act === "schema") throw usageFailure(`config schema does not take ${quote(path ?? "")}`);
  const near = nearest(act, ACTS) ?? ACTS.join(" or ");
  throw usageFailure(`unknown act ${quote(act)} of config`, [`did you mean ${near}?`]);
}

function load(
  invocation: Invocation,
  context: Context,
  path: string | undefined,
): Promise<LoadedConfiguration> {
  if (path === undefined) return loadConfiguration(invocation, context);
  if (invocation.value("config") !== undefined) {
    throw usageFailure(`${quote(path)} and --config name two files`);
  }
  return loadFrom(invocation, context, path);
}

async function printConfiguration(
  { file, settings }: LoadedConfiguration,
  invocation: Invocation,
  context: Context,
): Promise<void> {
  if (invocation.has("json")) {
    const options = settings.map(({ member, row, value, from, name }) => {
      const shown = row.isSecret === true ? { isSecret: true } : { value: shownValue(row, value) };
      const given = from === "default" ? {} : { name };
      return [member, { ...shown, from, ...given, reload: row.reload }] as const;
    });
    const facts = { isValid: true, file: file?.path, options: Object.fromEntries(options) };
    await context.stdout.write(`${JSON.stringify(facts)}\n`);
    return;
  }
  const paint = createPaint(context.stdout, context.env);
  const where = file === undefined ? "no configuration file" : printable(file.path);
  const rows = settings.map((setting) => [
    setting.member,
    showValue(setting, settings),
    setting.from === "flag" || setting.from === "variable" ? setting.name : setting.from,
    setting.row.reload === "live" ? "by SIGHUP" : "by a restart",
  ]);
  const table = formatTable(["OPTION", "VALUE", "FROM", "CHANGES"], rows, paint);
  await context.stdout.write(`${paint("green", "valid:")} ${where}\n\n${table}`);
}

export const configCommand: Command = {
  name: "config",
  summary: "check the configuration of `serve`, or print its schema",
  usage: ["hapax config check [file] [options of serve]", "hapax config schema"],
  positionalsMin: 1,
  positionalsMax: 2,
  options: SERVE_OPTIONS,
  details: [
    "`check` prints what `hapax serve` with the same options would run with, and where each value is from: a flag, a",
    "variable, the file, or the default. It lists every problem, and then ends with exit code 2. `schema` prints the JSON",
    "Schema of the file.",
  ],
  examples: [
    ["what would serve run with?", "hapax config check"],
    ["before a file is put in place", "hapax config check ./new.config.json"],
    ["for an editor", "hapax config schema > hapax.config.schema.json"],
  ],
  run: runConfig,
};
