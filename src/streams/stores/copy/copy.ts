/**
 * Copies a store from a directory to a database, or back. Frames and snapshots are copied as they are, so ids, offsets,
 * identities and everything else stay; a producer's retry after the move is a duplicate.
 *
 *   - a store that a living server owns is neither read nor written;
 *   - a target counts only when everything in it was compared with the source: before that no server opens it;
 *   - a copy that was killed at any moment is continued by the next one.
 */

import { createHash } from "node:crypto";
import { damage } from "../journal/bytes.ts";
import type {
  CopiedImage,
  CopiedSegment,
  CopySide,
  CopySource,
  CopyTarget,
  EndFrame,
} from "./sides.ts";

/** What a copy tells while it runs. */
export interface CopyEvents {
  readonly onProgress: (
    step: "copying" | "comparing",
    bytes: number,
    bytesTotal: number,
  ) => Promise<void>;
}

/** What was copied. */
export interface CopyReport {
  readonly storeId: string;
  readonly incarnation: number;
  readonly segments: number;
  readonly frames: number;
  readonly snapshots: number;
  readonly bytes: number;
  /** Bytes that an interrupted copy had brought before. */
  readonly bytesBefore: number;
  /** SHA-256 of everything, the same on both sides. */
  readonly digest: string;
}

const IMAGE_STEP_BYTES = 1024 * 1024;

/**
 * Copies everything, compares it, and makes the target a store. The caller closes both sides. `onLast` gets the last
 * frame of the source.
 */
export async function copyStore(
  source: CopySource,
  target: CopyTarget,
  events: CopyEvents,
  onLast: (last: EndFrame) => void,
): Promise<CopyReport> {
  const segments = await source.segments();
  const images = await source.images();
  const bytesTotal = sumOf(segments, images);
  const bytesBefore = sumOf(await target.segments(), await target.images());
  await copySegments(source, target, segments, (bytes) => {
    return events.onProgress("copying", bytes, bytesTotal);
  });
  await copyImages(source, target, images);
  await events.onProgress("copying", bytesTotal, bytesTotal);
  let compared = 0;
  const tell = (bytes: number): Promise<void> => {
    compared += bytes;
    return events.onProgress("comparing", Math.min(compared, 2 * bytesTotal), 2 * bytesTotal);
  };
  const wanted = await digestOf(source, tell);
  const found = await digestOf(target, tell);
  for (const [part, digest] of wanted.parts) {
    if (found.parts.get(part) !== digest) throw damage(part, 0, "the copy differs from the source");
  }
  if (found.parts.size !== wanted.parts.size) {
    throw damage(target.name, 0, "it has more than the source");
  }
  const { mark } = source;
  if (mark !== undefined && wanted.last.lsn < mark.lsn) {
    throw damage(
      source.name,
      0,
      `the end of the journal is missing: LSN ${wanted.last.lsn + 1} to ${mark.lsn}`,
    );
  }
  onLast(wanted.last);
  await target.finish(source, wanted.last);
  const digest = createHash("sha256")
    .update([...wanted.parts.values()].join())
    .digest("hex");
  const { storeId, incarnation } = source;
  const counts = { segments: segments.length, frames: wanted.frames, snapshots: images.length };
  return {
    storeId,
    incarnation: incarnation + 1,
    ...counts,
    bytes: bytesTotal,
    bytesBefore,
    digest,
  };
}

async function copySegments(
  source: CopySource,
  target: CopyTarget,
  segments: readonly CopiedSegment[],
  tell: (bytes: number) => Promise<void>,
): Promise<void> {
  const there = new Map((await target.segments()).map((segment) => [segment.number, segment]));
  for (const segment of segments) {
    const known = there.get(segment.number);
    there.delete(segment.number);
    if (known !== undefined && !isSameUse(known, segment)) {
      throw damage(
        target.name,
        0,
        `segment ${segment.number} is of another copy of the store: empty the target`,
      );
    }
  }
  // What the source has given up since an earlier attempt.
  for (const number of there.keys()) await target.dropSegment(number);
  let before = 0;
  for (const segment of segments) {
    const end = await target.addSegment(segment);
    if (end < segment.end) {
      await target.addFrames(segment, counted(source.frames(segment, end), before, tell));
    }
    before += segment.end;
    await tell(before);
  }
}

function isSameUse(one: CopiedSegment, other: CopiedSegment): boolean {
  const isSame = one.salt === other.salt && one.firstLsn === other.firstLsn;
  return isSame && one.crcBefore === other.crcBefore && one.end <= other.end;
}

async function* counted<Frame extends { readonly position: number }>(
  batches: AsyncIterable<readonly Frame[]>,
  before: number,
  tell: (bytes: number) => Promise<void>,
): AsyncGenerator<readonly Frame[]> {
  for await (const batch of batches) {
    yield batch;
    await tell(before + (batch.at(-1)?.position ?? 0));
  }
}

async function copyImages(
  source: CopySource,
  target: CopyTarget,
  images: readonly CopiedImage[],
): Promise<void> {
  const there = new Map((await target.images()).map((image) => [image.lsn, image]));
  const wanted = new Set(images.map(({ lsn }) => lsn));
  for (const lsn of there.keys()) if (!wanted.has(lsn)) await target.dropImage(lsn);
  for (const image of images) {
    if (there.get(image.lsn)?.bytes === image.bytes) continue;
    const bytes = await source.openImage(image);
    try {
      await target.addImage(image, bytes);
    } finally {
      await bytes.close();
    }
  }
}

interface Digest {
  /** By the name of a segment or a snapshot. */
  readonly parts: ReadonlyMap<string, string>;
  readonly frames: number;
  readonly last: EndFrame;
}

/** Reads everything of a side. */
async function digestOf(side: CopySide, tell: (bytes: number) => Promise<void>): Promise<Digest> {
  const parts = new Map<string, string>();
  let frames = 0;
  let last: EndFrame = { lsn: 0, crc: 0 };
  for (const segment of await side.segments()) {
    const { number, firstLsn, salt, crcBefore } = segment;
    const hash = createHash("sha256").update(JSON.stringify([number, firstLsn, salt, crcBefore]));
    last = { lsn: firstLsn - 1, crc: crcBefore };
    for await (const batch of side.frames(segment, 0)) {
      for (const { header, position, bytes } of batch) {
        hash.update(`${position};`).update(bytes);
        last = { lsn: header.lsn, crc: header.crc };
        frames += 1;
      }
      await tell(0);
    }
    await tell(segment.end);
    parts.set(`segment ${number}`, hash.digest("hex"));
  }
  for (const image of await side.images()) {
    const hash = createHash("sha256");
    const source = await side.openImage(image);
    try {
      for (let at = 0; at < image.bytes; at += IMAGE_STEP_BYTES) {
        hash.update(await source.read(at, Math.min(IMAGE_STEP_BYTES, image.bytes - at)));
      }
    } finally {
      await source.close();
    }
    parts.set(`snapshot ${image.lsn}`, hash.digest("hex"));
    await tell(image.bytes);
  }
  return { parts, frames, last };
}

function sumOf(segments: readonly CopiedSegment[], images: readonly CopiedImage[]): number {
  let bytes = 0;
  for (const { end } of segments) bytes += end;
  for (const image of images) bytes += image.bytes;
  return bytes;
}
