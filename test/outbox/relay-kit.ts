/** Relays that die, freeze and come back, on a ledger in memory, against a target that takes a batch once. */

import { AsyncLocalStorage } from "node:async_hooks";
import type { Clock } from "../../src/base/clock.ts";
import { setFailpoint } from "../../src/base/failpoint.ts";
import type { Ledger } from "../../src/toolkit/ledgers/ledger.ts";
import { memoryLedger, type MemoryTransaction } from "../../src/toolkit/ledgers/memory.ts";
import {
  createOutbox,
  createRelay,
  type Publisher,
  type RelayOptions,
} from "../../src/toolkit/outbox.ts";
import type { PublishBatch, PublishOutcome } from "../../src/toolkit/outbox/publisher.ts";
import type { OutboxEvent } from "../../src/toolkit/outbox/log.ts";
import { createVirtualClock, type VirtualClock } from "../../src/testing/virtual-clock.ts";

export const LEASE_MS = 1000;
const decoder = new TextDecoder();

/** What can happen to one batch on its way. */
export type Way = "arrives" | "is lost" | "loses its answer" | "comes late";

/** As a Hapax server has it: a batch as a whole or not at all. It never forgets the number of a batch. */
export class Target {
  readonly stored: string[] = [];
  /** By number: what was sent first under it. */
  readonly contents = new Map<string, string>();
  readonly problems: string[] = [];
  readonly refuses = new Set<string>();
  readonly #committed = new Map<string, string>();
  #epoch = 0;
  #sequence = -1;
  readonly #late: (() => void)[] = [];

  /** What was on its way for long arrives now. */
  deliverLate(): void {
    for (const deliver of this.#late.splice(0)) deliver();
  }

  publisher(next: () => Way): Publisher {
    return {
      publish: async (batch) => {
        const texts = batch.events.map(textOf);
        this.#note(batch, texts);
        const way = next();
        if (way === "is lost") throw new Error("no answer");
        if (way === "comes late") {
          this.#late.push(() => void this.#commit(batch, texts));
          throw new Error("no answer");
        }
        const outcomes = this.#commit(batch, texts);
        if (way === "loses its answer") throw new Error("no answer");
        const isRefused = outcomes.some(({ kind }) => kind === "failed");
        return isRefused && batch.isRetry ? { isUncertain: true, outcomes } : outcomes;
      },
      cancel: async (batch) => {
        if (next() === "is lost") throw new Error("no answer");
        const kept = this.#take(batch, "nothing");
        return kept === "nothing" ? "cancelled" : "published";
      },
    };
  }

  #note(batch: PublishBatch, texts: readonly string[]): void {
    const number = numberOf(batch);
    const content = texts.join();
    const before = this.contents.get(number);
    if (before === undefined) this.contents.set(number, content);
    else if (before !== content) this.problems.push(`${number} was ${before}, is ${content}`);
  }

  #commit(batch: PublishBatch, texts: readonly string[]): readonly PublishOutcome[] {
    const known = this.#committed.get(numberOf(batch));
    if (known === "nothing") return texts.map(() => ({ kind: "skipped" }));
    if (known !== undefined) return texts.map(() => ({ kind: "published" }));
    if (texts.some((text) => this.refuses.has(text))) {
      return texts.map((text) =>
        this.refuses.has(text)
          ? { kind: "failed", error: new Error(`refused ${text}`), isFinal: true }
          : { kind: "skipped" },
      );
    }
    if (this.#take(batch, texts.join()) === texts.join()) this.stored.push(...texts);
    return texts.map(() => ({ kind: "published" }));
  }

  /** Answers what is committed under the number now. */
  #take(batch: PublishBatch, content: string): string {
    const number = numberOf(batch);
    const known = this.#committed.get(number);
    if (known !== undefined) return known;
    if ("key" in batch.identity) throw new Error("this target wants numbers");
    const { epoch, sequence } = batch.identity;
    const isNext =
      epoch > this.#epoch
        ? sequence === 0
        : epoch === this.#epoch && sequence === this.#sequence + 1;
    // Fenced, or a gap: nothing is stored.
    if (!isNext) throw new Error(`${number} does not follow ${this.#epoch}.${this.#sequence}`);
    [this.#epoch, this.#sequence] = [epoch, sequence];
    this.#committed.set(number, content);
    return content;
  }
}

function numberOf({ identity }: PublishBatch): string {
  return "key" in identity ? identity.key : `${identity.epoch}.${identity.sequence}`;
}

export function textOf({ payload }: Pick<OutboxEvent, "payload">): string {
  return decoder.decode(payload);
}

/** One life of a relay. */
export interface Life {
  /** The number of the failpoint at which it freezes; undefined: it does not. */
  readonly freezesAt: number | undefined;
  readonly ways: readonly Way[];
}

interface Living {
  readonly life: Life;
  points: number;
  isFrozen: boolean;
  readonly thaw: Promise<void>;
}

const living = new AsyncLocalStorage<Living>();

/** From here on failpoints freeze those lives that want it. */
export function watchFailpoints(): void {
  setFailpoint((name) => {
    const one = living.getStore();
    if (one === undefined || !name.startsWith("outbox.")) return undefined;
    one.points += 1;
    if (one.points !== one.life.freezesAt) return undefined;
    one.isFrozen = true;
    return one.thaw;
  });
}

export interface Stage {
  readonly clock: VirtualClock;
  readonly ledger: Ledger<MemoryTransaction>;
  readonly add: (...texts: readonly string[]) => Promise<void>;
}

/** Texts are `key.number`; without a key `.number`. */
export function openStage(): Stage {
  const clock = createVirtualClock(1_000_000);
  const ledger = memoryLedger({ clock });
  const outbox = createOutbox(ledger);
  const add = async (...texts: readonly string[]): Promise<void> => {
    const messages = texts.map((text) => {
      const [key = ""] = text.split(".");
      return { topic: "t", payload: text, ...(key === "" ? {} : { key }) };
    });
    await ledger.transaction((tx) => outbox.addAll(tx, messages));
  };
  return { clock, ledger, add };
}

/** Lets one relay live: until it has done all there is, or is frozen. `resume` lets a frozen one go on. */
export async function live(
  { clock, ledger }: Stage,
  publisherOf: (next: () => Way) => Publisher,
  life: Life,
  options: RelayOptions = {},
): Promise<{ readonly end: "done" | "failed" | "frozen"; readonly resume: () => Promise<void> }> {
  let thaw: () => void = () => undefined;
  const thawed = new Promise<void>((resolve) => {
    thaw = resolve;
  });
  const one: Living = { life, points: 0, isFrozen: false, thaw: thawed };
  let at = 0;
  const next = (): Way => life.ways[at++] ?? "arrives";
  // What is frozen has no timers either, and so does not renew its lease.
  const own: Clock = {
    nowMs: () => clock.nowMs(),
    steadyMs: () => clock.steadyMs(),
    after: (delayMs, run) => clock.after(delayMs, () => (one.isFrozen ? undefined : run())),
  };
  const relay = createRelay(ledger, publisherOf(next), {
    leaseMs: LEASE_MS,
    retry: { pauseMs: 10, pauseMsMax: 50, attemptsMax: 1000 },
    batchMax: 4,
    onError: () => undefined,
    ...options,
    clock: own,
  });
  let end: "done" | "failed" | undefined;
  const running = living.run(one, () =>
    relay.runOnce().then(
      () => (end = "done"),
      () => (end = "failed"),
    ),
  );
  const isOver = (): boolean => end !== undefined || one.isFrozen;
  await pump(clock, isOver);
  const resume = async (): Promise<void> => {
    if (end !== undefined) return;
    thaw();
    // With dead timers it may never end: it gets the time to do its harm.
    await Promise.race([running, turns(20)]);
  };
  return { end: end ?? "frozen", resume };
}

/** Moves time whenever nothing else moves. */
export async function pump(clock: VirtualClock, isOver: () => boolean): Promise<void> {
  for (let rounds = 0; !isOver(); rounds += 1) {
    if (rounds > 5000) throw new Error("it does not end");
    await turns(2);
    if (!isOver()) clock.advance(5);
  }
}

export async function turns(count: number): Promise<void> {
  for (let turn = 0; turn < count; turn += 1) {
    await new Promise((resolve) => setImmediate(resolve));
  }
}
