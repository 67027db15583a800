/** Finds and reads the configuration file. What its members mean is in the table of options. */

import type { Invocation } from "./command.ts";
import type { Context } from "./context.ts";
import { CommandFailure, EXIT, usageFailure } from "./failure.ts";
import { CONFIG_OPTION } from "./serve-options.ts";

export const CONFIG_FILE_DEFAULT = "hapax.config.json";

/** A configuration has a few dozen members. A file that is much larger is another file. */
const CONFIG_BYTES_MAX = 1024 * 1024;

export interface ConfigFile {
  readonly path: string;
  readonly members: ReadonlyMap<string, unknown>;
}

/**
 * Reads the file that the flag or the variable names, or else `hapax.config.json`. A file that was named must exist.
 * Undefined: none was named, and there is none.
 */
export async function findConfigFile(
  invocation: Invocation,
  context: Context,
): Promise<ConfigFile | undefined> {
  const variable = context.env[CONFIG_OPTION.env ?? ""] ?? "";
  const named = invocation.value(CONFIG_OPTION.name) ?? (variable === "" ? undefined : variable);
  if (named !== undefined) return readConfigFile(named, context);
  try {
    return await readConfigFile(CONFIG_FILE_DEFAULT, context);
  } catch (error) {
    if (error instanceof CommandFailure && error.problem.code === "ENOENT") return undefined;
    throw error;
  }
}

export async function readConfigFile(path: string, context: Context): Promise<ConfigFile> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of context.openFile(path)) {
    bytes += chunk.length;
    if (bytes > CONFIG_BYTES_MAX) {
      throw usageFailure(`${path} has more than ${String(CONFIG_BYTES_MAX)} bytes`);
    }
    chunks.push(chunk);
  }
  const json = parseJson(path, Buffer.concat(chunks).toString("utf8"));
  if (typeof json !== "object" || json === null || Array.isArray(json)) {
    throw usageFailure(`${path} is not a JSON object`, ['for example: {"port": 4437}']);
  }
  return { path, members: new Map(Object.entries(json)) };
}

function parseJson(path: string, text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch (error) {
    // The message of the engine quotes the file, which may have secrets. Only the place is taken from it.
    const position = /position (\d+)/.exec(String(error))?.[1];
    const isShort = String(error).includes("end of JSON input");
    const place = position === undefined ? "" : `: see ${placeOf(text, Number(position))}`;
    const problem = `${path} is not JSON${isShort ? ": it ends too early" : place}`;
    const advice = [
      "JSON has no comments, no comma after the last member, and names in double quotes",
    ];
    throw new CommandFailure(EXIT.usage, problem, advice, {}, { cause: error });
  }
}

function placeOf(text: string, position: number): string {
  const lines = text.slice(0, position).split("\n");
  return `line ${String(lines.length)} column ${String((lines.at(-1) ?? "").length + 1)}`;
}
