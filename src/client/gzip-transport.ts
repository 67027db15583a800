/**
 * A transport that compresses the bodies of writes with gzip, for servers that decode them. PROTOCOL.md §4.5.
 *
 *   - nothing is compressed before an answer of the server has said that it decodes gzip: another server might store the
 *     compressed bytes. If no answer has, one `HEAD` asks;
 *   - the server compares what bodies decode to, so attempts of one call may differ in this;
 *   - a server that refuses the coding gets the same request again without it: a refusal has done nothing.
 */

import type { ClientAnswer, ClientRequest, Transport } from "./transport.ts";

/** Options of `gzipTransport`. */
export interface GzipTransportOptions {
  /** Bodies below this size are sent as they are, in bytes. Default 1,024. */
  readonly bytesMin?: number;
}

const BYTES_MIN = 1024;
/** A body that gets less smaller than this is sent as it is. */
const RATIO_MAX = 0.9;
/** Headers of a write: a question has none of them. */
const OF_WRITES = /^(?:content-|producer-|stream-|idempotency-|if-|prefer$)/i;

/**
 * Returns a transport that compresses the bodies of writes, and sends them by another transport.
 *
 * ```ts
 * import { connect, fetchTransport, gzipTransport } from "hapax/client";
 * import { startNodeServer } from "hapax/node";
 *
 * const server = await startNodeServer({ store: "memory", port: 0 });
 * const stream = connect(`${server.url}/v1/stream/logs`, {
 *   transport: gzipTransport(fetchTransport(fetch)),
 * });
 * await stream.create({ contentType: "text/plain" });
 * await stream.append("a long line that says the same again and again. ".repeat(100));
 * console.assert((await stream.read<string>().values()).join("").length === 4800);
 * await server.stop();
 * ```
 */
export function gzipTransport(transport: Transport, options: GzipTransportOptions = {}): Transport {
  const { bytesMin = BYTES_MIN } = options;
  /** By origin: whether the server decodes gzip. */
  const known = new Map<string, boolean>();
  const asking = new Map<string, Promise<void>>();
  const packed = new WeakMap<Uint8Array, Promise<Uint8Array>>();

  const learn = (origin: string, answer: ClientAnswer): ClientAnswer => {
    const codings = answer.header("accept-encoding");
    if (codings !== undefined) known.set(origin, /(?:^|[ ,])gzip(?:$|[ ,;])/i.test(codings));
    return answer;
  };
  const ask = async (origin: string, { url, headers, signal }: ClientRequest): Promise<void> => {
    const kept = Object.entries(headers).filter(([name]) => !OF_WRITES.test(name));
    const answer = await transport({
      method: "HEAD",
      url,
      headers: Object.fromEntries(kept),
      signal,
    });
    answer.discard();
    learn(origin, answer);
    // A stream that is there and says nothing is one of a server that does not decode.
    if (answer.status === 200 && !known.has(origin)) known.set(origin, false);
  };
  const find = async (origin: string, request: ClientRequest): Promise<boolean> => {
    if (!known.has(origin)) {
      const one = asking.get(origin) ?? ask(origin, request);
      asking.set(origin, one);
      try {
        await one;
      } catch {
        // Not known: the request itself meets the same failure, or none.
      } finally {
        asking.delete(origin);
      }
    }
    return known.get(origin) === true;
  };

  return async (request) => {
    const { method, url, headers, body } = request;
    const { origin } = new URL(url);
    const isWrite = method === "POST" || method === "PUT";
    const send = async (): Promise<ClientAnswer> => learn(origin, await transport(request));
    if (!isWrite || body === undefined || body.length < bytesMin) return send();
    // A stream that is not there yet cannot be asked: the answer to its creation tells.
    const isKnown = method === "PUT" ? known.get(origin) === true : await find(origin, request);
    if (!isKnown) return send();
    let packing = packed.get(body);
    if (packing === undefined) packed.set(body, (packing = gzip(body)));
    const smaller = await packing;
    if (smaller.length > body.length * RATIO_MAX) return send();
    const encoded = { ...headers, "Content-Encoding": "gzip" };
    const answer = learn(origin, await transport({ ...request, headers: encoded, body: smaller }));
    if (answer.status !== 415) return answer;
    known.set(origin, false);
    answer.discard();
    return send();
  };
}

async function gzip(body: Uint8Array): Promise<Uint8Array> {
  // Cast: our bodies are never views of shared memory.
  const stream = new Blob([body as Uint8Array<ArrayBuffer>]).stream();
  const packed = stream.pipeThrough(new CompressionStream("gzip"));
  return new Uint8Array(await new Response(packed).arrayBuffer());
}
