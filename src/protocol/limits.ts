/**
 * Every limit of the server, in one place, each with its reason. Options can change those that `ServerOptions`
 * names, within the ranges of `streams/server/options.ts`. The others are part of the protocol or protect the process.
 */

import { KEY_CHARS_MAX } from "./idempotency-key.ts";
import { FORK_DEPTH_MAX } from "../streams/core/create.ts";
import { ENDS_KEPT, SESSIONS_KEPT } from "../streams/core/producer.ts";

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

/** The limits by name; PROTOCOL.md refers to them by these names. */
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
  /** The header block. Node's own default; a request of ours has under 1 KiB. */
  headerBytesMax: 16 * 1024,
  /**
   * The header block of an append on the fast lane, our own short path for plain appends; a larger one goes
   * through `node:http`.
   */
  laneHeadBytesMax: 4096,
  /** Running requests of one connection on the fast lane: enough for one batch, few enough for memory. */
  pipelinedMax: 64,
  /** Running requests of one connection of HTTP/2. Browsers open up to 100, and a live reader is one. */
  requestsPerConnectionMax: 128,
  /** A stream path after decoding, in UTF-8 bytes: fits a header, a URL and an index entry. */
  pathBytesMax: 1024,
  /** Path and query as sent; three bytes for each decoded one, and room for offset and cursor. */
  targetBytesMax: 4096,
  producerIdBytesMax: PRODUCER_ID_BYTES_MAX,
  /** Producer-Session: a UUID, a ULID or 32 bytes as text; up to 17 are kept for a producer. */
  sessionBytesMax: 64,
  /** How many replaced sessions of a producer a stream remembers, and how many of its appends with their ends. */
  sessionsKept: SESSIONS_KEPT,
  endsKept: ENDS_KEPT,
  /** Idempotency-Key, as common services have it. */
  keyBytesMax: KEY_CHARS_MAX,
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
  /** An offset as sent. The protocol caps offsets at 256 characters; ours have 33. */
  offsetCharsMax: 255,
  /** Nesting of a JSON record: deeper input is an attack, and breaks the parsers of readers. */
  jsonDepthMax: 512,
  /** A changelog with fewer bytes is not compacted. */
  compactionBytesMin: 1024 * 1024,
  /** Keys, and their characters, that a pass over a changelog holds: about 50 MB. One with more is done in sections. */
  compactionKeysMax: 250_000,
  compactionCharsMax: 16 * 1024 * 1024,
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
  sseEventCharsMax: SSE_EVENT_CHARS_MAX,
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
  /** Sockets at once. A reader costs about 20 KiB: 20,000 stay under 0.5 GiB. */
  connectionsMax: 20_000,
  /** Time to send the header block, and the whole request. Slow senders cannot hold a socket. */
  headersTimeoutMs: 10_000,
  requestTimeoutMs: 60_000,
  /** An idle keep-alive socket. Longer than the 60 s of common proxies, and not much: dead sockets would stay. */
  keepAliveTimeoutMs: 65_000,
  /** How often the files of a TLS certificate are looked at. A new one is used when it has not changed for this long. */
  tlsCheckMs: 1_000,
  /** A token (JWT) as sent: half of a header block. Tokens of identity providers have 1 to 3 KB. */
  jwtCharsMax: 8192,
  /** Tokens that are remembered as verified, and their characters in all: what clients of one provider may hold. */
  jwtRememberedMax: 10_000,
  jwtRememberedCharsMax: 16 * 1024 * 1024,
  /** A key set (JWKS). A provider has two to ten keys of at most 3 KB. */
  jwksBytesMax: 64 * 1024,
  jwksKeysMax: 100,
  /** How long a key set may take to arrive, and how long a request waits for it. */
  jwksTimeoutMs: 5_000,
  jwksWaitMs: 1_000,
  /** Between two fetches that unknown keys cause: strangers can invent keys, and must not make us call the provider. */
  jwksCoolDownMs: 30_000,
  /** The first and the longest pause after a key set could not be fetched. */
  jwksRetryMsMin: 1_000,
  jwksRetryMsMax: 60_000,
  /** The life of a signed URL. It cannot be taken back while its key exists, so it is short. */
  signedUrlMsMax: 7 * 86_400_000,
  /** How far the clock that signed a URL may be ahead of the server's. */
  signedUrlSkewMs: 60_000,
  /** Signed URLs that are remembered as verified, for each key. */
  signedUrlsRememberedMax: 1000,
  /** How often the file of API keys is looked at: a revoked key is refused within a second. */
  keysCheckMs: 400,
  /** The file of API keys. A key has about 400 bytes. */
  keyFileBytesMax: 16 * 1024 * 1024,
  /** How long SIGTERM waits for running requests before it cuts them. */
  drainMs: 10_000,
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
  /** Forks of forks. A read looks through all of them. */
  forkDepthMax: FORK_DEPTH_MAX,
  /**
   * Records that `last` asks for: with the shortest ones, a tenth of a page. To get more, ask again for those before the first of
   * them.
   */
  lastMax: LAST_MAX,
  /** Names that one page of the list looks at. It skips deleted and expired ones. */
  listLookedMax: 5000,
  /** Streams listed in one answer. */
  listMax: 1000,
  /** Backups at once. While one runs, the server frees no disk space. */
  backupsMax: 4,
  /** A backup without a request for this long may be ended by a new one. Clients wait less than that between two parts. */
  backupSilentMs: 15_000,
  /** A backup without a request for this long has ended. */
  backupLeaseMs: 60_000,
  /**
   * Bytes of one answer of a backup: small beside the memory for answers, and large beside the cost of a request.
   */
  backupPartBytesMax: 1024 * 1024,
  /** Forks that the description of a stream names: more than a person looks at, and an answer of at most 200 KB. */
  forksShownMax: 100,
  /** Subscriptions of identities without a namespace, of each namespace, and of the server: so no tenant uses up all. */
  subscriptionsMax: 10_000,
  namespaceSubscriptionsMax: 1_000,
  serverSubscriptionsMax: 50_000,
  /** Explicit streams of one subscription, acks of one call. */
  subscriptionStreamsMax: 10_000,
  subscriptionIdBytesMax: 256,
  subscriptionBodyBytesMax: 1024 * 1024,
  /** The description of a subscription: a paragraph. Every snapshot contains it, up to 50,000 times. */
  subscriptionDescriptionBytesMax: 4096,
  /** A token of a wake or claim outlives any lease. The lease ends a wake, and can be extended. */
  tokenMs: 24 * 3_600_000,
  /** Streams that one wake names. The rest follow with the next wake. */
  wakeStreamsMax: 1000,
  /** How far wake events may go beyond a quota of storage: some hundred events. */
  wakeBytesBeyondQuota: 64 * 1024,
  /** Operations of one transaction. They are decided in one step, which must be short for all other requests. */
  transactionOperationsMax: 1000,
  /** Answers of transactions that are kept. The last half of it is always kept. */
  outcomeBytesMax: 128 * 1024 * 1024,
  /** The same for each namespace: about 100,000 small ones. There may be many namespaces. */
  namespaceOutcomeBytesMax: 16 * 1024 * 1024,
  /** Groups of identities without a namespace, of each namespace, and of the server: so no tenant uses up all. */
  groupsMax: 10_000,
  namespaceGroupsMax: 1_000,
  serverGroupsMax: 50_000,
  /** The name of a group, and the body of a call. */
  groupIdBytesMax: 256,
  groupBodyBytesMax: 1024 * 1024,
  /** Streams that a group names one by one: they are remembered in one turn. A pattern has no such limit. */
  groupStreamsMax: 10_000,
  /** Streams of a group of jobs: a worker that waits listens to each of them. */
  jobStreamsMax: 100,
  /** Jobs that one call takes, or settles. */
  jobCallMax: 1000,
  /** Jobs of a group that were given and are not done, and of all groups: about 150 bytes each. */
  jobsOpenMax: 10_000,
  serverJobsOpenMax: 200_000,
  /** How long a job may wait: its record, and those behind it, are needed until then. */
  jobDelayMsMax: 30 * 86_400_000,
  leaseMsDefault: 30_000,
  leaseMsMin: 1_000,
  leaseMsMax: 600_000,
  /** A webhook's answer: only `{"done":true}` matters. */
  webhookAnswerBytesMax: 64 * 1024,
  webhookTimeoutMs: 15_000,
  webhookRetryMsMin: 1_000,
  webhookRetryMsMax: 60_000,
  /** Deliveries at once, in all and to one host. */
  webhooksMax: 64,
  webhooksPerHostMax: 8,
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
