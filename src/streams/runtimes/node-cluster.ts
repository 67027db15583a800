/** A node of a cluster on Node: its two ports, its part of the shards, and a clean end. */

import { systemClock } from "../../base/clock.ts";
import { HapaxError } from "../../base/errors.ts";
import { systemRandom } from "../../base/random.ts";
import { withoutLastSlashes } from "../../protocol/slashes.ts";
import { ClusterRows } from "../cluster/cluster-rows.ts";
import { type ClusterServer, createClusterServer } from "../cluster/cluster-server.ts";
import { PostgresCluster } from "../cluster/postgres-cluster.ts";
import { BodyBudget } from "../server/body-budget.ts";
import { faultEntry, harmless, noteEntry } from "../server/log-entries.ts";
import type { ServerOptions } from "../server/options.ts";
import type { Reloaded } from "../server/reload.ts";
import { openMemoryStore } from "../stores/memory.ts";
import type { PostgresStoreOptions } from "../stores/postgres.ts";
import { readSettings, requireSettings } from "../stores/postgres/engine-checks.ts";
import { openHosts, withPatience } from "../stores/postgres/hosts.ts";
import { openTables, quoteSchema } from "../stores/postgres/schema.ts";
import type { Session } from "../stores/postgres/session.ts";
import type { NodeServerOptions } from "./node.ts";
import { nodeComponents } from "./node-components.ts";
import { listen, type Listening, openListener, listeningUrlOf } from "./node-listening.ts";
import { openPeerPort, type PeerPort } from "./node-peer-port.ts";
import { addressOf, createNodePeers, type NodePeers, peerKeyOf } from "./node-peers.ts";
import { stderrLog } from "./node-log.ts";

export const SHARDS_DEFAULT = 16;
const LEASE_MS = 5000;
const ANSWER_MS = 30_000;

export interface ClusterNodeOptions extends Omit<NodeServerOptions, "store"> {
  /** URL of the PostgreSQL. */
  readonly database: string;
  /** Unique among the nodes. A process with the name of an earlier one takes its place. */
  readonly node: string;
  /** Where clients reach this node. Default: the address that it listens on. */
  readonly advertise?: string;
  /** `host:port` for the other nodes. */
  readonly peers: string;
  /** `host:port` where the other nodes reach it. Default: the host of its own URL, or the address that it listens on. */
  readonly advertisePeers?: string;
  /** The text that all nodes share. */
  readonly peerKey: string;
  /** How many shards a new cluster gets. Default 16. */
  readonly shards?: number;
  /** The same on all nodes. Default 5,000. */
  readonly leaseMs?: number;
  readonly version?: string;
  /** Keeps a copy in memory of each shard that this node would own next. Default true. */
  readonly warmCopies?: boolean;
  readonly databaseOptions?: Pick<
    PostgresStoreOptions,
    "durability" | "replication" | "schema" | "segmentBytes" | "snapshotBytes"
  >;
}

export interface ClusterNode {
  readonly url: string;
  readonly durability: string;
  readonly server: ClusterServer;
  reload(options: ServerOptions): Reloaded;
  stop(): Promise<void>;
}

type Note = (note: string, level?: "warn") => void;

/** Starts a node. Resolves when it accepts requests and has opened what is its own. */
export async function startClusterNode(given: ClusterNodeOptions): Promise<ClusterNode> {
  const options = withPlainUrls(given);
  const log = harmless(options.log ?? stderrLog());
  const onFault = options.onFault ?? ((error: unknown) => log(faultEntry(error, Date.now())));
  const onNote: Note = (note, level) => log(noteEntry(note, Date.now(), level));
  const host = options.host ?? "127.0.0.1";
  const key = peerKeyOf(options.peerKey);
  const undo: (() => unknown)[] = [];
  try {
    const peers = createNodePeers(key);
    undo.unshift(() => peers.close());
    const session = await openSession(options, onNote);
    undo.unshift(() => session.close());
    const reached: Reached = { url: options.advertise ?? "", peer: "" };
    const cluster = await createCluster(options, { session, peers, reached, onNote });
    const url = (): string => reached.url;
    const components = nodeComponents(options, { host, log, onFault, url });
    const emptyStore = openMemoryStore({ bytesMax: 0 });
    const server = createClusterServer({ ...components, cluster, peers, emptyStore }, options);
    const look = (): void => cluster.look();
    const doubt = (): void => cluster.doubt();
    const port = await openPeerPort(server, { listen: options.peers, key, onFault, look, doubt });
    undo.unshift(() => port.close());
    const budget = new BodyBudget(
      options.bodyBytesPerSecondMin,
      systemClock,
      server.options.bodiesBytesMax,
    );
    const listening = await openListener(server, { ...options, log }, budget, onFault);
    undo.unshift(() => {
      listening.http.close();
      listening.close();
      budget.close();
    });
    await listen(listening.http, options.port ?? 4437, host);
    if (reached.url === "") {
      reached.url = listeningUrlOf(listening.http, options.tls === undefined ? "http" : "https");
    }
    const own = advertisedPeer(options.peers, port.port, reached.url);
    reached.peer = options.advertisePeers ?? own;
    await server.join();
    const durability = cluster.supports.durability;
    return asNode(server, { url: reached.url, durability, listening, budget, port, peers });
  } catch (error) {
    for (const close of undo) await Promise.resolve(close()).catch(() => undefined);
    throw error;
  }
}

/** Where this node is reached: known when its ports are taken. */
interface Reached {
  url: string;
  peer: string;
}

interface ClusterAround {
  readonly session: Session;
  readonly peers: NodePeers;
  readonly reached: Reached;
  readonly onNote: Note;
}

async function createCluster(
  options: ClusterNodeOptions,
  { session, peers, reached, onNote }: ClusterAround,
): Promise<PostgresCluster> {
  const { node, version = "unknown", databaseOptions = {}, leaseMs = LEASE_MS } = options;
  const schema = quoteSchema(databaseOptions.schema ?? "hapax");
  const row = await openTables(session, schema, systemRandom, options.shards ?? SHARDS_DEFAULT);
  return new PostgresCluster({
    session,
    schema,
    row,
    rows: new ClusterRows(session, schema),
    facts: {
      node,
      life: systemRandom.id(),
      version,
      get url() {
        return reached.url;
      },
      get peer() {
        return reached.peer;
      },
    },
    clock: systemClock,
    leaseMs,
    store: { ...databaseOptions, onWarning: (warning) => onNote(warning, "warn") },
    onNote,
    peers,
    keepsCopies: options.warmCopies ?? true,
  });
}

async function openSession(options: ClusterNodeOptions, onNote: Note): Promise<Session> {
  const { database, databaseOptions = {} } = options;
  const session = withPatience(await openHosts(database), systemClock, ANSWER_MS);
  try {
    const settings = await readSettings(session);
    requireSettings(settings, databaseOptions, (warning) => onNote(warning, "warn"));
    return session;
  } catch (error) {
    await session.close().catch(() => undefined);
    if (error instanceof HapaxError) throw error;
    const reason = error instanceof Error ? error.message : String(error);
    const words = `the database cannot be opened: ${reason}`;
    throw new HapaxError("unreachable", words, { cause: error });
  }
}

interface Running {
  readonly url: string;
  readonly durability: string;
  readonly listening: Listening;
  readonly budget: BodyBudget;
  readonly port: PeerPort;
  readonly peers: NodePeers;
}

function asNode(server: ClusterServer, running: Running): ClusterNode {
  const { url, durability, listening, budget, port, peers } = running;
  return {
    url,
    durability,
    server,
    reload: (wanted) => server.reload(wanted),
    async stop() {
      // First the shards: requests go on to their next owners while this node still takes and forwards them.
      await server.leave();
      await listening.stop();
      listening.close();
      budget.close();
      await port.close();
      await server.close();
      peers.close();
    },
  };
}

/** The peer port as others reach it: at the host of the node's own URL, unless it listens on an address of its own. */
function advertisedPeer(listening: string, port: number, url: string): string {
  const { host } = addressOf(listening);
  const isAny = host === "0.0.0.0" || host === "::";
  const reached = isAny ? new URL(url).hostname : host.includes(":") ? `[${host}]` : host;
  return `${reached}:${port}`;
}

/** Paths are put behind URLs, and begin with a slash. */
function withPlainUrls(options: ClusterNodeOptions): ClusterNodeOptions {
  const { advertise, publicUrl } = options;
  return {
    ...options,
    ...(advertise === undefined ? {} : { advertise: withoutLastSlashes(advertise) }),
    ...(publicUrl === undefined ? {} : { publicUrl: withoutLastSlashes(publicUrl) }),
  };
}
