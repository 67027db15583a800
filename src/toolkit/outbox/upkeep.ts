/** What a relay does beside publishing: it deletes what all relays have passed, and measures how far behind it is. */

import type { Ledger } from "../ledgers/ledger.ts";
import { noMeter } from "../meters/meter.ts";
import type { RelayParts } from "./publishing.ts";
import type { RelayCleanup } from "./relay-options.ts";
import { lockRelays, relayPositions } from "./relay-state.ts";

/** More relays than anybody has; if there are more, nothing is deleted. */
const RELAYS_MAX = 1000;
const MEASURE_EVERY_MS = 15_000;
/** Counted up to here. */
const COUNTED_MAX = 1000;

export class Upkeep<Tx> {
  readonly #parts: RelayParts<Tx>;
  #cleanAtMs = -Infinity;
  #measureAtMs = -Infinity;

  constructor(parts: RelayParts<Tx>) {
    this.#parts = parts;
  }

  /** Does what is due, and returns whether there is more to delete. A failure goes to `onError` and stops nothing. */
  async run(position: string | undefined): Promise<boolean> {
    const { options, stopping } = this.#parts;
    if (stopping.aborted) return false;
    try {
      await this.#measure(position);
      return await this.#clean();
    } catch (error) {
      options.onError(error);
      return false;
    }
  }

  async #clean(): Promise<boolean> {
    const { ledger, outbox, options } = this.#parts;
    const { cleanup, clock } = options;
    if (cleanup === undefined || outbox.way === "rows" || clock.steadyMs() < this.#cleanAtMs) {
      return false;
    }
    this.#cleanAtMs = clock.steadyMs() + cleanup.everyMs;
    const deleted =
      outbox.spans.cleansIn === "alone"
        ? await cleanIn(ledger, cleanup)
        : await ledger.transaction(async (tx) => {
            const joined = ledger.in(tx);
            await lockRelays(joined);
            return await cleanIn(joined, cleanup);
          });
    if (deleted > 0) options.meter.add("swept_total", deleted, { primitive: "outbox" });
    const hasMore = deleted >= cleanup.batchMax;
    if (hasMore) this.#cleanAtMs = -Infinity;
    return hasMore;
  }

  async #measure(position: string | undefined): Promise<void> {
    const { outbox, options } = this.#parts;
    const { meter, clock, name } = options;
    if (meter === noMeter || clock.steadyMs() < this.#measureAtMs) return;
    this.#measureAtMs = clock.steadyMs() + MEASURE_EVERY_MS;
    const labels = { relay: name };
    const { oldestMs, slotBytes } = await outbox.lag(position);
    meter.set("relay_lag_seconds", oldestMs / 1000, labels);
    if (slotBytes !== undefined) meter.set("slot_lag_bytes", slotBytes, labels);
    const count = (state: "waiting" | "dead"): Promise<number> =>
      outbox.held.count({ relay: name, state, max: COUNTED_MAX });
    meter.set("held_events", await count("waiting"), labels);
    meter.set("dead_letters", await count("dead"), labels);
  }
}

async function cleanIn<Tx>(
  ledger: Ledger<Tx>,
  { keepMs, batchMax }: Required<RelayCleanup>,
): Promise<number> {
  const { outbox } = ledger;
  const positions = await relayPositions(ledger, RELAYS_MAX);
  if (positions === undefined || outbox.way === "rows") return 0;
  return await outbox.spans.clean(positions, keepMs, batchMax);
}
