/** The same work in the words of each peer: one record, deduplicated, durable before the answer. */

const MARKED = (size) => `mark@SEQ@.`.padEnd(size - 3, "x");
const WIDTH = 8;

/** Requests of one producer for each connection. The body is a record, or given. */
export function httpAppend({ port, path, body, contentType = "text/plain", producer }) {
  const request =
    `POST ${path} HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nContent-Type: ${contentType}\r\n` +
    `Content-Length: ${body.length}\r\nProducer-Id: ${producer}-@CONN@\r\n` +
    `Producer-Epoch: 0\r\nProducer-Seq: @SEQ@\r\n\r\n${body}`;
  return { framing: "http", port, request, width: 0 };
}

export async function createHttpStream(port, path, contentType = "text/plain") {
  const headers = { "Content-Type": contentType };
  const answer = await fetch(`http://127.0.0.1:${port}${path}`, { method: "PUT", headers });
  if (answer.status > 204) throw new Error(`PUT ${path}: ${answer.status}`);
}

/** An append with a mark, and readers that follow the stream as server-sent events. */
export function httpTail({ port, path, size = 100 }) {
  const body = MARKED(size);
  const request =
    `POST ${path} HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nContent-Type: text/plain\r\n` +
    `Content-Length: ${size}\r\n\r\n${body}`;
  const readerHello = `GET ${path}?offset=now&live=sse HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\n\r\n`;
  return { framing: "http", port, request, width: WIDTH, "reader-hello": readerHello };
}

/** A record is taken if it is the next one of its producer; the number and the record are written together. */
export const REDIS_SCRIPT = `
local last = tonumber(redis.call('HGET', KEYS[2], ARGV[1]) or '-1')
local sequence = tonumber(ARGV[2])
if sequence <= last then return 0 end
if sequence ~= last + 1 then return redis.error_reply('GAP') end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
redis.call('XADD', KEYS[1], '*', 'd', ARGV[3])
return 1`;

/** Numbers are padded, so that lengths are known: @SEQ@ and @CONN@ have `WIDTH` digits when they are sent. */
function bytesOf(text) {
  return text.replaceAll("@SEQ@", "0".repeat(WIDTH)).replaceAll("@CONN@", "0".repeat(WIDTH)).length;
}

export function resp(...words) {
  return `*${words.length}\r\n${words.map((word) => `$${bytesOf(word)}\r\n${word}\r\n`).join("")}`;
}

export function redisAppend({ port, digest, stream, body, producer }) {
  const words = ["EVALSHA", digest, "2", stream, `${stream}:producers`, `${producer}-@CONN@`];
  return { framing: "resp", port, request: resp(...words, "@SEQ@", body), width: WIDTH };
}

export function redisTail({ port, digest, stream, size = 100 }) {
  const words = ["EVALSHA", digest, "2", stream, `${stream}:producers`, "tail"];
  const read = resp("XREAD", "BLOCK", "0", "STREAMS", stream, "$");
  // The next record comes milliseconds after this one, so `$` misses nothing.
  const again = { "reader-hello": resp("PING") + read, "reader-again": read };
  const request = resp(...words, "@SEQ@", MARKED(size));
  return { framing: "resp", port, request, width: WIDTH, ...again };
}

const NATS_HELLO = 'CONNECT {"verbose":false,"pedantic":false,"headers":true}\r\n';

/** NATS answers to an inbox of the connection when it has stored the record. */
function natsPublish(subject, id, body) {
  const head = `NATS/1.0\r\nNats-Msg-Id: ${id}\r\n\r\n`;
  const [headBytes, bytes] = [bytesOf(head), bytesOf(head) + bytesOf(body)];
  return `HPUB ${subject} inbox.@CONN@ ${headBytes} ${bytes}\r\n${head}${body}\r\n`;
}

const NATS_INBOX = { hello: `${NATS_HELLO}SUB inbox.@CONN@ 1\r\nPING\r\n`, "hello-answers": 1 };

export function natsAppend({ port, subject, body, producer }) {
  const request = natsPublish(subject, `${producer}-@CONN@-@SEQ@`, body);
  return { framing: "nats", port, request, width: WIDTH, ...NATS_INBOX };
}

export function natsTail({ port, subject, deliver, producer, size = 100 }) {
  const request = natsPublish(subject, `${producer}-@SEQ@`, MARKED(size));
  const readerHello = `${NATS_HELLO}SUB ${deliver} 2\r\nPING\r\n`;
  const rest = { ...NATS_INBOX, "reader-hello": readerHello };
  return { framing: "nats", port, request, width: WIDTH, ...rest };
}

function message(type, ...parts) {
  const body = Buffer.concat(parts.map((part) => (typeof part === "string" ? text(part) : part)));
  const head = Buffer.alloc(5);
  head.write(type, "latin1");
  head.writeInt32BE(bytesOf(body.toString("latin1")) + 4, 1);
  return Buffer.concat([type === "" ? head.subarray(1) : head, body]);
}

const text = (value) => Buffer.from(`${value}\0`, "latin1");

function numbers(...values) {
  const bytes = Buffer.alloc(values.length * 2);
  for (const [at, value] of values.entries()) bytes.writeInt16BE(value, at * 2);
  return bytes;
}

function value(content) {
  const size = Buffer.alloc(4);
  size.writeInt32BE(bytesOf(content));
  return Buffer.concat([size, Buffer.from(content, "latin1")]);
}

export const POSTGRES_INSERT =
  "INSERT INTO records (producer, sequence, data) VALUES ($1, $2::bigint, $3) ON CONFLICT DO NOTHING";

/** A prepared statement, then bind, execute and sync for each record: one round trip and one commit. */
export function postgresAppend({ port, user, body, producer }) {
  const version = Buffer.from([0, 3, 0, 0]);
  const start = message("", version, "user", user, "database", "postgres", Buffer.from([0]));
  const parse = message("P", "append", POSTGRES_INSERT, numbers(0));
  const sync = message("S");
  const values = [`${producer}-@CONN@`, "@SEQ@", body].map(value);
  const bind = message("B", "", "append", numbers(0, 3), ...values, numbers(0));
  const execute = message("E", "", Buffer.alloc(4));
  return {
    framing: "postgres",
    port,
    hello: Buffer.concat([start, parse, sync]),
    "hello-answers": 2,
    request: Buffer.concat([bind, execute, sync]),
    width: WIDTH,
  };
}
