/** Help for people, made from the table of commands, so that it cannot promise what is not parsed. */

import { COMMON_OPTIONS, type Command, type OptionSpec } from "./command.ts";
import type { Paint } from "./terminal.ts";

const EXIT_CODES: readonly (readonly [string, string])[] = [
  ["0", "done; also after Ctrl-C in `tail`, and when `serve` stops in order"],
  [
    "1",
    "refused by the server, by a condition, or by you when asked; or `serve` could not start; or damage was found",
  ],
  ["2", "the command line, an option or the input is not valid"],
  ["3", "the server or the database could not be reached"],
  ["4", "no such stream, producer or outbox, or it is gone"],
  ["130, 143", "interrupted by SIGINT or SIGTERM before the end"],
];

const ENVIRONMENT: readonly (readonly [string, string])[] = [
  ["HAPAX_URL", "the server, like --url"],
  [
    "HAPAX_TOKEN",
    "the token for the server of HAPAX_URL or --url, and for no other; or --token-file",
  ],
  ["HAPAX_SERVER_TOKEN", "`serve`: a token with all rights, which clients send as HAPAX_TOKEN"],
  ["HAPAX_DATABASE", "the database of `outbox`, like --database"],
  ["NO_COLOR, FORCE_COLOR", "no colours, or colours also without a terminal"],
];

export function generalHelp(commands: readonly Command[], paint: Paint): string {
  return [
    `${paint("bold", "hapax")}: durable streams over HTTP, written exactly once`,
    "",
    paint("bold", "Usage"),
    "  hapax <command> [arguments] [options]",
    "",
    paint("bold", "Commands"),
    ...twoColumns(commands.map(({ name, summary }) => [name, summary])),
    "",
    paint("bold", "Streams"),
    "  A stream is a name (orders means /v1/stream/orders), a path from / on, or a full URL.",
    "",
    paint("bold", "Environment"),
    ...twoColumns(ENVIRONMENT),
    "",
    paint("bold", "Exit codes"),
    ...twoColumns(EXIT_CODES),
    "",
    paint("bold", "A first look"),
    "  hapax serve &",
    "  hapax create orders",
    `  hapax append orders '{"id": 1}'`,
    "  hapax read orders",
    "",
    "More about a command: hapax help <command>",
    "",
  ].join("\n");
}

export function commandHelp(command: Command, paint: Paint): string {
  const options = [...command.options, ...COMMON_OPTIONS];
  const details = command.details === undefined ? [] : ["", ...command.details];
  return [
    `${paint("bold", `hapax ${command.name}`)}: ${command.summary}`,
    "",
    paint("bold", "Usage"),
    ...command.usage.map((line) => `  ${line}`),
    ...details,
    "",
    paint("bold", "Options"),
    ...twoColumns(options.map((option) => [optionTitle(option), optionHelp(option)])),
    "",
    paint("bold", "Examples"),
    ...command.examples.flatMap(([comment, line]) => [
      `  ${paint("dim", `# ${comment}`)}`,
      `  ${line}`,
    ]),
    "",
  ].join("\n");
}

function optionTitle({ name, short, value }: OptionSpec): string {
  const argument = value === undefined ? "" : ` ${value.startsWith("'") ? value : `<${value}>`}`;
  return `${short === undefined ? "" : `-${short}, `}--${name}${argument}`;
}

function optionHelp({ help, env }: OptionSpec): string {
  return env === undefined ? help : `${help} [${env}]`;
}

function twoColumns(rows: readonly (readonly [string, string])[]): string[] {
  const width = Math.max(...rows.map(([left]) => left.length));
  return rows.map(([left, right]) => `  ${left.padEnd(width)}  ${right}`);
}
