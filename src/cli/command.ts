/** The shape of a row in the table of commands; help, parsing and dispatch all read it. */

import type { Context } from "./context.ts";

export interface OptionSpec {
  readonly name: string;
  readonly short?: string;
  /** What the value is, in words for the help; absent for a switch. */
  readonly value?: string;
  readonly isRepeatable?: boolean;
  /** The variable that gives the value when the flag is absent. */
  readonly env?: string;
  readonly help: string;
}

export interface Invocation {
  readonly positionals: readonly string[];
  /** Whether a switch is on. */
  has(name: string): boolean;
  /** The last value given, if any. */
  value(name: string): string | undefined;
  values(name: string): readonly string[];
}

export interface Command {
  readonly name: string;
  readonly summary: string;
  readonly usage: readonly string[];
  readonly positionalsMin: number;
  readonly positionalsMax: number;
  readonly options: readonly OptionSpec[];
  readonly details?: readonly string[];
  /** Each a comment and the command line that it explains. */
  readonly examples: readonly (readonly [string, string])[];
  /** Answers the exit code. */
  run(invocation: Invocation, context: Context): Promise<number>;
}

/** Options of every command. */
export const COMMON_OPTIONS: readonly OptionSpec[] = [
  {
    name: "json",
    help: "machine-readable output, and failures as JSON on stderr",
  },
  { name: "help", short: "h", help: "this help" },
];

/** Every command that has it talks to a server, and sends the token. */
export const TOKEN_FILE_OPTION: OptionSpec = {
  name: "token-file",
  value: "path",
  help: "a file with the token for the server, which only you can open; without it HAPAX_TOKEN",
};

/** Options of every command that talks to a server. */
export const CLIENT_OPTIONS: readonly OptionSpec[] = [
  {
    name: "url",
    value: "url",
    env: "HAPAX_URL",
    help: "the server (default http://127.0.0.1:4437)",
  },
  TOKEN_FILE_OPTION,
  {
    name: "header",
    value: "'Name: value'",
    isRepeatable: true,
    help: "a header for every request; may be repeated",
  },
];
