/**
 * The headers that say what is left of a rate: `RateLimit-Policy` and `RateLimit`, as the IETF's draft of them has it (draft-ietf-httpapi-ratelimit-headers,
 * from version 8 on). PROTOCOL.md §21.9.
 */

import { HEADER } from "./headers.ts";

/** A rate, and what is left of it. */
export interface RateLeft {
  readonly name: "appends" | "bytes";
  readonly perSecond: number;
  /** What can be taken now, in whole units. */
  readonly left: number;
  /** Seconds until all of it can be taken again, rounded up. */
  readonly resetSeconds: number;
}

/** The unit of each rate, in the words of the draft. Requests are its default. */
const UNITS = { appends: "", bytes: ';qu="content-bytes"' } as const;

/** Returns the headers of rates: one at least. */
export function encodeRates(rates: readonly RateLeft[]): Record<string, string> {
  const policies = rates.map(({ name, perSecond }) => `"${name}";q=${perSecond};w=1${UNITS[name]}`);
  const limits = rates.map(({ name, left, resetSeconds }) => {
    return `"${name}";r=${left};t=${resetSeconds}`;
  });
  return {
    [HEADER.rateLimitPolicy]: policies.join(", "),
    [HEADER.rateLimit]: limits.join(", "),
  };
}
