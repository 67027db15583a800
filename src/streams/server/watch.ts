/**
 * Looks at every request from its beginning to its answer, for what is written about it: its id, its span, its log line, its
 * audit entry. PROTOCOL.md §22.
 *
 *   - what is not asked for costs next to nothing: an append without a log and a tracer gets an id, and no more;
 *   - a log or a tracer that throws changes no answer.
 */

import type { Clock } from "../../base/clock.ts";
import type { Random } from "../../base/random.ts";
import { formatRfc3339 } from "../../protocol/values.ts";
import { parseTrace, type ReceivedTrace } from "../../protocol/trace-context.ts";
import type { AuditEntry, Log, LogEntry } from "../log.ts";
import type { TraceSpan, Tracer } from "../tracer.ts";
import { Audit, type AuditOrigin, mayBeAct } from "./audit.ts";
import type { Exchange, LiveAnswer, LiveSink, ServerAnswer, WholeAnswer } from "./exchange.ts";
import { auditLogEntry, harmless, harmlessLog } from "./log-entries.ts";
import { redactQuery, shorten } from "./redaction.ts";
import type { RequestIds } from "./request-ids.ts";
import { type LogOptions, type Watch, Watched } from "./watched.ts";

export interface WatchParts {
  readonly ids: RequestIds;
  readonly clock: Clock;
  readonly random: Random;
  /** Takes the entries of the audit. Undefined: they go to the log. */
  readonly onAudit: ((entry: AuditEntry) => void) | undefined;
  /** Undefined: there is no log. */
  readonly log: Log | undefined;
  readonly tracer: Tracer | undefined;
  /** The template of the route at a path. */
  readonly routeNameOf: (path: string) => string;
}

/** Makes the watch of a server that writes about its requests. */
export function createWatch(parts: WatchParts): Watch {
  return new RequestWatch({ ...parts, log: harmlessLog(parts.log) });
}

class RequestWatch implements Watch {
  readonly #parts: WatchParts;
  readonly #audit: Audit;
  readonly #isTimed: boolean;

  constructor(parts: WatchParts) {
    this.#parts = parts;
    this.#audit = new Audit(parts.clock, auditWriter(parts));
    this.#isTimed = parts.log !== undefined || parts.tracer !== undefined;
  }

  begin(exchange: Exchange): Watched {
    const { ids, clock, tracer, routeNameOf } = this.#parts;
    const startedMs = this.#isTimed ? clock.steadyMs() : 0;
    const watched = new Watched(exchange, ids.of(exchange), startedMs);
    if (tracer !== undefined)
      watched.span = safely(() => beginSpan(tracer, watched, routeNameOf(exchange.path)));
    return watched;
  }

  end(
    watched: Watched,
    ready: ServerAnswer,
    leaving: ServerAnswer | Promise<ServerAnswer>,
    options: LogOptions,
  ): ServerAnswer | Promise<ServerAnswer> {
    if (mayBeAct(watched.exchange.method, ready)) {
      safely(() => {
        this.#audit.look(watched.exchange, ready, () => originOf(watched));
      });
    }
    const isLogged = this.#isWanted(ready.status, options);
    if (!isLogged && watched.span === undefined) return leaving;
    const code = "live" in ready ? undefined : ready.code;
    const write = (bytesOut: number): void => {
      safely(() => {
        this.#write({ watched, status: ready.status, code, bytesOut }, isLogged);
      });
    };
    const leave = (answer: ServerAnswer): ServerAnswer => {
      if ("live" in answer) return followed(answer, write);
      write(watched.exchange.method === "HEAD" ? 0 : bodyBytes(answer));
      return answer;
    };
    return leaving instanceof Promise ? leaving.then(leave) : leave(leaving);
  }

  note(act: string, details: Readonly<Record<string, string>>): void {
    this.#audit.write({ act, outcome: "done", details });
  }

  #isWanted(status: number, { logRequests, logSample }: LogOptions): boolean {
    if (this.#parts.log === undefined || logRequests === "none") return false;
    if (status >= 400) return true;
    return logRequests === "all" && (logSample >= 1 || this.#parts.random.unit() < logSample);
  }

  #write(ended: Ended, isLogged: boolean): void {
    const { watched, status } = ended;
    const { log, clock, routeNameOf } = this.#parts;
    watched.span?.end(attributesOf(ended), status >= 500);
    if (!isLogged || log === undefined) return;
    const ms = Math.round((clock.steadyMs() - watched.startedMs) * 1000) / 1000;
    log({ time: formatRfc3339(clock.nowMs()), ...entryOf(ended, routeNameOf), ms });
  }
}

/** A request whose answer has left, or a live one that has ended. */
interface Ended {
  readonly watched: Watched;
  readonly status: number;
  readonly code: string | undefined;
  readonly bytesOut: number;
}

/** What the writers of logs and spans do must never become what a client sees. */
function safely<Result>(run: () => Result): Result | undefined {
  try {
    return run();
  } catch {
    return undefined;
  }
}

function auditWriter({ onAudit, log }: WatchParts): (entry: AuditEntry) => void {
  if (onAudit !== undefined) return harmless(onAudit);
  return (entry) => log?.(auditLogEntry(entry));
}

function traceOf({ exchange }: Watched): ReceivedTrace | undefined {
  return parseTrace(exchange.header("traceparent"), exchange.header("tracestate"));
}

function traceIdOf(watched: Watched): string | undefined {
  return watched.span?.traceparent?.split("-")[1] ?? traceOf(watched)?.traceId;
}

function originOf(watched: Watched): AuditOrigin {
  const { exchange, requestId, caller } = watched;
  const { name: identity, namespace } = caller ?? {};
  return {
    requestId,
    ...present({ traceId: traceIdOf(watched), identity, namespace, peer: exchange.peer }),
  };
}

function entryOf(
  { watched, status, code, bytesOut }: Ended,
  routeNameOf: WatchParts["routeNameOf"],
): Omit<LogEntry, "time" | "ms"> {
  const { exchange, requestId, caller } = watched;
  const { method, peer, query } = exchange;
  const path = shorten(exchange.path);
  return {
    level: status >= 500 ? "error" : status >= 400 ? "warn" : "info",
    event: "request",
    message: `${method} ${path} ${status}`,
    requestId,
    ...present({ traceId: traceIdOf(watched) }),
    method,
    route: routeNameOf(exchange.path),
    path,
    ...(query === "" ? {} : { query: redactQuery(query) }),
    status,
    ...present({ code, bytesIn: bytesInOf(exchange) }),
    bytesOut,
    ...present({ identity: caller?.name, namespace: caller?.namespace, peer }),
  };
}

/** The members that have a value. */
function present<Members extends Readonly<Record<string, unknown>>>(
  members: Members,
): { [Name in keyof Members]?: Exclude<Members[Name], undefined> } {
  const known = Object.entries(members).filter(([, value]) => value !== undefined && value !== "");
  // The filter leaves what the type says.
  return Object.fromEntries(known) as {
    [Name in keyof Members]?: Exclude<Members[Name], undefined>;
  };
}

function bytesInOf({ hasBody, bodyBytes: received }: Exchange): number | undefined {
  return hasBody ? received : 0;
}

function bodyBytes({ body }: WholeAnswer): number {
  if (body === undefined) return 0;
  if (body instanceof Uint8Array) return body.length;
  return body.reduce((sum, piece) => sum + piece.length, 0);
}

/** Calls `onEnd` with the bytes that were sent, when a live answer is over. */
function followed(answer: LiveAnswer, onEnd: (bytes: number) => void): LiveAnswer {
  return {
    ...answer,
    live(sink) {
      let bytes = 0;
      sink.onClose(() => {
        onEnd(bytes);
      });
      const counting: LiveSink = {
        write(piece) {
          bytes += piece.length;
          sink.write(piece);
        },
        get queuedBytes() {
          return sink.queuedBytes;
        },
        onDrain: (run) => {
          sink.onDrain(run);
        },
        onStuck: (delayMs, run) => sink.onStuck(delayMs, run),
        onClose: (run) => {
          sink.onClose(run);
        },
        end: () => {
          sink.end();
        },
        cut: () => {
          sink.cut();
        },
        bridge: sink.bridge,
      };
      answer.live(counting);
    },
  };
}

const METHODS = new Set(["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"]);

function beginSpan(tracer: Tracer, watched: Watched, route: string): TraceSpan {
  const { exchange, requestId } = watched;
  const trace = traceOf(watched);
  // A client of HTTP/2 can make up methods, and a span's name has few values.
  const method = METHODS.has(exchange.method) ? exchange.method : "_OTHER";
  return tracer.start({
    name: `${method} ${route}`,
    kind: "server",
    attributes: {
      "http.request.method": method,
      "http.route": route,
      "url.path": shorten(exchange.path),
      "hapax.request_id": requestId,
      ...(exchange.peer === undefined || exchange.peer === ""
        ? {}
        : { "client.address": exchange.peer }),
    },
    ...(trace === undefined ? {} : { parent: trace }),
  });
}

function attributesOf({ watched, status, code, bytesOut }: Ended): Record<string, string | number> {
  return {
    "http.response.status_code": status,
    "http.response.body.size": bytesOut,
    ...present({
      "error.type": code,
      "http.request.body.size": bytesInOf(watched.exchange),
      "enduser.id": watched.caller?.name,
    }),
  };
}
