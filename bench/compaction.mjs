/**
 * `node bench/compaction.mjs [--updates <thousands>] [--keys <thousands>] [--rate <thousands a second>] [--plain]`: updates of the keys of a changelog, in batches over HTTP, with a durable
 * store. It prints how large the stream was at most, as a share of what it says, how much room the files took, what compaction
 * wrote, and the longest time for which the event loop stood still. At the end the state that is read is compared with the state
 * that was written. Segments and snapshots are scaled as the defaults are to 1 GB.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { buildIfNeeded, Failure, main } from "../scripts/prepare.mjs";
import { formatMachine, machineOf } from "./machine.mjs";

const MB = 1_000_000;
const TYPE = { "Content-Type": "application/json" };
/** Of what the stream says. */
const SHARE_MAX = 2;
const SENDERS = 4;
const BATCH = 500;

function numberOf(name, fallback) {
  const at = process.argv.indexOf(`--${name}`);
  return at < 0 ? fallback : Number(process.argv[at + 1]);
}

/** Each sender has keys of its own, so that the order of its updates is known. */
async function send(url, sender, { updates, keys, figures, newest }) {
  const mine = Math.floor(keys / SENDERS);
  let seed = 1 + sender;
  const below = (limit) => {
    seed = (seed * 48_271) % 2_147_483_647;
    return seed % limit;
  };
  for (let sent = 0; sent < updates / SENDERS; sent += BATCH) {
    const records = [];
    for (let each = 0; each < BATCH; each += 1) {
      const n = sent + each;
      // Every key first, so that what the stream says is known from then on.
      const key = sender * mine + (n < mine ? n : below(mine));
      newest[key] = n;
      records.push({ id: `key-${key}`, value: { n, text: "v".repeat(60) } });
    }
    const body = JSON.stringify(records);
    const answer = await fetch(url, { method: "POST", headers: TYPE, body });
    if (answer.status !== 204) throw new Failure(`an append was answered ${answer.status}`);
    await answer.arrayBuffer();
    figures.sentBytes += body.length - 1;
    figures.sent += BATCH;
    // So many a second, over all senders.
    const aheadMs = (figures.sent / figures.rate) * 1000 - (performance.now() - figures.startedMs);
    if (aheadMs > 0) await new Promise((resolve) => setTimeout(resolve, aheadMs));
  }
}

const offsetOf = (text) => Number(text?.slice(17));

async function watch(url, store, figures, isDone) {
  while (!isDone()) {
    const { headers } = await fetch(url, { method: "HEAD" });
    const bytes =
      offsetOf(headers.get("stream-next-offset")) - offsetOf(headers.get("stream-earliest-offset"));
    figures.most = Math.max(figures.most, bytes);
    figures.files = Math.max(figures.files, store.stats().fileBytes);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

async function check(url, newest) {
  const state = new Map();
  let bytes = 0;
  for (let offset = "-1"; ;) {
    const answer = await fetch(`${url}?offset=${offset}`);
    if (answer.status === 410) {
      // A pass has trimmed what comes next, because the rule has no lag: the reader drops what it knows. PROTOCOL.md §26.3.
      await answer.arrayBuffer();
      state.clear();
      bytes = 0;
      offset = "-1";
      continue;
    }
    if (answer.status !== 200) throw new Failure(`a read was answered ${answer.status}`);
    const text = await answer.text();
    bytes += text.length;
    for (const { id, value } of JSON.parse(text)) state.set(id, value.n);
    if (answer.headers.get("stream-up-to-date") === "true") break;
    offset = answer.headers.get("stream-next-offset");
  }
  for (const [key, n] of newest.entries()) {
    const read = state.get(`key-${key}`);
    if (read !== n) throw new Failure(`key ${key} was read as ${read}, and written as ${n}`);
  }
  return { keys: state.size, bytes };
}

const inMb = (bytes) => `${(bytes / MB).toFixed(1)} MB`;

function report(directory, figures, { keys, liveBytes, seconds, read, metrics, delay }) {
  const { sent, sentBytes, most, files } = figures;
  const metric = (name) => Number(new RegExp(`^${name} (.*)$`, "m").exec(metrics)?.[1]);
  const passes = [
    ...metrics.matchAll(/^hapax_compaction_passes_total\{outcome="(\w+)"\} (\d+)$/gm),
  ].map(([, ending, count]) => `${ending} ${count}`);
  const times = (bytes) => `${(bytes / liveBytes).toFixed(2)} times`;
  const maxMs = (delay.max / 1e6).toFixed(1);
  const p99Ms = (delay.percentile(99) / 1e6).toFixed(1);
  const dropped = metric("hapax_compaction_dropped_records_total");
  const repeated = inMb(metric("hapax_compaction_repeated_bytes_total"));
  for (const line of [
    formatMachine(machineOf(directory)),
    `${sent} updates of ${keys} keys, ${inMb(sentBytes)}, in ${seconds.toFixed(1)} s: ${Math.round(sent / seconds)} updates a second`,
    `the newest records have ${inMb(liveBytes)}; the stream had at most ${inMb(most)}, ${times(most)} that, and ${inMb(read.bytes)} at the end`,
    `the files had at most ${inMb(files)}, ${times(files)} that`,
    `compaction let ${dropped} records go and wrote ${repeated} again; passes: ${passes.join(", ")}`,
    `the event loop stood still for at most ${maxMs} ms, p99 ${p99Ms} ms (server, senders and reader are one process)`,
    `the state that was read is the state that was written: ${read.keys} keys`,
  ]) {
    console.log(line);
  }
}

/** A server with little room, so that segments and snapshots are to the newest records as with 1 GB. */
async function start(directory, liveBytes) {
  const { startNodeServer } = await import("../dist/streams/runtimes/node.js");
  const { openFileStore } = await import("../dist/streams/stores/file.js");
  const scale = Math.max(liveBytes / 1e9, 0.01);
  const store = await openFileStore(directory, {
    segmentBytes: Math.round((64 * 1024 * 1024 * scale) / 4096) * 4096,
    snapshotBytes: Math.round(256 * 1024 * 1024 * scale),
  });
  const server = await startNodeServer({ store, port: 0, onAudit: () => undefined });
  return { store, server };
}

await main(async () => {
  await buildIfNeeded();
  const updates = numberOf("updates", 2000) * 1000;
  const keys = numberOf("keys", 20) * 1000;
  const rate = numberOf("rate", 10) * 1000;
  // Without a rule: what the machine does anyway.
  const isPlain = process.argv.includes("--plain");
  const directory = mkdtempSync(join(tmpdir(), "hapax-compaction-"));
  const liveBytes =
    keys * `{"id":"key-12345","value":{"n":123456,"text":"${"v".repeat(60)}"}},`.length;
  const { store, server } = await start(directory, liveBytes);
  const url = `${server.url}/v1/stream/users`;
  const rule = { "Stream-Compact-Key": "id, tombstone=value, lag=0" };
  await fetch(url, { method: "PUT", headers: isPlain ? TYPE : { ...TYPE, ...rule } });
  const startedMs = performance.now();
  const figures = { sent: 0, sentBytes: 0, most: 0, files: 0, rate, startedMs };
  const newest = Array.from({ length: keys }, () => -1);
  const delay = monitorEventLoopDelay({ resolution: 5 });
  delay.enable();
  let isDone = false;
  try {
    const parts = { updates, keys, figures, newest };
    const watching = watch(url, store, figures, () => isDone);
    await Promise.all(Array.from({ length: SENDERS }, (_, n) => send(url, n, parts)));
    isDone = true;
    await watching;
    const seconds = (performance.now() - startedMs) / 1000;
    delay.disable();
    const read = await check(url, newest);
    const metrics = await (await fetch(`${server.url}/_hapax/metrics`)).text();
    report(directory, figures, { keys, liveBytes, seconds, read, metrics, delay });
    if (figures.most > SHARE_MAX * liveBytes && !isPlain) {
      throw new Failure(`the stream had more than ${SHARE_MAX} times what it says`);
    }
  } finally {
    isDone = true;
    delay.disable();
    await server.stop();
    rmSync(directory, { recursive: true, force: true });
  }
});
