/**
 * A request that is being answered, and who looks at it from its beginning to its answer. A server without logs, spans and audit gives
 * requests their ids, and no more. PROTOCOL.md §22.
 */

import type { Access } from "../access/access.ts";
import type { TraceSpan } from "../tracer.ts";
import type { Exchange, ServerAnswer } from "./exchange.ts";
import type { ResolvedServerOptions } from "./options.ts";
import type { Ticket } from "./quotas.ts";
import type { RequestIds } from "./request-ids.ts";

/** A request that is being answered. */
export class Watched {
  readonly exchange: Exchange;
  readonly requestId: string;
  /** When it began, on the steady clock. 0: there is neither a log nor a tracer. */
  readonly startedMs: number;
  /** Whose it is, once that is known. Undefined: a stranger's, or the route asks for no identity. */
  caller: Pick<Access, "name" | "namespace"> | undefined;
  /** What it has taken of its caller's quotas, until it is answered. */
  ticket: Ticket | undefined;
  span: TraceSpan | undefined;

  constructor(exchange: Exchange, requestId: string, startedMs: number) {
    this.exchange = exchange;
    this.requestId = requestId;
    this.startedMs = startedMs;
    this.caller = undefined;
    this.ticket = undefined;
    this.span = undefined;
  }

  /** Gives back what it has taken. */
  release(): void {
    this.ticket?.release();
    this.ticket = undefined;
  }
}

export type LogOptions = Pick<ResolvedServerOptions, "logRequests" | "logSample">;

export interface Watch {
  begin(exchange: Exchange): Watched;
  /** Takes the answer of a handler, and the same answer as it leaves. Returns what is sent. */
  end(
    watched: Watched,
    ready: ServerAnswer,
    leaving: ServerAnswer | Promise<ServerAnswer>,
    options: LogOptions,
  ): ServerAnswer | Promise<ServerAnswer>;
  /** Writes an act of the server itself. */
  note(act: string, details: Readonly<Record<string, string>>): void;
}

/** Writes nothing. */
export function createQuietWatch(ids: RequestIds): Watch {
  return {
    begin: (exchange) => new Watched(exchange, ids.of(exchange), 0),
    end: (_watched, _ready, leaving) => leaving,
    note: () => undefined,
  };
}
