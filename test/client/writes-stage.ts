/**
 * A writer, a real server and a bad network between them, all in one process: no sockets, and time that the
 * test moves. What becomes of each request is decided by a fate; all fates of a run come from one seed.
 */

import { connect } from "../../src/client/client.ts";
import { HapaxError } from "../../src/base/errors.ts";
import type { ClientOptions } from "../../src/client/options.ts";
import type { Stream } from "../../src/client/stream.ts";
import type { ClientAnswer, ClientRequest, Transport } from "../../src/client/transport.ts";
import { createServer, type HapaxServer, type ServerOptions } from "../../src/streams/server.ts";
import { nodeDigest } from "../../src/streams/runtimes/node-digest.ts";
import { openMemoryStore } from "../../src/streams/stores/memory.ts";
import { createSeededRandom, type SeededRandom } from "../../src/testing/seeded-random.ts";
import { createVirtualClock, type VirtualClock } from "../../src/testing/testing.ts";
import { turn } from "../kits/watch.ts";

export const BASE = "http://stage.test";
export const STREAM = `${BASE}/v1/stream/s`;

/** What becomes of one request. Nothing is wrong unless it says so. */
export interface Fate {
  /** Milliseconds on the way to the server. */
  readonly thereMs?: number;
  /** Milliseconds on the way back. */
  readonly backMs?: number;
  /**
   * `request`: it never arrives. `answer`: it is done, and the answer never arrives. `late`: the client hears
   * that the connection broke, and the request arrives all the same, `lateMs` later.
   */
  readonly lost?: "request" | "answer" | "late";
  readonly lateMs?: number;
  /** A lost one is not even noticed: nothing comes until the client's own time limit. */
  readonly isSilent?: boolean;
  /** A proxy sends it twice; the client gets the answer to the second. */
  readonly isTwice?: boolean;
  /** Answered by a proxy with this status, without asking the server, or after it. */
  readonly status?: number;
  readonly isDone?: boolean;
  readonly headers?: Readonly<Record<string, string>>;
  readonly words?: string;
}

export interface Sent {
  readonly method: string;
  readonly sequence: number | undefined;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

export interface WriteStage {
  readonly clock: VirtualClock;
  readonly server: HapaxServer;
  /** All requests of writers, in the order in which they were sent. */
  readonly sent: Sent[];
  fate: (sent: Sent, at: number) => Fate;
  connect(options?: ClientOptions): Stream;
  /** What the stream holds, seen past the network. */
  stored(): Promise<unknown[]>;
  /** A request of another client, over a healthy network. */
  direct(method: string, headers?: Record<string, string>, body?: string): Promise<ClientAnswer>;
  /** Moves time in small steps until the promise is settled. */
  drive<R>(promise: Promise<R>): Promise<R>;
  pass(ms: number): Promise<void>;
  close(): Promise<void>;
}

export interface StageOptions {
  readonly seed?: number;
  /** The server has only what the public protocol has. */
  readonly isBase?: boolean;
  readonly server?: ServerOptions;
  readonly stepMs?: number;
}

export function openWriteStage(options: StageOptions = {}): WriteStage {
  const { seed = 1, isBase = false, stepMs = 10 } = options;
  const clock = createVirtualClock(Date.UTC(2026, 0, 1));
  const random = createSeededRandom(seed);
  const faults: unknown[] = [];
  const server = createServer(
    {
      store: openMemoryStore(),
      clock,
      random: createSeededRandom(seed + 1),
      courier: { deliver: () => Promise.resolve({ kind: "refused", reason: "no webhooks here" }) },
      // At once: one on another thread would race the virtual clock.
      digest: nodeDigest,
      address: "127.0.0.1",
      publicUrl: () => BASE,
      onFault: (error) => faults.push(error),
    },
    options.server,
  );
  const pose = isBase ? asBaseServer(poser(server)) : poser(server);
  const stage: WriteStage = {
    clock,
    server,
    sent: [],
    fate: () => ({}),
    connect: (client = {}) =>
      connect(STREAM, {
        clock,
        random,
        transport: (request) => carry(stage, pose, request),
        ...client,
      }),
    async stored() {
      const answer = await stage.drive(poser(server)({ method: "GET", url: STREAM, headers: {} }));
      const text = new TextDecoder().decode(await answer.bytes());
      const type = answer.header("content-type") ?? "";
      return type.startsWith("application/json") ? (JSON.parse(text) as unknown[]) : [text];
    },
    direct: (method, headers = {}, body = "") => {
      const bytes = new TextEncoder().encode(body);
      return stage.drive(poser(server)({ method, url: STREAM, headers, body: bytes }));
    },
    async drive(promise) {
      let isSettled = false;
      const settle = (): void => {
        isSettled = true;
      };
      promise.then(settle, settle);
      for (let steps = 0; !isSettled; steps += 1) {
        if (steps > 1_000_000) throw new Error("the writer waits for something that never comes");
        await turn();
        if (!isSettled) clock.advance(stepMs);
      }
      return promise;
    },
    async pass(ms) {
      for (let passedMs = 0; passedMs < ms; passedMs += stepMs) {
        await turn();
        clock.advance(stepMs);
      }
      await turn();
    },
    async close() {
      await stage.drive(server.close());
      if (faults.length > 0) throw new AggregateError(faults, "the server met faults");
    },
  };
  return stage;
}

/** Random fates: about one request in `oneIn` meets something. */
export function badNetwork(random: SeededRandom, oneIn: number, repeats = true): () => Fate {
  const kinds: readonly (() => Fate)[] = [
    () => ({ lost: "request" }),
    () => ({ lost: "answer" }),
    () => ({ lost: "answer" }),
    () => ({ lost: "late", lateMs: random.below(3_000) }),
    () => ({ lost: "request", isSilent: true }),
    () => ({ lost: "answer", isSilent: true }),
    () => ({ isTwice: repeats, lateMs: random.below(200) }),
    () => ({ status: 503 }),
    () => ({ status: 502, isDone: true }),
    () => ({ status: 429, headers: { "retry-after": String(random.below(3)) } }),
    () => ({ status: 408 }),
    () => ({ thereMs: random.below(2_000) }),
  ];
  return () => {
    const ways = { thereMs: random.below(30), backMs: random.below(30) };
    const kind = random.below(oneIn) === 0 ? kinds[random.below(kinds.length)] : undefined;
    return { ...ways, ...kind?.() };
  };
}

async function carry(
  stage: WriteStage,
  pose: Transport,
  request: ClientRequest,
): Promise<ClientAnswer> {
  const sequence = request.headers["Producer-Seq"];
  const sent = {
    method: request.method,
    // The question of what the server is has a number too, and no body.
    sequence: request.body === undefined ? undefined : Number(sequence),
    headers: request.headers,
    body: new TextDecoder().decode(request.body),
  };
  stage.sent.push(sent);
  const fate = stage.fate(sent, stage.sent.length - 1);
  const wait = (ms = 0): Promise<void> =>
    ms === 0 ? Promise.resolve() : new Promise((resolve) => stage.clock.after(ms, resolve));
  await wait(fate.thereMs);
  if (fate.lost === "late") void wait(fate.lateMs).then(() => pose(request));
  if (fate.lost === "request" || fate.lost === "late") return broken(fate);
  if (fate.status !== undefined && fate.isDone !== true) return refusal(fate, fate.status);
  let answer = await pose(request);
  if (fate.isTwice === true) {
    await wait(fate.lateMs);
    answer = await pose(request);
  }
  await wait(fate.backMs);
  if (fate.lost === "answer") return broken(fate);
  return fate.status === undefined ? answer : refusal(fate, fate.status);
}

function broken(fate: Fate): Promise<never> {
  if (fate.isSilent === true) return new Promise(() => undefined);
  return Promise.reject(new TypeError("fetch failed"));
}

function refusal(fate: Fate, status: number): ClientAnswer {
  return answerOf(status, fate.headers ?? {}, new TextEncoder().encode(fate.words ?? "a proxy"));
}

export function answerOf(
  status: number,
  headers: Readonly<Record<string, string>>,
  body: Uint8Array,
): ClientAnswer {
  const byName = new Map(
    Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]),
  );
  return {
    status,
    header: (name) => byName.get(name),
    bytes: () => Promise.resolve(body),
    async *chunks() {
      yield await Promise.resolve(body);
    },
    discard: () => undefined,
  };
}

/** Puts requests to the server, as a runtime would. */
function poser(server: HapaxServer): Transport {
  return async ({ method, url, headers, body = new Uint8Array(0) }) => {
    const { pathname, search } = new URL(url);
    const byName = new Map(
      Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]),
    );
    const answer = await server.handle({
      method,
      path: pathname,
      query: search.slice(1),
      baseUrl: BASE,
      authority: "localhost",
      header: (name) => byName.get(name),
      hasBody: body.length > 0,
      body: (bytesMax) =>
        body.length > bytesMax ? Promise.reject(tooLarge()) : Promise.resolve(body),
      onAbort: () => undefined,
    });
    if ("live" in answer) throw new Error("writers do not follow");
    const { body: parts = [] } = answer;
    const bytes = parts instanceof Uint8Array ? parts : Buffer.concat(parts);
    return answerOf(answer.status, answer.headers, new Uint8Array(bytes));
  };
}

function tooLarge(): HapaxError {
  return new HapaxError("body_too_large", "the body is larger than the limit");
}

const EXTENSIONS = ["prefer", "idempotency-key", "if-match", "if-none-match", "producer-session"];

/** The same server with the public protocol alone: it ignores our headers and refuses in plain words. */
function asBaseServer(pose: Transport): Transport {
  return async (request) => {
    const entries = Object.entries(request.headers);
    const names = entries.map(([name]) => name.toLowerCase());
    const hasAll = names.includes("producer-epoch") || !names.includes("producer-id");
    const words = (text: string): Uint8Array => new TextEncoder().encode(text);
    if (request.method === "POST" && !hasAll) {
      return answerOf(400, {}, words("all producer headers must be given together"));
    }
    const isHead = request.method === "HEAD";
    const kept = entries.filter(([name]) => {
      const lower = name.toLowerCase();
      return !EXTENSIONS.includes(lower) && !(isHead && lower === "producer-id");
    });
    const answer = await pose({ ...request, headers: Object.fromEntries(kept) });
    if (answer.status < 400) return answer;
    const protocolHeaders = [
      "stream-closed",
      "producer-epoch",
      "producer-expected-seq",
      "retry-after",
    ];
    const headers = protocolHeaders.flatMap((name) => {
      const value = answer.header(name);
      return value === undefined ? [] : [[name, value] as const];
    });
    return answerOf(answer.status, Object.fromEntries(headers), words("refused"));
  };
}
