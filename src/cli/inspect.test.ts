import { rmSync } from "node:fs";
import { afterAll, beforeAll, expect, test } from "vitest";

import { hapax } from "../../test/kits/cli-harness.ts";
import {
  filesOf,
  fillDirectory,
  flip,
  freshDirectory,
  SEGMENT_BYTES,
  segmentFile,
} from "../../test/kits/directory-kit.ts";
import { openFileStore } from "../streams/stores/file.ts";

const directory = freshDirectory();
const damaged = freshDirectory();

beforeAll(async () => {
  await fillDirectory(directory, 30, [20]);
  await fillDirectory(damaged, 30);
  flip(damaged, segmentFile(2), 6000);
});

afterAll(() => {
  rmSync(directory, { recursive: true, force: true });
  rmSync(damaged, { recursive: true, force: true });
});

test("files, state and streams are shown, and nothing is written", async () => {
  const before = filesOf(directory);
  const { code, stdout } = await hapax(["inspect", directory]);
  expect(code).toBe(0);
  expect(stdout).toMatch(/^journal +LSN 1 to 32, 3 segments, 48\.0 KiB$/m);
  expect(stdout).toMatch(/^streams +2 with 29\.3 KiB of data$/m);
  expect(stdout).toMatch(/^starts from +the snapshot of LSN 21$/m);
  expect(stdout).toMatch(/^journal-000000000001\.seg +1 +\d+ +1\d\.\d KiB of 16\.0 KiB +\d\d %$/m);
  expect(stdout).toMatch(/^snapshot-0000000000000021\.snap +2\S+Z +2 +\d+ B +whole$/m);
  expect(stdout).toMatch(/^\/case\/1 +text\/plain +15000 +14\.6 KiB +open +0 +\d+$/m);
  expect(filesOf(directory)).toEqual(before);
});

test("--json is one line, and --streams adds one for each stream", async () => {
  const { stdout } = await hapax(["inspect", directory, "--json", "--streams"]);
  const lines = stdout
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line) as object);
  expect(lines).toHaveLength(3);
  expect(lines[0]).toMatchObject({ lsn: { first: 1, last: 32 }, state: { streams: 2 } });
  expect(lines[1]).toMatchObject({ path: "/case/1", tail: 15_000, isClosed: false });
});

test("what cannot be replayed is said, with exit code 1", async () => {
  const { code, stdout } = await hapax(["inspect", damaged]);
  expect(code).toBe(1);
  expect(stdout).toMatch(/^damaged +.*journal-000000000002\.seg.*hapax verify/m);
  expect(stdout).toMatch(/^journal-000000000002\.seg .* damaged$/m);
});

test("a directory in use is refused, and --no-lock says what that means", async () => {
  const store = await openFileStore(directory, { segmentBytes: SEGMENT_BYTES });
  try {
    const refused = await hapax(["inspect", directory]);
    expect(refused.code).toBe(1);
    expect(refused.stderr).toContain(`process ${process.pid} uses directory=`);
    expect(refused.stderr).toContain("--no-lock");
    const anyway = await hapax(["inspect", directory, "--no-lock"]);
    expect(anyway.code).toBe(0);
    expect(anyway.stderr).toContain("may mix two moments");
  } finally {
    await store.close();
  }
});

test.each([
  ["/nowhere/at/all", "ENOENT"],
  [import.meta.filename, "is not a directory"],
  [import.meta.dirname, "no streams are kept in"],
])("%s is not a directory of streams: exit code 2", async (path, reason) => {
  const { code, stderr } = await hapax(["inspect", path]);
  expect({ code, stderr }).toEqual({ code: 2, stderr: expect.stringContaining(reason) });
});

test("a bar is shown on a terminal, and lines where they are asked for", async () => {
  const terminal = await hapax(["inspect", directory], { isTerminal: true });
  expect(terminal.stderr).toContain("[##############################] 100 % of 48.0 KiB");
  expect(terminal.stderr.endsWith("\r\u001b[K")).toBe(true);
  const asked = await hapax(["inspect", directory, "--progress"]);
  expect(asked.stderr).toMatch(/^reading \[#+\.*\] +\d+ % of 48\.0 KiB\n/);
  expect((await hapax(["inspect", directory])).stderr).toBe("");
});
