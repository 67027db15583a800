/** Jobs on the wire: parses what workers send. PROTOCOL.md §20.5. */

import type { JobClaim, JobLater } from "../streams/core/job-decide.ts";
import { LIMITS } from "./all-limits.ts";
import { Members, parseMembers } from "./members.ts";
import { invalid } from "./refusal.ts";
import { checkOffset } from "./transaction-operation.ts";

export interface TakeBody {
  readonly member: string;
  readonly max: number;
  readonly seen: number;
  readonly waitMs: number;
}

export function parseTake(body: Uint8Array): TakeBody {
  const members = parseMembers(body);
  return {
    member: members.text("member"),
    max: members.has("max") ? members.count("max", 1, LIMITS.jobCallMax) : 1,
    seen: members.has("seen") ? members.count("seen") : 0,
    waitMs: members.has("waitMs") ? members.count("waitMs", 0, LIMITS.longPollMs) : 0,
  };
}

export interface SettleBody {
  readonly member: string;
  readonly done: readonly JobClaim[];
  readonly later: readonly JobLater[];
}

export function parseSettle(body: Uint8Array): SettleBody {
  const members = parseMembers(body);
  const seen = new Set<string>();
  const parse = <T>(name: "done" | "later", read: (entry: Members, claim: JobClaim) => T) => {
    if (!members.has(name)) return [];
    return members.list(name, (value, index): T => {
      if (index >= LIMITS.jobCallMax)
        throw invalid(name, `has more than ${LIMITS.jobCallMax} jobs`);
      const entry = new Members(value, `${name}[${index}]`);
      const claim = parseClaim(entry);
      const key = `${claim.offset} ${claim.stream}`;
      if (seen.has(key)) throw invalid(name, "names a job that is named before");
      seen.add(key);
      return read(entry, claim);
    });
  };
  const done = parse("done", (_entry, claim) => claim);
  const later = parse("later", (entry, claim): JobLater => ({
    ...claim,
    delayMs: entry.has("delayMs") ? entry.count("delayMs", 0, LIMITS.jobDelayMsMax) : 0,
    isCounted: !entry.flag("uncounted"),
  }));
  return { member: members.text("member"), done, later };
}

function parseClaim(entry: Members): JobClaim {
  return {
    stream: entry.path("stream"),
    offset: checkOffset("offset", entry.text("offset")),
    token: entry.count("token"),
  };
}
