/** Streams of a server, as the source of a copy. Pages and long-polls only: events change line breaks. */

import {
  STREAM_CLOSED,
  STREAM_COMPACT_KEY,
  STREAM_EARLIEST_OFFSET,
  STREAM_EXPIRES_AT,
  STREAM_KEY_FROM,
  STREAM_KEY_MAX,
  STREAM_KEY_OVERFLOW,
  STREAM_KEY_WINDOW,
  STREAM_LIFE,
  STREAM_NEXT_OFFSET,
  STREAM_RETENTION,
  STREAM_TTL,
} from "../../protocol/header-names.ts";
import { connect } from "../../client/client.ts";
import type { Batch } from "../../client/batches.ts";
import type { Stream } from "../../client/stream.ts";
import { waitingClock } from "../../base/clock.ts";
import type { Context } from "../context.ts";
import { CommandFailure, EXIT } from "../failure.ts";
import { type CliAnswer, PAUSES, refusal, sendWithRetries } from "../http.ts";
import type { Target } from "../target.ts";
import {
  asCopyFailure,
  bytesBefore,
  isJsonType,
  offsetOf,
  type CopyPage,
  RangeDigest,
  type SourceStream,
  storedOf,
  type StreamFacts,
} from "./page.ts";

/** What makes a stream like another one. */
const KEPT = [
  "content-type",
  STREAM_TTL,
  STREAM_EXPIRES_AT,
  STREAM_RETENTION,
  STREAM_KEY_WINDOW,
  STREAM_KEY_MAX,
  STREAM_KEY_OVERFLOW,
  STREAM_KEY_FROM,
];

/** How a copy reads and writes. */
export interface CopyCall {
  readonly context: Context;
  readonly retrySeconds: number;
  /** Ends everything. */
  readonly signal: AbortSignal;
  /** Follows the source until this signal; undefined: copies up to the tail. */
  readonly until: AbortSignal | undefined;
}

/** Asks for a stream; undefined if there is none. */
export async function openSource(
  call: CopyCall,
  target: Target,
  path: string,
): Promise<SourceStream | undefined> {
  const answer = await askHead(call, target);
  if (answer.status === 404 || answer.status === 410) return undefined;
  const life = answer.header(STREAM_LIFE);
  const tail = answer.header(STREAM_NEXT_OFFSET);
  if (life === undefined || tail === undefined) throw notOurs(target);
  const headers = Object.fromEntries(
    KEPT.flatMap((name) => {
      const value = answer.header(name);
      return value === undefined ? [] : [[name.toLowerCase(), value]];
    }),
  );
  const from = answer.header(STREAM_EARLIEST_OFFSET) ?? offsetOf(0);
  const compactKey = answer.header(STREAM_COMPACT_KEY);
  const rule = compactKey === undefined ? {} : { compactKey };
  return new ServerSource(call, target, { path, life, from, tail, headers, ...rule });
}

/** `HEAD`, with 200, 404 or 410 as its answer. */
export async function askHead(
  { context, retrySeconds, signal }: CopyCall,
  target: Target,
  headers: Readonly<Record<string, string>> = {},
): Promise<CliAnswer> {
  const head = { target, method: "HEAD", headers, signal } as const;
  const { answer } = await sendWithRetries(context, head, retrySeconds);
  if (![200, 404, 410].includes(answer.status)) throw refusal(target, answer);
  return answer;
}

/** The client's handle of a stream, with the patience of the command. */
export function streamOf({ context, retrySeconds }: CopyCall, target: Target): Stream {
  const nowMs = (): number => context.nowMs();
  return connect(target.url, {
    token: target.token,
    headers: Object.fromEntries(target.headers),
    fetch: (input, init) => context.fetch(input, { ...init, redirect: "manual" }),
    clock: { ...waitingClock, nowMs, steadyMs: nowMs },
    random: context.random,
    retry: { ...PAUSES, totalMs: retrySeconds * 1000 },
  });
}

/** The digest of what a stream has between two offsets. */
export async function digestOf(
  call: CopyCall,
  target: Target,
  contentType: string | undefined,
  from: number,
  to: number,
): Promise<string | undefined> {
  const { signal } = call;
  const pages = streamOf(call, target)
    .read({ from: offsetOf(from), signal })
    .pages();
  const digest = new RangeDigest(from, from, to);
  for await (const { bytes } of pages) {
    digest.add(storedOf(bytes, isJsonType(contentType)));
    if (digest.isWhole) break;
  }
  return digest.isWhole ? digest.hex() : undefined;
}

class ServerSource implements SourceStream {
  readonly facts: StreamFacts;
  readonly #call: CopyCall;
  readonly #target: Target;

  constructor(call: CopyCall, target: Target, facts: StreamFacts) {
    this.facts = facts;
    this.#call = call;
    this.#target = target;
  }

  async *pages(after: string): AsyncGenerator<CopyPage> {
    try {
      for await (const { bytes, nextOffset, closed } of this.#batches(after)) {
        bytesBefore(nextOffset);
        yield { body: bytes, end: nextOffset, isClosed: closed };
      }
    } catch (error) {
      throw asCopyFailure(error, this.#target.label);
    }
  }

  #batches(after: string): AsyncIterable<Batch<unknown>> {
    const { signal, until } = this.#call;
    const stream = streamOf(this.#call, this.#target);
    const from = `${after}/${this.facts.life}`;
    if (until === undefined) return stream.read({ from, signal }).pages();
    const ended = AbortSignal.any([signal, until]);
    return stream.follow({ from, live: "long-poll", signal: ended }).batches();
  }

  async digest(from: number, to: number): Promise<string | undefined> {
    const type = this.facts.headers["content-type"];
    try {
      return await digestOf(this.#call, this.#target, type, from, to);
    } catch (error) {
      throw asCopyFailure(error, this.#target.label);
    }
  }

  async earliest(): Promise<number> {
    const answer = await askHead(this.#call, this.#target);
    return bytesBefore(answer.header(STREAM_EARLIEST_OFFSET) ?? offsetOf(0));
  }
}

/** Whether an answer says that its stream is closed. */
export function isClosed(answer: CliAnswer): boolean {
  return answer.header(STREAM_CLOSED) === "true";
}

function notOurs(target: Target): CommandFailure {
  return new CommandFailure(EXIT.refused, `${target.url} is on a server that names no lives`, [
    "a copy needs a Hapax server: without Stream-Life a stream that was created anew is not recognised",
  ]);
}
