/**
 * Where groups over very many streams begin. An offset may be refused by any stream, so all of them are asked in one step.
 * The offset zero is refused only by streams that were trimmed: these are looked for in slices, and then the group begins,
 * in slices too, at the beginning of each stream. PROTOCOL.md §20.1
 */

import type { PositionRefusal } from "../core/group-decide.ts";
import type { GroupOrigin, GroupState } from "../core/group-state.ts";
import type { StreamState } from "../core/stream.ts";
import { earliestOf } from "../core/trim.ts";
import { OFFSET_ZERO } from "../core/types.ts";
import type { Writer } from "./writer.ts";

type GroupStart = Pick<GroupState, "id" | "settings" | "cursors">;

export function isAskedInOneStep(origin: GroupOrigin): boolean {
  return origin.kind === "offset" && origin.offset !== OFFSET_ZERO;
}

/** What was trimmed after the look begins at its earliest offset, as if the group had been there before. */
export function asBeginning(origin: GroupOrigin): GroupOrigin {
  return origin.kind === "offset" && origin.offset === OFFSET_ZERO ? { kind: "beginning" } : origin;
}

/** The group, as what decides where each stream joins it. */
export function fromBeginning({ id, settings, cursors }: GroupState): GroupStart {
  return { id, cursors, settings: { ...settings, start: asBeginning(settings.start) } };
}

/** Returns why a group cannot begin at the offset zero of these streams, if it cannot. */
export async function findTrimmed(
  writer: Writer,
  isMeant: (state: StreamState) => boolean,
): Promise<PositionRefusal | undefined> {
  const slices = writer.slices();
  const { world } = writer;
  for (const state of world.streams.values()) {
    if (!slices.take()) await slices.turn();
    const earliest = earliestOf(world, state);
    if (earliest > OFFSET_ZERO && isMeant(state)) {
      return { kind: "trimmed", stream: state.name, earliest };
    }
  }
  return undefined;
}
