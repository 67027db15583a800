/**
 * Subscriptions on the wire: parses JSON bodies into commands, and encodes the answers. PROTOCOL.md §11.
 *
 * Stream paths in these bodies are relative to `/v1/stream/` and not percent-encoded; inside the server, names are
 * absolute. Unknown members are ignored, so that later clients can use this server. A known member of a wrong type is
 * refused, and the error names everything that is wrong.
 *
 *   - a path names one stream only, in a body, in a route and in an answer;
 *   - an answer never holds a secret: no private key, and a token only for the client that claims.
 */

import { withoutSlashes } from "./slashes.ts";
import type { Ack, DeliveryWay, SubscriptionSettings } from "../streams/core/subscription-state.ts";
import type { Offset, StreamName } from "../streams/core/types.ts";
import { type ErrorCode, HapaxError } from "../base/errors.ts";
import { LIMITS } from "./all-limits.ts";
import { parseRelativePath, STREAM_ROOT } from "./subscription-path.ts";
import { parseOffset } from "./values.ts";
import { checkWebhookUrl, type WebhookAddressOptions } from "./webhook-address.ts";

export { subscriptionFormat } from "./subscription-answer.ts";

export interface ReportBody {
  readonly wakeId: string;
  readonly generation: number;
  readonly acks: readonly Ack[];
  readonly isDone: boolean;
}

/** The error names of the protocol. Other errors have our own code in capitals. */
const PROTOCOL_CODES: Partial<Record<ErrorCode, string>> = {
  invalid_json: "INVALID_REQUEST",
  not_found: "SUBSCRIPTION_NOT_FOUND",
  subscription_exists: "SUBSCRIPTION_ALREADY_EXISTS",
  subscription_fenced: "FENCED",
  invalid_ack: "INVALID_OFFSET",
};

export function protocolCode(code: ErrorCode): string {
  return PROTOCOL_CODES[code] ?? code.toUpperCase();
}

/**
 * Parses a new subscription. Throws `invalid_request`, which names everything that is wrong, or
 * `webhook_url_rejected`.
 */
export function parseSubscribe(
  body: Uint8Array,
  addresses: WebhookAddressOptions = {},
): SubscriptionSettings {
  const fields = new Fields(body);
  const type = fields.choice("type", ["webhook", "pull-wake"]);
  const pattern = fields.optional("pattern", parsePattern, PATTERN_RULE);
  const streams = fields.optional("streams", parsePaths, PATHS_RULE) ?? [];
  if (pattern === undefined && streams.length === 0 && fields.areWellTyped("pattern", "streams")) {
    fields.fault("at least one of pattern and streams is required");
  }
  const leaseMs = fields.optional("lease_ttl_ms", parseLease, LEASE_RULE) ?? LIMITS.leaseMsDefault;
  const description = fields.optional("description", parseDescription, DESCRIPTION_RULE);
  const way = type === undefined ? undefined : parseWay(fields, type);
  if (way?.kind === "pull_wake" && streams.includes(way.wakeStream)) {
    fields.fault("streams must not name the wake_stream itself");
  }
  fields.throwFaults();
  if (way === undefined) throw new HapaxError("internal", "a body without faults has a type");
  if (way.kind === "webhook") requireAllowed(way.url, addresses);
  return { way, pattern, streams, leaseMs, description };
}

export function parseStreams(body: Uint8Array): readonly StreamName[] {
  const fields = new Fields(body);
  const streams = fields.required("streams", parsePaths, PATHS_RULE);
  fields.throwFaults();
  return streams ?? [];
}

export function parseClaim(body: Uint8Array): string {
  const fields = new Fields(body);
  const max = LIMITS.subscriptionIdBytesMax;
  const worker = fields.required("worker", parseWorker, `must be a string of 1 to ${max} bytes`);
  fields.throwFaults();
  return worker ?? "";
}

/** Parses the body of a callback, an ack or a release. */
export function parseReport(body: Uint8Array): ReportBody {
  const fields = new Fields(body);
  const wakeId = fields.required("wake_id", parseText, "must be a string");
  const generation = fields.required("generation", parseCount, "must be a whole number");
  const acks = fields.optional("acks", parseAcks, ACKS_RULE);
  const isDone = fields.optional("done", parseFlag, "must be true or false");
  fields.throwFaults();
  return {
    wakeId: wakeId ?? "",
    generation: generation ?? -1,
    acks: acks ?? [],
    isDone: isDone === true,
  };
}

/** The members of one JSON object, and what is wrong with them. */
class Fields {
  readonly #members: Readonly<Record<string, unknown>>;
  readonly #faults: string[] = [];
  readonly #faulty = new Set<string>();

  constructor(body: Uint8Array) {
    this.#members = parseObject(body);
  }

  optional<T>(name: string, parse: (value: unknown) => T | undefined, rule: string): T | undefined {
    const value = Object.hasOwn(this.#members, name) ? this.#members[name] : undefined;
    // Some clients write null for members that they leave out.
    if (value === undefined || value === null) return undefined;
    const parsed = parse(value);
    if (parsed === undefined) {
      this.#faulty.add(name);
      this.fault(`${name} ${rule}`);
    }
    return parsed;
  }

  required<T>(name: string, parse: (value: unknown) => T | undefined, rule: string): T | undefined {
    const before = this.#faults.length;
    const parsed = this.optional(name, parse, rule);
    if (parsed === undefined && this.#faults.length === before) this.fault(`${name} is required`);
    return parsed;
  }

  choice<T extends string>(name: string, allowed: readonly T[]): T | undefined {
    const find = (value: unknown): T | undefined => allowed.find((item) => item === value);
    return this.required(name, find, `must be one of ${allowed.join(", ")}`);
  }

  areWellTyped(...names: readonly string[]): boolean {
    return names.every((name) => !this.#faulty.has(name));
  }

  fault(text: string): void {
    this.#faults.push(text);
  }

  throwFaults(): void {
    if (this.#faults.length > 0) throw new HapaxError("invalid_request", this.#faults.join("; "));
  }
}

const utf8 = new TextDecoder("utf-8", { fatal: true });

function parseObject(body: Uint8Array): Readonly<Record<string, unknown>> {
  let value: unknown;
  try {
    value = body.length === 0 ? {} : JSON.parse(utf8.decode(body));
  } catch (cause) {
    throw new HapaxError("invalid_json", "the body is not JSON in UTF-8", { cause });
  }
  if (!isObject(value)) throw new HapaxError("invalid_request", "the body must be a JSON object");
  return value;
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function parseWay(fields: Fields, type: "webhook" | "pull-wake"): DeliveryWay | undefined {
  if (type === "webhook") {
    const url = fields.required("webhook", parseWebhook, "must be an object with the string url");
    return url === undefined ? undefined : { kind: "webhook", url };
  }
  const wakeStream = fields.required("wake_stream", parsePath, PATH_RULE);
  return wakeStream === undefined ? undefined : { kind: "pull_wake", wakeStream };
}

function requireAllowed(url: string, addresses: WebhookAddressOptions): void {
  const check = checkWebhookUrl(url, addresses);
  if (check.kind === "rejected") throw new HapaxError("webhook_url_rejected", check.reason);
}

function parseWebhook(value: unknown): string | undefined {
  return isObject(value) && typeof value["url"] === "string" ? value["url"] : undefined;
}

const DESCRIPTION_RULE = `must be a string of at most ${LIMITS.subscriptionDescriptionBytesMax} bytes`;

function parseDescription(value: unknown): string | undefined {
  if (typeof value !== "string") return undefined;
  const bytes = new TextEncoder().encode(value).length;
  return bytes <= LIMITS.subscriptionDescriptionBytesMax ? value : undefined;
}

function parseText(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}

function parseWorker(value: unknown): string | undefined {
  if (typeof value !== "string" || value === "") return undefined;
  return new TextEncoder().encode(value).length <= LIMITS.subscriptionIdBytesMax
    ? value
    : undefined;
}

function parseFlag(value: unknown): boolean | undefined {
  return typeof value === "boolean" ? value : undefined;
}

function parseCount(value: unknown): number | undefined {
  return Number.isSafeInteger(value) && (value as number) >= 0 ? (value as number) : undefined;
}

const LEASE_RULE = `must be a whole number from ${LIMITS.leaseMsMin} to ${LIMITS.leaseMsMax}`;

function parseLease(value: unknown): number | undefined {
  const leaseMs = parseCount(value);
  if (leaseMs === undefined) return undefined;
  return leaseMs >= LIMITS.leaseMsMin && leaseMs <= LIMITS.leaseMsMax ? leaseMs : undefined;
}

const PATH_RULE = "must be the path of a stream below /v1/stream/";
const PATHS_RULE = `must be an array of at most ${LIMITS.subscriptionStreamsMax} stream paths`;

function parsePath(value: unknown): StreamName | undefined {
  return typeof value === "string" ? parseRelativePath(value) : undefined;
}

/** Parses a list of paths: sorted, each once. The order of the names has no meaning. */
function parsePaths(value: unknown): readonly StreamName[] | undefined {
  if (!Array.isArray(value) || value.length > LIMITS.subscriptionStreamsMax) return undefined;
  const names = new Set<StreamName>();
  for (const item of value) {
    const name = parsePath(item);
    if (name === undefined) return undefined;
    names.add(name);
  }
  return [...names].toSorted();
}

const PATTERN_RULE =
  "must be a path whose segments may be * or **; a star inside a segment is written %2A";

function parsePattern(value: unknown): string | undefined {
  if (typeof value !== "string" || value.length > LIMITS.pathBytesMax) return undefined;
  const segments = withoutSlashes(value).split("/");
  const isFit = segments.every(
    (segment) => segment === "*" || segment === "**" || !segment.includes("*"),
  );
  // As a path it must be one that a stream can have; a star counts as a letter there.
  if (!isFit || parseRelativePath(value) === undefined) return undefined;
  return STREAM_ROOT + segments.join("/");
}

const ACKS_RULE = `must be an array of at most ${LIMITS.subscriptionStreamsMax} {stream, offset}`;

function parseAcks(value: unknown): readonly Ack[] | undefined {
  if (!Array.isArray(value) || value.length > LIMITS.subscriptionStreamsMax) return undefined;
  const acks: Ack[] = [];
  for (const item of value) {
    if (!isObject(item)) return undefined;
    const stream = parsePath(item["stream"] ?? item["path"]);
    const offset = parseAckOffset(item["offset"]);
    if (stream === undefined || offset === undefined) return undefined;
    acks.push({ stream, offset });
  }
  return acks;
}

// A well-formed offset that no consumer can have processed goes on to the rules, which refuse it as an ack.
function parseAckOffset(value: unknown): Offset | undefined {
  const parsed = typeof value === "string" ? parseOffset(value) : undefined;
  if (parsed === undefined || parsed.kind === "now") return undefined;
  if (parsed.kind === "at") return parsed.offset;
  return (parsed.kind === "start" ? -1 : Number.MAX_SAFE_INTEGER) as Offset;
}
