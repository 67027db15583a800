/**
 * PORT. What a server writes about itself: log entries for people who run it, and audit entries for people who must know later who
 * did what. PROTOCOL.md §22.
 *
 * No entry holds a secret or a payload: no credential, no cookie, no key, no body, and of a query only the members that are
 * known to be harmless.
 */

/** How much an entry matters. An `error` needs an operator now, a `warn` soon, an `info` never; `debug` is for a search. */
export type LogLevel = "error" | "warn" | "info" | "debug";

/** One line of the log. Members that do not apply are absent. */
export interface LogEntry {
  /** RFC 3339 in UTC, with milliseconds. */
  readonly time: string;
  readonly level: LogLevel;
  /** `request`: an answered request. `audit`: an act, in `audit`. `fault`: a bug or a broken part. `note`: anything else. */
  readonly event: "request" | "audit" | "fault" | "note";
  readonly message: string;
  /** The value of `X-Request-Id`. */
  readonly requestId?: string;
  /** The trace that the request is part of: 32 hexadecimal digits. */
  readonly traceId?: string;
  readonly method?: string;
  /** The route as a template, such as `/_hapax/groups/{group}`. There are few of them. */
  readonly route?: string;
  /** The path as it was sent, percent-encoded and without the query. At most 1,024 characters. */
  readonly path?: string;
  /** The query without the values that may be secret. Absent if there is none. */
  readonly query?: string;
  readonly status?: number;
  /** The code of a refusal, such as `stream_not_found`. */
  readonly code?: string;
  /** The time from the head of the request to its answer, or to the end of a live answer, in milliseconds. */
  readonly ms?: number;
  /** Bytes of the request's body. */
  readonly bytesIn?: number;
  /** Bytes of the answer's body. */
  readonly bytesOut?: number;
  /** The name of the identity that sent the request. Absent: the route asks for none, or none is known. */
  readonly identity?: string;
  /** The namespace that the identity is confined to. */
  readonly namespace?: string;
  /** The address of the client. */
  readonly peer?: string;
  /** The stack of a fault. */
  readonly stack?: string;
  readonly audit?: AuditEntry;
}

/** Takes log entries. The server ignores what it throws or rejects with. */
export type Log = (entry: LogEntry) => void;

/** An act that an operator must be able to find again. Each text has a limit: PROTOCOL.md §22.4. */
export interface AuditEntry {
  /** RFC 3339 in UTC, with milliseconds. */
  readonly time: string;
  /** The kind of the act, such as `stream.delete`. docs/guides/logs.md lists them. */
  readonly act: string;
  /** `done`: it is durable. `refused`: nothing was changed. `failed`: the server does not know whether it was done. */
  readonly outcome: "done" | "refused" | "failed";
  /** The thing that it concerns: a stream, a group, a subscription. */
  readonly target?: string;
  /** The name of the identity that asked for it. Absent: no identity is known. */
  readonly identity?: string;
  /** The namespace that the identity is confined to. */
  readonly namespace?: string;
  /** The address of the client. */
  readonly peer?: string;
  readonly requestId?: string;
  readonly traceId?: string;
  readonly status?: number;
  /** Why it was refused or has failed. */
  readonly code?: string;
  readonly details?: Readonly<Record<string, string | number>>;
}
