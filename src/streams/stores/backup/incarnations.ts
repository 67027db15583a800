/** Begins the next incarnation of a store whose data went back in time. Decision 0143. */

import type { Clock } from "../../../base/clock.ts";
import type { Incarnation } from "../../../base/incarnation.ts";
import type { Random } from "../../../base/random.ts";
import type { Change } from "../../core/change.ts";
import type { TimeMs } from "../../core/types.ts";
import { applyChange } from "../../core/world.ts";
import type { Store } from "../../store.ts";

/** Commits it before anything else is written. The caller owns the store, and no engine uses it. */
export async function beginIncarnation(
  { world, commit }: { readonly world: Store["world"]; readonly commit: Store["commit"] },
  { clock, random }: { readonly clock: Clock; readonly random: Random },
): Promise<Incarnation> {
  const number = world.incarnation.number + 1;
  const mark = Number.parseInt(random.id().slice(0, 8), 16);
  const atMs = Math.max(world.timeMs, clock.nowMs()) as TimeMs;
  const change: Change = { kind: "incarnation_begun", atMs, number, mark };
  applyChange(world, change);
  await commit([change]);
  return { number, mark };
}
