// The disk of this machine. The kernel writes little at a time, as it may on a full disk.
import * as fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, expect, test, vi } from "vitest";
import { pattern } from "../../../testing/store-case-kit.ts";
import type { DiskFile } from "./disk.ts";
import { openNodeDisk } from "./node-disk.ts";

/** What the kernel does with the next calls. The calls themselves are real. */
const kernel = vi.hoisted(() => ({
  writeBytesMax: Infinity,
  syncs: 0,
  openFlags: [] as number[],
  /** Writes of the thread pool, and of the main thread. */
  poolWrites: 0,
  mainWrites: 0,
  /** How long a write of the main thread takes. */
  mainMs: 0,
  nowMs: 0,
  mainError: undefined as Error | undefined,
}));

vi.mock("node:fs", async (original) => {
  const real = await original<typeof fs>();
  type Done = (error: NodeJS.ErrnoException | null, bytes: number) => void;
  return {
    ...real,
    writeSync(fd: number, buffer: Uint8Array, offset: number, length: number, at: number) {
      kernel.mainWrites += 1;
      if (kernel.mainError !== undefined) throw kernel.mainError;
      kernel.nowMs += kernel.mainMs;
      return real.writeSync(fd, buffer, offset, Math.min(length, kernel.writeBytesMax), at);
    },
    write(fd: number, buffer: Uint8Array, offset: number, length: number, at: number, done: Done) {
      kernel.poolWrites += 1;
      real.write(fd, buffer, offset, Math.min(length, kernel.writeBytesMax), at, done);
    },
    writev(fd: number, buffers: readonly Uint8Array[], at: number, done: Done) {
      const all = Buffer.concat(buffers);
      real.write(fd, all, 0, Math.min(all.length, kernel.writeBytesMax), at, done);
    },
    fdatasync(fd: number, done: (error: NodeJS.ErrnoException | null) => void) {
      kernel.syncs += 1;
      real.fdatasync(fd, done);
    },
    fsync(fd: number, done: (error: NodeJS.ErrnoException | null) => void) {
      kernel.syncs += 1;
      real.fsync(fd, done);
    },
    open(path: string, flags: number, mode: number, done: Done) {
      kernel.openFlags.push(flags);
      real.open(path, flags, mode, done);
    },
  };
});

const root = fs.mkdtempSync(join(tmpdir(), "hapax-node-disk-"));

afterEach(() => {
  vi.restoreAllMocks();
  const writes = { poolWrites: 0, mainWrites: 0, mainMs: 0, mainError: undefined };
  Object.assign(kernel, { writeBytesMax: Infinity, syncs: 0, openFlags: [], ...writes });
});

afterAll(() => {
  fs.rmSync(root, { recursive: true, force: true });
});

function directory(): string {
  return fs.mkdtempSync(join(root, "case-"));
}

test("a write that the kernel takes in parts arrives whole, from one buffer and from many", async () => {
  for (const writeBytesMax of [1, 7, 1000, 65_536]) {
    kernel.writeBytesMax = writeBytesMax;
    const disk = openNodeDisk(directory(), true);
    const file = await disk.open("one", "create");
    const size = Math.min(100_000, writeBytesMax * 300);
    const single = pattern(size, 1);
    const many = [pattern(3, 2), pattern(0, 0), pattern(size, 3), pattern(5, 4)];
    await file.write([single], 10);
    await file.write(many, 10 + size);
    const expected = Buffer.concat([Buffer.alloc(10), single, ...many]);
    expect(await file.size()).toBe(expected.length);
    expect((await file.read(0, expected.length + 50)).equals(expected)).toBe(true);
    await file.close();
  }
});

test("a kernel that writes nothing and gives no reason is asked a limited number of times", async () => {
  kernel.writeBytesMax = 0;
  const file = await openNodeDisk(directory(), true).open("one", "create");
  await expect(file.write([Buffer.alloc(10)], 0)).rejects.toThrow("wrote nothing");
  await file.close();
});

test("more buffers than the kernel takes in one call arrive in order", async () => {
  const file = await openNodeDisk(directory(), true).open("one", "create");
  const parts = Array.from({ length: 2500 }, (_, at) => Uint8Array.of(at % 256));
  await file.write(parts, 0);
  expect((await file.read(0, 2500)).equals(Buffer.concat(parts))).toBe(true);
  await file.close();
});

test("a durable file is opened so that a write returns when it is on the disk", async () => {
  const disk = openNodeDisk(directory(), true);
  await (await disk.open("one", "create")).close();
  const file = await disk.open("one", "durable");
  await file.write([Buffer.alloc(10)], 0);
  const { O_DSYNC } = fs.constants;
  const isSynchronous = ((kernel.openFlags.at(-1) ?? 0) & (O_DSYNC ?? 0)) !== 0;
  expect(isSynchronous || kernel.syncs === 1).toBe(true);
  await file.close();
});

/** Time passes only while the main thread writes: how fast this machine is must not decide. */
async function openDurable(isDurable = true): Promise<DiskFile> {
  vi.spyOn(performance, "now").mockImplementation(() => kernel.nowMs);
  const disk = openNodeDisk(directory(), isDurable);
  await (await disk.open("one", "create")).close();
  return disk.open("one", "durable");
}

const KNOWS_SYNCHRONOUS_WRITES = fs.constants.O_DSYNC !== undefined;

test.skipIf(!KNOWS_SYNCHRONOUS_WRITES)(
  "a short durable write is done by the main thread, and is whole if the kernel takes it in parts",
  async () => {
    const file = await openDurable();
    const data = pattern(300, 1);
    for (const [index, writeBytesMax] of [Infinity, 299, 7].entries()) {
      kernel.writeBytesMax = writeBytesMax;
      await file.write([data], index * 300);
      expect(kernel.mainWrites).toBe(index + 1);
    }
    expect(kernel.poolWrites).toBe(1 + Math.ceil(293 / 7));
    expect((await file.read(0, 1000)).equals(Buffer.concat([data, data, data]))).toBe(true);
    await file.close();
  },
);

test("longer durable writes, and writes of many buffers, are done by the pool", async () => {
  const file = await openDurable();
  await file.write([pattern(100_000, 1)], 0);
  await file.write([pattern(3, 2), pattern(4, 3)], 100_000);
  expect(kernel.mainWrites).toBe(0);
  expect(await file.size()).toBe(100_007);
  await file.close();
});

test.skipIf(!KNOWS_SYNCHRONOUS_WRITES)(
  "while a disk is slow, the pool writes, and the main thread tries again only after many writes",
  async () => {
    const file = await openDurable(false); // Ten thousand syncs would say no more.
    kernel.mainMs = 5;
    const write = async (times: number): Promise<readonly number[]> => {
      for (let count = 0; count < times; count += 1) await file.write([Buffer.alloc(10)], 0);
      return [kernel.mainWrites, kernel.poolWrites];
    };
    expect(await write(101)).toEqual([1, 100]);
    expect(await write(102)).toEqual([3, 200]);
    kernel.mainMs = 0.4;
    expect(await write(100)).toEqual([3, 300]);
    expect(await write(100)).toEqual([103, 300]);
    kernel.mainMs = 30_000;
    expect(await write(10_001)).toEqual([104, 10_300]);
    await file.close();
  },
);

test.skipIf(!KNOWS_SYNCHRONOUS_WRITES)(
  "a write of the main thread that fails is not tried again",
  async () => {
    const file = await openDurable();
    kernel.mainError = Object.assign(new Error("no more room"), { code: "ENOSPC" });
    await expect(file.write([Buffer.alloc(10)], 0)).rejects.toMatchObject({ code: "ENOSPC" });
    expect([kernel.mainWrites, kernel.poolWrites]).toEqual([1, 0]);
    await file.close();
  },
);

test("the directory is synced when it is asked for, and not when the page cache is trusted", async () => {
  const path = directory();
  await openNodeDisk(path, true).syncDirectory();
  expect(kernel.syncs).toBe(process.platform === "win32" ? 0 : 1);
  const trusting = openNodeDisk(path, false);
  const file = await trusting.open("one", "create");
  await file.sync();
  await trusting.syncDirectory();
  expect(kernel.syncs).toBe(process.platform === "win32" ? 0 : 1);
  await file.close();
});

test("a failed call throws its own error and leaves nothing open", async () => {
  const disk = openNodeDisk(directory(), true);
  for (const mode of ["read", "write", "durable"] as const) {
    await expect(disk.open("none", mode)).rejects.toMatchObject({ code: "ENOENT" });
  }
  const file = await disk.open("one", "create");
  await expect(disk.open("one", "create")).rejects.toMatchObject({ code: "EEXIST" });
  await file.close();
  await expect(file.size()).rejects.toMatchObject({ code: "EBADF" });
  await expect(file.close()).rejects.toMatchObject({ code: "EBADF" });
});

test("files are listed, renamed and removed", async () => {
  const disk = openNodeDisk(directory(), true);
  for (const name of ["one", "two"]) await (await disk.open(name, "create")).close();
  await disk.rename("one", "three");
  await disk.remove("two");
  expect(await disk.list()).toEqual(["three"]);
});
