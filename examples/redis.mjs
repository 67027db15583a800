/**
 * A payment that is charged once, with claims in Redis. The process that has the claim is killed after its call, before it
 * can record the result. Three others then call at once. The provider recognises the key of the call.
 *
 *   npm run build && REDIS_URL=redis://127.0.0.1:6379 node examples/redis.mjs
 */

import { fork } from "node:child_process";
import { createServer } from "node:http";
import { fileURLToPath } from "node:url";
import { processOnce } from "hapax/ledger";
import { redisLedger } from "hapax/ledgers/redis";
import { Redis } from "ioredis";

const url = process.env.REDIS_URL ?? "redis://127.0.0.1:6379";
const [, script, order, provider, fate] = process.argv;

async function openLedger() {
  const client = new Redis(url);
  const ledger = redisLedger(client, { prefix: "example" });
  await ledger.migrate();
  return { client, ledger };
}

/** Charges the order. `fate` is "dies": the process ends between the provider's answer and the record of it. */
async function work() {
  const { client, ledger } = await openLedger();
  const { result } = await processOnce(
    ledger,
    { scope: "shop", key: order },
    async ({ key }) => {
      const answer = await fetch(provider, { method: "POST", headers: { "Idempotency-Key": key } });
      if (fate === "dies") process.kill(process.pid, "SIGKILL");
      return answer.text();
    },
    { effect: "repeatable", leaseMs: 1_000, waitMs: 30_000 },
  );
  process.send(result);
  client.disconnect();
  process.disconnect();
}

/** A provider that takes idempotency keys, as Stripe does. */
async function startProvider() {
  const receipts = new Map();
  let calls = 0;
  const server = createServer((request, response) => {
    calls += 1;
    const key = request.headers["idempotency-key"];
    if (!receipts.has(key)) receipts.set(key, `r${receipts.size + 1}`);
    response.end(receipts.get(key));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = `http://127.0.0.1:${server.address().port}`;
  return { server, address, receipts, calls: () => calls };
}

function startWorker(...args) {
  const child = fork(fileURLToPath(import.meta.url), args);
  const ended = new Promise((resolve) => child.once("exit", resolve));
  const receipt = new Promise((resolve) => child.once("message", resolve));
  return { ended, receipt };
}

async function main() {
  const { client, ledger } = await openLedger();
  const { sentences } = await ledger.describe();
  console.log(`The server says: ${sentences.find((sentence) => sentence.includes("failover"))}`);
  const { server, address, receipts, calls } = await startProvider();
  const key = `charge order ${Date.now()}`;
  console.log(
    "worker 1 has the claim, calls the provider, and is killed before it can record the result",
  );
  await startWorker(key, address, "dies").ended;
  console.log("workers 2, 3 and 4 call at once");
  const others = [2, 3, 4].map(() => startWorker(key, address, "lives"));
  const got = await Promise.all(others.map(({ receipt }) => receipt));
  await Promise.all(others.map(({ ended }) => ended));
  console.log(
    `the provider was called ${calls()} times, under ${receipts.size} key, and charged ${receipts.size} time`,
  );
  console.log(`workers 2, 3 and 4 have the receipt: ${got.join(", ")}`);
  server.close();
  client.disconnect();
}

await (script === fileURLToPath(import.meta.url) && fate !== undefined ? work() : main());
