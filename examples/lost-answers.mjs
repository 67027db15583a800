/**
 * A till that books 100 sales over a bad connection: every third answer gets lost. It repeats a sale under the
 * same identity until it gets an answer, and the server stores each sale once.
 *
 *   npm run build && node examples/lost-answers.mjs
 */

import { startNodeServer } from "hapax/node";

const server = await startNodeServer({ store: "memory", port: 0 });
const url = `${server.url}/v1/stream/sales`;
await fetch(url, { method: "PUT", headers: { "Content-Type": "application/json" } });

let requests = 0;

/** The request arrives, but every third answer does not. */
async function sendOverBadLine(request) {
  const answer = await fetch(url, request);
  requests += 1;
  return requests % 3 === 0 ? undefined : answer;
}

async function book(sequence) {
  const headers = {
    "Content-Type": "application/json",
    "Producer-Id": "till-7",
    "Producer-Epoch": "0",
    "Producer-Seq": String(sequence),
  };
  const request = { method: "POST", headers, body: JSON.stringify({ sale: sequence }) };
  for (;;) {
    const answer = await sendOverBadLine(request);
    if (answer === undefined) continue;
    // 200: stored now. 204: it was stored before, and only its answer got lost.
    if (answer.status === 200 || answer.status === 204) return;
    throw new Error(`refused: ${await answer.text()}`);
  }
}

for (let sequence = 0; sequence < 100; sequence += 1) await book(sequence);

const sales = await (await fetch(url)).json();
const isExact = sales.length === 100 && sales.every(({ sale }, index) => sale === index);
console.log(`${requests} requests, ${sales.length} sales stored`);
console.log(isExact ? "each sale once, in order" : "SALES ARE WRONG");

await server.stop();
process.exitCode = isExact ? 0 : 1;
