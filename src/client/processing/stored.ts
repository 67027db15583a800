/**
 * Reads records as they were stored. Their places follow from their bytes (places.ts), and a server may be set to add
 * to these bytes: so code that needs the place of a record reads in this way. PROTOCOL.md §7.8.
 */

import { HapaxError } from "../../base/errors.ts";
import type { Caller } from "../attempt.ts";
import { type Reading, type ReadOptions, startReading } from "../reading.ts";
import type { Addresses, StreamTarget } from "./paths.ts";

interface Reader {
  readonly caller: Caller;
  readonly addresses: Addresses;
}

/** The reader of each connection. Not a member of it, because only pipelines and dead letters use it. */
const lent = new WeakMap<object, Reader>();

/** Lets pipelines and dead letters of a connection read stored records. */
export function lendStored(connection: object, reader: Reader): void {
  lent.set(connection, reader);
}

/** Returns the address that gives the records of a stream as they were stored. */
export function storedUrl(addresses: Addresses, path: string): string {
  return `${addresses.stream(path)}?state-offsets=false`;
}

/** Reads like `stream.read`, with the records as they were stored. */
export function readStored<T>(
  connection: object,
  target: StreamTarget,
  options: ReadOptions,
): Reading<T> {
  const reader = lent.get(connection);
  if (reader === undefined) throw new HapaxError("internal", "a connection without a reader");
  const { caller, addresses } = reader;
  return startReading<T>(caller, storedUrl(addresses, addresses.pathOf(target)), options);
}
