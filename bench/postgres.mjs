/**
 * `node bench/postgres.mjs [--seconds 1] [--rounds 5] [--without-fsync] [--only …]`: the store in PostgreSQL, as ratios of one run. A primary and a synchronous
 * standby of its own run on this machine, with fsync, and so do all that is compared: they take turns.
 *
 *   Q1  frames of 200 appends through the store / INSERT of the same bytes by one statement each: at least 0.8
 *   Q2  frames / one row for each append, 200 and 1,000 in a statement: at least 1.4 and 3
 *   Q3  appends over HTTP, 64 connections, without a standby / the same on the store in a directory with fsync: at least 0.45
 *   Q4, Q5, Q7: nodes of a cluster, in postgres-cluster.mjs
 *   Q6  appends a second, 200 in a frame, with the synchronous standby: at least 60,000
 *
 * Q8 is about transactions over shards, which there are none of yet.
 * `--only statements,servers,forwarding,sizes,stalls,cold,replicated` leaves the rest out.
 */

import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";
import { buildIfNeeded, Failure, main } from "../scripts/prepare.mjs";
import { becomeStandby, launch, makeCluster } from "../test/databases/postgres-server.mjs";
import { formatMachine, machineOf } from "./machine.mjs";
import { measureCluster } from "./postgres-cluster.mjs";
import { startLoad, startServer } from "./processes.mjs";
import { formatMedian, median } from "./statistics.mjs";

const APPEND_BYTES = 100;
/** `--without-fsync`: what the processors take, on a machine whose disk is busy with other things. */
const hasFsync = !process.argv.includes("--without-fsync");
const SETTINGS = [`fsync=${hasFsync ? "on" : "off"}`, "synchronous_commit=on"];
SETTINGS.push("max_wal_size=4GB", "wal_keep_size=4GB");

function optionOf(name, otherwise) {
  const at = process.argv.indexOf(name);
  return at === -1 ? otherwise : Number(process.argv[at + 1]);
}

const seconds = optionOf("--seconds", 1);
const rounds = optionOf("--rounds", 5);

function urlOf({ folder }) {
  return `postgres://postgres@${encodeURIComponent(folder)}/postgres`;
}

/** Runs `step` one after the other; how often a second. */
async function rateOf(step) {
  const begunMs = performance.now();
  let count = 0;
  while (performance.now() - begunMs < seconds * 1000) {
    await step();
    count += 1;
  }
  return (count * 1000) / (performance.now() - begunMs);
}

/** The rates of several ways that take turns; each round begins with another one. */
async function takeTurns(ways) {
  const names = Object.keys(ways);
  const found = Object.fromEntries(names.map((name) => [name, []]));
  for (let round = 0; round < rounds; round += 1) {
    const order = [...names.slice(round % names.length), ...names.slice(0, round % names.length)];
    for (const name of order) found[name].push(await ways[name]());
  }
  return found;
}

function verdict(label, title, values, limit, side = "least") {
  const isMet = side === "least" ? median(values) >= limit : median(values) <= limit;
  const shown =
    limit > 1000 ? Math.round(median(values)).toLocaleString("en-US") : formatMedian(values);
  console.log(
    `  ${isMet ? "met    " : "NOT met"}  ${label}  ${title}: ${shown}, at ${side} ${limit}`,
  );
}

const onlyAt = process.argv.indexOf("--only");
const only = onlyAt === -1 ? undefined : (process.argv[onlyAt + 1] ?? "").split(",");
const isWanted = (part) => only?.includes(part) ?? true;

function ratios(above, below) {
  return above.map((value, at) => value / below[at]);
}

/** A store whose only writer is this function: one frame of `count` appends. */
async function frameWriter(url, schema, durability) {
  const { openPostgresStore } = await import("hapax/stores/postgres");
  const store = await openPostgresStore(url, { schema, durability, takeover: "now" });
  const data = Buffer.alloc(APPEND_BYTES, "x");
  let timeMs = Date.now();
  let tail = 0;
  const { applyChange } = await import("../dist/streams/core/world.js");
  const commit = async (changes) => {
    for (const change of changes) applyChange(store.world, change);
    await store.commit(changes);
  };
  const created = {
    kind: "created",
    stream: 1,
    run: 1,
    name: "/bench/1",
    contentType: "text/plain",
  };
  const { NEVER_EXPIRES } = await import("../dist/streams/core/stream.js");
  await commit([{ ...created, expiry: NEVER_EXPIRES, fork: undefined, atMs: timeMs }]);
  return {
    store,
    write: (count) => {
      timeMs += 1;
      const changes = Array.from({ length: count }, () => {
        tail += APPEND_BYTES;
        return { kind: "appended", stream: 1, atMs: timeMs, data, closes: false };
      });
      return commit(changes);
    },
  };
}

async function compareStatements(url) {
  const pool = new pg.Pool({ connectionString: url, max: 4 });
  const writer = await frameWriter(url, "bench_frames", hasFsync ? "fsync" : "os");
  await pool.query("CREATE TABLE plain (id bigserial PRIMARY KEY, frame bytea NOT NULL)");
  await pool.query("ALTER TABLE plain ALTER COLUMN frame SET STORAGE EXTERNAL");
  await pool.query(
    "CREATE TABLE by_row (id bigserial PRIMARY KEY, stream bigint NOT NULL, at bigint NOT NULL, data bytea NOT NULL)",
  );
  const { fileBytes: before } = writer.store.stats();
  await writer.write(200);
  const frameBytes = writer.store.stats().fileBytes - before;
  const frame = Buffer.alloc(frameBytes, 7);
  const plain = { name: "plain", text: "INSERT INTO plain (frame) VALUES ($1)" };
  const rowsOf = (count) => {
    const values = Array.from({ length: count }, () => Buffer.alloc(APPEND_BYTES, "x"));
    const places = values.map((_, at) => `(1, ${at}, $${at + 1}::bytea)`).join();
    return {
      name: `rows ${count}`,
      text: `INSERT INTO by_row (stream, at, data) VALUES ${places}`,
      values,
    };
  };
  const [few, many] = [rowsOf(200), rowsOf(1000)];
  const found = await takeTurns({
    frames: () => rateOf(() => writer.write(200)),
    plain: () => rateOf(() => pool.query({ ...plain, values: [frame] })),
    rows: () => rateOf(() => pool.query(few)),
    frames1000: () => rateOf(() => writer.write(1000)),
    rows1000: () => rateOf(() => pool.query(many)),
  });
  await writer.store.close();
  await pool.end();
  console.log(
    `\nwithout a standby, one connection; a frame of 200 appends has ${frameBytes} bytes`,
  );
  for (const [name, values] of Object.entries(found)) {
    console.log(`  ${name.padEnd(10)} ${median(values).toFixed(0)} statements/s`);
  }
  verdict("Q1", "frames / plain INSERT", ratios(found.frames, found.plain), 0.8);
  verdict("Q2", "frames / rows, 200", ratios(found.frames, found.rows), 1.4);
  verdict("Q2", "frames / rows, 1,000", ratios(found.frames1000, found.rows1000), 3);
}

async function compareServers(url, folder) {
  const load = await startLoad();
  const servers = {};
  try {
    const directory = join(folder, "directory");
    mkdirSync(directory);
    servers.postgres = await startServer("hapax-postgres", hasFsync ? url : `${url} os`);
    servers.directory = await startServer(hasFsync ? "hapax-fsync" : "hapax-os", directory);
    let run = 0;
    const measure = async (server) => {
      run += 1;
      const path = `/v1/stream/bench-${run}`;
      const { port } = server;
      const contentType = "text/plain";
      await load.run({ task: "createStreams", port, paths: [path], contentType });
      const task = { task: "append", port, paths: [path], contentType, connections: 64 };
      const times = { warmMs: 300, measureMs: seconds * 1000, producer: `run-${run}` };
      return (await load.measure({ ...task, body: "x".repeat(APPEND_BYTES), ...times }, server))
        .perSecond;
    };
    for (const server of Object.values(servers)) await measure(server);
    const found = await takeTurns({
      postgres: () => measure(servers.postgres),
      directory: () => measure(servers.directory),
    });
    console.log("\nover HTTP, 64 connections, 100 B, producer headers");
    for (const [name, values] of Object.entries(found)) {
      console.log(
        `  ${name.padEnd(10)} ${Math.round(median(values)).toLocaleString("en-US")} appends/s`,
      );
    }
    verdict("Q3", "PostgreSQL / directory", ratios(found.postgres, found.directory), 0.45);
  } finally {
    load.stop();
    for (const server of Object.values(servers)) await server.stop();
  }
}

async function measureReplicated(url) {
  const writer = await frameWriter(url, "bench_replicated", hasFsync ? "replicated" : "os");
  await writer.write(200);
  const rates = [];
  for (let round = 0; round < rounds; round += 1)
    rates.push(200 * (await rateOf(() => writer.write(200))));
  await writer.store.close();
  console.log(
    "\nwith a synchronous standby on the same machine, 200 in a frame, one commit after the other",
  );
  verdict("Q6", "appends/s", rates, 60_000);
}

async function untilAnswers(url, question) {
  for (let attempt = 0; attempt < 300; attempt += 1) {
    const client = new pg.Client({ connectionString: url });
    client.on("error", () => undefined);
    try {
      await client.connect();
      const { rows } = await client.query(question);
      if (rows.length > 0) return;
    } catch {
      // It is starting.
    } finally {
      await client.end().catch(() => undefined);
    }
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Failure(`PostgreSQL did not answer: ${question}`);
}

await main(async () => {
  if (process.platform !== "linux") throw new Failure("the benchmarks read /proc and need Linux");
  await buildIfNeeded();
  const folder = mkdtempSync(join(tmpdir(), "hapax-bench-postgres-"));
  const first = makeCluster();
  const second = makeCluster(first.data);
  becomeStandby(second, first.folder, "second");
  let primary = launch(first.folder, first.data, SETTINGS);
  let standby;
  try {
    const url = urlOf(first);
    await untilAnswers(url, "SELECT 1");
    console.log(formatMachine(machineOf(folder)));
    console.log(
      `rounds      ${rounds} of ${seconds} s, fsync ${hasFsync ? "on" : "off"}, all on one disk; medians, and ratios within a round`,
    );
    if (isWanted("statements")) await compareStatements(url);
    if (isWanted("servers")) await compareServers(url, folder);
    const durability = hasFsync ? "fsync" : "os";
    await measureCluster(url, { rounds, seconds, verdict, isWanted, durability });
    if (!isWanted("replicated")) return;
    await primary.end("SIGINT");
    primary = launch(first.folder, first.data, [...SETTINGS, "synchronous_standby_names=second"]);
    standby = launch(second.folder, second.data, SETTINGS);
    await untilAnswers(url, "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'");
    await measureReplicated(url);
  } finally {
    await standby?.end("SIGQUIT");
    await primary.end("SIGQUIT");
    for (const one of [folder, first.folder, second.folder])
      rmSync(one, { recursive: true, force: true });
  }
});
