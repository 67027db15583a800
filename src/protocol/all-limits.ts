/**
 * Every limit of the server: those of limits.ts, which every server has, and here those of its parts and of runtimes with
 * sockets of their own. They are apart, so that a Worker does not bundle the limits of what it leaves out. Each has its reason.
 */

import { FORK_DEPTH_MAX } from "../streams/core/create.ts";
import { ENDS_KEPT, SESSIONS_KEPT } from "../streams/core/producer.ts";
import { FOLLOW_STREAMS_MAX } from "./follow-all.ts";
import { KEY_CHARS_MAX } from "./idempotency-key.ts";
import { LIMITS as OF_EVERY_SERVER, SSE_EVENT_CHARS_MAX } from "./limits.ts";

const OF_PARTS = {
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
  /** How many replaced sessions of a producer a stream remembers, and how many of its appends with their ends. */
  sessionsKept: SESSIONS_KEPT,
  endsKept: ENDS_KEPT,
  /** Idempotency-Key, as common services have it. */
  keyBytesMax: KEY_CHARS_MAX,
  /** An offset as sent. The protocol caps offsets at 256 characters; ours have 33. */
  offsetCharsMax: 255,
  /** A changelog with fewer bytes is not compacted. */
  compactionBytesMin: 1024 * 1024,
  /** Keys, and their characters, that a pass over a changelog holds: about 50 MB. One with more is done in sections. */
  compactionKeysMax: 250_000,
  compactionCharsMax: 16 * 1024 * 1024,
  sseEventCharsMax: SSE_EVENT_CHARS_MAX,
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
  /** Forks of forks. A read looks through all of them. */
  forkDepthMax: FORK_DEPTH_MAX,
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
  /** Streams of one connection that follows several: the id of each event has a place of each, some 12 bytes. */
  followStreamsMax: FOLLOW_STREAMS_MAX,
  /** Streams that one wake names. The rest follow with the next wake. */
  wakeStreamsMax: 1000,
  /** How far wake events may go beyond a quota of storage: some hundred events. */
  wakeBytesBeyondQuota: 64 * 1024,
  /** Operations of one transaction. They are decided in one step, which must be short for all other requests. */
  transactionOperationsMax: 1000,
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

// As one type of two, so that every limit keeps its comment.
/** The limits by name; PROTOCOL.md refers to them by these names. */
export const LIMITS: typeof OF_EVERY_SERVER & typeof OF_PARTS = { ...OF_EVERY_SERVER, ...OF_PARTS };
