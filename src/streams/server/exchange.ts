/**
 * One request and its answer, as every runtime can offer them. Handlers know nothing else of HTTP: no
 * `IncomingMessage`, no web `Request`, because building those costs more than an append.
 */

import type { ClientCertificate } from "../access/identity.ts";
import type { ErrorCode } from "../../base/errors.ts";
import type { AnswerShare } from "./answer-budget.ts";
import type { AuditFacts } from "./audit.ts";

/** The head of a request as it was sent, for a runtime that has it. */
export interface RequestHead {
  readonly target: string;
  /** The version of HTTP, such as `1.1`. */
  readonly version: string;
  /** Names and values in turn, as they were sent. */
  readonly lines: readonly string[];
  /** How many different names there are. */
  readonly names: number;
  /** `:authority` of HTTP/2, which takes the place of `Host`. */
  readonly authority?: string;
  /** A value by lower-case name. */
  field(name: string): string | undefined;
}

/** One request, as a runtime offers it to the handlers. */
export interface Exchange {
  readonly method: string;
  /** As sent: still percent-encoded, without the query. */
  readonly path: string;
  /** As sent, without the question mark. */
  readonly query: string;
  /** Where clients reach this server, without a slash at the end. */
  readonly baseUrl: string;
  /** The host that the request was sent to, with its port: that of an absolute target, else that of `Host`. */
  readonly authority: string | undefined;
  /** By lower-case name. A header that was sent twice is refused with `invalid_request`. */
  header(name: string): string | undefined;
  /** True when a body is announced, so that it can be refused before it is read. */
  readonly hasBody: boolean;
  /** The whole body, if it has come before it was asked for. It may be larger than `body` would take. */
  readonly received?: Uint8Array | undefined;
  /** The whole body, or `body_too_large`. */
  body(bytesMax: number): Promise<Uint8Array>;
  /** Bytes of the body that have come so far, for logs. Undefined: the runtime does not count them. */
  readonly bodyBytes?: number;
  /** Calls `run` once if the other side goes away before the answer is complete. */
  onAbort(run: () => void): void;
  /**
   * The address of the client. Clients with the same address share the memory that their answers take. Default: all
   * clients count as one address.
   */
  readonly peer?: string;
  /** The certificate that the client has proved to own, if TLS asked for one. */
  readonly certificate?: ClientCertificate | undefined;
  /** True when the other side is gone, so that no answer can reach it. */
  readonly isGone?: boolean;
  /** The server checks it. Absent: the runtime has checked the head, or cannot see it. */
  readonly head?: RequestHead | undefined;
  /** Names and values of the head in turn, for a request that goes on to another server. Absent: see `head`. */
  lines?(): readonly string[];
}

export type AnswerHeaders = Readonly<Record<string, string>>;

/** What a handler answers: everything at once, or a stream of events. */
export type ServerAnswer = WholeAnswer | LiveAnswer;

/** An answer whose body is known when it begins. */
export interface WholeAnswer {
  readonly status: number;
  readonly headers: AnswerHeaders;
  /** Pieces are sent one after the other; they are shared and must not be changed. */
  readonly body?: Uint8Array | readonly Uint8Array[] | undefined;
  /** The body may be compressed if the client accepts it. */
  readonly mayCompress?: boolean;
  /** Called when the whole body has left and is not read again. Not called if it has not left whole. */
  readonly onSent?: (() => void) | undefined;
  /** The room that the body takes: it is given back when the body has left, or the connection has gone. */
  readonly share?: Pick<AnswerShare, "release" | "onCut"> | undefined;
  /** Drop the connection instead of answering; for injected faults. */
  readonly drop?: boolean;
  /** The code of a refusal, for logs. */
  readonly code?: ErrorCode;
  /** What the audit says of it. Absent: what the request and the status show. */
  readonly audit?: AuditFacts;
}

/** An answer without an end of its own, such as Server-Sent Events. */
export interface LiveAnswer {
  readonly status: number;
  readonly headers: AnswerHeaders;
  readonly live: (sink: LiveSink) => void;
}

/** The sending half of a live answer. */
export interface LiveSink {
  /** Queues bytes; they may be shared with other sinks and are never changed. */
  write(bytes: Uint8Array): void;
  /** Bytes queued that the other side has not taken yet. */
  readonly queuedBytes: number;
  /** Calls `run` once when the queue is empty. */
  onDrain(run: () => void): void;
  /** Calls `run` once the other side has taken next to nothing for this long; the returned function cancels. */
  onStuck(delayMs: number, run: () => void): () => void;
  /** Calls `run` once when the connection is gone, by whichever side. */
  onClose(run: () => void): void;
  /** Ends the answer after what is queued; cuts the connection if the other side does not take that. */
  end(): void;
  /** Drops the connection and what is queued. */
  cut(): void;
  /** Given if another keeps time for the reader, and the reader may go on after the memory of this server is gone. */
  readonly bridge?: ReaderBridge | undefined;
}

/**
 * Keeps the time limit and the place of a live reader outside of the server, for runtimes where timers of the server
 * would keep an object awake.
 */
export interface ReaderBridge {
  /** Called once, before anything is written: after so many milliseconds the answer must end. */
  lives(lifeMs: number): void;
  /** Called behind every write, in the same step: the reader goes on here. */
  moved(place: BridgedPlace): void;
}

/** The place of a live reader in its stream. */
export interface BridgedPlace {
  readonly stream: number;
  /** The life of the stream: a reader never gets data of another one. */
  readonly life: string;
  readonly offset: number;
  readonly cursor: string;
  readonly hasOffsets: boolean;
}
