/** Runs `hapax serve`: opens the store that the options name, and starts the server over it. */

import { HapaxError } from "../../base/errors.ts";
import { type FileStoreOptions, openFileStore } from "../stores/file.ts";
import type { Authorize } from "../access/identity.ts";
import type { AuditEntry, Log } from "../log.ts";
import { auditLogEntry, faultEntry, noteEntry } from "../server/log-entries.ts";
import type { Store } from "../store.ts";
import { type AccessOptions, openAccess } from "./node-access.ts";
import { type NodeServer, type NodeServerOptions, startNodeServer } from "./node.ts";

export interface ServeStoreOptions
  extends Omit<NodeServerOptions, "store" | "authorize">, AccessOptions {
  readonly durability: "replicated" | "fsync" | "os";
  /** The URL of a PostgreSQL. Undefined: in the directory, or in memory. */
  readonly store?: string;
  readonly takeover?: "refuse" | "wait";
  readonly replication?: "standby" | "storage";
  readonly node?: string;
  /** `host:port` for the other nodes of a cluster. */
  readonly peers?: string;
  readonly peerKeyFile?: string;
  readonly advertise?: string;
  readonly warmCopies?: boolean;
  readonly version?: string;
  readonly log: Log;
}

/** Clocks of machines differ by less. */
const AHEAD_MS = 60_000;

/** How often a recovery reports its progress, in milliseconds. */
const PROGRESS_MS = 1000;

/** A server, or a node of a cluster. */
type Served = Pick<NodeServer, "url" | "durability" | "reload" | "stop">;

/** Starts what the options ask for. */
export function serveAny(options: ServeStoreOptions): Promise<Served> {
  const { peers } = options;
  if (peers === undefined) return serve(options);
  return serveWith(options, (guarded) => startNode(guarded, peers));
}

export function serve(options: ServeStoreOptions): Promise<NodeServer> {
  return serveWith(options, async (guarded, onNote) =>
    startNodeServer({ ...guarded, store: await openStore(options, onNote) }),
  );
}

async function serveWith<Server extends Served>(
  options: ServeStoreOptions,
  start: (guarded: ServeStoreOptions & { authorize?: Authorize }, onNote: Note) => Promise<Server>,
): Promise<Server> {
  const { log } = options;
  const onNote = (note: string, level?: "warn"): void => log(noteEntry(note, Date.now(), level));
  const { onFault = (error: unknown) => log(faultEntry(error, Date.now())) } = options;
  const { onAudit: write = (entry: AuditEntry) => log(auditLogEntry(entry)) } = options;
  const onAudit = (change: string): void => {
    const time = new Date().toISOString();
    write({ time, act: "keys.change", outcome: "done", details: { change } });
  };
  const access = await openAccess(options, { onAudit, onNote, onFault });
  const { authorize } = access;
  const guarded = { ...options, ...(authorize === undefined ? {} : { authorize }) };
  try {
    const server = await start(guarded, onNote);
    if (access.warning !== undefined) onNote(access.warning, "warn");
    const stop = async (): Promise<void> => {
      access.close();
      await server.stop();
    };
    return { ...server, stop };
  } catch (error) {
    access.close();
    throw error;
  }
}

// Loaded only for a cluster.
async function startNode(options: ServeStoreOptions, peers: string): Promise<Served> {
  const { store: database = "", node = "", peerKeyFile = "", replication = "standby" } = options;
  const { readSecretFile } = await import("./node-secret-file.ts");
  const { startClusterNode } = await import("./node-cluster.ts");
  const { durability } = options;
  return startClusterNode({
    ...options,
    database,
    node,
    peers,
    peerKey: await readSecretFile(peerKeyFile),
    databaseOptions: { durability, replication },
  });
}

type Note = (note: string, level?: "warn") => void;

async function openStore(options: ServeStoreOptions, onNote: Note): Promise<Store | "memory"> {
  const { dir, store: database } = options;
  if (dir === undefined && database === undefined) return "memory";
  const startedAt = Date.now();
  let toldAt = startedAt;
  const told = {
    onWarning: (warning: string) => onNote(warning),
    onProgress(bytes: number, bytesTotal: number) {
      const now = Date.now();
      if (now - toldAt < PROGRESS_MS) return;
      toldAt = now;
      onNote(`recovering: ${Math.floor((bytes / Math.max(bytesTotal, 1)) * 100)} %`);
    },
  };
  const store =
    database === undefined
      ? await openDirectory(dir ?? "", options, told)
      : await openDatabase(database, options, told, onNote);
  const { frames, changes, torn, warnings } = store.recovery;
  for (const warning of warnings) onNote(`a snapshot could not be used: ${warning}`);
  if (torn !== undefined) {
    onNote(`the last write was cut short and is dropped: file=${torn.file} at=${torn.position}`);
  }
  const elapsedMs = Date.now() - startedAt;
  if (frames > 0) onNote(`recovered ${changes} changes in ${elapsedMs} ms`);
  const aheadMs = store.world.timeMs - Date.now();
  if (aheadMs > AHEAD_MS) onNote(aheadNote(aheadMs), "warn");
  return store;
}

/** Tokens of leases that were given before may be given again, and what expires by journal time lives longer. */
function aheadNote(aheadMs: number): string {
  const hours = (aheadMs / 3_600_000).toFixed(1);
  const what = `the last change is ${hours} hours ahead of the clock of this machine`;
  return `${what}: the clock is behind, or was ahead before; see "The clock was wrong" in docs/guides/operations.md`;
}

type Told = Pick<FileStoreOptions, "onWarning" | "onProgress">;

function openDirectory(dir: string, { durability }: ServeStoreOptions, told: Told) {
  if (durability === "replicated") {
    throw new HapaxError("invalid_options", "durability replicated needs a database");
  }
  return openFileStore(dir, { durability, ...told });
}

// Loaded only with a database.
async function openDatabase(url: string, options: ServeStoreOptions, told: Told, onNote: Note) {
  const { openPostgresStore } = await import("../stores/postgres.ts");
  const { durability, takeover = "refuse", replication = "standby", node } = options;
  return openPostgresStore(url, {
    ...told,
    durability,
    takeover,
    replication,
    ...(node === undefined ? {} : { node }),
    onLost: (error) =>
      onNote(`${error.message}; this server takes no more writes: restart it`, "warn"),
  });
}
