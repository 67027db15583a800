// A journal whose writing ended at any byte: recovery finds the longest valid prefix, never an error, never a phantom.
import { describe as suite, expect, test } from "vitest";
import { openOnDisk } from "../src/streams/stores/file/file-store.ts";
import { SEGMENT_HEADER_BYTES } from "../src/streams/stores/journal/format.ts";
import { scanSegment } from "../src/streams/stores/journal/scan.ts";
import { STORE_NAME } from "../src/streams/stores/file/store-file.ts";
import { createSeededRandom } from "../src/testing/seeded-random.ts";
import { createSimulatedDisk } from "./kits/simulated-disk.ts";
import { appended } from "../src/testing/store-case-kit.ts";
import { describe } from "./crash/history.ts";
import { createImageDisk, dataOf, imagesOf, recoverImages } from "./crash/image-disk.ts";
import { commit, writeSample } from "./crash/sample.ts";

const isLong = process.env["HAPAX_LONG"] !== undefined;
const LIMIT_MS = isLong ? 3_600_000 : 60_000;
const SEGMENT_BYTES = 128 * 1024;
/** At every byte here; elsewhere at every 127th, unless it is the long run. */
const WINDOW_BYTES = 512;
const STEP_BYTES = 127;
const NAME = "journal-000000000001.seg";

interface Frame {
  readonly from: number;
  readonly to: number;
}

interface Journal {
  readonly image: Buffer;
  /** As it was when the process was killed. */
  readonly store: Buffer;
}

async function writeJournal(seed: number, bytes: number): Promise<Journal> {
  const disk = createSimulatedDisk(seed);
  const store = await openOnDisk(disk, { segmentBytes: SEGMENT_BYTES }, async () => {});
  await writeSample(store, createSeededRandom(seed), bytes);
  const images = await imagesOf(disk.kill());
  const [image, mark] = [images.get(NAME), images.get(STORE_NAME)];
  if (image === undefined || mark === undefined)
    throw new Error("the journal is not in one segment");
  return { image, store: mark };
}

async function framesOf(image: Buffer): Promise<readonly Frame[]> {
  const file = await createImageDisk(new Map([[NAME, image]])).open(NAME, "read");
  const frames: Frame[] = [];
  await scanSegment(file, image.readUInt32LE(32), 1, ({ position, bytes }) => {
    frames.push({ from: position, to: position + bytes.length });
  });
  return frames;
}

function imagesWith(image: Buffer, store: Buffer): Map<string, Buffer> {
  return new Map([
    [NAME, image],
    [STORE_NAME, store],
  ]);
}

/** What recovery must find when the first `count` frames are whole. */
class Expected {
  readonly #image: Buffer;
  readonly #store: Buffer;
  readonly #frames: readonly Frame[];
  readonly #worlds = new Map<number, string>();
  readonly #versions = new Map<number, number>();

  constructor({ image, store }: Journal, frames: readonly Frame[]) {
    this.#image = image;
    this.#store = store;
    this.#frames = frames;
  }

  async world(count: number): Promise<{ readonly text: string; readonly version: number }> {
    const known = this.#worlds.get(count);
    if (known !== undefined) return { text: known, version: this.#versions.get(count) ?? -1 };
    const whole = Buffer.alloc(this.#image.length);
    const end = this.#frames[count - 1]?.to ?? SEGMENT_HEADER_BYTES;
    this.#image.copy(whole, 0, 0, end);
    const images = imagesWith(whole, this.#store);
    const recovered = await recoverImages(images);
    const data = [...(await dataOf(images, recovered))].map(([id, bytes]) => [
      id,
      bytes.toString(),
    ]);
    this.#worlds.set(count, describe(recovered.world) + JSON.stringify(data));
    this.#versions.set(count, recovered.world.version);
    return this.world(count);
  }
}

function isWhole(found: Buffer, image: Buffer, frame: Frame, cut: number): boolean {
  if (frame.to <= cut) return true;
  if (found.length < frame.to || frame.from >= cut) return false;
  return found.subarray(cut, frame.to).equals(image.subarray(cut, frame.to));
}

type Filling = "zeros" | "old bytes" | "random bytes";

function fill(filling: Filling, old: Buffer): Buffer {
  if (filling === "old bytes") return Buffer.from(old);
  const bytes = Buffer.alloc(SEGMENT_BYTES);
  const random = createSeededRandom(5);
  if (filling !== "random bytes") return bytes;
  for (let at = 0; at < bytes.length; at += 1) bytes[at] = random.below(256);
  return bytes;
}

async function cutEverywhere(filling: Filling, journal: Journal, old: Buffer): Promise<number> {
  const { image, store } = journal;
  const frames = await framesOf(image);
  const expected = new Expected(journal, frames);
  const end = frames.at(-1)?.to ?? 0;
  const found = fill(filling, old);
  image.copy(found, 0, 0, SEGMENT_HEADER_BYTES);
  let copied = SEGMENT_HEADER_BYTES;
  let before = 0;
  let looked = -1;
  let cuts = 0;
  for (let cut = SEGMENT_HEADER_BYTES; cut <= end; cut += 1) {
    const isInWindow = cut < SEGMENT_HEADER_BYTES + WINDOW_BYTES;
    if (!isLong && !isInWindow && cut % STEP_BYTES !== 0 && cut < end) continue;
    image.copy(found, copied, copied, cut);
    copied = cut;
    while (before < frames.length && (frames[before]?.to ?? 0) <= cut) before += 1;
    const torn = frames[before];
    const count = before + (torn !== undefined && isWhole(found, image, torn, cut) ? 1 : 0);
    const images = imagesWith(found, store);
    const recovered = await recoverImages(images);
    const { version, text } = await expected.world(count);
    if (recovered.nextLsn !== count + 1 || recovered.world.version !== version) {
      throw new Error(`cut=${cut}: ${recovered.nextLsn - 1} frames were found, not ${count}`);
    }
    // Frames with the same numbers and checksums are the same; look at it whole once for each.
    if (looked !== count) {
      const data = [...(await dataOf(images, recovered))].map(([id, bytes]) => [
        id,
        bytes.toString(),
      ]);
      expect(describe(recovered.world) + JSON.stringify(data)).toBe(text);
    }
    looked = count;
    cuts += 1;
  }
  expect(looked).toBe(frames.length);
  return cuts;
}

suite("RC1 a journal of 64 KiB that is cut anywhere", async () => {
  const journal = await writeJournal(1, 64 * 1024);
  const { image: old } = await writeJournal(2, 70 * 1024);
  for (const filling of ["zeros", "old bytes", "random bytes"] as const) {
    test(
      `recovers its longest valid prefix before ${filling}`,
      async () => {
        const cuts = await cutEverywhere(filling, journal, old);
        expect(cuts).toBeGreaterThan(isLong ? 64 * 1024 : 1_000);
      },
      LIMIT_MS,
    );
  }
});

test("ID2 a file that is shorter than it was made is refused, wherever it ends", async () => {
  const { image, store } = await writeJournal(1, 64 * 1024);
  for (let bytes = SEGMENT_HEADER_BYTES; bytes < image.length; bytes += 997) {
    const recovering = recoverImages(imagesWith(image.subarray(0, bytes), store));
    await expect(recovering).rejects.toThrow(`the file has ${bytes} of ${image.length} bytes`);
  }
});

test("frames of an earlier use of the file are never taken for new ones, though their numbers fit", async () => {
  const { image, store } = await writeJournal(1, 8 * 1024);
  const { image: old } = await writeJournal(2, 16 * 1024);
  const frames = await framesOf(image);
  const oldFrames = await framesOf(old);
  // The journal ends where, in the earlier use, a frame with the very next number begins.
  for (const [at, frame] of frames.entries()) {
    const next = oldFrames[at + 1];
    if (next === undefined) break;
    const found = Buffer.alloc(SEGMENT_BYTES);
    image.copy(found, 0, 0, frame.to);
    old.copy(found, Math.ceil(frame.to / 8) * 8, next.from);
    expect((await recoverImages(imagesWith(found, store))).nextLsn).toBe(at + 2);
  }
});

test("RC1 writing goes on after a torn end, and the torn frame never comes back", async () => {
  for (let seed = 0; seed < 40; seed += 1) {
    const random = createSeededRandom(seed);
    const disk = createSimulatedDisk(seed);
    const store = await openOnDisk(disk, { segmentBytes: SEGMENT_BYTES }, async () => {});
    await writeSample(store, random, 4096);
    disk.stopAt(disk.log.length + 1);
    void commit(store, [appended(1, Buffer.alloc(3000, "torn"))]);
    await disk.stopped;
    const next = disk.crash();
    const reopened = await openOnDisk(next, { segmentBytes: SEGMENT_BYTES }, async () => {});
    const { version } = reopened.world;
    await reopened.close();
    const again = await openOnDisk(next.crash(), { segmentBytes: SEGMENT_BYTES }, async () => {});
    expect(again.world.version).toBe(version);
    await again.close();
  }
});
