/**
 * A transport that sends requests straight to the node of a cluster that owns their streams. PROTOCOL.md §24.2.
 *
 *   - nothing goes to a server that is not among the nodes that were given: an answer cannot send a credential elsewhere;
 *   - it never repeats a request. After one that got no answer, or a 503, the next goes to the URL that it was made for.
 */

import type { ClientRequest, Transport } from "./transport.ts";

const OWNER = "hapax-owner";
/** The first segment of a stream's name, by which its shard is known. */
const PLACED = /^(.*?)(\/v1\/stream\/([^/?#]+).*)$/s;
/** Segments whose owner is remembered. */
const KNOWN_MAX = 10_000;

/**
 * Returns a transport that remembers which node owns which streams, and sends by another transport. Without it a node must
 * forward a request for a stream that another node owns, which takes longer. `nodes` are the base URLs of the nodes, as
 * `--advertise` has them.
 *
 * ```ts
 * import { connect, fetchTransport, ownerTransport } from "hapax/client";
 *
 * const nodes = ["http://n1:4437", "http://n2:4437"];
 * const transport = ownerTransport(fetchTransport(fetch), nodes);
 * const stream = connect("http://n1:4437/v1/stream/acme/orders", { transport });
 * console.assert(stream.url === "http://n1:4437/v1/stream/acme/orders");
 * ```
 */
export function ownerTransport(transport: Transport, nodes: readonly string[]): Transport {
  const bases = new Map(nodes.map((url) => [baseOf(url), baseOf(url)]));
  const owners = new Map<string, string>();
  const straight = (request: ClientRequest, segment: string, rest: string): ClientRequest => {
    const owner = owners.get(segment);
    return owner === undefined ? request : { ...request, url: `${owner}${rest}` };
  };
  return async (request) => {
    const [, base, rest = "", segment = ""] = PLACED.exec(request.url) ?? [];
    if (base === undefined || !bases.has(baseOf(base))) return transport(request);
    try {
      const answer = await transport(straight(request, segment, rest));
      const owner = answer.status === 503 ? undefined : answer.header(OWNER);
      const known = owner === undefined ? undefined : bases.get(baseOf(owner));
      if (known === undefined) owners.delete(segment);
      else {
        if (owners.size >= KNOWN_MAX) owners.clear();
        owners.set(segment, known);
      }
      return answer;
    } catch (error) {
      owners.delete(segment);
      throw error;
    }
  };
}

function baseOf(url: string): string {
  return url.endsWith("/") ? url.slice(0, -1) : url;
}
