/**
 * Identities for transactions: producers with random ids, each with one transaction at a time. PROTOCOL.md §5, §19.
 *
 *   - every attempt of a transaction has the same id, epoch and sequence, and no other transaction has them;
 *   - a number is never used again: after a transaction that was refused or given up, its lane begins a new
 *     epoch, which fences requests of the old one that are still on their way;
 *   - after an attempt of unknown outcome a refusal is not final: a transaction that changes nothing uses the number up.
 *     If it is done, no lost attempt can be done any more; if a lost attempt was done first, its answer comes instead.
 *
 * Keys would need no lanes, but servers forget them: with more than 100,000 of them in the time of the retries a repetition
 * could be stored twice. Servers do not forget a producer. Lanes have epochs and not sessions, because a higher epoch also
 * fences requests that the server has not seen yet.
 */

import { assert } from "../../base/assert.ts";
import { PRODUCER_EPOCH, PRODUCER_ID, PRODUCER_SEQ } from "../../protocol/header-names.ts";
import type { Caller } from "../attempt.ts";
import { memberMapOf, type SettledCall, settleCall } from "./calls.ts";
import { transactionFailure } from "./failure.ts";
import { encodeFrame, TRANSACTION_TYPE } from "../../protocol/transaction-frame.ts";
import { operationsIn } from "./frame.ts";

/** The most transactions at once; the others wait. Without multiplexing each has a connection. */
const LANES_MAX = 32;

/** Refusals that stay true: a lost attempt that arrives later gets the same one. */
export const FINAL: ReadonlySet<string> = new Set([
  "lease_lost",
  "member_lost",
  "producer_seq_reused",
]);

interface Lane {
  readonly id: string;
  epoch: number;
  sequence: number;
}

export class Lanes {
  readonly #caller: Caller;
  readonly #url: string;
  readonly #idle: Lane[] = [];
  readonly #waiting: ((lane: Lane) => void)[] = [];
  #count = 0;

  constructor(caller: Caller, url: string) {
    this.#caller = caller;
    this.#url = url;
  }

  /** Sends a transaction. Returns the answer: committed, or a certain refusal. Otherwise throws a `TransactionFailure`. */
  async send(body: Uint8Array, signal: AbortSignal | undefined): Promise<SettledCall> {
    const lane = await this.#take(signal);
    try {
      return await this.#sendIn(lane, body, signal);
    } finally {
      this.#give(lane);
    }
  }

  async #sendIn(
    lane: Lane,
    body: Uint8Array,
    signal: AbortSignal | undefined,
  ): Promise<SettledCall> {
    const { sequence } = lane;
    const call = { ...this.#callOf(lane, body), signal };
    // Unless the transaction is confirmed, no later one may use this number.
    const renew = (): void => {
      lane.epoch += 1;
      lane.sequence = 0;
    };
    let settled: SettledCall;
    try {
      settled = await settleCall(this.#caller, call);
    } catch (error) {
      renew();
      throw error;
    }
    if (settled.refusal === undefined) {
      lane.sequence = sequence + 1;
      return settled;
    }
    const { error } = settled.refusal;
    const isCertain = !settled.wasUnknown || FINAL.has(error.code);
    const last = isCertain ? "refused" : await this.#useUp(lane, body, signal);
    if (last === "used_up" || typeof last === "object") lane.sequence = sequence + 1;
    else renew();
    if (typeof last === "object") return last;
    if (last === "unknown") throw transactionFailure(error, "unknown");
    return settled;
  }

  /** Uses up the number. Returns the answer of the lost attempt if that was done. */
  async #useUp(
    lane: Lane,
    body: Uint8Array,
    signal: AbortSignal | undefined,
  ): Promise<SettledCall | "used_up" | "unknown"> {
    // Conditions that always hold. The transaction has another number of operations, so that the two answers differ.
    const count = operationsIn(body) === 1 ? 2 : 1;
    const stream = `/${this.#caller.options.random.id()}`;
    const holds = { expect: { stream, absent: true } };
    const nothing = encodeFrame(
      Array.from({ length: count }, () => holds),
      [],
    );
    try {
      const settled = await settleCall(this.#caller, { ...this.#callOf(lane, nothing), signal });
      if (settled.refusal?.error.code === "producer_seq_reused") {
        // The lost attempt was done: sent again, it gets its original answer.
        const original = await settleCall(this.#caller, { ...this.#callOf(lane, body), signal });
        return original.refusal === undefined ? original : "unknown";
      }
      const operations = memberMapOf(settled.text).get("operations");
      // Refused, or committed so long ago that the server does not know which one it was.
      if (settled.refusal !== undefined || !Array.isArray(operations)) return "unknown";
      return operations.length === count ? "used_up" : settled;
    } catch {
      return "unknown"; // The caller gets the refusal, with the outcome `unknown`.
    }
  }

  #callOf(lane: Lane, body: Uint8Array) {
    const headers = {
      "Content-Type": TRANSACTION_TYPE,
      [PRODUCER_ID]: lane.id,
      [PRODUCER_EPOCH]: String(lane.epoch),
      [PRODUCER_SEQ]: String(lane.sequence),
    };
    return { method: "POST", url: this.#url, headers, body };
  }

  /** Takes a free lane. Waits if there is none. */
  #take(signal: AbortSignal | undefined): Promise<Lane> {
    const aborted = this.#caller.abortedBy(signal);
    if (aborted !== undefined) return Promise.reject(aborted);
    const idle = this.#idle.pop();
    if (idle !== undefined) return Promise.resolve(idle);
    if (this.#count < LANES_MAX) {
      this.#count += 1;
      return Promise.resolve({ id: this.#caller.options.random.id(), epoch: 0, sequence: 0 });
    }
    return new Promise((resolve, reject) => {
      const take = (lane: Lane): void => {
        unlisten();
        resolve(lane);
      };
      const unlisten = this.#caller.onAbort(signal, () => {
        const at = this.#waiting.indexOf(take);
        if (at >= 0) this.#waiting.splice(at, 1);
        unlisten();
        reject(this.#caller.abortedBy(signal) ?? new Error("aborted"));
      });
      this.#waiting.push(take);
    });
  }

  #give(lane: Lane): void {
    assert(
      !this.#idle.includes(lane),
      "a lane is free twice: two transactions would have one number",
    );
    const next = this.#waiting.shift();
    if (next === undefined) this.#idle.push(lane);
    else next(lane);
  }
}
