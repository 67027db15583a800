/**
 * Gets a request to the owner of its shard, wherever that is, and its answer back.
 *
 *   - FW1 a request goes on only if no owner has done it so far, or if doing it again does no harm: it reads, it creates, or
 *     it has an identity. For any other one the client hears that its outcome is not known;
 *   - FW2 a request that came from another node goes no further, so there are no loops;
 *   - FW3 what waits for an owner waits no longer than `waitMs`;
 *   - FW4 an owner that has taken a request answers it within `answerMs`, or counts as lost. A live answer goes on for longer.
 */

import type { Clock } from "../../base/clock.ts";
import { HapaxError } from "../../base/errors.ts";
import { SENT } from "../../protocol/headers.ts";
import type { Cluster, ShardOwner } from "../cluster.ts";
import type { ShardId } from "../core/placement.ts";
import type { Exchange, LiveAnswer, ServerAnswer } from "../server/exchange.ts";
import type { KeptExchange } from "./kept-exchange.ts";
import type { AnswerRoom, PeerOutcome, Peers } from "./peers.ts";

/** How long a request waits for an owner, and how often it asks for news meanwhile. A next owner replays the journal of the shard. */
const WAIT_MS = 5000;
const LOOK_MS = 100;

export interface ForwardingParts {
  readonly cluster: Cluster;
  readonly peers: Peers;
  readonly clock: Clock;
  readonly bodyBytesMax: () => number;
  readonly answerMs: () => number;
  /** Waits for the memory of an answer on its way to a client. */
  readonly room: (bytes: number, client: string) => Promise<AnswerRoom>;
  /** Answers on this node, if it owns the shard now. */
  readonly local: (shard: ShardId, exchange: KeptExchange) => Promise<ServerAnswer> | undefined;
  readonly waitMs?: number;
}

export interface ForwardCounts {
  forwarded: number;
  resent: number;
  lost: number;
  waited: number;
}

export class Forwarding {
  readonly counts: ForwardCounts = { forwarded: 0, resent: 0, lost: 0, waited: 0 };
  readonly #parts: ForwardingParts;
  readonly #waiters = new Set<() => void>();
  /** Forwarded requests without an end, with the owner that each was sent to. */
  readonly #open = new Map<AbortController, { readonly shard: ShardId; readonly peer: string }>();

  constructor(parts: ForwardingParts) {
    this.#parts = parts;
  }

  /** Owners may have changed: what waits looks again, and what was sent to a former owner is not waited for. */
  changed(): void {
    for (const wake of [...this.#waiters]) wake();
    for (const [controller, { shard, peer }] of [...this.#open]) {
      const owner = this.#parts.cluster.ownerOf(shard);
      // Without an owner the last one may still answer.
      if (owner !== undefined && owner.peer !== peer) controller.abort();
    }
  }

  async send(shard: ShardId, exchange: KeptExchange): Promise<ServerAnswer> {
    const { clock, waitMs = WAIT_MS } = this.#parts;
    const deadlineMs = clock.steadyMs() + waitMs;
    let isUncertain = false;
    for (let attempt = 0; ; attempt += 1) {
      const local = this.#parts.local(shard, exchange);
      if (local !== undefined) return local;
      const owner = this.#parts.cluster.ownerOf(shard);
      const outcome = await this.#try(shard, owner, exchange);
      if (outcome?.kind === "answered") return outcome.answer;
      if (outcome?.kind === "lost") {
        this.counts.lost += 1;
        isUncertain = true;
        if (!mayBeResent(exchange)) throw lost();
      }
      if (attempt === 0) this.counts.waited += 1;
      else this.counts.resent += 1;
      const leftMs = deadlineMs - clock.steadyMs();
      if (leftMs <= 0 || exchange.isGone) throw isUncertain ? lost() : unknown();
      await this.#wait(Math.min(LOOK_MS, leftMs));
    }
  }

  async #try(
    shard: ShardId,
    owner: ShardOwner | undefined,
    exchange: KeptExchange,
  ): Promise<PeerOutcome | undefined> {
    if (owner === undefined || owner.isSelf || owner.peer === undefined) return undefined;
    const body = exchange.hasBody ? await exchange.body(this.#parts.bodyBytesMax()) : undefined;
    const controller = new AbortController();
    this.#open.set(controller, { shard, peer: owner.peer });
    exchange.onAbort(() => {
      // A live answer to a client that has gone is never begun.
      this.#open.delete(controller);
      controller.abort();
    });
    this.counts.forwarded += 1;
    const cancel = this.#parts.clock.after(this.#parts.answerMs(), () => {
      controller.abort();
    });
    let isLive = false;
    try {
      const { method, path, query } = exchange;
      const outcome = await this.#parts.peers.send(owner.peer, {
        shard,
        method,
        target: query === "" ? path : `${path}?${query}`,
        lines: exchange.lines(),
        body,
        client: {
          address: exchange.peer,
          certificate: exchange.certificate,
          baseUrl: exchange.baseUrl,
          authority: exchange.authority,
        },
        wantsWhole: exchange.wantsWhole,
        room: (bytes) => this.#parts.room(bytes, exchange.peer),
        signal: controller.signal,
      });
      if (outcome.kind !== "answered" || !("live" in outcome.answer)) return outcome;
      isLive = true;
      return { kind: "answered", answer: this.#followed(outcome.answer, controller) };
    } finally {
      cancel();
      if (!isLive) this.#open.delete(controller);
    }
  }

  /** A live answer ends with its owner: the reader comes again, and is led to the next one. */
  #followed(answer: LiveAnswer, controller: AbortController): LiveAnswer {
    return {
      ...answer,
      live: (sink) => {
        sink.onClose(() => {
          this.#open.delete(controller);
          controller.abort();
        });
        answer.live(sink);
      },
    };
  }

  #wait(ms: number): Promise<void> {
    this.#parts.cluster.look();
    return new Promise((resolve) => {
      const done = (): void => {
        this.#waiters.delete(done);
        cancel();
        resolve();
      };
      const cancel = this.#parts.clock.after(ms, done);
      this.#waiters.add(done);
    });
  }
}

/** Whether doing a request twice does what doing it once does. */
export function mayBeResent(exchange: Pick<Exchange, "method" | "header">): boolean {
  const { method } = exchange;
  if (method === "GET" || method === "HEAD" || method === "PUT") return true;
  const names = [SENT.producerId, SENT.idempotencyKey];
  return names.some((name) => exchange.header(name) !== undefined);
}

function unknown(): HapaxError {
  return new HapaxError("owner_unknown", "no server owns the streams of this placement now");
}

function lost(): HapaxError {
  const words =
    "the server that owned the stream was lost before it answered: the call was done, or not";
  return new HapaxError("shard_moved", words);
}
