/** A request of HTTP/2, as an exchange needs it. */

import type { IncomingHttpHeaders, ServerHttp2Stream } from "node:http2";
import type { ClientCertificate } from "../access/identity.ts";
import type { NodeRequest } from "./node-exchange.ts";

interface Http2RequestParts {
  readonly stream: ServerHttp2Stream;
  readonly headers: IncomingHttpHeaders;
  /** Names and values in turn, pseudo-headers included. */
  readonly lines: readonly string[];
  readonly peer: string;
  readonly certificate: ClientCertificate | undefined;
}

export class Http2Request implements NodeRequest {
  readonly #stream: ServerHttp2Stream;
  readonly headers: IncomingHttpHeaders;
  readonly lines: readonly string[];
  readonly peer: string;
  readonly certificate: ClientCertificate | undefined;
  readonly method: string;
  readonly target: string;
  readonly version = "2.0";
  readonly scheme = "https";
  readonly authority: string | undefined;
  readonly hasBody: boolean;

  constructor({ stream, headers, lines, peer, certificate }: Http2RequestParts) {
    this.#stream = stream;
    this.headers = headers;
    this.lines = lines;
    this.peer = peer;
    this.certificate = certificate;
    this.method = headers[":method"] ?? "GET";
    this.target = headers[":path"] ?? ""; // CONNECT has none, and is refused for it.
    this.authority = headers[":authority"];
    this.hasBody = !stream.endAfterHeaders;
  }

  get incoming(): ServerHttp2Stream {
    return this.#stream;
  }

  get outgoing(): ServerHttp2Stream {
    return this.#stream;
  }

  get isGone(): boolean {
    return this.#stream.closed || this.#stream.destroyed;
  }

  /** Node also reports the end of a body that was cut by a reset, or with the connection. */
  isWhole(): boolean {
    return !this.#stream.closed && !this.#stream.aborted && !this.#stream.destroyed;
  }

  beginBody(): void {
    if (this.headers.expect !== undefined) this.#stream.additionalHeaders({ ":status": 100 });
  }
}
