/**
 * The attempts that are under way in this process, so that others join them.
 *
 *   ON2  of all calls for a key in one process one attempts, and the others get its outcome; other content is refused.
 */

import type { Ledger, Place } from "../ledgers/ledger.ts";
import type { Outcome } from "./attempt.ts";

/** An attempt of this process. */
export interface Flight {
  readonly fingerprint: string | undefined;
  readonly outcome: Promise<Outcome>;
  /** Resolves when it does the work, or has ended. */
  readonly claimed: Promise<void>;
  readonly isClaimed: boolean;
}

/** By ledger: the same key in two databases is two keys. */
const flights = new WeakMap<object, Map<string, Flight>>();

export function flightAt<Tx>(ledger: Ledger<Tx>, place: Place): Flight | undefined {
  return flights.get(ledger)?.get(idOf(place));
}

/** Starts an attempt that others find from now until its end. It must not reject. */
export function startFlight<Tx>(
  ledger: Ledger<Tx>,
  place: Place,
  fingerprint: string | undefined,
  attempt: (onClaimed: () => void) => Promise<Outcome>,
): Flight {
  let all = flights.get(ledger);
  if (all === undefined) flights.set(ledger, (all = new Map<string, Flight>()));
  const id = idOf(place);
  const under = all;
  let isClaimed = false;
  let onClaimed: () => void = () => undefined;
  const claimed = new Promise<void>((resolve) => {
    onClaimed = resolve;
  });
  const run = async (): Promise<Outcome> => {
    try {
      return await attempt(() => {
        isClaimed = true;
        onClaimed();
      });
    } finally {
      under.delete(id);
      onClaimed();
    }
  };
  const flight: Flight = {
    fingerprint,
    // The next turn: the flight is found before it can end.
    outcome: Promise.resolve().then(run),
    claimed,
    get isClaimed() {
      return isClaimed;
    },
  };
  under.set(id, flight);
  return flight;
}

function idOf({ scope, key }: Place): string {
  return JSON.stringify([scope, key]);
}
