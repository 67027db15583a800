/** The disk of this machine, through `node:fs`. */

import * as fs from "node:fs";
import { join } from "node:path";
import { systemClock } from "../../../base/clock.ts";
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
  const short = new ShortWrites();
  return {
    list: () => fs.promises.readdir(directory),
    async open(name, mode) {
      const handle = await openFd(join(directory, name), flags[mode]);
      if (mode !== "durable") return createFile(handle, isDurable, mode, undefined);
      return createFile(handle, isDurable, mode, syncsEachWrite ? "sync" : short);
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
  // How a write becomes durable. Undefined: it does not.
  way: ShortWrites | "sync" | undefined,
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
      const count = way instanceof ShortWrites ? way.write(fd, buffers, position) : 0;
      const left = count === 0 ? buffers : skip(buffers, count);
      if (left.length > 0) await writeFully(fd, left, position + count);
      if (way === "sync") await sync();
    },
    sync,
    close: () => closeFd(fd),
  };
}

/**
 * Durable writes that the main thread does itself. A trip to the thread pool costs as much as a short write on a good disk: two
 * threads have to be woken. Meanwhile nothing else is done, so a write may be so only while the disk is fast: after one that took long,
 * many go to the pool before the next one is tried. docs/decisions/0170 has the figures.
 */
class ShortWrites {
  /** Writes that still go to the pool. */
  #toPool = 0;

  /** Returns how many bytes it has written. 0: the pool is to write them. */
  write(fd: number, buffers: readonly Uint8Array[], position: number): number {
    const [first] = buffers;
    if (first === undefined || buffers.length > 1 || first.length > SHORT_BYTES_MAX) return 0;
    if (this.#toPool > 0) {
      this.#toPool -= 1;
      return 0;
    }
    const begunMs = systemClock.steadyMs();
    const count = fs.writeSync(fd, first, 0, first.length, position);
    const tookMs = systemClock.steadyMs() - begunMs;
    if (tookMs > SHORT_MS_MAX) {
      this.#toPool = Math.min(TO_POOL_MAX, Math.ceil(tookMs * TO_POOL_PER_MS));
    }
    return count;
  }
}

/** A frame of a few small appends. When there are more, the pool writes while the next ones are decided. */
const SHORT_BYTES_MAX = 4096;
/** A write that takes longer than this is slow. */
const SHORT_MS_MAX = 0.5;
/**
 * The longer a slow write took, the more writes go to the pool before the next attempt: a disk that takes five milliseconds holds the main
 * thread for one of a hundred writes, and one that has a moment of weakness is used as before soon after it.
 */
const TO_POOL_PER_MS = 20;
const TO_POOL_MAX = 10_000;

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
