/** Creates streams and forks. PROTOCOL.md §3, §8 and §15. */

import { refusalIn } from "./attempt.ts";
import { appendBodyOf } from "./entries.ts";
import { headOf, type StreamHead } from "./head.ts";
import type { Peer } from "./peer.ts";
import { codecOf, encode } from "./records.ts";

/** Options of `stream.create`. All are optional. */
export interface CreateOptions {
  /** The media type of the stream. Default: that of the connection, else `application/json`. */
  readonly contentType?: string;
  /** Deletes the stream when it was not used for this time, in seconds. Default: it does not expire. */
  readonly ttlSeconds?: number;
  /** Deletes the stream at this time, in RFC 3339. Default: it does not expire. */
  readonly expiresAt?: string;
  /** Creates the stream closed. Default false. */
  readonly isClosed?: boolean;
  /** The first record. */
  readonly data?: unknown;
  /**
   * Rejects with `stream_present` if any stream exists at the path, also one with the same configuration.
   * Default false.
   */
  readonly isNew?: boolean;
  /** How long idempotency keys are remembered, in seconds. */
  readonly keyWindowSeconds?: number;
  /** How many idempotency keys are remembered. */
  readonly keyMax?: number;
  readonly keyOverflow?: "evict" | "reject";
  /**
   * `content`: an append without an identity gets its content as key, so equal appends within the window are
   * stored once.
   */
  readonly keyFrom?: "content";
  /**
   * How long, or how much, old data is kept, such as `seconds=604800, bytes=1000000000`: data is removed as soon as one of the
   * two allows it. With `needed=drop` also data that groups, subscriptions and forks still need. Default: that of the server.
   */
  readonly retention?: string;
  /**
   * Makes a stream of JSON a changelog, which keeps the newest record of each key: the path of the member that is the key, such
   * as `id` or `user.id`. You may add `tombstone=<path>`: a record in which this member is missing or null deletes its key. And
   * `lag=<seconds>`: younger records stay where they are; by default 60 seconds. Example: `id, tombstone=value, lag=3600`.
   * Default: every record is kept.
   */
  readonly compactKey?: string;
  readonly signal?: AbortSignal | undefined;
}

/** Options of `stream.fork`. */
export interface ForkOptions extends CreateOptions {
  /** The offset at which the fork leaves this stream. Default: its tail. */
  readonly offset?: string;
  /** How many records (JSON) or bytes after `offset` the fork still takes. Default 0. */
  readonly subOffset?: number;
}

/** The result of `create()`. */
export interface Created extends StreamHead {
  /** False if the stream existed already, with the same configuration. */
  readonly isCreated: boolean;
}

/** Creates the stream of a peer; as a fork if `source` is given. */
export async function sendCreate(
  peer: Peer,
  options: ForkOptions,
  source?: Peer,
): Promise<Created> {
  const { data, signal } = options;
  // A fork names the type of its source: without it a server that compares types refuses a repetition.
  const codec = source === undefined ? peer.knownCodec : await source.codec(signal);
  const type = options.contentType ?? codec?.contentType ?? "application/json";
  const headers = headersOf(options, type, source?.url);
  if (Object.keys(headers).some((name) => name.startsWith("Stream-Key-"))) {
    await peer.require("idempotency keys", signal);
  }
  if (options.isNew === true) await peer.require("If-None-Match", signal);
  const body = data === undefined ? undefined : firstBody(data, type);
  const call = { method: "PUT", url: peer.url, headers, body, signal };
  const { answer, wasUnknown } = await peer.caller.untilAnswered(call);
  const error = await refusalIn(answer);
  if (error !== undefined) {
    if (wasUnknown && error.code === "stream_present") error.message += ", maybe by a lost attempt";
    throw error;
  }
  const head = headOf(answer);
  peer.learn(head);
  return { ...head, isCreated: answer.status === 201 || wasUnknown };
}

function firstBody(data: unknown, contentType: string): Uint8Array | undefined {
  const codec = codecOf(contentType);
  return appendBodyOf([{ encoded: encode(data, codec) }], codec);
}

function headersOf(
  options: ForkOptions,
  contentType: string,
  sourceUrl: string | undefined,
): Record<string, string> {
  return given({
    "Content-Type": contentType,
    "Stream-TTL": options.ttlSeconds,
    "Stream-Expires-At": options.expiresAt,
    "Stream-Closed": options.isClosed === true ? "true" : undefined,
    "If-None-Match": options.isNew === true ? "*" : undefined,
    "Stream-Key-Window": options.keyWindowSeconds,
    "Stream-Key-Max": options.keyMax,
    "Stream-Key-Overflow": options.keyOverflow,
    "Stream-Key-From": options.keyFrom,
    "Stream-Retention": options.retention,
    "Stream-Compact-Key": options.compactKey,
    ...(sourceUrl === undefined
      ? {}
      : {
          "Stream-Forked-From": new URL(sourceUrl).pathname,
          "Stream-Fork-Offset": options.offset,
          "Stream-Fork-Sub-Offset": options.subOffset,
        }),
  });
}

/** Returns the headers that have a value. */
export function given(
  headers: Readonly<Record<string, string | number | undefined>>,
): Record<string, string> {
  const entries = Object.entries(headers).filter(([, value]) => value !== undefined);
  return Object.fromEntries(entries.map(([name, value]) => [name, String(value)]));
}
