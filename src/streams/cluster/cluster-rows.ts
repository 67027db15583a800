/** The rows of a cluster: nodes, shards and names. docs/formats/postgres.md §4. Nothing that is stored depends on them but names. */

import { HapaxError } from "../../base/errors.ts";
import type { NameBook, NameKind } from "../cluster.ts";
import type { SeenShard } from "../core/assignment.ts";
import type { ShardId } from "../core/placement.ts";
import { splitScoped } from "../core/scoped-name.ts";
import type { Session } from "../stores/postgres/session.ts";
import { sqlNumber, sqlText } from "../stores/postgres/values.ts";
import type { NodeRow } from "./node-watch.ts";

export interface NodeFacts {
  readonly node: string;
  readonly life: string;
  readonly url: string | undefined;
  readonly peer: string | undefined;
  readonly version: string;
}

/** A node as another one finds it. */
export interface FoundNode extends NodeRow {
  readonly url: string | undefined;
  readonly peer: string | undefined;
  readonly isDraining: boolean;
  readonly version: string | undefined;
}

export interface ClusterView {
  readonly nodes: readonly FoundNode[];
  readonly shards: readonly SeenShard[];
}

const NAMES_KEPT_MAX = 10_000;
/** More takeovers than there can have been since the moment that was restored. */
const RESTORE_EPOCHS = 1000;

export class ClusterRows implements NameBook {
  readonly #session: Session;
  readonly #schema: string;
  /** Names never change their placement. */
  readonly #known = new Map<string, string>();
  #incarnation = -1;

  /** `schema`: quoted. */
  constructor(session: Session, schema: string) {
    this.#session = session;
    this.#schema = schema;
  }

  /** Makes the row of a node. A process of the same name is replaced. */
  async register({ node, life, url, peer, version }: NodeFacts): Promise<void> {
    const { rows } = await this.#session.run(
      `INSERT INTO ${this.#schema}.hapax_node (node, life, beat, url, peer, version) VALUES ($1, $2, 0, $3, $4, $5)
        ON CONFLICT (node) DO UPDATE SET life = excluded.life, beat = hapax_node.beat + 1, url = excluded.url, peer = excluded.peer,
          version = excluded.version, draining = false
        RETURNING (SELECT incarnation FROM ${this.#schema}.hapax_cluster) AS incarnation`,
      [node, life, url ?? null, peer ?? null, version],
    );
    this.#incarnation = sqlNumber(rows[0]?.["incarnation"]);
  }

  /**
   * Makes the row of a process again that others have removed, because it was silent for long. Resolves to false if there is
   * one of this name, or the rows are those of another incarnation: then this process is one of before a restore.
   */
  async registerAgain({ node, life, url, peer, version }: NodeFacts): Promise<boolean> {
    const { rows } = await this.#session.run(
      `INSERT INTO ${this.#schema}.hapax_node (node, life, beat, url, peer, version)
        SELECT $1, $2, 0, $3, $4, $5 FROM ${this.#schema}.hapax_cluster WHERE incarnation = $6::int
        ON CONFLICT DO NOTHING RETURNING 1`,
      [node, life, url ?? null, peer ?? null, version, this.#incarnation],
    );
    return rows.length > 0;
  }

  /**
   * Gives a sign of life, and then reads everything. `isSigned`: the row is still that of this process. Two statements: a takeover
   * that was decided before the sign either finds it, or is seen by what is read after it.
   */
  async sign(
    node: string,
    life: string,
    isDraining: boolean,
  ): Promise<ClusterView & { readonly isSigned: boolean }> {
    // A sign of life need not be durable, and must not wait for a standby that is away.
    const { rows } = await this.#session.run(
      `WITH quick AS (SELECT set_config('synchronous_commit', 'off', true) AS level)
        UPDATE ${this.#schema}.hapax_node SET beat = beat + 1, draining = draining OR $3::boolean FROM quick
          WHERE node = $1 AND life = $2 RETURNING 1`,
      [node, life, isDraining],
    );
    return { ...(await this.read()), isSigned: rows.length > 0 };
  }

  /** Reads everything, and gives no sign. */
  async read(): Promise<ClusterView> {
    const { rows } = await this.#session.run(`SELECT ${this.#listed()}`, []);
    return foundIn(rows[0]);
  }

  /** Asks a node to give its shards up. Resolves to false if there is none of this name. */
  async drain(node: string): Promise<boolean> {
    const { rows } = await this.#session.run(
      `UPDATE ${this.#schema}.hapax_node SET draining = true WHERE node = $1 RETURNING node`,
      [node],
    );
    return rows.length > 0;
  }

  /** Ties a shard to a node, or to none. Resolves to false if there is no such shard. */
  async pin(shard: number, node: string | undefined): Promise<boolean> {
    const { rows } = await this.#session.run(
      `UPDATE ${this.#schema}.hapax_shard SET pinned = $2 WHERE shard = $1 RETURNING shard`,
      [shard, node ?? null],
    );
    return rows.length > 0;
  }

  /**
   * Makes the rows those of another incarnation, after the database was restored to an earlier moment. The epochs rise so far that no
   * process of before has a larger one. Answers the incarnation, and how many shards there are.
   */
  async acceptRestore(): Promise<{ readonly incarnation: number; readonly shards: number }> {
    const { rows } = await this.#session.run(
      `WITH next AS (UPDATE ${this.#schema}.hapax_cluster SET incarnation = incarnation + 1 RETURNING incarnation),
          gone AS (DELETE FROM ${this.#schema}.hapax_node)
        UPDATE ${this.#schema}.hapax_shard s SET epoch = epoch + ${RESTORE_EPOCHS}, owner = NULL, life = NULL,
          released_lsn = NULL, released_crc = NULL FROM next RETURNING next.incarnation`,
      [],
    );
    return { incarnation: sqlNumber(rows[0]?.["incarnation"]), shards: rows.length };
  }

  /** Gives a shard up that this process owns by its row alone: it has no open store for it. */
  async free(shard: number, epoch: number, life: string): Promise<void> {
    await this.#session.run(
      `UPDATE ${this.#schema}.hapax_shard SET owner = NULL, life = NULL WHERE shard = $1 AND epoch = $2 AND life = $3`,
      [shard, epoch, life],
    );
  }

  /** Removes the row of a node that owns nothing. */
  async remove({
    node,
    life,
    beat,
  }: Pick<FoundNode, "node" | "life"> & { beat?: number }): Promise<void> {
    await this.#session.run(
      `DELETE FROM ${this.#schema}.hapax_node n WHERE node = $1 AND life = $2 AND ($3::bigint IS NULL OR beat = $3)
        AND NOT EXISTS (SELECT 1 FROM ${this.#schema}.hapax_shard s WHERE s.owner = n.node AND s.life = n.life)`,
      [node, life, beat ?? null],
    );
  }

  async find(kind: NameKind, kept: string): Promise<string | undefined> {
    const key = `${kind} ${kept}`;
    const known = this.#known.get(key);
    if (known !== undefined) return known;
    const { namespace = "", name } = splitScoped(kept);
    const { rows } = await this.#session.run(
      `SELECT placement FROM ${this.#schema}.hapax_name WHERE kind = $1 AND namespace = $2 AND id = $3`,
      [kind, namespace, name],
    );
    const [row] = rows;
    if (row === undefined) return undefined;
    const placement = sqlText(row["placement"]);
    if (this.#known.size >= NAMES_KEPT_MAX) this.#known.clear();
    this.#known.set(key, placement);
    return placement;
  }

  async bind(kind: NameKind, kept: string, placement: string): Promise<string> {
    const known = await this.find(kind, kept);
    if (known !== undefined) return known;
    const { namespace = "", name } = splitScoped(kept);
    // What is created under the name is a later write of the same log, so that its answer proves this one.
    await this.#session.run(
      `INSERT INTO ${this.#schema}.hapax_name (kind, namespace, id, placement) VALUES ($1, $2, $3, $4)
        ON CONFLICT DO NOTHING`,
      [kind, namespace, name, placement],
    );
    const bound = await this.find(kind, kept);
    if (bound === undefined) throw new HapaxError("unreachable", "the name was not stored");
    return bound;
  }

  #listed(): string {
    return `(SELECT coalesce(json_agg(json_build_object('node', node, 'life', life, 'beat', beat, 'url', url, 'peer', peer,
          'draining', draining, 'version', version) ORDER BY node), '[]')::text FROM ${this.#schema}.hapax_node) AS nodes,
        (SELECT coalesce(json_agg(json_build_object('shard', shard, 'epoch', epoch, 'owner', owner, 'life', life,
          'pinned', pinned) ORDER BY shard), '[]')::text FROM ${this.#schema}.hapax_shard) AS shards`;
  }
}

type Json = Readonly<Record<string, unknown>>;

function foundIn(row: Readonly<Record<string, unknown>> | undefined): ClusterView {
  const nodes = JSON.parse(sqlText(row?.["nodes"])) as readonly Json[];
  const shards = JSON.parse(sqlText(row?.["shards"])) as readonly Json[];
  return {
    nodes: nodes.map((one) => ({
      node: sqlText(one["node"]),
      life: sqlText(one["life"]),
      beat: sqlNumber(one["beat"]),
      url: textOrNothing(one["url"]),
      peer: textOrNothing(one["peer"]),
      isDraining: one["draining"] === true,
      version: textOrNothing(one["version"]),
    })),
    shards: shards.map((one) => {
      const node = textOrNothing(one["owner"]);
      const life = textOrNothing(one["life"]);
      return {
        shard: sqlNumber(one["shard"]) as ShardId,
        epoch: sqlNumber(one["epoch"]),
        owner: node === undefined || life === undefined ? undefined : { node, life },
        pinned: textOrNothing(one["pinned"]),
      };
    }),
  };
}

function textOrNothing(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}
