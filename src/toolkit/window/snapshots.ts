/**
 * The snapshots of a window in a store of objects: two are kept, so that one that cannot be read has a predecessor.
 *
 * Their names have the epoch of their writer. A writer that was fenced writes beside its successor, and removes nothing of it.
 */

import { isSameBytes } from "../../base/bytes.ts";
import { HapaxError } from "../../base/errors.ts";
import { failpoint } from "../../base/failpoint.ts";
import type { WindowBounds, WindowState } from "../rules/window.ts";
import {
  encodeWindowSnapshotName,
  parseWindowSnapshotName,
  type SnapshotName,
  SNAPSHOTS,
} from "../rules/window-objects.ts";
import { decodeWindow, encodeWindow } from "../rules/window-snapshot.ts";
import type { WindowObjects } from "./objects.ts";

const KEPT = 2;

/** Returns the window of the newest snapshot that can be used. */
export async function loadSnapshot(
  objects: WindowObjects,
  bounds: WindowBounds,
): Promise<WindowState | undefined> {
  for (const name of (await namesIn(objects)).toReversed()) {
    const bytes = await objects.get(name);
    const state = bytes === undefined ? undefined : decodeWindow(bytes, bounds);
    if (state !== undefined) return state;
  }
  return undefined;
}

/** Writes a snapshot, then removes all but the newest ones up to it. */
export async function saveSnapshot(
  objects: WindowObjects,
  name: SnapshotName,
  state: WindowState,
): Promise<void> {
  const own = encodeWindowSnapshotName(name);
  const bytes = encodeWindow(state);
  // No other writer of this log has its epoch. Bytes of its own are there if an answer was lost.
  if (
    (await objects.create(own, bytes)) === "occupied" &&
    !isSameBytes(await objects.get(own), bytes)
  )
    throw new HapaxError(
      "data_damaged",
      `another log has its snapshots in this store: each log needs its own place; object=${own}`,
    );
  await failpoint("window.snapshot");
  const older = (await namesIn(objects)).filter((other) => other < own);
  // The newest snapshot may be broken. Its predecessor goes only when there are two after it.
  for (const other of older.slice(0, Math.max(0, older.length - (KEPT - 1)))) {
    await objects.remove(other);
    await failpoint("window.pruned");
  }
}

/** Oldest first. */
async function namesIn(objects: WindowObjects): Promise<string[]> {
  const names = await objects.list(SNAPSHOTS);
  return names.filter((name) => parseWindowSnapshotName(name) !== undefined).toSorted();
}
