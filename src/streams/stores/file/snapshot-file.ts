/** Snapshots as files: each has its name only when it is complete, synced, and its content is durable in the journal. */

import type { ImageSink } from "../journal/segment-log.ts";
import type { Disk } from "./disk.ts";

export function snapshotName(lsn: number): string {
  return `snapshot-${String(lsn).padStart(16, "0")}.snap`;
}

export function parseSnapshotName(name: string): number | undefined {
  const match = /^snapshot-([0-9]{16})\.snap$/.exec(name);
  return match === null ? undefined : Number(match[1]);
}

export const UNFINISHED_SNAPSHOT = /^snapshot-[0-9]{16}\.tmp$/;

/** Makes a file of what `write` writes, once `write` has resolved. */
export async function putSnapshotFile(
  disk: Disk,
  lsn: number,
  write: (sink: ImageSink) => Promise<void>,
): Promise<void> {
  const unfinished = snapshotName(lsn).replace(/snap$/, "tmp");
  const file = await disk.open(unfinished, "create");
  let position = 0;
  const sink = {
    async write(bytes: Uint8Array): Promise<void> {
      await file.write([bytes], position);
      position += bytes.length;
    },
  };
  try {
    await write(sink);
    await file.sync();
  } catch (error) {
    await file.close();
    await disk.remove(unfinished);
    throw error;
  }
  await file.close();
  await disk.rename(unfinished, snapshotName(lsn));
  await disk.syncDirectory();
}
