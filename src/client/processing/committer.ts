/**
 * Sends commits of leases, many in one request. PROTOCOL.md §20.3.
 *
 *   - a commit is confirmed when the server has confirmed it, with the token of its lease;
 *   - a refused commit does not fail its neighbours.
 *
 * While one request is on its way the next one fills, so that many leases cost as many requests as one.
 */

import { assert } from "../../base/assert.ts";
import type { HapaxError } from "../../base/errors.ts";
import type { Caller } from "../attempt.ts";
import { jsonCall, memberMapOf, settleCall, textsOf } from "./calls.ts";
import type { Lease } from "./lease.ts";
import type { Addresses } from "./paths.ts";

/** Commits of one request: about 200 bytes each, far below the limit of a body. */
const COMMITS_MAX = 1000;

interface Waiting {
  readonly lease: Lease;
  readonly offset: string;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

export class Committer {
  readonly #caller: Caller;
  readonly #addresses: Addresses;
  readonly #onHandOver: (member: string, streams: readonly string[]) => void;
  #queue: Waiting[] = [];
  #isSending = false;

  constructor(
    caller: Caller,
    addresses: Addresses,
    onHandOver: (member: string, streams: readonly string[]) => void,
  ) {
    this.#caller = caller;
    this.#addresses = addresses;
    this.#onHandOver = onHandOver;
  }

  commit(lease: Lease, offset: string): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#queue.push({ lease, offset, resolve, reject });
      if (!this.#isSending) void this.#sendAll();
    });
  }

  async #sendAll(): Promise<void> {
    this.#isSending = true;
    // Commits of the same turn go together.
    await Promise.resolve();
    while (this.#queue.length > 0) {
      const batch = this.#nextBatch();
      assert(batch.length > 0, "commits wait, and no request takes one");
      const taken = new Set(batch);
      this.#queue = this.#queue.filter((waiting) => !taken.has(waiting));
      await this.#send(batch);
    }
    this.#isSending = false;
  }

  /** Takes commits of one member, and each lease once: the server takes no stream twice. */
  #nextBatch(): readonly Waiting[] {
    const member = this.#queue[0]?.lease.member;
    const tokens = new Set<number>();
    const batch = this.#queue.filter(({ lease }) => {
      if (lease.member !== member || tokens.has(lease.token)) return false;
      tokens.add(lease.token);
      return true;
    });
    return batch.slice(0, COMMITS_MAX);
  }

  async #send(batch: readonly Waiting[]): Promise<void> {
    const refusal = await this.#post(batch);
    if (refusal === undefined) for (const { resolve } of batch) resolve();
    else if (batch.length === 1) batch[0]?.reject(refusal);
    // Sent alone, each commit gets its own answer.
    else for (const waiting of batch) await this.#send([waiting]);
  }

  async #post(batch: readonly Waiting[]): Promise<unknown> {
    const [first] = batch;
    if (first === undefined) return undefined;
    const { group, member } = first.lease;
    const commits = batch.map(({ lease: { stream, token }, offset }) => ({
      stream,
      token,
      offset,
    }));
    const call = { method: "POST", url: this.#addresses.group(group, "commit") };
    try {
      const settled = await settleCall(this.#caller, jsonCall(call, { member, commits }));
      const error: HapaxError | undefined = settled.refusal?.error;
      if (error !== undefined) return error;
      this.#onHandOver(member, textsOf(memberMapOf(settled.text).get("handOver")));
      return undefined;
    } catch (error) {
      return error;
    }
  }
}
