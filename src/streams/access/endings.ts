/**
 * Identities that end before their time, such as that of a key that was revoked. Live readers and waiting requests of such an identity
 * end at once, and no append has to ask whether its readers may still see it.
 */

import type { Identity } from "./identity.ts";

const ended = new WeakSet<Identity>();
const listeners = new WeakMap<Identity, Set<() => void>>();

/** Whether the identity has ended for good. */
export function hasEnded(identity: Identity): boolean {
  return ended.has(identity);
}

/** Calls `leave` when the identity ends, also if that was before. The returned function takes it out. */
export function onIdentityEnd(identity: Identity, leave: () => void): () => void {
  let isIn = true;
  const leaveOnce = (): void => {
    if (isIn) leave();
    isIn = false;
  };
  let leavers = listeners.get(identity);
  if (leavers === undefined) listeners.set(identity, (leavers = new Set()));
  leavers.add(leaveOnce);
  if (hasEnded(identity)) queueMicrotask(leaveOnce);
  return () => {
    isIn = false;
    leavers.delete(leaveOnce);
  };
}

/**
 * Ends the live readers of an identity. `revoked`: for good, so that requests that wait are refused. `changed`: its client comes back and
 * gets what it may do now.
 */
export function endIdentity(identity: Identity, why: "revoked" | "changed"): void {
  if (why === "revoked") ended.add(identity);
  const leavers = listeners.get(identity);
  listeners.delete(identity);
  for (const leave of leavers ?? []) leave();
}
