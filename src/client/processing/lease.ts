/** A lease as plain data, and the listeners to its commits and refusals. PROTOCOL.md §20. */

import { HapaxError } from "../../base/errors.ts";

/** The lease of a stream by a member of a group. No other lease ever has its token. */
export interface Lease {
  readonly group: string;
  readonly member: string;
  readonly stream: string;
  readonly token: number;
}

/** Called by transactions for the holder of a lease. */
export interface LeaseListener {
  committed(offset: string): void;
  refused(error: HapaxError): void;
}

// Not members of the lease: a lease is data that can be sent to another process.
const listeners = new WeakMap<Lease, LeaseListener>();

export function listenTo(lease: Lease, listener: LeaseListener): void {
  listeners.set(lease, listener);
}

export function listenerOf(lease: Lease): LeaseListener | undefined {
  return listeners.get(lease);
}

/** Returns the members of a lease that the server takes. */
export function wireLease({ group, stream, token, member }: Lease): Lease {
  return { group, stream, token, member };
}

/** Creates the error for work whose lease is over. */
export function leaseLost(message: string, cause?: unknown): HapaxError {
  return new HapaxError("lease_lost", message, { cause, status: 409 });
}

/** The right of one worker to do one job, as plain data. PROTOCOL.md §20.5. */
export interface JobLease extends Lease {
  readonly offset: string;
}
