import { readdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { afterEach, expect, test } from "vitest";

import { hapax } from "../../test/kits/cli-harness.ts";
import {
  filesOf,
  fillDirectory,
  flip,
  freshDirectory,
  SEGMENT_BYTES,
  segmentFile,
  tailsOf,
} from "../../test/kits/directory-kit.ts";
import { openFileStore } from "../streams/stores/file.ts";

const folders: string[] = [];

afterEach(() => {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true });
});

async function filled(frames: number, maintainAt: readonly number[] = []): Promise<string> {
  const directory = freshDirectory();
  folders.push(directory);
  await fillDirectory(directory, frames, maintainAt);
  return directory;
}

test("what is sound needs no repair", async () => {
  const directory = await filled(5);
  expect(await hapax(["repair", directory])).toMatchObject({
    code: 0,
    stdout: "sound: nothing to repair\n",
  });
});

test("without --apply it only speaks; with it the originals are kept and the result is verified", async () => {
  const directory = await filled(30, [10, 20]);
  const tails = await tailsOf(directory);
  const newest =
    readdirSync(directory)
      .filter((name) => name.endsWith(".snap"))
      .toSorted()
      .at(-1) ?? "";
  flip(directory, newest, 50);
  const before = filesOf(directory);
  const spoken = await hapax(["repair", directory]);
  expect(spoken.code).toBe(1);
  expect(spoken.stdout).toContain(`with --apply:\n  move ${newest} to quarantine`);
  expect(spoken.stdout).toContain("this loses nothing, and a server starts afterwards");
  expect(filesOf(directory)).toEqual(before);
  const done = await hapax(["repair", directory, "--apply"]);
  expect(done.code).toBe(0);
  expect(done.stdout).toMatch(/\nsound\n$/);
  const quarantine = /originals are in .*(quarantine-[\w-]+)/.exec(done.stdout)?.[1] ?? "";
  expect(readFileSync(join(directory, quarantine, newest))).toEqual(before.get(newest));
  expect(readFileSync(join(directory, quarantine, "repair.json"), "utf8")).toContain(newest);
  expect(await tailsOf(directory)).toEqual(tails);
});

test("damage in the middle shows two choices; only --cut-at-lsn gives anything up", async () => {
  const directory = await filled(30);
  flip(directory, segmentFile(2), 6000);
  const before = filesOf(directory);
  const spoken = await hapax(["repair", directory]);
  expect(spoken.code).toBe(1);
  const lsn = /--apply --cut-at-lsn (\d+)$/m.exec(spoken.stdout)?.[1] ?? "";
  expect(spoken.stdout).toMatch(
    new RegExp(`^ {2}loses LSN ${lsn} to 32: \\d+ frames that can be read, 1 that cannot$`, "m"),
  );
  expect(spoken.stdout).toMatch(/^ {4}\/case\/1: \d+ appends \(\d+\.\d KiB\)$/m);
  const kept = await hapax(["repair", directory, "--apply"]);
  expect(kept.code).toBe(1);
  expect(filesOf(directory)).toEqual(before);
  const refused = await hapax(["repair", directory, "--apply", "--cut-at-lsn", "31"]);
  expect(refused.code).toBe(1);
  expect(refused.stderr).toContain(`cannot cut at LSN 31: LSN ${lsn} is damaged`);
  expect(filesOf(directory)).toEqual(before);
  const cut = await hapax(["repair", directory, "--apply", "--cut-at-lsn", lsn]);
  expect(cut.code).toBe(0);
  expect(cut.stdout).toContain(`the cut before LSN ${lsn}:\n  loses LSN ${lsn} to 32`);
  expect((await tailsOf(directory)).reduce((sum, tail) => sum + tail, 0)).toBe(
    1000 * (Number(lsn) - 2),
  );
});

test("a directory in use is not repaired", async () => {
  const directory = await filled(5);
  const store = await openFileStore(directory, { segmentBytes: SEGMENT_BYTES });
  try {
    const { code, stderr } = await hapax(["repair", directory, "--apply"]);
    expect(code).toBe(1);
    expect(stderr).toContain("uses directory=");
    expect(stderr).not.toContain("--no-lock");
  } finally {
    await store.close();
  }
});

test("--cut-at-lsn takes a whole number", async () => {
  const { code, stderr } = await hapax(["repair", await filled(1), "--cut-at-lsn", "many"]);
  expect(code).toBe(2);
  expect(stderr).toContain("--cut-at-lsn");
});
