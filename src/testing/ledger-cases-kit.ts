/** What the cases of ledger-conformance.ts share. */

import { strict as assert } from "node:assert";
import { waitingClock } from "../base/clock.ts";
import { isHapaxError } from "../base/errors.ts";
import type {
  Entries,
  Entry,
  EntryWrite,
  Expected,
  Ledger,
  Place,
} from "../toolkit/ledgers/ledger.ts";
import { systemRandom } from "../base/random.ts";

/** Gives the cases access to a database. You implement it for your ledger. */
export interface LedgerTarget<Tx> {
  /** Opens a ledger over the same database, as another process would. `migrate` was called. */
  open(): Promise<Ledger<Tx>>;
  /** Writes an effect in a transaction. */
  write(tx: Tx, text: string): Promise<void>;
  /** Returns all committed effects, in order. */
  read(): Promise<readonly string[]>;
}

/** One case of the contract of ledgers. `run` throws if the ledger breaks the contract. */
export interface LedgerCase {
  readonly title: string;
  /** What a ledger must offer for this case. `whySkipped` compares it with a ledger. */
  readonly needs:
    | "nothing"
    | "transactions"
    | "synchronous transactions"
    | "locks in transactions"
    | "recovery";
  readonly run: <Tx>(target: LedgerTarget<Tx>) => Promise<void>;
}

export const ABSENT: Expected = { kind: "absent" };

/** A claim as the primitives write it. */
export const CLAIM: EntryWrite = {
  state: "running",
  token: "next",
  attempts: 1,
  leaseMs: 60_000,
  keepMs: 3_600_000,
  fingerprint: { value: undefined },
  data: { value: undefined },
};

/** The end of a claim. */
export const DONE: EntryWrite = {
  ...CLAIM,
  state: "done",
  token: "same",
  leaseMs: undefined,
  fingerprint: "same",
};

/** Returns a scope that no other run has used: the database may be an old one. */
export function freshScope(): string {
  return `case-${systemRandom.id()}`;
}

export function freshPlace(): Place {
  return { kind: "once", scope: freshScope(), key: "k" };
}

export function bytes(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}

export function dataText(entry: Entry | undefined): string | undefined {
  return entry?.data === undefined ? undefined : new TextDecoder().decode(entry.data);
}

export function withData(write: EntryWrite, text: string): EntryWrite {
  return { ...write, data: { value: bytes(text) } };
}

export function openMany<Tx>(target: LedgerTarget<Tx>, count: number): Promise<Ledger<Tx>[]> {
  return Promise.all(Array.from({ length: count }, () => target.open()));
}

type Written = NonNullable<Awaited<ReturnType<Entries["put"]>>>;

/** Makes a write that must succeed. */
export async function put(
  entries: Entries,
  place: Place,
  expected: Expected,
  write: EntryWrite,
): Promise<Written> {
  const written = await entries.put(place, expected, write);
  assert.ok(written !== undefined, `${expected.kind} was not as expected`);
  return written;
}

/** Reads an entry that must be there. */
export async function found(entries: Entries, place: Place): Promise<Entry> {
  const entry = await entries.find(place);
  assert.ok(entry !== undefined, "there is no entry");
  return entry;
}

/** Returns the expectation that the entry is `unchanged` since it was read. */
export function asRead({ token, revision }: Written): Expected {
  return { kind: "unchanged", token, revision };
}

export function wait(delayMs: number): Promise<void> {
  return new Promise((resolve) => void waitingClock.after(delayMs, resolve));
}

/** Thrown in a transaction of a case to roll it back. */
export class Undo extends Error {}

/** Runs a transaction and rolls it back at its end. */
export async function undone<Tx>(
  ledger: Ledger<Tx>,
  work: (tx: Tx) => Promise<void>,
): Promise<void> {
  await assert.rejects(
    ledger.transaction(async (tx) => {
      await work(tx);
      throw new Undo("undo");
    }),
    Undo,
  );
}

export function isInvalid(error: unknown): boolean {
  return isHapaxError(error, "invalid_request");
}

/** Returns the effects of one case. */
export async function effectsOf<Tx>(
  target: LedgerTarget<Tx>,
  { scope }: Place,
): Promise<readonly string[]> {
  const texts = await target.read();
  return texts
    .filter((text) => text.startsWith(`${scope} `))
    .map((text) => text.slice(scope.length + 1));
}

export async function effect<Tx>(
  target: LedgerTarget<Tx>,
  tx: Tx,
  { scope }: Place,
  text: string,
): Promise<void> {
  await target.write(tx, `${scope} ${text}`);
}
