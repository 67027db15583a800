/** Lists of the server that come in pages: PROTOCOL.md §12.1, §12.4. */

import type { Context } from "./context.ts";
import { CommandFailure, EXIT } from "./failure.ts";
import { type CliAnswer, refusal, send } from "./http.ts";
import type { Target } from "./target.ts";

const PAGE_LIMIT = "1000";

/** One entry of a list: as it came, and its fields by name. */
export interface ListEntry {
  readonly raw: unknown;
  text(name: string): string;
  number(name: string): number | undefined;
  isTrue(name: string): boolean;
}

/** The entries page by page, each page as soon as it is there. */
export async function* readPages(
  context: Context,
  target: Target,
  field: string,
  query: Readonly<Record<string, string | undefined>>,
): AsyncGenerator<readonly ListEntry[]> {
  let after: string | undefined;
  do {
    const call = { target, method: "GET", query: { ...query, after, limit: PAGE_LIMIT } } as const;
    const answer = await send(context, call);
    if (answer.status !== 200) throw extensionRefusal(target, answer);
    const body = new Map<string, unknown>(Object.entries(parseJson(target, answer) ?? {}));
    const raw = body.get(field);
    if (!Array.isArray(raw)) throw badAnswer(target);
    yield raw.map((entry: unknown) => entryOf(entry));
    const next = body.get("next");
    // A server that repeats itself must not make us ask without end.
    if (next !== undefined && next === after) throw badAnswer(target);
    after = typeof next === "string" && next !== "" ? next : undefined;
  } while (after !== undefined);
}

function entryOf(raw: unknown): ListEntry {
  const fields = new Map<string, unknown>(Object.entries(raw ?? {}));
  return {
    raw,
    text(name) {
      const value = fields.get(name);
      return typeof value === "string" ? value : "";
    },
    number(name) {
      const value = fields.get(name);
      return typeof value === "number" ? value : undefined;
    },
    isTrue: (name) => fields.get(name) === true,
  };
}

/** An entry alone, as an answer's whole body. */
export function readEntry(target: Target, answer: CliAnswer): ListEntry {
  return entryOf(parseJson(target, answer));
}

/** A page for programs: each entry as it came, one a line. */
export function jsonLines(entries: readonly ListEntry[]): string {
  return entries.map(({ raw }) => `${JSON.stringify(raw)}\n`).join("");
}

function parseJson(target: Target, answer: CliAnswer): unknown {
  try {
    return JSON.parse(new TextDecoder().decode(answer.body));
  } catch (cause) {
    const { message, advice } = badAnswer(target);
    throw new CommandFailure(EXIT.refused, message, advice, {}, { cause });
  }
}

function badAnswer(target: Target): CommandFailure {
  return new CommandFailure(EXIT.refused, `${target.url} does not answer as expected`, [
    "is it a Hapax server?",
  ]);
}

/** A refusal of a route of our own: a 404 without a code of ours is a server without the route. */
export function extensionRefusal(target: Target, answer: CliAnswer): CommandFailure {
  const failure = refusal(target, answer);
  if (answer.status !== 404 || failure.problem.code !== undefined) return failure;
  return failure.withAdvice([
    `${new URL(target.url).pathname} is an extension of Hapax: other servers may not have it`,
  ]);
}
