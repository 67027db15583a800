/**
 * The names of the headers of PROTOCOL.md, written once: `tidy` finds them elsewhere. Each stands alone, so that a bundle
 * has those that it uses.
 */

export const STREAM_NEXT_OFFSET = "Stream-Next-Offset";
export const STREAM_START_OFFSET = "Stream-Start-Offset";
export const STREAM_UP_TO_DATE = "Stream-Up-To-Date";
export const STREAM_CLOSED = "Stream-Closed";
export const STREAM_LIFE = "Stream-Life";
export const STREAM_INCARNATION = "Stream-Incarnation";
export const STREAM_CURSOR = "Stream-Cursor";
export const STREAM_TTL = "Stream-TTL";
export const STREAM_EXPIRES_AT = "Stream-Expires-At";
export const STREAM_SSE_DATA_ENCODING = "Stream-SSE-Data-Encoding";
export const STREAM_SEQ = "Stream-Seq";
export const STREAM_FORKED_FROM = "Stream-Forked-From";
export const STREAM_FORK_OFFSET = "Stream-Fork-Offset";
export const STREAM_FORK_SUB_OFFSET = "Stream-Fork-Sub-Offset";
export const PRODUCER_ID = "Producer-Id";
export const PRODUCER_EPOCH = "Producer-Epoch";
export const PRODUCER_SEQ = "Producer-Seq";
export const PRODUCER_SESSION = "Producer-Session";
export const PRODUCER_EXPECTED_SEQ = "Producer-Expected-Seq";
export const PRODUCER_RECEIVED_SEQ = "Producer-Received-Seq";
export const PRODUCER_NEXT_OFFSET = "Producer-Next-Offset";
export const PRODUCER_SEQ_REUSED = "Producer-Seq-Reused";
export const STREAM_KEY_WINDOW = "Stream-Key-Window";
export const STREAM_KEY_MAX = "Stream-Key-Max";
export const STREAM_KEY_OVERFLOW = "Stream-Key-Overflow";
export const STREAM_KEY_FROM = "Stream-Key-From";
export const STREAM_RETENTION = "Stream-Retention";
export const STREAM_COMPACT_KEY = "Stream-Compact-Key";
export const STREAM_EARLIEST_OFFSET = "Stream-Earliest-Offset";
export const IDEMPOTENCY_KEY = "Idempotency-Key";
export const IDEMPOTENCY_REPLAYED = "Idempotency-Replayed";
export const IDEMPOTENCY_EXPIRES = "Idempotency-Expires";
export const PREFERENCE_APPLIED = "Preference-Applied";
export const X_REQUEST_ID = "X-Request-Id";
