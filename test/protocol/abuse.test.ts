// The HTTP abuse list: bytes that no honest client sends. Each case is refused with a status and a code,
// stores nothing, and a good client on a connection of its own is served meanwhile. PROTOCOL.md §13
import { Agent } from "node:http";
import type { Socket } from "node:net";
import { gzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { LIMITS } from "../../src/protocol/all-limits.ts";
import { type NodeServer, startNodeServer } from "../../src/streams/runtimes/node.ts";
import { SINGLE_HEADERS } from "../../src/protocol/headers.ts";
import { call, members, openSocket, parseAnswer, sendRaw, untilClosed } from "./raw-http.ts";

const TARGET = "/v1/stream/target";
const BODY_MAX = 4 * 1024 * 1024;

/** A client that appends without a pause and knows when each of its appends was answered. */
class GoodClient {
  readonly #base: string;
  readonly #agent = new Agent({ keepAlive: true, maxSockets: 1 });
  #isStopped = false;
  #running: Promise<void> | undefined;
  acked = 0;
  worstMs = 0;

  constructor(base: string) {
    this.#base = base;
  }

  async start(): Promise<void> {
    const headers = { "content-type": "application/json" };
    await call("PUT", this.#base, "/good", { headers, agent: this.#agent });
    this.#running = this.#run();
  }

  async #run(): Promise<void> {
    while (!this.#isStopped) {
      const sequence = this.acked;
      const before = performance.now();
      const answer = await call("POST", this.#base, "/good", {
        agent: this.#agent,
        headers: {
          "content-type": "application/json",
          "producer-id": "good",
          "producer-epoch": "0",
          "producer-seq": String(sequence),
        },
        body: String(sequence),
      });
      if (answer.status !== 200) throw new Error(`the good client got ${answer.status}`);
      this.worstMs = Math.max(this.worstMs, performance.now() - before);
      this.acked += 1;
    }
  }

  /** Runs what is given and answers how many appends began and ended since; at least one must. */
  async during<T>(run: () => Promise<T>): Promise<{ result: T; acks: number }> {
    const from = this.acked + 1; // One may have been running already.
    this.worstMs = 0;
    const result = await run();
    while (this.acked <= from) await call("GET", this.#base, "/_hapax/health");
    return { result, acks: this.acked - from };
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    await this.#running;
    this.#agent.destroy();
  }
}

interface AbuseCase {
  readonly name: string;
  readonly bytes: string | Uint8Array;
  readonly status: number;
  readonly code?: string;
}

/** A request as text: request line, Host, the headers given, and the body with its length. */
function raw(line: string, headers: readonly string[] = [], body?: string | Uint8Array): Buffer {
  const length = body === undefined ? [] : [`Content-Length: ${Buffer.byteLength(body)}`];
  const head = [`${line} HTTP/1.1`, "Host: localhost", ...headers, ...length, "", ""].join("\r\n");
  return Buffer.concat([Buffer.from(head, "latin1"), Buffer.from(body ?? "")]);
}

const JSON_TYPE = "Content-Type: application/json";

function post(headers: readonly string[], body: string | Uint8Array = "1"): Buffer {
  return raw(`POST ${TARGET}`, [JSON_TYPE, ...headers], body);
}

function refused(name: string, bytes: string | Uint8Array, code = "invalid_request", status = 400) {
  return { name, bytes, status, code } satisfies AbuseCase;
}

const HEAD = `POST ${TARGET} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n`;

const smuggling: readonly AbuseCase[] = [
  refused(
    "Content-Length together with Transfer-Encoding",
    `${HEAD}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n1\r\n0\r\n\r\n`,
  ),
  refused(
    "Transfer-Encoding together with Content-Length",
    `${HEAD}Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n1\r\n1\r\n0\r\n\r\n`,
  ),
  refused(
    "two different Content-Lengths",
    `${HEAD}Content-Length: 1\r\nContent-Length: 9\r\n\r\n1`,
  ),
  refused("two equal Content-Lengths", `${HEAD}Content-Length: 1\r\nContent-Length: 1\r\n\r\n1`),
  refused("a list of Content-Lengths", `${HEAD}Content-Length: 1, 1\r\n\r\n1`),
  refused("a Content-Length with a sign", `${HEAD}Content-Length: +1\r\n\r\n1`),
  refused("a negative Content-Length", `${HEAD}Content-Length: -1\r\n\r\n1`),
  refused("a hexadecimal Content-Length", `${HEAD}Content-Length: 0x1\r\n\r\n1`),
  refused("an empty Content-Length", `${HEAD}Content-Length: \r\n\r\n1`),
  refused("a Content-Length of 2^64", `${HEAD}Content-Length: 18446744073709551616\r\n\r\n1`),
  refused("a space before a colon", `${HEAD}Content-Length : 1\r\n\r\n1`),
  refused(
    "a folded Transfer-Encoding",
    `${HEAD}Transfer-Encoding:\r\n chunked\r\n\r\n1\r\n1\r\n0\r\n\r\n`,
  ),
  refused("a space before the first header", ` ${HEAD}Content-Length: 1\r\n\r\n1`),
  refused("bare line feeds", `POST ${TARGET} HTTP/1.1\nHost: localhost\nContent-Length: 1\n\n1`),
  refused("a bare carriage return in a header", `${HEAD}X: a\rb\r\nContent-Length: 1\r\n\r\n1`),
  refused("a NUL in a header", `${HEAD}X: a\0b\r\nContent-Length: 1\r\n\r\n1`),
  refused("no Host", `POST ${TARGET} HTTP/1.1\r\n${JSON_TYPE}\r\nContent-Length: 1\r\n\r\n1`),
  refused("two Hosts", `${HEAD}Host: other\r\nContent-Length: 1\r\n\r\n1`),
  refused("an unknown Transfer-Encoding", `${HEAD}Transfer-Encoding: xchunked\r\n\r\n1`),
  refused(
    "a Transfer-Encoding beside chunked",
    `${HEAD}Transfer-Encoding: gzip, chunked\r\n\r\n1\r\n1\r\n0\r\n\r\n`,
  ),
  refused("chunked twice", `${HEAD}Transfer-Encoding: chunked, chunked\r\n\r\n1\r\n1\r\n0\r\n\r\n`),
  refused(
    "chunked that is not the last coding",
    `${HEAD}Transfer-Encoding: chunked, identity\r\n\r\n1\r\n1\r\n0\r\n\r\n`,
  ),
  refused(
    "two Transfer-Encodings",
    `${HEAD}Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n1\r\n1\r\n0\r\n\r\n`,
  ),
  refused("a chunk size that is no number", `${HEAD}Transfer-Encoding: chunked\r\n\r\nzz\r\n1\r\n`),
  refused(
    "a chunk size beyond 2^64",
    `${HEAD}Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n1\r\n`,
  ),
  refused(
    "a chunk longer than its size",
    `${HEAD}Transfer-Encoding: chunked\r\n\r\n1\r\n12345\r\n0\r\n\r\n`,
  ),
  refused(
    "a flood of chunk extensions",
    `${HEAD}Transfer-Encoding: chunked\r\n\r\n1;${"a".repeat(64 * 1024)}\r\n1\r\n0\r\n\r\n`,
    "body_too_large",
    413,
  ),
  refused("a target of another scheme", raw("GET ftp://evil.test/a")),
  refused("an absolute target without a host", raw("GET http:///a")),
  refused("an absolute target with a user", raw("GET http://user@test/a")),
  ...["a b", "user@test", "test/a", '"><script>', "test:http", "[::1", ""].map((host) =>
    refused(`Host: ${JSON.stringify(host)}`, `GET ${TARGET} HTTP/1.1\r\nHost: ${host}\r\n\r\n`),
  ),
  refused("a target without a slash", raw("GET v1/stream/target")),
  refused("an asterisk without OPTIONS", raw("GET *")),
  refused("a garbage method", raw("F\u00fc\u00dfe /v1/stream/target")),
  refused("a method in lower case", raw("post /v1/stream/target", [JSON_TYPE], "1")),
  refused("CONNECT", raw("CONNECT test:80"), "method_not_allowed", 405),
  refused("a method of another protocol", raw(`PROPFIND ${TARGET}`), "method_not_allowed", 405),
  refused("TRACE", raw(`TRACE ${TARGET}`), "method_not_allowed", 405),
  refused("the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
  refused("a version that does not exist", `GET ${TARGET} HTTP/3.7\r\nHost: localhost\r\n\r\n`),
  refused("TLS on a plain port", Buffer.from("16030100a5010000a10303", "hex")),
  refused("an unknown expectation", post(["Expect: a-miracle"])),
];

// Values that are well formed for each header, so that only the repetition is wrong.
const TWICE: Readonly<Record<string, readonly [string, string]>> = {
  host: ["localhost", "GET"],
  "content-type": ["application/json", "POST"],
  "content-length": ["1", "POST"],
  "content-encoding": ["identity", "POST"],
  authorization: ["Bearer a", "POST"],
  "if-match": ['"a"', "POST"],
  "if-none-match": ['"a"', "GET"],
  "last-event-id": ["0000000000000000_0000000000000000", "GET"],
  "stream-ttl": ["60", "PUT"],
  "stream-expires-at": ["2100-01-01T00:00:00Z", "PUT"],
  "stream-closed": ["true", "POST"],
  "stream-seq": ["a", "POST"],
  "stream-forked-from": [TARGET, "PUT"],
  "stream-fork-offset": ["0000000000000000_0000000000000000", "PUT"],
  "stream-fork-sub-offset": ["0", "PUT"],
  "producer-id": ["p", "POST"],
  "producer-epoch": ["0", "POST"],
  "producer-seq": ["0", "POST"],
  "producer-session": ["s", "POST"],
  "idempotency-key": ["k", "POST"],
  "stream-key-window": ["60", "PUT"],
  "stream-key-max": ["10", "PUT"],
  "stream-key-overflow": ["evict", "PUT"],
  "stream-key-from": ["content", "PUT"],
  "stream-retention": ["bytes=1000", "PUT"],
  "stream-compact-key": ["id", "PUT"],
  "stream-incarnation": ["1", "POST"],
};
const PRODUCER = { "producer-id": "p", "producer-epoch": "0", "producer-seq": "0" };

function withProducer(overrides: Readonly<Record<string, string>>): Buffer {
  const fields = { ...PRODUCER, ...overrides };
  return post(Object.entries(fields).map(([name, value]) => `${name}: ${value}`));
}

const repeated: readonly AbuseCase[] = SINGLE_HEADERS.map((name) => {
  const [value, method] = TWICE[name] ?? ["", ""];
  const path = method === "PUT" ? "/v1/stream/new" : TARGET;
  const lines = [`${name}: ${value}`, `${name.toUpperCase()}: ${value}`];
  if (name.startsWith("producer-")) {
    const instead = name === "producer-session" ? "producer-epoch" : name;
    const others = Object.entries(PRODUCER).filter(([other]) => other !== instead);
    lines.push(...others.map(([other, text]) => `${other}: ${text}`));
  }
  const type = name === "content-type" || method === "GET" ? [] : [JSON_TYPE];
  return refused(
    `${name} sent twice`,
    raw(`${method} ${path}`, [...type, ...lines], method === "POST" ? "1" : undefined),
  );
});

const NUMBERS = ["1, 2", "1,1", "+1", "-1", "01", "1e3", "1.0", "0x1", "1 2", "", "1abc", "\u0661"];
const TOO_LARGE = ["9007199254740992", "99999999999999999999"];

const numbers: readonly AbuseCase[] = [...NUMBERS, ...TOO_LARGE].flatMap((value) => [
  refused(`Producer-Epoch: ${JSON.stringify(value)}`, withProducer({ "producer-epoch": value })),
  refused(`Producer-Seq: ${JSON.stringify(value)}`, withProducer({ "producer-seq": value })),
  refused(
    `Stream-TTL: ${JSON.stringify(value)}`,
    raw("PUT /v1/stream/new", [`Stream-TTL: ${value}`]),
  ),
  refused(
    `Stream-Fork-Sub-Offset: ${JSON.stringify(value)}`,
    raw("PUT /v1/stream/new", [
      `Stream-Forked-From: ${TARGET}`,
      `Stream-Fork-Sub-Offset: ${value}`,
    ]),
  ),
]);

const values: readonly AbuseCase[] = [
  refused("a producer without its epoch", post(["Producer-Id: p", "Producer-Seq: 0"])),
  refused("a producer without its id", post(["Producer-Epoch: 0", "Producer-Seq: 0"])),
  refused("an empty Producer-Id", withProducer({ "producer-id": "" })),
  refused("a Producer-Id over the limit", withProducer({ "producer-id": "p".repeat(257) })),
  refused("an empty Stream-Seq", post(["Stream-Seq: "])),
  refused("a Stream-Seq over the limit", post([`Stream-Seq: ${"s".repeat(257)}`])),
  refused(
    "a Content-Type over the limit, on creation",
    raw("PUT /v1/stream/new", [`Content-Type: text/${"a".repeat(257)}`]),
  ),
  refused(
    "a Content-Type over the limit, on append",
    raw(`POST ${TARGET}`, [`Content-Type: text/${"a".repeat(257)}`], "1"),
  ),
  refused("no Content-Type", raw(`POST ${TARGET}`, [], "1")),
  refused("a Content-Type that is none", raw(`POST ${TARGET}`, ["Content-Type: json"], "1")),
  refused("an empty append", post([], "")),
  refused("Stream-Closed: true, true on nothing", post(["Stream-Closed: true, true"], "")),
  refused(
    "two expiries",
    raw("PUT /v1/stream/new", ["Stream-TTL: 1", "Stream-Expires-At: 2100-01-01T00:00:00Z"]),
  ),
  ...["yesterday", "2100-02-30T00:00:00Z", "2100-01-01", "4102444800"].map((time) =>
    refused(
      `Stream-Expires-At: ${time}`,
      raw("PUT /v1/stream/new", [`Stream-Expires-At: ${time}`]),
    ),
  ),
  ...["http://other/v1/stream/a", "/a, /b", "/../a", "a", ""].map((source) =>
    refused(
      `Stream-Forked-From: ${JSON.stringify(source)}`,
      raw("PUT /v1/stream/new", [`Stream-Forked-From: ${source}`]),
    ),
  ),
  ...["1", "-1", "now", "0_0", "1, 2"].map((offset) =>
    refused(
      `Stream-Fork-Offset: ${offset}`,
      raw("PUT /v1/stream/new", [`Stream-Forked-From: ${TARGET}`, `Stream-Fork-Offset: ${offset}`]),
    ),
  ),
  ...["", "0", "a", "-2", "0_0", "1%002", "%", "%ff", "now%20", "-1&offset=-1", "\u00e9"].map(
    (offset) => refused(`offset=${offset}`, raw(`GET ${TARGET}?offset=${offset}`)),
  ),
  ...["", "true", "sse2", "SSE", "sse&live=sse"].map((live) =>
    refused(`live=${live}`, raw(`GET ${TARGET}?offset=-1&live=${live}`)),
  ),
  refused("live=sse without an offset", raw(`GET ${TARGET}?live=sse`)),
  refused(
    "an offset of another server",
    raw(`GET ${TARGET}?offset=9999999999999999_9999999999999999`),
    "offset_beyond_tail",
    410,
  ),
];

const paths: readonly AbuseCase[] = [
  ...[
    "/../etc/passwd",
    "/v1/stream/../target",
    "/v1/stream/./target",
    "/v1/stream/%2e%2e/target",
    "/v1/stream/%2E/target",
    "/v1/stream/.%2e/target",
    "/v1/stream/..%2ftarget",
    "/v1/stream%2ftarget",
    "/v1/stream%2Ftarget",
    "/v1/stream/a%00b",
    "/v1/stream/a%0d%0aSet-Cookie:%20a=b",
    "/v1/stream/a%7fb",
    "/v1/stream/a%c2%85b",
    "/v1/stream/a%5cb",
    "/v1/stream/a\\b",
    "/v1/stream//target",
    "/v1/stream/target/",
    "//v1/stream/target",
    "/v1/stream/%",
    "/v1/stream/%4",
    "/v1/stream/%zz",
    "/v1/stream/%ff",
    "/v1/stream/%c0%ae%c0%ae",
    "/v1/stream/%ed%a0%80",
    "/v1/stream/a#b",
    "/v1/stream/\u00e9",
  ].map((path) => refused(`the path ${path}`, raw(`PUT ${path}`))),
  ...["/%5fhapax/streams", "/_hapax/%73ecret", "/v1/stream/%5f%5fds/jwks.json", "/_tes%74/x"].map(
    (path) => refused(`the reserved path ${path}`, raw(`PUT ${path}`), "not_found", 404),
  ),
  ...["/_hapax/other", "/_test/inject-error"].map((path) =>
    refused(`the reserved path ${path}`, raw(`PUT ${path}`), "not_found", 404),
  ),
  refused("the path /", raw("PUT /"), "method_not_allowed", 405),
  refused(
    "a path over the limit",
    raw(`PUT /${"p".repeat(LIMITS.pathBytesMax)}`),
    "uri_too_long",
    414,
  ),
  refused(
    "a path over the limit once decoded",
    raw(`PUT /${"%c3%a9".repeat(LIMITS.pathBytesMax / 2)}`),
    "uri_too_long",
    414,
  ),
  refused(
    "a query over the limit",
    raw(`GET ${TARGET}?x=${"q".repeat(LIMITS.targetBytesMax)}`),
    "uri_too_long",
    414,
  ),
];

const zeros = new Uint8Array(BODY_MAX + 1).fill(0x30);
const bodies: readonly AbuseCase[] = [
  refused(
    "a header block over the limit",
    post([`X: ${"x".repeat(LIMITS.headerBytesMax)}`]),
    "headers_too_large",
    431,
  ),
  refused(
    "a thousand small headers",
    post(Array.from({ length: 1000 }, (_, index) => `X-${index}: ${"x".repeat(20)}`)),
    "headers_too_large",
    431,
  ),
  refused(
    "a target over the header limit",
    raw(`GET /${"p".repeat(LIMITS.headerBytesMax)}`),
    "headers_too_large",
    431,
  ),
  refused("a body over the limit, announced", post([], zeros), "body_too_large", 413),
  refused(
    "a body over the limit, announced and never sent",
    `${HEAD}Content-Length: 1000000000\r\n\r\n`,
    "body_too_large",
    413,
  ),
  refused(
    "a body over the limit, in chunks",
    Buffer.concat([
      Buffer.from(`${HEAD}Transfer-Encoding: chunked\r\n\r\n${zeros.length.toString(16)}\r\n`),
      zeros,
      Buffer.from("\r\n0\r\n\r\n"),
    ]),
    "body_too_large",
    413,
  ),
  ...["br", "deflate"].map((coding) =>
    refused(`gzip as ${coding}`, post([`Content-Encoding: ${coding}`], gzipSync("1"))),
  ),
  ...["zstd", "gzip, identity", "\u00e9"].map((coding) =>
    refused(
      `Content-Encoding: ${coding}`,
      post([`Content-Encoding: ${coding}`], gzipSync("1")),
      "unsupported_encoding",
      415,
    ),
  ),
  refused(
    "a gzip bomb",
    post(["Content-Encoding: gzip"], gzipSync(new Uint8Array(64 * 1024 * 1024))),
    "body_too_large",
    413,
  ),
  refused(
    "a body on creation that is not of its coding",
    raw("PUT /v1/stream/new", ["Content-Encoding: gzip"], "1"),
  ),
  refused("JSON a million arrays deep", post([], "[".repeat(1e6)), "invalid_json"),
  refused(
    "JSON a million arrays deep and closed",
    post([], "[".repeat(1e6) + "]".repeat(1e6)),
    "invalid_json",
  ),
  refused("JSON a million objects deep", post([], '{"a":'.repeat(7e5)), "invalid_json"),
  refused("an empty array", post([], " [ ] "), "invalid_json"),
  refused("two JSON values", post([], "1 2"), "invalid_json"),
  refused("JSON that is cut", post([], '{"a":"'), "invalid_json"),
  refused("JSON that is not UTF-8", post([], Uint8Array.of(0x22, 0xff, 0x22)), "invalid_json"),
  refused("JSON with a byte order mark", post([], "\ufeff1"), "invalid_json"),
  refused(
    "a control character in a JSON string, which the answer does not echo",
    post([], '"\u001b]0;\u0007'),
    "invalid_json",
  ),
  refused(
    "the other content type",
    raw(`POST ${TARGET}`, ["Content-Type: text/plain"], "1"),
    "content_type_mismatch",
    409,
  ),
];

const table = [...smuggling, ...repeated, ...numbers, ...values, ...paths, ...bodies];

describe("what no honest client sends", () => {
  let server: NodeServer;
  let good: GoodClient;
  const faults: unknown[] = [];

  beforeAll(async () => {
    server = await startNodeServer({
      store: "memory",
      port: 0,
      bodyBytesMax: BODY_MAX,
      onFault: (error) => faults.push(error),
    });
    await call("PUT", server.url, TARGET, { headers: { "content-type": "application/json" } });
    good = new GoodClient(server.url);
    await good.start();
  });

  afterAll(async () => {
    await good.stop();
    await server.stop();
  });

  test.each(table)("$name is refused with $status $code", async ({ bytes, status, code }) => {
    const before = await call("GET", server.url, "/_hapax/streams?prefix=/v1/");
    const { result: answer } = await good.during(() => sendRaw(server.url, bytes));
    expect(answer?.status).toBe(status);
    expect(answer?.headers["content-type"]).toBe("application/problem+json");
    expect(answer?.headers["x-content-type-options"]).toBe("nosniff");
    expect(answer?.headers["cache-control"]).toBe("no-store");
    const problem = members(answer ?? { text: "{}" });
    expect(problem.get("code")).toBe(code);
    expect(problem.get("status")).toBe(status);
    expect(problem.get("help")).toEqual(expect.any(String));
    // What was sent must not come back as control characters: it would reach logs and terminals.
    expect(answer?.text).not.toMatch(/\p{Cc}/u);
    const after = await call("GET", server.url, "/_hapax/streams?prefix=/v1/");
    expect(after.text).toBe(before.text);
  });

  test("the table holds at least the fourteen shapes of smuggling and every single header", () => {
    expect(smuggling.length).toBeGreaterThan(14);
    expect(Object.keys(TWICE).toSorted()).toEqual(SINGLE_HEADERS.toSorted());
  });

  test("none of it was a fault of the server", () => {
    expect(faults).toEqual([]);
  });

  test("the good client's stream holds each of its appends once and in order", async () => {
    await good.stop();
    let offset = "-1";
    const stored: unknown[] = [];
    for (let isUpToDate = false; !isUpToDate;) {
      const page = await call("GET", server.url, `/good?offset=${offset}`);
      stored.push(...Array.from(JSON.parse(page.text) as Iterable<unknown>));
      offset = String(page.headers["stream-next-offset"]);
      isUpToDate = page.headers["stream-up-to-date"] === "true";
    }
    expect(stored).toEqual(Array.from({ length: good.acked }, (_, index) => index));
  });
});

describe("what looks like abuse and is not", () => {
  let server: NodeServer;

  beforeAll(async () => {
    server = await startNodeServer({ store: "memory", port: 0 });
  });

  afterAll(async () => {
    await server.stop();
  });

  test("OPTIONS * is answered", async () => {
    expect((await sendRaw(server.url, raw("OPTIONS *")))?.status).toBe(204);
  });

  test("a client of HTTP/1.0 without a Host is served, and the connection ends", async () => {
    const socket = await openSocket(server.url);
    const received = untilClosed(socket);
    socket.write("PUT /v1/stream/old HTTP/1.0\r\n\r\n");
    expect(parseAnswer(await received, true)?.status).toBe(201);
  });

  test("a trailer is never taken for a header", async () => {
    await call("PUT", server.url, "/trailer", { headers: { "content-type": "text/plain" } });
    const head = "POST /trailer HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n";
    const bytes = `${head}Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nStream-Closed: true\r\n\r\n`;
    const answer = await sendRaw(server.url, bytes);
    expect([answer?.status, answer?.headers["stream-closed"]]).toEqual([204, undefined]);
  });

  test("an array of a million elements is stored exactly", async () => {
    const type = { "content-type": "application/json" };
    await call("PUT", server.url, "/million", { headers: type });
    const body = `[${Array.from({ length: 1e6 }, (_, index) => index).join(",")}]`;
    const answer = await call("POST", server.url, "/million", { headers: type, body });
    expect(answer.status).toBe(204);
    expect((await call("GET", server.url, "/million")).text).toBe(body);
  });

  test("members named __proto__ and constructor are data", async () => {
    const body = '[{"__proto__":{"polluted":1},"constructor":{"prototype":{"polluted":1}}}]';
    const type = { "content-type": "application/json" };
    await call("PUT", server.url, "/proto", { headers: type, body });
    expect((await call("GET", server.url, "/proto")).text).toBe(body);
    expect(Object.hasOwn(Object.prototype, "polluted")).toBe(false);
  });

  test("a name is decoded once, and its spelling in Unicode and its case count", async () => {
    const names = [
      "/n/%2565",
      "/n/%25%36%35",
      "/n/%C3%A9",
      "/n/e%CC%81",
      "/n/E%CC%81",
      "/n/...",
      "/n/%e2%80%ae",
    ];
    for (const [index, name] of names.entries()) {
      const answer = await call("PUT", server.url, name, { body: String(index) });
      // The first two are two spellings of `%65`: the second finds the first and stores nothing.
      expect([name, answer.status]).toEqual([name, index === 1 ? 200 : 201]);
    }
    const read = await Promise.all(names.map((name) => call("GET", server.url, name)));
    expect(read.map(({ text }) => text)).toEqual(["0", "0", "2", "3", "4", "5", "6"]);
  });
});

describe("sockets that take their time", () => {
  const headersTimeoutMs = 400;
  const requestTimeoutMs = 900;
  const SOCKETS = 100;
  const GOOD_MS_MAX = 2000; // Single milliseconds are usual; a busy machine may need more.
  const LARGE = 8 * 1024 * 1024; // Far more than the buffers of a socket hold.
  let server: NodeServer;
  let good: GoodClient;

  beforeAll(async () => {
    server = await startNodeServer({
      store: "memory",
      port: 0,
      headersTimeoutMs,
      requestTimeoutMs,
      keepAliveTimeoutMs: 300,
      readerStallMs: 500,
    });
    const type = { "content-type": "application/octet-stream" };
    await call("PUT", server.url, TARGET, { headers: type, body: new Uint8Array(LARGE) });
    good = new GoodClient(server.url);
    await good.start();
  });

  afterAll(async () => {
    await good.stop();
    await server.stop();
  });

  /** Sends `first`, then `drip` again and again, and answers what came back when it was cut. */
  async function drip(first: string, more: string): Promise<Buffer> {
    const socket = await openSocket(server.url);
    const received = untilClosed(socket);
    socket.write(first);
    const timer = setInterval(() => {
      if (socket.writable) socket.write(more);
    }, 50);
    try {
      return await received;
    } finally {
      clearInterval(timer);
    }
  }

  const post408 = `POST ${TARGET} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\n`;

  test.each([
    ["a header block that never ends", `GET ${TARGET} HTTP/1.1\r\n`, "X: y\r\n"],
    ["a request line that never ends", "GET /", "a"],
    ["a body that trickles", `${post408}Content-Length: 100000\r\n\r\n`, "x"],
    ["chunks that trickle", `${post408}Transfer-Encoding: chunked\r\n\r\n`, "1\r\nx\r\n"],
    ["a body that never comes", `${post408}Content-Length: 5\r\n\r\n`, ""],
    ["nothing at all", "", ""],
  ])("%s is cut with 408, and stores nothing", async (_name, first, more) => {
    const before = (await call("HEAD", server.url, TARGET)).headers["stream-next-offset"];
    const { result, acks } = await good.during(() =>
      Promise.all(Array.from({ length: SOCKETS }, () => drip(first, more))),
    );
    for (const received of result) {
      const answer = parseAnswer(received, true);
      expect(answer?.status).toBe(408);
      expect(members(answer ?? { text: "{}" }).get("code")).toBe("request_timeout");
    }
    expect(acks).toBeGreaterThan(20);
    expect(good.worstMs).toBeLessThan(GOOD_MS_MAX);
    const after = (await call("HEAD", server.url, TARGET)).headers["stream-next-offset"];
    expect(after).toBe(before);
  });

  test("a client that still sends when its request is cut reads its 408 all the same", async () => {
    const first = `${post408}Transfer-Encoding: chunked\r\n\r\n`;
    const [late, prompt] = [await openSocket(server.url), await openSocket(server.url)];
    late.pause();
    const sending = setInterval(() => {
      for (const socket of [late, prompt]) if (socket.writable) socket.write("1\r\nx\r\n");
    }, 20);
    for (const socket of [late, prompt]) socket.write(first);
    await untilClosed(prompt);
    // Both are cut at the same look. What comes now must not reset the connection.
    await new Promise((resolve) => setTimeout(resolve, 200));
    const received = untilClosed(late);
    late.resume();
    expect(parseAnswer(await received, true)?.status).toBe(408);
    clearInterval(sending);
  });

  test("a socket that is idle after its answer is closed", async () => {
    const { result } = await good.during(() =>
      drip(`HEAD ${TARGET} HTTP/1.1\r\nHost: localhost\r\n\r\n`, ""),
    );
    expect(parseAnswer(result, true)?.status).toBe(200);
  });

  test("a socket that is idle after a large answer is closed as well", async () => {
    const { result } = await good.during(() =>
      drip(`GET ${TARGET} HTTP/1.1\r\nHost: localhost\r\n\r\n`, ""),
    );
    expect(parseAnswer(result, true)?.body.length).toBe(LARGE);
  });

  /** Asks for many large answers, reads nothing, and waits to be cut. */
  async function askAndNotRead(): Promise<void> {
    const socket: Socket = await openSocket(server.url);
    socket.pause();
    const ask = `GET ${TARGET} HTTP/1.1\r\nHost: localhost\r\n\r\n`;
    socket.write(ask.repeat(40));
    await new Promise<void>((resolve) => {
      socket.once("close", () => {
        resolve();
      });
      // Only a write shows that the other side has gone while nothing is read.
      const timer = setInterval(() => socket.write("\r\n"), 50);
      socket.once("close", () => {
        clearInterval(timer);
      });
    });
  }

  test("a client that asks and does not read its answers is cut", async () => {
    const { acks } = await good.during(() =>
      Promise.all(Array.from({ length: 10 }, () => askAndNotRead())),
    );
    expect(acks).toBeGreaterThan(20);
  });

  test("a live reader that does not take its last bytes is cut after the end of its time", async () => {
    const short = await startNodeServer({
      store: "memory",
      port: 0,
      sseSecondsMax: 1,
      readerStallMs: 300,
      readerBufferBytes: 2 * LARGE, // So large that it never counts as stalled.
    });
    await call("PUT", short.url, "/a", { body: new Uint8Array(LARGE) });
    const socket = await openSocket(short.url);
    socket.pause();
    socket.write("GET /a?offset=-1&live=sse HTTP/1.1\r\nHost: localhost\r\n\r\n");
    await new Promise<void>((resolve) => {
      const timer = setInterval(() => socket.write("\r\n"), 50);
      socket.once("close", () => {
        clearInterval(timer);
        resolve();
      });
    });
    expect(short.server.engine.liveReaders).toBe(0);
    await short.stop();
  });

  test("a live reader that is slow but takes its bytes is not cut, however long an event takes", async () => {
    const patient = await startNodeServer({
      store: "memory",
      port: 0,
      readerStallMs: 1000,
      readerBufferBytes: 1024,
    });
    const headers = { "content-type": "text/plain" };
    await call("PUT", patient.url, "/a", { headers, body: "x".repeat(LARGE) });
    const socket = await openSocket(patient.url);
    socket.write("GET /a?offset=-1&live=sse HTTP/1.1\r\nHost: localhost\r\n\r\n");
    const before = performance.now();
    const last = await new Promise<string>((resolve) => {
      let end = "";
      socket.on("readable", () => undefined); // Nothing is read but by the timer below.
      const timer = setInterval(() => {
        const piece: unknown = socket.read();
        if (piece instanceof Buffer) end = (end + piece.toString("latin1")).slice(-200);
        if (!socket.readableEnded && !end.includes("upToDate")) return;
        clearInterval(timer);
        resolve(end);
      }, 30);
    });
    expect(last).toContain('"upToDate":true');
    expect(performance.now() - before).toBeGreaterThan(2500);
    socket.destroy();
    await patient.stop();
  });

  test("connections beyond the limit are dropped, and those within it are served", async () => {
    const small = await startNodeServer({ store: "memory", port: 0, connectionsMax: 2 });
    const [one, two] = [await openSocket(small.url), await openSocket(small.url)];
    const third = await openSocket(small.url);
    await untilClosed(third);
    two.destroy();
    one.write(raw("PUT /v1/stream/a"));
    const answer = await new Promise<Buffer>((resolve) => {
      one.once("data", resolve);
    });
    expect(parseAnswer(answer, true)?.status).toBe(201);
    one.destroy();
    await small.stop();
  });
});
