/**
 * A node of a cluster: it takes any request, and answers it with the shards that it owns or with the nodes that own the others.
 *
 * Each shard is a whole server over a store of its own, so a request takes the same way as on one machine. Requests that
 * belong to no stream are answered by a server without streams, the front.
 *
 *   - CL1 a shard answers only while this node owns it and its lease is valid by its own steady clock;
 *   - CL2 a shard that is given up first answers what runs on it; new requests wait for the next owner.
 */

import { HapaxError } from "../../base/errors.ts";
import { LIMITS } from "../../protocol/all-limits.ts";
import type { Cluster, ShardHost } from "../cluster.ts";
import { type ShardId, shardOfPlacement } from "../core/placement.ts";
import {
  createServer,
  type HapaxServer,
  type RequestServer,
  type ServerComponents,
  type ServerOptions,
} from "../server.ts";
import { AnswerBudget } from "../server/answer-budget.ts";
import { Decoding } from "../server/decoding.ts";
import type { Exchange, ServerAnswer } from "../server/exchange.ts";
import { createGate, type Gate, OPEN_GATE } from "../server/gate.ts";
import type { Reloaded } from "../server/reload.ts";
import { createSigner, deriveSigningKey, readToken, type Signer } from "../signer.ts";
import type { Store } from "../store.ts";
import { Forwarding, type ForwardCounts, mayBeResent } from "./forwarding.ts";
import { Gathering, type Writing } from "./gathering.ts";
import { KeptExchange } from "./kept-exchange.ts";
import { LocalShard } from "./local-shard.ts";
import { NodeRefusals, withOwner } from "./own-answers.ts";
import type { Peers } from "./peers.ts";
import { Placing } from "./placing.ts";
import { whereOf } from "./where.ts";

/** Beyond the longest that a call waits for news: a commit, and the way to the owner and back. */
const ANSWER_MS = 15_000;
/** It is no secret. */
const SIGNING_SALT = "cluster";

export interface ClusterComponents extends Omit<ServerComponents, "store"> {
  readonly cluster: Cluster;
  readonly peers: Peers;
  /** A store without streams, for what belongs to no shard. */
  readonly emptyStore: Store;
}

export interface ClusterServer extends RequestServer {
  /**
   * Answers a request that another node has forwarded. `moved`: this node does not own the shard, and has done nothing. `lost`: it
   * has lost the shard meanwhile, and what it has done is perhaps not stored.
   */
  handlePeer(shard: ShardId, exchange: Exchange): Promise<ServerAnswer | "moved" | "lost">;
  reload(options: ServerOptions): Reloaded;
  readonly counts: ForwardCounts;
  /** Takes part in the cluster. */
  join(): Promise<void>;
  /** Gives all shards up; requests go on to their next owners. */
  leave(): Promise<void>;
  close(): Promise<void>;
}

export function createClusterServer(
  components: ClusterComponents,
  options: ServerOptions = {},
): ClusterServer {
  if (options.testFaults === true) {
    throw new HapaxError("invalid_options", "a node of a cluster takes no test faults");
  }
  return new Node(components, options);
}

class Node implements ClusterServer, ShardHost {
  // Data and not a getter: the lane looks at it with every answer.
  isDraining = false;
  readonly #parts: ClusterComponents;
  readonly #cluster: Cluster;
  readonly #front: HapaxServer;
  readonly #shards = new Map<ShardId, LocalShard>();
  readonly #answers: AnswerBudget;
  readonly #gate: Gate;
  readonly #forwarding: Forwarding;
  readonly #placing: Placing;
  readonly #gathering: Gathering;
  readonly #refusals: NodeRefusals;
  #given: ServerOptions;
  #signer: Signer | undefined;

  constructor(parts: ClusterComponents, options: ServerOptions) {
    this.#parts = parts;
    this.#given = options;
    this.#cluster = parts.cluster;
    const { clock, authorize, onFault, cluster, emptyStore } = parts;
    const { supports } = cluster;
    const store: Store = { ...emptyStore, supports, secret: () => cluster.secret() };
    this.#front = createServer({ ...parts, store }, options);
    const resolved = this.#front.options;
    const timeoutMs = resolved.authorizeTimeoutMs;
    this.#answers = new AnswerBudget(clock, resolved.answersBytesMax);
    this.#gate =
      authorize === undefined ? OPEN_GATE : createGate({ authorize, timeoutMs, clock, onFault });
    // Not the one of the shards: two nodes could wait for each other to take what they send.
    const forwarded = new AnswerBudget(clock, resolved.answersBytesMax);
    this.#forwarding = new Forwarding({
      cluster,
      peers: parts.peers,
      clock,
      bodyBytesMax: () => Math.max(this.options.bodyBytesMax, LIMITS.groupBodyBytesMax),
      answerMs: () => Math.max(this.options.longPollMs, LIMITS.longPollMs) + ANSWER_MS,
      room: (bytes, client) => forwarded.take(bytes, client),
      local: (shard, exchange) => this.#local(shard, exchange),
    });
    this.#placing = new Placing({
      names: cluster.names,
      gate: this.#gate,
      decoding: new Decoding(parts.decompress),
      engine: this.#front.engine,
      hasIssued: (token) => this.#hasIssued(token),
      options: () => this.options,
    });
    this.#refusals = new NodeRefusals(parts, () => this.options);
    this.#gathering = new Gathering({
      cluster,
      gate: this.#gate,
      counts: this.#forwarding.counts,
      owned: () => [...this.#shards.keys()],
      writing: () => this.#writing(),
      onShard: (shard, exchange) => this.#onShard(shard, exchange),
      engine: this.#front.engine,
    });
  }

  get options(): HapaxServer["options"] {
    return this.#front.options;
  }

  get counts(): ForwardCounts {
    return this.#forwarding.counts;
  }

  nextRequestId(): string {
    return this.#front.nextRequestId();
  }

  async handle(exchange: Exchange): Promise<ServerAnswer> {
    try {
      return await this.#dispatch(exchange);
    } catch (error) {
      return this.#refusals.answer(exchange, error);
    }
  }

  async handlePeer(shard: ShardId, exchange: Exchange): Promise<ServerAnswer | "moved" | "lost"> {
    try {
      const local = this.#local(shard, new KeptExchange(exchange));
      if (local === undefined) return "moved";
      const answer = await local;
      return this.#isLost(shard, answer) ? "lost" : answer;
    } catch (error) {
      return this.#refusals.answer(exchange, error);
    }
  }

  take(shard: ShardId, store: Store): void {
    this.#shards.get(shard)?.drop();
    // All shards sign with the same keys: a receiver of webhooks does not know of shards.
    const shared = Object.assign(store, { signingSalt: SIGNING_SALT });
    // The root's registry is of one shard, and would have the streams of that shard alone.
    const hasRootRegistry = this.#parts.cluster.shards === 1;
    const parts = { ...this.#parts, hasRootRegistry };
    const components = { ...parts, store: shared, answers: this.#answers };
    const server = createServer(components, this.#given);
    this.#shards.set(shard, new LocalShard(server, this.#parts.clock));
    this.changed();
  }

  async giveUp(shard: ShardId): Promise<void> {
    const local = this.#shards.get(shard);
    if (local === undefined) return;
    await local.leave();
    if (this.#shards.get(shard) === local) this.#shards.delete(shard);
  }

  lose(shard: ShardId): void {
    this.#shards.get(shard)?.drop();
    this.#shards.delete(shard);
    this.changed();
  }

  changed(): void {
    this.#forwarding.changed();
  }

  join(): Promise<void> {
    return this.#cluster.join(this);
  }

  leave(): Promise<void> {
    return this.#cluster.leave();
  }

  drain(): void {
    this.isDraining = true;
    this.#front.drain();
  }

  reload(options: ServerOptions): Reloaded {
    const reloaded = this.#front.reload(options);
    this.#given = options;
    for (const { server } of this.#shards.values()) server.reload(options);
    return reloaded;
  }

  async close(): Promise<void> {
    this.drain();
    for (const shard of [...this.#shards.keys()]) await this.giveUp(shard);
    await this.#front.close();
    await this.#cluster.close();
  }

  async #dispatch(exchange: Exchange): Promise<ServerAnswer> {
    const { shards } = this.#cluster;
    const where = whereOf(exchange, shards);
    const kept = new KeptExchange(exchange);
    switch (where.kind) {
      case "placement":
        return this.#onShard(shardOfPlacement(where.placement, shards), kept);
      case "front":
        return this.#front.handle(exchange);
      case "any":
        return this.#onPlacement(undefined, kept);
      case "transaction":
        return this.#onPlacement(await this.#placing.ofTransaction(kept), kept);
      case "named":
        return this.#onPlacement(await this.#placing.ofNamed(kept, where), kept);
      default: {
        const own = await this.#gathering.answer(where, exchange, kept);
        return own.isFinished ? own.answer : this.#refusals.finish(exchange, own.answer);
      }
    }
  }

  /** All shards sign with one key. The only shard of a cluster may have begun on a server alone, with a key of its own. */
  async #hasIssued(token: string): Promise<boolean> {
    if (this.#cluster.shards === 1) return true;
    this.#signer ??= await this.#openSigner();
    return (await readToken(this.#signer, token, 0)).kind !== "invalid";
  }

  async #openSigner(): Promise<Signer> {
    const salt = { salt: SIGNING_SALT, createdAtMs: 0 };
    return createSigner([await deriveSigningKey(await this.#cluster.secret(), salt)]);
  }

  /** A shard that is given up, or that another node has taken, counts no more. */
  #writing(): Writing {
    const engines = [...this.#shards.values()]
      .filter(({ isLeaving, isMoved }) => !isLeaving && !isMoved)
      .map(({ server }) => server.engine);
    const stopped = engines.find((engine) => engine.stopped !== undefined)?.stopped;
    return { stopped, isFull: engines.some(({ isFull }) => isFull) };
  }

  /** What is about no placement is refused by a shard, with the words that it has for that. */
  #onPlacement(placement: string | undefined, exchange: KeptExchange): Promise<ServerAnswer> {
    if (placement !== undefined) {
      return this.#onShard(shardOfPlacement(placement, this.#cluster.shards), exchange);
    }
    const [owned] = this.#shards.keys();
    return this.#onShard(owned ?? (0 as ShardId), exchange);
  }

  async #onShard(shard: ShardId, exchange: KeptExchange): Promise<ServerAnswer> {
    const local = this.#local(shard, exchange);
    if (local !== undefined) return this.#settled(shard, exchange, await local);
    // On its way the head is made anew: the owner would not see what was wrong with it.
    exchange.checkHead();
    // A stranger is refused here. The owner checks the same credential again, and decides what it allows.
    if (this.#gate.isGuarded && !isOpenToAll(exchange)) await this.#gate.admit(exchange);
    return this.#forwarding.send(shard, exchange);
  }

  #local(shard: ShardId, exchange: KeptExchange): Promise<ServerAnswer> | undefined {
    const local = this.#shards.get(shard);
    if (local === undefined || local.isLeaving || !this.#cluster.isValid) return undefined;
    const owner = this.#cluster.ownerOf(shard)?.url;
    const answered = local.answer(exchange);
    return owner === undefined ? answered : answered.then((answer) => withOwner(answer, owner));
  }

  /** A shard that was lost meanwhile: its next owner knows what became of the call. */
  #settled(
    shard: ShardId,
    exchange: KeptExchange,
    answer: ServerAnswer,
  ): ServerAnswer | Promise<ServerAnswer> {
    if (!this.#isLost(shard, answer) || !mayBeResent(exchange)) return answer;
    return this.#forwarding.send(shard, exchange);
  }

  /** Whether the shard had another owner when the answer was made. */
  #isLost(shard: ShardId, answer: ServerAnswer): boolean {
    if (answer.status !== 503 || this.#shards.get(shard)?.isMoved !== true) return false;
    this.lose(shard);
    this.#cluster.look();
    return true;
  }
}

/** Routes that everybody may call, or whose callers have a token of a wake in the place of a credential. */
function isOpenToAll({ path }: KeptExchange): boolean {
  return /^\/v1\/stream\/__ds\/jwks\.json$|^\/v1\/stream\/__ds\/subscriptions\/[^/]+\/(callback|ack|release)$/.test(
    path,
  );
}
