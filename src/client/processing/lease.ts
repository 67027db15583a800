/** A lease as its holder names it: plain data, and those who want to hear what becomes of it. PROTOCOL.md §20. */

import { HapaxError } from "../../base/errors.ts";

/** A stream that is leased to a member of a group, under a token that no other lease ever has. */
export interface Lease {
  readonly group: string;
  readonly member: string;
  readonly stream: string;
  readonly token: number;
}

/** What the holder of a lease is told by transactions. */
export interface LeaseListener {
  committed(offset: string): void;
  refused(error: HapaxError): void;
}

// Beside the lease and not in it: a lease is data that can be sent to another process.
const listeners = new WeakMap<Lease, LeaseListener>();

export function listenTo(lease: Lease, listener: LeaseListener): void {
  listeners.set(lease, listener);
}

export function listenerOf(lease: Lease): LeaseListener | undefined {
  return listeners.get(lease);
}

/** The members of a lease as the server wants them. */
export function wireLease({ group, stream, token, member }: Lease): Lease {
  return { group, stream, token, member };
}

/** What work is told whose lease is over. */
export function leaseLost(message: string, cause?: unknown): HapaxError {
  return new HapaxError("lease_lost", message, { cause, status: 409 });
}
