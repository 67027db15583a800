/**
 * `hapax/idempotency/hono`: idempotency keys for Hono, on every runtime.
 *
 *   - an error that Hono turns into an answer is a failure: its writes are rolled back, and its key is free.
 */

import { type HapaxError, isHapaxError } from "../../base/errors.ts";
import { answerOf, responseOf } from "./answer.ts";
import { NotStarted } from "./context.ts";
import type { Idempotency } from "./engine.ts";
import {
  type CountedHeaders,
  hasLostHeaders,
  LOST_HEADERS,
  readBody,
  unreadRequest,
  bodyTooLarge,
} from "./request.ts";

/**
 * The members of Hono's context that are used. The middleware replaces `raw` by a request whose body can still be
 * read.
 */
type HonoContext = {
  readonly req: {
    raw: Request;
    /** Hono keeps the body that it has read, for the next reader. */
    arrayBuffer(): Promise<ArrayBuffer>;
  };
  res: Response;
  error: Error | undefined;
  /** The environment of the runtime: on Node, the message of `node:http`. */
  readonly env?: unknown;
};

/**
 * Returns a middleware for Hono. `engine.contextOf(c)` returns the context.
 *
 * ```ts
 * import { Hono } from "hono";
 * import { createIdempotency, GLOBAL } from "hapax/idempotency";
 * import { honoIdempotency } from "hapax/idempotency/hono";
 * import { memoryLedger } from "hapax/ledgers/memory";
 *
 * const engine = createIdempotency(memoryLedger(), { scope: GLOBAL });
 * const app = new Hono();
 * app.use(honoIdempotency(engine));
 * app.post("/pay", (c) => c.json({ paid: engine.contextOf(c).key }));
 *
 * const headers = { "Idempotency-Key": "order-17" };
 * const pay = async () => app.request("/pay", { method: "POST", headers });
 * const [first, second] = [await pay(), await pay()];
 * console.assert((await first.text()) === '{"paid":"order-17"}');
 * console.assert(second.headers.get("Idempotency-Replayed") === "true");
 * ```
 */
export function honoIdempotency<Tx, Source>(
  engine: Idempotency<Tx, Source>,
): (c: HonoContext, next: () => Promise<void>) => Promise<Response | undefined> {
  const { options } = engine;
  return async (c, next) => {
    const { method, url, headers, signal } = c.req.raw;
    const key = headers.get(options.header);
    if (engine.concerns(method, true) && hasLost(c.env)) {
      return responseOf(engine.problem("headers_too_large", LOST_HEADERS));
    }
    if (!engine.concerns(method, key !== null)) {
      await next();
      return undefined;
    }
    const refusal = engine.refusalOf(method, key);
    if (refusal !== undefined) return responseOf(refusal);
    const bytes = await readOf(c, options.bodyBytesMax);
    if (isHapaxError(bytes)) return responseOf(engine.problem(bytes.code, bytes.message));
    const source = c as Source; // Cast: with this adapter `Source` is the type of the context.
    const body = { kind: "bytes", bytes } as const;
    const begun = await engine.begin({ method, url, headers, body, source, signal });
    if (begun.kind === "answer") return responseOf(begun.answer);
    const { run } = begun;
    engine.remember(c, run);
    try {
      await next();
    } catch (error) {
      // Hono catches instances of Error. Other thrown values come here.
      await run.fail(error);
      throw error;
    }
    if (c.error !== undefined) {
      await run.fail(c.error);
      const lost = run.answerTo(c.error);
      if (lost !== undefined) replace(c, responseOf(lost));
      if (c.error instanceof NotStarted && c.error.response !== undefined)
        replace(c, c.error.response);
      return undefined;
    }
    let answer: Awaited<ReturnType<typeof answerOf>>;
    try {
      answer = await answerOf(c.res, options.answerBytesMax);
    } catch (error) {
      await run.fail(error);
      throw error;
    }
    replace(c, responseOf(await run.finish(answer)));
    return undefined;
  };
}

/** Returns whether headers are missing: on Node they come from `node:http`, which may have left some out. */
function hasLost(env: unknown): boolean {
  const incoming = (env as { incoming?: Partial<CountedHeaders> } | null | undefined)?.incoming;
  // Another runtime may use this name for something else.
  if (incoming?.rawHeaders === undefined || incoming.headers === undefined) return false;
  return hasLostHeaders(incoming as CountedHeaders);
}

async function readOf(c: HonoContext, bytesMax: number): Promise<Uint8Array | HapaxError> {
  const { raw } = c.req;
  if (raw.bodyUsed) {
    const bytes = new Uint8Array(await c.req.arrayBuffer());
    return bytes.length > bytesMax ? bodyTooLarge(bytesMax) : bytes;
  }
  try {
    const bytes = await readBody(raw, bytesMax);
    if (bytes.length > 0) c.req.raw = unreadRequest(raw, bytes);
    return bytes;
  } catch (error) {
    if (isHapaxError(error, "body_too_large")) return error;
    throw error;
  }
}

/** Replaces the answer. Without the first line Hono would add the headers of the old one. */
function replace(c: { res: Response | undefined }, response: Response): void {
  c.res = undefined;
  c.res = response;
}
