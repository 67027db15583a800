/**
 * Who a writer is to the server: a producer with a session (PROTOCOL.md §14), or, where the server has none,
 * with an epoch (PROTOCOL.md §5).
 */

import { HapaxError } from "../errors.ts";
import { LIMITS } from "../limits.ts";
import type { Peer } from "./peer.ts";

/** The identity of all appends of one life of a writer. It never changes. */
export interface Identity {
  readonly id: string;
  readonly kind: "session" | "epoch";
  /** Of the life: session or epoch. The sequence is added for each batch. */
  readonly headers: Readonly<Record<string, string>>;
  /** An epoch that the user has named may have been used before; a random identity cannot. */
  readonly isChosen: boolean;
}

/** The epoch for a server without sessions: a number, or what keeps numbers across restarts. */
export type EpochSource = number | (() => number | Promise<number>);

/** Chooses the identity that the server can keep. Throws `unsupported` if it would not be safe. */
export async function identityFor(
  peer: Peer,
  chosenId?: string,
  epochs?: EpochSource,
): Promise<Identity> {
  const { random } = peer.caller.settings;
  const id = chosenId ?? random.id();
  if (await peer.isOurs()) {
    const headers = { "Producer-Id": id, "Producer-Session": random.id() };
    return { id, kind: "session", headers, isChosen: false };
  }
  const isChosen = chosenId !== undefined;
  if (isChosen && epochs === undefined) {
    // Under epoch 0 the appends of an earlier life would make the first ones of this life duplicates.
    throw new HapaxError("unsupported", `the server has no sessions: give an epoch for id=${id}`);
  }
  const epoch = typeof epochs === "function" ? await epochs() : (epochs ?? 0);
  if (!Number.isSafeInteger(epoch) || epoch < 0) {
    throw new HapaxError("invalid_settings", `epoch=${String(epoch)} is not from 0 to 2^53-1`);
  }
  const headers = { "Producer-Id": id, "Producer-Epoch": String(epoch) };
  return { id, kind: "epoch", headers, isChosen };
}

/** Throws `invalid_settings` for an id that no server takes. */
export function checkProducerId(id: string): void {
  if (
    /^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$/.test(id) &&
    id.length <= LIMITS.producerIdBytesMax
  ) {
    return;
  }
  const max = String(LIMITS.producerIdBytesMax);
  throw new HapaxError("invalid_settings", `id must be 1 to ${max} visible ASCII characters`);
}
