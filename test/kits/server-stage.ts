/** A server without sockets, over virtual time. */

import { joinBytes } from "../../src/base/bytes.ts";
import { HapaxError } from "../../src/base/errors.ts";
import {
  type Authorize,
  createServer,
  type HapaxServer,
  type ServerOptions,
} from "../../src/streams/server.ts";
import type { Exchange, ServerAnswer } from "../../src/streams/server/exchange.ts";
import type { Store } from "../../src/streams/store.ts";
import { openMemoryStore } from "../../src/streams/stores/memory.ts";
import { createVirtualClock, type VirtualClock } from "../../src/testing/virtual-clock.ts";

type Headers = Readonly<Record<string, string>>;

export interface ServerStage {
  readonly server: HapaxServer;
  readonly clock: VirtualClock;
  /** A body that is a promise arrives when the promise settles. */
  readonly ask: (
    method: string,
    target: string,
    headers?: Headers,
    body?: string | Promise<string>,
  ) => Promise<ServerAnswer>;
}

export function openStage(
  options: ServerOptions = {},
  store: Store = openMemoryStore(),
  authorize?: Authorize,
) {
  const clock = createVirtualClock(Date.UTC(2026, 0, 1));
  const server = createServer(
    {
      store,
      clock,
      random: { unit: () => 0.5, id: () => "id" },
      courier: { deliver: () => Promise.resolve({ kind: "refused", reason: "none here" }) },
      authorize,
      address: "127.0.0.1",
      publicUrl: () => "http://test",
      onFault: () => undefined,
    },
    options,
  );
  const stage: ServerStage = {
    server,
    clock,
    ask: (...request) => server.handle(exchangeOf(...request)),
  };
  return stage;
}

export function exchangeOf(
  method: string,
  target: string,
  headers: Headers = {},
  body: string | Promise<string> = "",
): Exchange {
  const [path = "", query = ""] = target.split("?");
  return {
    method,
    path,
    query,
    baseUrl: "http://test",
    authority: "localhost",
    header: (name) => headers[name],
    hasBody: body !== "",
    body: async (bytesMax) => {
      const bytes = new TextEncoder().encode(await body);
      if (bytes.length > bytesMax) throw new HapaxError("body_too_large", "in this test");
      return bytes;
    },
    onAbort: () => undefined,
  };
}

export function textOf(answer: ServerAnswer): string {
  if ("live" in answer || answer.body === undefined) return "";
  const { body } = answer;
  return new TextDecoder().decode(body instanceof Uint8Array ? body : joinBytes(body));
}
