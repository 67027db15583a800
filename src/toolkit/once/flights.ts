/**
 * The running attempts of this process. Other calls for the same key join them.
 *
 *   - of all calls for a key in one process one attempts, and the others get its outcome; other content is refused.
 */

import type { Ledger, Place } from "../ledgers/ledger.ts";
import type { AttemptOutcome } from "./attempt.ts";

/** An attempt of this process. */
export interface Flight {
  readonly fingerprint: string | undefined;
  readonly outcome: Promise<AttemptOutcome>;
  /** Resolves when the attempt has the claim, or has ended. */
  readonly claimed: Promise<void>;
  readonly isClaimed: boolean;
}

/** The running attempts, by ledger: the same key in two databases is two keys. */
const flights = new WeakMap<object, Map<string, Flight>>();

export function flightAt<Tx>(ledger: Ledger<Tx>, place: Place): Flight | undefined {
  return flights.get(ledger)?.get(idOf(place));
}

/** Starts an attempt. `flightAt` finds it until its end. `attempt` must not reject. */
export function startFlight<Tx>(
  ledger: Ledger<Tx>,
  place: Place,
  fingerprint: string | undefined,
  attempt: (onClaimed: () => void) => Promise<AttemptOutcome>,
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
  const run = async (): Promise<AttemptOutcome> => {
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
    // It begins in the next turn, so that `flightAt` finds the flight before it can end.
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
