/**
 * Reads the body of a request of `node:http`, and leaves it for the next reader.
 *
 *   - later readers get the same bytes from the same request, by events, by iteration or through a parser.
 */

import { BodyPieces } from "../../base/body-pieces.ts";
import type { IncomingMessage } from "node:http";
import { HapaxError } from "../../base/errors.ts";
import { bodyOf, bodyTooLarge, type HeaderReader, type RequestBody } from "./request.ts";

/** The parsers of Express put their result into `body`. */
type ParsedMessage = IncomingMessage & { readonly body?: unknown };

/** Returns the bytes, or the result of an earlier parser. Throws `body_too_large`. */
export async function bodyOfMessage(
  request: ParsedMessage,
  headers: HeaderReader,
  bytesMax: number,
): Promise<RequestBody> {
  // A client that went away before the end has sent no request. It must not look like a request without a body.
  if (request.destroyed && !request.readableEnded && request.body === undefined) throw left();
  if (request.readableEnded || !request.readable) return bodyOf(request.body, headers);
  // In HTTP/2 a body that was read cannot be put back.
  if (request.httpVersionMajor >= 2)
    throw new HapaxError("unsupported", "the adapter of node:http takes HTTP/1 only");
  if (Number(request.headers["content-length"] ?? 0) > bytesMax) throw bodyTooLarge(bytesMax);
  // The end may be in the packet that is being parsed now. Listening just before it arrives would end the stream.
  await Promise.resolve();
  // Most bodies are here as a whole: then there is nothing to listen for, and listening to an ended stream would end it.
  const bytes = request.complete
    ? new Peek(request, bytesMax).take()
    : await peek(request, bytesMax);
  return { kind: "bytes", bytes: bytes ?? NOTHING };
}

const NOTHING = new Uint8Array(0);

function left(): Error {
  return new Error("the client has gone before its request was complete");
}

/**
 * Takes all bytes without letting the stream end, then puts them back. A `read` with the exact length does not end a
 * stream; a `read` without a length does.
 */
class Peek {
  readonly #request: IncomingMessage;
  readonly #bytesMax: number;
  readonly #pieces = new BodyPieces();

  constructor(request: IncomingMessage, bytesMax: number) {
    this.#request = request;
    this.#bytesMax = bytesMax;
  }

  /** Takes what is here. Returns the body when it is whole. Throws `body_too_large`. */
  take(): Uint8Array | undefined {
    const request = this.#request;
    const pieces = this.#pieces;
    while (request.readableLength > 0) {
      const chunk: unknown = request.read(request.readableLength);
      if (!(chunk instanceof Uint8Array)) break;
      pieces.add(chunk);
    }
    if (pieces.bytes > this.#bytesMax) throw bodyTooLarge(this.#bytesMax);
    if (!request.complete) return undefined;
    const bytes = pieces.whole();
    // A copy: the next reader may change its bytes.
    if (bytes.length > 0) request.unshift(Buffer.from(bytes));
    return bytes;
  }
}

/** Waits for the whole body. */
function peek(request: IncomingMessage, bytesMax: number): Promise<Uint8Array> {
  return new Promise((resolve, reject) => {
    const body = new Peek(request, bytesMax);
    const finish = (): void => {
      request.off("readable", take).off("error", fail).off("close", gone);
    };
    const fail = (error: unknown): void => {
      finish();
      reject(error as Error);
    };
    const gone = (): void => {
      fail(left());
    };
    const take = (): void => {
      try {
        const bytes = body.take();
        if (bytes === undefined) return;
        finish();
        resolve(bytes);
      } catch (error) {
        fail(error);
      }
    };
    request.on("readable", take).on("error", fail).on("close", gone);
  });
}
