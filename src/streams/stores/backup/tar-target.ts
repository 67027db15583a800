/** A backup as one stream. What is written before an error, or a kill, has no document: it is no backup. */

import { createHash } from "node:crypto";
import { parseRfc3339 } from "../../../protocol/values.ts";
import { SEGMENT_HEADER_BYTES } from "../journal/format.ts";
import { BlockCheck, FrameStreamCheck } from "./checks.ts";
import {
  type BackupDocument,
  type BackupFile,
  backupDamage,
  documentFile,
  encodeDocument,
  type PlannedSegment,
  type PlannedSnapshot,
  segmentFile,
  snapshotFile,
} from "./document.ts";
import {
  type BackupSource,
  type BackupTarget,
  headerOf,
  requireLastFrame,
  requirePiece,
} from "./making.ts";
import { TAR_END, tarHeader, tarPadding } from "./tar.ts";

export class TarTarget implements BackupTarget {
  readonly #write: (bytes: Uint8Array) => Promise<void>;

  constructor(write: (bytes: Uint8Array) => Promise<void>) {
    this.#write = write;
  }

  async segment(
    source: BackupSource,
    segment: PlannedSegment,
    lastCrc: number | undefined,
  ): Promise<BackupFile> {
    const file = segmentFile(segment);
    const { bytes } = segment;
    const { storeId, takenAt } = source.plan;
    const check = new FrameStreamCheck(segment);
    const hash = createHash("sha256");
    const put = (piece: Uint8Array): Promise<void> => {
      hash.update(piece);
      return this.#write(piece);
    };
    await this.#write(tarHeader(file, bytes, timeOf(takenAt)));
    await put(headerOf(storeId, segment));
    for (let at = SEGMENT_HEADER_BYTES; at < bytes;) {
      const piece = requirePiece(await source.readSegment(segment, at), bytes - at, file);
      const fault = check.push(piece);
      if (fault !== undefined) throw backupDamage(file, fault);
      await put(piece);
      at += piece.length;
    }
    requireLastFrame(check, file, segment, lastCrc);
    await this.#write(tarPadding(bytes));
    return { file, bytes, sha256: hash.digest("hex"), crc: check.crc };
  }

  async snapshot(source: BackupSource, snapshot: PlannedSnapshot): Promise<BackupFile> {
    const { lsn, bytes } = snapshot;
    const check = new BlockCheck();
    const hash = createHash("sha256");
    let file = "";
    for (let at = 0; at < bytes;) {
      const piece = requirePiece(
        await source.readSnapshot(snapshot, at),
        bytes - at,
        `snapshot ${lsn}`,
      );
      if (at === 0) {
        file = snapshotFile(lsn, piece);
        await this.#write(tarHeader(file, bytes, timeOf(source.plan.takenAt)));
      }
      const fault = check.push(piece);
      if (fault !== undefined) throw backupDamage(file, fault);
      hash.update(piece);
      await this.#write(piece);
      at += piece.length;
    }
    const fault = check.finish();
    if (fault !== undefined) throw backupDamage(file, fault);
    await this.#write(tarPadding(bytes));
    return { file, bytes, sha256: hash.digest("hex") };
  }

  async finish(document: BackupDocument): Promise<void> {
    const bytes = encodeDocument(document);
    const name = documentFile(document);
    await this.#write(tarHeader(name, bytes.length, timeOf(document.takenAt)));
    await this.#write(bytes);
    await this.#write(tarPadding(bytes.length));
    await this.#write(TAR_END);
  }
}

const timeOf = (takenAt: string): number => parseRfc3339(takenAt) ?? 0;
