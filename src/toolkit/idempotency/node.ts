/**
 * `hapax/idempotency/node`: idempotency keys for servers with `node:http` and Express, and a store in a folder for the
 * keys of clients on Node.
 */

import type { IncomingMessage, ServerResponse } from "node:http";
import { isHapaxError } from "../../base/errors.ts";
import type { HttpAnswer } from "./answer.ts";
import { NotStarted } from "./context.ts";
import type { Begun, Idempotency } from "./engine.ts";
import { abortWork, sendNodeAnswer } from "./node-answer.ts";
import { bodyOfMessage } from "./node-body.ts";
import { conduct, isOver, sendFailure } from "./node-conduct.ts";
import { adaptedRequest, hasLostHeaders, LOST_HEADERS, MessageReader, urlOf } from "./request.ts";

export { fileKeyStore } from "./key-file.ts";

/** The listener of `http.createServer`. It may be asynchronous. */
type NodeListener = (request: IncomingMessage, response: ServerResponse) => unknown;

/** The `next` of Express and connect. */
type NextFunction = (error?: unknown) => void;

/** The request type of Express, if its types are installed. */
type ExpressRequest =
  /** @ts-ignore Not every user has Express. */
  import("express").Request;

/** The response type of Express, if its types are installed. */
type ExpressResponse =
  /** @ts-ignore Not every user has Express. */
  import("express").Response;

/** A middleware or a handler of Express. */
type ExpressHandler<Request, Response> = (
  request: Request,
  response: Response,
  next: NextFunction,
) => unknown;

/**
 * Adds idempotency keys to a listener of `node:http`. `engine.contextOf(request)` returns the context.
 *
 * ```ts
 * import { createServer } from "node:http";
 * import { createIdempotency, GLOBAL } from "hapax/idempotency";
 * import { withIdempotency } from "hapax/idempotency/node";
 * import { memoryLedger } from "hapax/ledgers/memory";
 *
 * const engine = createIdempotency(memoryLedger(), { scope: GLOBAL });
 * const listener = withIdempotency(engine, async (request, response) => {
 *   const { key } = engine.contextOf(request);
 *   response.end(`paid ${key}`);
 * });
 * const server = createServer(listener).listen(0);
 * const address = server.address();
 * const port = typeof address === "object" ? address?.port : 0;
 * const headers = { "Idempotency-Key": "order-17" };
 * const answer = await fetch(`http://localhost:${port}/pay`, { method: "POST", headers });
 * console.assert((await answer.text()) === "paid order-17");
 * server.closeAllConnections();
 * server.close();
 * ```
 */
export function withIdempotency<Tx, Source>(
  engine: Idempotency<Tx, Source>,
  listener: NodeListener,
): (request: IncomingMessage, response: ServerResponse) => void {
  return (request, response) => {
    const failed = (error: unknown): void => {
      if (error instanceof NotStarted && error.response !== undefined) {
        answerWith(response, error.response).catch(engine.options.onError);
        return;
      }
      engine.options.onError(error);
      sendFailure(response, error);
    };
    begin(engine, request, response)
      .then(async (begun) => {
        if (begun === "passed") {
          await listener(request, response);
          return;
        }
        if (begun.kind === "answer") {
          sendNodeAnswer(response, begun.answer);
          return;
        }
        const { onError } = engine.options;
        await conduct(onError, begun.run, response, () => isOver(listener(request, response)));
      })
      .catch(failed);
  };
}

/**
 * Adds idempotency keys to an Express app: as a middleware for all later routes, or around the handlers that you pass.
 * `engine.contextOf(request)` returns the context.
 *
 * Around handlers, every error that they throw rolls back and frees the key. As a middleware it cannot see the errors of
 * later handlers, because Express turns them into answers: there every answer from 500 on counts as a failure.
 *
 * ```ts
 * import express from "express";
 * import { createIdempotency, GLOBAL } from "hapax/idempotency";
 * import { expressIdempotency } from "hapax/idempotency/node";
 * import { memoryLedger } from "hapax/ledgers/memory";
 *
 * const engine = createIdempotency(memoryLedger(), { scope: GLOBAL });
 * const app = express();
 * const pay = expressIdempotency(engine, async (request, response) => {
 *   response.status(201).json({ paid: engine.contextOf(request).key });
 * });
 * app.post("/pay", pay);
 *
 * const server = app.listen(0);
 * const address = server.address();
 * const port = typeof address === "object" ? address?.port : 0;
 * const headers = { "Idempotency-Key": "order-17" };
 * const send = () => fetch(`http://localhost:${port}/pay`, { method: "POST", headers });
 * const [first, second] = [await send(), await send()];
 * console.assert((await first.text()) === '{"paid":"order-17"}' && second.status === 201);
 * console.assert(second.headers.get("Idempotency-Replayed") === "true");
 * server.closeAllConnections();
 * server.close();
 * ```
 */
export function expressIdempotency<
  Tx,
  Source,
  Request extends IncomingMessage = ExpressRequest,
  Response extends ServerResponse = ExpressResponse,
>(
  engine: Idempotency<Tx, Source>,
  ...handlers: readonly ExpressHandler<Request, Response>[]
): (request: Request, response: Response, next: NextFunction) => void {
  return (request, response, next) => {
    begin(engine, request, response)
      .then(async (begun) => {
        if (begun === "passed") {
          chain(handlers, request, response, next);
          return;
        }
        if (begun.kind === "answer") {
          sendNodeAnswer(response, begun.answer);
          return;
        }
        const { run } = begun;
        const { onError } = engine.options;
        if (handlers.length === 0)
          await conduct(onError, run, response, () => isOver(next()), isFailed);
        else
          await conduct(onError, run, response, () => chained(handlers, request, response, next));
      })
      .catch((error: unknown) => {
        if (error instanceof NotStarted && error.response !== undefined)
          answerWith(response, error.response).catch(next);
        else next(error);
      });
  };
}

/**
 * Returns the error handler for `expressIdempotency` as a middleware. Put it behind the routes, before other error handlers.
 * It rolls back and frees the key; the answers of the other error handlers do not change that.
 *
 * ```ts
 * import express from "express";
 * import { createIdempotency, GLOBAL } from "hapax/idempotency";
 * import { expressIdempotency, expressIdempotencyErrors } from "hapax/idempotency/node";
 * import { memoryLedger } from "hapax/ledgers/memory";
 *
 * const engine = createIdempotency(memoryLedger(), { scope: GLOBAL });
 * const app = express();
 * app.use(expressIdempotency(engine));
 * app.post("/pay", (request, response) => {
 *   const { attempt } = engine.contextOf(request);
 *   if (attempt === 1) throw new Error("out of luck");
 *   response.json({ attempt });
 * });
 * app.use(expressIdempotencyErrors());
 *
 * const server = app.listen(0);
 * const address = server.address();
 * const port = typeof address === "object" ? address?.port : 0;
 * const headers = { "Idempotency-Key": "order-17" };
 * const send = () => fetch(`http://localhost:${port}/pay`, { method: "POST", headers });
 * const [first, second] = [await send(), await send()];
 * console.assert(first.status === 500 && (await second.text()) === '{"attempt":2}');
 * server.closeAllConnections();
 * server.close();
 * ```
 */
export function expressIdempotencyErrors(): (
  error: unknown,
  request: IncomingMessage,
  response: ServerResponse,
  next: NextFunction,
) => void {
  return (error, _request, response, next) => {
    if (!abortWork(response, error)) next(error);
  };
}

const isFailed = ({ status }: HttpAnswer): boolean => status >= 500;

async function begin<Tx, Source>(
  engine: Idempotency<Tx, Source>,
  request: IncomingMessage & { readonly originalUrl?: string },
  response: ServerResponse,
): Promise<Begun<Tx> | "passed"> {
  const method = request.method ?? "GET";
  if (engine.concerns(method, true) && hasLostHeaders(request)) {
    return { kind: "answer", answer: engine.problem("headers_too_large", LOST_HEADERS) };
  }
  const reader = new MessageReader(request.headers);
  const key = reader.get(engine.options.header);
  if (!engine.concerns(method, key !== null)) return "passed";
  const refusal = engine.refusalOf(method, key);
  if (refusal !== undefined) return { kind: "answer", answer: refusal };
  let body: Awaited<ReturnType<typeof bodyOfMessage>>;
  try {
    body = await bodyOfMessage(request, reader, engine.options.bodyBytesMax);
  } catch (error) {
    if (!isHapaxError(error, "body_too_large")) throw error;
    // The rest of the body is not read: the connection cannot be used again.
    response.setHeader("Connection", "close");
    return { kind: "answer", answer: engine.problem(error.code, error.message) };
  }
  const begun = await engine.begin(
    adaptedRequest<Source>(
      {
        method,
        url: urlOf(request.originalUrl ?? request.url ?? "/"),
        body,
        source: request as Source, // Cast: with this adapter `Source` is the type of the request.
      },
      reader,
      response,
    ),
  );
  if (begun.kind === "run") engine.remember(request, begun.run);
  return begun;
}

/** Runs handlers one after the other; each calls the next one. */
function chain<Request, Response>(
  handlers: readonly ExpressHandler<Request, Response>[],
  request: Request,
  response: Response,
  next: NextFunction,
): void {
  chained(handlers, request, response, next).catch(next);
}

/** Runs handlers. Returns whether they are over. Rejects with the error that a handler throws or passes to `next`. */
function chained<Request, Response>(
  [handler, ...others]: readonly ExpressHandler<Request, Response>[],
  request: Request,
  response: Response,
  next: NextFunction,
): Promise<boolean> {
  return new Promise((resolve, reject) => {
    if (handler === undefined) {
      next();
      resolve(false);
      return;
    }
    const after: NextFunction = (error) => {
      // Express itself has this word: it leaves the route, and is not an error.
      if (error === "route" || error === "router") {
        next(error);
        resolve(false);
      } else if (error !== undefined && error !== null) {
        reject(error as Error); // The error handler of the app gets it unchanged, also if it is not an Error.
      } else {
        chained(others, request, response, next).then(resolve, reject);
      }
    };
    let isPassedOn = false;
    const passOn: NextFunction = (error) => {
      isPassedOn = true;
      after(error);
    };
    Promise.resolve()
      .then(() => isOver(handler(request, response, passOn)))
      .then((isDone) => {
        if (!isPassedOn) resolve(isDone);
      }, reject);
  });
}

async function answerWith(response: ServerResponse, answer: Response): Promise<void> {
  const body = new Uint8Array(await answer.arrayBuffer());
  sendNodeAnswer(response, { status: answer.status, headers: [...answer.headers], body });
}
