/**
 * Reading records as they were stored. Their places follow from their bytes (places.ts), and a server may be set to add
 * to them: whoever asks for the place of a record reads in this way. PROTOCOL.md §7.8.
 */

import { HapaxError } from "../../base/errors.ts";
import type { Caller } from "../attempt.ts";
import { type Reading, type ReadOptions, readStream } from "../reading.ts";
import type { Addresses, StreamTarget } from "./paths.ts";

interface Reader {
  readonly caller: Caller;
  readonly addresses: Addresses;
}

/** Of each connection. Beside it and not in it: only pipelines and dead letters ask. */
const lent = new WeakMap<object, Reader>();

/** Lets pipelines and dead letters of a connection read. */
export function lendStored(connection: object, reader: Reader): void {
  lent.set(connection, reader);
}

/** The address of a stream whose records come as they were stored. */
export function storedUrl(addresses: Addresses, path: string): string {
  return `${addresses.stream(path)}?state-offsets=false`;
}

/** As `stream.read`, with the records as they were stored. */
export function readStored<T>(
  connection: object,
  target: StreamTarget,
  options: ReadOptions,
): Reading<T> {
  const reader = lent.get(connection);
  if (reader === undefined) throw new HapaxError("internal", "a connection without a reader");
  const { caller, addresses } = reader;
  return readStream<T>(caller, storedUrl(addresses, addresses.pathOf(target)), options);
}
