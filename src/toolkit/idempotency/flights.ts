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

/** Names a place in `Flights`. */
export type FlightId = string;

export class Flights {
  readonly #clock: Clock;
  readonly #all = new Map<FlightId, RunningRequest>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  at(id: FlightId): RunningRequest | undefined {
    return this.#all.get(id);
  }

  /** Notes that this process works on a key, or tries to. */
  start(id: FlightId, fingerprint: string | undefined): RequestFlight {
    const flight = new Flight(fingerprint, this.#clock.steadyMs(), () => {
      // Another flight may have begun since this one was lost.
      if (this.#all.get(id) === flight) this.#all.delete(id);
    });
    this.#all.set(id, flight);
    return flight;
  }
}

/** The promises are made when they are asked for: most requests have no twin. */
class Flight implements RunningRequest, RequestFlight {
  readonly fingerprint: string | undefined;
  readonly claimedMs: number;
  isClaimed = false;
  readonly #onOver: () => void;
  #claimed: Waiting<void> | undefined;
  #ended: Waiting<Kept | undefined> | undefined;
  #isOver = false;
  #kept: Kept | undefined;

  constructor(fingerprint: string | undefined, claimedMs: number, onOver: () => void) {
    this.fingerprint = fingerprint;
    this.claimedMs = claimedMs;
    this.#onOver = onOver;
  }

  get claimed(): Promise<void> {
    if (this.#claimed === undefined) {
      this.#claimed = waiting();
      if (this.isClaimed || this.#isOver) this.#claimed.resolve();
    }
    return this.#claimed.promise;
  }

  get ended(): Promise<Kept | undefined> {
    if (this.#ended === undefined) {
      this.#ended = waiting();
      if (this.#isOver) this.#ended.resolve(this.#kept);
    }
    return this.#ended.promise;
  }

  claim(): void {
    this.isClaimed = true;
    this.#claimed?.resolve();
  }

  end(kept: Kept | undefined): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#kept = kept;
    this.#onOver();
    this.#claimed?.resolve();
    this.#ended?.resolve(kept);
  }
}

interface Waiting<T> {
  readonly promise: Promise<T>;
  readonly resolve: (value: T) => void;
}

function waiting<T>(): Waiting<T> {
  let resolve: (value: T) => void = () => undefined;
  const promise = new Promise<T>((done) => (resolve = done));
  return { promise, resolve };
}

export function flightIdOf({ scope, key }: Place): FlightId {
  return JSON.stringify([scope, key]);
}
