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
  const bytes = await peek(request, bytesMax);
  return { kind: "bytes", bytes };
}

function left(): Error {
  return new Error("the client has gone before its request was complete");
}

/**
 * Takes all bytes without letting the stream end, then puts them back. A `read` with the exact length does not end a
 * stream; a `read` without a length does.
 */
function peek(request: IncomingMessage, bytesMax: number): Promise<Uint8Array> {
  return new Promise((resolve, reject) => {
    const pieces = new BodyPieces();
    const finish = (): void => {
      request.off("readable", take).off("error", fail).off("close", gone);
    };
    const fail = (error: Error): void => {
      finish();
      reject(error);
    };
    const gone = (): void => {
      fail(left());
    };
    const take = (): void => {
      while (request.readableLength > 0) {
        const chunk: unknown = request.read(request.readableLength);
        if (!(chunk instanceof Uint8Array)) break;
        pieces.add(chunk);
      }
      if (pieces.bytes > bytesMax) {
        fail(bodyTooLarge(bytesMax));
        return;
      }
      if (!request.complete) return;
      finish();
      const bytes = pieces.whole();
      // A copy: the next reader may change its bytes.
      if (bytes.length > 0) request.unshift(Buffer.from(bytes));
      resolve(bytes);
    };
    // Listening to an ended stream would end it. Most bodies are here as a whole: then there is nothing to listen for.
    if (request.complete) take();
    else request.on("readable", take).on("error", fail).on("close", gone);
  });
}
