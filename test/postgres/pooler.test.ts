// The store behind a pooler that gives a connection for one transaction: a real pgbouncer, and what every store keeps.
import { type ChildProcess, spawn } from "node:child_process";
import { chmodSync, chownSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";
import { afterAll, expect, test } from "vitest";
import { storeConformance } from "../../src/testing/store-conformance.ts";
import { until } from "../cluster/kit.ts";
import { startPostgres, whyNoPostgres } from "../databases/postgres.ts";
import { hasProgram } from "../kits/debian-programs.ts";
import { onPool } from "./kit.ts";

const PORT = 6432;
const isLong = process.env["HAPAX_LONG"] === "1";
/** The user id without rights on Debian and other systems. pgbouncer refuses root. */
const OTHER_USER = 65_534;

function whyNoPooler(): string | undefined {
  if (!isLong) return "it installs a program: npm run test:crash";
  return hasProgram("pgbouncer", "pgbouncer") ? undefined : "there is no pgbouncer";
}

const reason = whyNoPostgres() ?? whyNoPooler();

if (reason !== undefined) {
  test("the store behind pgbouncer", ({ skip }) => skip(reason));
} else {
  const database = await startPostgres();
  const folder = mkdtempSync(join(tmpdir(), "hapax-pooler-"));
  const pooler = startPooler(folder, database.host);
  const account = { user: "postgres", database: "postgres" };
  // More clients than connections to the server, so that they take turns.
  const pool = new pg.Pool({ host: folder, port: PORT, ...account, max: 20 });
  pool.on("error", () => undefined);
  afterAll(async () => {
    await pool.end();
    pooler.kill("SIGINT");
    await database.stop();
    rmSync(folder, { recursive: true, force: true });
  });
  await until("the pooler answers", async () => {
    return pool.query("SELECT 1").then(
      () => true,
      () => false,
    );
  });

  const all = {
    isDurable: true,
    failNextCommit: () => undefined,
    takeOver: () => Promise.reject(),
  };
  for (const { name, run } of storeConformance(all)) {
    test(`behind pgbouncer: ${name}`, () => run(onPool(pool)));
  }

  test("the pooler has given one connection to several clients", async () => {
    const pids = Array.from({ length: 20 }, async () => {
      const { rows } = await pool.query<{ pid: number }>(
        "SELECT pg_backend_pid() AS pid, pg_sleep(0.01)",
      );
      return rows[0]?.pid;
    });
    expect(new Set(await Promise.all(pids)).size).toBeLessThan(4);
  });
}

function startPooler(folder: string, host: string): ChildProcess {
  chmodSync(folder, 0o755);
  const settings = [
    "[databases]",
    `postgres = host=${host} dbname=postgres user=postgres`,
    "[pgbouncer]",
    "listen_addr =",
    `listen_port = ${PORT}`,
    `unix_socket_dir = ${folder}`,
    "auth_type = any",
    "pool_mode = transaction",
    "default_pool_size = 3",
    "max_client_conn = 100",
  ];
  const file = join(folder, "pgbouncer.ini");
  writeFileSync(file, `${settings.join("\n")}\n`);
  const isRoot = process.getuid?.() === 0;
  if (isRoot) chownSync(folder, OTHER_USER, OTHER_USER);
  const user = isRoot ? { uid: OTHER_USER, gid: OTHER_USER } : {};
  const child = spawn("pgbouncer", [file], { ...user, stdio: "ignore" });
  process.once("exit", () => child.kill("SIGKILL"));
  return child;
}
