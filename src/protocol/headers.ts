/** Names of the protocol's headers, lower case for reading and in their usual form for writing. */

/** Returns a header by its lower-case name. The code that builds it refuses headers that were sent twice. */
export type HeaderGetter = (name: string) => string | undefined;

export const HEADER = {
  nextOffset: "Stream-Next-Offset",
  upToDate: "Stream-Up-To-Date",
  closed: "Stream-Closed",
  life: "Stream-Life",
  cursor: "Stream-Cursor",
  ttl: "Stream-TTL",
  expiresAt: "Stream-Expires-At",
  sseEncoding: "Stream-SSE-Data-Encoding",
  producerEpoch: "Producer-Epoch",
  producerSeq: "Producer-Seq",
  producerExpectedSeq: "Producer-Expected-Seq",
  producerReceivedSeq: "Producer-Received-Seq",
  producerNextOffset: "Producer-Next-Offset",
  producerSeqReused: "Producer-Seq-Reused",
  keyWindow: "Stream-Key-Window",
  keyMax: "Stream-Key-Max",
  keyOverflow: "Stream-Key-Overflow",
  keyFrom: "Stream-Key-From",
  keyReplayed: "Idempotency-Replayed",
  preferenceApplied: "Preference-Applied",
  contentType: "Content-Type",
  cacheControl: "Cache-Control",
  etag: "ETag",
  location: "Location",
  retryAfter: "Retry-After",
  allow: "Allow",
} as const;

/** Headers that carry the protocol in requests. The server refuses a request that sends one of them twice. */
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
];

/** What a browser may send and see from another origin. */
export const CORS_METHODS = "GET, POST, PUT, DELETE, HEAD, OPTIONS";
export const CORS_ALLOW =
  "Content-Type, Authorization, If-Match, If-None-Match, Last-Event-ID, Stream-TTL, " +
  "Stream-Expires-At, Stream-Closed, Stream-Seq, Stream-Forked-From, Stream-Fork-Offset, Stream-Fork-Sub-Offset, " +
  "Producer-Id, Producer-Epoch, Producer-Seq, Producer-Session, Idempotency-Key, Prefer, " +
  "Stream-Key-Window, Stream-Key-Max, Stream-Key-Overflow, Stream-Key-From";
export const CORS_EXPOSE =
  "Stream-Next-Offset, Stream-Life, Stream-Cursor, Stream-Up-To-Date, Stream-Closed, Stream-TTL, " +
  "Stream-Expires-At, Stream-SSE-Data-Encoding, Producer-Epoch, Producer-Seq, " +
  "Producer-Expected-Seq, Producer-Received-Seq, Producer-Next-Offset, Producer-Seq-Reused, " +
  "Idempotency-Replayed, Preference-Applied, Stream-Key-Window, Stream-Key-Max, Stream-Key-Overflow, Stream-Key-From, " +
  "ETag, Content-Type, Content-Encoding, Vary, Location, Retry-After";
