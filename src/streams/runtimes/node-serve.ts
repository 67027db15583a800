/** Runs `hapax serve`: opens the store that the options name, and starts the server over it. */

import { openFileStore } from "../stores/file.ts";
import type { AuditEntry, Log } from "../log.ts";
import { auditLogEntry, faultEntry, noteEntry } from "../server/log-entries.ts";
import type { Store } from "../store.ts";
import { type AccessOptions, openAccess } from "./node-access.ts";
import { type NodeServer, type NodeServerOptions, startNodeServer } from "./node.ts";

export interface ServeStoreOptions
  extends Omit<NodeServerOptions, "store" | "authorize">, AccessOptions {
  readonly durability: "fsync" | "os";
  readonly log: Log;
}

/** How often a recovery reports its progress, in milliseconds. */
const PROGRESS_MS = 1000;

export async function serve(options: ServeStoreOptions): Promise<NodeServer> {
  const { log, dir } = options;
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
    const store = dir === undefined ? "memory" : await openStore(dir, options, onNote);
    const server = await startNodeServer({ ...guarded, store });
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

async function openStore(
  dir: string,
  options: ServeStoreOptions,
  onNote: (note: string) => void,
): Promise<Store> {
  const startedAt = Date.now();
  let toldAt = startedAt;
  const store = await openFileStore(dir, {
    durability: options.durability,
    onWarning: onNote,
    onProgress(bytes, bytesTotal) {
      const now = Date.now();
      if (now - toldAt < PROGRESS_MS) return;
      toldAt = now;
      onNote(`recovering: ${Math.floor((bytes / Math.max(bytesTotal, 1)) * 100)} %`);
    },
  });
  const { frames, changes, torn, warnings } = store.recovery;
  for (const warning of warnings) onNote(`a snapshot could not be used: ${warning}`);
  if (torn !== undefined) {
    onNote(`the last write was cut short and is dropped: file=${torn.file} at=${torn.position}`);
  }
  const elapsedMs = Date.now() - startedAt;
  if (frames > 0) onNote(`recovered ${changes} changes in ${elapsedMs} ms`);
  return store;
}
