/** Steps of bench/scale.mjs for idempotency keys and sessions: what is remembered of a million of each. */

import { nodeDigest } from "../dist/streams/runtimes/node-digest.js";
import { keyBytes, markOf } from "../dist/protocol/key.js";
import {
  appendCommand,
  createCommand,
  inBatches,
  leaveKilled,
  measureSnapshots,
  MILLION,
  openEngine,
  RECORD,
  rssMB,
} from "./scale-kit.mjs";

/** Retries that are sent, beside looking every key up. */
const SAMPLE = Math.min(10_000, MILLION);
const MANY_STREAMS = Math.max(1, Math.round(MILLION / 100));
const CONTENT = nodeDigest(RECORD);
const ONE = "/one";
const BESIDE = "/beside";

/** All of its keys stay for a day, up to a million. */
const POLICY = {
  windowSeconds: 86_400,
  countMax: MILLION,
  overflow: "evict",
  isFromContent: false,
};

function claimOf(number) {
  const key = nodeDigest(keyBytes(`order-${number}`));
  return { mark: markOf(key, CONTENT, false), isContent: false, timeMs: undefined };
}

const oneOf = () => ONE;
const manyOf = (number) => `/many/${number % MANY_STREAMS}`;

/** What the metric hapax_key_window_bytes says. */
function windowMB(engine) {
  let bytes = 0;
  for (const state of engine.world.byId.values()) bytes += state.keys?.window?.memoryBytes ?? 0;
  return bytes / 1_000_000;
}

/** Snapshots are measured while another stream is appended to, so that no offset here moves. */
async function snapshotBeside(store, engine) {
  await engine.create(createCommand(BESIDE, Buffer.alloc(0)));
  return measureSnapshots(store, engine, BESIDE);
}

async function createAll(engine, nameOf, count) {
  await inBatches(count, (number) =>
    engine.create(createCommand(nameOf(number), Buffer.alloc(0), POLICY)),
  );
}

/** Fills, and ends without a snapshot. */
async function fillKeys(nameOf, streams) {
  const { engine } = await openEngine();
  await createAll(engine, nameOf, streams);
  const beforeMB = rssMB();
  const start = performance.now();
  await inBatches(MILLION, async (number) => {
    const command = appendCommand(RECORD, undefined, claimOf(number));
    const { kind } = await engine.append(nameOf(number), command);
    if (kind !== "accepted") throw new Error(`key ${number} was ${kind}`);
  });
  const seconds = (performance.now() - start) / 1000;
  const figures = { windowMB: windowMB(engine), rssGrowthMB: rssMB() - beforeMB, rssMB: rssMB() };
  return leaveKilled({ fillSeconds: seconds, addMicros: (seconds * 1e6) / MILLION, ...figures });
}

/** Looks up every key from `first` on, in its place and with its end, and retries a sample. */
async function checkKeys(engine, nameOf, streams, first = 0) {
  let unknownKeys = 0;
  for (let number = first; number < first + MILLION; number += 1) {
    const window = engine.world.streams.get(nameOf(number))?.keys?.window;
    const at = Math.floor(number / streams);
    const ordinal = window?.find(claimOf(number).mark);
    const isRight = ordinal === at && window.endOf(ordinal) === (at + 1) * RECORD.length;
    if (!isRight) unknownKeys += 1;
  }
  const step = Math.max(1, Math.floor(MILLION / SAMPLE));
  const start = performance.now();
  for (let retry = 0; retry < SAMPLE; retry += 1) {
    const number = first + retry * step;
    const command = appendCommand(RECORD, undefined, claimOf(number));
    const outcome = await engine.append(nameOf(number), command);
    const end = (Math.floor(number / streams) + 1) * RECORD.length;
    if (outcome.kind !== "replayed" || outcome.end !== end) unknownKeys += 1;
  }
  return { unknownKeys, replayMicros: ((performance.now() - start) * 1000) / SAMPLE };
}

/** After the kill: everything comes from the journal. Then a snapshot is written. */
async function replayKeys(nameOf, streams) {
  const { store, engine, restartSeconds } = await openEngine();
  const replayedChanges = store.recovery.changes;
  const known = await checkKeys(engine, nameOf, streams);
  const snapshots = await snapshotBeside(store, engine);
  const figures = { windowMB: windowMB(engine), rssMB: rssMB() };
  await engine.close();
  return { restartSeconds, replayedChanges, ...known, ...figures, ...snapshots };
}

async function openKeys(nameOf, streams) {
  const { engine, restartSeconds } = await openEngine();
  const known = await checkKeys(engine, nameOf, streams);
  const figures = { windowMB: windowMB(engine), rssMB: rssMB() };
  await engine.close();
  return { restartSeconds, ...known, ...figures };
}

const fillOneKeys = () => fillKeys(oneOf, 1);
const replayOneKeys = () => replayKeys(oneOf, 1);

/** The window is full: each new key pushes out the oldest, and never another. */
async function evictOneKeys() {
  const { engine, restartSeconds } = await openEngine();
  const known = await checkKeys(engine, oneOf, 1);
  const more = Math.round(MILLION / 10);
  const start = performance.now();
  await inBatches(more, (number) =>
    engine.append(ONE, appendCommand(RECORD, undefined, claimOf(MILLION + number))),
  );
  const evictMicros = ((performance.now() - start) * 1000) / more;
  const window = engine.world.streams.get(ONE).keys.window;
  let keptTooLong = 0;
  for (let number = 0; number < more; number += 1) {
    if (window.find(claimOf(number).mark) !== undefined) keptTooLong += 1;
  }
  const after = await checkKeys(engine, oneOf, 1, more);
  const figures = { windowMB: windowMB(engine), rssMB: rssMB(), evictMicros, keptTooLong };
  await engine.close();
  const unknownKeys = known.unknownKeys + after.unknownKeys;
  return { restartSeconds, unknownKeys, replayMicros: after.replayMicros, ...figures };
}

const fillManyKeys = () => fillKeys(manyOf, MANY_STREAMS);
const replayManyKeys = () => replayKeys(manyOf, MANY_STREAMS);
const openManyKeys = () => openKeys(manyOf, MANY_STREAMS);

function sessionOf(number) {
  const session = `nonce-${number.toString(36).padStart(16, "0")}`;
  return { id: `producer-${number}`, epoch: undefined, session, sequence: 0 };
}

async function fillSessions() {
  const { engine } = await openEngine();
  await engine.create(createCommand(ONE, Buffer.alloc(0)));
  const beforeMB = rssMB();
  const start = performance.now();
  await inBatches(MILLION, (number) =>
    engine.append(ONE, appendCommand(RECORD, sessionOf(number))),
  );
  const seconds = (performance.now() - start) / 1000;
  const figures = { rssGrowthMB: rssMB() - beforeMB, rssMB: rssMB() };
  return leaveKilled({ fillSeconds: seconds, addMicros: (seconds * 1e6) / MILLION, ...figures });
}

async function checkSessions(engine) {
  let unknownRetries = 0;
  for (let number = 0; number < MILLION; number += 1) {
    const outcome = await engine.append(ONE, appendCommand(RECORD, sessionOf(number)));
    const end = (number + 1) * RECORD.length;
    if (outcome.kind !== "duplicate" || outcome.end !== end) unknownRetries += 1;
  }
  return unknownRetries;
}

async function replaySessions() {
  const { store, engine, restartSeconds } = await openEngine();
  const unknownRetries = await checkSessions(engine);
  const snapshots = await snapshotBeside(store, engine);
  const figures = { unknownRetries, rssMB: rssMB() };
  await engine.close();
  return { restartSeconds, ...figures, ...snapshots };
}

async function openSessions() {
  const { engine, restartSeconds } = await openEngine();
  const unknownRetries = await checkSessions(engine);
  const figures = { unknownRetries, rssMB: rssMB() };
  await engine.close();
  return { restartSeconds, ...figures };
}

export const identitySteps = {
  fillOneKeys,
  replayOneKeys,
  evictOneKeys,
  fillManyKeys,
  replayManyKeys,
  openManyKeys,
  fillSessions,
  replaySessions,
  openSessions,
};
