/**
 * One process per directory.
 *
 * On Linux the lock is a socket in the abstract namespace, named after the directory's device and inode: the
 * kernel frees it with the process, however that ends. A file beside it names the holder, for people and
 * for other systems, where it is the lock itself: a holder that is no longer alive has lost it.
 *
 *   LK1  two processes never hold one directory; LK2  a killed holder does not keep it.
 */

import * as fs from "node:fs";
import { createServer, type Server } from "node:net";
import { hostname } from "node:os";
import { join } from "node:path";
import { HapaxError } from "../../errors.ts";

export const LOCK_NAME = "LOCK";

export interface Lock {
  release(): Promise<void>;
}

export async function lockDirectory(directory: string): Promise<Lock> {
  const path = join(directory, LOCK_NAME);
  const holder = `${process.pid}\n${hostname()}\n`;
  const server = process.platform === "linux" ? await holdSocket(directory, path) : undefined;
  if (server === undefined) takeFile(path, holder);
  else nameHolder(path, holder);
  return {
    async release() {
      fs.rmSync(path, { force: true });
      if (server !== undefined) await closeServer(server);
    },
  };
}

/**
 * The same for whoever only looks: nothing is written into the directory. Where the file is the lock, it is only
 * looked at, so a server that starts in the middle is not kept out.
 */
export async function lockForReading(directory: string): Promise<Lock> {
  const path = join(directory, LOCK_NAME);
  if (process.platform === "linux") {
    const server = await holdSocket(directory, path);
    return { release: () => closeServer(server) };
  }
  const pid = Number(holderOf(path));
  if (isOther(pid)) throw locked(directory, String(pid));
  return { release: () => Promise.resolve() };
}

function closeServer(server: Server): Promise<void> {
  return new Promise((resolve) => {
    server.close(() => {
      resolve();
    });
  });
}

async function holdSocket(directory: string, path: string): Promise<Server> {
  const { dev, ino } = fs.statSync(directory, { bigint: true });
  const server = createServer((socket) => {
    socket.destroy();
  });
  server.unref();
  await new Promise<void>((resolve, reject) => {
    server.once("error", (error: NodeJS.ErrnoException) => {
      reject(error.code === "EADDRINUSE" ? locked(directory, holderOf(path)) : error);
    });
    server.listen({ path: `\0hapax-${dev}-${ino}` }, () => {
      resolve();
    });
  });
  return server;
}

// The socket is the lock: on a full disk the file stays empty, and the server can still be started to read.
function nameHolder(path: string, holder: string): void {
  try {
    fs.writeFileSync(path, holder);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== "ENOSPC" && code !== "EDQUOT") throw error;
  }
}

function takeFile(path: string, holder: string): void {
  for (;;) {
    try {
      fs.writeFileSync(path, holder, { flag: "wx" });
      return;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
    }
    const other = holderOf(path);
    if (isOther(Number(other))) throw locked(path, other);
    fs.rmSync(path, { force: true });
  }
}

function isOther(pid: number): boolean {
  return Number.isSafeInteger(pid) && pid > 0 && pid !== process.pid && isAlive(pid);
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}

function holderOf(path: string): string {
  try {
    return fs.readFileSync(path, "utf8").split("\n")[0] ?? "unknown";
  } catch {
    return "unknown"; // It is about to be written, or just gone: only the message suffers.
  }
}

function locked(directory: string, holder: string): HapaxError {
  return new HapaxError("directory_locked", `process ${holder} uses directory=${directory}`);
}
