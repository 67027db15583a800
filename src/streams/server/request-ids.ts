/**
 * The name of a request, which its answer, its log line and its audit entry share. PROTOCOL.md §22.1.
 *
 *   - a client's name is taken as it is, or not at all: it cannot end a line or steer a terminal;
 *   - a name that the server makes costs a counter, and no other server makes the same one.
 */

import type { Random } from "../../base/random.ts";
import { SENT } from "../../protocol/headers.ts";
import type { Exchange } from "./exchange.ts";

const REQUEST_ID = /^[A-Za-z0-9._:/+=@-]{1,128}$/;

export class RequestIds {
  readonly #prefix: string;
  #count = 0;

  constructor(random: Random) {
    // Enough of an id that two processes do not share it, and short enough for every log line.
    this.#prefix = `${random.id().slice(0, 12)}-`;
  }

  /** The client's name for its request, or a new one. */
  of(exchange: Pick<Exchange, "header">): string {
    const sent = exchange.header(SENT.requestId);
    return sent !== undefined && REQUEST_ID.test(sent) ? sent : this.next();
  }

  /** A new name, for bytes that are no request as well. */
  next(): string {
    this.#count += 1;
    return `${this.#prefix}${this.#count}`;
  }
}
