import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { fileState, FileWatch } from "./node-file-watch.ts";

let folder = "";
let path = "";
let watch: FileWatch | undefined;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "hapax-watch-"));
  path = join(folder, "file");
  writeFileSync(path, "first");
});

afterEach(() => {
  watch?.close();
  rmSync(folder, { recursive: true, force: true });
});

async function start(isPatient: boolean, load: () => Promise<void>, onBroken: () => void) {
  const state = await fileState([path]);
  watch = new FileWatch({ paths: [path], everyMs: 20, isPatient, load, onBroken }, state);
}

test("a file that is written in two parts is not reported", async () => {
  const onBroken = vi.fn();
  const load = vi.fn(async () => {
    if (load.mock.calls.length > 1) return;
    writeFileSync(path, "the whole file");
    throw new Error("half of a file");
  });
  await start(false, load, onBroken);
  writeFileSync(path, "half");
  await vi.waitFor(() => expect(load).toHaveBeenCalledTimes(2), 10_000);
  await new Promise((resolve) => setTimeout(resolve, 100));
  expect(load).toHaveBeenCalledTimes(2);
  expect(onBroken).not.toHaveBeenCalled();
});

test("a broken file is tried a second time, and then reported once", async () => {
  const onBroken = vi.fn();
  const load = vi.fn(() => Promise.reject(new Error("broken")));
  await start(false, load, onBroken);
  writeFileSync(path, "broken");
  await vi.waitFor(() => expect(onBroken).toHaveBeenCalledTimes(1), 10_000);
  await new Promise((resolve) => setTimeout(resolve, 100));
  expect([load.mock.calls.length, onBroken.mock.calls.length]).toEqual([2, 1]);
});

test("a change between the look and the load is loaded too", async () => {
  const load = vi.fn(async () => {
    if (load.mock.calls.length === 1) writeFileSync(path, "another change");
  });
  await start(true, load, () => undefined);
  writeFileSync(path, "changed");
  await vi.waitFor(() => expect(load).toHaveBeenCalledTimes(2), 10_000);
});

test("a broken file that changes at every look is reported, once", async () => {
  const onBroken = vi.fn();
  const load = vi.fn(() => {
    writeFileSync(path, String(performance.now()));
    return Promise.reject(new Error("broken"));
  });
  await start(false, load, onBroken);
  writeFileSync(path, "broken");
  await vi.waitFor(() => expect(load.mock.calls.length).toBeGreaterThan(20), 10_000);
  expect(onBroken).toHaveBeenCalledTimes(1);
});

test("files that change at every look are used all the same, also by one that waits for the last of them", async () => {
  const load = vi.fn(() => Promise.resolve());
  await start(true, load, () => undefined);
  const writing = setInterval(() => writeFileSync(path, String(performance.now())), 3);
  try {
    await vi.waitFor(() => expect(load.mock.calls.length).toBeGreaterThan(1), 10_000);
  } finally {
    clearInterval(writing);
  }
});
