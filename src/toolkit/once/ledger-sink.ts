/**
 * A ledger as the sink of a pipeline: the positions are entries of the ledger, and move in the transaction of the effects.
 * The port is client/processing/sink.ts, the rule toolkit/rules/position.ts.
 *
 *   - the entry of a place is locked from the first statement of a transaction on: two holders never work at once.
 *
 * The entry has kind `pipeline`, the pipeline's group as scope and the path of the stream as key. It never expires. Its
 * data is JSON: `version`, `token` of the lease that took it last, and `position`, which is absent until the first move.
 */

import type { Sink, SinkPlace } from "../../client/processing/sink.ts";
import { HapaxError } from "../../base/errors.ts";
import { outageOf } from "../databases/outage.ts";
import type { Entries, Entry, Expected, Ledger, Place } from "../ledgers/ledger.ts";
import {
  decideMove,
  decideTake,
  type HeldPosition,
  type PositionDecision,
} from "../rules/position.ts";

const KIND = "pipeline";
const VERSION = 1;

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/**
 * Makes a ledger the sink of a pipeline. The position of each stream is an entry of the ledger and moves in the transaction
 * in which the pipeline's function writes: `context.tx` is a transaction of the ledger, so that `ledger.in(context.tx)` joins
 * it. The pipeline calls `ledger.migrate()` when it starts. Throws `invalid_options` for a ledger that is inside a
 * transaction, and `unsupported` for one without transactions.
 *
 * ```ts
 * import { ledgerSink } from "hapax/ledger";
 * import { memoryLedger } from "hapax/ledgers/memory";
 * import { startNodeServer } from "hapax/node";
 * import { connectServer } from "hapax/processing";
 *
 * const server = await startNodeServer({ store: "memory", port: 0 });
 * const hapax = connectServer(server.url);
 * const orders = hapax.stream("/v1/stream/orders");
 * await orders.create();
 * await orders.append({ cents: 500 });
 *
 * const paid: number[] = [];
 * const pipeline = hapax.pipeline({
 *   from: { streams: [orders] },
 *   group: "payments",
 *   sink: ledgerSink(memoryLedger()), // Or sqliteLedger, postgresLedger: beside the tables that you write.
 *   each: (order: { cents: number }, { tx }) => {
 *     paid.push(order.cents);
 *     tx.undo(() => paid.pop()); // What a database does by itself.
 *   },
 *   onProgress: () => void pipeline.close(),
 * });
 * await pipeline.run();
 * console.assert(paid.join() === "500");
 * await server.stop();
 * ```
 */
export function ledgerSink<Tx>(ledger: Ledger<Tx>): Sink<Tx> {
  if (ledger.isJoined)
    throw new HapaxError("invalid_options", "pass the ledger itself: a sink begins transactions");
  if (!ledger.supports.transactions)
    throw new HapaxError("unsupported", `ledger=${ledger.name} has no transactions`);

  const inTransaction = <T>(work: (entries: Entries, tx: Tx) => Promise<T>): Promise<T> =>
    telling(() => ledger.transaction((tx) => work(ledger.in(tx).entries, tx)));

  return {
    prepare: () => telling(() => ledger.migrate()),
    take: (place, token) =>
      inTransaction(async (entries) => {
        for (;;) {
          const entry = await entries.find(placeOf(place));
          const held = heldIn(entry);
          requireGranted(decideTake(held, token), place);
          if (held?.token === token) return held.at;
          const next = { token, at: held?.at };
          // Nothing comes back if another has made the entry since: then it is there to be found.
          if (await put(entries, place, entry, next)) return next.at;
        }
      }),
    move: (place, token, from, work) =>
      inTransaction(async (entries, tx) => {
        const entry = await entries.find(placeOf(place));
        requireGranted(decideMove(heldIn(entry), token, from), place);
        const at = await work(tx);
        // It was locked all the time.
        if (!(await put(entries, place, entry, { token, at })))
          throw new HapaxError("invalid_request", "the transaction was ended before its work was");
      }),
  };
}

async function telling<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw outageOf(error) ?? error;
  }
}

function placeOf({ pipeline, stream }: SinkPlace): Place {
  return { kind: KIND, scope: pipeline, key: stream };
}

function requireGranted(decision: PositionDecision, { pipeline, stream }: SinkPlace): void {
  if (decision.kind === "granted") return;
  throw new HapaxError("lease_lost", `${stream} of ${pipeline}: ${decision.reason}`);
}

/** Writes the position; false: the entry was not as it was found. */
async function put(
  entries: Entries,
  place: SinkPlace,
  found: Entry | undefined,
  { token, at }: HeldPosition,
): Promise<boolean> {
  const expected: Expected =
    found === undefined
      ? { kind: "absent" }
      : { kind: "unchanged", token: found.token, revision: found.revision };
  const data = JSON.stringify({ version: VERSION, token, position: at });
  const written = await entries.put(placeOf(place), expected, {
    state: "done",
    token: "same",
    attempts: 1,
    leaseMs: undefined,
    keepMs: undefined,
    fingerprint: { value: undefined },
    data: { value: encoder.encode(data) },
  });
  return written !== undefined;
}

function heldIn(entry: Entry | undefined): HeldPosition | undefined {
  if (entry === undefined) return undefined;
  // Only this file writes entries of this kind.
  const kept = JSON.parse(decoder.decode(entry.data)) as {
    readonly version: number;
    readonly token: number;
    readonly position?: string;
  };
  if (kept.version > VERSION) {
    const words = `the position was written by a newer version; version=${String(kept.version)}`;
    throw new HapaxError("schema_newer", words);
  }
  return { token: kept.token, at: kept.position };
}
