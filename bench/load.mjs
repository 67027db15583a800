/**
 * The load: one process with raw sockets and hand-written HTTP/1.1, one request outstanding on each
 * connection, because every usual client costs more than the server under test. Tasks come from the
 * parent as messages, results go back the same way.
 */

import { connect as connectSocket } from "node:net";

const END_OF_HEAD = Buffer.from("\r\n\r\n");
const END_OF_CHUNKS = Buffer.from("\r\n0\r\n\r\n");

/** A keep-alive connection. `onAnswer(status, head, bodyBytes)` is called once for each answer. */
class Connection {
  #socket;
  #pending = undefined;
  onAnswer = () => undefined;
  onFailure = () => undefined;

  static open(port) {
    const connection = new Connection();
    return new Promise((resolve, reject) => {
      const socket = connectSocket({
        port,
        host: "127.0.0.1",
        noDelay: true,
        onread: {
          buffer: Buffer.allocUnsafe(256 * 1024),
          callback: (bytes, buffer) => {
            connection.#take(buffer.subarray(0, bytes));
            return true;
          },
        },
      });
      connection.#socket = socket;
      socket.once("connect", () => resolve(connection));
      socket.once("error", (error) => {
        reject(error);
        connection.onFailure(error);
      });
      socket.once("close", () => connection.onFailure(new Error("the server closed a connection")));
    });
  }

  send(request) {
    this.#socket.write(request, "latin1");
  }

  close() {
    this.onFailure = () => undefined;
    this.#socket.destroy();
  }

  #take(chunk) {
    const pending = this.#pending;
    if (pending === undefined) this.#takeHead(chunk);
    else if (pending.head === undefined) this.#takeHead(Buffer.concat([pending.bytes, chunk]));
    else this.#takeBody(chunk);
  }

  #takeHead(bytes) {
    const end = bytes.indexOf(END_OF_HEAD);
    if (end === -1) {
      this.#pending = { bytes: Buffer.from(bytes), head: undefined };
      return;
    }
    const head = bytes.latin1Slice(0, end + 2);
    const status = Number(head.slice(9, 12));
    const length = headerOf(head, "content-length");
    const isChunked = length === undefined && status !== 204;
    if ((length === undefined && !isChunked) || length === "0") {
      this.#pending = undefined;
      this.onAnswer(status, head, 0);
      return;
    }
    const left = isChunked ? Infinity : Number(length);
    // The end of the head counts as the line break before the first chunk.
    this.#pending = { head, status, left, bytes: 0, last: Buffer.alloc(0), isChunked };
    this.#takeBody(bytes.subarray(isChunked ? end + 2 : end + 4));
  }

  #takeBody(chunk) {
    const pending = this.#pending;
    pending.bytes += chunk.length;
    pending.left -= chunk.length;
    if (pending.isChunked) {
      const joined = Buffer.concat([pending.last, chunk]);
      pending.last = joined.subarray(-END_OF_CHUNKS.length);
      if (pending.last.equals(END_OF_CHUNKS)) pending.left = 0;
    }
    if (pending.left > 0) return;
    this.#pending = undefined;
    this.onAnswer(pending.status, pending.head, pending.bytes);
  }
}

export function headerOf(head, name) {
  const at = head.toLowerCase().indexOf(`\r\n${name}: `);
  if (at === -1) return undefined;
  const start = at + name.length + 4;
  return head.slice(start, head.indexOf("\r\n", start));
}

/** Sends one request and resolves with its answer. */
export function ask(connection, request) {
  return new Promise((resolve, reject) => {
    connection.onFailure = reject;
    connection.onAnswer = (status, head, bytes) => resolve({ status, head, bytes });
    connection.send(request);
  });
}

/** A line of the head, or nothing. */
function credential(authorization) {
  return authorization === undefined ? "" : `Authorization: ${authorization}\r\n`;
}

function put(port, path, contentType, authorization) {
  return (
    `PUT ${path} HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nContent-Type: ${contentType}\r\n` +
    `${credential(authorization)}Content-Length: 0\r\n\r\n`
  );
}

async function createStreams({ port, paths, contentType, authorization }) {
  const left = [...paths];
  const work = async () => {
    const connection = await Connection.open(port);
    for (let path = left.pop(); path !== undefined; path = left.pop()) {
      const { status } = await ask(connection, put(port, path, contentType, authorization));
      // The bare server answers everything with 204.
      if (status > 204) throw new Error(`PUT ${path} was answered with ${status}`);
    }
    connection.close();
  };
  await Promise.all(Array.from({ length: Math.min(32, paths.length) }, work));
  return {};
}

/** The requests of one producer, over all streams in turn, each with its own sequence. */
function requestsOf({ port, paths, contentType, body, producer, authorization }, index) {
  const heads = paths.map(
    (path) =>
      `POST ${path} HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nContent-Type: ${contentType}\r\n` +
      `${credential(authorization)}Content-Length: ${body.length}\r\n` +
      `Producer-Id: ${producer}-${index}\r\n` +
      `Producer-Epoch: 0\r\nProducer-Seq: `,
  );
  const tail = `\r\n\r\n${body}`;
  const first = (index * 17) % heads.length;
  let round = 0;
  let at = 0;
  return () => {
    const head = heads[(first + at) % heads.length];
    const request = head + round + tail;
    at += 1;
    if (at === heads.length) {
      at = 0;
      round += 1;
    }
    return request;
  };
}

/** Appends for a time on some connections; counts what was answered within the time measured. */
async function append(task) {
  const { port, connections } = task;
  const opened = await Promise.all(
    Array.from({ length: connections }, () => Connection.open(port)),
  );
  try {
    return await appendOn(opened, task);
  } finally {
    for (const connection of opened) connection.close();
  }
}

async function appendOn(opened, task) {
  const { warmMs, measureMs } = task;
  let count = 0;
  let isOver = false;
  const latencies = [];
  const ended = opened.map(
    (connection, index) =>
      new Promise((resolve, reject) => {
        const next = requestsOf(task, index);
        let sentAt = 0;
        const send = () => {
          sentAt = performance.now();
          connection.send(next());
        };
        connection.onFailure = reject;
        connection.onAnswer = (status) => {
          if (status !== 200 && status !== 204) reject(new Error(`an append got ${status}`));
          count += 1;
          if (count % 16 === 0) latencies.push(performance.now() - sentAt);
          if (isOver) resolve();
          else send();
        };
        send();
      }),
  );
  const all = Promise.all(ended);
  all.catch(() => undefined);
  await Promise.race([pause(warmMs), all]);
  process.send({ kind: "mark" });
  const countBefore = count;
  latencies.length = 0;
  const start = performance.now();
  await Promise.race([pause(measureMs), all]);
  const measured = count - countBefore;
  const elapsedMs = performance.now() - start;
  process.send({ kind: "mark" });
  isOver = true;
  await all;
  return { count: measured, perSecond: (measured * 1000) / elapsedMs, ...quantiles(latencies) };
}

/** Fills a stream with equal appends. */
async function fill({ port, path, contentType, body, count }) {
  const request =
    `POST ${path} HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nContent-Type: ${contentType}\r\n` +
    `Content-Length: ${body.length}\r\n\r\n${body}`;
  let left = count;
  const work = async () => {
    const connection = await Connection.open(port);
    while (left > 0) {
      left -= 1;
      const { status } = await ask(connection, request);
      if (status > 204) throw new Error(`an append got ${status}`);
    }
    connection.close();
  };
  await Promise.all(Array.from({ length: 32 }, work));
  return {};
}

/** Reads a stream from its start to its tail, page by page, on some connections at once. */
async function catchUp({ port, path, readers, passes }) {
  const start = performance.now();
  let bytes = 0;
  const readPasses = async () => {
    const connection = await Connection.open(port);
    for (let pass = 0; pass < passes; pass += 1) {
      // Not in one statement: the sum of before the wait would forget what others have read meanwhile.
      const read = await readAll(connection, port, path);
      bytes += read;
    }
    connection.close();
  };
  await Promise.all(Array.from({ length: readers }, readPasses));
  const elapsedMs = performance.now() - start;
  return { bytes, megabytesPerSecond: bytes / 1000 / elapsedMs };
}

async function readAll(connection, port, path) {
  let bytes = 0;
  let offset = "-1";
  for (;;) {
    const request = `GET ${path}?offset=${offset} HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\n\r\n`;
    const answer = await ask(connection, request);
    if (answer.status !== 200) throw new Error(`a read got ${answer.status}`);
    bytes += answer.bytes;
    const next = headerOf(answer.head, "stream-next-offset");
    if (next === undefined || next === offset) return bytes;
    if (headerOf(answer.head, "stream-up-to-date") !== undefined) return bytes;
    offset = next;
  }
}

/** From the write of an append to the moment when a live reader has it. */
async function tail({ port, path, contentType, count, everyMs }) {
  const writer = await Connection.open(port);
  const arrivals = new Map();
  const reader = connectSocket({ port, host: "127.0.0.1", noDelay: true });
  await new Promise((resolve) => reader.once("connect", resolve));
  let text = "";
  reader.setEncoding("latin1");
  reader.on("data", (chunk) => {
    text += chunk;
    for (const match of text.matchAll(/mark(\d+)\./g)) {
      const arrival = arrivals.get(match[1]);
      if (arrival !== undefined) arrival(performance.now());
    }
    text = text.slice(-256);
  });
  reader.write(
    `GET ${path}?offset=-1&live=sse HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\n` +
      `Accept: text/event-stream\r\n\r\n`,
  );
  await pause(100);
  const latencies = [];
  for (let sent = 0; sent < count; sent += 1) {
    const body = `mark${sent}.`.padEnd(100, "x");
    const request =
      `POST ${path} HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nContent-Type: ${contentType}\r\n` +
      `Content-Length: ${body.length}\r\n\r\n${body}`;
    const arrival = new Promise((resolve) => arrivals.set(String(sent), resolve));
    const start = performance.now();
    await ask(writer, request);
    latencies.push((await arrival) - start);
    arrivals.delete(String(sent));
    await pause(everyMs);
  }
  reader.destroy();
  writer.close();
  return quantiles(latencies);
}

function pause(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

function quantiles(latencies) {
  const sorted = latencies.toSorted((one, other) => one - other);
  const at = (share) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
  return { p50Ms: at(0.5), p99Ms: at(0.99) };
}

const TASKS = { createStreams, append, fill, catchUp, tail };

process.on("message", ({ task, ...rest }) => {
  TASKS[task](rest).then(
    (result) => process.send({ kind: "result", result }),
    (error) => process.send({ kind: "failure", message: error.message }),
  );
});
process.on("disconnect", () => process.exit(0));
process.send({ kind: "ready" });
