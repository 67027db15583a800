/**
 * `node bench/access.mjs [--starts 8] [--rounds 5] [--seconds 0.3] [--connections 64] [--least 0.95] [--only memory]`: what a
 * credential on every append costs. One process has three servers: one asks for nothing, one for an API key, one for a token of a
 * provider (JWT, RS256). They take turns. The first gets plain requests, twice, and requests with a key or a token that it does not
 * ask for: so it shows apart what it costs to carry the bytes, which no server can save, and what it costs to look at them, which is
 * ours. A round compares turns of the same time; of the ratios of all rounds the median counts. The ratio of the second plain turn
 * is the noise of the machine. The default server, which syncs before it answers, is judged; the one in memory shows beside it what the
 * disk hides. The servers share a process because two processes of one program can differ by a fifth; it starts
 * anew again and again.
 */

import { execFileSync } from "node:child_process";
import { generateKeyPairSync } from "node:crypto";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SignJWT } from "jose";
import { buildIfNeeded, Failure, main } from "../scripts/prepare.mjs";
import { root } from "../scripts/run.mjs";
import { formatMachine, machineOf } from "./machine.mjs";
import { startLoad, startServer } from "./processes.mjs";
import { formatMedian, leastRatio, median } from "./statistics.mjs";

const STORES = { memory: "hapax-memory", fsync: "hapax-fsync" };
const ISSUER = "https://issuer.example";
const TYPE = "text/plain";

function optionOf(name, otherwise) {
  const at = process.argv.indexOf(name);
  return at === -1 ? otherwise : (process.argv[at + 1] ?? otherwise);
}

function createKey(folder) {
  const path = join(folder, "tokens.json");
  const args = ["dist/bin.js", "tokens", "create", "--name", "bench"];
  const grants = ["--allow", "append,create", "--streams", "/v1/stream/**"];
  const key = execFileSync(process.execPath, [...args, ...grants, "--tokens-file", path], {
    cwd: root,
    stdio: ["ignore", "pipe", "ignore"],
  });
  const authorization = `Bearer ${key.toString().trim()}`;
  return { authorization, env: { BENCH_TOKENS_FILE: path } };
}

async function createToken() {
  const { publicKey, privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  const jwk = { ...publicKey.export({ format: "jwk" }), kid: "1", alg: "RS256", use: "sig" };
  const grants = [{ actions: ["append", "create"], streams: ["/v1/stream/**"] }];
  const token = await new SignJWT({ hapax: { grants } })
    .setProtectedHeader({ alg: "RS256", kid: "1" })
    .setSubject("bench")
    .setIssuer(ISSUER)
    .setAudience("bench")
    .setExpirationTime("1h")
    .sign(privateKey);
  const env = { BENCH_JWKS: JSON.stringify({ keys: [jwk] }), BENCH_ISSUER: ISSUER };
  return { authorization: `Bearer ${token}`, env };
}

async function measure(load, server, { name, at, authorization }, round, { connections, seconds }) {
  const port = server.ports[at];
  const paths = [`/v1/stream/${name.replaceAll(/\W/g, "-")}-${round}`];
  const task = { port, paths, contentType: TYPE, authorization };
  await load.run({ task: "createStreams", ...task });
  const times = { warmMs: 200, measureMs: seconds * 1000 };
  const more = { body: "x".repeat(100), connections, producer: "p", ...times };
  const { perSecond, usage } = await load.measure({ task: "append", ...task, ...more }, server);
  const appends = perSecond * usage.seconds;
  return { perSecond, cpuMicros: ((usage.userMs + usage.systemMs) * 1000) / appends };
}

async function compareOn(kind, ways, folder, plan) {
  const contenders = Object.entries(ways).map(([name, way]) => ({ name, ...way, rounds: [] }));
  for (let start = 0; start < plan.starts; start += 1) {
    console.error(`${kind}: start ${start + 1} of ${plan.starts}`);
    // Who starts first differs too.
    const order = contenders.map((_, at) => contenders[(at + start) % contenders.length]);
    await runRounds(kind, order, join(folder, `${kind}-${start}`), plan);
  }
  return contenders;
}

async function runRounds(kind, contenders, folder, plan) {
  const load = await startLoad();
  let server;
  try {
    mkdirSync(folder, { recursive: true });
    const env = { ...process.env, ...plan.env, BENCH_ACCESS: "none,key,jwt" };
    server = await startServer(kind, folder, { env });
    for (const contender of contenders)
      await measure(load, server, contender, "warm-up", { ...plan, seconds: 2 });
    for (let round = 0; round < plan.rounds; round += 1) {
      // Each is first, and last, as often as the others.
      const order = contenders.map((_, at) => contenders[(at + round) % contenders.length]);
      for (const contender of order)
        contender.rounds.push(await measure(load, server, contender, round, plan));
    }
  } finally {
    load.stop();
    await server?.stop();
  }
}

function report(kind, contenders, least) {
  const [first, again] = contenders;
  console.log(`\n${kind}: 100 B, producer headers, median of ${first.rounds.length} rounds`);
  const plain = first.rounds.map((round, at) => ({
    perSecond: (round.perSecond + again.rounds[at].perSecond) / 2,
    cpuMicros: (round.cpuMicros + again.rounds[at].cpuMicros) / 2,
  }));
  let isMet = true;
  for (const contender of contenders) {
    const rate = Math.round(median(contender.rounds.map(({ perSecond }) => perSecond)));
    const cpu = median(contender.rounds.map(({ cpuMicros }) => cpuMicros)).toFixed(1);
    const words = `${rate.toLocaleString("en-US")} appends/s, ${cpu} CPU µs each`;
    console.log(`  ${contender.name.padEnd(14)} ${words}`);
    if (contender === first) continue;
    printRatio("of plain requests", contender.rounds, plain);
    const same = contenders.find(({ name }) => name === contender.sameAs);
    if (same === undefined) continue;
    const ratio = printRatio("of the same ones, not asked for", contender.rounds, same.rounds);
    if (ratio < least) isMet = false;
  }
  const isJudged = kind === STORES.fsync;
  const verdict = isJudged ? (isMet ? "met" : "NOT met") : "not judged";
  console.log(`  ${verdict}: at least ${least} of the same requests, not asked for`);
  return isMet || !isJudged;
}

/** Prints how the rounds compare with others of the same time. Returns the ratio of the rates. */
function printRatio(name, rounds, others) {
  const ratios = rounds.map(({ perSecond }, at) => perSecond / others[at].perSecond);
  const byCpu = rounds.map(({ cpuMicros }, at) => others[at].cpuMicros / cpuMicros);
  const cpus = (list) => list.map(({ cpuMicros }) => cpuMicros);
  const least10 = leastRatio(cpus(rounds), cpus(others)).toFixed(3);
  const figures = `${formatMedian(ratios)}, by CPU ${formatMedian(byCpu)}`;
  console.log(`      ${name}: ${figures}, in the cheapest tenth ${least10}`);
  return median(ratios);
}

await main(async () => {
  if (process.platform !== "linux") throw new Failure("the benchmarks read /proc and need Linux");
  const plan = {
    starts: Number(optionOf("--starts", 8)),
    rounds: Number(optionOf("--rounds", 5)),
    seconds: Number(optionOf("--seconds", 0.3)),
    connections: Number(optionOf("--connections", 64)),
  };
  const least = Number(optionOf("--least", 0.95));
  const only = optionOf("--only");
  await buildIfNeeded();
  const folder = mkdtempSync(join(tmpdir(), "hapax-access-"));
  try {
    console.log(formatMachine(machineOf(folder)));
    console.log("durability  as the name says; fsync is before the answer");
    const [key, token] = [createKey(folder), await createToken()];
    const [withKey, withToken] = [key, token].map(({ authorization }) => ({ authorization }));
    plan.env = { ...key.env, ...token.env };
    const ways = {
      plain: { at: "none" },
      "plain again": { at: "none" },
      "key, unasked": { ...withKey, at: "none" },
      "API key": { ...withKey, at: "key", sameAs: "key, unasked" },
      "JWT, unasked": { ...withToken, at: "none" },
      JWT: { ...withToken, at: "jwt", sameAs: "JWT, unasked" },
    };
    let isMet = true;
    for (const [store, kind] of Object.entries(STORES)) {
      if (only !== undefined && only !== store) continue;
      isMet = report(kind, await compareOn(kind, ways, folder, plan), least) && isMet;
    }
    process.exitCode = isMet ? 0 : 1;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
