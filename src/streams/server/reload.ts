/**
 * Which options a running server can change. A handler reads these anew with every request. The others are built into sockets, the
 * engine or the store when the server starts; changing them needs a restart.
 *
 * The key defaults need one although they are plain numbers: the engine's sweeper and the windows in memory are built on them.
 */

import type { ResolvedServerOptions } from "./options.ts";

/** The result of a reload. */
export interface Reloaded {
  /** The options that changed. They are in force for every request that begins from now on. */
  readonly changed: readonly (keyof ResolvedServerOptions)[];
  /** The options that differ from those in force, and need a restart. They were not changed. */
  readonly needRestart: readonly (keyof ResolvedServerOptions)[];
}

const RELOADS: Readonly<Record<keyof ResolvedServerOptions, "live" | "restart">> = {
  longPollMs: "live",
  bodyBytesMax: "live",
  sseSecondsMax: "live",
  readerStallMs: "restart",
  readerBufferBytes: "live",
  bodiesBytesMax: "restart",
  answersBytesMax: "restart",
  pendingBytesMax: "restart",
  heldBytesMax: "restart",
  outcomeBytesMax: "restart",
  corsOrigins: "live",
  publicUrl: "restart",
  insecurePublic: "restart",
  authorizeTimeoutMs: "restart",
  quotas: "live",
  allowLoopbackWebhooks: "restart",
  keyWindowSeconds: "restart",
  keyMax: "restart",
  keyOverflow: "restart",
  retentionSeconds: "restart",
  retentionBytes: "restart",
  stateOffsets: "live",
  registry: "restart",
  logRequests: "live",
  logSample: "live",
  testFaults: "restart",
};

export type DecideReload = typeof decideReload;

/** The options that are in force after a reload. Both are resolved, so each is valid as a whole. */
export function decideReload(
  inForce: ResolvedServerOptions,
  wanted: ResolvedServerOptions,
): { readonly next: ResolvedServerOptions; readonly reloaded: Reloaded } {
  // The keys of a total record.
  const names = Object.keys(RELOADS) as (keyof ResolvedServerOptions)[];
  const different = names.filter((name) => !isSame(inForce[name], wanted[name]));
  const changed = different.filter((name) => RELOADS[name] === "live");
  const needRestart = different.filter((name) => RELOADS[name] === "restart");
  const taken = Object.fromEntries(changed.map((name) => [name, wanted[name]]));
  return { next: Object.freeze({ ...inForce, ...taken }), reloaded: { changed, needRestart } };
}

/** Values are numbers, texts, switches and lists of texts. */
function isSame(one: unknown, other: unknown): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}
