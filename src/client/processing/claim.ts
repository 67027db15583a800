/** Reads the server's answer to a claim. PROTOCOL.md §20.2. */

import { HapaxError } from "../../base/errors.ts";
import { listOf, mapOf, textsOf } from "./calls.ts";

/** A leased stream, its life, and the committed offset of the group. */
export interface ClaimedStream {
  readonly stream: string;
  readonly life: string;
  readonly offset: string;
}

export interface ClaimAnswer {
  /** The leased streams, by token. */
  readonly leases: ReadonlyMap<number, ClaimedStream>;
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

function leaseOf(value: unknown): [number, ClaimedStream] {
  const members = mapOf(value);
  const [stream, life, offset] = textsOf(
    ["stream", "life", "offset"].map((name) => members.get(name)),
  );
  const token = numberIn(members, "token");
  if (stream === undefined || life === undefined || offset === undefined || token === undefined) {
    throw new HapaxError("internal", "the server's answer has no valid lease");
  }
  return [token, { stream, life, offset }];
}

/** Returns a member that is a number; else undefined. */
export function numberIn(members: ReadonlyMap<string, unknown>, name: string): number | undefined {
  const value = members.get(name);
  return typeof value === "number" ? value : undefined;
}
