// Appends 1,000 numbers while it kills the server with SIGKILL again and again, and then counts.
//
//   node examples/kill-the-server.mjs
//
// Every append has its own number, so the program can repeat it until it gets an answer. The server knows
// which numbers it has stored, because they are in the same journal as the data.

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const COUNT = 1000;
const KILLS = 5;
const bin = fileURLToPath(new URL("../dist/bin.js", import.meta.url));
const directory = mkdtempSync(join(tmpdir(), "hapax-kill-"));
const port = await freePort();
const stream = `http://127.0.0.1:${port}/v1/stream/numbers`;
const json = { "Content-Type": "application/json" };

let server = await startServer();
await fetch(stream, { method: "PUT", headers: json });
let kills = 0;
let unanswered = 0;
for (let number = 0; number < COUNT; number += 1) {
  const isTime = number > 0 && number % Math.floor(COUNT / (KILLS + 1)) === 0 && kills < KILLS;
  // Not awaited: the kill hits the append in flight.
  const restart = isTime ? killAndRestart() : undefined;
  while (!(await append(number))) unanswered += 1;
  await restart;
}

const stored = await (await fetch(stream)).json();
const distinct = new Set(stored).size;
console.log(`killed ${kills} times, ${COUNT} sent, ${stored.length} stored, ${distinct} different`);
server.kill("SIGKILL");
rmSync(directory, { recursive: true, force: true });
process.exitCode = stored.length === COUNT && distinct === COUNT ? 0 : 1;

async function append(number) {
  const identity = { "Producer-Id": "counter", "Producer-Epoch": "0", "Producer-Seq": `${number}` };
  try {
    const answer = await fetch(stream, {
      method: "POST",
      headers: { ...json, ...identity },
      body: String(number),
    });
    return answer.ok;
  } catch {
    await new Promise((resolve) => setTimeout(resolve, 20));
    return false; // No answer: stored or not, the same append again is safe.
  }
}

async function killAndRestart() {
  kills += 1;
  server.kill("SIGKILL");
  await new Promise((resolve) => server.once("close", resolve));
  server = await startServer();
}

function startServer() {
  const args = [bin, "serve", "--port", String(port), "--dir", directory];
  const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "ignore"] });
  return new Promise((resolve, reject) => {
    child.stdout.once("data", () => resolve(child));
    child.once("exit", () => reject(new Error("the server did not start")));
  });
}

function freePort() {
  return new Promise((resolve) => {
    const probe = createServer().listen(0, "127.0.0.1", () => {
      const found = probe.address().port;
      probe.close(() => resolve(found));
    });
  });
}
