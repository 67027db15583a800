/** What the routes of our own have in common: JSON answers and the parameters of lists. */

import { LIMITS } from "../limits.ts";
import { HEADER } from "../wire/headers.ts";
import { invalid } from "../wire/refusal.ts";
import { parseCount, type Query } from "../wire/values.ts";
import type { WholeAnswer } from "./exchange.ts";

const utf8 = new TextEncoder();

export function json(status: number, value: unknown): WholeAnswer {
  return {
    status,
    headers: { [HEADER.contentType]: "application/json", [HEADER.cacheControl]: "no-store" },
    body: utf8.encode(JSON.stringify(value)),
  };
}

export function parseLimit(value: string | undefined): number {
  if (value === undefined) return LIMITS.listMax;
  const limit = parseCount(value);
  if (limit === undefined || limit < 1 || limit > LIMITS.listMax) {
    throw invalid("limit", `is not a whole number from 1 to ${LIMITS.listMax}`);
  }
  return limit;
}

export function queryText(query: Query, name: string): string | undefined {
  const found = query.get(name);
  if (found.kind === "absent") return undefined;
  if (found.kind === "value") return found.value;
  throw invalid(name, `is ${found.kind} in the query`);
}
