/**
 * A member of a group: joins, claims, keeps its leases alive, hands over, and joins again when the server has forgotten it.
 * PROTOCOL.md §20.
 *
 *   - a claim is sent at least every third of the lease time, also while workers are busy: slow work keeps its lease
 *     as long as the server hears this member;
 *   - a leased stream is read from the committed offset of its lease; one that is not in the answer to a
 *     claim any more is lost, and its signal aborts;
 *   - a lease that was given back is never taken again under the same token, also if an older answer still has it;
 *   - a lease reads only the life of the stream that was leased;
 *   - a member of a server whose data went back in time fails: it does not go on from an older offset in silence;
 *   - a member that the server has forgotten has lost all its leases, and joins again as another one.
 */

import { assert } from "../../base/assert.ts";
import { type ErrorCode, HapaxError, isHapaxError } from "../../base/errors.ts";
import type { Caller } from "../attempt.ts";
import { callJson, withRetry } from "./calls.ts";
import { type ClaimedStream, claimOf, numberIn } from "./claim.ts";
import { KnownLives } from "./restored.ts";
import { Committer } from "./committer.ts";
import type { ConsumerEvent } from "./events.ts";
import { ConsumerLease } from "./held.ts";
import { leaseLost } from "./lease.ts";
import type { Addresses } from "./paths.ts";
import type { Sources } from "./sources.ts";
import type { ClientTransactions } from "./transactions.ts";

/** A member with less than its share claims again after this time: another one may just have given a stream back. */
const SHORT_MS_MAX = 500;
/** Members of a group start one after the other: a young one may hold the share of the next ones, so it claims as often. */
const YOUNG_MS = 10_000;
/** Leaving is a courtesy: if the server does not get it, the leases are free after their time. */
const LEAVE_MS_MAX = 3_000;
/** The share of the time to hand over that work may use; the rest is for giving back. */
const HAND_OVER_SHARE = 0.9;

/** The errors of reading a stream whose life is over. */
const GONE = [
  "stream_not_found",
  "stream_gone",
  "stream_replaced",
  "offset_beyond_tail",
] as const satisfies readonly ErrorCode[];

export interface MembershipOptions {
  readonly group: string;
  readonly name: string;
  readonly max: number | undefined;
  readonly heartbeatMs: number | undefined;
  readonly patienceMs: number;
  readonly onEvent: ((event: ConsumerEvent) => void) | undefined;
}

export interface MembershipParts<T> {
  readonly caller: Caller;
  readonly addresses: Addresses;
  readonly transactions: ClientTransactions;
  readonly sources: Sources;
  readonly options: MembershipOptions;
  readonly ready: (held: ConsumerLease<T>) => void;
  readonly withdraw: (held: ConsumerLease<T>) => void;
  /** Called with an error that no retry can cure. */
  readonly failed: (error: unknown) => void;
}

export class Membership<T> {
  readonly #parts: MembershipParts<T>;
  readonly #committer: Committer;
  readonly #lives = new KnownLives();
  readonly #held = new Map<number, ConsumerLease<T>>();
  /** Tokens that were given back, until no answer can have them any more. */
  readonly #returned = new Set<number>();
  /** The leases to give back, by member, until they are sent. */
  readonly #returning = new Map<string, readonly { stream: string; token: number }[]>();
  readonly #stop = new AbortController();
  #member: string | undefined;
  #leaseMs = 30_000;
  /** When the last claim that was answered was sent. */
  #claimedMs = 0;
  #joinedMs = 0;
  #isShort = false;
  #leaving: Promise<void> | undefined;
  #wake: () => void = () => undefined;

  constructor(parts: MembershipParts<T>) {
    this.#parts = parts;
    this.#committer = new Committer(parts.caller, parts.addresses, (member, streams) => {
      if (member === this.#member) this.#ask(new Set(streams), false);
    });
  }

  /** The id of the member at the server; it changes when it joins again. */
  get member(): string | undefined {
    return this.#member;
  }

  get leaseCount(): number {
    return this.#held.size;
  }

  /** Joins, claims for the first time, and keeps claiming. */
  async open(): Promise<void> {
    await this.#beat();
    void this.#beatOn();
  }

  /** Leaves the group: its leases are free for others at once. */
  leave(): Promise<void> {
    this.#leaving ??= this.#leave();
    return this.#leaving;
  }

  async #leave(): Promise<void> {
    const reason = leaseLost("the consumer was closed");
    this.#stop.abort(reason);
    this.#wake();
    for (const held of [...this.#held.values()]) this.#end(held, reason);
    const member = this.#member;
    if (member === undefined) return;
    try {
      await this.#call("leave", { member }, undefined, LEAVE_MS_MAX);
    } catch (error) {
      if (!isHapaxError(error)) throw error;
    }
  }

  /** Sends every claim at its time, one after the other. */
  async #beatOn(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      await this.#sleep();
      try {
        if (!signal.aborted) await this.#persist(() => this.#beat(), signal);
      } catch (error) {
        if (!signal.aborted) this.#parts.failed(error);
        return;
      }
    }
  }

  /** Repeats work that an outage has interrupted, within the patience. */
  async #persist(work: () => Promise<void>, signal: AbortSignal): Promise<void> {
    const { caller, options } = this.#parts;
    const sinceMs = this.#nowMs();
    for (let failures = 1; ; failures += 1) {
      try {
        await work();
        return;
      } catch (error) {
        const isPatient = this.#nowMs() - sinceMs < options.patienceMs && !signal.aborted;
        if (!isHapaxError(error) || error.retry === "never" || !isPatient) throw error;
        this.#tell({ kind: "retrying", error });
        await caller.pause(failures, signal);
      }
    }
  }

  async #beat(): Promise<void> {
    for (;;) {
      this.#member ??= await this.#join();
      try {
        await this.#claim(this.#member);
        return;
      } catch (error) {
        if (!isHapaxError(error, "member_lost")) throw error;
        this.#forget(error);
      }
    }
  }

  async #join(): Promise<string> {
    const { name } = this.#parts.options;
    const answer = await this.#call("join", { name }, this.#stop.signal);
    const member = answer.get("member");
    if (typeof member !== "string") throw new HapaxError("internal", "a join without a member");
    this.#leaseMs = numberIn(answer, "leaseMs") ?? this.#leaseMs;
    this.#joinedMs = this.#nowMs();
    this.#tell({ kind: "joined", member });
    return member;
  }

  async #claim(member: string): Promise<void> {
    const { max } = this.#parts.options;
    const sentMs = this.#nowMs();
    const returned = [...this.#returned];
    const body = { member, ...(max === undefined ? {} : { max }) };
    const answer = await this.#call("claim", body, this.#stop.signal);
    if (this.#stop.signal.aborted || member !== this.#member) return;
    const { leases: found, handOver, share, leaseMs = this.#leaseMs } = claimOf(answer);
    this.#leaseMs = leaseMs;
    for (const [token, held] of this.#held) {
      if (!found.has(token)) this.#vanished(held);
    }
    for (const token of returned) if (!found.has(token)) this.#returned.delete(token);
    // A stream that is asked back now was not asked back in the answer to the claim before.
    this.#ask(handOver, true);
    this.#claimedMs = sentMs;
    for (const [token, claimed] of found) {
      if (!this.#held.has(token) && !this.#returned.has(token)) this.#adopt(claimed, token, member);
    }
    this.#isShort = this.#held.size < share;
  }

  #adopt({ stream, life, offset }: ClaimedStream, token: number, member: string): void {
    const { group } = this.#parts.options;
    assert(!this.#held.has(token), "a lease is held twice");
    try {
      this.#lives.meet(stream, life);
    } catch (error) {
      this.#parts.failed(error);
      return;
    }
    const lease = { group, member, stream, token };
    const held: ConsumerLease<T> = new ConsumerLease<T>(lease, life, offset, {
      ready: this.#parts.ready,
      withdraw: this.#parts.withdraw,
      commit: (one, to, isLast) => this.#commit(one, to, isLast),
      handOver: (one) => {
        this.#handOver(one);
      },
      refused: (one, error) => {
        this.#refused(one, error);
      },
    });
    this.#held.set(token, held);
    this.#tell({ kind: "leased", stream, token });
    void this.#read(held);
  }

  async #read(held: ConsumerLease<T>): Promise<void> {
    const { stream, token } = held.lease;
    const { signal } = held;
    const { committed, life } = held;
    const batches = this.#parts.sources.batches<T>(stream, life, committed, signal);
    try {
      let coming = batches.next();
      for (;;) {
        const { value: batch, done } = await coming;
        if (done === true) break;
        // If there is a next page, it is requested while the workers process this one.
        const isBehind = !batch.upToDate && !batch.closed;
        if (isBehind) {
          coming = batches.next();
          coming.catch(() => undefined);
        }
        if (batch.records.length > 0) await held.offer(batch);
        else if (batch.closed) await held.finish(batch);
        if (signal.aborted) return;
        if (!isBehind) coming = batches.next();
      }
      if (!this.#held.delete(token)) return;
      this.#tell({ kind: "finished", stream, token });
      held.end(leaseLost("the stream is closed, and all of it committed"));
      this.#hurry();
    } catch (error) {
      if (!signal.aborted) this.#unreadable(held, error);
    } finally {
      await batches.return();
    }
  }

  /** Ends the lease if the stream is gone; reports every other failure to the user. */
  #unreadable(held: ConsumerLease<T>, error: unknown): void {
    const isGone = GONE.some((code) => isHapaxError(error, code));
    const isLost = isHapaxError(error, "lease_lost") || isHapaxError(error, "member_lost");
    if (isHapaxError(error) && (isGone || isLost)) {
      this.#lose(held, error);
      if (isGone) this.#giveBack(held);
    } else {
      this.#parts.failed(error);
    }
  }

  async #commit(held: ConsumerLease<T>, offset: string, isLast: boolean): Promise<void> {
    const { transactions } = this.#parts;
    // The lease ends with the last commit of a closed stream, so a repetition would be refused. The server recognises a
    // repeated transaction.
    const commit = (): Promise<void> =>
      isLast
        ? transactions.commitLease(held.lease, offset)
        : this.#committer.commit(held.lease, offset);
    try {
      await this.#persist(commit, held.signal);
    } catch (error) {
      if (isHapaxError(error)) this.#refused(held, error);
      throw error;
    }
  }

  #refused(held: ConsumerLease<T>, error: HapaxError): void {
    if (error.code === "member_lost") {
      if (held.lease.member === this.#member) this.#forget(error);
    } else if (error.code === "lease_lost") {
      this.#lose(held, error);
    } else {
      return;
    }
    this.#hurry();
  }

  #forget(error: HapaxError): void {
    this.#member = undefined;
    this.#tell({ kind: "member_lost", error });
    for (const held of [...this.#held.values()]) this.#lose(held, error);
  }

  /** Handles a lease that is not in the server's answer any more. */
  #vanished(held: ConsumerLease<T>): void {
    // The commit of its end is on its way, or was just answered.
    if (held.isLast) return;
    this.#lose(held, leaseLost("another member may have the stream now"));
  }

  #lose(held: ConsumerLease<T>, error: HapaxError): void {
    if (!this.#end(held, error)) return;
    const { stream, token } = held.lease;
    this.#tell({ kind: "lost", stream, token, error });
  }

  #end(held: ConsumerLease<T>, reason: HapaxError): boolean {
    const wasHeld = this.#held.delete(held.lease.token);
    held.end(reason);
    return wasHeld;
  }

  /** Asks streams back; with `isAll` the member keeps all others. */
  #ask(streams: ReadonlySet<string>, isAll: boolean): void {
    const { clock } = this.#parts.caller.options;
    for (const held of [...this.#held.values()]) {
      const { stream, token } = held.lease;
      if (!streams.has(stream)) {
        if (isAll) held.keep();
        continue;
      }
      if (held.isAsked) continue;
      this.#tell({ kind: "asked", stream, token });
      const endMs = this.#claimedMs + this.#leaseMs * HAND_OVER_SHARE;
      held.ask((run) => clock.after(Math.max(0, endMs - this.#nowMs()), run));
    }
  }

  #handOver(held: ConsumerLease<T>): void {
    const { stream, token } = held.lease;
    if (!this.#end(held, leaseLost("the stream was asked back"))) return;
    this.#giveBack(held);
    this.#tell({ kind: "handed_over", stream, token });
  }

  /** Gives a lease back. Leases of the same turn go together. */
  #giveBack({ lease: { member, stream, token } }: ConsumerLease<T>): void {
    this.#returned.add(token);
    const others = this.#returning.get(member);
    if (others === undefined) queueMicrotask(() => this.#release(member));
    this.#returning.set(member, [...(others ?? []), { stream, token }]);
  }

  #release(member: string): void {
    const body = { member, leases: this.#returning.get(member) };
    this.#returning.delete(member);
    this.#call("release", body, this.#stop.signal).catch((error: unknown) => {
      // A lease that is not given back is free when its time is over.
      if (isHapaxError(error)) this.#tell({ kind: "retrying", error });
    });
  }

  /** Claims soon: a stream may be free. */
  #hurry(): void {
    this.#isShort = true;
    this.#wake();
  }

  #sleep(): Promise<void> {
    const { clock } = this.#parts.caller.options;
    const { heartbeatMs = Infinity } = this.#parts.options;
    const beatMs = Math.min(heartbeatMs, this.#leaseMs / 3);
    const isEager = this.#isShort || this.#nowMs() - this.#joinedMs < YOUNG_MS;
    const dueMs = this.#claimedMs + (isEager ? Math.min(SHORT_MS_MAX, beatMs) : beatMs);
    return new Promise((resolve) => {
      const cancel = clock.after(Math.max(1, dueMs - this.#nowMs()), resolve);
      this.#wake = () => {
        this.#wake = () => undefined;
        cancel();
        resolve(this.#stop.signal.aborted ? undefined : this.#sleep());
      };
    });
  }

  #call(
    action: string,
    body: unknown,
    signal: AbortSignal | undefined,
    limitMs?: number,
  ): Promise<ReadonlyMap<string, unknown>> {
    const { caller, addresses, options } = this.#parts;
    const url = addresses.group(options.group, action);
    // An attempt without an answer must not use up the time of the next ones.
    const timeoutMs = Math.min(caller.options.timeoutMs, this.#leaseMs / 3, limitMs ?? Infinity);
    const call = { method: "POST", url, signal, timeoutMs };
    const pauseMsMax = Math.min(caller.options.retry.pauseMsMax, Math.max(1, this.#leaseMs / 6));
    const pauseMs = Math.min(caller.options.retry.pauseMs, pauseMsMax);
    return callJson(
      withRetry(caller, {
        ...(limitMs === undefined ? {} : { totalMs: limitMs }),
        pauseMsMax,
        pauseMs,
      }),
      call,
      body,
    );
  }

  #nowMs(): number {
    return this.#parts.caller.options.clock.steadyMs();
  }

  #tell(event: ConsumerEvent): void {
    this.#parts.options.onEvent?.(event);
  }
}
