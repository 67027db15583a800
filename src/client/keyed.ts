/**
 * Appends with an idempotency key. PROTOCOL.md §16.
 *
 *   KP1  no attempt begins later than 0.8 of the stream's window after the first: a repetition that comes
 *        after the window would be a second append. A retry policy that allows it is refused;
 *   KP2  a key is never sent to a server that would ignore it.
 */

import { HapaxError } from "../errors.ts";
import type { Appended } from "./appends.ts";
import { refusalOf } from "./attempt.ts";
import { failureOf } from "./failure.ts";
import type { Peer } from "./peer.ts";
import { encode, join } from "./records.ts";

const WINDOW_SHARE = 0.8;

export async function appendKeyed(
  peer: Peer,
  key: string,
  data: unknown,
  conditions: Readonly<Record<string, string>> | undefined,
  signal: AbortSignal | undefined,
): Promise<Appended> {
  const early = encode(data, peer.knownCodec);
  const headers = { "Idempotency-Key": quoted(key), ...conditions };
  await peer.require("idempotency keys");
  await checkWindow(peer);
  const codec = await peer.codec();
  const { answer, wasUnknown } = await peer.caller.untilAnswered({
    method: "POST",
    url: peer.url,
    headers: { ...headers, "Content-Type": codec.contentType },
    body: join([early], codec),
    ...(signal === undefined ? {} : { signal }),
  });
  if (answer.status !== 200 && answer.status !== 204) {
    const error = await refusalOf(answer);
    // Only these say for certain that no earlier attempt was stored: a known key is answered before them.
    const isCertain = !wasUnknown || error.code === "tail_moved" || error.code === "stream_closed";
    const outcome = isCertain ? "not_stored" : "unknown";
    throw failureOf(error, [{ data, outcome, isCause: true }]);
  }
  answer.discard();
  const isDuplicate = answer.header("idempotency-replayed") === "true";
  return { offset: answer.header("stream-next-offset"), isDuplicate };
}

/** KP1. */
async function checkWindow(peer: Peer): Promise<void> {
  const { keyWindowSeconds, retry } = peer.caller.settings;
  const seconds = (await peer.keyWindowSeconds()) ?? keyWindowSeconds;
  const limitMs = WINDOW_SHARE * seconds * 1000;
  if (retry.totalMs <= limitMs) return;
  throw new HapaxError(
    "invalid_settings",
    `retry.totalMs=${String(retry.totalMs)} outlives the keys of the stream: at most ${String(limitMs)}`,
  );
}

/** As a string of RFC 9651, which can hold every character of a key. */
function quoted(key: string): string {
  if (!/^[\x20-\x7e]{1,255}$/.test(key)) {
    throw new HapaxError("invalid_request", "key must be 1 to 255 characters from space to ~");
  }
  return `"${key.replace(/["\\]/g, "\\$&")}"`;
}
