/**
 * `hapax/idempotency/fastify`: idempotency keys for Fastify.
 *
 * These are hooks, because a wrapper of a handler would see its value and not the bytes that Fastify makes of it. The hook
 * that claims the key is the last one before the handler: a request that other hooks or the validation refuse claims no
 * key. The answer is held back in `onSend`, where its bytes are known and nothing is sent.
 *
 *   - an error that Fastify turns into an answer is a failure: its writes are rolled back, and its key is free;
 *   - an answer that goes around Fastify (`reply.hijack`, `reply.raw`) is held back too: at the response itself.
 */

import { joinBytes } from "../../base/bytes.ts";
import type { ServerResponse } from "node:http";
import { type HttpAnswer, wholeHeaders } from "./answer.ts";
import type { Idempotency } from "./engine.ts";
import { HeldAnswer } from "./node-answer.ts";
import { conduct, isOver, sendFailure } from "./node-conduct.ts";
import {
  adaptedRequest,
  bodyOf,
  type CountedHeaders,
  hasLostHeaders,
  LOST_HEADERS,
  MessageReader,
  urlOf,
} from "./request.ts";
import type { Run } from "./run.ts";

/** The members of Fastify's request that are used. */
type FastifyRequestLike = {
  readonly method: string;
  readonly originalUrl: string;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: unknown;
  /** The message of `node:http`. */
  readonly raw: CountedHeaders;
};

/** The members of Fastify's reply that are used. */
type FastifyReplyLike = {
  readonly statusCode: number;
  /** Also true after a handler has called `hijack`. */
  readonly sent: boolean;
  readonly raw: { readonly closed?: boolean; once(event: "close", listener: () => void): unknown };
  code(status: number): unknown;
  header(name: string, value: string | string[]): unknown;
  getHeaders(): Readonly<Record<string, number | string | string[] | undefined>>;
  removeHeader(name: string): unknown;
  send(payload: unknown): unknown;
};

/** The members of a Fastify instance that are used. */
type FastifyInstanceLike = {
  addHook(...all: never[]): unknown;
};

interface RouteLike {
  readonly method: string | readonly string[];
  readonly config?: { readonly idempotency?: unknown } | undefined;
  preHandler?: unknown;
  handler: (this: unknown, request: FastifyRequestLike, reply: FastifyReplyLike) => unknown;
}

/** A request whose handler runs. */
interface Work<Tx> {
  readonly run: Run<Tx>;
  /** Holds what the handler writes around Fastify. */
  readonly held: HeldAnswer;
}

/** The plugin type that Fastify's `register` takes. */
type FastifyPluginLike = (
  instance: FastifyInstanceLike,
  options: unknown,
  done: (error?: Error) => void,
) => void;

type AddHook = (name: string, hook: (...all: never[]) => unknown) => unknown;

/**
 * Returns a plugin for Fastify. It covers all routes that are registered after it, except those with
 * `config: { idempotency: false }`. `engine.contextOf(request)` returns the context.
 *
 * ```ts
 * import Fastify from "fastify";
 * import { createIdempotency, GLOBAL } from "hapax/idempotency";
 * import { fastifyIdempotency } from "hapax/idempotency/fastify";
 * import { memoryLedger } from "hapax/ledgers/memory";
 *
 * const engine = createIdempotency(memoryLedger(), { scope: GLOBAL });
 * const app = Fastify();
 * await app.register(fastifyIdempotency(engine));
 * app.post("/pay", async (request) => ({ paid: engine.contextOf(request).key }));
 *
 * const headers = { "idempotency-key": "order-17" };
 * const pay = () => app.inject({ method: "POST", url: "/pay", headers });
 * const [first, second] = [await pay(), await pay()];
 * console.assert(first.body === '{"paid":"order-17"}' && second.body === first.body);
 * console.assert(second.headers["idempotency-replayed"] === "true");
 * await app.close();
 * ```
 */
export function fastifyIdempotency<Tx, Source>(engine: Idempotency<Tx, Source>): FastifyPluginLike {
  const hooks = new Hooks(engine);
  const plugin: FastifyPluginLike = (instance, _options, done) => {
    // Fastify has a type for each hook; this one fits all of them.
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
  // Without a scope of its own, so that it covers the instance that registers it.
  return Object.assign(plugin, {
    [Symbol.for("skip-override")]: true,
    [Symbol.for("fastify.display-name")]: "hapax-idempotency",
  });
}

class Hooks<Tx, Source> {
  readonly #engine: Idempotency<Tx, Source>;
  readonly #works = new WeakMap<FastifyRequestLike, Work<Tx>>();
  /** The bodies of repetitions and refusals. */
  readonly #bodies = new WeakMap<FastifyRequestLike, Uint8Array>();
  /** The answers that are sent in place of those that Fastify makes of the error. */
  readonly #lost = new WeakMap<FastifyRequestLike, HttpAnswer>();

  constructor(engine: Idempotency<Tx, Source>) {
    this.#engine = engine;
  }

  readonly preHandler = async (
    request: FastifyRequestLike,
    reply: FastifyReplyLike,
  ): Promise<unknown> => {
    const engine = this.#engine;
    const reader = new MessageReader(request.headers);
    const key = reader.get(engine.options.header);
    const mayHaveKey = key !== null || hasLostHeaders(request.raw);
    if (!engine.concerns(request.method, mayHaveKey)) return undefined;
    const begun = hasLostHeaders(request.raw)
      ? ({ kind: "answer", answer: engine.problem("headers_too_large", LOST_HEADERS) } as const)
      : await engine.begin(
          adaptedRequest<Source>(
            {
              method: request.method,
              url: urlOf(request.originalUrl),
              body: bodyOf(request.body, reader),
              source: request as Source, // Cast: with this adapter `Source` is the type of the request.
            },
            reader,
            reply.raw,
          ),
        );
    if (begun.kind === "run") {
      this.#works.set(request, { run: begun.run, held: new HeldAnswer(rawOf(reply)) });
      engine.remember(request, begun.run);
      return undefined;
    }
    put(reply, begun.answer);
    this.#bodies.set(request, begun.answer.body);
    // Fastify would add a type to bytes, which the first answer may not have had. So `onSend` adds the bytes.
    reply.send(undefined);
    return reply;
  };

  /** Conducts the work if the handler ends the response itself, or has hijacked it: Fastify's hooks do not run then. */
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
    const { onError } = this.#engine.options;
    const raw = rawOf(reply);
    conduct(onError, run, raw, () => isOver(returned), undefined, held).catch((error: unknown) => {
      onError(error);
      sendFailure(raw, error);
    });
  }

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
    let answer: HttpAnswer;
    let rest: AsyncIterable<unknown> | undefined;
    try {
      const read = await readPayload(reply, payload, this.#engine.options.answerBytesMax);
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

  /** Fails the work if its response has ended in another way, for example by an error of its connection. */
  readonly onResponse = async (request: FastifyRequestLike): Promise<void> => {
    const run = this.#take(request);
    if (run === undefined) return;
    const error = new Error("the response has ended without the answer of the handler");
    await run.fail(error);
    this.#engine.options.onError(error);
  };

  /** Takes the work from `watch`: Fastify answers, and its hooks hold the answer back. */
  #take(request: FastifyRequestLike): Run<Tx> | undefined {
    const work = this.#works.get(request);
    this.#works.delete(request);
    work?.held.release();
    return work?.run;
  }
}

/** Returns `raw` with its real type: it is the response of `node:http`. */
function rawOf({ raw }: FastifyReplyLike): ServerResponse {
  return raw as unknown as ServerResponse;
}

/** Marks an answer that has more bytes: they are sent from their own stream. */
const LONG = new ReadableStream<Uint8Array>();

function headOf(reply: FastifyReplyLike): Pick<HttpAnswer, "status" | "headers"> {
  const headers = Object.entries(reply.getHeaders()).flatMap(
    ([name, value]): [string, string][] => {
      if (value === undefined) return [];
      return Array.isArray(value) ? value.map((one) => [name, one]) : [[name, String(value)]];
    },
  );
  return { status: reply.statusCode, headers };
}

function put(reply: FastifyReplyLike, { status, headers }: HttpAnswer): void {
  reply.code(status);
  for (const [name, value] of headers) reply.header(name, value);
}

/** Replaces the answer that Fastify was about to send. */
function replace(reply: FastifyReplyLike, answer: HttpAnswer): Buffer {
  for (const name of Object.keys(reply.getHeaders())) reply.removeHeader(name);
  put(reply, answer);
  return bufferOf(answer.body);
}

interface ReadPayload {
  readonly body: Uint8Array;
  readonly rest?: AsyncIterable<unknown>;
}

/** Reads the bytes as far as they can be kept, and returns the rest of a stream. */
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
    if (done === true) return { body: joinBytes(chunks) };
    const bytes = value instanceof Uint8Array ? value : Buffer.from(String(value));
    chunks.push(bytes);
    length += bytes.length;
  }
  return { body: joinBytes(chunks), rest: { [Symbol.asyncIterator]: () => chunksOf } };
}

/** Returns a web stream: Fastify sends those too, and it needs no module of Node. */
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
