/**
 * Counts what the engine does, in plain numbers: counting must cost nothing. Each part of the engine counts for itself,
 * so that a program that embeds the engine counts the same as a server, which writes these numbers as metrics.
 */

import { assert } from "../../base/assert.ts";
import type { AppendCommand } from "../core/append.ts";
import { firstAliveOf, type KeyDefaults, type StreamKeys, windowMsOf } from "../core/keys.ts";
import type { Operation } from "../core/transaction-state.ts";
import type { TimeMs } from "../core/types.ts";
import type { AppendOutcome } from "./outcomes.ts";
import type { TransactionResult } from "./transactions.ts";

/** How often each upper bound was met: a histogram as Prometheus has it. */
export class Histogram {
  readonly bounds: readonly number[];
  /** One for each bound, and one for what is above all of them. */
  readonly counts: number[];
  sum = 0;

  constructor(bounds: readonly number[]) {
    this.bounds = bounds;
    this.counts = Array.from({ length: bounds.length + 1 }, () => 0);
  }

  observe(value: number): void {
    assert(value >= 0, "a histogram counts what took less than no time");
    const { bounds, counts } = this;
    let at = 0;
    while (at < bounds.length && value > (bounds[at] ?? 0)) at += 1;
    counts[at] = (counts[at] ?? 0) + 1;
    this.sum += value;
  }
}

const SECONDS = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5];
const SIZES = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096, 8192];

export class EngineMeter {
  readonly outcomes: Record<AppendOutcome["kind"], number> = {
    accepted: 0,
    duplicate: 0,
    replayed: 0,
    fenced: 0,
    gap: 0,
    epoch_start: 0,
    epoch_exhausted: 0,
    reused: 0,
    tail_moved: 0,
    closed: 0,
    already_closed: 0,
    content_type_mismatch: 0,
    sequence_regression: 0,
    key_reused: 0,
    key_expired: 0,
    key_window_full: 0,
    missing: 0,
    gone: 0,
  };
  /** Retries that were recognised, by what they were recognised by. */
  readonly duplicates = { epoch: 0, session: 0, key: 0, content: 0 };
  /** Bytes of appends, first bodies and transactions that are durable. What the server writes for itself does not count. */
  appendedBytes = 0;
  /** Appends that were held for their predecessors. */
  held = 0;
  /** Keys forgotten because of their age, and those that a full window pushed out before. */
  keysExpired = 0;
  keysPushedOut = 0;
  /** The oldest retry by a key that was still recognised, as a share of its window. */
  retryAgeRatioMax = 0;
  /** Transactions by what became of them. */
  readonly transactions = { committed: 0, replayed: 0, refused: 0 };
  /** Of groups: claims, offsets or signs of life that were committed, and commits that came too late. */
  readonly groups = { claims: 0, commits: 0, lostLeases: 0 };
  /** Of changelogs: passes by how they ended, what they let go, and what they said again. */
  readonly compaction = {
    passes: { done: 0, little: 0, later: 0, over: 0 },
    records: 0,
    droppedBytes: 0,
    repeatedBytes: 0,
    /** When the last pass ended that was done, in milliseconds since 1970. */
    lastAtMs: 0,
  };
  readonly commitSeconds = new Histogram(SECONDS);
  readonly commitChanges = new Histogram(SIZES);

  append(command: AppendCommand, outcome: AppendOutcome): void {
    const isReused = outcome.kind === "duplicate" && outcome.isOther;
    this.outcomes[isReused ? "reused" : outcome.kind] += 1;
    if (isReused) return;
    if (outcome.kind === "accepted") {
      this.appendedBytes += command.data.length;
    } else if (outcome.kind === "duplicate") {
      this.duplicates[command.producer?.session === undefined ? "epoch" : "session"] += 1;
    } else if (outcome.kind === "replayed") {
      this.duplicates[command.key?.isContent === true ? "content" : "key"] += 1;
      const ratio = outcome.ageMs / outcome.windowMs;
      if (ratio > this.retryAgeRatioMax) this.retryAgeRatioMax = ratio;
    }
  }

  /** A new key is about to push out all entries of a window below `evictTo`. */
  keys(keys: StreamKeys | undefined, defaults: KeyDefaults, evictTo: number, atMs: TimeMs): void {
    const window = keys?.window;
    if (window === undefined || evictTo <= window.first) return;
    const alive = firstAliveOf(window, windowMsOf(keys?.policy, defaults), atMs);
    this.keysExpired += Math.min(evictTo, alive) - window.first;
    this.keysPushedOut += Math.max(0, evictTo - alive);
  }

  /** A transaction is about to be answered. */
  transaction(outcome: TransactionResult, operations: readonly Operation[]): void {
    const { transactions, groups } = this;
    if (outcome.kind !== "committed") {
      transactions.refused += 1;
      const isLost = outcome.kind === "refused" && outcome.refusal.kind === "lease_lost";
      if (isLost) groups.lostLeases += 1;
    } else if (outcome.isDuplicate) {
      transactions.replayed += 1;
    } else {
      transactions.committed += 1;
      for (const operation of operations) {
        if (operation.kind === "commit" || operation.kind === "done") groups.commits += 1;
        else if (operation.kind === "append") this.appendedBytes += operation.data.length;
      }
    }
  }

  /** A member of a group has claimed streams, or jobs. */
  claimed(): void {
    this.groups.claims += 1;
  }

  /** A member has committed offsets or settled jobs, and has lost leases before that. */
  settled(commits: number, lostLeases: number): void {
    this.groups.commits += commits;
    this.groups.lostLeases += lostLeases;
  }

  commit(changes: number, ms: number): void {
    this.commitChanges.observe(changes);
    this.commitSeconds.observe(ms / 1000);
  }
}
