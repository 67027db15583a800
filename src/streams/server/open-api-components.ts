/** Schemas, parameters and headers that operations share. Data for open-api.ts. */

import { HEADER } from "../../protocol/headers.ts";
import { LIMITS } from "../../protocol/all-limits.ts";

export type Json = Readonly<Record<string, unknown>>;

export const TEXT: Json = { type: "string" };
export const COUNT: Json = { type: "integer", minimum: 0 };
export const FLAG: Json = { type: "boolean" };
export const TEXTS: Json = { type: "array", items: TEXT };
export const BYTES: Json = {};
export const OFFSET: Json = {
  type: "string",
  description: "An offset: opaque, and ordered as text.",
};

export const object = (
  properties: Json,
  required: readonly string[] = Object.keys(properties),
): Json => ({
  type: "object",
  properties,
  ...(required.length > 0 ? { required } : {}),
});
export const list = (items: Json): Json => ({ type: "array", items });

export const SCHEMAS: Readonly<Record<string, Json>> = {
  Health: object(
    {
      live: FLAG,
      ready: FLAG,
      writes: { type: "string", enum: ["open", "stopped", "full", "draining"] },
      durability: { type: "string", enum: ["replicated", "fsync", "os", "memory"] },
      code: TEXT,
      detail: TEXT,
    },
    ["live"],
  ),
  Streams: object(
    {
      streams: list(
        object({
          path: TEXT,
          contentType: TEXT,
          nextOffset: OFFSET,
          closed: FLAG,
          life: TEXT,
          createdAt: { type: "string", format: "date-time" },
        }),
      ),
      next: TEXT,
    },
    ["streams"],
  ),
  Stream: object(
    {
      path: TEXT,
      contentType: TEXT,
      nextOffset: OFFSET,
      earliestOffset: OFFSET,
      retention: TEXT,
      compactKey: TEXT,
      closed: FLAG,
      life: TEXT,
      createdAt: TEXT,
      lastUsedAt: TEXT,
      ttlSeconds: COUNT,
      expiresAt: TEXT,
      keys: object({
        count: COUNT,
        max: COUNT,
        windowSeconds: COUNT,
        overflow: { type: "string", enum: ["evict", "reject"] },
        fromContent: FLAG,
      }),
      forkedFrom: object({ stream: TEXT, offset: OFFSET }),
      forks: TEXTS,
    },
    ["path", "contentType", "nextOffset", "closed", "life", "createdAt", "keys", "forks"],
  ),
  KnownKey: object({ stored: FLAG, nextOffset: OFFSET, storedAt: TEXT }, ["stored"]),
  Subscriptions: object(
    {
      subscriptions: list(
        object(
          {
            subscription: TEXT,
            type: { type: "string", enum: ["webhook", "pull-wake"] },
            pattern: TEXT,
            webhook: TEXT,
            wakeStream: TEXT,
            streams: COUNT,
            phase: { type: "string", enum: ["idle", "waking", "held"] },
            status: { type: "string", enum: ["active", "failed"] },
            generation: COUNT,
            leaseMs: COUNT,
            createdAt: TEXT,
            description: TEXT,
          },
          ["subscription", "type", "streams", "phase", "status", "generation", "leaseMs"],
        ),
      ),
      next: TEXT,
    },
    ["subscriptions"],
  ),
  Tokens: object({
    tokens: list(
      object(
        {
          id: TEXT,
          name: TEXT,
          createdAt: TEXT,
          expiresAt: TEXT,
          revokedAt: TEXT,
          grants: list({ type: "object" }),
          namespace: TEXT,
          quotas: { type: "object" },
          certificate: TEXT,
        },
        ["id", "name", "createdAt", "grants"],
      ),
    ),
  }),
  Cluster: object(
    {
      node: TEXT,
      nodes: list(object({ node: TEXT, state: TEXT, url: TEXT, version: TEXT }, ["node", "state"])),
      shards: list(object({ shard: COUNT, owner: TEXT, pinned: TEXT }, ["shard"])),
    },
    ["nodes", "shards"],
  ),
  Committed: object(
    {
      status: { const: "committed" },
      operations: {
        type: ["array", "null"],
        items: object({ stream: TEXT, nextOffset: OFFSET }, []),
      },
    },
    ["status", "operations"],
  ),
  Transaction: object({
    operations: { type: "array", minItems: 1, items: { type: "object", minProperties: 1 } },
  }),
  Group: object(
    {
      group: TEXT,
      pattern: TEXT,
      streams: TEXTS,
      start: TEXT,
      leaseMs: COUNT,
      jobs: FLAG,
      createdAt: TEXT,
      members: list({ type: "object" }),
      cursors: list({ type: "object" }),
      next: TEXT,
    },
    ["group", "streams", "start", "leaseMs"],
  ),
  GroupOptions: object(
    { pattern: TEXT, streams: TEXTS, start: TEXT, leaseMs: COUNT, jobs: FLAG },
    [],
  ),
  Jobs: object({ token: COUNT, leaseMs: COUNT, jobs: list({ type: "object" }), full: FLAG }, [
    "token",
    "leaseMs",
    "jobs",
  ]),
  Settled: object({
    leaseMs: COUNT,
    lost: list(object({ stream: TEXT, offset: OFFSET })),
  }),
  Groups: object(
    {
      groups: list(object({ group: TEXT, members: COUNT, streams: COUNT, lag: COUNT })),
      next: TEXT,
    },
    ["groups"],
  ),
  Leases: object({
    leases: list(object({ stream: TEXT, life: TEXT, token: COUNT, offset: OFFSET })),
    handOver: TEXTS,
    leaseMs: COUNT,
    share: COUNT,
  }),
  Renewed: object({ leaseMs: COUNT, handOver: TEXTS }),
  Member: object({ member: TEXT, leaseMs: COUNT }),
  Reset: object({ streams: COUNT }),
  ProducerId: object({ producerId: TEXT, epoch: COUNT }),
  Producers: object(
    {
      producers: list(
        object({ producerId: TEXT, epoch: COUNT, seq: COUNT, nextOffset: OFFSET, session: FLAG }, [
          "producerId",
          "epoch",
          "seq",
          "session",
        ]),
      ),
      next: TEXT,
    },
    ["producers"],
  ),
  Keys: object({ keys: list({ type: "object" }) }),
  Subscription: object(
    {
      id: TEXT,
      subscription_id: TEXT,
      type: { type: "string", enum: ["webhook", "pull-wake"] },
      pattern: TEXT,
      streams: list({ type: "object" }),
      webhook: { type: "object" },
      wake_stream: TEXT,
      lease_ttl_ms: COUNT,
      created_at: TEXT,
      status: TEXT,
      description: TEXT,
    },
    ["id", "type", "streams", "lease_ttl_ms", "created_at", "status"],
  ),
  SubscriptionOptions: object(
    {
      type: { type: "string", enum: ["webhook", "pull-wake"] },
      pattern: TEXT,
      streams: TEXTS,
      webhook: object({ url: TEXT }),
      wake_stream: TEXT,
      lease_ttl_ms: COUNT,
      description: TEXT,
    },
    ["type"],
  ),
  Claim: object({
    wake_id: TEXT,
    generation: COUNT,
    token: TEXT,
    streams: list({ type: "object" }),
    lease_ttl_ms: COUNT,
  }),
  Reported: object({ ok: FLAG, next_wake: FLAG }),
};

const query = (name: string, description: string, schema: Json = TEXT): Json => ({
  name,
  in: "query",
  description,
  schema,
});
const header = (name: string, description: string, schema: Json = TEXT): Json => ({
  name,
  in: "header",
  description,
  schema,
});

export const PARAMETERS: Readonly<Record<string, Json>> = {
  offset: query(
    "offset",
    "Where to begin: an offset, `-1` for the beginning, `now` for the tail. Default `-1`.",
  ),
  live: query("live", "Wait for data, or follow the stream.", {
    type: "string",
    enum: ["long-poll", "sse"],
  }),
  cursor: query("cursor", "The cursor of the last live answer."),
  life: query("life", "The life of the stream that is meant."),
  last: query("last", "The last records, in place of an offset.", {
    type: "integer",
    minimum: 1,
    maximum: LIMITS.lastMax,
  }),
  lastBefore: query("before", "With `last`: only records that end at or before this offset."),
  at: query("at", "What was stored at this time or later, in place of an offset.", {
    type: "string",
    format: "date-time",
  }),
  stateOffsets: query("state-offsets", "Adds offsets to records of the State protocol.", FLAG),
  prefix: query("prefix", "Only paths that begin with this text."),
  after: query("after", "Only what comes after this: the `next` of the last page."),
  limit: query("limit", "Entries of a page.", { type: "integer", minimum: 1 }),
  streamQuery: { ...query("stream", "The path of the stream, decoded."), required: true },
  followedStream: {
    ...query("stream", "The path of a stream, decoded; once for each stream."),
    required: true,
    schema: { type: "array", items: TEXT, minItems: 1, maxItems: LIMITS.followStreamsMax },
  },
  followedOffset: {
    ...query(
      "offset",
      "Where to begin in each stream, in the order of `stream`: an offset, `-1` or `now`.",
    ),
    required: true,
    schema: { type: "array", items: TEXT, minItems: 1, maxItems: LIMITS.followStreamsMax },
  },
  followedLife: query(
    "life",
    "The life that is meant of each stream, in the order of `stream`, or empty.",
    {
      type: "array",
      items: TEXT,
      maxItems: LIMITS.followStreamsMax,
    },
  ),
  ofStream: query("stream", "Only those that follow the stream of this path, decoded."),
  seq: query("seq", "The sequence of a producer's transaction.", COUNT),
  epoch: query("epoch", "The epoch of a producer's transaction.", COUNT),
  session: query("session", "The nonce of a producer's session."),
  "Last-Event-ID": header("Last-Event-ID", "Where an EventSource goes on."),
  "If-None-Match": header(
    "If-None-Match",
    "GET: 304 if the page is the one of this ETag. PUT: `*`, only if the path is free.",
  ),
  "If-Match": header("If-Match", "Append only if the tail is this offset."),
  "Content-Encoding": header(
    "Content-Encoding",
    "The body is compressed: `gzip`, `deflate` or `br`, as far as the server decodes them.",
  ),
  [HEADER.ttl]: header(HEADER.ttl, "Sliding expiry in seconds.", COUNT),
  [HEADER.expiresAt]: header(HEADER.expiresAt, "Absolute expiry.", {
    type: "string",
    format: "date-time",
  }),
  [HEADER.closed]: header(HEADER.closed, "`true`: closes the stream."),
  [HEADER.streamSeq]: header(
    HEADER.streamSeq,
    "Must be greater than that of the last append that had one.",
  ),
  [HEADER.forkedFrom]: header(HEADER.forkedFrom, "The path of the stream to fork."),
  [HEADER.forkOffset]: header(
    HEADER.forkOffset,
    "Where the fork leaves its source. Default: the tail.",
  ),
  [HEADER.forkSubOffset]: header(HEADER.forkSubOffset, "How many records after the offset."),
  [HEADER.keyWindow]: header(
    HEADER.keyWindow,
    "For how many seconds idempotency keys are remembered.",
    COUNT,
  ),
  [HEADER.keyMax]: header(HEADER.keyMax, "How many idempotency keys are remembered.", COUNT),
  [HEADER.keyOverflow]: header(HEADER.keyOverflow, "What a full window does.", {
    type: "string",
    enum: ["evict", "reject"],
  }),
  [HEADER.retention]: header(
    HEADER.retention,
    "What the stream keeps of its old data: `seconds=<count>, bytes=<count>, needed=drop`.",
  ),
  [HEADER.compactKey]: header(
    HEADER.compactKey,
    "The member that is the key of a changelog: `<path>, tombstone=<path>, lag=<seconds>`.",
  ),
  before: { ...query("before", "What is before this offset is trimmed."), required: true },
  from: query("from", "The position of the first byte. Default 0.", COUNT),
  done: query("done", "`true`: the client has all of it."),
  [HEADER.incarnation]: header(
    HEADER.incarnation,
    "The incarnation of the server that is meant. Any other one refuses the request.",
  ),
  needed: query("needed", "`drop`: also what is still needed."),
  [HEADER.keyFrom]: header(HEADER.keyFrom, "`content`: the content of an append is its key."),
  [HEADER.producerId]: header(HEADER.producerId, "The producer that appends."),
  [HEADER.producerEpoch]: header(HEADER.producerEpoch, "Its epoch.", COUNT),
  [HEADER.producerSeq]: header(HEADER.producerSeq, "The number of the append in the epoch.", COUNT),
  [HEADER.producerSession]: header(
    HEADER.producerSession,
    "A nonce; the server chooses the epoch.",
  ),
  [HEADER.idempotencyKey]: header(HEADER.idempotencyKey, "Makes a retry of the request safe."),
  Prefer: header("Prefer", "`wait=<seconds>`: how long an append may wait for the one before it."),
};

const shown = (description: string, schema: Json = TEXT): Json => ({ description, schema });

export const ANSWER_HEADERS: Readonly<Record<string, Json>> = {
  [HEADER.requestId]: shown("Names the request in the answer and the logs."),
  "WWW-Authenticate": shown("How to send a credential."),
  "Retry-After": shown("Seconds to wait before the call is repeated.", COUNT),
  [HEADER.rateLimitPolicy]: shown("The rates of the caller, if they are limited."),
  [HEADER.rateLimit]: shown("What is left of them."),
  Location: shown("The URL of the stream."),
  "Accept-Encoding": shown("What bodies of writes may be encoded with."),
  ETag: shown("Names the page."),
  [HEADER.nextOffset]: shown("The offset of the next read, or the tail.", OFFSET),
  [HEADER.earliestOffset]: shown(
    "Where the stream begins: what was before it was trimmed.",
    OFFSET,
  ),
  [HEADER.retention]: shown("What the stream keeps of its old data."),
  [HEADER.compactKey]: shown("The member that is the key of a changelog."),
  [HEADER.incarnation]: shown("The incarnation of the server: another one after a restore."),
  [HEADER.startOffset]: shown("Where the answer begins, for `last` and `at`."),
  [HEADER.upToDate]: shown("`true`: the answer reaches the tail."),
  [HEADER.closed]: shown("`true`: the answer reaches the end of a closed stream."),
  [HEADER.life]: shown("Tells the stream from others at its path."),
  [HEADER.cursor]: shown("For the next live request."),
  [HEADER.producerEpoch]: shown("The epoch that the server knows.", COUNT),
  [HEADER.producerSeq]: shown("The last sequence that was accepted.", COUNT),
  [HEADER.keyReplayed]: shown("`true`: the answer of an earlier attempt."),
};

export const PATH_PARAMETERS: Readonly<Record<string, string>> = {
  stream: "The path of a stream, percent-encoded. Clients keep streams below `v1/stream/`.",
  group: "The name of a group, percent-encoded.",
  identity: "An Idempotency-Key, or the id of a producer with `seq`; percent-encoded.",
  id: "The id, percent-encoded.",
  path: "A stream's path, relative to `/v1/stream/`.",
};
