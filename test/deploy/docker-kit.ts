/** Reads deploy/docker/Dockerfile as the tests need it: stages, each with its instructions. */

import { read } from "../kits/documents.ts";

export interface Instruction {
  readonly name: string;
  readonly text: string;
}

/** The instructions of each stage, by its name. */
export function stagesOf(path: string): ReadonlyMap<string, readonly Instruction[]> {
  const stages = new Map<string, Instruction[]>();
  let stage: Instruction[] = [];
  const lines = read(path)
    .split("\n")
    .filter((line) => line !== "" && !line.startsWith("#"))
    .join("\n")
    .replaceAll(/\\\n\s*/g, "")
    .split("\n");
  for (const line of lines) {
    const [name = ""] = line.split(" ", 1);
    const text = line.slice(name.length + 1);
    if (name === "FROM") stages.set(/ AS (\w+)$/.exec(text)?.[1] ?? "", (stage = []));
    stage.push({ name, text });
  }
  return stages;
}

export const allOf = (
  instructions: readonly Instruction[] | undefined,
  name: string,
): readonly string[] =>
  (instructions ?? []).filter((one) => one.name === name).map(({ text }) => text);

/** The program and its arguments: instructions here have the form of a list. */
export function commandOf(text: string): readonly string[] {
  const list = JSON.parse(text.slice(text.indexOf("["))) as unknown;
  if (!Array.isArray(list)) throw new Error(`not a list: ${text}`);
  return list.map(String);
}

/** `A=1 B=2`, as ENV has it. */
export function environmentOf(texts: readonly string[]): Record<string, string> {
  return Object.fromEntries(
    texts.flatMap((text) => text.split(" ")).map((pair) => pair.split("=") as [string, string]),
  );
}
