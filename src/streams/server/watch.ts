/** Looks at every request from its beginning to its answer, for what is written about it. PROTOCOL.md §22. */

import type { Exchange } from "./exchange.ts";
import type { RequestIds } from "./request-ids.ts";

/** A request that is being answered. */
export class Watched {
  readonly exchange: Exchange;
  readonly requestId: string;

  constructor(exchange: Exchange, requestId: string) {
    this.exchange = exchange;
    this.requestId = requestId;
  }
}

export class Watch {
  readonly #ids: RequestIds;

  constructor(ids: RequestIds) {
    this.#ids = ids;
  }

  begin(exchange: Exchange): Watched {
    return new Watched(exchange, this.#ids.of(exchange));
  }
}
