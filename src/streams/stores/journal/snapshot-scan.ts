/**
 * Looks through a snapshot for the tools that look at a directory, without making a world of it. It holds a few
 * megabytes of the file and the groups in memory.
 */

import { isHapaxError } from "../../../base/errors.ts";
import type { ByteSource } from "./segment-log.ts";
import { eachBlock, SnapshotBlocks } from "./snapshot-blocks.ts";
import type { SnapshotEnd, SnapshotHead } from "./snapshot-format.ts";

export interface SnapshotScan {
  readonly name: string;
  readonly bytes: number;
  readonly blocks: number;
  readonly streams: number;
  readonly head: SnapshotHead | undefined;
  readonly end: SnapshotEnd | undefined;
  /** Why it cannot be used, and where. */
  readonly fault: { readonly offset: number; readonly what: string } | undefined;
}

/** Closes the file at the end. */
export async function scanSnapshot(
  file: ByteSource,
  name: string,
  onBytes: (bytes: number) => void = () => undefined,
): Promise<SnapshotScan> {
  try {
    const bytes = await file.size();
    const found = new SnapshotBlocks(name);
    let position = 0;
    let fault: SnapshotScan["fault"];
    try {
      await eachBlock(file, bytes, (payload, end) => {
        found.take(payload);
        onBytes(end - position);
        position = end;
      });
      found.finish();
    } catch (error) {
      if (!isHapaxError(error, "data_damaged") && !(error instanceof SyntaxError)) throw error;
      fault = { offset: position, what: error.message };
    }
    const { blocks, streams, head, end } = found;
    return { name, bytes, blocks, streams, head, end, fault };
  } finally {
    await file.close();
  }
}
