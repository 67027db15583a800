/** A link to a server that a test can hold or cut: bytes stop, or connections end and new ones are refused. */

import { mkdtempSync, rmSync } from "node:fs";
import { connect, createServer, type NetConnectOpts, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

export interface Link {
  /** Bytes stop in both directions; new connections get no answer. */
  hold(): void;
  /** Connections end, and new ones are refused. */
  cut(): Promise<void>;
  /** As before. What was held arrives. */
  mend(): Promise<void>;
  close(): Promise<void>;
}

/** Listens at `at`, and leads to `target`. */
export async function openLink(
  at: { readonly port: number; readonly host: string } | { readonly path: string },
  target: NetConnectOpts,
): Promise<Link> {
  const open = new Set<Socket>();
  let isHeld = false;
  let isCut = false;
  const server = createServer((near) => {
    const far = connect(target);
    for (const [socket, other] of [
      [near, far],
      [far, near],
    ] as const) {
      open.add(socket);
      socket.on("error", () => undefined);
      socket.on("close", () => {
        open.delete(socket);
        other.destroy();
      });
      socket.on("data", (bytes) => other.write(bytes));
      if (isHeld) socket.pause();
    }
  });
  const listen = (): Promise<void> => {
    return new Promise((resolve, reject) => {
      server.once("error", reject);
      server.listen(at, () => {
        server.off("error", reject);
        resolve();
      });
    });
  };
  const end = (): Promise<void> => {
    const closed = new Promise<void>((resolve) => {
      server.close(() => resolve());
    });
    for (const socket of [...open]) socket.destroy();
    return closed;
  };
  await listen();
  return {
    hold() {
      isHeld = true;
      for (const socket of open) socket.pause();
    },
    async cut() {
      isCut = true;
      await end();
    },
    async mend() {
      isHeld = false;
      for (const socket of open) socket.resume();
      if (isCut) await listen();
      isCut = false;
    },
    async close() {
      if (!isCut) await end();
    },
  };
}

/** A link to a PostgreSQL that listens in a folder. `host`: the folder of the link. */
export async function openDatabaseLink(
  folder: string,
): Promise<{ readonly link: Link; readonly host: string; close(): Promise<void> }> {
  const host = mkdtempSync(join(tmpdir(), "hapax-link-"));
  const name = ".s.PGSQL.5432";
  const link = await openLink({ path: join(host, name) }, { path: join(folder, name) });
  return {
    link,
    host,
    async close() {
      await link.close();
      rmSync(host, { recursive: true, force: true });
    },
  };
}

/** A door of which each connection leads to a random one of several servers, as that of a balancer. */
export function openRandomDoor(
  ports: () => readonly number[],
): Promise<{ readonly port: number; close(): Promise<void> }> {
  const open = new Set<Socket>();
  const server = createServer((near) => {
    const choices = ports();
    const far = connect(choices[Math.floor(Math.random() * choices.length)] ?? 0, "127.0.0.1");
    for (const socket of [near, far]) {
      open.add(socket);
      socket.on("error", () => undefined);
      socket.on("close", () => {
        open.delete(socket);
        (socket === near ? far : near).destroy();
      });
    }
    near.pipe(far).pipe(near);
  });
  return new Promise((resolve) => {
    server.listen(0, "127.0.0.1", () => {
      const address = server.address();
      const port = typeof address === "object" && address !== null ? address.port : 0;
      const close = (): Promise<void> => {
        const closed = new Promise<void>((done) => {
          server.close(() => done());
        });
        for (const socket of [...open]) socket.destroy();
        return closed;
      };
      resolve({ port, close });
    });
  });
}

/** A port that was free a moment ago. */
export function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const address = server.address();
      const port = typeof address === "object" && address !== null ? address.port : 0;
      server.close(() => resolve(port));
    });
  });
}
