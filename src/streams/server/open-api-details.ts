/** What the table of routes does not know of an operation: parameters, bodies, statuses and headers. Data for open-api.ts. */

import type { ErrorCode } from "../../base/errors.ts";
import { HEADER } from "../../protocol/headers.ts";
import { METRICS_TYPE } from "../../base/prometheus-text.ts";
import { BACKUP_OPERATIONS } from "./open-api-backups.ts";
import { FOLLOW_OPERATIONS } from "./open-api-follow.ts";
import {
  BYTES,
  COUNT,
  FLAG,
  type Json,
  list,
  object,
  OFFSET,
  TEXT,
  TEXTS,
} from "./open-api-components.ts";

export interface OperationAnswer {
  readonly description: string;
  /** By media type: the name of a schema, or a schema. */
  readonly content?: Readonly<Record<string, string | Json>>;
  /** Names of `ANSWER_HEADERS`. */
  readonly headers?: readonly string[];
}

export interface OperationDetails {
  /** Names of `PARAMETERS`. */
  readonly parameters?: readonly string[];
  readonly body?: Json;
  readonly answers: Readonly<Record<number, OperationAnswer>>;
  /** Beside those that every operation has. */
  readonly refusals?: readonly ErrorCode[];
}

/** Refusals of every operation: its head, the doors, and the server's state. */
export const EVERY_REFUSAL: readonly ErrorCode[] = [
  "invalid_request",
  "origin_not_allowed",
  "uri_too_long",
  "host_not_served",
  "headers_too_large",
  "too_many",
  "quota_exceeded",
  "internal",
  "shutting_down",
];

/** Refusals of every operation that writes or has a body. */
export const WRITE_REFUSALS: readonly ErrorCode[] = [
  "request_timeout",
  "body_too_large",
  "unsupported_encoding",
  "writes_stopped",
  "shard_moved",
  "store_full",
  "storage_quota_exceeded",
];

const json = (description: string, schema: string): OperationAnswer => ({
  description,
  content: { "application/json": schema },
});
const jsonBody = (schema: string | Json, required = true): Json => ({
  required,
  content: {
    "*/*": {
      schema: typeof schema === "string" ? { $ref: `#/components/schemas/${schema}` } : schema,
    },
  },
});
const file = (description: string, type: string): OperationDetails => ({
  answers: {
    200: { description, content: { [type]: TEXT } },
    304: { description: "It has not changed." },
  },
  refusals: ["not_found"],
});
const DONE: OperationAnswer = { description: "Done." };
const HEALTH: OperationDetails = {
  answers: { 200: json("The server takes writes.", "Health"), 503: json("It does not.", "Health") },
};
const METRICS: OperationDetails = {
  answers: { 200: { description: "Prometheus text.", content: { [METRICS_TYPE]: TEXT } } },
};
const KEY_REFUSALS = ["key_reused", "key_expired", "key_window_full"] as const;
const STREAM_GONE = ["stream_not_found", "stream_gone"] as const;
const PAGE_HEADERS = [
  HEADER.nextOffset,
  HEADER.startOffset,
  HEADER.upToDate,
  HEADER.closed,
  HEADER.life,
  HEADER.earliestOffset,
  HEADER.cursor,
] as const;
const APPEND_HEADERS = [
  HEADER.nextOffset,
  HEADER.closed,
  HEADER.producerEpoch,
  HEADER.producerSeq,
  HEADER.keyReplayed,
];
const PRODUCER = [
  HEADER.producerId,
  HEADER.producerEpoch,
  HEADER.producerSeq,
  HEADER.producerSession,
  HEADER.idempotencyKey,
];
const PRODUCER_REFUSALS = [
  "epoch_start",
  "producer_fenced",
  "producer_gap",
  "epoch_exhausted",
  "producer_seq_reused",
  ...KEY_REFUSALS,
] as const;
const KEYS = [HEADER.keyWindow, HEADER.keyMax, HEADER.keyOverflow, HEADER.keyFrom];
const ANY_BODY: Json = { required: false, content: { "*/*": { schema: BYTES } } };
const OFFSET_REFUSALS = ["offset_beyond_tail"] as const;
const REPORT = object(
  {
    wake_id: TEXT,
    generation: COUNT,
    acks: list(object({ stream: TEXT, offset: OFFSET })),
    done: FLAG,
  },
  ["wake_id", "generation"],
);
const REPORT_REFUSALS = ["subscription_not_found", "subscription_fenced", "invalid_ack"] as const;
const GROUPS = "/_hapax/groups";
const CONTROL = "/v1/stream/__ds";
const SUBSCRIPTION = `${CONTROL}/subscriptions/{id}`;

const JOB = object({ stream: TEXT, offset: OFFSET, token: COUNT });
const JOB_LATER = object(
  { stream: TEXT, offset: OFFSET, token: COUNT, delayMs: COUNT, uncounted: FLAG },
  ["stream", "offset", "token"],
);

const groupAct = (
  name: string,
  answers: OperationDetails["answers"],
  schema: Json,
  refusals: readonly ErrorCode[] = [],
): Record<string, OperationDetails> => ({
  [`POST ${GROUPS}/{group}/${name}`]: {
    body: jsonBody(schema),
    answers,
    refusals: ["group_not_found", ...refusals],
  },
});

/** By method and path of the table. HEAD is as GET unless it is here. */
export const OPERATIONS: Readonly<Record<string, OperationDetails>> = {
  ...BACKUP_OPERATIONS,
  ...FOLLOW_OPERATIONS,
  "GET /": {
    answers: {
      200: {
        description: "How to begin, or for browsers the dashboard.",
        content: { "text/plain; charset=utf-8": TEXT, "text/html; charset=utf-8": TEXT },
      },
    },
  },
  "GET /_hapax/ui": {
    answers: { 308: { description: "The dashboard is one slash further.", headers: ["Location"] } },
  },
  "GET /_hapax/ui/": file("The dashboard.", "text/html; charset=utf-8"),
  "GET /_hapax/ui/app.js": file("Its program.", "text/javascript; charset=utf-8"),
  "GET /_hapax/ui/app.css": file("Its style.", "text/css; charset=utf-8"),
  "GET /healthz": HEALTH,
  "GET /_hapax/health": HEALTH,
  "GET /readyz": HEALTH,
  "GET /livez": { answers: { 200: json("The process answers.", "Health") } },
  "GET /favicon.ico": { answers: { 204: { description: "There is no icon." } } },
  "GET /metrics": METRICS,
  "GET /_hapax/metrics": METRICS,
  "GET /_hapax/openapi.json": {
    answers: {
      200: { description: "This document.", content: { "application/json": { type: "object" } } },
    },
  },
  "GET /_hapax/streams": {
    parameters: ["prefix", "after", "limit"],
    answers: { 200: json("A page of the list.", "Streams") },
  },
  "GET /_hapax/stream": {
    parameters: ["streamQuery"],
    answers: { 200: json("The stream, and what hangs on it.", "Stream") },
    refusals: STREAM_GONE,
  },
  "POST /_hapax/trim": {
    parameters: ["streamQuery", "before", "needed"],
    answers: { 204: { ...DONE, headers: [HEADER.earliestOffset] } },
    refusals: ["data_needed", ...STREAM_GONE, ...OFFSET_REFUSALS],
  },
  "PUT /_hapax/retention": {
    parameters: ["streamQuery", HEADER.retention],
    answers: { 204: DONE },
    refusals: STREAM_GONE,
  },
  "PUT /_hapax/compaction": {
    parameters: ["streamQuery", HEADER.compactKey],
    answers: { 204: DONE },
    refusals: STREAM_GONE,
  },
  "GET /_hapax/keys": {
    parameters: ["streamQuery", HEADER.idempotencyKey],
    answers: { 200: json("Whether the stream remembers the key.", "KnownKey") },
    refusals: STREAM_GONE,
  },
  "GET /_hapax/subscriptions": {
    parameters: ["ofStream", "after", "limit"],
    answers: { 200: json("A page of the list.", "Subscriptions") },
  },
  "GET /_hapax/tokens": { answers: { 200: json("All of them.", "Tokens") } },
  "GET /_hapax/cluster": { answers: { 200: json("What this node sees.", "Cluster") } },
  "POST /_hapax/transactions": {
    parameters: [...PRODUCER, "Content-Encoding", HEADER.incarnation],
    body: {
      required: true,
      content: {
        "application/json": { schema: { $ref: "#/components/schemas/Transaction" } },
        "application/vnd.hapax.transaction": { schema: BYTES },
      },
    },
    answers: {
      200: {
        ...json("All of it is committed.", "Committed"),
        headers: [...APPEND_HEADERS.slice(2), HEADER.acceptEncoding, HEADER.incarnation],
      },
    },
    refusals: [
      "server_restored",
      ...PRODUCER_REFUSALS,
      ...STREAM_GONE,
      ...REPORT_REFUSALS,
      "invalid_json",
      "identity_missing",
      "token_invalid",
      "token_expired",
      "stream_closed",
      "content_type_mismatch",
      "stream_exists",
      "stream_in_use",
      "tail_moved",
      "stream_present",
      "lease_lost",
      "member_lost",
      "group_not_found",
      "offset_regressed",
      "offset_beyond_tail",
    ],
  },
  "GET /_hapax/transactions/{identity...}": {
    parameters: ["seq", "epoch", "session"],
    answers: {
      200: { ...json("It is committed.", "Committed"), headers: APPEND_HEADERS.slice(2) },
    },
    refusals: ["transaction_not_found", "producer_fenced"],
  },
  [`GET ${GROUPS}`]: {
    parameters: ["after", "limit"],
    answers: { 200: json("A page of the list.", "Groups") },
  },
  [`GET ${GROUPS}/{group}`]: {
    parameters: ["after", "limit"],
    answers: { 200: json("The group, and a page of its cursors.", "Group") },
    refusals: ["group_not_found"],
  },
  [`PUT ${GROUPS}/{group}`]: {
    body: jsonBody("GroupOptions"),
    answers: { 200: json("It was there.", "Group"), 201: json("It is created.", "Group") },
    refusals: ["group_exists", "offset_trimmed", ...OFFSET_REFUSALS],
  },
  [`DELETE ${GROUPS}/{group}`]: {
    parameters: [HEADER.idempotencyKey],
    answers: { 204: { ...DONE, headers: [HEADER.keyReplayed] } },
    refusals: KEY_REFUSALS,
  },
  ...groupAct("join", { 201: json("The member.", "Member") }, object({ name: TEXT }, [])),
  ...groupAct(
    "claim",
    { 200: json("The leases of the member.", "Leases") },
    object({ member: TEXT, max: COUNT }, ["member"]),
    ["member_lost"],
  ),
  ...groupAct(
    "commit",
    { 200: json("The offsets are stored.", "Renewed") },
    object({
      member: TEXT,
      commits: list(object({ stream: TEXT, token: COUNT, offset: OFFSET }, ["stream", "token"])),
    }),
    ["member_lost", "lease_lost", "offset_regressed", ...OFFSET_REFUSALS],
  ),
  ...groupAct(
    "release",
    { 204: DONE },
    object({ member: TEXT, leases: list(object({ stream: TEXT, token: COUNT })) }),
  ),
  ...groupAct(
    "take",
    { 200: json("Jobs that the worker has now.", "Jobs") },
    object({ member: TEXT, max: COUNT, seen: COUNT, waitMs: COUNT }, ["member"]),
    ["member_lost"],
  ),
  ...groupAct(
    "settle",
    { 200: json("It is stored.", "Settled") },
    object({ member: TEXT, done: list(JOB), later: list(JOB_LATER) }, ["member"]),
    ["member_lost"],
  ),
  ...groupAct("leave", { 204: DONE }, object({ member: TEXT })),
  ...groupAct(
    "reset",
    { 200: json("How many streams were moved.", "Reset") },
    object({ stream: TEXT, to: TEXT }, ["to"]),
    ["stream_not_found", "offset_trimmed", ...OFFSET_REFUSALS, ...KEY_REFUSALS],
  ),
  "GET /_hapax/producers": {
    parameters: ["streamQuery", "after", "limit"],
    answers: { 200: json("A page of the list.", "Producers") },
    refusals: STREAM_GONE,
  },
  "POST /_hapax/producers": { answers: { 201: json("A new id.", "ProducerId") } },
  "DELETE /_hapax/producers/{id...}": {
    parameters: ["streamQuery", HEADER.idempotencyKey],
    answers: { 204: { ...DONE, headers: [HEADER.keyReplayed] } },
    refusals: ["producer_not_found", ...STREAM_GONE, ...KEY_REFUSALS],
  },
  [`GET ${CONTROL}/jwks.json`]: {
    answers: { 200: { description: "The keys.", content: { "application/jwk-set+json": "Keys" } } },
  },
  [`GET ${SUBSCRIPTION}`]: {
    answers: { 200: json("The subscription.", "Subscription") },
    refusals: ["subscription_not_found"],
  },
  [`PUT ${SUBSCRIPTION}`]: {
    body: jsonBody("SubscriptionOptions"),
    answers: {
      200: json("It was there.", "Subscription"),
      201: json("It is created.", "Subscription"),
    },
    refusals: ["subscription_exists", "webhook_url_rejected"],
  },
  [`DELETE ${SUBSCRIPTION}`]: { answers: { 204: DONE } },
  [`POST ${SUBSCRIPTION}/streams`]: {
    body: jsonBody(object({ streams: TEXTS })),
    answers: { 204: DONE },
    refusals: ["subscription_not_found"],
  },
  [`DELETE ${SUBSCRIPTION}/streams/{path...}`]: {
    answers: { 204: DONE },
    refusals: ["subscription_not_found"],
  },
  [`POST ${SUBSCRIPTION}/claim`]: {
    body: jsonBody(object({ worker: TEXT })),
    answers: { 200: json("The work.", "Claim") },
    refusals: ["subscription_not_found", "already_claimed", "no_pending_work"],
  },
  [`POST ${SUBSCRIPTION}/callback`]: {
    body: jsonBody(REPORT),
    answers: { 200: json("It is stored.", "Reported") },
    refusals: REPORT_REFUSALS,
  },
  [`POST ${SUBSCRIPTION}/ack`]: {
    body: jsonBody(REPORT),
    answers: { 200: json("It is stored.", "Reported") },
    refusals: REPORT_REFUSALS,
  },
  [`POST ${SUBSCRIPTION}/release`]: {
    body: jsonBody(object({ wake_id: TEXT, generation: COUNT })),
    answers: { 204: DONE },
    refusals: REPORT_REFUSALS,
  },
  "GET /{stream...}": {
    parameters: [
      "offset",
      "live",
      "cursor",
      "life",
      "last",
      "lastBefore",
      "at",
      "stateOffsets",
      "Last-Event-ID",
      "If-None-Match",
    ],
    answers: {
      200: {
        description: "Data from the offset on: in the type of the stream, or events.",
        content: { "*/*": BYTES, "text/event-stream": TEXT },
        headers: [...PAGE_HEADERS, "ETag"],
      },
      204: {
        description: "Nothing has come in time, or the stream has ended.",
        headers: PAGE_HEADERS,
      },
      304: { description: "The page has not changed.", headers: [...PAGE_HEADERS, "ETag"] },
    },
    refusals: [
      ...STREAM_GONE,
      "stream_replaced",
      "offset_beyond_tail",
      "offset_trimmed",
      "request_timeout",
    ],
  },
  "HEAD /{stream...}": {
    parameters: [HEADER.producerId],
    answers: {
      200: {
        description: "The stream, and what it knows of the producer.",
        headers: [
          ...PAGE_HEADERS.slice(0, 5),
          HEADER.retention,
          HEADER.compactKey,
          HEADER.producerEpoch,
          HEADER.producerSeq,
          HEADER.acceptEncoding,
        ],
      },
    },
    refusals: STREAM_GONE,
  },
  "POST /{stream...}": {
    parameters: [
      ...PRODUCER,
      HEADER.streamSeq,
      HEADER.closed,
      "If-Match",
      "Prefer",
      "Content-Encoding",
    ],
    body: ANY_BODY,
    answers: {
      200: { description: "Appended, under a producer.", headers: APPEND_HEADERS },
      204: { description: "Appended, closed, or known already.", headers: APPEND_HEADERS },
    },
    refusals: [
      ...STREAM_GONE,
      ...PRODUCER_REFUSALS,
      "invalid_json",
      "stream_closed",
      "content_type_mismatch",
      "sequence_regression",
      "tail_moved",
    ],
  },
  "PUT /{stream...}": {
    parameters: [
      HEADER.ttl,
      HEADER.expiresAt,
      HEADER.closed,
      HEADER.forkedFrom,
      HEADER.forkOffset,
      HEADER.forkSubOffset,
      ...KEYS,
      HEADER.retention,
      HEADER.compactKey,
      "If-None-Match",
      "Content-Encoding",
    ],
    body: ANY_BODY,
    answers: {
      200: {
        description: "It was there.",
        headers: [HEADER.nextOffset, HEADER.closed, HEADER.acceptEncoding],
      },
      201: {
        description: "It is created.",
        headers: ["Location", HEADER.nextOffset, HEADER.closed, HEADER.acceptEncoding],
      },
    },
    refusals: [
      ...STREAM_GONE,
      "invalid_json",
      "stream_exists",
      "stream_in_use",
      "stream_present",
      "content_type_mismatch",
      "offset_beyond_tail",
    ],
  },
  "DELETE /{stream...}": {
    parameters: [HEADER.idempotencyKey],
    answers: { 204: { ...DONE, headers: [HEADER.keyReplayed] } },
    refusals: [...STREAM_GONE, ...KEY_REFUSALS],
  },
};
