/**
 * `npm run demo`: payments are written over a network that loses requests and answers, to a server that is
 * killed with `kill -9` again and again; then the stream is read back and compared with what was sent. Exit
 * code 0 if and only if every payment is stored once, in order.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
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
const TICK_MS = 10;
/** How long after the last payment the writers may wait for the last answers. */
const FINISH_MS_MAX = 25_000;
const PATH = "/v1/stream/payments";

class Stopped extends Error {}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

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

/** One run: everything that has to end when it does, and what has been counted. */
class Run {
  counts = { given: 0, retries: 0, unanswered: 0, duplicatesStopped: 0 };
  startMs = performance.now();
  #closers = [];
  #stop = () => undefined;
  stopped = new Promise((_, reject) => {
    this.#stop = reject;
  });

  constructor() {
    this.stopped.catch(() => undefined);
    // Never taken off: npm and the terminal both send it, and the second must not cut the tidying short.
    process.on("SIGINT", this.#onSignal);
    process.on("SIGTERM", this.#onSignal);
  }

  #onSignal = () => this.#stop(new Stopped());

  /** Ends with the run, the last one first. */
  owns(close) {
    this.#closers.unshift(close);
  }

  /** Waits for work, unless the run is stopped before. */
  async until(work) {
    return Promise.race([work, this.stopped]);
  }

  async close() {
    for (const close of this.#closers.splice(0)) await close();
  }
}

/** Gives every payment at its time. A late timer gives more at once: their number is always the same. */
async function givePayments(run, writers, seconds) {
  const given = { producer: 0, append: 0 };
  const beginMs = performance.now();
  for (;;) {
    const elapsedMs = Math.min(performance.now() - beginMs, seconds * 1000);
    for (const [writer, rate] of Object.entries(RATES)) {
      const due = Math.floor((elapsedMs / 1000) * rate);
      for (; given[writer] < due; given[writer] += 1) {
        const number = given[writer];
        writers.give(writer, { writer, number, cents: 100 + ((number * 37) % 9900) });
        run.counts.given += 1;
      }
    }
    if (elapsedMs >= seconds * 1000) return given;
    await run.until(pause(TICK_MS));
  }
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

/** Reads by hand, so that no contender is its own witness. */
async function readAll(url) {
  const records = [];
  for (let offset = "-1"; ;) {
    const answer = await fetch(`${url}?offset=${encodeURIComponent(offset)}`);
    if (!answer.ok) throw new Error(`reading back failed with ${answer.status}`);
    records.push(...(await answer.json()));
    offset = answer.headers.get("stream-next-offset") ?? "";
    if (answer.headers.get("stream-up-to-date") === "true") return records;
  }
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
  const given = await givePayments(run, writers, seconds);
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

async function plantDuplicate(url) {
  const body = JSON.stringify({ writer: "append", number: 0, cents: 100 });
  const headers = { "Content-Type": "application/json" };
  const answer = await fetch(url, { method: "POST", headers, body });
  if (!answer.ok) throw new Error(`planting failed with ${answer.status}`);
}

await main(async () => {
  const options = readArguments();
  if (options.help) {
    console.log(HELP);
    return;
  }
  await install();
  await buildIfNeeded();
  const run = new Run();
  try {
    await demo(run, options);
  } catch (error) {
    if (!(error instanceof Stopped)) throw error;
    process.exitCode = 130;
  } finally {
    await run.close();
  }
  if (process.exitCode === 130) console.log("stopped; nothing was kept");
  // Writers of the contender may still be repeating requests, and no caller waits for them.
  process.exit();
});
