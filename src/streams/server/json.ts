/** What the routes of our own have in common: JSON answers and the parameters of lists. */

import { utf8Of } from "../../base/bytes.ts";
import { HapaxError } from "../../base/errors.ts";
import type { StreamName } from "../core/types.ts";
import type { Slices } from "../engine/turn-budget.ts";
import { LIMITS } from "../../protocol/limits.ts";
import { HEADER } from "../../protocol/headers.ts";
import { invalid } from "../../protocol/refusal.ts";
import {
  encodeStreamPath,
  parseCount,
  parseQuery,
  parseStreamPath,
  type QueryString,
} from "../../protocol/values.ts";
import type { Exchange, WholeAnswer } from "./exchange.ts";

export function json(status: number, value: unknown): WholeAnswer {
  return {
    status,
    headers: { [HEADER.contentType]: "application/json", [HEADER.cacheControl]: "no-store" },
    body: utf8Of(JSON.stringify(value)),
  };
}

/** An answer with one list that may be very long: it is written in slices, and comes first. */
export async function jsonWithList<T>(
  slices: Slices,
  list: {
    readonly name: string;
    readonly items: readonly T[];
    readonly show: (item: T) => unknown;
  },
  rest: object,
): Promise<WholeAnswer> {
  const pieces: Uint8Array[] = [];
  let text = `{${JSON.stringify(list.name)}:[`;
  for (const [index, item] of list.items.entries()) {
    if (!slices.take()) {
      pieces.push(utf8Of(text));
      text = "";
      await slices.turn();
    }
    text += (index === 0 ? "" : ",") + JSON.stringify(list.show(item));
  }
  const others = JSON.stringify(rest).slice(1);
  pieces.push(utf8Of(`${text}]${others === "}" ? "" : ","}${others}`));
  return { ...json(200, {}), body: pieces };
}

export function parseLimit(value: string | undefined): number {
  if (value === undefined) return LIMITS.listMax;
  const limit = parseCount(value);
  if (limit === undefined || limit < 1 || limit > LIMITS.listMax) {
    throw invalid("limit", `is not a whole number from 1 to ${LIMITS.listMax}`);
  }
  return limit;
}

/** The stream that the query names. */
export function streamInQuery({ query }: Pick<Exchange, "query">): StreamName {
  const text = queryText(parseQuery(query), "stream");
  if (text === undefined) throw invalid("stream", "is missing in the query");
  // The query has been decoded, and a path is decoded once: what is left of `%` belongs to the name.
  const path = parseStreamPath(encodeStreamPath(text as StreamName));
  if (path.kind === "invalid") throw new HapaxError(path.code, path.reason);
  return path.name;
}

export function queryText(query: QueryString, name: string): string | undefined {
  const found = query.get(name);
  if (found.kind === "absent") return undefined;
  if (found.kind === "value") return found.value;
  throw invalid(name, `is ${found.kind} in the query`);
}
