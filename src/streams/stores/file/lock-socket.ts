/**
 * A lock within one kernel: a UNIX socket by path, in the directory itself. A socket in the abstract namespace is
 * seen only in its network namespace, and a process id means something else in every PID namespace. This socket is
 * seen from everywhere, so containers that share a volume see each other. When its process has ended, for any reason,
 * the socket refuses connections.
 *
 * Each process binds a name that no other process ever uses, and only then looks for others. If two begin at the same
 * time, the second to look sees the first, so they never both find themselves alone. A dead name stays dead: any
 * process may remove it. If both are still looking, the smaller name stays and the other steps back.
 */

import * as fs from "node:fs";
import { connect, createServer, type Server } from "node:net";
import { hostname } from "node:os";
import { join } from "node:path";
import { waitingClock } from "../../../base/clock.ts";

const NAME = /^lock-([0-9a-f]{32})\.sock$/;
/** Longest path that fits into the address of a socket on every system. */
const PATH_BYTES_MAX = 100;
const ANSWER_MS = 500;
const PAUSE_MS = 20;
const TRIES_MAX = 150;

export interface SocketLock {
  release(): Promise<void>;
}

export type SocketLocking =
  | { readonly kind: "held"; readonly lock: SocketLock }
  | { readonly kind: "other"; readonly holder: string }
  /** A socket is not possible here. */
  | { readonly kind: "unsupported"; readonly reason: string };

export function isLockSocket(name: string): boolean {
  return NAME.test(name);
}

/** Takes the lock. Each nonce is new and has 32 hexadecimal digits. */
export async function lockBySocket(
  directory: string,
  makeNonce: () => string,
): Promise<SocketLocking> {
  const place = openPlace(directory);
  try {
    for (let tries = 1; ; tries += 1) {
      const own = new OwnSocket(place, makeNonce());
      const fault = await own.bind();
      if (fault !== undefined) {
        place.close();
        return { kind: "unsupported", reason: fault };
      }
      const verdict = await contend(place, own, tries);
      if (verdict === "alone") {
        own.state = "holds";
        const lock: SocketLock = {
          async release() {
            await own.close();
            place.close();
          },
        };
        return { kind: "held", lock };
      }
      await own.close();
      if (verdict !== "step back" || tries === TRIES_MAX) {
        place.close();
        return { kind: "other", holder: verdict === "step back" ? "unknown" : verdict.holder };
      }
      await pause(PAUSE_MS + (tries % 7) * PAUSE_MS);
    }
  } catch (error) {
    place.close();
    throw error;
  }
}

/** Finds the holder of the directory, for a process that only looks. Writes nothing. */
export async function findSocketHolder(directory: string): Promise<string | undefined> {
  const place = openPlace(directory);
  try {
    for (const name of place.names()) {
      const answer = await ask(place, name);
      if (answer !== undefined) return answer.holder;
    }
    return undefined;
  } finally {
    place.close();
  }
}

/** The directory, with a path that is short enough for a socket. */
interface SocketDirectory {
  readonly names: () => readonly string[];
  readonly pathOf: (name: string) => string;
  readonly close: () => void;
}

function openPlace(directory: string): SocketDirectory {
  const names = (): readonly string[] => fs.readdirSync(directory).filter(isLockSocket);
  const isShort = Buffer.byteLength(directory) + 40 <= PATH_BYTES_MAX;
  if (isShort || process.platform !== "linux") {
    return { names, pathOf: (name) => join(directory, name), close: () => undefined };
  }
  const fd = fs.openSync(directory, fs.constants.O_RDONLY);
  let isOpen = true;
  return {
    names,
    pathOf: (name) => `/proc/self/fd/${fd}/${name}`,
    close() {
      if (isOpen) fs.closeSync(fd);
      isOpen = false;
    },
  };
}

async function contend(
  place: SocketDirectory,
  own: OwnSocket,
  tries: number,
): Promise<"alone" | "step back" | { readonly holder: string }> {
  for (let look = tries; look <= TRIES_MAX; look += 1) {
    let isAlone = true;
    for (const name of place.names()) {
      if (name === own.name) continue;
      const answer = await ask(place, name);
      if (answer === undefined) {
        fs.rmSync(place.pathOf(name), { force: true });
        continue;
      }
      if (answer.state === "holds") return { holder: answer.holder };
      if (name < own.name) return "step back";
      isAlone = false;
    }
    if (isAlone) return "alone";
    await pause(PAUSE_MS);
  }
  return "step back";
}

class OwnSocket {
  readonly name: string;
  state: "tries" | "holds" = "tries";
  readonly #path: string;
  readonly #server: Server;

  constructor(place: SocketDirectory, nonce: string) {
    this.name = `lock-${nonce}.sock`;
    this.#path = place.pathOf(this.name);
    this.#server = createServer((socket) => {
      socket.on("error", () => undefined);
      socket.end(`${this.state} ${process.pid} ${hostname()}\n`);
      socket.resume();
    });
    this.#server.unref();
  }

  /** Binds the socket. Returns the reason if there can be no socket here. Throws errors of the directory itself. */
  async bind(): Promise<string | undefined> {
    try {
      await new Promise<void>((resolve, reject) => {
        this.#server.once("error", reject);
        this.#server.listen({ path: this.#path }, resolve);
      });
      fs.chmodSync(this.#path, 0o600);
      return undefined;
    } catch (error) {
      await this.close();
      const { code, message } = error as NodeJS.ErrnoException;
      if (code === "EACCES" || code === "EROFS" || code === "ENOENT" || code === "EIO") throw error;
      return message;
    }
  }

  close(): Promise<void> {
    return new Promise((resolve) => {
      this.#server.close(() => {
        resolve();
      });
    });
  }
}

interface LockAnswer {
  readonly state: string;
  /** Process and host. */
  readonly holder: string;
}

/**
 * Asks the process that listens there. Undefined if none does, because it has ended. A process that does not answer
 * in time counts as alive.
 */
function ask(place: SocketDirectory, name: string): Promise<LockAnswer | undefined> {
  return new Promise((resolve) => {
    let text = "";
    const socket = connect({ path: place.pathOf(name) });
    const finish = (): void => {
      socket.destroy();
      const [state = "holds", pid = "unknown", host = ""] = text.trim().split(" ");
      const holder = host === "" ? pid : `${pid} on ${host}`;
      resolve({ state: state === "tries" ? state : "holds", holder });
    };
    socket.setTimeout(ANSWER_MS, finish);
    socket.setEncoding("utf8");
    socket.on("data", (part: string) => {
      text += part;
      if (text.length > 1000) finish();
    });
    socket.on("end", finish);
    socket.on("error", (error: NodeJS.ErrnoException) => {
      // Every other error comes from a living process, for instance a socket of another user or a full queue.
      if (error.code === "ECONNREFUSED" || error.code === "ENOENT") resolve(undefined);
      // The process ended while it was asked. The next answer is certain.
      else if (error.code === "ECONNRESET")
        void pause(PAUSE_MS).then(() => resolve(ask(place, name)));
      else finish();
    });
  });
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => {
    waitingClock.after(ms, resolve);
  });
}
