/** The headers of the server, in lower case for reading and in their usual form for writing. */

import * as names from "./header-names.ts";

/** Returns a header by its lower-case name. The code that builds it refuses headers that were sent twice. */
export type HeaderGetter = (name: string) => string | undefined;

/** In their usual form, for writing. */
export const HEADER = {
  nextOffset: names.STREAM_NEXT_OFFSET,
  startOffset: names.STREAM_START_OFFSET,
  upToDate: names.STREAM_UP_TO_DATE,
  closed: names.STREAM_CLOSED,
  life: names.STREAM_LIFE,
  incarnation: names.STREAM_INCARNATION,
  cursor: names.STREAM_CURSOR,
  ttl: names.STREAM_TTL,
  expiresAt: names.STREAM_EXPIRES_AT,
  sseEncoding: names.STREAM_SSE_DATA_ENCODING,
  streamSeq: names.STREAM_SEQ,
  forkedFrom: names.STREAM_FORKED_FROM,
  forkOffset: names.STREAM_FORK_OFFSET,
  forkSubOffset: names.STREAM_FORK_SUB_OFFSET,
  producerId: names.PRODUCER_ID,
  producerEpoch: names.PRODUCER_EPOCH,
  producerSeq: names.PRODUCER_SEQ,
  producerSession: names.PRODUCER_SESSION,
  producerExpectedSeq: names.PRODUCER_EXPECTED_SEQ,
  producerReceivedSeq: names.PRODUCER_RECEIVED_SEQ,
  producerNextOffset: names.PRODUCER_NEXT_OFFSET,
  producerSeqReused: names.PRODUCER_SEQ_REUSED,
  keyWindow: names.STREAM_KEY_WINDOW,
  keyMax: names.STREAM_KEY_MAX,
  keyOverflow: names.STREAM_KEY_OVERFLOW,
  keyFrom: names.STREAM_KEY_FROM,
  retention: names.STREAM_RETENTION,
  compactKey: names.STREAM_COMPACT_KEY,
  earliestOffset: names.STREAM_EARLIEST_OFFSET,
  idempotencyKey: names.IDEMPOTENCY_KEY,
  keyReplayed: names.IDEMPOTENCY_REPLAYED,
  keyExpires: names.IDEMPOTENCY_EXPIRES,
  preferenceApplied: names.PREFERENCE_APPLIED,
  requestId: names.X_REQUEST_ID,
  contentType: "Content-Type",
  cacheControl: "Cache-Control",
  etag: "ETag",
  location: "Location",
  retryAfter: "Retry-After",
  authenticate: "WWW-Authenticate",
  allow: "Allow",
  acceptEncoding: "Accept-Encoding",
  rateLimit: "RateLimit",
  rateLimitPolicy: "RateLimit-Policy",
} as const;

/** Those that the server reads, in lower case, as a `HeaderGetter` wants them. The compiler compares them with the others. */
export const SENT = {
  closed: "stream-closed",
  ttl: "stream-ttl",
  expiresAt: "stream-expires-at",
  streamSeq: "stream-seq",
  forkedFrom: "stream-forked-from",
  forkOffset: "stream-fork-offset",
  forkSubOffset: "stream-fork-sub-offset",
  producerId: "producer-id",
  producerEpoch: "producer-epoch",
  producerSeq: "producer-seq",
  producerSession: "producer-session",
  keyWindow: "stream-key-window",
  keyMax: "stream-key-max",
  keyOverflow: "stream-key-overflow",
  keyFrom: "stream-key-from",
  retention: "stream-retention",
  incarnation: "stream-incarnation",
  compactKey: "stream-compact-key",
  idempotencyKey: "idempotency-key",
  requestId: "x-request-id",
} as const satisfies {
  readonly [Key in keyof typeof HEADER]?: Lowercase<(typeof HEADER)[Key]>;
};

/** Headers that carry the protocol in requests: sending one of them twice is refused. */
export const SINGLE_HEADERS: readonly string[] = [
  "host",
  "content-type",
  "content-length",
  "content-encoding",
  "authorization",
  "if-match",
  "if-none-match",
  "last-event-id",
  "stream-ttl",
  "stream-expires-at",
  "stream-closed",
  "stream-seq",
  "stream-forked-from",
  "stream-fork-offset",
  "stream-fork-sub-offset",
  "producer-id",
  "producer-epoch",
  "producer-seq",
  "producer-session",
  "idempotency-key",
  "stream-key-window",
  "stream-key-max",
  "stream-key-overflow",
  "stream-key-from",
  "stream-retention",
  "stream-incarnation",
  "stream-compact-key",
];

/** What a browser may send and see from another origin. */
export const CORS_METHODS = "GET, POST, PUT, DELETE, HEAD, OPTIONS";
export const CORS_ALLOW =
  "Content-Type, Content-Encoding, Authorization, If-Match, If-None-Match, Last-Event-ID, Stream-TTL, " +
  "Stream-Expires-At, Stream-Closed, Stream-Seq, Stream-Forked-From, Stream-Fork-Offset, Stream-Fork-Sub-Offset, " +
  "Producer-Id, Producer-Epoch, Producer-Seq, Producer-Session, Idempotency-Key, Prefer, " +
  "Stream-Key-Window, Stream-Key-Max, Stream-Key-Overflow, Stream-Key-From, Stream-Retention, Stream-Compact-Key, Stream-Incarnation, X-Request-Id, traceparent, tracestate";
export const CORS_EXPOSE =
  "Stream-Next-Offset, Stream-Start-Offset, Stream-Life, Stream-Incarnation, Stream-Cursor, Stream-Up-To-Date, Stream-Closed, Stream-TTL, " +
  "Stream-Expires-At, Stream-SSE-Data-Encoding, Producer-Epoch, Producer-Seq, " +
  "Producer-Expected-Seq, Producer-Received-Seq, Producer-Next-Offset, Producer-Seq-Reused, " +
  "Idempotency-Replayed, Preference-Applied, Stream-Key-Window, Stream-Key-Max, Stream-Key-Overflow, Stream-Key-From, " +
  "Stream-Retention, Stream-Compact-Key, Stream-Earliest-Offset, ETag, Content-Type, Content-Encoding, Vary, Location, Retry-After, RateLimit, RateLimit-Policy, " +
  "Accept-Encoding, X-Request-Id";
