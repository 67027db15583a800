/** The steps of bench/scale.mjs: `node bench/scale-steps.mjs <step> <directory> <share>`. */

import { crc32 } from "node:zlib";
import { identitySteps } from "./scale-identities.mjs";
import {
  appendCommand,
  createCommand,
  inBatches,
  leaveKilled,
  measureSnapshots,
  MILLION,
  nameOf,
  openEngine,
  RECORD,
  rssMB,
  SHARE,
} from "./scale-kit.mjs";

const [step = ""] = process.argv.slice(2);
const LARGE_APPEND_BYTES = 4 * 1024 * 1024;
const LARGE_APPENDS = Math.ceil(1100 * SHARE);

async function fillStreams() {
  const { store, engine } = await openEngine();
  const start = performance.now();
  await inBatches(MILLION, (number) => engine.create(createCommand(nameOf(number), RECORD)));
  const fillSeconds = (performance.now() - start) / 1000;
  const filledMB = rssMB();
  const snapshots = await measureSnapshots(store, engine, nameOf(0));
  const result = { fillSeconds, rssMB: filledMB, rssAfterSnapshotMB: rssMB(), ...snapshots };
  await engine.close();
  return result;
}

async function openStreams() {
  const { store, engine, restartSeconds } = await openEngine();
  if (engine.world.streams.size !== MILLION) throw new Error("streams are missing");
  for (let number = 1; number < MILLION; number += Math.ceil(MILLION / 97)) {
    const look = await engine.look(nameOf(number));
    if (look.kind !== "found") throw new Error(`stream ${number} is missing`);
    const page = await engine.read(look.state, 0, 1024);
    if (page.bytes !== RECORD.length) throw new Error(`stream ${number} has other data`);
  }
  const result = { restartSeconds, rssMB: rssMB(), replayedChanges: store.recovery.changes };
  await engine.close();
  return result;
}

async function fillAppends() {
  const { engine } = await openEngine();
  for (let number = 0; number < 1000; number += 1) {
    await engine.create(createCommand(nameOf(number), Buffer.alloc(0)));
  }
  const count = 10 * MILLION;
  const start = performance.now();
  await inBatches(count, (number) => {
    const producer = { id: `p-${number % 1000}`, epoch: 0, sequence: Math.floor(number / 1000) };
    return engine.append(nameOf(number % 1000), appendCommand(RECORD, producer));
  });
  const seconds = (performance.now() - start) / 1000;
  return leaveKilled({ fillSeconds: seconds, appendsPerSecond: count / seconds, rssMB: rssMB() });
}

async function openAppends() {
  const { store, engine, restartSeconds } = await openEngine();
  let bytes = 0;
  for (const state of engine.world.streams.values()) bytes += state.tail;
  if (bytes !== 10 * MILLION * RECORD.length) throw new Error(`${bytes} bytes came back`);
  const { changes, bytes: replayedBytes } = store.recovery;
  const result = { restartSeconds, replayedChanges: changes, replayedBytes, rssMB: rssMB() };
  await engine.close();
  return result;
}

/** Content that can be made again at any place: each append is its own number over and over. */
function largeAppend(number) {
  const bytes = Buffer.allocUnsafe(LARGE_APPEND_BYTES);
  const words = new Uint32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
  for (let at = 0; at < words.length; at += 1) words[at] = Math.imul(at + number, 2_654_435_761);
  return bytes;
}

async function fillLarge() {
  const { engine } = await openEngine();
  await engine.create(createCommand("/large", Buffer.alloc(0)));
  const start = performance.now();
  for (let number = 0; number < LARGE_APPENDS; number += 1) {
    await engine.append("/large", appendCommand(largeAppend(number), undefined));
  }
  const seconds = (performance.now() - start) / 1000;
  const bytes = LARGE_APPENDS * LARGE_APPEND_BYTES;
  await engine.close();
  return { bytes, fillSeconds: seconds, megabytesPerSecond: bytes / 1_000_000 / seconds };
}

async function openLarge() {
  const { engine, restartSeconds } = await openEngine();
  const look = await engine.look("/large");
  if (look.kind !== "found") throw new Error("the stream is missing");
  const bytes = LARGE_APPENDS * LARGE_APPEND_BYTES;
  let differingBytes = Math.abs(bytes - look.tail);
  const start = performance.now();
  let number = 0;
  for (let from = 0; from < look.tail;) {
    const page = await engine.read(look.state, from, 1024 * 1024);
    for (const append of page.appends) {
      if (crc32(append) !== crc32(largeAppend(number))) differingBytes += append.length;
      number += 1;
    }
    if (page.next <= from) throw new Error(`the read stops at ${from}`);
    from = page.next;
  }
  const seconds = (performance.now() - start) / 1000;
  await engine.close();
  return { restartSeconds, differingBytes, readSeconds: seconds, rssMB: rssMB() };
}

function producerOf(number) {
  return { id: `producer-${number}`, epoch: 0, sequence: 0 };
}

async function fillProducers() {
  const { store, engine } = await openEngine();
  await engine.create(createCommand("/one", Buffer.alloc(0)));
  const start = performance.now();
  await inBatches(MILLION, (number) =>
    engine.append("/one", appendCommand(RECORD, producerOf(number))),
  );
  const fillSeconds = (performance.now() - start) / 1000;
  const filledMB = rssMB();
  const snapshots = await measureSnapshots(store, engine, "/one");
  const result = { fillSeconds, rssMB: filledMB, rssAfterSnapshotMB: rssMB(), ...snapshots };
  await engine.close();
  return result;
}

async function openProducers() {
  const { engine, restartSeconds } = await openEngine();
  let unknownRetries = 0;
  for (let number = 0; number < MILLION; number += 1) {
    const outcome = await engine.append("/one", appendCommand(RECORD, producerOf(number)));
    if (outcome.kind !== "duplicate") unknownRetries += 1;
  }
  const result = { restartSeconds, unknownRetries, rssMB: rssMB() };
  await engine.close();
  return result;
}

const STEPS = {
  fillStreams,
  openStreams,
  fillAppends,
  openAppends,
  fillLarge,
  openLarge,
  fillProducers,
  openProducers,
  ...identitySteps,
};

const result = await STEPS[step]();
process.send(result, () => process.disconnect());
