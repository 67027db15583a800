// A thousand live readers, most of which read nothing, while 200 MB is appended: the server's memory is
// bounded, the readers that read get everything once and in order, and the others are cut and resume
// where they were. PROTOCOL.md §7
import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { Agent, get, type IncomingMessage } from "node:http";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";
import { LIMITS } from "../../src/protocol/limits.ts";
import { call } from "../protocol/raw-http.ts";

const MIB = 1024 * 1024;
const STREAMS = 20;
const READERS_PER_STREAM = 50;
// Each reader that reads costs 10 MB of reading. In the long run half of them do, and all the others come back.
const isLong = process.env["HAPAX_LONG"] !== undefined;
const AWAKE_PER_STREAM = isLong ? 25 : 8;
const RESUMED_PER_STREAM = isLong ? READERS_PER_STREAM : 4;
const APPENDS = 100;
const APPEND_BYTES = 100_000;
const STREAM_BYTES = APPENDS * APPEND_BYTES;
const DATA_BYTES = STREAMS * STREAM_BYTES;
const READER_STALL_MS = 2000;
const READER_BUFFER_BYTES = MIB;
const ANSWERS_BYTES = 64 * MIB;

// The server lives in a process of its own, so that its memory is its own. It is the built one.
const SCRIPT = `
  const { startNodeServer } = await import(process.argv[1]);
  const server = await startNodeServer({ store: "memory",
    port: 0,
    readerStallMs: ${READER_STALL_MS},
    readerBufferBytes: ${READER_BUFFER_BYTES},
    answersBytesMax: ${ANSWERS_BYTES},
    sseSecondsMax: 600,
  });
  process.on("message", () => process.send({ liveReaders: server.server.engine.liveReaders }));
  process.on("disconnect", () => process.exit(0));
  process.send({ url: server.url });
`;

let child: ChildProcess;
let url = "";

beforeAll(async () => {
  const built = new URL("../../dist/streams/runtimes/node.js", import.meta.url);
  const flags = ["--input-type=module", "-e", SCRIPT, fileURLToPath(built)];
  child = spawn(process.execPath, flags, { stdio: ["ignore", "inherit", "inherit", "ipc"] });
  url = String((await nextMessage()).get("url"));
});

afterAll(() => {
  child.disconnect();
});

function nextMessage(): Promise<Map<string, unknown>> {
  return new Promise((resolve, reject) => {
    child.once("exit", (code) => {
      reject(new Error(`the server ended with ${code}`));
    });
    child.once("message", (message) => {
      resolve(new Map<string, unknown>(Object.entries(message)));
    });
  });
}

async function liveReaders(): Promise<number> {
  const answer = nextMessage();
  child.send("count");
  return Number((await answer).get("liveReaders"));
}

/** A figure of /proc/<pid>/status in bytes: VmRSS is now, VmHWM the most there ever was. */
function memory(figure: "VmRSS" | "VmHWM"): number {
  const status = readFileSync(`/proc/${child.pid}/status`, "utf8");
  return Number(new RegExp(`${figure}:\\s+(\\d+) kB`).exec(status)?.[1]) * 1024;
}

/**
 * One reader of one stream. It compares each byte with what was appended at its place, and knows the
 * offset of its last control event. Payloads have no line ends, so that a line is found by its end.
 */
class Reader {
  readonly #path: string;
  readonly #expected: Buffer;
  #response: IncomingMessage | undefined;
  #event = "";
  #line = "";
  #isPayload = false;
  #position = 0;
  confirmed = 0;
  isClosed = false;
  mismatches = 0;

  constructor(path: string, expected: Buffer) {
    this.#path = path;
    this.#expected = expected;
  }

  /** Opens the stream at the last confirmed offset; nothing is read yet. */
  open(agent: Agent): Promise<void> {
    const offset = `0000000000000000_${String(this.confirmed).padStart(16, "0")}`;
    this.#position = this.confirmed;
    [this.#event, this.#line, this.#isPayload] = ["", "", false];
    return new Promise((resolve, reject) => {
      get(`${url}${this.#path}?offset=${offset}&live=sse`, { agent }, (response) => {
        this.#response = response;
        resolve();
      }).on("error", reject);
    });
  }

  /** Reads until the connection ends, and tells whether it was cut. */
  read(): Promise<"complete" | "cut"> {
    const response = this.#response;
    if (response === undefined) throw new Error("the reader is not open");
    return new Promise((resolve) => {
      response.on("error", () => undefined); // A cut: `close` follows.
      response.on("data", (chunk: Buffer) => {
        this.#take(chunk);
      });
      response.on("close", () => {
        resolve(response.complete ? "complete" : "cut");
      });
    });
  }

  #take(chunk: Buffer): void {
    let at = 0;
    while (at < chunk.length) {
      const found = chunk.indexOf(0x0a, at);
      const end = found === -1 ? chunk.length : found;
      if (!this.#isPayload && this.#event === "data") {
        // The five characters `data:` stand before the payload.
        const prefix = Math.min(end, at + 5 - this.#line.length);
        this.#line += chunk.toString("latin1", at, prefix);
        at = prefix;
        if (this.#line === "data:") this.#isPayload = true;
      }
      if (this.#isPayload) this.#compare(chunk, at, end);
      else this.#line += chunk.toString("latin1", at, end);
      at = end;
      if (found === -1) return;
      this.#endLine();
      at += 1;
    }
  }

  #compare(chunk: Buffer, start: number, end: number): void {
    const to = this.#position + end - start;
    if (chunk.compare(this.#expected, this.#position, to, start, end) !== 0) this.mismatches += 1;
    this.#position = to;
  }

  #endLine(): void {
    if (this.#line.startsWith("event: ")) this.#event = this.#line.slice(7);
    else if (this.#event === "control" && this.#line.startsWith("data:")) this.#control();
    else if (this.#line === "") this.#event = "";
    if (this.#isPayload) this.#event = "";
    this.#isPayload = false;
    this.#line = "";
  }

  #control(): void {
    const control = new Map<string, unknown>(
      Object.entries(JSON.parse(this.#line.slice(5)) as object),
    );
    this.confirmed = Number(String(control.get("streamNextOffset")).slice(17));
    if (this.confirmed !== this.#position) this.mismatches += 1;
    this.isClosed = control.get("streamClosed") === true;
  }
}

async function appendAll(path: string, expected: Buffer, agent: Agent): Promise<void> {
  for (let index = 0; index < APPENDS; index += 1) {
    const body = expected.subarray(index * APPEND_BYTES, (index + 1) * APPEND_BYTES);
    const closing = index === APPENDS - 1 ? { "stream-closed": "true" } : {};
    const headers = { "content-type": "text/plain", ...closing };
    const answer = await call("POST", url, path, { headers, body, agent });
    if (answer.status !== 204) throw new Error(`an append was answered ${answer.status}`);
  }
}

/**
 * What the server may need beside the data itself, which this store keeps in memory:
 *   - 1,000 connections at 32 KiB: the socket, its parser, the answer and its timers;
 *   - for each stream the frames that its sleeping readers hold. A frame is shared by all readers of a
 *     stream, and each reader holds at most its buffer and the frame that filled it;
 *   - the room for answers to readers that fell behind and read the store, and for appends that live readers are
 *     still to be told of;
 *   - 80 MiB for appends being received and for what the collector has not taken away yet: on a busy machine it is late.
 * Without the bound the sleeping readers would hold every frame: another 200 MB.
 */
const ALLOWANCE_BYTES =
  STREAMS * READERS_PER_STREAM * 32 * 1024 +
  STREAMS * (READER_BUFFER_BYTES + 2 * APPEND_BYTES) +
  ANSWERS_BYTES +
  LIMITS.tellingBytesMax +
  80 * MIB;

function expectWhole(readers: readonly Reader[]): void {
  for (const reader of readers) {
    expect([reader.confirmed, reader.isClosed, reader.mismatches]).toEqual([STREAM_BYTES, true, 0]);
  }
}

/** Comes back after each cut, at the last offset that was confirmed. */
async function resume(reader: Reader, agent: Agent): Promise<void> {
  while (!reader.isClosed) {
    const before = reader.confirmed;
    await reader.open(agent);
    await reader.read();
    if (reader.confirmed === before) throw new Error("a reader came back and got nothing");
  }
}

test("a thousand readers, most of them asleep, are served within bounded memory", async () => {
  expect(DATA_BYTES).toBe(200e6);
  const agent = new Agent({ keepAlive: false, maxSockets: Infinity });
  const writer = new Agent({ keepAlive: true });
  const streams = Array.from({ length: STREAMS }, (_, index) => ({
    path: `/v1/stream/heavy/${index}`,
    expected: Buffer.from(randomBytes((STREAM_BYTES / 4) * 3).toString("base64")),
  }));
  const awake: Reader[] = [];
  const asleep: Reader[] = [];
  for (const { path, expected } of streams) {
    await call("PUT", url, path, { headers: { "content-type": "text/plain" } });
    const readers = Array.from({ length: READERS_PER_STREAM }, () => new Reader(path, expected));
    await Promise.all(readers.map((reader) => reader.open(agent)));
    awake.push(...readers.slice(0, AWAKE_PER_STREAM));
    asleep.push(...readers.slice(AWAKE_PER_STREAM));
  }
  expect(await liveReaders()).toBe(STREAMS * READERS_PER_STREAM);

  const before = memory("VmRSS");
  const reading = awake.map((reader) => reader.read());
  await Promise.all(streams.map(({ path, expected }) => appendAll(path, expected, writer)));
  expect(new Set(await Promise.all(reading))).toEqual(new Set(["complete"]));
  expectWhole(awake);
  while ((await liveReaders()) > 0) await call("GET", url, "/_hapax/health");
  expect(memory("VmHWM") - before).toBeLessThan(DATA_BYTES + ALLOWANCE_BYTES);

  const endings = await Promise.all(asleep.map((reader) => reader.read()));
  expect(new Set(endings)).toEqual(new Set(["cut"]));
  expect(asleep.every(({ confirmed }) => confirmed < STREAM_BYTES)).toBe(true);
  const sleepers = READERS_PER_STREAM - AWAKE_PER_STREAM;
  const back = asleep.filter((_, at) => at % sleepers < RESUMED_PER_STREAM);
  await Promise.all(back.map((reader) => resume(reader, agent)));
  expectWhole(back);
  agent.destroy();
  writer.destroy();
});
