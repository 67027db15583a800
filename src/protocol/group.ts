/**
 * Groups on the wire: parses JSON bodies into commands, and encodes the answers. PROTOCOL.md §20.
 *
 *   - a call names a stream once: two offsets for one stream would depend on their order.
 */

import type { LeaseCommit } from "../streams/core/group-decide.ts";
import type { GroupSettings, GroupOrigin, LeaseToken } from "../streams/core/group-state.ts";
import type { StreamName } from "../streams/core/types.ts";
import { LIMITS } from "./all-limits.ts";
import { checkName, checkPath, Members, parseMembers } from "./members.ts";
import { invalid } from "./refusal.ts";
import { checkOffset } from "./transaction-operation.ts";
import { decodePercent, formatOffset } from "./values.ts";

/** Parses the name of a group from its part of a path. */
export function parseGroupId(encoded: string): string {
  const text = decodePercent(encoded);
  if (text === undefined) throw invalid("the group in the path", "is not percent-encoded UTF-8");
  if (text === "." || text === "..") {
    throw invalid(
      "the group in the path",
      "is . or .., which URLs drop from a path: choose another name",
    );
  }
  return checkName("the group in the path", text);
}

export function parseGroupSettings(body: Uint8Array): GroupSettings {
  const members = parseMembers(body);
  const pattern = members.has("pattern") ? checkPattern(members.text("pattern")) : undefined;
  const streams = members.has("streams") ? members.list("streams", parsePath) : [];
  if (pattern === undefined && streams.length === 0) {
    throw invalid("pattern or streams", "is required");
  }
  const leaseMs = members.has("leaseMs")
    ? members.count("leaseMs", LIMITS.leaseMsMin, LIMITS.leaseMsMax)
    : LIMITS.leaseMsDefault;
  const start: GroupOrigin = members.has("start")
    ? parseStart(members, "start")
    : { kind: "beginning" };
  // The order of the names has no meaning.
  const settings = { pattern, streams: [...new Set(streams)].toSorted(), start, leaseMs };
  if (!members.flag("jobs")) return settings;
  if (pattern !== undefined) throw invalid("pattern", "is not for jobs: name their streams");
  if (settings.streams.length > LIMITS.jobStreamsMax) {
    const most = `names more than ${LIMITS.jobStreamsMax} streams`;
    throw invalid("streams", `${most}, and jobs are taken from all of them: use several groups`);
  }
  return { ...settings, jobs: true };
}

function parsePath(entry: unknown, index: number): StreamName {
  if (index >= LIMITS.groupStreamsMax) {
    const most = `names more than ${LIMITS.groupStreamsMax} streams`;
    throw invalid("streams", `${most}: use a pattern, or several groups`);
  }
  if (typeof entry !== "string") throw invalid("streams", "has an entry that is not a string");
  return checkPath("streams", entry);
}

/** Checks a pattern. As a path it must be one that a stream can have; a star counts as a letter there. */
function checkPattern(text: string): string {
  const pattern = checkPath("pattern", text);
  const isFit = pattern
    .split("/")
    .every((segment) => segment === "*" || segment === "**" || !segment.includes("*"));
  if (!isFit) throw invalid("pattern", "has a star inside a segment; %2A is a star of a name");
  return pattern;
}

function parseStart(members: Members, name: string): GroupOrigin {
  const text = members.text(name);
  if (text === "beginning" || text === "tail") return { kind: text };
  if (text.includes("_")) return { kind: "offset", offset: checkOffset(name, text) };
  throw invalid(name, "is neither beginning, nor tail, nor an offset");
}

export function formatStart(start: GroupOrigin): string {
  return start.kind === "offset" ? formatOffset(start.offset) : start.kind;
}

/** Parses the name that a member wants to begin with. */
export function parseJoin(body: Uint8Array): string {
  const members = parseMembers(body);
  return members.has("name") ? members.name("name") : "member";
}

export interface ClaimBody {
  readonly member: string;
  readonly max: number;
}

export function parseGroupClaim(body: Uint8Array): ClaimBody {
  const members = parseMembers(body);
  const max = members.has("max") ? members.count("max") : Number.MAX_SAFE_INTEGER;
  return { member: members.text("member"), max };
}

export interface CommitBody {
  readonly member: string;
  readonly commits: readonly LeaseCommit[];
}

export function parseGroupCommit(body: Uint8Array): CommitBody {
  const members = parseMembers(body);
  const commits = members.list("commits", (entry, index): LeaseCommit => {
    const commit = new Members(entry, `commits[${index}]`);
    const offset = commit.has("offset") ? checkOffset("offset", commit.text("offset")) : undefined;
    return { stream: commit.path("stream"), token: commit.count("token"), offset };
  });
  requireDistinct(commits);
  return { member: members.text("member"), commits };
}

export interface ReleaseBody {
  readonly member: string;
  readonly leases: readonly { readonly stream: StreamName; readonly token: LeaseToken }[];
}

export function parseGroupRelease(body: Uint8Array): ReleaseBody {
  const members = parseMembers(body);
  const leases = members.list("leases", (entry, index) => {
    const lease = new Members(entry, `leases[${index}]`);
    return { stream: lease.path("stream"), token: lease.count("token") };
  });
  requireDistinct(leases);
  return { member: members.text("member"), leases };
}

function requireDistinct(entries: readonly { readonly stream: StreamName }[]): void {
  const seen = new Set<StreamName>();
  for (const { stream } of entries) {
    if (seen.has(stream)) throw invalid("stream", `is named twice: ${JSON.stringify(stream)}`);
    seen.add(stream);
  }
}

export function parseLeave(body: Uint8Array): string {
  return parseMembers(body).text("member");
}

export interface ResetBody {
  /** Undefined: all streams of the group. */
  readonly stream: StreamName | undefined;
  readonly to: GroupOrigin;
}

export function parseGroupReset(body: Uint8Array): ResetBody {
  const members = parseMembers(body);
  const stream = members.has("stream") ? members.path("stream") : undefined;
  return { stream, to: parseStart(members, "to") };
}
