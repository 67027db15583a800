/**
 * Whether a caller may follow what a group or a subscription follows. There may be 10,000 streams, so it is worked out in slices; the
 * identity remembers it for each group.
 */

import type { Access, AccessSubject, Followed } from "../access/access.ts";
import type { Action } from "../access/identity.ts";
import type { GroupSettings } from "../core/group-state.ts";
import { NO_NAME } from "../core/scoped-name.ts";
import type { ServerParts } from "./parts.ts";

/** Whether the streams that are followed are all within one grant for the action. */
export async function mayFollow(
  parts: { readonly engine: Pick<ServerParts["engine"], "slices"> },
  access: Access,
  action: Action,
  subject: AccessSubject,
  followed: Followed,
): Promise<boolean> {
  const steps = access.followingSteps(action, subject, followed);
  if (steps === undefined) return access.mayFollow(action, subject, followed);
  const slices = parts.engine.slices();
  for (let step = steps.next(); step.done !== true; step = steps.next()) {
    if (!slices.take()) await slices.turn();
  }
  return access.mayFollow(action, subject, followed);
}

/**
 * Works out whether a group is there for the caller: one that follows more than the caller may read is not. The returned function
 * gives the name under which the engine keeps the group at this moment, or one that no group has: so a hidden group answers as one
 * that does not exist.
 */
export async function findShownGroup(
  parts: ServerParts,
  access: Access,
  action: Action,
  group: string,
): Promise<() => string> {
  const kept = access.scoped(group);
  if (access.isUnlimited) return () => kept;
  const { groups } = parts.engine.world;
  let known: GroupSettings | undefined;
  let isShown = true;
  do {
    known = groups.byId.get(kept)?.settings;
    isShown = known === undefined || (await mayFollow(parts, access, action, { group }, known));
  } while (groups.byId.get(kept)?.settings !== known);
  // The group can become another one at any time.
  return () => (isShown && groups.byId.get(kept)?.settings === known ? kept : NO_NAME);
}
