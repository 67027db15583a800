/**
 * The identity of a writer at the server: a producer with a session (PROTOCOL.md §14), or, if the server has no sessions,
 * with an epoch (PROTOCOL.md §5).
 */

import { HapaxError } from "../base/error-codes.ts";
import { PRODUCER_ID_BYTES_MAX } from "../protocol/limits.ts";
import type { Peer } from "./peer.ts";

/** The identity of all appends of one life of a writer. It never changes. */
export interface SenderIdentity {
  readonly id: string;
  /** The identity has a session, not an epoch. */
  readonly isSession: boolean;
  /** The headers with session or epoch. The sequence is added for each batch. */
  readonly headers: Readonly<Record<string, string>>;
  /** The id is random, so no other writer has it. An id that the user has chosen may have been used before. */
  readonly isRandom: boolean;
}

/** The epoch for a server without sessions: a number, or a function that returns a higher one after each restart. */
export type EpochSource = number | (() => number | Promise<number>);

/** Chooses an identity that the server supports. Throws `unsupported` if none would be safe. */
export async function identityFor(
  peer: Peer,
  chosenId?: string,
  epochs?: EpochSource,
  signal?: AbortSignal,
  /** A random id that was used before: the new session fences the earlier one. */
  usedId?: string,
): Promise<SenderIdentity> {
  const { random } = peer.caller.options;
  const id = chosenId ?? usedId ?? random.id();
  const isRandom = chosenId === undefined;
  if (await peer.isOurs(signal)) {
    const headers = { "Producer-Id": id, "Producer-Session": random.id() };
    return { id, isSession: true, headers, isRandom };
  }
  if (!isRandom && epochs === undefined) {
    // Under epoch 0 the appends of an earlier life would make the first ones of this life duplicates.
    throw new HapaxError("unsupported", "no sessions at this server: give an epoch");
  }
  const epoch = typeof epochs === "function" ? await epochs() : (epochs ?? 0);
  // The server refuses fractions.
  if (!(epoch >= 0)) {
    throw new HapaxError("invalid_options", `epoch=${epoch} is not one`);
  }
  const headers = { "Producer-Id": id, "Producer-Epoch": String(epoch) };
  return { id, isSession: false, headers, isRandom };
}

/** Throws `invalid_options` for an id that no server accepts. */
export function checkProducerId(id: string): void {
  const isVisible = /^[ -~]+$/.test(id) && id === id.trim();
  if (isVisible && id.length <= PRODUCER_ID_BYTES_MAX) return;
  const max = String(PRODUCER_ID_BYTES_MAX);
  throw new HapaxError("invalid_options", `id must be 1 to ${max} ASCII characters`);
}
