/**
 * Identities for transactions: producers with random ids, each with one transaction under way. PROTOCOL.md §5, §19.
 *
 *   LX1  every attempt of a transaction has the same id, epoch and sequence, and no other transaction has them;
 *   LX2  a number is used again by nobody: after a transaction that was refused or given up its lane begins a new
 *        epoch, which fences whatever of the old one is still on its way;
 *   LX3  after an attempt of unknown outcome a refusal is not the last word: the number is used up by a transaction that
 *        changes nothing. If that is done, no lost attempt will ever be; if one was done first, its answer comes instead.
 *
 * Keys would need no lanes, but are forgotten: above 100,000 of them in the time of the retries a repetition could be
 * stored twice. A producer is not forgotten. Epochs are declared and not sessions, because a higher epoch fences
 * also what the server has never heard of.
 */

import type { Caller } from "../attempt.ts";
import { membersOf, type Settled, settle } from "./calls.ts";
import { transactionFailure } from "./failure.ts";
import { FRAME_TYPE, frameOf, operationsIn } from "./frame.ts";

/** Transactions under way at once; the others wait. Each has a connection where there is no multiplexing. */
const LANES_MAX = 32;

/** Refusals that stay true: a lost attempt that arrives later meets the same. */
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
    const { error } = settled.refusal;
    const isCertain = !settled.wasUnknown || FINAL.has(error.code);
    const last = isCertain ? "refused" : await this.#useUp(lane, body, signal);
    if (last === "used_up" || typeof last === "object") lane.sequence = sequence + 1;
    else renew();
    if (typeof last === "object") return last;
    if (last === "unknown") throw transactionFailure(error, "unknown");
    return settled;
  }

  /** LX3. The answer of the lost attempt if that was done after all. */
  async #useUp(
    lane: Lane,
    body: Uint8Array,
    signal: AbortSignal | undefined,
  ): Promise<Settled | "used_up" | "unknown"> {
    // A condition that always holds; so often that its answer cannot be taken for the other one's.
    const count = operationsIn(body) === 1 ? 2 : 1;
    const stream = `/${this.#caller.settings.random.id()}`;
    const holds = { expect: { stream, absent: true } };
    const nothing = frameOf(
      Array.from({ length: count }, () => holds),
      [],
    );
    try {
      const settled = await settle(this.#caller, { ...this.#callOf(lane, nothing), signal });
      if (settled.refusal?.error.code === "producer_seq_reused") {
        // The lost attempt was done: asked again, it says what it has come to.
        const original = await settle(this.#caller, { ...this.#callOf(lane, body), signal });
        return original.refusal === undefined ? original : "unknown";
      }
      const operations = membersOf(settled.text).get("operations");
      // Refused, or committed so long ago that nobody knows which one it was.
      if (settled.refusal !== undefined || !Array.isArray(operations)) return "unknown";
      return operations.length === count ? "used_up" : settled;
    } catch {
      return "unknown"; // What the caller hears is the refusal, and that its outcome is unknown.
    }
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
