/**
 * The limits that every server has, each with its reason; all-limits.ts has them all. Options can change those that
 * `ServerOptions` names, within the ranges of `streams/server/options.ts`. The others are part of the protocol or protect the
 * process.
 */

// The limits that the client also needs are separate, so that its bundle does not contain the others.

/** One append. Ten times what the published clients send, small enough to hold in memory 64 times. */
export const BODY_BYTES_MAX = 16 * 1024 * 1024;
/** Producer-Id: the longest ids in use are URLs. A stream keeps the id of each producer for its whole life. */
export const PRODUCER_ID_BYTES_MAX = 256;
/** Appends of a producer that wait for their predecessors: more than a client has in flight. */
export const HELD_PER_PRODUCER_MAX = 256;
/** What a client holds of one SSE event, in characters. The largest append has 22 Mi in base64. */
export const SSE_EVENT_CHARS_MAX = 32 * 1024 * 1024;

/** Records that one request can ask for from the end. */
export const LAST_MAX = 10_000;

/** By name. Code that needs another one imports `LIMITS` of all-limits.ts. */
export const LIMITS = {
  bodyBytesMax: BODY_BYTES_MAX,
  /** All bodies that are being received, over all connections: the most that a flood can hold in memory. */
  bodiesBytesMax: 256 * 1024 * 1024,
  /**
   * A body that is slower than this, in bytes a second over `bodyWindowMs`, is cut. At this rate the largest
   * body would take 4 hours.
   */
  bodyBytesPerSecondMin: 1024,
  bodyWindowMs: 10_000,
  /**
   * The rate that the largest body needs to arrive within `requestTimeoutMs`. When the memory for bodies is full,
   * slower bodies are refused first.
   */
  bodyBytesPerSecondFull: 256 * 1024,
  /** A stream path after decoding, in UTF-8 bytes: fits a header, a URL and an index entry. */
  pathBytesMax: 1024,
  /** Path and query as sent; three bytes for each decoded one, and room for offset and cursor. */
  targetBytesMax: 4096,
  producerIdBytesMax: PRODUCER_ID_BYTES_MAX,
  /** Producer-Session: a UUID, a ULID or 32 bytes as text; up to 17 are kept for a producer. */
  sessionBytesMax: 64,
  /** A window of a year; its keys are kept in memory. */
  keyWindowSecondsMax: 366 * 86_400,
  /** Keys of one stream: about 50 bytes each. */
  keyCountMax: 10_000_000,
  /** Prefer: wait. Proxies cut at 60 s. */
  patienceSecondsMax: 30,
  heldPerProducerMax: HELD_PER_PRODUCER_MAX,
  /** Appends that wait for earlier numbers, in all: the most that a flood can hold in memory. */
  heldMax: 10_000,
  heldBytesMax: 64 * 1024 * 1024,
  /** Stream-Seq: kept once per stream. */
  streamSeqBytesMax: 256,
  /** Content-Type: kept once per stream. */
  contentTypeBytesMax: 256,
  /** Nesting of a JSON record: deeper input is an attack, and breaks the parsers of readers. */
  jsonDepthMax: 512,
  /** A TTL of 100 years, so that deadlines in milliseconds stay exact integers. */
  ttlSecondsMax: 100 * 366 * 86_400,
  /**
   * Answers to reads that are being made or sent, over all connections: what readers that take nothing may hold. With
   * bodies (256 MiB), data that is not durable yet (256 MiB), waiting appends (64 MiB) and outcomes (128 MiB) a
   * server stays below 1 GiB.
   */
  answersBytesMax: 256 * 1024 * 1024,
  /**
   * While other readers wait for memory, an answer may take this long, and one second more for each
   * `answerBytesPerSecondFull` bytes.
   */
  answerWantedMs: 10_000,
  answerBytesPerSecondFull: 256 * 1024,
  /**
   * While an address with less memory in use waits, an answer may take only this long: a page at 3 Mbit a
   * second.
   */
  answerGreedyMs: 3_000,
  /** Bytes of one catch-up page: large enough to stream at disk speed, small enough to share. */
  pageBytesMax: 1024 * 1024,
  /** Bytes of records in one SSE data event while catching up. */
  sseEventBytesMax: 256 * 1024,
  /** Waiting for a long-poll's answer: proxies cut at 60 s, the protocol suggests 30 s. */
  longPollMs: 30_000,
  /** An SSE connection is recycled so that CDNs can collapse readers. */
  sseSecondsMax: 60,
  /** A comment line keeps idle proxies from cutting an SSE connection. */
  sseHeartbeatMs: 15_000,
  /** How long the function of authorization may take: longer than a question to an identity provider, shorter than patience. */
  authorizeTimeoutMs: 5_000,
  /** Unsent bytes that one live reader may hold before it is cut; it can resume at its offset. */
  readerBufferBytesMax: 1024 * 1024,
  /** A reader that takes less than `readerBytesPerSecondMin` for this long is cut. */
  readerStallMs: 30_000,
  readerBytesPerSecondMin: 1024,
  /** How long closing waits for a commit. One that takes longer waits for disk space that does not come. */
  closeStallMs: 5_000,
  /** Changes in one group commit: bounds the latency and the size of one write. */
  batchChangesMax: 8192,
  batchBytesMax: 8 * 1024 * 1024,
  /** Bytes that are decided but not durable yet. Beyond it, appends answer 429 and do not fill memory. */
  pendingBytesMax: 256 * 1024 * 1024,
  /** Compressing less than this costs more than it saves. */
  gzipBytesMin: 1024,
  /** Long work is cut into slices of about this length, with a turn of the event loop between them. */
  turnMs: 5,
  /** Bytes that live readers get in one turn: some milliseconds, also if they do not read. */
  turnBytesMax: 4 * 1024 * 1024,
  /** Entries to look at in one turn: some tenths of a microsecond each. */
  turnStepsMax: 5000,
  /** Streams that expire in one turn: about 5 µs each. */
  turnStreamsMax: 1000,
  /** Bytes of appends that live readers have still to get. Beyond it they read the store. */
  tellingBytesMax: 16 * 1024 * 1024,
  /**
   * Records that `last` asks for: with the shortest ones, a tenth of a page. To get more, ask again for those before the first of
   * them.
   */
  lastMax: LAST_MAX,
  /** Names that one page of the list looks at. It skips deleted and expired ones. */
  listLookedMax: 5000,
  /** Streams listed in one answer. */
  listMax: 1000,
  /** Answers of transactions that are kept. The last half of it is always kept. */
  outcomeBytesMax: 128 * 1024 * 1024,
} as const;

/**
 * The room of a server on a platform with 128 MB of memory, such as Workers; `createFetchServer` begins with it. All of it full at
 * once is 44 MiB: live readers have as much of their own as `pendingBytesMax` (at most `tellingBytesMax`), and answers of
 * transactions are in the store. Objects of one class may share the memory of one program.
 */
export const SMALL_LIMITS = {
  bodyBytesMax: 4 * 1024 * 1024,
  bodiesBytesMax: 8 * 1024 * 1024,
  pendingBytesMax: 8 * 1024 * 1024,
  heldBytesMax: 4 * 1024 * 1024,
  answersBytesMax: 16 * 1024 * 1024,
  outcomeBytesMax: 16 * 1024 * 1024,
} as const;
