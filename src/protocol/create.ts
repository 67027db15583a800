/**
 * PUT on a stream: parses headers and bytes into a `CreateCommand`, and encodes the outcome.
 * PROTOCOL.md §3, §8, §15, §16.
 */

import { NO_BYTES } from "../base/bytes.ts";
import {
  CONTENT_TYPE_DEFAULT,
  type CreateCommand,
  type ForkCommand,
} from "../streams/core/create.ts";
import type { CreateDecision } from "../streams/core/create.ts";
import type { KeyOverflow, KeyPolicy } from "../streams/core/keys.ts";
import { type ExpiryRule, isJson, NEVER_EXPIRES } from "../streams/core/stream.ts";
import type { StreamName } from "../streams/core/types.ts";
import { LIMITS } from "./limits.ts";
import { parseRecords } from "./append.ts";
import { tailHeaders } from "./append-refusal.ts";
import { HEADER, type HeaderGetter, SENT } from "./headers.ts";
import { invalid, type Refusal } from "./refusal.ts";
import type { RuleHeaders } from "./rules.ts";
import {
  formatOffset,
  normaliseContentType,
  parseCount,
  parseOffset,
  parseRfc3339,
  parseStreamPath,
  parseTrue,
} from "./values.ts";

export type CreateHead = Omit<CreateCommand, "data">;

export function parseCreateHead(
  name: StreamName,
  header: HeaderGetter,
  rules: RuleHeaders,
): CreateHead {
  return {
    name,
    contentType: parseContentType(header("content-type")),
    expiry: parseExpiry(header(SENT.ttl), header(SENT.expiresAt)),
    isClosed: parseTrue(header(SENT.closed)),
    fork: parseFork(header),
    keys: parseKeyPolicy(header),
    retention: parseRule(header(SENT.retention), rules.parseRetention),
    compaction: parseRule(header(SENT.compactKey), rules.parseCompaction),
    isNew: parseIsNew(header),
  };
}

/**
 * Returns the stored form of a first body. A fork without a Content-Type takes that of its source, which the caller
 * looks up. Every other stream has the default.
 */
export function parseCreate(
  head: CreateHead,
  body: Uint8Array,
  inheritedType: string | undefined,
): CreateCommand {
  const contentType = head.contentType ?? inheritedType ?? CONTENT_TYPE_DEFAULT;
  if (head.compaction !== undefined && !isJson(contentType)) {
    throw invalid(HEADER.compactKey, "is for streams of application/json");
  }
  if (body.length === 0) return { ...head, data: NO_BYTES };
  return { ...head, data: parseRecords(contentType, body) };
}

// A malformed type cannot be compared later. It counts as no type, as existing clients expect.
function parseContentType(text: string | undefined): string | undefined {
  if (text === undefined || text === "") return undefined;
  if (text.length > LIMITS.contentTypeBytesMax) {
    throw invalid("Content-Type", `is longer than ${LIMITS.contentTypeBytesMax} bytes`);
  }
  // Every stream would keep the text of its own request; this text is shared.
  return normaliseContentType(text)?.text;
}

function parseExpiry(ttl: string | undefined, expiresAt: string | undefined): ExpiryRule {
  if (ttl !== undefined && expiresAt !== undefined) {
    throw invalid("Stream-TTL and Stream-Expires-At", "exclude each other");
  }
  if (ttl !== undefined) {
    const seconds = parseCount(ttl);
    if (seconds === undefined || seconds > LIMITS.ttlSecondsMax) {
      throw invalid(HEADER.ttl, `is not a whole number from 0 to ${LIMITS.ttlSecondsMax}`);
    }
    return { kind: "ttl", seconds };
  }
  if (expiresAt === undefined) return NEVER_EXPIRES;
  const timeMs = parseRfc3339(expiresAt);
  if (timeMs === undefined) throw invalid(HEADER.expiresAt, "is not an RFC 3339 time");
  return { kind: "at", timeMs };
}

function parseFork(header: HeaderGetter): ForkCommand | undefined {
  const source = header(SENT.forkedFrom);
  const offset = header(SENT.forkOffset);
  const subOffset = header(SENT.forkSubOffset);
  if (source === undefined) {
    if (offset !== undefined) throw invalid(HEADER.forkOffset, "needs Stream-Forked-From");
    if (subOffset !== undefined) {
      throw invalid(HEADER.forkSubOffset, "needs Stream-Forked-From");
    }
    return undefined;
  }
  const path = parseStreamPath(source);
  if (path.kind === "invalid") throw invalid("Stream-Forked-From:", path.reason);
  const anchor = offset === undefined ? undefined : parseOffset(offset);
  if (offset !== undefined && anchor?.kind !== "at") {
    throw invalid(HEADER.forkOffset, "is not an offset of the source");
  }
  const count = subOffset === undefined ? 0 : parseCount(subOffset);
  if (count === undefined) throw invalid(HEADER.forkSubOffset, "is not a whole number");
  return {
    sourceName: path.name,
    anchor: anchor?.kind === "at" ? anchor.offset : undefined,
    subOffset: count,
  };
}

function parseKeyPolicy(header: HeaderGetter): KeyPolicy | undefined {
  const window = header(SENT.keyWindow);
  const count = header(SENT.keyMax);
  const overflow = header(SENT.keyOverflow);
  const from = header(SENT.keyFrom);
  if ((window ?? count ?? overflow ?? from) === undefined) return undefined;
  if (from !== undefined && from !== "content") throw invalid(HEADER.keyFrom, "is not content");
  return {
    windowSeconds: parseBounded(HEADER.keyWindow, window, LIMITS.keyWindowSecondsMax),
    countMax: parseBounded(HEADER.keyMax, count, LIMITS.keyCountMax),
    overflow: parseOverflow(overflow),
    isFromContent: from !== undefined,
  };
}

function parseRule<Rule extends object>(
  text: string | undefined,
  parse: (text: string) => Rule | "none",
): Rule | undefined {
  const rule = text === undefined ? undefined : parse(text);
  return rule === "none" ? undefined : rule;
}

function parseBounded(name: string, text: string | undefined, max: number): number | undefined {
  if (text === undefined) return undefined;
  const value = parseCount(text);
  if (value === undefined || value < 1 || value > max) {
    throw invalid(name, `is not a whole number from 1 to ${max}`);
  }
  return value;
}

function parseOverflow(text: string | undefined): KeyOverflow | undefined {
  if (text === undefined || text === "evict" || text === "reject") return text;
  throw invalid(HEADER.keyOverflow, "is neither evict nor reject");
}

function parseIsNew(header: HeaderGetter): boolean {
  if (header("if-match") !== undefined) throw invalid("If-Match", "is for POST");
  const tag = header("if-none-match");
  if (tag !== undefined && tag !== "*") throw invalid("If-None-Match", "is not * on PUT");
  return tag !== undefined;
}

/** Returns the key options that the stream was created with, as headers. */
export function keyHeaders(policy: KeyPolicy | undefined): Record<string, string> {
  const headers: Record<string, string> = {};
  if (policy === undefined) return headers;
  const { windowSeconds, countMax, overflow } = policy;
  if (windowSeconds !== undefined) headers[HEADER.keyWindow] = String(windowSeconds);
  if (countMax !== undefined) headers[HEADER.keyMax] = String(countMax);
  if (overflow !== undefined) headers[HEADER.keyOverflow] = overflow;
  if (policy.isFromContent) headers[HEADER.keyFrom] = "content";
  return headers;
}

export interface CreateAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
}

/** Encodes the outcome. `location` is the stream's own URL. */
export function encodeCreate(
  outcome: CreateDecision,
  location: string,
  rules: RuleHeaders,
): CreateAnswer | Refusal {
  switch (outcome.kind) {
    case "created": {
      const headers: Record<string, string> = {
        ...keyHeaders(outcome.keys),
        ...rules.format(outcome),
        [HEADER.location]: location,
        [HEADER.contentType]: outcome.contentType,
        [HEADER.nextOffset]: formatOffset(outcome.tail),
      };
      if (outcome.isClosed) headers[HEADER.closed] = "true";
      return { status: 201, headers };
    }
    case "exists": {
      const { contentType, tail, isClosed } = outcome;
      const headers: Record<string, string> = {
        ...keyHeaders(outcome.keys),
        ...rules.format(outcome),
        [HEADER.contentType]: contentType,
        [HEADER.nextOffset]: formatOffset(tail),
      };
      if (isClosed) headers[HEADER.closed] = "true";
      return { status: 200, headers };
    }
    case "conflict":
      return { code: "stream_exists", detail: `it differs in ${outcome.reason}` };
    case "present":
      return {
        code: "stream_present",
        detail: "the request wants a free path",
        headers: tailHeaders(outcome.tail, outcome.isClosed),
      };
    case "in_use":
      return { code: "stream_in_use", detail: "the path was deleted and has living forks" };
    case "source_missing":
      return { code: "stream_not_found", detail: "the source of the fork does not exist" };
    case "source_deleted":
      return { code: "stream_in_use", detail: "the source of the fork was deleted" };
    case "content_type_mismatch":
      return {
        code: "content_type_mismatch",
        detail: `the source of the fork has ${outcome.expected}`,
        facts: { expected: outcome.expected },
      };
    case "invalid_fork":
      return { code: "invalid_request", detail: `the fork is not possible: ${outcome.reason}` };
  }
}
