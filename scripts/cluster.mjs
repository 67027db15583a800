/**
 * `npm run cluster`: three nodes over a PostgreSQL with a synchronous standby take payments, while nodes are killed and stopped; then
 * all nodes are killed, and every stream is read back and compared with what was sent. Exit code 0 if and only if every payment is
 * stored once, in order.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { balance, hapaxCluster, openDatabase, openNodes } from "./cluster-nodes.mjs";
import { showCluster, Tally } from "./cluster-screen.mjs";
import { Troubles } from "./cluster-trouble.mjs";
import { givePayments, pause, plantDuplicate, readAll, runToEnd } from "./demo-run.mjs";
import { judge, verdictLines } from "./demo-verdict.mjs";
import { CONTENDERS, countingFetch } from "./demo-writers.mjs";
import { buildIfNeeded, Failure, install, main } from "./prepare.mjs";

const HELP = `npm run cluster -- [options]

  --seconds N          how long payments are written, 1 to 600. Default 30
  --keep               when all is judged, the cluster goes on until Ctrl-C, for you to try
  --plant duplicate    stores one payment a second time, to see the verdict fail

On a terminal, keys kill and stop nodes; elsewhere that happens by itself.`;

const NODES = ["n1", "n2", "n3"];
/** Each is a tenant of its own, so that they are spread over the shards. */
const STREAMS = 6;
/** Payments in a second, to each stream. */
const RATES = { producer: 150, append: 10 };
/** How long after the last payment the writers may wait for the last answers: two takeovers. */
const FINISH_MS_MAX = 25_000;

function readArguments() {
  let values;
  try {
    ({ values } = parseArgs({
      options: {
        seconds: { type: "string", default: "30" },
        keep: { type: "boolean", default: false },
        plant: { type: "string" },
        help: { type: "boolean", default: false },
      },
    }));
  } catch (error) {
    throw new Failure(`${error.message}\n\n${HELP}`);
  }
  const seconds = Number(values.seconds);
  const isValid = seconds >= 1 && seconds <= 600 && [undefined, "duplicate"].includes(values.plant);
  if (!isValid) throw new Failure(HELP);
  return { ...values, seconds };
}

const pathOf = (index) => `/v1/stream/tenant-${index}/payments`;

/** Writers of every stream, whose requests go to any node. */
async function openWriters(run, nodes, tally) {
  const send = countingFetch(run.counts, balance(nodes));
  return Promise.all(
    Array.from({ length: STREAMS }, (_, index) => {
      const onAck = (writer, records) => tally.acknowledge(`${writer} ${index}`, records);
      return CONTENDERS.hapax.open(nodes[0].url + pathOf(index), send, onAck);
    }),
  );
}

/** Gives the payments, with all troubles. Resolves to how many each writer of a stream was given. */
async function load(run, { database, nodes, writers, tally, seconds }) {
  const hasKeys = process.stdin.isTTY === true && process.stdout.isTTY === true;
  const troubles = new Troubles(nodes);
  run.owns(() => troubles.end().catch(() => undefined));
  let isOver = false;
  run.startMs = performance.now();
  const endShow = showCluster({ run, database, nodes, tally, hasKeys });
  run.owns(endShow);
  if (hasKeys) {
    const onEnd = () => (isOver = true);
    run.owns(troubles.hearKeys({ onEnd, onStop: () => run.stop() }));
  } else troubles.does(troubles.plan());
  const give = (writer, payment) => {
    for (const [index, stream] of writers.entries()) {
      tally.give(`${writer} ${index}`);
      stream.give(writer, payment);
    }
  };
  const given = await givePayments(run, RATES, give, seconds, () => isOver);
  await run.until(troubles.end());
  const finished = Promise.all(writers.map((stream) => stream.finish()));
  await run.until(Promise.race([finished, pause(FINISH_MS_MAX)]));
  await endShow();
  return given;
}

/** Reads every stream, each through another node, and compares it with what its writers gave and were told. */
async function judgeAll(run, { nodes, writers, given }) {
  let isExact = true;
  for (const [index, stream] of writers.entries()) {
    const told = stream.told();
    const sent = Object.entries(given).map(([writer, count]) => {
      return { writer, count, confirmed: told[writer].confirmed };
    });
    const node = nodes[index % nodes.length];
    const verdict = judge(sent, await run.until(readAll(node.url + pathOf(index))));
    isExact &&= verdict.isExact;
    console.log(
      [`tenant-${index}, read through ${node.name}:`, ...verdictLines(verdict)].join("\n"),
    );
    const errors = Object.values(told).flatMap((one) => one.errors);
    if (errors.length > 0) console.log(`  the first of ${errors.length} errors: ${errors[0]}`);
  }
  return isExact;
}

async function showStatus(run, database) {
  const { code, output } = await run.until(hapaxCluster(database, "status"));
  console.log(`\nhapax cluster status\n${output}`);
  if (code !== 0) console.log(`it ended with ${code}\n`);
}

async function cluster(run, { seconds, keep, plant }) {
  const folder = mkdtempSync(join(tmpdir(), "hapax-cluster-"));
  run.owns(() => rmSync(folder, { recursive: true, force: true }));
  console.log("PostgreSQL with a synchronous standby…");
  const database = await openDatabase(run);
  const made = await hapaxCluster(database, "create", "--shards", "12");
  if (made.code !== 0) throw new Failure(`hapax cluster create failed\n${made.output}`);
  console.log(`hapax cluster create: ${made.output.trim()}\nthree nodes…`);
  const nodes = await openNodes(run, database, folder, NODES);
  await showStatus(run, database);
  const { producer, append } = RATES;
  console.log(
    `${STREAMS} streams, each with ${producer} payments/s by a producer and ${append}/s by append(); each request goes to any node\n`,
  );
  const tally = new Tally();
  const writers = await run.until(openWriters(run, nodes, tally));
  const given = await load(run, { database, nodes, writers, tally, seconds });
  console.log("\nkill -9 to all nodes at once, and their next lives…");
  await run.until(Promise.all(nodes.map((node) => node.kill())));
  await run.until(Promise.all(nodes.map((node) => node.start())));
  if (plant === "duplicate") await plantDuplicate(nodes[0].url + pathOf(0));
  const isExact = await judgeAll(run, { nodes, writers, given });
  await showStatus(run, database);
  const { kills, stops } = nodes.reduce(
    (sum, node) => ({ kills: sum.kills + node.kills, stops: sum.stops + node.stops }),
    { kills: 0, stops: 0 },
  );
  const total = (given.producer + given.append) * STREAMS;
  console.log(
    `sent ${total}, acknowledged ${tally.acknowledged}; kill -9 ${kills}, stops ${stops}, longest pause ${Math.round(tally.longestMs)} ms`,
  );
  console.log(isExact ? "EXACT: every stream has each payment once, in order" : "NOT EXACT");
  process.exitCode = isExact ? 0 : 1;
  if (!keep) return;
  console.log(`it goes on until Ctrl-C: ${nodes.map(({ url }) => url).join(" ")}`);
  console.log(`node dist/bin.js cluster status --store '${database.url}'`);
  await run.stopped.catch(() => undefined);
}

await main(async () => {
  const options = readArguments();
  if (options.help) {
    console.log(HELP);
    return;
  }
  await install();
  await buildIfNeeded();
  await runToEnd((run) => cluster(run, options));
});
