/**
 * One request and its answer, as every runtime can offer them. Handlers know nothing else of HTTP: no
 * `IncomingMessage`, no web `Request`, because building those costs more than an append.
 */

import type { ClientCertificate } from "../access/identity.ts";
import type { ErrorCode } from "../../base/errors.ts";
import type { AnswerShare } from "./answer-budget.ts";
import type { AuditFacts } from "./audit.ts";

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
  /**
   * Returns a header by its lower-case name. A header that was sent twice is refused with `invalid_request`.
   */
  header(name: string): string | undefined;
  /** True when a body is announced, so that it can be refused before it is read. */
  readonly hasBody: boolean;
  /** The whole body, if it arrived before `body` was called. It may be larger than `body` would accept. */
  readonly received?: Uint8Array | undefined;
  /** Returns the whole body. Rejects with `body_too_large` if it is larger. */
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
  /** Refuses a head that is not sound, by `checkHead` of request-head.ts. Absent: the runtime has done it, or cannot see it. */
  checkHead?(): void;
  /** Names and values of the head in turn, for a request that goes on to another server. Absent: the runtime cannot see it. */
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
  /** Called when the whole body was sent and is not read again. Not called if only a part was sent. */
  readonly onSent?: (() => void) | undefined;
  /**
   * The memory that the body uses in the budget. It is released when the body was sent, or the connection is
   * closed.
   */
  readonly share?: Pick<AnswerShare, "release" | "onCut"> | undefined;
  /** Drop the connection instead of answering; for injected faults. */
  readonly drop?: boolean;
  /** The code of a refusal, for logs. */
  readonly code?: ErrorCode;
  /** Facts for the audit entry. Absent: the entry has what the request and the status show. */
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
  /**
   * Calls `run` once if the other side has taken almost no bytes for this long. The returned function cancels
   * it.
   */
  onStuck(delayMs: number, run: () => void): () => void;
  /** Calls `run` once when the connection is closed, by either side. */
  onClose(run: () => void): void;
  /** Ends the answer after the queued bytes. Cuts the connection if the other side does not take them. */
  end(): void;
  /** Drops the connection and the queued bytes. */
  cut(): void;
  /**
   * Present if the runtime keeps the reader's time limit and place, so that the reader can go on after this server
   * has lost its memory.
   */
  readonly bridge?: ReaderBridge | undefined;
}

/**
 * Keeps the time limit and the place of a live reader outside of the server, for runtimes where timers of the server
 * would keep an object awake.
 */
export interface ReaderBridge {
  /** Called once, before the first write: the answer must end after this many milliseconds. */
  lives(lifeMs: number): void;
  /** Called directly after every write, with the place at which the reader goes on. */
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
