/** Calls that are about all shards: lists, health, metrics, and a transaction whose shard is not known. */

import type { HapaxError } from "../../base/errors.ts";
import { metricHead, metricLine } from "../../base/prometheus-text.ts";
import type { Cluster } from "../cluster.ts";
import type { ShardId } from "../core/placement.ts";
import type { HapaxServer } from "../server.ts";
import type { Exchange, ServerAnswer } from "../server/exchange.ts";
import type { Gate } from "../server/gate.ts";
import { showStopped } from "../server/health.ts";
import { json } from "../server/json.ts";
import type { ForwardCounts } from "./forwarding.ts";
import { firstKnown, ListMerge, mergeMetrics, type ShardAnswer } from "./gather.ts";
import { KeptExchange } from "./kept-exchange.ts";
import type { Listed, Where } from "./where.ts";

/** Answers are put together as plain text, also if the client takes others. */
const HIDDEN = new Set(["accept-encoding", "if-none-match"]);
/** Pages of a list that are asked for, and held, at once. */
const PAGES_AT_ONCE = 8;

export interface GatheringParts {
  readonly cluster: Cluster;
  readonly gate: Gate;
  readonly counts: ForwardCounts;
  readonly owned: () => readonly ShardId[];
  readonly writing: () => Writing;
  readonly onShard: (shard: ShardId, exchange: KeptExchange) => Promise<ServerAnswer>;
  /** For turns between slices of long work. */
  readonly engine: Pick<HapaxServer["engine"], "slices">;
}

/** Whether the shards of this node take writes. */
export interface Writing {
  /** Why one of them does not. */
  readonly stopped: HapaxError | undefined;
  readonly isFull: boolean;
}

/** `isFinished`: it has all its headers. */
export interface Gathered {
  readonly answer: ServerAnswer;
  readonly isFinished: boolean;
}

type Gatherable = Extract<Where, { kind: "list" | "outcome" | "metrics" | "health" | "owners" }>;

export class Gathering {
  readonly #parts: GatheringParts;

  constructor(parts: GatheringParts) {
    this.#parts = parts;
  }

  async answer(where: Gatherable, exchange: Exchange, kept: KeptExchange): Promise<Gathered> {
    if (where.kind === "health") return { answer: await this.#health(exchange), isFinished: false };
    if (where.kind === "owners") return { answer: await this.#owners(exchange), isFinished: false };
    // The shards answer a HEAD without the body that is put together.
    const asked = new KeptExchange(kept, {
      hidden: HIDDEN,
      wantsWhole: true,
      ...(exchange.method === "HEAD" && where.kind !== "outcome" ? { method: "GET" } : {}),
    });
    if (where.kind === "list") return this.#list(asked, where.listed);
    const shards = where.kind === "metrics" ? this.#parts.owned() : this.#all();
    const answers = await Promise.all(
      shards.map(async (shard) => ({ shard, answer: await this.#parts.onShard(shard, asked) })),
    );
    if (where.kind === "outcome") {
      const known = firstKnown(answers);
      if (known !== undefined) return { answer: known, isFinished: true };
    }
    const refused = answers.find(({ answer }) => answer.status !== 200)?.answer;
    if (refused !== undefined) return { answer: refused, isFinished: true };
    return { answer: await this.#metrics(exchange, answers), isFinished: false };
  }

  /** A page has 1,000 entries: all pages at once would hold the loop, and the memory. */
  async #list(asked: KeptExchange, listed: Listed): Promise<Gathered> {
    const { engine, onShard } = this.#parts;
    const merge = new ListMerge(asked.query, listed);
    const slices = engine.slices();
    const shards = this.#all().values();
    let refused: ServerAnswer | undefined;
    const take = async (): Promise<void> => {
      for (const shard of shards) {
        const answer = await onShard(shard, asked);
        if (!slices.take()) await slices.turn();
        if (!merge.add(answer)) refused ??= answer;
        if (refused !== undefined) return;
      }
    };
    await Promise.all(Array.from({ length: PAGES_AT_ONCE }, take));
    if (refused !== undefined) return { answer: refused, isFinished: true };
    return { answer: merge.answer(), isFinished: false };
  }

  async #metrics(exchange: Exchange, answers: readonly ShardAnswer[]): Promise<ServerAnswer> {
    // Without a shard no handler has asked whether the caller may see this.
    if (answers.length === 0) {
      (await this.#parts.gate.admit(exchange)).requireOneOf(["observe"]);
    }
    return mergeMetrics(answers, this.#ownMetrics());
  }

  #all(): readonly ShardId[] {
    return Array.from({ length: this.#parts.cluster.shards }, (_, at) => at as ShardId);
  }

  /** PROTOCOL.md §24.5. Everybody may ask. */
  #health(exchange: Exchange): ServerAnswer | Promise<ServerAnswer> {
    const { cluster, owned, gate, writing } = this.#parts;
    const { isDraining, orphans } = cluster.state();
    const { durability } = cluster.supports;
    const shards = { owned: owned().length, orphans: orphans.length, all: cluster.shards };
    const facts = { node: cluster.self, shards, durability };
    if (isDraining) {
      const code = "shutting_down";
      return json(503, { live: true, ready: false, writes: "draining", ...facts, code });
    }
    if (!cluster.isValid || orphans.length > 0) {
      return json(503, {
        live: true,
        ready: false,
        writes: "waiting",
        ...facts,
        code: "owner_unknown",
      });
    }
    const { stopped, isFull } = writing();
    if (stopped !== undefined) return showStopped({ exchange, gate }, facts, stopped);
    if (isFull) {
      return json(503, { live: true, ready: false, writes: "full", ...facts, code: "store_full" });
    }
    return json(200, { live: true, ready: true, writes: "open", ...facts });
  }

  /** PROTOCOL.md §24.4. */
  async #owners(exchange: Exchange): Promise<ServerAnswer> {
    const { cluster, gate } = this.#parts;
    (await gate.admit(exchange)).requireWholeServer("observe");
    const { nodes, owners } = cluster.state();
    return json(200, {
      node: cluster.self,
      nodes: nodes.map(({ node, isAlive, isDraining, url, version }) => {
        return {
          node,
          state: isAlive ? (isDraining ? "draining" : "alive") : "silent",
          url,
          version,
        };
      }),
      shards: owners,
    });
  }

  #ownMetrics(): string {
    const { cluster, counts, owned } = this.#parts;
    const { orphans, takeovers, warmTakeovers, copies, nodes } = cluster.state();
    const alive = nodes.filter(({ isAlive }) => isAlive).length;
    const one = (name: string, kind: string, help: string, value: number): readonly string[] => [
      ...metricHead(name, kind, help),
      metricLine(name, "", value),
    ];
    const lines = [
      one("hapax_cluster_nodes", "gauge", "Nodes that are alive, as this one sees it.", alive),
      one("hapax_cluster_shards_owned", "gauge", "Shards of this node.", owned().length),
      one("hapax_cluster_shards_orphaned", "gauge", "Shards without an owner.", orphans.length),
      one("hapax_cluster_takeovers_total", "counter", "Shards taken since the start.", takeovers),
      one(
        "hapax_cluster_warm_takeovers_total",
        "counter",
        "Shards taken that went on with a warm copy.",
        warmTakeovers,
      ),
      one("hapax_cluster_copies", "gauge", "Warm copies of shards of other nodes.", copies),
      one(
        "hapax_cluster_forwarded_total",
        "counter",
        "Requests sent to the node that owns their shard.",
        counts.forwarded,
      ),
      one(
        "hapax_cluster_lost_total",
        "counter",
        "Forwarded requests whose owner was lost before it answered.",
        counts.lost,
      ),
    ];
    return `${lines.flat().join("\n")}\n`;
  }
}
