/**
 * Payments go into a log of files, under ids. The writer is killed with SIGKILL in the middle; the next one sends everything
 * again, and each payment is in the log once. For S3 use `s3Objects` instead of `fileObjects`.
 *
 *   node examples/object-storage.mjs
 */

import { spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { fileObjects, objectLog, openWindow } from "hapax/window";

const PAYMENTS = 200;
const encoder = new TextEncoder();
const idOf = (number) => `payment ${number}`;
const bytesOf = (number) => encoder.encode(JSON.stringify({ order: number, cents: 100 + number }));

const open = (folder) => {
  const objects = fileObjects(folder);
  return openWindow({ log: objectLog(objects), snapshots: objects });
};

/** The writer: prints a line for each payment that is stored. */
async function write(folder) {
  const window = await open(folder);
  for (let number = 0; number < PAYMENTS; number += 1) {
    await window.write(idOf(number), bytesOf(number));
    console.log(idOf(number));
  }
}

async function killInTheMiddle(folder) {
  const child = spawn(process.execPath, [fileURLToPath(import.meta.url), folder], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  let stored = 0;
  for await (const chunk of child.stdout) {
    stored += String(chunk).split("\n").length - 1;
    if (stored >= PAYMENTS / 4) child.kill("SIGKILL");
  }
  return stored;
}

async function main() {
  const folder = await mkdtemp(join(tmpdir(), "payments-"));
  const stored = await killInTheMiddle(folder);
  console.log(`killed the writer after ${stored} of ${PAYMENTS} payments`);

  const window = await open(folder);
  const numbers = Array.from({ length: PAYMENTS }, (_, number) => number);
  const results = await Promise.all(
    numbers.map((number) => window.write(idOf(number), bytesOf(number))),
  );
  const duplicates = results.filter(({ isDuplicate }) => isDuplicate).length;
  console.log(`sent all ${PAYMENTS} again: ${duplicates} duplicates, ${PAYMENTS - duplicates} new`);
  await window.close();

  const ids = [];
  const log = objectLog(fileObjects(folder));
  for (const { segment } of (await log.extent()).segments) {
    for await (const { entries } of log.read(segment, 0)) ids.push(...entries.map(({ id }) => id));
  }
  console.log(`the log has ${ids.length} entries and ${new Set(ids).size} different ids`);
  await rm(folder, { recursive: true });
}

const [, , folder] = process.argv;
await (folder === undefined ? main() : write(folder));
