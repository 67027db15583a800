/** Creating streams and forks. PROTOCOL.md §3, §8 and §15. */

import { HapaxError } from "../errors.ts";
import { refusalOf } from "./attempt.ts";
import { headOf, type StreamHead } from "./head.ts";
import type { Peer } from "./peer.ts";
import { codecOf, encode, join } from "./records.ts";

/** Options of `stream.create`. All are optional. */
export interface CreateOptions {
  /** Default: that of the connection, else `application/json`. */
  readonly contentType?: string;
  /** A sliding expiry, in seconds. */
  readonly ttlSeconds?: number;
  /** An absolute expiry, RFC 3339. */
  readonly expiresAt?: string;
  /** Created closed. */
  readonly isClosed?: boolean;
  /** The first record. */
  readonly data?: unknown;
  /** Only if there is no stream yet, whatever its configuration; else `stream_present`. */
  readonly isNew?: boolean;
  /** How long idempotency keys are remembered, in seconds. */
  readonly keyWindowSeconds?: number;
  /** How many idempotency keys are remembered. */
  readonly keyMax?: number;
  readonly keyOverflow?: "evict" | "reject";
  /** `content`: an append without identity has its content as key. */
  readonly keyFrom?: "content";
  readonly signal?: AbortSignal;
}

/** Options of `stream.fork`. */
export interface ForkOptions extends CreateOptions {
  /** Where the fork leaves this stream. Default: its tail. */
  readonly offset?: string;
  /** So many records (JSON) or bytes more. Default 0. */
  readonly subOffset?: number;
}

/** What creating a stream came to. */
export interface Created extends StreamHead {
  /** False if the stream was there already, with the same configuration. */
  readonly isCreated: boolean;
}

/** Creates the stream of a peer. */
export async function createStream(
  peer: Peer,
  options: CreateOptions,
  fork: Readonly<Record<string, string>> = {},
): Promise<Created> {
  const isFork = Object.keys(fork).length > 0;
  const contentType = options.contentType ?? (isFork ? undefined : peer.knownCodec?.contentType);
  const type = contentType ?? (isFork ? undefined : "application/json");
  if (hasKeys(options)) await peer.require("idempotency keys");
  if (options.isNew === true) await peer.require("If-None-Match");
  const headers = {
    ...headersOf(options),
    ...fork,
    ...(type === undefined ? {} : { "Content-Type": type }),
  };
  const call = {
    method: "PUT",
    url: peer.url,
    headers,
    ...(options.data === undefined ? {} : { body: bodyOf(options.data, type) }),
    ...(options.signal === undefined ? {} : { signal: options.signal }),
  };
  const { answer, wasUnknown } = await peer.caller.untilAnswered(call);
  if (answer.status !== 200 && answer.status !== 201) {
    const error = await refusalOf(answer);
    if (error.code !== "stream_present" || !wasUnknown) throw error;
    const message = `${error.message}; an attempt that got no answer may have created it`;
    throw new HapaxError(error.code, message, { cause: error });
  }
  answer.discard();
  const head = headOf(answer);
  peer.learn(head);
  return { ...head, isCreated: answer.status === 201 || wasUnknown };
}

function bodyOf(data: unknown, contentType: string | undefined): Uint8Array {
  if (contentType === undefined) {
    throw new HapaxError("invalid_request", "a fork with data needs its contentType");
  }
  const codec = codecOf(contentType);
  return join([encode(data, codec)], codec);
}

function hasKeys({ keyWindowSeconds, keyMax, keyOverflow, keyFrom }: CreateOptions): boolean {
  return [keyWindowSeconds, keyMax, keyOverflow, keyFrom].some((value) => value !== undefined);
}

function headersOf(options: CreateOptions): Record<string, string> {
  const values: readonly (readonly [string, string | number | undefined])[] = [
    ["Stream-TTL", options.ttlSeconds],
    ["Stream-Expires-At", options.expiresAt],
    ["Stream-Closed", options.isClosed === true ? "true" : undefined],
    ["If-None-Match", options.isNew === true ? "*" : undefined],
    ["Stream-Key-Window", options.keyWindowSeconds],
    ["Stream-Key-Max", options.keyMax],
    ["Stream-Key-Overflow", options.keyOverflow],
    ["Stream-Key-From", options.keyFrom],
  ];
  const given = values.filter(([, value]) => value !== undefined);
  return Object.fromEntries(given.map(([name, value]) => [name, String(value)]));
}

/** The headers that make a stream a fork of another one. */
export function forkHeaders(sourceUrl: string, options: ForkOptions): Record<string, string> {
  return {
    "Stream-Forked-From": new URL(sourceUrl).pathname,
    ...(options.offset === undefined ? {} : { "Stream-Fork-Offset": options.offset }),
    ...(options.subOffset === undefined
      ? {}
      : { "Stream-Fork-Sub-Offset": String(options.subOffset) }),
  };
}
