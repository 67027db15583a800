/** `hapax cluster`: makes the tables of a cluster, shows who owns what, and moves shards. */

import type { ClusterView } from "../streams/cluster/cluster-rows.ts";
import { HapaxError } from "../base/errors.ts";
import { quote } from "./arguments.ts";
import type { Command, Invocation } from "./command.ts";
import type { Context } from "./context.ts";
import { EXIT, usageFailure } from "./failure.ts";
import { tell } from "./tell.ts";
import { createPaint, formatTable } from "./terminal.ts";
import { verifyCommand } from "./verify.ts";

/** How long `status` watches for signs of life: longer than two of them are apart. */
const WATCH_MS = 2500;
const SHARDS_DEFAULT = "16";

interface Work {
  readonly invocation: Invocation;
  readonly context: Context;
  readonly database: OpenCluster;
}

/** The tables of a cluster. */
type OpenCluster = Awaited<ReturnType<typeof openCluster>>;

const ACTIONS: Readonly<Record<string, (work: Work) => Promise<number>>> = {
  create,
  status,
  move,
  drain,
  upgrade,
  "accept-restore": acceptRestore,
};

async function runCluster(invocation: Invocation, context: Context): Promise<number> {
  const [word = "status"] = invocation.positionals;
  const action = Object.hasOwn(ACTIONS, word) ? ACTIONS[word] : undefined;
  if (action === undefined && word !== "verify") {
    throw usageFailure(`cluster does not know ${quote(word)}`, [
      `what it does: ${[...Object.keys(ACTIONS), "verify"].join(", ")}`,
    ]);
  }
  if (invocation.has("shards") && word !== "create") {
    throw usageFailure("--shards is for cluster create");
  }
  const url = invocation.value("store") ?? context.env["HAPAX_STORE"];
  if (url === undefined || !/^postgres(ql)?:\/\/./.test(url)) {
    throw usageFailure("cluster needs --store", [
      "--store is a URL: postgres://user@host/database",
    ]);
  }
  if (action === undefined) {
    noMore(invocation, 1);
    return verifyCommand.run(withoutWords(invocation, url), context);
  }
  // Loaded only here: every other command starts faster without it.
  const { databaseFailure } = await import("./outbox-database.ts");
  try {
    const database = await openCluster(url);
    try {
      return await action({ invocation, context, database });
    } finally {
      await database.session.close();
    }
  } catch (error) {
    throw databaseFailure(error);
  }
}

/** The same options, as `hapax verify --store` takes them. */
function withoutWords(invocation: Invocation, url: string): Invocation {
  return {
    positionals: [],
    has: (name) => invocation.has(name),
    value: (name) => (name === "store" ? url : invocation.value(name)),
    values: (name) => invocation.values(name),
  };
}

async function openCluster(url: string) {
  const { openHosts } = await import("../streams/stores/postgres/hosts.ts");
  const { openTables, quoteSchema, readCluster, TABLES_FORMAT } =
    await import("../streams/stores/postgres/schema.ts");
  const { ClusterRows } = await import("../streams/cluster/cluster-rows.ts");
  const session = await openHosts(url);
  const schema = quoteSchema("hapax");
  const rows = new ClusterRows(session, schema);
  return { session, schema, rows, openTables, readCluster, format: TABLES_FORMAT };
}

async function create({ invocation, context, database }: Work): Promise<number> {
  noMore(invocation, 1);
  const text = invocation.value("shards") ?? SHARDS_DEFAULT;
  const shards = Number(text);
  if (!/^\d{1,3}$/.test(text) || shards < 1 || shards > 256) {
    throw usageFailure(`--shards is ${quote(text)}; allowed: 1 to 256`);
  }
  const { session, schema, openTables, readCluster } = database;
  const known = await readCluster(session, schema);
  const row = known ?? (await openTables(session, schema, context.random, shards));
  if (row.shards !== shards) {
    const words = `there is a cluster of ${row.shards} shards; their number never changes`;
    throw new HapaxError("invalid_options", words);
  }
  const isNew = known === undefined;
  const rest = `a cluster of ${shards} shards`;
  await tell(invocation, context, { shards, created: isNew }, isNew ? "made" : "found", rest);
  return EXIT.done;
}

async function status({ invocation, context, database }: Work): Promise<number> {
  noMore(invocation, 1);
  const { nodes, shards } = await watchRows(database, context);
  const shown = nodes.map((node) => {
    const owned = shards.filter(
      ({ owner }) => owner?.node === node.node && owner.life === node.life,
    );
    return { ...node, shards: owned.map(({ shard }) => shard) };
  });
  const free = shards.filter(({ owner }) => {
    return !shown.some((node) => node.node === owner?.node && node.life === owner.life);
  });
  const unowned = free.map(({ shard }) => shard);
  if (invocation.has("json")) {
    await context.stdout.write(`${JSON.stringify({ nodes: shown, shards, unowned })}\n`);
  } else {
    const paint = createPaint(context.stdout, context.env);
    const rows = shown.map(({ node, isAlive, isDraining, url, version, shards: own }) => [
      node,
      isAlive ? (isDraining ? "draining" : "alive") : "no sign",
      url ?? "-",
      version ?? "-",
      own.join(" ") || "-",
    ]);
    const table = formatTable(["NODE", "STATE", "URL", "VERSION", "SHARDS"], rows, paint);
    await context.stdout.write(table);
    const pins = shards.flatMap(({ shard, pinned }) =>
      pinned === undefined ? [] : [`${shard} to ${pinned}`],
    );
    if (pins.length > 0) await context.stdout.write(`pinned: ${pins.join(", ")}\n`);
    if (unowned.length > 0) await context.stdout.write(`without an owner: ${unowned.join(" ")}\n`);
  }
  return unowned.length === 0 ? EXIT.done : EXIT.refused;
}

async function move({ invocation, context, database }: Work): Promise<number> {
  const [, text = "", node] = noMore(invocation, 3);
  if (!/^\d{1,3}$/.test(text)) throw usageFailure("cluster move needs the number of a shard");
  const { nodes } = await readRows(database);
  if (node !== undefined && !nodes.some((one) => one.node === node)) {
    throw usageFailure(`there is no node ${quote(node)}`, ["see: hapax cluster status"]);
  }
  if (!(await database.rows.pin(Number(text), node)))
    throw usageFailure(`there is no shard ${text}`);
  const rest =
    node === undefined
      ? `shard ${text} goes where all shards go`
      : `shard ${text} goes to ${node}, and stays there while it lives`;
  const facts = { shard: Number(text), node };
  await tell(invocation, context, facts, node === undefined ? "untied" : "tied", rest);
  return EXIT.done;
}

async function drain({ invocation, context, database }: Work): Promise<number> {
  const [, node] = noMore(invocation, 2);
  if (node === undefined) throw usageFailure("cluster drain needs the name of a node");
  if (!(await database.rows.drain(node))) {
    throw usageFailure(`there is no node ${quote(node)}`, ["see: hapax cluster status"]);
  }
  const rest = `${node} gives its shards up, and takes none until it is restarted`;
  await tell(invocation, context, { node }, "draining", rest);
  return EXIT.done;
}

/** After the database was restored: nothing of before may write, and the end of the journal is where it is. */
async function acceptRestore({ invocation, context, database }: Work): Promise<number> {
  noMore(invocation, 1);
  const alive = (await watchRows(database, context)).nodes.filter(({ isAlive }) => isAlive);
  if (alive.length > 0) {
    const names = alive.map(({ node }) => node).join(", ");
    const words = `servers give signs of life: ${names}`;
    throw new HapaxError("shard_owned", `${words}; stop all of them before accept-restore`);
  }
  const { incarnation, shards } = await database.rows.acceptRestore();
  const rest = `${shards} shards as they are, as incarnation ${incarnation}; start the servers`;
  await tell(invocation, context, { incarnation, shards }, "accepted", rest);
  return EXIT.done;
}

/** Says what an upgrade has left to do. The format rises only when every node can read the next one. */
async function upgrade({ invocation, context, database }: Work): Promise<number> {
  noMore(invocation, 1);
  const { format } = database;
  const { nodes } = await watchRows(database, context);
  const running = nodes.filter(({ isAlive }) => isAlive);
  const versions = [...new Set(running.map(({ version }) => version ?? "unknown"))].toSorted();
  const isDone = versions.length <= 1;
  const facts = {
    format,
    versions,
    isDone,
    nodes: running.map(({ node, version }) => ({ node, version })),
  };
  const rest = isDone
    ? `format ${format} is the newest, and all nodes that run have one version: ${versions.join() || "none runs"}`
    : `nodes of several versions run: ${running.map(({ node, version }) => `${node} ${version}`).join(", ")}; restart the older ones`;
  await tell(invocation, context, facts, isDone ? "done" : "not done", rest);
  return isDone ? EXIT.done : EXIT.refused;
}

/** The rows, and which nodes give signs of life. */
async function watchRows(database: OpenCluster, context: Context) {
  const before = await readRows(database);
  await context.wait(WATCH_MS);
  const { nodes, shards } = await readRows(database);
  // Twice the same sign of life is no proof: a database that is slow holds up every node.
  const shown = nodes.map((node) => {
    const old = before.nodes.find((one) => one.node === node.node);
    return { ...node, isAlive: old?.life !== node.life || old.beat !== node.beat };
  });
  return { nodes: shown, shards };
}

async function readRows({ session, schema, rows, readCluster }: OpenCluster): Promise<ClusterView> {
  const row = await readCluster(session, schema);
  if (row === undefined) {
    throw new HapaxError("invalid_options", "there is no cluster here: hapax cluster create");
  }
  return rows.read();
}

function noMore(invocation: Invocation, most: number): readonly (string | undefined)[] {
  const { positionals } = invocation;
  if (positionals.length > most) throw usageFailure(`too many words: ${positionals.join(" ")}`);
  return positionals;
}

export const clusterCommand: Command = {
  name: "cluster",
  summary: "make a cluster of servers, show who owns what, and move shards",
  usage: [
    "hapax cluster create --store <url> [--shards <count>]",
    "hapax cluster [status] --store <url>",
    "hapax cluster move <shard> [<node>] --store <url>",
    "hapax cluster drain <node> --store <url>",
    "hapax cluster verify --store <url>",
    "hapax cluster upgrade --store <url>",
    "hapax cluster accept-restore --store <url>",
  ],
  positionalsMin: 0,
  positionalsMax: 3,
  options: [
    {
      name: "store",
      value: "url",
      env: "HAPAX_STORE",
      help: "the PostgreSQL of the cluster (postgres://user@host,host/database); the password belongs into HAPAX_STORE or PGPASSWORD",
    },
    {
      name: "shards",
      value: "count",
      help: "create: how many shards, 1 to 256 (default 16); their number never changes",
    },
  ],
  details: [
    "The first node makes the cluster by itself, with 16 shards. `status` watches for signs of life for 2.5 seconds, and ends with",
    "1 if a shard has no owner. `move` ties a shard to a node, and without a node unties it. A node that drains gives its shards",
    "to the others and goes on taking requests for them.",
    "`verify` reads every row, as hapax verify --store does. `upgrade` ends with 1 while nodes of several versions run.",
    "`accept-restore` is for a database that was restored to an earlier moment: it refuses while a server gives signs of life, and makes",
    "sure that no server from before the restore can write.",
  ],
  examples: [
    ["who owns what?", "hapax cluster status --store postgres://hapax@db/hapax"],
    ["shard 7 to n2", "hapax cluster move 7 n2 --store postgres://hapax@db/hapax"],
    ["after a restore", "hapax cluster accept-restore --store postgres://hapax@db/hapax"],
    ["before maintenance of n1", "hapax cluster drain n1 --store postgres://hapax@db/hapax"],
  ],
  run: runCluster,
};
