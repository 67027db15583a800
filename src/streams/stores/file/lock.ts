/**
 * One process per directory.
 *
 * Where UNIX sockets exist, the lock is a socket in the directory itself (lock-socket.ts). On Linux there is a second
 * one in the abstract namespace, named after the directory's device and inode. It also keeps servers out while a tool
 * reads, and works on file systems without sockets. The kernel frees both when the process ends, for any reason. A
 * file beside them names the holder for people. On other systems this file is the lock: a holder that is no longer
 * alive has lost it.
 *
 *   - two processes never hold one directory;
 *   - a killed holder does not keep it;
 *   - the lock touches no file outside of the directory, also if there are links under its names.
 */

import * as fs from "node:fs";
import { createServer, type Server } from "node:net";
import { hostname } from "node:os";
import { join } from "node:path";
import { HapaxError } from "../../../base/errors.ts";
import { systemRandom } from "../../../base/random.ts";
import { findSocketHolder, isLockSocket, lockBySocket, type SocketLock } from "./lock-socket.ts";

export const LOCK_NAME = "LOCK";

/** Whether a file in a directory belongs to its lock. */
export function isOfLock(name: string): boolean {
  return name === LOCK_NAME || isLockSocket(name);
}

export interface Lock {
  release(): Promise<void>;
}

/** Locks the directory. Calls `onWarning` if the lock is weaker than it should be. */
export async function lockDirectory(
  directory: string,
  onWarning: (warning: string) => void = () => undefined,
): Promise<Lock> {
  const path = join(directory, LOCK_NAME);
  const holder = `${process.pid}\n${hostname()}\n`;
  const server = process.platform === "linux" ? await holdSocket(directory, path) : undefined;
  try {
    const socket = await holdByPath(directory, onWarning);
    if (server === undefined && socket === undefined) takeFile(path, holder);
    else nameHolder(path, holder);
    return {
      async release() {
        fs.rmSync(path, { force: true });
        await socket?.release();
        if (server !== undefined) await closeServer(server);
      },
    };
  } catch (error) {
    if (server !== undefined) await closeServer(server);
    throw error;
  }
}

async function holdByPath(
  directory: string,
  onWarning: (warning: string) => void,
): Promise<SocketLock | undefined> {
  if (process.platform === "win32") return undefined;
  const locking = await lockBySocket(directory, () => systemRandom.id());
  if (locking.kind === "held") return locking.lock;
  if (locking.kind === "other") throw locked(directory, locking.holder);
  onWarning(
    `there can be no socket in the directory (${locking.reason}): servers in other network namespaces are not kept out`,
  );
  return undefined;
}

/**
 * Locks the directory for a process that only looks: writes nothing into it. Where there is an abstract namespace,
 * and only there, it keeps out a server that starts meanwhile.
 */
export async function lockForReading(directory: string): Promise<Lock> {
  const path = join(directory, LOCK_NAME);
  const server = process.platform === "linux" ? await holdSocket(directory, path) : undefined;
  const release = async (): Promise<void> => {
    if (server !== undefined) await closeServer(server);
  };
  try {
    const holder = process.platform === "win32" ? undefined : await findSocketHolder(directory);
    if (holder !== undefined) throw locked(directory, holder);
    const pid = Number(holderOf(path));
    if (server === undefined && isOther(pid)) throw locked(directory, String(pid));
  } catch (error) {
    await release();
    throw error;
  }
  return { release };
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

// The socket is the lock. On a full disk the file stays empty, and the server can still start to serve reads.
function nameHolder(path: string, holder: string): void {
  try {
    // Remove what is there and never write through it: it may be a link.
    fs.rmSync(path, { force: true });
    fs.writeFileSync(path, holder, { flag: "wx", mode: 0o600 });
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== "ENOSPC" && code !== "EDQUOT") throw error;
  }
}

function takeFile(path: string, holder: string): void {
  for (;;) {
    try {
      fs.writeFileSync(path, holder, { flag: "wx", mode: 0o600 });
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
    if (!fs.lstatSync(path).isFile()) return "unknown";
    return fs.readFileSync(path, "utf8").split("\n")[0] ?? "unknown";
  } catch {
    return "unknown"; // The file is being written or is just gone. Only the message needs it.
  }
}

function locked(directory: string, holder: string): HapaxError {
  return new HapaxError("directory_locked", `process ${holder} uses directory=${directory}`);
}
