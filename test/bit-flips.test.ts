// One bit of a cleanly closed store is wrong: exact data or a loud refusal that names the place.
import { expect, test } from "vitest";
import type { StreamId, StreamName } from "../src/streams/core/types.ts";
import type { World } from "../src/streams/core/world.ts";
import { isHapaxError } from "../src/base/errors.ts";
import { openOnDisk } from "../src/streams/stores/file/file-store.ts";
import { createSeededRandom } from "../src/testing/seeded-random.ts";
import { createSimulatedDisk } from "./kits/simulated-disk.ts";
import { created } from "../src/testing/store-case-kit.ts";
import { dataOf, type Images, imagesOf, recoverImages } from "./crash/image-disk.ts";
import { commit, writeSample } from "./crash/sample.ts";

const isLong = process.env["HAPAX_LONG"] !== undefined;
const LIMIT_MS = isLong ? 3_600_000 : 60_000;
/** Every bit of the first and of the last bytes; between them a part, unless it is the long run. */
const EDGE_BYTES = 64;
const STEP_BITS = 97;
const JOURNAL = "journal-000000000001.seg";

/** Long names make a large snapshot of few streams: a recovery costs by the stream. */
const NAME = `/case/${"a-name-like-the-long-ones-of-tenants-and-rooms/".repeat(2)}`;
const NAMED_STREAMS = 130;

/** A closed store: its first segment has 16 KiB of frames or more, and so has its snapshot, if any. */
async function writeStore(hasSnapshot: boolean): Promise<{ images: Images; snapshot: string }> {
  const disk = createSimulatedDisk(1);
  // With a snapshot, only the last segment is read when the store is opened.
  const options = { segmentBytes: (hasSnapshot ? 24 : 32) * 1024 };
  const store = await openOnDisk(disk, options, async () => {});
  await writeSample(store, createSeededRandom(1), 16 * 1024);
  if (hasSnapshot) {
    const first = store.world.nextId;
    const ids = Array.from({ length: NAMED_STREAMS }, (_, index) => first + index);
    await commit(
      store,
      ids.map((id) => created(id, { name: `${NAME}${id}` as StreamName })),
    );
    await store.maintain();
    await commit(store, [created(store.world.nextId)]);
  }
  await store.close();
  const images = await imagesOf(disk.kill());
  for (const name of images.keys()) if (name.startsWith("spare")) images.delete(name);
  return { images, snapshot: [...images.keys()].find((name) => name.endsWith(".snap")) ?? "" };
}

interface Sight {
  readonly world: World;
  readonly data: ReadonlyMap<StreamId, Buffer>;
}

async function look(images: Images): Promise<Sight> {
  const recovered = await recoverImages(images);
  return { world: recovered.world, data: await dataOf(images, recovered) };
}

/** All of it, to the last field. An undefined member counts as absent. */
function isSame(found: unknown, expected: unknown): boolean {
  if (found === expected) return true;
  if (typeof found !== "object" || typeof expected !== "object") return false;
  if (found === null || expected === null) return false;
  if (Buffer.isBuffer(found)) return Buffer.isBuffer(expected) && found.equals(expected);
  if (found instanceof Set) return expected instanceof Set && isSameSet(found, expected);
  if (found instanceof Map) {
    if (!(expected instanceof Map) || found.size !== expected.size) return false;
    for (const [key, value] of found) if (!isSame(value, expected.get(key))) return false;
    return true;
  }
  return hasSameFields(found, expected);
}

function isSameSet(found: ReadonlySet<unknown>, expected: ReadonlySet<unknown>): boolean {
  if (found.size !== expected.size) return false;
  for (const value of found) if (!expected.has(value)) return false;
  return true;
}

function hasSameFields(found: object, expected: object): boolean {
  const [one, other] = [found as Record<string, unknown>, expected as Record<string, unknown>];
  if (Array.isArray(found) !== Array.isArray(expected)) return false;
  for (const key in one) if (!isSame(one[key], other[key])) return false;
  for (const key in other) if (other[key] !== undefined && one[key] === undefined) return false;
  return true;
}

interface Outcome {
  exact: number;
  refused: number;
}

async function flipBits(images: Images, name: string, from: number, to: number): Promise<Outcome> {
  const expected = await look(images);
  const file = images.get(name) ?? Buffer.alloc(0);
  const outcome: Outcome = { exact: 0, refused: 0 };
  const isAtEdge = (byte: number): boolean => byte < from + EDGE_BYTES || byte >= to - EDGE_BYTES;
  for (let bit = from * 8; bit < to * 8; bit += 1) {
    const byte = bit >> 3;
    if (!isLong && !isAtEdge(byte) && bit % STEP_BITS !== 0) continue;
    const mask = 1 << (bit & 7);
    file[byte] = (file[byte] ?? 0) ^ mask;
    const place = `bit ${bit & 7} of byte ${byte} of ${name}`;
    try {
      if (!isSame(await look(images), expected)) throw new Error(`${place} changes the data`);
      outcome.exact += 1;
    } catch (error) {
      if (!isHapaxError(error, "data_damaged")) throw error;
      if (!/file=\S+ offset=\d+$/.test(error.message))
        throw new Error(`the refusal does not say where: ${place}`, { cause: error });
      outcome.refused += 1;
    } finally {
      file[byte] = (file[byte] ?? 0) ^ mask;
    }
  }
  if (isLong) expect(outcome.exact + outcome.refused).toBe((to - from) * 8);
  if (isLong)
    console.info(`${name} ${from} to ${to}: ${outcome.exact} exact, ${outcome.refused} refused`);
  return outcome;
}

test("what the bit flips are judged by sees every field and every byte", async () => {
  const { images } = await writeStore(true);
  const expected = await look(images);
  const other = await look(images);
  expect(isSame(other, expected)).toBe(true);
  const [stream] = [...other.world.byId.values()].filter(({ producers }) => producers);
  if (stream === undefined) throw new Error("no stream has a producer");
  for (const key of Object.keys(stream)) {
    const changed = { ...stream, [key]: "another" };
    const byId = new Map(other.world.byId).set(stream.id, changed);
    expect(isSame({ ...other, world: { ...other.world, byId } }, expected)).toBe(false);
  }
  const data = Buffer.from(other.data.get(stream.id) ?? []);
  data[data.length - 1] = (data[data.length - 1] ?? 0) ^ 1;
  expect(isSame({ ...other, data: new Map(other.data).set(stream.id, data) }, expected)).toBe(
    false,
  );
  const fewer = new Map(other.data);
  fewer.delete(stream.id);
  expect(isSame({ ...other, data: fewer }, expected)).toBe(false);
  expect(isSame(expected, { ...other, data: fewer })).toBe(false);
});

/** Where the last frame, which is empty, has ended. */
function endOf(journal: Buffer): number {
  let end = journal.length;
  while (end > 0 && journal[end - 1] === 0) end -= 1;
  return end;
}

test(
  "G12 RC2 no bit of a closed journal can be wrong without a refusal, unless nothing depends on it",
  async () => {
    const { images } = await writeStore(false);
    const end = endOf(images.get(JOURNAL) ?? Buffer.alloc(0));
    expect(end).toBeGreaterThan(4096 + 16 * 1024);
    const { exact, refused } = await flipBits(images, JOURNAL, 4096, end);
    // Only the empty last frame and the zeros between frames may be wrong unseen.
    expect(refused).toBeGreaterThan(exact * 2);
  },
  LIMIT_MS,
);

test(
  "RC4 no bit of a segment's header can be wrong with other data as the result",
  async () => {
    const { images } = await writeStore(false);
    const { exact, refused } = await flipBits(images, JOURNAL, 0, 4096);
    // The header is there twice.
    expect(exact).toBeGreaterThan(1000);
    expect(refused).toBe(0);
  },
  LIMIT_MS,
);

test(
  "behind a snapshot, no bit of the journal can be wrong with other data as the result",
  async () => {
    const { images } = await writeStore(true);
    const end = endOf(images.get(JOURNAL) ?? Buffer.alloc(0));
    const { refused } = await flipBits(images, JOURNAL, 4096, Math.min(end, 4096 + 20 * 1024));
    expect(refused).toBeGreaterThan(0);
  },
  LIMIT_MS,
);

test(
  "a wrong bit in the snapshot sends recovery to the journal, with the same result",
  async () => {
    const { images, snapshot } = await writeStore(true);
    const bytes = images.get(snapshot)?.length ?? 0;
    expect(bytes).toBeGreaterThan(16 * 1024);
    const { exact, refused } = await flipBits(images, snapshot, 0, bytes);
    expect(refused).toBe(0);
    expect(exact).toBeGreaterThan(1500);
  },
  LIMIT_MS,
);

test(
  "RC4 a wrong bit in the only snapshot of a journal that does not go back is refused",
  async () => {
    const { images, snapshot } = await writeStore(true);
    const journal = images.get(JOURNAL) ?? Buffer.alloc(0);
    const bytes = images.get(snapshot)?.length ?? 0;
    const file = images.get(snapshot) ?? Buffer.alloc(0);
    images.delete(JOURNAL);
    for (let byte = 0; byte < bytes; byte += isLong ? 1 : 17) {
      file[byte] = (file[byte] ?? 0) ^ 16;
      await expect(recoverImages(images)).rejects.toThrow(`file=${snapshot} offset=`);
      file[byte] = (file[byte] ?? 0) ^ 16;
    }
    images.set(JOURNAL, journal);
    expect((await look(images)).world.version).toBeGreaterThan(0);
  },
  LIMIT_MS,
);
