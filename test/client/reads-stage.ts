/**
 * A reader, a real server and the way between them, all in one process: no sockets, and time that the test
 * moves. What happens to each request is decided by a fate.
 */

import type { Clock } from "../../src/base/clock.ts";
import { Caller } from "../../src/client/attempt.ts";
import { type ClientOptions, resolveClientOptions } from "../../src/client/options.ts";
import type { ClientAnswer, ClientRequest } from "../../src/client/transport.ts";
import {
  createServer,
  type HapaxServer,
  type ServerOptions,
  type LiveSink,
} from "../../src/streams/server.ts";
import { openMemoryStore } from "../../src/streams/stores/memory.ts";
import { createSeededRandom } from "../../src/testing/seeded-random.ts";
import { createVirtualClock, type VirtualClock } from "../../src/testing/testing.ts";
import { turn } from "../kits/watch.ts";

export const BASE = "http://stage.test";
export const STREAM = `${BASE}/v1/stream/s`;

/** What becomes of one request. Nothing is wrong unless it says so. */
export interface Fate {
  /** No answer comes. */
  readonly isLost?: boolean;
  /** The body is cut after so many bytes, as by a reset. */
  readonly cutAfterBytes?: number;
  /** The body ends after so many bytes, as if it were whole: what only a live answer can do. */
  readonly endAfterBytes?: number;
  /** Instead of asking the server. */
  readonly answer?: ClientAnswer;
  /** Headers come, the body only at its end: a proxy that collects bytes. */
  readonly isCollected?: boolean;
  /** Headers come, and then nothing more: a dead connection that neither side closes. */
  readonly isSilent?: boolean;
  /** What comes before the silence. */
  readonly lastWords?: string;
  /** Pieces of at most so many bytes. */
  readonly pieceBytes?: number;
}

export interface Asked {
  readonly atMs: number;
  readonly query: URLSearchParams;
  readonly headers: Readonly<Record<string, string>>;
}

export interface Stage {
  readonly clock: VirtualClock;
  readonly server: HapaxServer;
  readonly caller: Caller;
  /** The reader's requests so far. */
  readonly asked: Asked[];
  /** Bytes of bodies that the reader has taken. */
  takenBytes: number;
  /** Bodies that were cut or ended early. */
  cuts: number;
  fate: (asked: Asked) => Fate;
  /** A request of another client, over a healthy network. */
  send(
    method: string,
    headers?: Record<string, string>,
    body?: string | Uint8Array,
  ): Promise<number>;
  /** Moves time in small steps until the promise is settled. */
  drive<R>(promise: Promise<R>, untilMs?: number): Promise<R>;
  /** Moves time in small steps. */
  pass(ms: number): Promise<void>;
}

export function openStage(client: ClientOptions = {}, server: ServerOptions = {}): Stage {
  const clock = createVirtualClock(Date.UTC(2026, 0, 1));
  const created = createServer(
    {
      store: openMemoryStore(),
      clock,
      random: createSeededRandom(7),
      courier: { deliver: () => Promise.resolve({ kind: "refused", reason: "no webhooks here" }) },
      address: "127.0.0.1",
      publicUrl: () => BASE,
      onFault: (error) => {
        throw error;
      },
    },
    server,
  );
  const stage: Stage = {
    clock,
    server: created,
    asked: [],
    takenBytes: 0,
    cuts: 0,
    fate: () => ({}),
    caller: new Caller(
      resolveClientOptions(
        {
          clock,
          random: createSeededRandom(11),
          transport: (request) => carry(stage, request),
          ...client,
        },
        STREAM,
      ),
    ),
    async send(method, headers = {}, body = "") {
      const bytes = typeof body === "string" ? new TextEncoder().encode(body) : body;
      const request = { method, url: STREAM, headers, body: bytes };
      const answer = await pose(stage.server, clock, request, new AbortController().signal);
      return answer.status;
    },
    async drive(promise, untilMs = 3_600_000) {
      let isSettled = false;
      const settle = (): void => {
        isSettled = true;
      };
      promise.then(settle, settle);
      for (let passedMs = 0; !isSettled; passedMs += STEP_MS) {
        if (passedMs > untilMs) throw new Error("the reader waits for something that never comes");
        await turn();
        clock.advance(STEP_MS);
      }
      return promise;
    },
    async pass(ms) {
      for (let passedMs = 0; passedMs < ms; passedMs += STEP_MS) {
        await turn();
        clock.advance(STEP_MS);
      }
    },
  };
  return stage;
}

const STEP_MS = 50;

/** The reader's way to the server. */
async function carry(stage: Stage, request: ClientRequest): Promise<ClientAnswer> {
  const { searchParams: query } = new URL(request.url);
  const asked = { atMs: stage.clock.steadyMs(), query, headers: request.headers };
  stage.asked.push(asked);
  const fate = stage.fate(asked);
  if (fate.answer !== undefined) return fate.answer;
  const signal = request.signal ?? new AbortController().signal;
  if (fate.isLost === true) throw new TypeError("fetch failed");
  const answer = await pose(stage.server, stage.clock, request, signal);
  if (fate.isSilent === true) {
    const pipe = new Pipe(stage.clock, signal);
    if (fate.lastWords !== undefined) pipe.write(new TextEncoder().encode(fate.lastWords));
    const nothing = (): AsyncIterable<Uint8Array> => pipe.chunks();
    return { ...answer, chunks: nothing, bytes: () => collect(nothing()) };
  }
  const chunks = (): AsyncIterable<Uint8Array> => befallen(stage, fate, answer.chunks());
  return { ...answer, chunks, bytes: () => collect(chunks()) };
}

async function* befallen(
  stage: Stage,
  fate: Fate,
  chunks: AsyncIterable<Uint8Array>,
): AsyncGenerator<Uint8Array> {
  const { cutAfterBytes, endAfterBytes, pieceBytes = Infinity } = fate;
  let left = cutAfterBytes ?? endAfterBytes ?? Infinity;
  const whole = fate.isCollected === true ? [await collect(chunks)] : chunks;
  for await (const chunk of whole) {
    for (let at = 0; at < chunk.length; at += pieceBytes) {
      const piece = chunk.subarray(at, Math.min(chunk.length, at + pieceBytes)).subarray(0, left);
      left -= piece.length;
      stage.takenBytes += piece.length;
      if (piece.length > 0) yield piece;
      if (left > 0) continue;
      stage.cuts += 1;
      if (cutAfterBytes !== undefined) throw new TypeError("terminated");
      return;
    }
  }
}

async function collect(chunks: AsyncIterable<Uint8Array>): Promise<Uint8Array> {
  const pieces: Uint8Array[] = [];
  for await (const chunk of chunks) pieces.push(chunk);
  return new Uint8Array(Buffer.concat(pieces));
}

/** Puts one request to the server, as a runtime would. */
async function pose(
  server: HapaxServer,
  clock: Clock,
  request: ClientRequest,
  signal: AbortSignal,
): Promise<ClientAnswer> {
  signal.throwIfAborted();
  const url = new URL(request.url);
  const { body = new Uint8Array(0) } = request;
  const headers = new Map(
    Object.entries(request.headers).map(([name, value]) => [name.toLowerCase(), value]),
  );
  const aborted = new Promise<never>((_resolve, reject) => {
    signal.addEventListener("abort", () => {
      reject(signal.reason instanceof Error ? signal.reason : new Error("aborted"));
    });
  });
  aborted.catch(() => undefined);
  const handled = server.handle({
    method: request.method,
    path: url.pathname,
    query: url.search.slice(1),
    baseUrl: BASE,
    authority: "localhost",
    header: (name) => headers.get(name),
    hasBody: body.length > 0,
    body: () => Promise.resolve(body),
    onAbort: (run) => {
      signal.addEventListener("abort", run);
    },
  });
  const answer = await Promise.race([handled, aborted]);
  const answered = new Map(
    Object.entries(answer.headers).map(([name, value]) => [name.toLowerCase(), value]),
  );
  const pieces = (): AsyncIterable<Uint8Array> => {
    if ("live" in answer) {
      const pipe = new Pipe(clock, signal);
      answer.live(pipe);
      return pipe.chunks();
    }
    return piecesOf(answer.body);
  };
  return {
    status: answer.status,
    header: (name) => answered.get(name),
    bytes: () => collect(pieces()),
    chunks: pieces,
    discard: () => undefined,
  };
}

async function* piecesOf(
  body: Uint8Array | readonly Uint8Array[] | undefined,
): AsyncGenerator<Uint8Array> {
  await Promise.resolve();
  yield* body instanceof Uint8Array ? [body] : (body ?? []);
}

/** A connection: the server writes at one end, the reader takes at the other when it wants to. */
class Pipe implements LiveSink {
  readonly #clock: Clock;
  readonly #signal: AbortSignal;
  readonly #queue: Uint8Array[] = [];
  #ending: "open" | "ended" | "cut" = "open";
  #drains: (() => void)[] = [];
  #closes: (() => void)[] = [];
  #wake: () => void = () => undefined;
  #takenAtMs = 0;

  constructor(clock: Clock, signal: AbortSignal) {
    this.#clock = clock;
    this.#signal = signal;
    signal.addEventListener("abort", () => {
      this.cut();
    });
  }

  get queuedBytes(): number {
    return this.#queue.reduce((bytes, chunk) => bytes + chunk.length, 0);
  }

  write(bytes: Uint8Array): void {
    this.#queue.push(bytes);
    this.#wake();
  }

  onDrain(run: () => void): void {
    this.#drains.push(run);
  }

  onStuck(delayMs: number, run: () => void): () => void {
    const sinceMs = this.#clock.steadyMs();
    return this.#clock.after(delayMs, () => {
      if (this.#takenAtMs <= sinceMs) run();
    });
  }

  onClose(run: () => void): void {
    this.#closes.push(run);
  }

  end(): void {
    this.#finish("ended");
  }

  cut(): void {
    this.#queue.length = 0;
    this.#finish("cut");
  }

  #finish(ending: "ended" | "cut"): void {
    if (this.#ending !== "open") return;
    this.#ending = ending;
    for (const run of this.#closes.splice(0)) run();
    this.#wake();
  }

  async *chunks(): AsyncGenerator<Uint8Array> {
    for (;;) {
      const chunk = this.#queue.shift();
      if (chunk !== undefined) {
        this.#takenAtMs = this.#clock.steadyMs();
        if (this.#queue.length === 0) for (const run of this.#drains.splice(0)) run();
        yield chunk;
        continue;
      }
      this.#signal.throwIfAborted();
      if (this.#ending === "ended") return;
      if (this.#ending === "cut") throw new TypeError("terminated");
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }
}

/** An answer that no server gave. Pieces arrive one after the other; `undefined` at the end is a reset. */
export function scripted(
  status: number,
  headers: Record<string, string>,
  pieces: readonly (string | undefined)[] = [],
): ClientAnswer {
  const chunks = async function* (): AsyncGenerator<Uint8Array> {
    for (const piece of pieces) {
      await Promise.resolve();
      if (piece === undefined) throw new TypeError("terminated");
      yield new TextEncoder().encode(piece);
    }
  };
  return {
    status,
    header: (name) => headers[name],
    bytes: () => collect(chunks()),
    chunks,
    discard: () => undefined,
  };
}
