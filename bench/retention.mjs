/**
 * `node bench/retention.mjs [--take <MB>] [--keep <MB>]`: a stream that takes much and keeps little, over HTTP, with a durable store, while a
 * reader follows it and another one reads it from its beginning again and again. It prints how much room the directory took at most,
 * as a share of what is kept, and the longest time for which the event loop stood still. Snapshots and segments are scaled to what is
 * kept as the defaults are to 1 GB.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { buildIfNeeded, Failure, main } from "../scripts/prepare.mjs";
import { formatMachine, machineOf } from "./machine.mjs";

const MB = 1_000_000;
/** Of what is kept. */
const ROOM_MAX = 1.5;

function numberOf(name, fallback) {
  const at = process.argv.indexOf(`--${name}`);
  return at < 0 ? fallback : Number(process.argv[at + 1]);
}

function report(directory, { sent, live, most, pages }, { seconds, keepBytes, leftBytes, delay }) {
  const inMb = (bytes) => `${(bytes / MB).toFixed(1)} MB`;
  console.log(formatMachine(machineOf(directory)));
  console.log(
    `took ${inMb(sent)} in ${seconds.toFixed(1)} s, keeps ${inMb(keepBytes)}; ` +
      `left at the end ${inMb(leftBytes)}, live at most ${inMb(live)}`,
  );
  const share = (most / keepBytes).toFixed(2);
  console.log(
    `files at most ${inMb(most)}, ${share} times what is kept; ${pages} pages were read meanwhile`,
  );
  const p99Ms = (delay.percentile(99) / 1e6).toFixed(1);
  console.log(
    `the event loop stood still for at most ${(delay.max / 1e6).toFixed(1)} ms, p99 ${p99Ms} ms`,
  );
}

/** A server with little room, so that segments and snapshots are to what is kept as with 1 GB. */
async function start(directory, keepBytes) {
  const { startNodeServer } = await import("../dist/streams/runtimes/node.js");
  const { openFileStore } = await import("../dist/streams/stores/file.js");
  const scale = keepBytes / 1e9;
  const store = await openFileStore(directory, {
    segmentBytes: Math.round((64 * 1024 * 1024 * scale) / 4096) * 4096,
    snapshotBytes: Math.round(256 * 1024 * 1024 * scale),
  });
  const server = await startNodeServer({ store, port: 0, onAudit: () => undefined });
  return { store, server };
}

await main(async () => {
  await buildIfNeeded();
  const [takeBytes, keepBytes] = [numberOf("take", 3000) * MB, numberOf("keep", 100) * MB];
  const directory = mkdtempSync(join(tmpdir(), "hapax-retention-"));
  const { store, server } = await start(directory, keepBytes);
  const url = `${server.url}/v1/stream/feed`;
  const type = { "Content-Type": "application/octet-stream" };
  await fetch(url, {
    method: "PUT",
    headers: { ...type, "Stream-Retention": `bytes=${keepBytes}` },
  });
  const body = new Uint8Array(100_000).fill(7);
  const sevens = Buffer.alloc(16 * 1024 * 1024, 7);
  const figures = { sent: 0, most: 0, live: 0, pages: 0, wrong: 0 };
  const delay = monitorEventLoopDelay({ resolution: 5 });
  delay.enable();
  const startedMs = performance.now();
  const send = async () => {
    while (figures.sent < takeBytes) {
      figures.sent += body.length;
      const answer = await fetch(url, { method: "POST", headers: type, body });
      if (answer.status !== 204) throw new Failure(`an append was answered ${answer.status}`);
      await answer.arrayBuffer();
      const { fileBytes, liveBytes } = store.stats();
      figures.most = Math.max(figures.most, fileBytes);
      figures.live = Math.max(figures.live, liveBytes);
    }
  };
  const read = async () => {
    while (figures.sent < takeBytes) {
      const answer = await fetch(url);
      const page = new Uint8Array(await answer.arrayBuffer());
      figures.pages += 1;
      // A page is refused if it was trimmed between the look and the read.
      const isRight =
        answer.status === 410 || Buffer.compare(page, sevens.subarray(0, page.length)) === 0;
      if (!isRight) figures.wrong += 1;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  };
  try {
    await Promise.all([send(), send(), send(), send(), read()]);
    const head = await fetch(url, { method: "HEAD" });
    const earliest = Number(head.headers.get("Stream-Earliest-Offset")?.slice(17));
    const seconds = (performance.now() - startedMs) / 1000;
    report(directory, figures, { seconds, keepBytes, leftBytes: figures.sent - earliest, delay });
    const share = figures.most / keepBytes;
    if (figures.wrong > 0) throw new Failure(`${figures.wrong} pages were wrong`);
    if (share > ROOM_MAX)
      throw new Failure(`the files took more than ${ROOM_MAX} times what is kept`);
  } finally {
    delay.disable();
    await server.stop();
    rmSync(directory, { recursive: true, force: true });
  }
});
