/**
 * A bank whose accounts are streams: transfers are transactions that expect both balances, the server is killed in
 * between, and an auditor adds up all accounts at one instant, again and again. PROTOCOL.md §12.1, §19.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Connection, connectServer, TransactionFailure } from "../../src/client/processing.ts";
import { isHapaxError } from "../../src/base/errors.ts";
import { createSeededRandom, type SeededRandom } from "../../src/testing/seeded-random.ts";
import { type ServerProcess, startServer } from "../crash/processes.ts";

export interface BankOptions {
  readonly seed: number;
  readonly accounts: number;
  /** Transfers that are confirmed before it ends. */
  readonly transfers: number;
  readonly tellers: number;
  readonly kills: number;
  /** A fault of the bank, to see that it is noticed: the credit is written apart from the debit. */
  readonly isCareless?: boolean;
}

export interface BankReport {
  readonly confirmed: number;
  readonly unknown: number;
  readonly conflicts: number;
  readonly kills: number;
  readonly audits: number;
  /** Audits that found another sum. */
  readonly wrongAudits: number;
  /** Transfers that stand in one account only, or more than once in one. */
  readonly torn: number;
  /** Confirmed ones that are missing. */
  readonly lost: number;
  /** Accounts below zero: a transfer was decided on an old balance. */
  readonly overdrawn: number;
}

interface Entry {
  readonly id: string;
  readonly amount: number;
}

const OPENING = 100;
const PREFIX = "/v1/stream/bank/";

export async function runBank(options: BankOptions): Promise<BankReport> {
  const bank = new Bank(options);
  await bank.open();
  try {
    return await bank.run();
  } finally {
    await bank.close();
  }
}

class Bank {
  readonly #options: BankOptions;
  readonly #directory = mkdtempSync(join(tmpdir(), "hapax-bank-"));
  readonly #random: SeededRandom;
  readonly #connection: Connection;
  readonly #confirmed = new Set<string>();
  #server: Promise<ServerProcess>;
  #isOver = false;
  #unknown = 0;
  #conflicts = 0;
  #kills = 0;
  #audits = 0;
  #wrongAudits = 0;

  constructor(options: BankOptions) {
    this.#options = options;
    this.#random = createSeededRandom(options.seed);
    this.#server = startServer({ dir: this.#directory });
    this.#connection = connectServer("http://bank", {
      fetch: (input, init) => this.#fetch(new Request(input).url, init),
      retry: { pauseMs: 10, pauseMsMax: 200, totalMs: 60_000 },
    });
  }

  /** The address is another one after each kill. */
  async #fetch(url: string, init?: RequestInit): Promise<Response> {
    const server = await this.#server;
    return fetch(url.replace("http://bank", server.url), init);
  }

  #account(index: number): string {
    return `${PREFIX}${index}`;
  }

  async open(): Promise<void> {
    await this.#connection.transaction((tx) => {
      for (let index = 0; index < this.#options.accounts; index += 1) {
        tx.create(this.#account(index));
        tx.append(this.#account(index), { id: "opening", amount: OPENING });
      }
    });
  }

  async run(): Promise<BankReport> {
    const tellers = Array.from({ length: this.#options.tellers }, (_, index) =>
      this.#teller(index),
    );
    const auditor = this.#audit();
    await Promise.all(tellers);
    this.#isOver = true;
    await auditor;
    const { torn, lost, overdrawn } = await this.#examine();
    return {
      confirmed: this.#confirmed.size,
      unknown: this.#unknown,
      conflicts: this.#conflicts,
      kills: this.#kills,
      audits: this.#audits,
      wrongAudits: this.#wrongAudits,
      torn,
      lost,
      overdrawn,
    };
  }

  async close(): Promise<void> {
    await (await this.#server).kill();
    rmSync(this.#directory, { recursive: true, force: true });
  }

  async #teller(teller: number): Promise<void> {
    for (let count = 0; this.#confirmed.size < this.#options.transfers; count += 1) {
      await this.#transfer(`${teller}-${count}`);
    }
  }

  async #transfer(id: string): Promise<void> {
    const { accounts, isCareless = false } = this.#options;
    const from = this.#random.below(accounts);
    const to = (from + 1 + this.#random.below(accounts - 1)) % accounts;
    const [source, target] = [await this.#look(from), await this.#look(to)];
    const amount = Math.min(source.balance, 1 + this.#random.below(20));
    if (amount === 0) return;
    try {
      await this.#connection.transaction((tx) => {
        tx.expect(this.#account(from), { offset: source.tail });
        if (!isCareless) tx.expect(this.#account(to), { offset: target.tail });
        tx.append(this.#account(from), { id, amount: -amount });
        if (!isCareless) tx.append(this.#account(to), { id, amount });
      });
      if (isCareless) await this.#connection.stream(this.#account(to)).append({ id, amount });
      this.#confirmed.add(id);
      this.#reap();
    } catch (error) {
      if (isHapaxError(error, "tail_moved")) this.#conflicts += 1;
      else if (error instanceof TransactionFailure && error.outcome === "unknown")
        this.#unknown += 1;
      else throw error;
    }
  }

  async #look(index: number): Promise<{ readonly balance: number; readonly tail: string }> {
    let balance = 0;
    let tail = "";
    const account = this.#connection.stream(this.#account(index));
    for await (const batch of account.read<Entry>().pages()) {
      for (const { amount } of batch.records) balance += amount;
      tail = batch.nextOffset;
    }
    return { balance, tail };
  }

  /** Kills come evenly over the transfers. */
  #reap(): void {
    const { kills, transfers } = this.#options;
    const due = (this.#kills + 1) * (transfers / (kills + 1));
    if (this.#kills === kills || this.#confirmed.size < due) return;
    this.#kills += 1;
    this.#server = this.#server.then(async (server) => {
      await server.kill();
      return startServer({ dir: this.#directory });
    });
  }

  async #audit(): Promise<void> {
    while (!this.#isOver) {
      try {
        const { sum } = await this.#addUp();
        this.#audits += 1;
        if (sum !== this.#options.accounts * OPENING) this.#wrongAudits += 1;
      } catch (error) {
        // The server was killed under the audit: it begins anew.
        if (!(error instanceof TypeError)) throw error;
        await new Promise((resolve) => setImmediate(resolve));
      }
    }
  }

  /** All accounts, each up to its tail in one answer of the list. */
  async #addUp(): Promise<{
    readonly sum: number;
    readonly entries: readonly (readonly Entry[])[];
  }> {
    const list = await this.#fetch(`http://bank/_hapax/streams?prefix=${PREFIX}`);
    const { streams } = (await list.json()) as {
      streams: readonly { path: string; nextOffset: string }[];
    };
    const entries = await Promise.all(
      streams.map(({ path, nextOffset }) => this.#upTo(path, nextOffset)),
    );
    let sum = 0;
    for (const { amount } of entries.flat()) sum += amount;
    return { sum, entries };
  }

  async #upTo(path: string, tail: string): Promise<readonly Entry[]> {
    const answer = await this.#fetch(`http://bank${path}?offset=-1`);
    const all = (await answer.json()) as readonly Entry[];
    const end = Number(tail.split("_")[1]);
    const entries: Entry[] = [];
    // A record takes its text and a comma. Records behind the tail came after the list.
    for (let at = 0; at < end;) {
      const entry = all[entries.length];
      if (entry === undefined) throw new Error("an account is shorter than its tail");
      entries.push(entry);
      at += JSON.stringify(entry).length + 1;
    }
    return entries;
  }

  async #examine(): Promise<Pick<BankReport, "torn" | "lost" | "overdrawn">> {
    const { entries } = await this.#addUp();
    const places = new Map<string, number>();
    let overdrawn = 0;
    for (const account of entries) {
      let balance = 0;
      for (const { id, amount } of account) {
        balance += amount;
        if (balance < 0) overdrawn += 1;
        if (id !== "opening") places.set(id, (places.get(id) ?? 0) + 1);
      }
    }
    const torn = [...places.values()].filter((count) => count !== 2).length;
    const lost = [...this.#confirmed].filter((id) => !places.has(id)).length;
    return { torn, lost, overdrawn };
  }
}
