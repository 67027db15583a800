/**
 * `npm run demo`: payments are written over a network that loses requests and answers, to a server that is
 * killed with `kill -9` again and again; then the stream is read back and compared with what was sent. Exit
 * code 0 if and only if every payment is stored once, in order.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { givePayments, pause, plantDuplicate, readAll, runToEnd } from "./demo-run.mjs";
import { judge, verdictLines } from "./demo-verdict.mjs";
import { openServer } from "./demo-servers.mjs";
import { CONTENDERS, countingFetch, PAUSE_MS_MAX } from "./demo-writers.mjs";
import { buildIfNeeded, Failure, install, main } from "./prepare.mjs";

const HELP = `npm run demo -- [options]

  --seconds N          how long payments are written, 1 to 40. Default 25
  --against NAME       another contender with the same payments, faults and kills:
                       reference            the reference server and client, as documented
                       reference-retrying   the same, as careful as the client's options allow
  --seed N             which requests and answers are lost. Default 1
  --plant duplicate    stores one payment a second time, to see the verdict fail`;

/** Payments in a second. Every contender gets the same ones at the same times. */
const RATES = { producer: 1000, append: 100 };
const FAULTS = { dropAnswers: 0.08, dropRequests: 0.04, delayRequests: 0.2, delayMsMax: 20 };
/** How long each life of the server is, from the moment at which it takes requests. */
const LIFE_MS = 1000;
/** How long after the last payment the writers may wait for the last answers. */
const FINISH_MS_MAX = 25_000;
const PATH = "/v1/stream/payments";

function readArguments() {
  let values;
  try {
    ({ values } = parseArgs({
      options: {
        seconds: { type: "string", default: "25" },
        against: { type: "string", default: "hapax" },
        seed: { type: "string", default: "1" },
        plant: { type: "string" },
        help: { type: "boolean", default: false },
      },
    }));
  } catch (error) {
    throw new Failure(`${error.message}\n\n${HELP}`);
  }
  const [seconds, seed] = [Number(values.seconds), Number(values.seed)];
  const isValid =
    seconds >= 1 &&
    seconds <= 40 &&
    Number.isSafeInteger(seed) &&
    Object.hasOwn(CONTENDERS, values.against) &&
    [undefined, "duplicate"].includes(values.plant);
  if (!isValid) throw new Failure(HELP);
  return { ...values, seconds, seed };
}

/** Kills and restarts the server until the returned function is called; that resolves when the last life has begun. */
function killAgainAndAgain(server) {
  let isOver = false;
  let wake = () => undefined;
  const over = new Promise((resolve) => {
    wake = resolve;
  });
  const lives = async () => {
    for (;;) {
      await Promise.race([pause(LIFE_MS), over]);
      if (isOver) return;
      await server.killAndStart();
    }
  };
  const ended = lives();
  ended.catch(() => undefined); // The function below awaits it.
  return async () => {
    isOver = true;
    wake();
    await ended;
  };
}

function progress(run, proxy, server) {
  const { given, retries, unanswered, duplicatesStopped } = run.counts;
  return [
    ["payments given", given],
    ["kill -9", server.kills],
    ["requests lost", proxy.droppedRequests],
    ["answers lost", proxy.droppedAnswers],
    ["calls unanswered", unanswered],
    ["sent again", retries],
    ["duplicates stopped", duplicatesStopped],
  ];
}

/** On a terminal one block that is drawn again and again; elsewhere one line each second. */
function showProgress(run, proxy, server) {
  const isTerminal = process.stdout.isTTY === true;
  let drawn = 0;
  const draw = () => {
    const rows = progress(run, proxy, server);
    const elapsed = `${Math.floor((performance.now() - run.startMs) / 1000)} s`;
    if (!isTerminal) {
      console.log([elapsed, ...rows.map(([name, value]) => `${name} ${value}`)].join(", "));
      return;
    }
    const lines = rows.map(([name, value]) => `  ${name.padEnd(20)}${String(value).padStart(8)}`);
    const up = drawn === 0 ? "" : `\u001b[${drawn}A`;
    drawn = lines.length + 1;
    process.stdout.write(
      `${up}${[`  ${elapsed}`, ...lines].map((line) => `\u001b[2K${line}\n`).join("")}`,
    );
  };
  const timer = setInterval(draw, isTerminal ? 100 : 1000);
  let isEnded = false;
  return () => {
    clearInterval(timer);
    if (!isEnded) draw();
    isEnded = true;
  };
}

/** What each writer was told, as far as it was not told that all is well. */
function toldLines(told) {
  return Object.entries(told).map(([writer, { confirmed, errors }]) => {
    const call = writer === "producer" ? "flush()" : "append()";
    const state = confirmed ? `every ${call} resolved` : `not every ${call} resolved`;
    const first = errors.length === 0 ? "" : `, the first: ${errors[0].split("\n")[0]}`;
    return `  ${writer}: ${state}, ${errors.length} errors heard${first}`;
  });
}

function introduction({ describe, options }, seconds) {
  const { producer, append } = RATES;
  const [requests, answers] = [FAULTS.dropRequests * 100, FAULTS.dropAnswers * 100];
  return [
    describe(),
    `  with ${options()}; at most ${PAUSE_MS_MAX} ms between attempts, all else by default`,
    `  ${producer} payments/s by the producer and ${append}/s by append(), for ${seconds} s`,
    `  the network loses ${requests} % of the requests and ${answers} % of the answers`,
    "  the server is killed with kill -9 when it has taken requests for a second, again and again",
    "",
  ];
}

async function demo(run, { seconds, seed, against, plant }) {
  const { openFaultProxy } = await import("hapax/testing");
  const contender = CONTENDERS[against];
  console.log(introduction(contender, seconds).join("\n"));
  const directory = mkdtempSync(join(tmpdir(), "hapax-demo-"));
  run.owns(() => rmSync(directory, { recursive: true, force: true }));
  const server = await openServer(contender.server, directory);
  run.owns(() => server.close());
  const proxy = await openFaultProxy(server.url, { seed, ...FAULTS });
  run.owns(() => proxy.close());
  const writers = await contender.open(proxy.url + PATH, countingFetch(run.counts));

  run.startMs = performance.now();
  const endProgress = showProgress(run, proxy, server);
  run.owns(endProgress);
  const endKills = killAgainAndAgain(server);
  run.owns(() => endKills());
  const given = await givePayments(run, RATES, writers.give, seconds);
  await run.until(endKills());
  await run.until(Promise.race([writers.finish(), pause(FINISH_MS_MAX)]));
  const told = writers.told();
  endProgress();

  if (plant === "duplicate") await plantDuplicate(server.url + PATH);
  await server.killAndStart(); // What is read now comes from the disk.
  const sent = Object.entries(given).map(([writer, count]) => ({
    writer,
    count,
    confirmed: told[writer].confirmed,
  }));
  const verdict = judge(sent, await run.until(readAll(server.url + PATH)));
  console.log(["\nThe writers were told:", ...toldLines(told)].join("\n"));
  console.log(
    ["\nThe stream, read back after one more kill -9:", ...verdictLines(verdict)].join("\n"),
  );
  process.exitCode = verdict.isExact ? 0 : 1;
}

await main(async () => {
  const options = readArguments();
  if (options.help) {
    console.log(HELP);
    return;
  }
  await install();
  await buildIfNeeded();
  await runToEnd((run) => demo(run, options));
});
