import { rmSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { afterAll, expect, test } from "vitest";
import {
  changed,
  diskOf,
  filesOf,
  fillDirectory,
  freshDirectory,
  SEGMENT_BYTES,
  segmentFile,
} from "../../../../test/kits/directory-kit.ts";
import { inspectDisk } from "./inspection.ts";

const golden = fileURLToPath(new URL("../../../../test/golden/v1", import.meta.url));
const folders: string[] = [];

afterAll(() => {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
});

const inspect = (files: ReadonlyMap<string, Buffer>) =>
  inspectDisk(diskOf(files), async () => undefined);

test("the golden directory is shown with its files and its state", async () => {
  const inspection = await inspect(filesOf(`${golden}/whole`));
  expect(inspection.segments.map(({ number, isDamaged }) => ({ number, isDamaged }))).toEqual([
    { number: 4, isDamaged: false },
    { number: 5, isDamaged: false },
    { number: 6, isDamaged: false },
  ]);
  expect(inspection.snapshots.every(({ fault }) => fault === undefined)).toBe(true);
  expect(inspection.snapshotUsed).toBe(inspection.snapshots[0]?.lsn);
  expect(inspection.state).toMatchObject({
    streams: 13,
    producers: 7,
    subscriptions: 2,
    signingKeys: 2,
  });
  expect(inspection.torn).toBeUndefined();
  expect((await inspect(filesOf(`${golden}/torn`))).torn?.file).toBe(segmentFile(6));
  const streams = [...inspection.streams()];
  expect(streams.find(({ path }) => path === "/v1/stream/source")).toMatchObject({
    isDeleted: true,
    tail: 1200,
    dataBytes: 1200,
  });
  // A fork counts only data that was written to it.
  expect(streams.find(({ path }) => path === "/v1/stream/fork")).toMatchObject({
    tail: 1120,
    dataBytes: 20,
    extents: 1,
  });
});

test("sessions and keys are counted, in all and for each stream", async () => {
  const inspection = await inspect(filesOf(`${golden}/whole`));
  expect(inspection.state).toMatchObject({ streams: 13, producers: 7, sessions: 2, keys: 28 });
  const counts = new Map([...inspection.streams()].map((stream) => [stream.path, stream]));
  expect(counts.get("/v1/stream/payments")).toMatchObject({ producers: 0, sessions: 0, keys: 25 });
  expect(counts.get("/v1/stream/tills")).toMatchObject({ producers: 4, sessions: 2, keys: 0 });
});

test("every frame is counted, and what is alive is never more than what is used", async () => {
  const directory = freshDirectory();
  folders.push(directory);
  await fillDirectory(directory, 40);
  const { segments, lsn } = await inspect(filesOf(directory));
  expect(segments.reduce((sum, { frames }) => sum + frames, 0)).toBe(42);
  expect(lsn).toEqual({ first: 1, last: 42 });
  for (const { usedBytes, liveBytes = 0, fileBytes } of segments) {
    expect(fileBytes).toBe(SEGMENT_BYTES);
    expect(usedBytes).toBeLessThanOrEqual(fileBytes);
    expect(liveBytes).toBeLessThan(usedBytes);
    expect(liveBytes).toBeGreaterThan(0);
  }
});

test("a damaged directory is shown as far as it can be, and says why not further", async () => {
  const directory = freshDirectory();
  folders.push(directory);
  await fillDirectory(directory, 40);
  const files = changed(filesOf(directory), segmentFile(2), (bytes) => {
    bytes[5000] = (bytes[5000] ?? 0) ^ 1;
  });
  const { segments, state, refusal } = await inspect(files);
  expect(segments.filter(({ isDamaged }) => isDamaged).map(({ number }) => number)).toEqual([2]);
  expect(state).toBeUndefined();
  expect(refusal).toContain(segmentFile(2));
});
