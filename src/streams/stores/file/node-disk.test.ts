// The disk of this machine. The kernel writes little at a time, as it may on a full disk.
import * as fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, expect, test, vi } from "vitest";
import { pattern } from "../../../testing/store-case-kit.ts";
import { openNodeDisk } from "./node-disk.ts";

/** What the kernel does with the next calls. The calls themselves are real. */
const kernel = vi.hoisted(() => ({ writeBytesMax: Infinity, syncs: 0, openFlags: [] as number[] }));

vi.mock("node:fs", async (original) => {
  const real = await original<typeof fs>();
  type Done = (error: NodeJS.ErrnoException | null, bytes: number) => void;
  return {
    ...real,
    write(fd: number, buffer: Uint8Array, offset: number, length: number, at: number, done: Done) {
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
  Object.assign(kernel, { writeBytesMax: Infinity, syncs: 0, openFlags: [] });
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
