/**
 * Appends with an idempotency key. PROTOCOL.md §16.
 *
 *   - no attempt begins later than 0.8 of the stream's window after the first: a repetition that comes
 *     after the window would be a second append. A retry policy that allows it is refused;
 *   - a key is never sent to a server that would ignore it; a failure has the known outcome of the append.
 */

import { HapaxError } from "../base/error-codes.ts";
import type { Appended } from "./appends.ts";
import { ifUnreachable, refusalIn } from "./attempt.ts";
import { appendBodyOf } from "./entries.ts";
import { failureOf, type Unconfirmed } from "./failure.ts";
import { says } from "./head.ts";
import type { Peer } from "./peer.ts";
import { encode } from "./records.ts";

const WINDOW_SHARE = 0.8;

export async function appendKeyed(
  peer: Peer,
  key: string,
  data: unknown,
  conditions: Readonly<Record<string, string>> | undefined,
  signal: AbortSignal | undefined,
): Promise<Appended> {
  const encoded = encode(data, peer.knownCodec);
  const headers = { "Idempotency-Key": quoted(key), ...conditions };
  await peer.require("idempotency keys", signal);
  await checkWindow(peer, signal);
  const codec = await peer.codec(signal);
  const call = {
    method: "POST",
    url: peer.url,
    headers: { ...headers, "Content-Type": codec.contentType },
    body: appendBodyOf([{ encoded }], codec),
    signal,
  };
  const fail = (error: HapaxError, outcome: Unconfirmed["outcome"]): never => {
    throw failureOf(error, [{ data, outcome, isCause: true }]);
  };
  const { answer, wasUnknown } = await peer.caller
    .untilAnswered(call)
    .catch((error: unknown) => fail(ifUnreachable(error), "unknown"));
  const error = await refusalIn(answer);
  if (error !== undefined) {
    // Only these prove that no earlier attempt was stored: the server checks for a known key before them.
    const isCertain = !wasUnknown || error.code === "tail_moved" || error.code === "stream_closed";
    fail(error, isCertain ? "not_stored" : "unknown");
  }
  const isDuplicate = says(answer, "idempotency-replayed");
  return { offset: answer.header("stream-next-offset"), isDuplicate };
}

async function checkWindow(peer: Peer, signal: AbortSignal | undefined): Promise<void> {
  const { keyWindowSeconds, retry } = peer.caller.options;
  const seconds = (await peer.keyWindowSeconds(signal)) ?? keyWindowSeconds;
  const limitMs = WINDOW_SHARE * seconds * 1000;
  if (retry.totalMs <= limitMs) return;
  throw new HapaxError(
    "invalid_options",
    `retry.totalMs=${retry.totalMs} outlives keys, max=${limitMs}`,
  );
}

/** `encodeKey` of protocol/idempotency-key.ts, which costs the bundle 20 bytes more than to write it out here. */
function quoted(key: string): string {
  if (!/^[ -~]{1,255}$/.test(key)) {
    throw new HapaxError("invalid_request", "key must be 1 to 255 ASCII characters");
  }
  return `"${key.replace(/["\\]/g, "\\$&")}"`;
}
