/** The table of commands, in the order of the help. */

import { nearest, quote } from "./arguments.ts";
import { appendCommand } from "./append.ts";
import { backupCommand } from "./backup.ts";
import { clusterCommand } from "./cluster.ts";
import type { Command, Invocation } from "./command.ts";
import { configCommand } from "./config.ts";
import type { Context } from "./context.ts";
import { copyCommand } from "./copy.ts";
import { createCommand } from "./create.ts";
import { deadLettersCommand } from "./dead-letters.ts";
import { closeCommand, deleteCommand } from "./ending.ts";
import { EXIT, usageFailure } from "./failure.ts";
import { groupsCommand } from "./groups.ts";
import { commandHelp, generalHelp } from "./help.ts";
import { inspectCommand } from "./inspect.ts";
import { headCommand, listCommand } from "./metadata.ts";
import { outboxCommand } from "./outbox.ts";
import { producersCommand } from "./producers.ts";
import { readCommand } from "./read.ts";
import { compactionCommand } from "./compaction.ts";
import { retentionCommand, trimCommand } from "./retention.ts";
import { repairCommand } from "./repair.ts";
import { restoreCommand } from "./restore.ts";
import { sagaCommand } from "./saga.ts";
import { serveCommand } from "./serve.ts";
import { signUrlCommand } from "./sign-url.ts";
import { tailCommand } from "./tail.ts";
import { createPaint } from "./terminal.ts";
import { tokensCommand } from "./tokens.ts";
import { topCommand } from "./top.ts";
import { verifyCommand } from "./verify.ts";

const helpCommand: Command = {
  name: "help",
  summary: "explain a command",
  usage: ["hapax help [command]"],
  positionalsMin: 0,
  positionalsMax: 1,
  options: [],
  examples: [["how to append", "hapax help append"]],
  run: runHelp,
};

const versionCommand: Command = {
  name: "version",
  summary: "print the version",
  usage: ["hapax version"],
  positionalsMin: 0,
  positionalsMax: 0,
  options: [],
  examples: [["which one is this?", "hapax version"]],
  run: runVersion,
};

export const COMMANDS: readonly Command[] = [
  serveCommand,
  clusterCommand,
  configCommand,
  tokensCommand,
  createCommand,
  appendCommand,
  readCommand,
  tailCommand,
  headCommand,
  listCommand,
  topCommand,
  producersCommand,
  groupsCommand,
  deadLettersCommand,
  outboxCommand,
  sagaCommand,
  closeCommand,
  deleteCommand,
  trimCommand,
  retentionCommand,
  compactionCommand,
  signUrlCommand,
  inspectCommand,
  verifyCommand,
  repairCommand,
  copyCommand,
  backupCommand,
  restoreCommand,
  helpCommand,
  versionCommand,
];

export function findCommand(name: string): Command {
  const found = COMMANDS.find((command) => command.name === name);
  if (found !== undefined) return found;
  const names = COMMANDS.map((command) => command.name);
  const near = nearest(name, names);
  const advice = near === undefined ? [`commands: ${names.join(", ")}`] : [`did you mean ${near}?`];
  throw usageFailure(`unknown command ${quote(name)}`, [...advice, "see: hapax help"]);
}

async function runHelp(invocation: Invocation, context: Context): Promise<number> {
  const paint = createPaint(context.stdout, context.env);
  const name = invocation.positionals[0];
  const text =
    name === undefined ? generalHelp(COMMANDS, paint) : commandHelp(findCommand(name), paint);
  await context.stdout.write(text);
  return EXIT.done;
}

async function runVersion(invocation: Invocation, context: Context): Promise<number> {
  const version = await context.version();
  const line = invocation.has("json") ? JSON.stringify({ version }) : `hapax ${version}`;
  await context.stdout.write(`${line}\n`);
  return EXIT.done;
}
