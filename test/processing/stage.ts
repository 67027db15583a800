/** A real server, a bad network before it, and handles through it. */

import { connectServer } from "../../src/client/processing.ts";
import type { ConsumerEvent } from "../../src/client/processing/events.ts";
import type { Connection } from "../../src/client/processing/connection.ts";
import type { ClientOptions } from "../../src/client/options.ts";
import { fetchTransport, type Transport } from "../../src/client/transport.ts";
import { type NodeServer, startNodeServer } from "../../src/streams/runtimes/node.ts";
import type { Store } from "../../src/streams/store.ts";
import {
  type FaultProxy,
  type FaultProxyOptions,
  openFaultProxy,
} from "../../src/testing/fault-proxy.ts";

/** Short times, so that what is lost is found out soon. */
export const QUICK: ClientOptions = { timeoutMs: 1000, retry: { pauseMs: 2, pauseMsMax: 20 } };

export interface ProcessingStage {
  readonly server: NodeServer;
  readonly proxy: FaultProxy;
  /** Past the proxy. */
  readonly direct: Connection;
  readonly connect: (options?: ClientOptions) => Connection;
  readonly close: () => Promise<void>;
}

export async function openStage(
  options: Partial<FaultProxyOptions> = {},
  store: Store | "memory" = "memory",
): Promise<ProcessingStage> {
  const server = await startNodeServer({
    port: 0,
    onAudit: () => undefined,
    store,
  });
  const proxy = await openFaultProxy(server.url, { seed: 1, ...options });
  return {
    server,
    proxy,
    direct: connectServer(server.url),
    connect: (client = {}) => connectServer(proxy.url, { ...QUICK, ...client }),
    async close() {
      await proxy.close();
      await server.stop();
    },
  };
}

/** All that can go wrong with a request, each now and then. */
export function badNetwork(seed: number): FaultProxyOptions {
  return {
    seed,
    dropRequests: 0.04,
    dropAnswers: 0.08,
    cutRequests: 0.03,
    cutAnswers: 0.04,
    silenceRequests: 0.005,
    silenceAnswers: 0.005,
    refuseRequests: 0.03,
    refuseAnswers: 0.04,
    duplicateRequests: 0.06,
    delayRequests: 0.1,
    delayAnswers: 0.1,
    delayMsMax: 20,
  };
}

/** What a consumer tells of itself, to be waited for. */
export class Events {
  readonly all: ConsumerEvent[] = [];
  readonly #waiting = new Set<() => void>();

  readonly take = (event: ConsumerEvent): void => {
    this.all.push(event);
    for (const look of [...this.#waiting]) look();
  };

  count(kind: ConsumerEvent["kind"]): number {
    return this.all.filter((event) => event.kind === kind).length;
  }

  /** Resolves when so many of the kind have been told. */
  until(kind: ConsumerEvent["kind"], count = 1): Promise<void> {
    return new Promise((resolve) => {
      const look = (): void => {
        if (this.count(kind) < count) return;
        this.#waiting.delete(look);
        resolve();
      };
      this.#waiting.add(look);
      look();
    });
  }
}

/** A transport that can be held up: a process that is paused, with its requests still to come. */
export function pausable(): {
  readonly transport: Transport;
  readonly pause: () => void;
  readonly resume: () => void;
  /** Resolves when a request whose path ends so is held up. */
  readonly held: (path: string) => Promise<void>;
  /** Resolves when all that was held up has its answer. */
  readonly answered: () => Promise<void>;
  readonly sent: string[];
} {
  const fetching = fetchTransport(fetch);
  let gate: Promise<void> | undefined;
  let open = (): void => undefined;
  const sent: string[] = [];
  const holding: { readonly path: string; readonly answer: Promise<unknown> }[] = [];
  const looking = new Set<() => void>();
  const send = (request: Parameters<Transport>[0]): ReturnType<Transport> => {
    sent.push(`${request.method} ${new URL(request.url).pathname}`);
    return fetching(request);
  };
  return {
    sent,
    transport: async (request) => {
      if (gate === undefined) return await send(request);
      // A write is on its way: a client that gives it up meanwhile cannot call it back.
      const late = request.method === "GET" ? request : { ...request, signal: undefined };
      const answer = gate.then(() => send(late));
      holding.push({ path: new URL(request.url).pathname, answer });
      for (const look of looking) look();
      return await answer;
    },
    held: (path) =>
      new Promise((resolve) => {
        const look = (): void => {
          if (!holding.some((held) => held.path.endsWith(path))) return;
          looking.delete(look);
          resolve();
        };
        looking.add(look);
        look();
      }),
    async answered() {
      await Promise.allSettled(holding.map(({ answer }) => answer));
    },
    pause() {
      gate ??= new Promise((resolve) => {
        open = resolve;
      });
    },
    resume() {
      gate = undefined;
      open();
    },
  };
}
