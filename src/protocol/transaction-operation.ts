/** Parses one operation of a transaction from JSON. PROTOCOL.md §19.1. */

import { decodeBase64 } from "../base/base64.ts";
import type { Ack } from "../streams/core/subscription-state.ts";
import { type ExpiryRule, NEVER_EXPIRES } from "../streams/core/stream.ts";
import type {
  AckOperation,
  AppendOperation,
  Expectation,
  LeaseClaim,
  Operation,
} from "../streams/core/transaction-state.ts";
import type { Offset, StreamName } from "../streams/core/types.ts";
import { HapaxError } from "../base/errors.ts";
import { LIMITS } from "./limits.ts";
import { checkPath, Members } from "./members.ts";
import { invalid } from "./refusal.ts";
import { STREAM_ROOT } from "./subscription-path.ts";
import { normaliseContentType, parseOffset, parseRfc3339 } from "./values.ts";

/** An append with its bytes as they were sent. */
export interface AppendRequest extends Omit<AppendOperation, "data"> {
  readonly body: Uint8Array;
  /** The body is `data`: an array of records. For JSON streams only. */
  readonly isData: boolean;
}

/** An ack whose token is not checked yet. */
export interface AckRequest extends AckOperation {
  readonly token: string;
}

export type OperationRequest =
  | AppendRequest
  | AckRequest
  | Exclude<Operation, { readonly kind: "append" | "ack" | "unfit" }>;

const encoder = new TextEncoder();
const EMPTY = new Uint8Array(0);

/** The bodies of appends. In the framed form they follow the head, in order. Counts the bytes of all. */
export class Bodies {
  readonly #rest: Uint8Array | undefined;
  #at = 0;
  /** Bytes of all bodies so far. */
  taken = 0;

  /** `rest`: the bytes after the head. Undefined in the JSON form. */
  constructor(rest: Uint8Array | undefined) {
    this.#rest = rest;
  }

  get left(): number {
    return (this.#rest?.length ?? 0) - this.#at;
  }

  next(length: number): Uint8Array {
    if (this.#rest === undefined) throw invalid("bytes", "is for the framed form only");
    if (length > this.left) {
      throw invalid("bytes", `is ${length}, and the request has ${this.left} more`);
    }
    this.#at += length;
    return this.count(this.#rest.subarray(this.#at - length, this.#at));
  }

  count(body: Uint8Array): Uint8Array {
    this.taken += body.length;
    return body;
  }
}

const KINDS = ["append", "create", "close", "commit", "done", "ack", "expect"] as const;

export function parseOperation(entry: unknown, bodies: Bodies): OperationRequest {
  const operation = new Members(entry, "the operation");
  const kinds = KINDS.filter((kind) => operation.has(kind));
  const [kind] = kinds;
  if (kind === undefined || kinds.length > 1 || operation.names().length > 1) {
    throw invalid("the operation", `has not exactly one of ${KINDS.join(", ")}`);
  }
  const members = operation.object(kind);
  switch (kind) {
    case "append":
      return parseAppend(members, bodies);
    case "create":
      return parseCreate(members);
    case "close":
      return { kind, stream: members.path("stream") };
    case "commit":
    case "done":
      return { kind, lease: parseLease(members), offset: parseCommitOffset(members) };
    case "ack":
      return parseAck(members);
    case "expect":
      return parseExpectation(members);
  }
}

function parseAppend(members: Members, bodies: Bodies): AppendRequest {
  const stream = members.path("stream");
  const contentType = parseContentType(members);
  const closes = members.flag("close");
  const { body, isData } = parseBody(members, bodies);
  if (body.length === 0 && !closes) {
    throw invalid("the body", "is empty; only a close may have none");
  }
  return { kind: "append", stream, contentType, closes, body, isData };
}

const BODIES = ["data", "text", "base64", "bytes"] as const;

function parseBody(
  members: Members,
  bodies: Bodies,
): { readonly body: Uint8Array; readonly isData: boolean } {
  const [form, ...more] = BODIES.filter((name) => members.has(name));
  if (more.length > 0) throw invalid(BODIES.join(", "), "exclude each other");
  if (form === undefined) return { body: EMPTY, isData: false };
  switch (form) {
    case "data": {
      const records = members.list("data", (record) => record);
      if (records.length === 0) throw new HapaxError("invalid_json", "the array has no elements");
      return { body: bodies.count(encoder.encode(JSON.stringify(records))), isData: true };
    }
    case "text":
      return { body: bodies.count(encoder.encode(members.text("text"))), isData: false };
    case "base64":
      return { body: bodies.count(parseBase64(members.text("base64"))), isData: false };
    case "bytes":
      return { body: bodies.next(members.count("bytes")), isData: false };
  }
}

const BASE64 = /^[A-Za-z0-9+/]*={0,2}$/;

function parseBase64(text: string): Uint8Array {
  if (text.length % 4 === 0 && BASE64.test(text)) return decodeBase64(text);
  throw invalid("base64", "is not base64 with its padding");
}

function parseContentType(members: Members): string | undefined {
  if (!members.has("contentType")) return undefined;
  const type = normaliseContentType(members.text("contentType"));
  if (type === undefined) throw invalid("contentType", "is not a media type");
  return type.text;
}

function parseCreate(members: Members): OperationRequest {
  const command = {
    name: members.path("stream"),
    contentType: parseContentType(members),
    expiry: parseExpiry(members),
    isClosed: false,
    data: EMPTY,
    fork: undefined,
    keys: undefined,
    isNew: false,
  };
  return { kind: "create", command };
}

function parseExpiry(members: Members): ExpiryRule {
  const hasTtl = members.has("ttlSeconds");
  if (!members.has("expiresAt")) {
    if (!hasTtl) return NEVER_EXPIRES;
    return { kind: "ttl", seconds: members.count("ttlSeconds", 0, LIMITS.ttlSecondsMax) };
  }
  if (hasTtl) throw invalid("ttlSeconds and expiresAt", "exclude each other");
  const timeMs = parseRfc3339(members.text("expiresAt"));
  if (timeMs === undefined) throw invalid("expiresAt", "is not an RFC 3339 time");
  return { kind: "at", timeMs };
}

function parseLease(members: Members): LeaseClaim {
  return {
    group: members.name("group"),
    member: members.text("member"),
    stream: members.path("stream"),
    token: members.count("token"),
  };
}

function parseCommitOffset(members: Members): Offset {
  return checkOffset("offset", members.text("offset"));
}

/** Checks an offset that a stream may have handed out. A larger one than all of them is beyond every tail. */
export function checkOffset(field: string, text: string): Offset {
  const parsed = parseOffset(text);
  if (parsed?.kind === "at") return parsed.offset;
  if (parsed?.kind === "beyond") return Number.MAX_SAFE_INTEGER as Offset;
  throw invalid(field, "is not an offset");
}

function parseAck(members: Members): AckRequest {
  return {
    kind: "ack",
    subscription: members.text("subscription"),
    token: members.text("token"),
    wake: { wakeId: members.text("wakeId"), generation: members.count("generation") },
    acks: members.has("acks") ? members.list("acks", parseStreamAck) : [],
    isDone: members.flag("done"),
  };
}

// A wake names streams relative to the root; everything else here is absolute. Both forms are accepted.
function parseStreamAck(entry: unknown): Ack {
  const members = new Members(entry, "an entry of acks");
  const path = members.text("stream");
  const stream = checkPath("stream", path.startsWith("/") ? path : STREAM_ROOT + path);
  return { stream, offset: checkOffset("offset", members.text("offset")) };
}

function parseExpectation(members: Members): Expectation {
  if (members.has("group")) return { kind: "expect_lease", lease: parseLease(members) };
  const stream: StreamName = members.path("stream");
  const isAbsent = members.flag("absent");
  if (isAbsent === members.has("offset")) {
    throw invalid("expect", "has not exactly one of offset, absent: true and group");
  }
  if (isAbsent) return { kind: "expect_absent", stream };
  const text = members.text("offset");
  const parsed = parseOffset(text);
  if (parsed?.kind === "beyond") return { kind: "expect_tail", stream, offset: "none" };
  return { kind: "expect_tail", stream, offset: checkOffset("offset", text) };
}
