/**
 * A cluster over one PostgreSQL: each node looks at the rows of all nodes and shards a few times in a lease, and makes the same plan
 * as the others (core/assignment.ts). It takes what is its own by that plan, and gives up what is not.
 *
 *   - PC1 safety rests on the epoch in every commit, and on nothing here;
 *   - PC2 `isValid` ends before any other node may answer for a shard: a lease of this node, less a margin, after the last sign of life
 *     that was stored, counted from when it was sent. After the connection of another node has ended (`doubt`), which may take this
 *     process for gone, it is `DOUBT_VALID_MS` for a while, and a node that takes over from one that is gone answers later than that;
 *   - PC3 signs of life do not wait for a shard that is opened or given up;
 *   - PC4 an epoch that falls means that the database has gone back: this node takes nothing more, and answers for nothing.
 */

import type { Clock } from "../../base/clock.ts";
import { pause } from "../../base/pause.ts";
import type { Cluster, ClusterState, ShardOwner, ShardHost } from "../cluster.ts";
import { decidePlan, isFollower, type SeenNode, type SeenShard } from "../core/assignment.ts";
import type { ShardId } from "../core/placement.ts";
import type { StoreSupport } from "../store.ts";
import type { PostgresStoreOptions } from "../stores/postgres/contract.ts";
import { keepsPromise } from "../stores/postgres/engine-checks.ts";
import { ShardFollower } from "../stores/postgres/follower.ts";
import { openOnTables } from "../stores/postgres/postgres-store.ts";
import { PostgresTables } from "../stores/postgres/postgres-tables.ts";
import type { ClusterRow } from "../stores/postgres/schema.ts";
import type { Session } from "../stores/postgres/session.ts";
import {
  type ClusterRows,
  type ClusterView,
  type FoundNode,
  type NodeFacts,
} from "./cluster-rows.ts";
import { ClusterTables } from "./cluster-tables.ts";
import { NodeSuspicion } from "./node-suspicion.ts";
import { NodeWatch } from "./node-watch.ts";
import type { Peers, PeerWatch } from "./peers.ts";
import { ShardFollowers } from "./shard-followers.ts";

/** How often in a lease a node gives a sign of life and looks at the others. */
const SIGNS = 5;
/** The part of a lease for which a node answers after its last sign of life. */
const VALID_SHARE = 0.8;
/** The part of a lease for which an owner waits before it gives a shard to a node that is to make a copy first. */
const COPY_SHARE = 0.5;
/** How long a node that others may take for gone gives more signs of life, how often, and how long each of them is worth. */
const DOUBT_MS = 3000;
const DOUBT_LOOK_MS = 50;
const DOUBT_VALID_MS = 250;
/** From a takeover to the first answer, if the former owner was gone and not silent for a lease. A fifth more for its clock. */
const GONE_WAIT_MS = 300;
/** Between two looks that something has asked for. */
const LOOK_MS_MIN = 20;
/** A row of a node that is dead for so many leases, and owns nothing, is removed. */
const FORGET_LEASES = 100;

export interface PostgresClusterParts {
  readonly session: Session;
  /** Quoted. */
  readonly schema: string;
  readonly row: ClusterRow;
  readonly rows: ClusterRows;
  readonly facts: NodeFacts;
  readonly clock: Clock;
  readonly leaseMs: number;
  readonly store: Omit<PostgresStoreOptions, "takeover" | "signal" | "onLost" | "node" | "leaseMs">;
  readonly onNote: (note: string, level?: "warn") => void;
  readonly peers: PeerWatch & Pick<Peers, "nudge">;
  /** Keeps warm copies of what this node would own next. */
  readonly keepsCopies: boolean;
}

/** What this node does with a shard. A shard without an entry is no concern of this node. */
type Mine =
  | { readonly kind: "opening" | "leaving" }
  | { readonly kind: "owned"; readonly epoch: number };

export class PostgresCluster implements Cluster {
  readonly self: string;
  readonly shards: number;
  readonly supports: StoreSupport;
  readonly names: ClusterRows;
  readonly #parts: PostgresClusterParts;
  readonly #watch: NodeWatch;
  readonly #suspicion: NodeSuspicion;
  readonly #followers: ShardFollowers;
  readonly #mine = new Map<ShardId, Mine>();
  /** The nodes that shards of this one are for, and since when. */
  readonly #wanted = new Map<ShardId, { readonly to: string; readonly sinceMs: number }>();
  /** Since when a shard has no owner, by the steady clock. */
  readonly #unowned = new Map<ShardId, number>();
  readonly #deadSince = new Map<string, number>();
  /** Takes and releases that have not ended. */
  readonly #moves = new Set<Promise<void>>();
  /** Shards that could not be opened, and when to try again. */
  readonly #notBefore = new Map<ShardId, number>();
  /** The highest epoch that was seen of each shard. */
  readonly #epochs = new Map<ShardId, number>();
  #found: ClusterView = { nodes: [], shards: [] };
  #nodes: ReadonlyMap<string, FoundNode> = new Map();
  #host: ShardHost | undefined;
  #validUntilMs = -1;
  #doubtedMs = -Infinity;
  #isDraining = false;
  #isReplaced = false;
  #hasGoneBack = false;
  #isClosed = false;
  #takeovers = 0;
  #warmTakeovers = 0;
  #looking: Promise<void> | undefined;
  #isAskedFor = false;
  #cancel: () => void = () => undefined;
  #lastLookMs = -1;

  constructor(parts: PostgresClusterParts) {
    this.#parts = parts;
    this.self = parts.facts.node;
    this.shards = parts.row.shards;
    this.supports = { durability: parts.store.durability ?? "replicated" };
    this.names = parts.rows;
    this.#watch = new NodeWatch(parts.leaseMs);
    const { clock, leaseMs, peers, row } = parts;
    this.#suspicion = new NodeSuspicion({
      clock,
      watch: this.#watch,
      look: () => this.#lookNow(),
      connect: (peer, events) => peers.watch(peer, events),
      onNote: (note) => parts.onNote(note, "warn"),
      isRefused: (peer) => peers.isRefused(peer),
    });
    this.#followers = new ShardFollowers({
      clock,
      lookMs: leaseMs / SIGNS,
      open: (shard) => new ShardFollower(this.#tablesOf(shard), row.storeId),
    });
  }

  get isValid(): boolean {
    return this.#parts.clock.steadyMs() < this.#validUntilMs && !this.#hasGoneBack;
  }

  secret(): Promise<string> {
    return Promise.resolve(this.#parts.row.secret);
  }

  async join(host: ShardHost): Promise<void> {
    this.#host = host;
    await this.#parts.rows.register(this.#parts.facts);
    await this.#lookNow();
    await this.#moved();
  }

  ownerOf(shard: ShardId): ShardOwner | undefined {
    const mine = this.#mine.get(shard);
    const { node: self, url, peer } = this.#parts.facts;
    if (mine !== undefined) {
      return mine.kind === "owned" ? { node: self, url, peer, isSelf: true } : undefined;
    }
    const owner = this.#found.shards[shard]?.owner;
    if (owner === undefined || owner.node === self) return undefined;
    const found = this.#nodes.get(owner.node);
    if (found === undefined || found.life !== owner.life) return undefined;
    return { node: owner.node, url: found.url, peer: found.peer, isSelf: false };
  }

  look(): void {
    if (this.#isClosed) return;
    if (this.#looking !== undefined) {
      this.#isAskedFor = true;
      return;
    }
    const sinceMs = this.#parts.clock.steadyMs() - this.#lastLookMs;
    this.#schedule(Math.max(0, LOOK_MS_MIN - sinceMs));
  }

  /** Another node may take this process for gone. */
  doubt(): void {
    const nowMs = this.#parts.clock.steadyMs();
    this.#doubtedMs = nowMs;
    this.#validUntilMs = Math.min(this.#validUntilMs, nowMs);
    this.look();
  }

  state(): ClusterState {
    const nowMs = this.#parts.clock.steadyMs();
    const { leaseMs } = this.#parts;
    const nodes = this.#found.nodes.map(({ node, isDraining, url, version }) => {
      return { node, isAlive: this.#watch.isAlive(node, nowMs), isDraining, url, version };
    });
    const alive = new Set(nodes.filter(({ isAlive }) => isAlive).map(({ node }) => node));
    return {
      isDraining: this.#isDraining || this.#isReplaced,
      nodes,
      owners: this.#found.shards.map(({ shard, pinned }) => {
        const owner = this.ownerOf(shard)?.node;
        return {
          shard,
          owner: owner !== undefined && alive.has(owner) ? owner : undefined,
          pinned,
        };
      }),
      orphans: [...this.#unowned].filter(([, since]) => nowMs - since > leaseMs).map(([id]) => id),
      takeovers: this.#takeovers,
      warmTakeovers: this.#warmTakeovers,
      copies: this.#followers.warm,
    };
  }

  async leave(): Promise<void> {
    this.#isDraining = true;
    await this.#moved();
    // Gives up what has a next owner. What has none is given up all the same.
    await this.#lookNow();
    await this.#moved();
    const rest = [...this.#mine.keys()];
    await Promise.all(rest.map((shard) => this.#release(shard, undefined)));
  }

  async #moved(): Promise<void> {
    while (this.#moves.size > 0) await Promise.all(this.#moves);
  }

  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#cancel();
    this.#followers.keep(new Set());
    this.#suspicion.keep([]);
    await this.#looking;
    await this.#parts.rows.remove(this.#parts.facts).catch(() => undefined);
    await this.#parts.session.close();
  }

  #schedule(delayMs: number): void {
    this.#cancel();
    this.#cancel = this.#parts.clock.after(delayMs, () => {
      this.#lookNow().catch(() => undefined);
    });
  }

  #lookNow(): Promise<void> {
    this.#cancel();
    const before = this.#looking ?? Promise.resolve();
    const looking = before
      .then(() => this.#lookOnce())
      .finally(() => {
        if (this.#looking !== looking) return;
        this.#looking = undefined;
        if (this.#isClosed) return;
        const isDoubted = this.#parts.clock.steadyMs() - this.#doubtedMs < DOUBT_MS;
        const pauseMs = isDoubted ? DOUBT_LOOK_MS : this.#parts.leaseMs / SIGNS;
        this.#schedule(this.#isAskedFor ? LOOK_MS_MIN : pauseMs);
        this.#isAskedFor = false;
      });
    this.#looking = looking;
    return looking;
  }

  async #lookOnce(): Promise<void> {
    const { clock, rows, facts, leaseMs } = this.#parts;
    const begunMs = clock.steadyMs();
    let found: Awaited<ReturnType<ClusterRows["sign"]>>;
    try {
      found = await rows.sign(facts.node, facts.life, this.#isDraining);
    } catch {
      this.#watch.failed();
      return;
    }
    const endedMs = clock.steadyMs();
    this.#lastLookMs = endedMs;
    this.#watch.saw(found.nodes, begunMs, endedMs);
    this.#found = found;
    this.#nodes = new Map(found.nodes.map((node) => [node.node, node]));
    if (found.isSigned) this.#signed(begunMs, leaseMs * VALID_SHARE);
    else if (!this.#isReplaced) await this.#signedNothing();
    if (this.#nodes.get(facts.node)?.isDraining === true) this.#isDraining = true;
    this.#dropLost();
    if (this.#isInOrder()) this.#follow(endedMs);
    this.#host?.changed();
  }

  /** A sign of life that was sent at this moment is stored. */
  #signed(begunMs: number, validMs: number): void {
    const sinceMs = begunMs - this.#doubtedMs;
    // It was sent before the doubt.
    if (sinceMs < 0) return;
    this.#validUntilMs =
      begunMs + (sinceMs < DOUBT_MS ? Math.min(DOUBT_VALID_MS, validMs) : validMs);
  }

  /** There is no row of this process. */
  async #signedNothing(): Promise<void> {
    const { rows, facts, onNote } = this.#parts;
    const hasOther = this.#nodes.has(facts.node);
    try {
      if (!hasOther && (await rows.registerAgain(facts))) {
        onNote(`the node ${facts.node} was silent for long, and is back`, "warn");
        this.#isAskedFor = true;
        return;
      }
    } catch {
      return; // The next look tries again.
    }
    this.#isReplaced = true;
    const what = hasOther
      ? `another process is the node ${facts.node} now`
      : "the cluster has begun another incarnation";
    onNote(`${what}: this one answers no more, and must be restarted`, "warn");
  }

  /** Whether no epoch has fallen. */
  #isInOrder(): boolean {
    for (const { shard, epoch } of this.#found.shards) {
      const highest = this.#epochs.get(shard) ?? 0;
      if (epoch > highest) this.#epochs.set(shard, epoch);
      if (epoch >= highest || this.#hasGoneBack) continue;
      this.#hasGoneBack = true;
      const words = `the epoch of shard ${shard} is ${epoch}, and was ${highest}`;
      const what = "the database has lost what it had acknowledged";
      this.#parts.onNote(`${what} (engine_went_back): ${words}; this node answers no more`, "warn");
    }
    return !this.#hasGoneBack;
  }

  /** What the rows give to others is lost. The store of such a shard takes nothing more. */
  #dropLost(): void {
    for (const { shard, epoch } of this.#found.shards) {
      const mine = this.#mine.get(shard);
      if (mine?.kind !== "owned" || epoch <= mine.epoch) continue;
      this.#mine.delete(shard);
      this.#host?.lose(shard);
      this.#parts.onNote(`another node has taken shard ${shard} over`, "warn");
    }
  }

  #follow(nowMs: number): void {
    const { facts } = this.#parts;
    const nodes = this.#found.nodes.map((found) => {
      const isSelf = found.node === facts.node;
      const isAlive = isSelf ? !this.#isReplaced : this.#watch.isAlive(found.node, nowMs);
      return { ...found, isAlive, isDraining: isSelf ? this.#isDraining : found.isDraining };
    });
    const shards = this.#found.shards.map((seen) => this.#seenOf(seen));
    for (const { shard, owner } of shards) {
      if (
        owner !== undefined &&
        nodes.some(({ node, isAlive }) => isAlive && node === owner.node)
      ) {
        this.#unowned.delete(shard);
      } else if (!this.#unowned.has(shard)) this.#unowned.set(shard, nowMs);
    }
    this.#forget(nodes, nowMs);
    const others = nodes.filter(({ node, isAlive }) => isAlive && node !== facts.node);
    this.#suspicion.keep(this.#isReplaced ? [] : others);
    const { take, release } = decidePlan(facts, nodes, shards);
    for (const seen of take) {
      const isSoon = (this.#notBefore.get(seen.shard) ?? 0) > nowMs;
      if (!isSoon && !this.#mine.has(seen.shard)) this.#run(this.#take(seen));
    }
    this.#followers.keep(new Set(this.#copied(nodes, shards)));
    const leaving = release.filter(
      ({ shard, to }) => this.#mine.get(shard)?.kind === "owned" && this.#isDue(shard, to, nowMs),
    );
    // A node that drains gives all up at once. Otherwise one after the other: most of the streams go on.
    const now = this.#isDraining ? leaving : leaving.slice(0, 1);
    for (const { shard, to } of now) this.#run(this.#release(shard, to));
    for (const { shard, epoch, owner } of this.#found.shards) {
      const isOver = owner?.life === facts.life && !this.#mine.has(shard);
      if (isOver) this.#run(this.#parts.rows.free(shard, epoch, facts.life));
    }
  }

  /** Whether a shard is given up now: a node that has just come makes a copy first. */
  #isDue(shard: ShardId, to: string, nowMs: number): boolean {
    if (this.#isDraining || !this.#parts.keepsCopies) return true;
    const known = this.#wanted.get(shard);
    if (known?.to !== to) {
      this.#wanted.set(shard, { to, sinceMs: nowMs });
      return false;
    }
    return nowMs - known.sinceMs >= this.#parts.leaseMs * COPY_SHARE;
  }

  /** The shards that this node keeps a warm copy of. */
  #copied(nodes: readonly SeenNode[], shards: readonly SeenShard[]): readonly ShardId[] {
    if (!this.#parts.keepsCopies || this.#isReplaced) return [];
    return shards
      .filter((seen) => !this.#mine.has(seen.shard) && isFollower(this.self, seen, nodes))
      .map(({ shard }) => shard);
  }

  #tablesOf(shard: ShardId): PostgresTables {
    const { session, schema, store } = this.#parts;
    return new PostgresTables(session, {
      schema,
      shard,
      keepsPromise: (level, standbys) => keepsPromise(store, level, standbys),
    });
  }

  #run(move: Promise<void>): void {
    const running = move
      .catch((error: unknown) => {
        const reason = error instanceof Error ? error.message : String(error);
        this.#parts.onNote(`a shard was not moved, and will be later: ${reason}`, "warn");
      })
      .finally(() => {
        this.#moves.delete(running);
        this.#isAskedFor = true;
        this.look();
      });
    this.#moves.add(running);
  }

  /** A shard that the row gives to this process, and which it has not opened, is free for it. */
  #seenOf(seen: SeenShard): SeenShard {
    const isOwn = seen.owner?.life === this.#parts.facts.life && !this.#mine.has(seen.shard);
    return isOwn ? { ...seen, owner: undefined } : seen;
  }

  async #take({ shard, epoch, owner }: SeenShard): Promise<void> {
    const { session, schema, row, facts, clock, leaseMs, store: given, onNote } = this.#parts;
    this.#mine.set(shard, { kind: "opening" });
    const follower = this.#followers.take(shard);
    const goneMs = owner === undefined ? undefined : this.#watch.goneSinceMs(owner.node);
    const ownerRow = owner === undefined ? undefined : this.#nodes.get(owner.node);
    let takenMs = 0;
    const controller = new AbortController();
    const tables = new ClusterTables({
      tables: this.#tablesOf(shard),
      onTaken: () => (takenMs = clock.steadyMs()),
      session,
      schema,
      shard,
      epoch,
      former: ownerRow?.life === owner?.life ? ownerRow : undefined,
      epochNow: () => this.#found.shards[shard]?.epoch ?? 0,
      abort: (reason) => controller.abort(reason),
    });
    const options: PostgresStoreOptions = {
      ...given,
      node: facts.node,
      clock,
      leaseMs,
      takeover: "now",
      signal: controller.signal,
    };
    try {
      const end = (): Promise<void> => Promise.resolve();
      const store = await openOnTables(tables, row, options, end, { life: facts.life, follower });
      if (goneMs !== undefined) {
        // Later than that, a former owner that lives after all may answer for a lease after its last sign.
        const waitMs = takenMs - goneMs < DOUBT_MS ? GONE_WAIT_MS : leaseMs;
        await pause(clock, Math.max(0, waitMs - (clock.steadyMs() - takenMs)));
      }
      if (store.isWarm) this.#warmTakeovers += 1;
      this.#mine.set(shard, { kind: "owned", epoch: store.epoch });
      this.#takeovers += 1;
      this.#unowned.delete(shard);
      for (const warning of store.recovery.warnings) onNote(`shard ${shard}: ${warning}`, "warn");
      this.#host?.take(shard, store);
      this.#tellOthers();
    } catch (error) {
      follower?.stop();
      this.#mine.delete(shard);
      this.#notBefore.set(shard, clock.steadyMs() + leaseMs / SIGNS);
      if (!controller.signal.aborted) {
        const reason = error instanceof Error ? error.message : String(error);
        onNote(`shard ${shard} cannot be opened: ${reason}`, "warn");
      }
    }
  }

  async #release(shard: ShardId, to: string | undefined): Promise<void> {
    this.#mine.set(shard, { kind: "leaving" });
    this.#wanted.delete(shard);
    await this.#host?.giveUp(shard);
    this.#mine.delete(shard);
    // Until the next look the rows that were read say that it is still this node's: that counts as no owner.
    const peer = to === undefined ? undefined : this.#nodes.get(to)?.peer;
    if (peer !== undefined) this.#parts.peers.nudge(peer);
  }

  #tellOthers(): void {
    for (const { node, peer } of this.#found.nodes) {
      if (node !== this.self && peer !== undefined) this.#parts.peers.nudge(peer);
    }
  }

  /** Removes the rows of nodes that are gone for long: their names are random where the operator gives none. */
  #forget(nodes: readonly (FoundNode & { readonly isAlive: boolean })[], nowMs: number): void {
    for (const found of nodes) {
      const since = this.#deadSince.get(found.node);
      if (found.isAlive) this.#deadSince.delete(found.node);
      else if (since === undefined) this.#deadSince.set(found.node, nowMs);
      else if (nowMs - since > this.#parts.leaseMs * FORGET_LEASES) {
        this.#deadSince.delete(found.node);
        this.#parts.rows.remove(found).catch(() => undefined);
      }
    }
  }
}
