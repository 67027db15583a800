/**
 * Servers for the behaviours of the client, and the world of one case: a stream of its own on a real server, over
 * real sockets, and ways to it on which answers are lost.
 */

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DurableStreamTestServer } from "@durable-streams/server";
import { type ClientOptions, connect, type Stream } from "../../src/client/client.ts";
import type { ErrorCode } from "../../src/base/errors.ts";
import { startNodeServer } from "../../src/streams/runtimes/node.ts";
import { openFileStore } from "../../src/streams/stores/file.ts";
import { type FaultProxy, openFaultProxy } from "../../src/testing/testing.ts";
import type { FaultProxyOptions } from "../../src/testing/fault-proxy.ts";

/** What a case may need of a server beyond the public protocol, or beyond a server in memory. */
export type Ability =
  | "sessions"
  | "reading back of producers"
  | "patience"
  | "idempotency keys"
  | "If-Match"
  | "If-None-Match"
  | "problem types"
  | "files";

/** One thing that the client does, on every server that has what it needs. */
export interface Behaviour {
  readonly name: string;
  readonly needs?: Ability;
  /** What the client does where this is missing. */
  readonly lacks?: Ability;
  run(world: World): Promise<void>;
}

export interface RunningServer {
  readonly url: string;
  /** Stops it and starts it again, on the same files and the same port. */
  restart(): Promise<void>;
  stop(): Promise<void>;
}

export interface ServerKind {
  readonly name: string;
  readonly has: ReadonlySet<Ability>;
  open(): Promise<RunningServer>;
}

const EXTENSIONS: readonly Ability[] = [
  "sessions",
  "reading back of producers",
  "patience",
  "idempotency keys",
  "If-Match",
  "If-None-Match",
  "problem types",
];

interface Started {
  readonly url: string;
  stop(): Promise<void>;
}

/** Port 0 is any free one. */
type Start = (port: number, directory: string | undefined) => Promise<Started>;

const startOurs: Start = async (port, directory) => {
  if (directory === undefined) return startNodeServer({ store: "memory", port });
  // Small segments: a large one takes long to lay out at every start.
  const store = await openFileStore(directory, { segmentBytes: 1 << 20 });
  return startNodeServer({ port, store });
};

const startTheirs: Start = async (port, directory) => {
  const files = directory === undefined ? {} : { dataDir: directory };
  const server = new DurableStreamTestServer({ port, ...files });
  return { url: await server.start(), stop: () => server.stop() };
};

function kindOf(
  name: string,
  extensions: readonly Ability[],
  isInFiles: boolean,
  start: Start,
): ServerKind {
  return {
    name,
    has: new Set<Ability>([...extensions, ...(isInFiles ? ["files" as const] : [])]),
    async open() {
      const directory = isInFiles ? await mkdtemp(join(tmpdir(), "hapax-behaviours-")) : undefined;
      let server = await start(0, directory);
      const { url } = server;
      return {
        url,
        async restart() {
          await server.stop();
          server = await start(Number(new URL(url).port), directory);
        },
        async stop() {
          await server.stop();
          if (directory !== undefined) await rm(directory, { recursive: true, force: true });
        },
      };
    },
  };
}

/** Our server, with all extensions. */
export const ours: readonly ServerKind[] = [
  kindOf("hapax in memory", EXTENSIONS, false, startOurs),
  kindOf("hapax in files", EXTENSIONS, true, startOurs),
];

/** The reference server of the public protocol, which has none of them. */
export const theirs: readonly ServerKind[] = [
  kindOf("@durable-streams/server in memory", [], false, startTheirs),
  kindOf("@durable-streams/server in files", [], true, startTheirs),
];

/** Which requests of a client get lost: the first ones of a method, each time at the same point. */
export interface Loss {
  readonly method: "PUT" | "POST" | "DELETE" | "GET";
  /** `answer`: the server has done it. `request`: the server never sees it. */
  readonly lost: "answer" | "request";
  /** Default 1. */
  readonly times?: number;
}

/** A handle whose way to the server loses things, and the proxy that counts what it has lost. */
export interface LosingStream {
  readonly stream: Stream;
  readonly proxy: FaultProxy;
}

/** A handle behind a bad network all of whose connections can be cut at once. */
export interface CuttableStream {
  readonly stream: Stream;
  readonly cut: () => Promise<void>;
}

/** The stream of one case. Everything opened here is closed after it. */
export interface World {
  readonly url: string;
  readonly has: ReadonlySet<Ability>;
  /** A handle, straight to the server. */
  readonly connect: (options?: ClientOptions) => Stream;
  /** A handle of which exactly these requests are lost; all others go straight. */
  readonly connectLosing: (loss: Loss, options?: ClientOptions) => Promise<LosingStream>;
  /** A handle behind a network that loses things by a seed. */
  readonly connectBehind: (faults: FaultProxyOptions) => Promise<LosingStream>;
  /** The same, with connections that can be cut. */
  readonly connectCuttable: (faults: FaultProxyOptions) => Promise<CuttableStream>;
  /** The records of the stream, asked for without the client. */
  readonly stored: () => Promise<unknown[]>;
  readonly restart: () => Promise<void>;
  /** The code of a refusal: servers without problem types name only what the status says. */
  readonly code: (code: ErrorCode) => ErrorCode;
}

const RETRY = { pauseMs: 2, pauseMsMax: 20 };

export interface OpenWorld extends World {
  end(): Promise<void>;
}

export function openWorld(kind: ServerKind, server: RunningServer, name: string): OpenWorld {
  const endings: (() => Promise<unknown>)[] = [];
  const path = `/v1/stream/${name}`;
  const url = server.url + path;
  const openProxy = async (faults: FaultProxyOptions): Promise<FaultProxy> => {
    const proxy = await openFaultProxy(server.url, faults);
    endings.push(() => proxy.close());
    return proxy;
  };
  return {
    url,
    has: kind.has,
    connect: (options = {}) => connect(url, { retry: RETRY, ...options }),
    async connectLosing({ method, lost, times = 1 }, options = {}) {
      const share = lost === "answer" ? { dropAnswers: 1 } : { dropRequests: 1 };
      const proxy = await openProxy({ seed: 1, ...share });
      let left = times;
      const fetchLosing: typeof fetch = (input, init) => {
        const isLost = left > 0 && init?.method === method && !isQuestion(init);
        if (!isLost) return fetch(input, init);
        left -= 1;
        return fetch(elsewhere(input, proxy.url), init);
      };
      return { stream: connect(url, { retry: RETRY, fetch: fetchLosing, ...options }), proxy };
    },
    async connectBehind(faults) {
      const proxy = await openProxy(faults);
      return { stream: connect(proxy.url + path, { retry: RETRY }), proxy };
    },
    async connectCuttable(faults) {
      let proxy = await openProxy(faults);
      const fetchBehind: typeof fetch = (input, init) => fetch(elsewhere(input, proxy.url), init);
      return {
        stream: connect(url, { retry: RETRY, fetch: fetchBehind }),
        async cut() {
          await proxy.close();
          proxy = await openProxy({ ...faults, seed: faults.seed + proxy.requests });
        },
      };
    },
    async stored() {
      const answer = await fetch(`${url}?offset=-1`);
      return (await answer.json()) as unknown[];
    },
    restart: () => server.restart(),
    code: (code) => (kind.has.has("problem types") ? code : "refused"),
    async end() {
      for (const run of endings.splice(0).toReversed()) await run();
    },
  };
}

/** The same path and query at another server. */
function elsewhere(input: Parameters<typeof fetch>[0], origin: string): URL {
  const { pathname, search } = new URL(input instanceof Request ? input.url : input);
  return new URL(pathname + search, origin);
}

/** The request by which a client asks what the server is: an append without data and without an identity. */
function isQuestion(init: RequestInit): boolean {
  return init.method === "POST" && Object.keys(init.headers ?? {}).length === 0;
}

/** The numbers from 0. */
export function count(length: number): number[] {
  return Array.from({ length }, (_, id) => id);
}

/** What a promise rejects with. */
export function failureOf(promise: Promise<unknown>): Promise<unknown> {
  return promise.then(
    () => "nothing",
    (error: unknown) => error,
  );
}

/** Lets sockets be served until something is so. */
export async function until(isSo: () => boolean): Promise<void> {
  while (!isSo()) await new Promise((resolve) => setImmediate(resolve));
}
