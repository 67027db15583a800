/**
 * The state that a relay keeps in the ledger: its entry with its lease, and the id of the database, which all relays
 * share.
 *
 * The entry of a relay has kind `relay`, scope `outbox`, and the name of the relay as key. Its data is JSON: `version`,
 * `life`, `position`, `epoch` and `sequence` of the next batch, and `intent` while a batch has begun and is not
 * settled. The entry with the id of the database has scope `identity`.
 */

import type { RelayState } from "../rules/outbox.ts";
import { HapaxError } from "../../base/errors.ts";
import type { Ledger, Place } from "../ledgers/ledger.ts";
import type { Random } from "../../base/random.ts";

/** The default name of a relay. */
export const DEFAULT_RELAY = "relay";
const KIND = "relay";
/** The scope of the entries of relays. */
export const RELAY_SCOPE = "outbox";
const IDENTITY: Place = { kind: KIND, scope: "identity", key: "id" };
const IDENTIFIED = {
  state: "done",
  token: "next",
  attempts: 1,
  leaseMs: undefined,
  keepMs: undefined,
  fingerprint: { value: undefined },
} as const;
const VERSION = 1;
/** Names become parts of producer ids and of slots. */
const NAME = /^[\x21-\x7e]{1,128}$/;

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** Returns the place of a relay's entry. */
export function relayPlace(name: string): Place {
  return { kind: KIND, scope: RELAY_SCOPE, key: name };
}

export function isRelayName(name: string): boolean {
  return NAME.test(name);
}

export const NEW_RELAY: RelayState = {
  life: undefined,
  position: undefined,
  epoch: 0,
  sequence: 0,
  intent: undefined,
};

export function encodeState(state: RelayState): Uint8Array {
  return encoder.encode(JSON.stringify({ version: VERSION, ...state }));
}

/** Parses the state of a relay. No data: the relay is new. */
export function parseState(data: Uint8Array | undefined): RelayState {
  if (data === undefined) return NEW_RELAY;
  const kept = JSON.parse(decoder.decode(data)) as RelayState & { readonly version: number };
  if (kept.version > VERSION) {
    const words = `the relay was used by a newer version; version=${String(kept.version)}`;
    throw new HapaxError("schema_newer", words);
  }
  const { life, position, epoch, sequence, intent } = kept;
  return { life, position, epoch, sequence, intent };
}

/** Returns the positions of all relays. Undefined while one of them has no position yet: it could begin anywhere. */
export async function relayPositions<Tx>(
  { entries }: Ledger<Tx>,
  max: number,
): Promise<readonly string[] | undefined> {
  const found = await entries.scan({ kind: KIND, scope: RELAY_SCOPE, max });
  const positions = found.map(({ data }) => parseState(data).position);
  const known = positions.filter((position) => position !== undefined);
  return known.length === positions.length && found.length < max ? known : undefined;
}

/**
 * Locks the id of the database inside a transaction, so that a new relay and a cleaning wait for each other. Otherwise
 * a relay could begin after the cleaning has read all positions, and plan a span whose events are then deleted.
 */
export async function lockRelays<Tx>({ entries }: Ledger<Tx>): Promise<void> {
  await entries.find(IDENTITY);
}

/** Does the same with a write, so that a transaction of a higher isolation level that has read the old list of relays fails. */
export async function tellNewRelay<Tx>({ entries }: Ledger<Tx>): Promise<void> {
  const found = await entries.find(IDENTITY);
  if (found === undefined) throw new HapaxError("lease_lost", "the id of the database is gone");
  const { token, revision } = found;
  await entries.put(
    IDENTITY,
    { kind: "unchanged", token, revision },
    { ...IDENTIFIED, data: "same" },
  );
}

/** Returns the id of the database. The first call creates it. */
export async function ledgerId<Tx>({ entries }: Ledger<Tx>, random: Random): Promise<string> {
  for (;;) {
    const found = await entries.find(IDENTITY);
    if (found?.data !== undefined) return decoder.decode(found.data);
    await entries.put(
      IDENTITY,
      { kind: "absent" },
      { ...IDENTIFIED, data: { value: encoder.encode(random.id()) } },
    );
  }
}
