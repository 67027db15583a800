/**
 * Identities for transactions: producers with random ids, each with one transaction under way. PROTOCOL.md §5, §19.
 *
 *   LX1  every attempt of a transaction has the same id, epoch and sequence, and no other transaction has them;
 *   LX2  a number is used again by nobody: after a transaction that was refused or given up its lane begins a new
 *        epoch, which fences whatever of the old one is still on its way;
 *   LX3  a refusal after an attempt of unknown outcome counts as "not stored" only when the old epoch is fenced: from
 *        then on the lost attempt cannot arrive any more.
 *
 * Keys would need no lanes, but are forgotten: above 100,000 of them in the time of the retries a repetition could be
 * stored twice. A producer is not forgotten. Epochs are declared and not sessions, because a higher epoch fences
 * also what the server has never heard of.
 */

import type { Caller } from "../client/attempt.ts";
import { type Settled, settle } from "./calls.ts";
import { transactionFailure } from "./failure.ts";
import { FRAME_TYPE, frameOf } from "./frame.ts";

/** Transactions under way at once; the others wait. Each has a connection where there is no multiplexing. */
const LANES_MAX = 32;

/** Refusals that stay true for ever: a lost attempt that comes later meets the same. */
const FINAL: ReadonlySet<string> = new Set(["lease_lost", "member_lost"]);

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

  /** The answer of the server: committed, or a refusal that is certain. Throws a `TransactionFailure` otherwise. */
  async send(body: Uint8Array, signal: AbortSignal | undefined): Promise<Settled> {
    const lane = await this.#take(signal);
    try {
      return await this.#sendIn(lane, body, signal);
    } finally {
      this.#give(lane);
    }
  }

  async #sendIn(lane: Lane, body: Uint8Array, signal: AbortSignal | undefined): Promise<Settled> {
    const { sequence } = lane;
    const call = { ...this.#callOf(lane, body), signal };
    // LX2: whatever happens from here on, nobody uses this number again unless it is confirmed.
    const renew = (): void => {
      lane.epoch += 1;
      lane.sequence = 0;
    };
    let settled: Settled;
    try {
      settled = await settle(this.#caller, call);
    } catch (error) {
      renew();
      throw error;
    }
    if (settled.refusal === undefined) {
      lane.sequence = sequence + 1;
      return settled;
    }
    renew();
    const { error } = settled.refusal;
    const isCertain = !settled.wasUnknown || FINAL.has(error.code);
    if (isCertain || (await this.#fence(lane, signal))) return settled;
    throw transactionFailure(error, "unknown");
  }

  /** LX3. Whether what the lane had sent before can do nothing any more. */
  async #fence(lane: Lane, signal: AbortSignal | undefined): Promise<boolean> {
    // A condition that always holds: a transaction that changes nothing.
    const stream = `/${this.#caller.settings.random.id()}`;
    const body = frameOf([{ expect: { stream, absent: true } }], []);
    let isFenced = false;
    try {
      const settled = await settle(this.#caller, { ...this.#callOf(lane, body), signal });
      isFenced = settled.refusal === undefined;
    } catch {
      isFenced = false; // What the caller hears is the refusal, and that its outcome is unknown.
    }
    if (isFenced) lane.sequence = 1;
    else lane.epoch += 1;
    return isFenced;
  }

  #callOf(lane: Lane, body: Uint8Array) {
    const headers = {
      "Content-Type": FRAME_TYPE,
      "Producer-Id": lane.id,
      "Producer-Epoch": String(lane.epoch),
      "Producer-Seq": String(lane.sequence),
    };
    return { method: "POST", url: this.#url, headers, body };
  }

  /** A lane that nobody uses. */
  #take(signal: AbortSignal | undefined): Promise<Lane> {
    const aborted = this.#caller.abortedBy(signal);
    if (aborted !== undefined) return Promise.reject(aborted);
    const idle = this.#idle.pop();
    if (idle !== undefined) return Promise.resolve(idle);
    if (this.#count < LANES_MAX) {
      this.#count += 1;
      return Promise.resolve({ id: this.#caller.settings.random.id(), epoch: 0, sequence: 0 });
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
    const next = this.#waiting.shift();
    if (next === undefined) this.#idle.push(lane);
    else next(lane);
  }
}
