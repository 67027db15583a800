/**
 * Forgets a relay that will not run again. The outbox keeps every event that a known relay has not passed.
 *
 *   - a relay that runs is not forgotten;
 *   - its held events stay, unless the caller discards them: they are the only copy of what it did not publish;
 *   - a new relay of the same name uses none of the old numbers, so that no target takes its batches for old ones;
 *   - what it knew of its target goes too: the next relay of the name takes a restored server as it is;
 *   - rows that it had taken are free again.
 */

import { HapaxError } from "../../base/errors.ts";
import type { Ledger } from "../ledgers/ledger.ts";
import { isRelayName, parseState, relayPlace } from "./relay-state.ts";
import { forgetTarget } from "./target.ts";

/** Options of `forgetRelay`. All are optional. */
export interface ForgetOptions {
  /** Deletes the events that wait behind a failure, and the dead letters. Default false. */
  readonly discardsHeld?: boolean;
}

/** The result of `forgetRelay()`. */
type ForgottenRelay = {
  /** False: there was no relay of this name. */
  readonly isFound: boolean;
  /** How many held events are still there. A new relay of the same name publishes them. */
  readonly heldKept: number;
  readonly heldDiscarded: number;
  /** True: the relay had begun a batch whose outcome it did not record. The batch may have been published or not. */
  readonly isUnfinished: boolean;
  /** The last position of the relay, as text that only the log understands. Undefined for an outbox of rows. */
  readonly position: string | undefined;
};

/** The most held events that one transaction deletes. */
const DISCARDED_MAX = 500;

/**
 * Forgets a relay that you will not use again, so that cleaning keeps no events for it. Throws `in_progress` while a
 * process runs the relay, or may still run it. With logical decoding drop its slot too: see `dropSlot`.
 *
 * ```ts
 * import { memoryLedger } from "hapax/ledgers/memory";
 * import { createRelay, forgetRelay, functionPublisher } from "hapax/outbox";
 *
 * const ledger = memoryLedger();
 * const publisher = functionPublisher(() => Promise.resolve());
 * await createRelay(ledger, publisher, { name: "to-the-old-broker" }).runOnce();
 *
 * const forgotten = await forgetRelay(ledger, "to-the-old-broker");
 * console.assert(forgotten.isFound && forgotten.heldKept === 0);
 * ```
 */
export async function forgetRelay<Tx>(
  ledger: Ledger<Tx>,
  name: string,
  options: ForgetOptions = {},
): Promise<ForgottenRelay> {
  if (!isRelayName(name)) {
    throw new HapaxError("invalid_request", `name=${name} is not 1 to 128 characters from ! to ~`);
  }
  const { discardsHeld = false } = options;
  // The entry goes last: after a crash in between, the call can be repeated.
  for (let heldDiscarded = 0; ;) {
    const step = await ledger.transaction((tx) =>
      forgetSome(ledger.in(tx), name, discardsHeld ? DISCARDED_MAX : 0),
    );
    heldDiscarded += step.discarded;
    if (step.forgotten !== undefined) return { ...step.forgotten, heldDiscarded };
  }
}

interface Step {
  readonly discarded: number;
  /** Undefined: more held events must be deleted first. */
  readonly forgotten: Omit<ForgottenRelay, "heldDiscarded"> | undefined;
}

async function forgetSome<Tx>(
  ledger: Ledger<Tx>,
  name: string,
  discardedMax: number,
): Promise<Step> {
  const { entries, outbox } = ledger;
  const place = relayPlace(name);
  // Locked until the end; a process that wants to run it waits, and then makes it anew.
  const entry = await entries.find(place);
  if (entry?.state === "running" && (entry.leaseLeftMs ?? 0) > 0) throw busy(name);
  if (outbox.way === "rows" && !(await outbox.rows.giveUp(name))) throw busy(name);
  const held = discardedMax === 0 ? [] : await outbox.held.list({ relay: name, max: discardedMax });
  const ids = held.map(({ event }) => event.id);
  if (ids.length > 0) await outbox.held.change(name, [], ids);
  if (discardedMax > 0 && ids.length === discardedMax) {
    return { discarded: ids.length, forgotten: undefined };
  }
  const heldKept = await outbox.held.count({ relay: name, max: Number.MAX_SAFE_INTEGER });
  await forgetTarget(ledger, name);
  const { position, intent } = parseState(entry?.data);
  if (entry !== undefined) {
    const { token, revision } = entry;
    const isRemoved = await entries.remove(place, { kind: "unchanged", token, revision });
    if (!isRemoved) throw busy(name);
  }
  const isFound = entry !== undefined || ids.length > 0 || heldKept > 0;
  const isUnfinished = intent !== undefined;
  return { discarded: ids.length, forgotten: { isFound, heldKept, isUnfinished, position } };
}

function busy(name: string): HapaxError {
  return new HapaxError(
    "in_progress",
    `the relay is at work, or its lease is not over; name=${name}`,
  );
}
