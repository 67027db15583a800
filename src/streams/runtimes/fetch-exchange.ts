/**
 * A request of the web platform as an Exchange.
 *
 *   - The platform has parsed the target: a path with dots, such as `/a/../b`, comes as `/b`.
 *   - The platform has joined headers that were sent twice by a comma. Nearly every header that must come once has a grammar without
 *     one, and refuses that by itself. The few others are refused here.
 */

import { NO_BYTES } from "../../base/bytes.ts";
import { HapaxError } from "../../base/errors.ts";
import { SENT } from "../../protocol/headers.ts";
import { invalid } from "../../protocol/refusal.ts";
import type { BodyBudget, BodyShare } from "../server/body-budget.ts";
import { BodyPieces } from "../../base/body-pieces.ts";
import type { Exchange } from "../server/exchange.ts";

/** Headers that must come once, and would take a comma: as a part of their text, or as a value that is ignored. */
const ONCE: ReadonlySet<string> = new Set([
  SENT.producerId,
  SENT.streamSeq,
  SENT.forkedFrom,
  SENT.closed,
  "content-type",
]);

export interface FetchExchangeParts {
  readonly budget: BodyBudget;
  readonly publicUrl: string | undefined;
  /** The address of the client, if the platform says it. */
  readonly peer: string;
}

export class FetchExchange implements Exchange {
  readonly method: string;
  readonly path: string;
  readonly query: string;
  readonly authority: string | undefined;
  readonly hasBody: boolean;
  readonly peer: string;
  readonly #request: Request;
  readonly #parts: FetchExchangeParts;
  readonly #scheme: string;
  /** Next.js drops `Content-Encoding` from the answers of route handlers, so a compressed one would be read as it is. */
  readonly #isOfNext: boolean;
  #bodyBytes = 0;

  constructor(request: Request, parts: FetchExchangeParts) {
    const { scheme, authority, path, query } = splitUrl(request.url);
    this.method = request.method;
    this.path = path;
    this.query = query;
    this.authority = authority;
    this.hasBody = request.body !== null && request.headers.get("content-length") !== "0";
    this.peer = parts.peer;
    this.#request = request;
    this.#parts = parts;
    this.#scheme = scheme;
    this.#isOfNext = "nextUrl" in request;
  }

  get baseUrl(): string {
    return this.#parts.publicUrl ?? `${this.#scheme}://${this.authority ?? "localhost"}`;
  }

  get bodyBytes(): number {
    return this.#bodyBytes;
  }

  get isGone(): boolean {
    return this.#request.signal.aborted;
  }

  header(name: string): string | undefined {
    const value = this.#request.headers.get(name);
    if (value === null || (name === "accept-encoding" && this.#isOfNext)) return undefined;
    if (ONCE.has(name) && value.includes(",") && hasOpenComma(value)) {
      throw invalid(name, "is sent twice, or has a comma, which looks the same here");
    }
    return value;
  }

  async body(bytesMax: number): Promise<Uint8Array> {
    const { body, headers } = this.#request;
    if (!this.hasBody || body === null) return NO_BYTES;
    const announced = Number(headers.get("content-length") ?? 0);
    if (announced > bytesMax) throw tooLarge(bytesMax);
    const reader = body.getReader();
    let cutBy: HapaxError | undefined;
    const share = this.#parts.budget.begin({
      peer: this.peer,
      cut: (error) => {
        cutBy = error;
        // Ends the read that waits.
        void reader.cancel().catch(() => undefined);
      },
    });
    try {
      const bytes = await collect(reader, bytesMax, share);
      if (cutBy !== undefined) throw cutBy;
      // A platform should have noticed it.
      if (bytes.length < announced) throw new Error("the body ended early");
      this.#bodyBytes = bytes.length;
      return bytes;
    } catch (error) {
      void reader.cancel().catch(() => undefined);
      throw cutBy ?? failureOf(error);
    } finally {
      share.end();
    }
  }

  onAbort(run: () => void): void {
    const { signal } = this.#request;
    if (signal.aborted) run();
    else signal.addEventListener("abort", run, { once: true });
  }
}

/** Whether there is a comma outside of quotes: a parameter of a media type may have one inside. */
function hasOpenComma(value: string): boolean {
  let isQuoted = false;
  for (let at = 0; at < value.length; at += 1) {
    const character = value[at];
    if (character === '"') isQuoted = !isQuoted;
    else if (character === "\\" && isQuoted) at += 1;
    else if (character === "," && !isQuoted) return true;
  }
  return false;
}

async function collect(
  reader: ReadableStreamDefaultReader<Uint8Array>,
  bytesMax: number,
  share: BodyShare,
): Promise<Uint8Array> {
  const pieces = new BodyPieces();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return pieces.whole();
    if (pieces.bytes + value.length > bytesMax) throw tooLarge(bytesMax);
    share.take(value.length);
    pieces.add(value);
  }
}

function tooLarge(bytesMax: number): HapaxError {
  return new HapaxError("body_too_large", `the limit is ${bytesMax} bytes`);
}

/** What a platform says of a client that has gone is its own. */
function failureOf(error: unknown): HapaxError {
  if (error instanceof HapaxError) return error;
  return new HapaxError("request_timeout", "the connection ended before the body did", {
    cause: error,
  });
}

interface UrlParts {
  readonly scheme: string;
  readonly authority: string | undefined;
  readonly path: string;
  readonly query: string;
}

/** The parts of a URL that the platform has made. They are not decoded. */
function splitUrl(url: string): UrlParts {
  const mark = url.indexOf("://");
  const start = mark < 0 ? 0 : mark + 3;
  const hash = url.indexOf("#", start);
  const end = hash < 0 ? url.length : hash;
  const slash = url.indexOf("/", start);
  const pathStart = slash < 0 ? end : slash;
  const question = url.indexOf("?", pathStart);
  const pathEnd = question < 0 ? end : question;
  return {
    scheme: mark < 0 ? "http" : url.slice(0, mark),
    authority: mark < 0 ? undefined : url.slice(start, pathStart),
    path: url.slice(pathStart, pathEnd) || "/",
    query: question < 0 ? "" : url.slice(question + 1, end),
  };
}
