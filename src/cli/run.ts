/** From the words of a command line to an exit code. Failures are printed here and nowhere else. */

import { parseInvocation, splitCommand } from "./arguments.ts";
import { CLIENT_OPTIONS, COMMON_OPTIONS, type OptionSpec, TOKEN_FILE_OPTION } from "./command.ts";
import { COMMANDS, findCommand } from "./commands.ts";
import type { Context } from "./context.ts";
import { CommandFailure, EXIT, systemCode } from "./failure.ts";
import { commandHelp, generalHelp } from "./help.ts";
import { createPaint } from "./terminal.ts";
import { tokenOf } from "./token.ts";

const VERSION_OPTION: OptionSpec = { name: "version", short: "v", help: "print the version" };

/** Runs one command line, the program's own name left out, and answers its exit code. */
export async function runCommandLine(words: readonly string[], context: Context): Promise<number> {
  try {
    return await dispatch(words, context);
  } catch (error) {
    // The reader of our output has closed the pipe, as in `hapax read orders | head`.
    if (systemCode(error) === "EPIPE") return EXIT.done;
    const failure = asFailure(error);
    await printFailure(failure, context, words.includes("--json"));
    return failure.exitCode;
  }
}

/** A full disk behind stdout deserves a line; a fault of ours deserves its stack trace. */
function asFailure(error: unknown): CommandFailure {
  if (error instanceof CommandFailure) return error;
  const code = systemCode(error) ?? "";
  if (!(error instanceof Error) || !/^E(?!RR_)[A-Z]/.test(code)) throw error;
  return new CommandFailure(EXIT.refused, error.message, [], { code }, { cause: error });
}

async function dispatch(words: readonly string[], context: Context): Promise<number> {
  const globals = [...CLIENT_OPTIONS, ...COMMON_OPTIONS, VERSION_OPTION];
  const split = splitCommand(globals, words);
  const paint = createPaint(context.stdout, context.env);
  if (split.commandName === undefined) {
    const isVersion = split.words.includes("--version") || split.words.includes("-v");
    if (isVersion) return findCommand("version").run(NOTHING, context);
    await context.stdout.write(generalHelp(COMMANDS, paint));
    return EXIT.done;
  }
  const command = findCommand(split.commandName);
  const options = [...command.options, ...COMMON_OPTIONS];
  const invocation = parseInvocation(command, options, split.words);
  if (invocation.has("help")) {
    await context.stdout.write(commandHelp(command, paint));
    return EXIT.done;
  }
  const isClient = command.options.includes(TOKEN_FILE_OPTION);
  const token = isClient ? await tokenOf(invocation, context) : undefined;
  return command.run(invocation, { ...context, token });
}

const NOTHING = { positionals: [], has: () => false, value: () => undefined, values: () => [] };

async function printFailure(
  failure: CommandFailure,
  context: Context,
  isJson: boolean,
): Promise<void> {
  const { exitCode, message, advice, problem } = failure;
  if (isJson) {
    await context.stderr.write(
      `${JSON.stringify({ error: { exitCode, message, advice, ...problem } })}\n`,
    );
    return;
  }
  const paint = createPaint(context.stderr, context.env);
  const lines = [`${paint("red", "hapax:")} ${message}`, ...advice.map((line) => `  ${line}`)];
  await context.stderr.write(`${lines.join("\n")}\n`);
}
