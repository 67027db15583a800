/**
 * What a relay publishes to, by its name: a server that was restored from a backup has another one. It is kept in an entry of its own,
 * so that every relay of the name compares it, in every way of the outbox.
 *
 *   - a relay keeps the name that it met first, and sends it with each batch: a server of another name takes nothing;
 *   - then the relay stops, and its position stays as it is.
 */

import { HapaxError, isHapaxError } from "../../base/errors.ts";
import type { Ledger, Place } from "../ledgers/ledger.ts";
import type { Publisher } from "./publisher.ts";
import { isRelayName } from "./relay-state.ts";

const KEPT = {
  state: "done",
  token: "next",
  attempts: 1,
  leaseMs: undefined,
  keepMs: undefined,
  fingerprint: { value: undefined },
} as const;

const encoder = new TextEncoder();
const decoder = new TextDecoder();

const targetPlace = (relay: string): Place => ({ kind: "relay", scope: "target", key: relay });

/** Returns the name to send with each batch. The target is asked once, and compares by itself after that. */
export async function meetTarget<Tx>(
  { entries }: Ledger<Tx>,
  publisher: Publisher,
  relay: string,
  signal: AbortSignal,
): Promise<string | undefined> {
  for (;;) {
    const kept = await entries.find(targetPlace(relay));
    if (kept?.data !== undefined) return decoder.decode(kept.data);
    const found = await publisher.target?.(signal);
    if (found === undefined) return undefined;
    await entries.put(
      targetPlace(relay),
      { kind: "absent" },
      { ...KEPT, data: { value: encoder.encode(found) } },
    );
  }
}

/** What the target says, with what to do next. */
export function asRestored(relay: string, error: unknown): unknown {
  if (!isHapaxError(error, "server_restored")) return error;
  return new HapaxError("server_restored", withWayOut(relay, error.message), { cause: error });
}

const COMMAND = "hapax outbox";

function withWayOut(relay: string, words: string): string {
  return (
    `${words}. It lacks what was published since its backup, and nothing was sent to it. To go on behind what was published: ` +
    `${COMMAND} accept-restore --relay ${relay}. To publish again what the outbox still has: ${COMMAND} forget --relay ${relay}, ` +
    `and start it with from: "beginning"; relay=${relay}`
  );
}

/**
 * Lets a relay go on that has stopped with `server_restored`: behind what it has published, at the target as it will be when the relay
 * starts. Returns the incarnation that the relay knew; undefined if it knew none. Throws `invalid_request`.
 *
 * ```ts
 * import { memoryLedger } from "hapax/ledgers/memory";
 * import { acceptRestore } from "hapax/outbox";
 *
 * const ledger = memoryLedger();
 * console.assert((await acceptRestore(ledger, "to-the-streams")) === undefined);
 * ```
 */
export async function acceptRestore<Tx>(
  ledger: Ledger<Tx>,
  relay: string,
): Promise<string | undefined> {
  if (!isRelayName(relay)) {
    throw new HapaxError(
      "invalid_request",
      `relay=${relay} is not 1 to 128 characters from ! to ~`,
    );
  }
  return await ledger.transaction((tx) => forgetTarget(ledger.in(tx), relay));
}

/** Inside a transaction. */
export async function forgetTarget<Tx>(
  { entries }: Ledger<Tx>,
  relay: string,
): Promise<string | undefined> {
  const place = targetPlace(relay);
  const kept = await entries.find(place);
  if (kept === undefined) return undefined;
  const { token, revision, data } = kept;
  await entries.remove(place, { kind: "unchanged", token, revision });
  return data === undefined ? undefined : decoder.decode(data);
}
