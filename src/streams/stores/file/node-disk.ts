/** The disk of this machine, through `node:fs`. */

import * as fs from "node:fs";
import { join } from "node:path";
import { Turns } from "../../../base/turns.ts";
import type { Disk, DiskFile, DiskMode } from "./disk.ts";

/** Limits reads of old data, so that commits always find free threads in the pool, for any number of readers. */
const reads = new Turns(2);

/**
 * Opens a directory. `isDurable: false` trusts the page cache: data survives the end of the process, but not a power
 * cut.
 */
export function openNodeDisk(directory: string, isDurable: boolean): Disk {
  const { O_RDONLY, O_RDWR, O_CREAT, O_EXCL, O_DSYNC } = fs.constants;
  const flags: Record<DiskMode, number> = {
    read: O_RDONLY,
    write: O_RDWR,
    // One call that writes and syncs needs one trip to the thread pool instead of two.
    durable: isDurable ? O_RDWR | (O_DSYNC ?? 0) : O_RDWR,
    create: O_RDWR | O_CREAT | O_EXCL,
  };
  const syncsEachWrite = isDurable && O_DSYNC === undefined;
  return {
    list: () => fs.promises.readdir(directory),
    async open(name, mode) {
      const handle = await openFd(join(directory, name), flags[mode]);
      return createFile(handle, isDurable, mode, mode === "durable" && syncsEachWrite);
    },
    rename: (from, to) => fs.promises.rename(join(directory, from), join(directory, to)),
    remove: (name) => fs.promises.unlink(join(directory, name)),
    async syncDirectory() {
      if (!isDurable || process.platform === "win32") return; // Windows has no such call.
      const fd = await openFd(directory, O_RDONLY);
      try {
        await call((done) => {
          fs.fsync(fd, done);
        });
      } finally {
        await closeFd(fd);
      }
    },
  };
}

function createFile(
  fd: number,
  isDurable: boolean,
  mode: DiskMode,
  syncsEachWrite: boolean,
): DiskFile {
  const sync = (): Promise<void> =>
    isDurable
      ? call((done) => {
          fs.fdatasync(fd, done);
        })
      : Promise.resolve();
  return {
    async size() {
      return (await fstat(fd)).size;
    },
    // A writer reads only a few bytes of its file, and a commit waits for them.
    read: (position, length, into) =>
      mode === "durable"
        ? readFully(fd, position, length, into)
        : reads.run(() => readFully(fd, position, length, into)),
    async write(buffers, position) {
      await writeFully(fd, buffers, position);
      if (syncsEachWrite) await sync();
    },
    sync,
    close: () => closeFd(fd),
  };
}

async function readFully(
  fd: number,
  position: number,
  length: number,
  buffer: Buffer = Buffer.allocUnsafe(length),
): Promise<Buffer> {
  let filled = 0;
  while (filled < length) {
    const count = await new Promise<number>((resolve, reject) => {
      fs.read(fd, buffer, filled, length - filled, position + filled, (error, bytes) => {
        if (error !== null) reject(error);
        else resolve(bytes);
      });
    });
    if (count === 0) break;
    filled += count;
  }
  return buffer.subarray(0, filled);
}

// The kernel may write less than it got, without an error. The next call then gives the reason.
async function writeFully(
  fd: number,
  buffers: readonly Uint8Array[],
  position: number,
): Promise<void> {
  let left = buffers;
  let at = position;
  while (left.length > 0) {
    const count = await writeOnce(fd, left, at);
    at += count;
    left = skip(left, count);
  }
}

function writeOnce(fd: number, buffers: readonly Uint8Array[], position: number): Promise<number> {
  return new Promise((resolve, reject) => {
    const done = (error: NodeJS.ErrnoException | null, bytes: number): void => {
      if (error !== null) reject(error);
      else if (bytes === 0) reject(new Error("the file system wrote nothing and gave no reason"));
      else resolve(bytes);
    };
    const [first] = buffers;
    if (first !== undefined && buffers.length === 1) {
      fs.write(fd, first, 0, first.length, position, done);
    } else {
      fs.writev(fd, buffers.slice(0, IOV_MAX), position, done);
    }
  });
}

/** Most buffers that Linux takes in one call. */
const IOV_MAX = 1024;

function skip(buffers: readonly Uint8Array[], bytes: number): readonly Uint8Array[] {
  let left = bytes;
  let index = 0;
  for (const buffer of buffers) {
    if (left < buffer.length) break;
    left -= buffer.length;
    index += 1;
  }
  const rest = buffers.slice(index);
  const [first] = rest;
  if (first !== undefined && left > 0) rest[0] = first.subarray(left);
  return rest;
}

function openFd(path: string, flags: number): Promise<number> {
  return new Promise((resolve, reject) => {
    fs.open(path, flags, 0o600, (error, fd) => {
      if (error !== null) reject(error);
      else resolve(fd);
    });
  });
}

function closeFd(fd: number): Promise<void> {
  return call((done) => {
    fs.close(fd, done);
  });
}

function fstat(fd: number): Promise<fs.Stats> {
  return new Promise((resolve, reject) => {
    fs.fstat(fd, (error, stats) => {
      if (error !== null) reject(error);
      else resolve(stats);
    });
  });
}

function call(run: (done: (error: NodeJS.ErrnoException | null) => void) => void): Promise<void> {
  return new Promise((resolve, reject) => {
    run((error) => {
      if (error !== null && error !== undefined) reject(error);
      else resolve();
    });
  });
}
