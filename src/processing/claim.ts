/** The answer to a claim, as the server gives it. PROTOCOL.md §20.2. */

import { HapaxError } from "../errors.ts";
import { listOf, mapOf, textsOf } from "./calls.ts";

export interface ClaimAnswer {
  /** By token. */
  readonly leases: ReadonlyMap<number, { readonly stream: string; readonly offset: string }>;
  readonly handOver: ReadonlySet<string>;
  readonly leaseMs: number | undefined;
  readonly share: number;
}

export function claimOf(answer: ReadonlyMap<string, unknown>): ClaimAnswer {
  return {
    leases: new Map(listOf(answer.get("leases")).map(leaseOf)),
    handOver: new Set(textsOf(answer.get("handOver"))),
    leaseMs: numberIn(answer, "leaseMs"),
    share: numberIn(answer, "share") ?? 0,
  };
}

function leaseOf(value: unknown): [number, { readonly stream: string; readonly offset: string }] {
  const members = mapOf(value);
  const [stream, token, offset] = ["stream", "token", "offset"].map((name) => members.get(name));
  if (typeof stream !== "string" || typeof token !== "number" || typeof offset !== "string") {
    throw new HapaxError("internal", "the server's answer has a lease that is none");
  }
  return [token, { stream, offset }];
}

/** A member that is a number. */
export function numberIn(members: ReadonlyMap<string, unknown>, name: string): number | undefined {
  const value = members.get(name);
  return typeof value === "number" ? value : undefined;
}
