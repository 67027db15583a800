/**
 * Lists the events that a relay has given up, replays them, and discards them.
 *
 *   - a letter changes in one transaction that locks the relay, so that no event changes while the relay publishes it;
 *   - a replayed letter is due at once, with no attempts counted, and the later events of its key follow it in order;
 *   - a discarded letter is deleted, and the later events of its key go on.
 */

import {
  type DeadLetterFilter,
  type DeadLetterGroup,
  type DeadLetterReason,
  groupLetters,
} from "../../base/dead-letter.ts";
import { HapaxError } from "../../base/errors.ts";
import type { Ledger } from "../ledgers/ledger.ts";
import type { HeldEvent, OutboxEvent } from "./log.ts";
import { DEFAULT_RELAY, isRelayName, relayPlace } from "./relay-state.ts";
import { hold } from "./relay-work.ts";

/** An event that a relay has given up. */
export interface OutboxDeadLetter {
  /** The id of the event. */
  readonly id: string;
  readonly event: OutboxEvent;
  readonly attempts: number;
  readonly reason: DeadLetterReason | undefined;
}

/** Selects dead letters of a relay. A letter must match all given members. */
export interface OutboxLetterFilter extends DeadLetterFilter {
  /** The key of the event. */
  readonly key?: string;
}

/** Options of `createDeadLetters`. All are optional. */
export interface DeadLetterOptions {
  /** The name of the relay. Default `relay`. */
  readonly relay?: string;
}

/** The dead letters of one relay. `createDeadLetters` creates it. */
export interface OutboxDeadLetters {
  /** Lists the letters in the order in which their events were added. Returns at most `max` of them, default 100. */
  list(
    filter?: OutboxLetterFilter & { readonly max?: number },
  ): Promise<readonly OutboxDeadLetter[]>;
  /** Groups the letters by the reason of their failure, the most frequent reason first. */
  groups(): Promise<readonly DeadLetterGroup[]>;
  /** Lets the relay publish the letters again. Without a filter: all of them. Returns how many. */
  replay(which?: readonly string[] | OutboxLetterFilter): Promise<number>;
  /** Deletes the letters for good. The filter must name something. Returns how many. */
  discard(which: readonly string[] | OutboxLetterFilter): Promise<number>;
}

/** The most letters that one transaction changes. The relay waits for that transaction. */
const CHANGED_MAX = 500;
/** The most letters that `groups` reads. */
const GROUPED_MAX = 100_000;

/**
 * Creates the tools to list, replay and discard the events that a relay has given up.
 *
 * ```ts
 * import { memoryLedger } from "hapax/ledgers/memory";
 * import { createDeadLetters, createOutbox, createRelay, functionPublisher } from "hapax/outbox";
 *
 * const ledger = memoryLedger();
 * const outbox = createOutbox(ledger);
 * await ledger.transaction((tx) => outbox.add(tx, { topic: "mail", key: "a", payload: "hello" }));
 * let isUp = false;
 * const publisher = functionPublisher(async () => {
 *   if (!isUp) throw new Error("no route");
 * });
 * const relay = createRelay(ledger, publisher, { retry: { attemptsMax: 1 } });
 * await relay.runOnce();
 *
 * const letters = createDeadLetters(ledger);
 * const [group] = await letters.groups();
 * console.assert(group?.count === 1 && group.message.includes("no route"));
 * isUp = true;
 * await letters.replay({ fingerprint: group?.fingerprint ?? "" });
 * console.assert((await relay.runOnce()).published === 1);
 * ```
 */
export function createDeadLetters<Tx>(
  ledger: Ledger<Tx>,
  options: DeadLetterOptions = {},
): OutboxDeadLetters {
  const { relay = DEFAULT_RELAY } = options;
  if (!isRelayName(relay)) {
    throw new HapaxError(
      "invalid_options",
      `relay=${relay} is not 1 to 128 characters from ! to ~`,
    );
  }
  const change = (
    which: readonly string[] | OutboxLetterFilter,
    what: "replay" | "discard",
  ): Promise<number> => changeAll(ledger, relay, filterOf(which), what);
  return {
    async list({ max = 100, ...filter } = {}) {
      const held = await ledger.outbox.held.list({ ...filter, relay, state: "dead", max });
      return held.map(letterOf);
    },
    async groups() {
      const held = await ledger.outbox.held.list({ relay, state: "dead", max: GROUPED_MAX });
      return groupLetters(held.map(letterOf));
    },
    replay: (which = {}) => change(which, "replay"),
    async discard(which) {
      const filter = filterOf(which);
      if (Object.values(filter).every((value) => value === undefined)) {
        throw new HapaxError("invalid_request", "discard must name ids, a key or a fingerprint");
      }
      return change(filter, "discard");
    },
  };
}

function filterOf(which: readonly string[] | OutboxLetterFilter): OutboxLetterFilter {
  // The guard of the language forgets readonly arrays.
  return Array.isArray(which) ? { ids: which as readonly string[] } : (which as OutboxLetterFilter);
}

/**
 * Changes the letters in several transactions, until none is left. A replayed letter is not dead any more, so no letter
 * comes twice.
 */
async function changeAll<Tx>(
  ledger: Ledger<Tx>,
  relay: string,
  filter: OutboxLetterFilter,
  what: "replay" | "discard",
): Promise<number> {
  for (let changed = 0; ;) {
    const some = await ledger.transaction(async (tx) => {
      const joined = ledger.in(tx);
      // Locked until the end, as the relay locks it when it settles.
      await joined.entries.find(relayPlace(relay));
      return changeSome(joined, relay, filter, what);
    });
    changed += some;
    if (some < CHANGED_MAX) return changed;
  }
}

async function changeSome<Tx>(
  { outbox }: Ledger<Tx>,
  relay: string,
  filter: OutboxLetterFilter,
  what: "replay" | "discard",
): Promise<number> {
  const dead = await outbox.held.list({ ...filter, relay, state: "dead", max: CHANGED_MAX });
  if (what === "replay") {
    const puts = dead.map(
      (one) => ({ ...one, state: "waiting", attempts: 0, dueInMs: 0 }) as const,
    );
    if (puts.length > 0) await outbox.held.change(relay, puts, []);
    return dead.length;
  }
  const ids = dead.map(({ event }) => event.id);
  const keys = dead.map(({ event }) => event.key).filter((key) => key !== undefined);
  const policy = { name: relay, retry: { afterDead: "block" } };
  await hold(outbox, policy, [], ids, new Set(keys));
  return dead.length;
}

function letterOf({ event, attempts, reason }: HeldEvent): OutboxDeadLetter {
  return { id: event.id, event, attempts, reason };
}
