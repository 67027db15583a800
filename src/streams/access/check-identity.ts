/**
 * Checks identities that come from outside: from a file of keys, a claim of a token, or a function of the embedding program. What is
 * not exactly an identity is refused.
 */

import { STREAM_ROOT } from "../../protocol/subscription-path.ts";
import { parseStreamPath } from "../../protocol/values.ts";
import { ACTIONS, type Grant, type Identity, type Quotas } from "./identity.ts";

/** Receives each problem with the path of the member that has it, such as `grants[0].actions`. */
export type Problem = (text: string) => void;

export type MemberCheck = (value: unknown, at: string, problem: Problem) => void;

const NAME_CHARS_MAX = 256;
const NAMESPACE_CHARS_MAX = 256;
const LIST_MAX = 1000;
/** Names stand in logs and metrics, and beside namespaces with a NUL between them. */
const PLAIN_NAME = /^[^\p{Cc}\p{Cs}]+$/u;

const GRANT: Readonly<Record<keyof Grant, MemberCheck>> = {
  actions: (value, at, problem) => {
    checkList(value, at, problem, (action, where) => {
      if (!(ACTIONS as readonly unknown[]).includes(action)) {
        problem(`${where} is none of ${ACTIONS.join(", ")}`);
      }
    });
  },
  streams: (value, at, problem) => {
    checkList(value, at, problem, (pattern, where) => {
      if (typeof pattern !== "string" || !isPattern(pattern)) {
        problem(`${where} is not a pattern of stream paths such as /v1/stream/orders/**`);
      }
    });
  },
  groups: checkNames,
  subscriptions: checkNames,
  producers: checkNames,
};

const COUNTS: Readonly<Record<keyof Quotas, MemberCheck>> = {
  streamsMax: checkCount,
  storedBytesMax: checkCount,
  appendsPerSecond: checkCount,
  bytesPerSecond: checkCount,
  liveReadersMax: checkCount,
  requestsMax: checkCount,
};

const IDENTITY: Readonly<Record<keyof Identity, MemberCheck>> = {
  name: (value, at, problem) => {
    if (!isName(value) || !PLAIN_NAME.test(value)) {
      problem(
        `${at} is not a text of 1 to ${NAME_CHARS_MAX} characters without control characters`,
      );
    }
  },
  grants: checkGrants,
  namespace: checkNamespace,
  quotas: checkQuotas,
  expiresAtMs: (value, at, problem) => {
    if (typeof value !== "number" || Number.isNaN(value)) problem(`${at} is not a time in ms`);
  },
};

/** Reports everything that keeps a value from being an identity. */
export function checkIdentity(value: unknown, problem: Problem): value is Identity {
  let isGood = true;
  checkMembers(value, "identity", IDENTITY, ["name", "grants"], (text) => {
    isGood = false;
    problem(text);
  });
  return isGood;
}

/** Reports everything that keeps a value from being a list of grants. */
export function checkGrants(value: unknown, at: string, problem: Problem): void {
  checkList(value, at, problem, (grant, where) => {
    checkMembers(grant, where, GRANT, ["actions"], problem);
  });
}

/** Reports a namespace that is not the path of a stream. */
export function checkNamespace(value: unknown, at: string, problem: Problem): void {
  const isPath =
    typeof value === "string" &&
    value.length <= NAMESPACE_CHARS_MAX &&
    value.startsWith(STREAM_ROOT) &&
    // In a pattern it would be a star.
    !/%2a/i.test(value) &&
    isPlainPath(value);
  if (!isPath) {
    problem(
      `${at} is not a path of at most ${NAMESPACE_CHARS_MAX} characters such as /v1/stream/acme`,
    );
  }
}

/** Reports quotas that are not whole numbers, and names that are no quota. */
export function checkQuotas(value: unknown, at: string, problem: Problem): void {
  checkMembers(value, at, COUNTS, [], problem);
}

/** Reports members that are missing, not known, or wrong. */
export function checkMembers(
  value: unknown,
  at: string,
  checks: Readonly<Record<string, MemberCheck>>,
  required: readonly string[],
  problem: Problem,
): void {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    problem(`${at} is not an object`);
    return;
  }
  const members = new Map(Object.entries(value));
  for (const name of required) if (!members.has(name)) problem(`${at}.${name} is missing`);
  for (const [name, member] of members) {
    const check = Object.hasOwn(checks, name) ? checks[name] : undefined;
    if (check === undefined) problem(`${at}.${name} is not known`);
    else if (member !== undefined || required.includes(name))
      check(member, `${at}.${name}`, problem);
  }
}

function checkList(
  value: unknown,
  at: string,
  problem: Problem,
  check: (entry: unknown, at: string) => void,
): void {
  if (!Array.isArray(value) || value.length > LIST_MAX) {
    problem(`${at} is not a list of at most ${LIST_MAX} entries`);
    return;
  }
  for (const [index, entry] of value.entries()) check(entry, `${at}[${index}]`);
}

function checkNames(value: unknown, at: string, problem: Problem): void {
  checkList(value, at, problem, (name, where) => {
    if (!isName(name) || name.slice(0, -1).includes("*")) {
      problem(`${where} is not a name, or the beginning of names with a star at the end`);
    }
  });
}

function checkCount(value: unknown, at: string, problem: Problem): void {
  if (!Number.isSafeInteger(value) || (value as number) < 0) {
    problem(`${at} is not a whole number from 0 on`);
  }
}

function isName(value: unknown): value is string {
  return typeof value === "string" && value !== "" && value.length <= NAME_CHARS_MAX;
}

/** A pattern is a path whose segments may be stars. A star inside a segment has no meaning. */
function isPattern(pattern: string): boolean {
  const segments = pattern.split("/");
  const isFit = segments.every((segment) => !segment.includes("*") || /^\*\*?$/.test(segment));
  return isFit && isPlainPath(pattern.replaceAll("*", "x"));
}

/** As the server keeps it: decoded, without empty segments and dots. */
function isPlainPath(path: string): boolean {
  const encoded = path.split("/").map(encodeSegment).join("/");
  return parseStreamPath(encoded).kind === "path";
}

function encodeSegment(segment: string): string {
  try {
    return encodeURIComponent(segment);
  } catch {
    return "%"; // Half of a surrogate pair. No path has it.
  }
}
