/** What the console sends to its page, as JSON. The page has the same types: it comes from the same package. */

/** An entry, without what is kept in it. */
export interface EntryRow {
  readonly kind: string;
  readonly scope: string;
  readonly key: string;
  readonly state: "running" | "done" | "failed" | "released";
  readonly attempts: number;
  readonly token: number;
  readonly ageMs: number;
  readonly leaseLeftMs?: number;
  readonly keepLeftMs?: number;
}

/** A page of a list. `next` leads to the next one. */
export interface Rows<T> {
  readonly rows: readonly T[];
  readonly next?: string;
}

/** Bytes that are kept: as text if they are one, else as base64. At most the first 64 KiB. */
export interface KeptValue {
  readonly bytes: number;
  readonly text?: string;
  readonly base64?: string;
}

/** One entry. `value` only if it was asked for, and may be seen. */
export interface EntryView extends EntryRow {
  readonly revision: number;
  readonly fingerprint?: string;
  readonly valueBytes: number;
  readonly value?: KeptValue;
}

/** How many entries of a kind there are in a state; at most `KindCount.most` are counted. */
export interface KindCount {
  readonly kind: string;
  readonly running: number;
  readonly overdue: number;
  readonly failed: number;
}

export interface RelayView {
  readonly relay: string;
  /** Whether a process runs it now. */
  readonly isHeld: boolean;
  /** The age of the oldest event that is not published. */
  readonly lagMs: number;
  readonly slotBytes?: number;
  readonly waiting: number;
  readonly dead: number;
}

export interface OverviewView {
  readonly title: string;
  readonly ledger: string;
  readonly durability: string;
  readonly by: string;
  readonly acts: readonly string[];
  readonly maySeeValues: boolean;
  readonly countMax: number;
  readonly kinds: readonly KindCount[];
  readonly hasOutbox: boolean;
  readonly relays: readonly RelayView[];
}

export interface StepRow {
  readonly name: string;
  readonly state: string;
  readonly attempts: number;
  readonly failure?: { readonly name: string; readonly message: string };
  /** As JSON; only with the values. */
  readonly result?: string;
}

/** A saga in a list. `problem`: its entry cannot be read. */
export interface SagaRow {
  readonly saga: string;
  readonly scope: string;
  readonly key: string;
  readonly state: string;
  readonly ageMs: number;
  readonly at?: string;
  readonly problem?: string;
}

export interface MomentRow {
  readonly atMs: number;
  readonly what: string;
  readonly step?: string;
  readonly note?: string;
  readonly by?: string;
}

export interface SagaDetail extends SagaRow {
  readonly version: number;
  readonly waiting?: { readonly for: string; readonly step?: string; readonly leftMs?: number };
  readonly cause?: { readonly name: string; readonly message: string; readonly step?: string };
  readonly stuck?: { readonly reason: string; readonly step?: string; readonly message: string };
  readonly steps: readonly StepRow[];
  readonly history: readonly MomentRow[];
  /** As JSON; only with the values. */
  readonly input?: string;
}

/** An event that a relay holds. */
export interface HeldRow {
  readonly id: string;
  readonly topic: string;
  readonly key?: string;
  readonly addedAtMs: number;
  readonly attempts: number;
  readonly dueInMs: number;
  readonly fingerprint?: string;
  readonly message?: string;
  readonly payload?: KeptValue;
}
