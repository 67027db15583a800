/**
 * `hapax/idempotency/fastify`: idempotency keys for Fastify.
 *
 * A wrapper of a handler would see its value and not the bytes that Fastify makes of it; so these are hooks. The key is
 * claimed as the last one before the handler: what other hooks and the validation refuse is not the work of the key. The
 * answer is held back in `onSend`, where its bytes are known and nothing is sent.
 *
 *   HA7  an error that Fastify has made an answer of is a failure: its writes are rolled back, and its key is free;
 *   HA8  an answer that goes around Fastify (`reply.hijack`, `reply.raw`) is held back too: at the response itself.
 */

import type { ServerResponse } from "node:http";
import { type Answer, wholeHeaders } from "./answer.ts";
import type { Idempotency } from "./engine.ts";
import { HeldAnswer } from "./node-answer.ts";
import { conduct, isOver, sendFailure } from "./node-conduct.ts";
import {
  bodyOf,
  concat,
  type CountedHeaders,
  hasLostHeaders,
  headersOf,
  LOST_HEADERS,
  urlOf,
} from "./request.ts";
import type { Run } from "./run.ts";

/** A request of Fastify, in as much as it is used. */
export interface FastifyRequestLike {
  readonly method: string;
  readonly originalUrl: string;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: unknown;
  /** The message of `node:http`. */
  readonly raw: CountedHeaders;
}

/** A reply of Fastify, in as much as it is used. */
export interface FastifyReplyLike {
  readonly statusCode: number;
  /** Also true of one that a handler has taken over by `hijack`. */
  readonly sent: boolean;
  readonly raw: { once(event: "close", listener: () => void): unknown };
  code(status: number): unknown;
  header(name: string, value: string | string[]): unknown;
  getHeaders(): Readonly<Record<string, number | string | string[] | undefined>>;
  removeHeader(name: string): unknown;
  send(payload: unknown): unknown;
}

/** An instance of Fastify, in as much as it is used. */
export interface FastifyInstanceLike {
  addHook(...all: never[]): unknown;
}

interface RouteLike {
  readonly method: string | readonly string[];
  readonly config?: { readonly idempotency?: unknown } | undefined;
  preHandler?: unknown;
  handler: (this: unknown, request: FastifyRequestLike, reply: FastifyReplyLike) => unknown;
}

/** A request that is worked on. */
interface Work<Tx> {
  readonly run: Run<Tx>;
  /** Takes what the handler writes around Fastify. */
  readonly held: HeldAnswer;
}

/** What `register` of Fastify takes. */
export type FastifyPluginLike = (
  instance: FastifyInstanceLike,
  options: unknown,
  done: (error?: Error) => void,
) => void;

type AddHook = (name: string, hook: (...all: never[]) => unknown) => unknown;

/**
 * A plugin for Fastify: for all routes that are registered after it, but those with `config: { idempotency: false }`.
 * `engine.contextOf(request)` has the context.
 *
 * ```ts
 * import { createIdempotency, GLOBAL } from "hapax/idempotency";
 * import { fastifyIdempotency } from "hapax/idempotency/fastify";
 * import { memoryLedger } from "hapax/ledgers/memory";
 *
 * const engine = createIdempotency(memoryLedger(), { scope: GLOBAL });
 * // await app.register(fastifyIdempotency(engine));
 * // app.post("/pay", async (request) => ({ paid: engine.contextOf(request).key }));
 * console.assert(fastifyIdempotency(engine).length === 3);
 * ```
 */
export function fastifyIdempotency<Tx, Source>(engine: Idempotency<Tx, Source>): FastifyPluginLike {
  const hooks = new Hooks(engine);
  const plugin: FastifyPluginLike = (instance, _options, done) => {
    // Each hook has types of its own there; all of them are these functions.
    const addHook = instance.addHook.bind(instance) as unknown as AddHook;
    addHook("onRoute", (route: RouteLike) => {
      const before = route.preHandler;
      const others: unknown[] = Array.isArray(before) ? before : before ? [before] : [];
      if (route.config?.idempotency === false) return;
      route.preHandler = [...others, hooks.preHandler];
      const { handler } = route;
      route.handler = function watched(request, reply) {
        const returned = handler.call(this, request, reply);
        hooks.watch(request, reply, returned);
        return returned;
      };
    });
    addHook("onError", hooks.onError);
    addHook("onSend", hooks.onSend);
    addHook("onResponse", hooks.onResponse);
    done();
  };
  // Without a scope of its own: it is for the instance that registers it.
  return Object.assign(plugin, {
    [Symbol.for("skip-override")]: true,
    [Symbol.for("fastify.display-name")]: "hapax-idempotency",
  });
}

class Hooks<Tx, Source> {
  readonly #engine: Idempotency<Tx, Source>;
  readonly #works = new WeakMap<FastifyRequestLike, Work<Tx>>();
  /** Of repetitions and refusals. */
  readonly #bodies = new WeakMap<FastifyRequestLike, Uint8Array>();
  /** HI10: what is sent instead of the answer that Fastify makes of the error. */
  readonly #lost = new WeakMap<FastifyRequestLike, Answer>();

  constructor(engine: Idempotency<Tx, Source>) {
    this.#engine = engine;
  }

  readonly preHandler = async (
    request: FastifyRequestLike,
    reply: FastifyReplyLike,
  ): Promise<unknown> => {
    const engine = this.#engine;
    const headers = headersOf(request.headers);
    const key = headers.get(engine.settings.header);
    const mayHaveKey = key !== null || hasLostHeaders(request.raw);
    if (!engine.concerns(request.method, mayHaveKey)) return undefined;
    const gone = new AbortController();
    reply.raw.once("close", () => {
      gone.abort();
    });
    const begun = hasLostHeaders(request.raw)
      ? ({ kind: "answer", answer: engine.problem("headers_too_large", LOST_HEADERS) } as const)
      : await engine.begin({
          method: request.method,
          url: urlOf(request.originalUrl),
          headers,
          body: bodyOf(request.body, headers),
          source: request as Source, // The user says what its framework has: here it is this.
          signal: gone.signal,
        });
    if (begun.kind === "run") {
      this.#works.set(request, { run: begun.run, held: new HeldAnswer(rawOf(reply)) });
      engine.remember(request, begun.run);
      return undefined;
    }
    put(reply, begun.answer);
    this.#bodies.set(request, begun.answer.body);
    // Fastify would give bytes a type that the first answer may not have had: they come in `onSend`.
    reply.send(undefined);
    return reply;
  };

  /** HA8: what the handler ends at the response itself, or has taken over and not ended, is none of Fastify's. */
  watch(request: FastifyRequestLike, reply: FastifyReplyLike, returned: unknown): void {
    const work = this.#works.get(request);
    if (work === undefined) return;
    const isAround = (): boolean => reply.sent || work.held.isBegun;
    const goOn = (): void => {
      if (isAround() && this.#works.delete(request)) this.#conduct(reply, work, returned);
    };
    work.held.ended.then(goOn, goOn);
    isOver(returned).then((isDone) => {
      if (isDone) goOn();
    }, goOn);
  }

  #conduct(reply: FastifyReplyLike, { run, held }: Work<Tx>, returned: unknown): void {
    const { onError } = this.#engine.settings;
    const raw = rawOf(reply);
    conduct(onError, run, raw, () => isOver(returned), undefined, held).catch((error: unknown) => {
      onError(error);
      sendFailure(raw, error);
    });
  }

  /** HA7 */
  readonly onError = async (
    request: FastifyRequestLike,
    _reply: FastifyReplyLike,
    error: unknown,
  ): Promise<void> => {
    const run = this.#take(request);
    if (run === undefined) return;
    await run.fail(error);
    const lost = run.answerTo(error);
    if (lost !== undefined) this.#lost.set(request, lost);
  };

  readonly onSend = async (
    request: FastifyRequestLike,
    reply: FastifyReplyLike,
    payload: unknown,
  ): Promise<unknown> => {
    const run = this.#take(request);
    const lost = this.#lost.get(request);
    if (lost !== undefined) return replace(reply, lost);
    const body = this.#bodies.get(request);
    if (body !== undefined) return body.length === 0 ? undefined : bufferOf(body);
    if (run === undefined) return payload;
    let answer: Answer;
    let rest: AsyncIterable<unknown> | undefined;
    try {
      const read = await readPayload(reply, payload, this.#engine.settings.answerBytesMax);
      ({ rest } = read);
      answer = { ...headOf(reply), body: read.body, ...(rest === undefined ? {} : { rest: LONG }) };
    } catch (error) {
      await run.fail(error);
      throw error;
    }
    const final = await run.finish(answer);
    if (final.body !== answer.body) return replace(reply, final);
    for (const [name, value] of final.headers.slice(answer.headers.length))
      reply.header(name, value);
    if (rest !== undefined) return joined(answer.body, rest);
    if (answer.headers.length > wholeHeaders(answer.headers).length) {
      reply.removeHeader("transfer-encoding");
    }
    return payload === undefined || payload === null || typeof payload === "string"
      ? payload
      : bufferOf(answer.body);
  };

  /** A response that ended otherwise, as by an error of its connection. */
  readonly onResponse = async (request: FastifyRequestLike): Promise<void> => {
    const run = this.#take(request);
    if (run === undefined) return;
    const error = new Error("the response has ended without the answer of the handler");
    await run.fail(error);
    this.#engine.settings.onError(error);
  };

  /** What Fastify answers itself is held back by its hooks. */
  #take(request: FastifyRequestLike): Run<Tx> | undefined {
    const work = this.#works.get(request);
    this.#works.delete(request);
    work?.held.release();
    return work?.run;
  }
}

/** Fastify's `raw` is the response of `node:http`, of which its type tells us no more. */
function rawOf({ raw }: FastifyReplyLike): ServerResponse {
  return raw as unknown as ServerResponse;
}

/** Says that there is more: it is sent from where it came from. */
const LONG = new ReadableStream<Uint8Array>();

function headOf(reply: FastifyReplyLike): Pick<Answer, "status" | "headers"> {
  const headers = Object.entries(reply.getHeaders()).flatMap(
    ([name, value]): [string, string][] => {
      if (value === undefined) return [];
      return Array.isArray(value) ? value.map((one) => [name, one]) : [[name, String(value)]];
    },
  );
  return { status: reply.statusCode, headers };
}

function put(reply: FastifyReplyLike, { status, headers }: Answer): void {
  reply.code(status);
  for (const [name, value] of headers) reply.header(name, value);
}

/** Another answer than the one that was to be sent. */
function replace(reply: FastifyReplyLike, answer: Answer): Buffer {
  for (const name of Object.keys(reply.getHeaders())) reply.removeHeader(name);
  put(reply, answer);
  return bufferOf(answer.body);
}

interface ReadPayload {
  readonly body: Uint8Array;
  readonly rest?: AsyncIterable<unknown>;
}

/** The bytes as far as they can be kept, and what is left of a stream. */
async function readPayload(
  reply: FastifyReplyLike,
  payload: unknown,
  bytesMax: number,
): Promise<ReadPayload> {
  if (payload === undefined || payload === null) return { body: new Uint8Array(0) };
  if (typeof payload === "string") return { body: Buffer.from(payload) };
  if (payload instanceof Uint8Array) return { body: payload };
  if (payload instanceof Response) {
    reply.code(payload.status);
    for (const [name, value] of payload.headers) reply.header(name, value);
    return payload.body === null ? { body: new Uint8Array(0) } : readStream(payload.body, bytesMax);
  }
  if (typeof payload === "object" && Symbol.asyncIterator in payload)
    return readStream(payload as AsyncIterable<unknown>, bytesMax);
  throw new TypeError("the payload is neither text, nor bytes, nor a stream");
}

async function readStream(stream: AsyncIterable<unknown>, bytesMax: number): Promise<ReadPayload> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  const chunksOf = stream[Symbol.asyncIterator]();
  while (length <= bytesMax) {
    const { done, value } = await chunksOf.next();
    if (done === true) return { body: concat(chunks, length) };
    const bytes = value instanceof Uint8Array ? value : Buffer.from(String(value));
    chunks.push(bytes);
    length += bytes.length;
  }
  return { body: concat(chunks, length), rest: { [Symbol.asyncIterator]: () => chunksOf } };
}

/** A stream of the web: Fastify sends those too, and no module of Node is needed. */
function joined(body: Uint8Array, rest: AsyncIterable<unknown>): ReadableStream<Uint8Array> {
  const chunks = rest[Symbol.asyncIterator]();
  return new ReadableStream<Uint8Array>({
    start(controller) {
      controller.enqueue(body);
    },
    async pull(controller) {
      const { done, value } = await chunks.next();
      if (done === true) controller.close();
      else controller.enqueue(value instanceof Uint8Array ? value : Buffer.from(String(value)));
    },
    async cancel() {
      await chunks.return?.();
    },
  });
}

function bufferOf(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
