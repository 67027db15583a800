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
  return new OwnFlight(all, idOf(place), fingerprint, attempt);
}

const doNothing = (): void => undefined;

class OwnFlight implements Flight {
  readonly fingerprint: string | undefined;
  readonly outcome: Promise<AttemptOutcome>;
  isClaimed = false;
  /** Made when it is asked for: few calls have other content. */
  #claimed: Promise<void> | undefined;
  #onClaimed: () => void = doNothing;
  #isOver = false;

  constructor(
    all: Map<string, Flight>,
    id: string,
    fingerprint: string | undefined,
    attempt: (onClaimed: () => void) => Promise<AttemptOutcome>,
  ) {
    this.fingerprint = fingerprint;
    all.set(id, this);
    this.outcome = this.#run(all, id, attempt);
  }

  get claimed(): Promise<void> {
    this.#claimed ??= new Promise((resolve) => {
      this.#onClaimed = resolve;
      if (this.isClaimed || this.#isOver) resolve();
    });
    return this.#claimed;
  }

  async #run(
    all: Map<string, Flight>,
    id: string,
    attempt: (onClaimed: () => void) => Promise<AttemptOutcome>,
  ): Promise<AttemptOutcome> {
    // In the next turn: `flightAt` finds the flight, with its outcome, before the attempt can end.
    await Promise.resolve();
    try {
      return await attempt(() => {
        this.isClaimed = true;
        this.#onClaimed();
      });
    } finally {
      all.delete(id);
      this.#isOver = true;
      this.#onClaimed();
    }
  }
}

function idOf({ scope, key }: Place): string {
  return `${scope.length} ${scope} ${key}`;
}
