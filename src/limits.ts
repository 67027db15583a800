/**
 * Every limit of the server, in one place, each with its reason. A setting may change those that
 * `ServerSettings` names; the others are part of the protocol or protect the process.
 */

/** The limits by name; PROTOCOL.md refers to them by these names. */
export const LIMITS = {
  /** One append. Ten times what the published clients send, small enough to hold in memory 64 times. */
  bodyBytesMax: 16 * 1024 * 1024,
  /** All bodies being received at once, over all connections: what a flood may hold in memory. */
  bodiesBytesMax: 256 * 1024 * 1024,
  /** The header block. Node's own default; a request of ours has under 1 KiB. */
  headerBytesMax: 16 * 1024,
  /** A stream path after decoding, in UTF-8 bytes: fits a header, a URL and an index entry. */
  pathBytesMax: 1024,
  /** Path and query as sent; three bytes for each decoded one, and room for offset and cursor. */
  targetBytesMax: 4096,
  /** Producer-Id: the longest ids in use are URLs; kept per producer for the life of the stream. */
  producerIdBytesMax: 256,
  /** Stream-Seq: kept once per stream. */
  streamSeqBytesMax: 256,
  /** Content-Type: kept once per stream. */
  contentTypeBytesMax: 256,
  /** An offset as sent. The protocol caps offsets at 256 characters; ours have 33. */
  offsetCharsMax: 255,
  /** Nesting of a JSON record: deeper input is an attack, and breaks the parsers of readers. */
  jsonDepthMax: 512,
  /** A TTL of 100 years, so that deadlines in milliseconds stay exact integers. */
  ttlSecondsMax: 100 * 366 * 86_400,
  /** Bytes of one catch-up page: large enough to stream at disk speed, small enough to share. */
  pageBytesMax: 1024 * 1024,
  /** Bytes of records in one SSE data event while catching up. */
  sseEventBytesMax: 256 * 1024,
  /** Waiting for a long-poll's answer: proxies cut at 60 s, the protocol suggests 30 s. */
  longPollMs: 30_000,
  /** An SSE connection is recycled so that CDNs can collapse readers. */
  sseMaxSeconds: 60,
  /** A comment line keeps idle proxies from cutting an SSE connection. */
  sseHeartbeatMs: 15_000,
  /** Unsent bytes that one live reader may hold before it is cut; it can resume at its offset. */
  readerBufferBytesMax: 1024 * 1024,
  /** A live reader that takes nothing for this long is cut. */
  readerStallMs: 30_000,
  /** Sockets at once. A reader costs about 20 KiB: 20,000 stay under 0.5 GiB. */
  connectionsMax: 20_000,
  /** Time to send the header block, and the whole request. Slow senders cannot hold a socket. */
  headersTimeoutMs: 10_000,
  requestTimeoutMs: 60_000,
  /** An idle keep-alive socket: longer than the 60 s of common proxies would keep dead ones. */
  keepAliveTimeoutMs: 65_000,
  /** How long SIGTERM waits for requests under way before it cuts them. */
  drainMs: 10_000,
  /** Changes in one group commit: bounds the latency and the size of one write. */
  batchChangesMax: 8192,
  batchBytesMax: 8 * 1024 * 1024,
  /** Bytes decided but not yet durable. Beyond it, appends answer 429 instead of filling memory. */
  pendingBytesMax: 256 * 1024 * 1024,
  /** Compressing less than this costs more than it saves. */
  gzipBytesMin: 1024,
  /** Streams listed in one answer. */
  listMax: 1000,
  /** Subscriptions of one server, explicit streams of one subscription, acks of one call. */
  subscriptionsMax: 10_000,
  subscriptionStreamsMax: 10_000,
  subscriptionIdBytesMax: 256,
  subscriptionBodyBytesMax: 1024 * 1024,
  /** Streams named in one wake; the rest follow with the next wake. */
  wakeStreamsMax: 1000,
  leaseMsDefault: 30_000,
  leaseMsMin: 1_000,
  leaseMsMax: 600_000,
  /** A webhook's answer: only `{"done":true}` is of interest. */
  webhookAnswerBytesMax: 64 * 1024,
  webhookTimeoutMs: 15_000,
  webhookRetryMsMin: 1_000,
  webhookRetryMsMax: 60_000,
  /** Deliveries at once, in all and to one host. */
  webhooksMax: 64,
  webhooksPerHostMax: 8,
} as const;
