/**
 * Events that were given up: looked at, sent again, or thrown away.
 *
 *   OD1  a letter changes in one transaction, with the relay locked: what a relay is about to publish is not touched;
 *   OD2  a replayed letter is due at once, as if it had never been tried, and its key goes on in its order behind it;
 *   OD3  a discarded letter is gone, and its key goes on with what is behind it.
 */

import { HapaxError } from "../../base/errors.ts";
import type { Ledger } from "../ledgers/ledger.ts";
import type { HeldFailure, OutboxEvent } from "./log.ts";
import { isRelayName, relayPlace } from "./relay-state.ts";
import { hold } from "./relay-work.ts";

/** An event that was given up. */
export interface OutboxDeadLetter {
  readonly event: OutboxEvent;
  readonly attempts: number;
  readonly failure: HeldFailure | undefined;
}

/** Which letters: all that are named. */
export interface DeadLetterFilter {
  readonly ids?: readonly string[];
  readonly key?: string;
  readonly fingerprint?: string;
}

/** Letters with the same failure. */
export interface DeadLetterGroup {
  readonly fingerprint: string;
  /** Of the first of them. */
  readonly message: string;
  readonly count: number;
  /** The ids of the first and the last of them. */
  readonly firstId: string;
  readonly lastId: string;
}

/** Settings of `createDeadLetters`. All are optional. */
export interface DeadLetterSettings {
  /** The name of the relay. Default `relay`. */
  readonly relay?: string;
}

/** The letters of one relay. Made by `createDeadLetters`. */
export interface OutboxDeadLetters {
  /** In the order in which they were added; at most `max`, default 100. */
  list(filter?: DeadLetterFilter & { readonly max?: number }): Promise<readonly OutboxDeadLetter[]>;
  /** By their failures, the most frequent first. */
  groups(): Promise<readonly DeadLetterGroup[]>;
  /** Answers how many will be tried again. Without a filter: all. */
  replay(which?: readonly string[] | DeadLetterFilter): Promise<number>;
  /** Answers how many were thrown away. The filter must name something. */
  discard(which: readonly string[] | DeadLetterFilter): Promise<number>;
}

/** Letters that one transaction changes: a relay waits for it. */
const CHANGED_MAX = 500;
/** Letters that `groups` looks at. */
const GROUPED_MAX = 100_000;

/**
 * The tools for what a relay has given up.
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
  settings: DeadLetterSettings = {},
): OutboxDeadLetters {
  const { relay = "relay" } = settings;
  if (!isRelayName(relay)) {
    throw new HapaxError(
      "invalid_settings",
      `relay=${relay} is not 1 to 128 characters from ! to ~`,
    );
  }
  const change = (
    which: readonly string[] | DeadLetterFilter,
    what: "replay" | "discard",
  ): Promise<number> => changeAll(ledger, relay, filterOf(which), what);
  return {
    async list({ max = 100, ...filter } = {}) {
      const held = await ledger.outbox.held({ ...filter, relay, state: "dead", max });
      return held.map(({ event, attempts, failure }) => ({ event, attempts, failure }));
    },
    async groups() {
      const held = await ledger.outbox.held({ relay, state: "dead", max: GROUPED_MAX });
      return groupsOf(held);
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

function filterOf(which: readonly string[] | DeadLetterFilter): DeadLetterFilter {
  // The guard of the language forgets readonly arrays.
  return Array.isArray(which) ? { ids: which as readonly string[] } : (which as DeadLetterFilter);
}

/** In transactions of so many, until none is left. A replayed letter is dead no more, so none is met twice. */
async function changeAll<Tx>(
  ledger: Ledger<Tx>,
  relay: string,
  filter: DeadLetterFilter,
  what: "replay" | "discard",
): Promise<number> {
  for (let changed = 0; ;) {
    const some = await ledger.transaction(async (tx) => {
      const joined = ledger.in(tx);
      // OD1: locked until the end, as the relay locks it when it settles.
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
  filter: DeadLetterFilter,
  what: "replay" | "discard",
): Promise<number> {
  const dead = await outbox.held({ ...filter, relay, state: "dead", max: CHANGED_MAX });
  if (what === "replay") {
    // OD2
    const puts = dead.map(
      (one) => ({ ...one, state: "waiting", attempts: 0, dueInMs: 0 }) as const,
    );
    if (puts.length > 0) await outbox.hold(relay, puts, []);
    return dead.length;
  }
  // OD3
  const ids = dead.map(({ event }) => event.id);
  const keys = dead.map(({ event }) => event.key).filter((key) => key !== undefined);
  const policy = { name: relay, retry: { afterDead: "block" } };
  await hold(outbox, policy, [], ids, new Set(keys));
  return dead.length;
}

function groupsOf(letters: readonly OutboxDeadLetter[]): readonly DeadLetterGroup[] {
  const groups = new Map<string, DeadLetterGroup>();
  for (const { event, failure } of letters) {
    const { fingerprint, message } = failure ?? { fingerprint: "", message: "" };
    const known = groups.get(fingerprint);
    groups.set(fingerprint, {
      fingerprint,
      message: known?.message ?? message,
      count: (known?.count ?? 0) + 1,
      firstId: known?.firstId ?? event.id,
      lastId: event.id,
    });
  }
  return [...groups.values()].toSorted((one, other) => other.count - one.count);
}
