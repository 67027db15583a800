/** The requests that this process works on. Others with the same key wait for them, without asking the ledger. */

import type { Clock } from "../../base/clock.ts";
import type { Place } from "../ledgers/ledger.ts";
import type { Kept } from "./run.ts";

/** Running work of this process. */
export interface RunningRequest {
  readonly fingerprint: string | undefined;
  readonly claimedMs: number;
  /** Resolves when it is certain whether this request has the key. */
  readonly claimed: Promise<void>;
  readonly isClaimed: boolean;
  /** Resolves with the answer if it is kept. */
  readonly ended: Promise<Kept | undefined>;
}

/** Running work, for the one who does it. */
export interface RequestFlight {
  /** Says that the request has the key. */
  claim(): void;
  end(kept: Kept | undefined): void;
}

export class Flights {
  readonly #clock: Clock;
  readonly #all = new Map<string, RunningRequest>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  at(place: Place): RunningRequest | undefined {
    return this.#all.get(idOf(place));
  }

  /** Notes that this process works on a key, or tries to. */
  start(place: Place, fingerprint: string | undefined): RequestFlight {
    const id = idOf(place);
    let onEnded: (kept: Kept | undefined) => void = () => undefined;
    const ended = new Promise<Kept | undefined>((resolve) => (onEnded = resolve));
    let onClaimed: () => void = () => undefined;
    const claimed = new Promise<void>((resolve) => (onClaimed = resolve));
    const claimedMs = this.#clock.steadyMs();
    const flight = { fingerprint, claimedMs, claimed, isClaimed: false, ended };
    this.#all.set(id, flight);
    return {
      claim() {
        flight.isClaimed = true;
        onClaimed();
      },
      end: (kept) => {
        // Another flight may have begun since this one was lost.
        if (this.#all.get(id) === flight) this.#all.delete(id);
        onClaimed();
        onEnded(kept);
      },
    };
  }
}

function idOf({ scope, key }: Place): string {
  return JSON.stringify([scope, key]);
}
