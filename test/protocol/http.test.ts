// The protocol over real sockets, beyond what the published suite looks at: one group for each section.
import { Agent, request } from "node:http";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { LIMITS } from "../../src/protocol/all-limits.ts";
import { type NodeServer, startNodeServer } from "../../src/streams/runtimes/node.ts";
import { openMemoryStore } from "../../src/streams/stores/memory.ts";
import {
  call,
  type CallOptions,
  controlsOf,
  eventually,
  type HttpAnswer,
  members,
  openSse,
  openSocket,
  parseAnswer,
  sendRaw,
  untilClosed,
} from "./raw-http.ts";

const JSON_TYPE = { "content-type": "application/json" };
const TEXT = { "content-type": "text/plain" };
const ZERO = "0000000000000000_0000000000000000";
const LONG_POLL_MS = 300;

let server: NodeServer;
let paths = 0;

beforeAll(async () => {
  server = await startNodeServer({ store: "memory", port: 0, longPollMs: LONG_POLL_MS });
});

afterAll(async () => {
  await server.stop();
});

const put = (path: string, options?: CallOptions): Promise<HttpAnswer> =>
  call("PUT", server.url, path, options);
const post = (path: string, options?: CallOptions): Promise<HttpAnswer> =>
  call("POST", server.url, path, options);
const read = (path: string, options?: CallOptions): Promise<HttpAnswer> =>
  call("GET", server.url, path, options);
const head = (path: string): Promise<HttpAnswer> => call("HEAD", server.url, path);
const remove = (path: string): Promise<HttpAnswer> => call("DELETE", server.url, path);

const nextOffset = (answer: HttpAnswer): string => String(answer.headers["stream-next-offset"]);
const codeOf = (answer: HttpAnswer): unknown => members(answer).get("code");

async function fresh(headers: Record<string, string> = TEXT, body?: string): Promise<string> {
  paths += 1;
  const path = `/v1/stream/http/${paths}`;
  const answer = await put(path, body === undefined ? { headers } : { headers, body });
  expect(answer.status).toBe(201);
  return path;
}

function producer(id: string, epoch: number, sequence: number): Record<string, string> {
  return { "producer-id": id, "producer-epoch": String(epoch), "producer-seq": String(sequence) };
}

// PROTOCOL.md §1
describe("overview", () => {
  test("an acked append is seen by the very next read", async () => {
    const path = await fresh();
    for (let index = 0; index < 50; index += 1) {
      const tail = nextOffset(await post(path, { headers: TEXT, body: "x" }));
      expect((await read(path)).text).toBe("x".repeat(index + 1));
      expect(nextOffset(await head(path))).toBe(tail);
    }
  });

  test("pipelined appends are stored in the order in which they were sent", async () => {
    const path = await fresh(JSON_TYPE);
    const socket = await openSocket(server.url);
    const received = untilClosed(socket);
    const requests = Array.from({ length: 50 }, (_, index) => {
      const body = String(index);
      const last = index === 49 ? "Connection: close\r\n" : "";
      return `POST ${path} HTTP/1.1\r\nHost: localhost\r\n${last}Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
    });
    socket.write(requests.join(""));
    expect((await received).toString().match(/HTTP\/1\.1 204/g)?.length).toBe(50);
    const expected = Array.from({ length: 50 }, (_, index) => index);
    expect(JSON.parse((await read(path)).text)).toEqual(expected);
  });
});

// PROTOCOL.md §2
describe("paths", () => {
  test("the same name spelled with escapes is the same stream", async () => {
    await put("/v1/stream/sp%61m", { headers: TEXT, body: "eggs" });
    expect((await read("/v1/stream/spam")).text).toBe("eggs");
  });

  test("reserved routes are no streams, and say so", async () => {
    for (const path of ["/_hapax/other", "/v1/stream/__ds/other", "/_test/other"]) {
      const answer = await put(path);
      expect([path, answer.status]).toEqual([path, 404]);
      expect(answer.headers["content-type"]).toMatch(/json/);
    }
  });

  test("a path takes the methods of the protocol, and others are 405 with Allow", async () => {
    const path = await fresh();
    const answer = await call("PATCH", server.url, path);
    expect([answer.status, codeOf(answer)]).toEqual([405, "method_not_allowed"]);
    expect(answer.headers.allow).toBe("GET, POST, PUT, DELETE, HEAD, OPTIONS");
  });
});

// PROTOCOL.md §3
describe("creation", () => {
  test("a repeated creation is 200 and appends nothing, and another configuration is 409", async () => {
    const path = await fresh(JSON_TYPE, "[1,2]");
    const again = await put(path, { headers: JSON_TYPE, body: "[3]" });
    expect([again.status, again.headers.location]).toEqual([200, undefined]);
    expect((await read(path)).text).toBe("[1,2]");
    const other = await put(path, { headers: TEXT });
    expect([other.status, codeOf(other)]).toEqual([409, "stream_exists"]);
  });

  test("a media type is compared without case and parameters", async () => {
    const path = await fresh({ "content-type": "text/plain; charset=utf-8" });
    expect((await put(path, { headers: { "content-type": "TEXT/Plain" } })).status).toBe(200);
    const headers = { "content-type": "Text/PLAIN;q=1" };
    expect((await post(path, { headers, body: "a" })).status).toBe(204);
    expect((await read(path)).headers["content-type"]).toBe("text/plain; charset=utf-8");
  });

  test("a stream can be created closed, with all that it will ever hold", async () => {
    const path = await fresh({ ...TEXT, "stream-closed": "TRUE" }, "all");
    const answer = await read(path);
    expect([answer.text, answer.headers["stream-closed"]]).toEqual(["all", "true"]);
    expect(codeOf(await post(path, { headers: TEXT, body: "more" }))).toBe("stream_closed");
  });

  test("Location names the host that the client asked, or the public URL", async () => {
    const bytes = "PUT /v1/stream/located HTTP/1.1\r\nHost: example.localhost:1\r\n\r\n";
    const answer = await sendRaw(server.url, bytes);
    expect(answer?.headers.location).toBe("http://example.localhost:1/v1/stream/located");
    const published = await startNodeServer({
      store: "memory",
      port: 0,
      publicUrl: "https://public.test/base/",
    });
    const located = await call("PUT", published.url, "/a");
    expect(located.headers.location).toBe("https://public.test/base/a");
    await published.stop();
  });
});

// PROTOCOL.md §4
describe("appends", () => {
  test("Stream-Closed closes by the word true in any case, and by nothing else", async () => {
    for (const [value, isClosed] of [
      ["TRUE", true],
      ["True", true],
      ["1", false],
      ["yes", false],
    ] as const) {
      const path = await fresh();
      await post(path, { headers: { ...TEXT, "stream-closed": value }, body: "a" });
      expect([value, (await head(path)).headers["stream-closed"] === "true"]).toEqual([
        value,
        isClosed,
      ]);
    }
  });

  test("a partial set of producer headers is refused and stores nothing", async () => {
    const path = await fresh();
    const whole = Object.entries(producer("p", 0, 0));
    for (let mask = 1; mask < 7; mask += 1) {
      const part = whole.filter((_, index) => (mask & (1 << index)) !== 0);
      const answer = await post(path, {
        headers: { ...TEXT, ...Object.fromEntries(part) },
        body: "a",
      });
      expect([answer.status, codeOf(answer)]).toEqual([400, "invalid_request"]);
    }
    expect((await read(path)).text).toBe("");
  });

  test("JSON is stored as it was sent", async () => {
    const path = await fresh(JSON_TYPE);
    const body = '[ 1.0 , 12345678901234567890,1e400 , {"a":1,"a":2}, "\\u0041" ]';
    await post(path, { headers: JSON_TYPE, body });
    expect((await read(path)).text).toBe(
      '[1.0,12345678901234567890,1e400,{"a":1,"a":2},"\\u0041"]',
    );
  });

  test("closed comes before content type, content type before producer, producer before Stream-Seq", async () => {
    const path = await fresh();
    await post(path, {
      headers: { ...TEXT, "stream-seq": "5", ...producer("p", 0, 0) },
      body: "a",
    });
    const wrong = { ...JSON_TYPE, "stream-seq": "1", ...producer("p", 0, 9) };
    expect(codeOf(await post(path, { headers: wrong, body: "1" }))).toBe("content_type_mismatch");
    const gap = { ...TEXT, "stream-seq": "1", ...producer("p", 0, 9) };
    expect(codeOf(await post(path, { headers: gap, body: "1" }))).toBe("producer_gap");
    const late = { ...TEXT, "stream-seq": "1", ...producer("p", 0, 1) };
    expect(codeOf(await post(path, { headers: late, body: "1" }))).toBe("sequence_regression");
    const retry = { ...TEXT, "stream-seq": "5", ...producer("p", 0, 0) };
    expect((await post(path, { headers: retry, body: "a" })).status).toBe(204);
    await post(path, { headers: { "stream-closed": "true" } });
    expect(codeOf(await post(path, { headers: wrong, body: "1" }))).toBe("stream_closed");
    expect((await read(path)).text).toBe("a");
  });

  test("a refusal of a closed stream carries its final offset", async () => {
    const path = await fresh(TEXT, "abc");
    await post(path, { headers: { "stream-closed": "true" } });
    const answer = await post(path, { headers: TEXT, body: "d" });
    expect([answer.status, answer.headers["stream-closed"]]).toEqual([409, "true"]);
    expect(nextOffset(answer)).toBe("0000000000000000_0000000000000003");
  });
});

// PROTOCOL.md §5
describe("idempotent producers", () => {
  test("a duplicate is 204 with the original's Stream-Next-Offset and the highest sequence, with any body", async () => {
    const path = await fresh();
    for (const sequence of [0, 1, 2]) {
      const headers = { ...TEXT, ...producer("p", 0, sequence) };
      expect((await post(path, { headers, body: String(sequence) })).status).toBe(200);
    }
    const again = await post(path, { headers: { ...TEXT, ...producer("p", 0, 0) }, body: "else" });
    expect([again.status, again.headers["producer-seq"], nextOffset(again)]).toEqual([
      204,
      "2",
      "0000000000000000_0000000000000001",
    ]);
    expect((await read(path)).text).toBe("012");
  });

  test("a gap names what is expected, and a fenced writer learns the epoch that fenced it", async () => {
    const path = await fresh();
    await post(path, { headers: { ...TEXT, ...producer("p", 4, 0) }, body: "a" });
    const gap = await post(path, { headers: { ...TEXT, ...producer("p", 4, 7) }, body: "b" });
    expect([
      gap.status,
      gap.headers["producer-expected-seq"],
      gap.headers["producer-received-seq"],
    ]).toEqual([409, "1", "7"]);
    expect([members(gap).get("expected"), members(gap).get("received")]).toEqual([1, 7]);
    const fenced = await post(path, { headers: { ...TEXT, ...producer("p", 3, 0) }, body: "b" });
    expect([fenced.status, fenced.headers["producer-epoch"]]).toEqual([403, "4"]);
    const start = await post(path, { headers: { ...TEXT, ...producer("p", 5, 1) }, body: "b" });
    expect([start.status, codeOf(start)]).toEqual([400, "epoch_start"]);
  });

  test("the largest epoch and sequence are numbers like any other", async () => {
    const path = await fresh();
    const largest = Number.MAX_SAFE_INTEGER;
    const first = await post(path, {
      headers: { ...TEXT, ...producer("p", largest, 0) },
      body: "a",
    });
    expect([first.status, first.headers["producer-epoch"]]).toEqual([200, String(largest)]);
    const far = await post(path, {
      headers: { ...TEXT, ...producer("p", largest, largest) },
      body: "a",
    });
    expect([far.status, far.headers["producer-received-seq"]]).toEqual([409, String(largest)]);
  });

  test("fifty copies of one append at once are stored once", async () => {
    const path = await fresh();
    const agent = new Agent({ keepAlive: true });
    const headers = { ...TEXT, ...producer("p", 0, 0) };
    const answers = await Promise.all(
      Array.from({ length: 50 }, () => post(path, { headers, body: "once", agent })),
    );
    expect(answers.filter(({ status }) => status === 200).length).toBe(1);
    expect(answers.filter(({ status }) => status === 204).length).toBe(49);
    expect(new Set(answers.map(nextOffset)).size).toBe(1);
    expect((await read(path)).text).toBe("once");
    agent.destroy();
  });
});

// PROTOCOL.md §6
describe("deletion", () => {
  test("a deleted stream is gone, and a new one at its path has nothing of it", async () => {
    const path = await fresh(TEXT, "old content");
    await post(path, { headers: { ...TEXT, ...producer("p", 0, 0) }, body: "old" });
    const old = await read(path);
    expect((await remove(path)).status).toBe(204);
    expect(codeOf(await read(path))).toBe("stream_not_found");
    expect((await remove(path)).status).toBe(404);
    await put(path, { headers: TEXT });
    const first = await post(path, { headers: { ...TEXT, ...producer("p", 0, 0) }, body: "new" });
    expect(first.status).toBe(200);
    const stale = await read(path, { headers: { "if-none-match": String(old.headers.etag) } });
    expect([stale.status, stale.text]).toEqual([200, "new"]);
    const beyond = await read(`${path}?offset=${nextOffset(old)}`);
    expect([beyond.status, codeOf(beyond)]).toEqual([410, "offset_beyond_tail"]);
  });

  test("readers that wait when the stream is deleted are answered at once", async () => {
    const path = await fresh();
    const poll = read(`${path}?offset=${ZERO}&live=long-poll`);
    const live = await openSse(server.url, `${path}?offset=-1&live=sse`);
    await eventually(() => server.server.engine.liveReaders === 2);
    await remove(path);
    expect((await poll).status).toBe(404);
    expect(await live.ended).toBe("complete");
  });
});

// PROTOCOL.md §7
describe("reading", () => {
  test("pages are followed to the end with exact content, and only the last is up to date and closed", async () => {
    const path = await fresh();
    const part = LIMITS.pageBytesMax / 4 + 7;
    const parts = Array.from({ length: 11 }, (_, index) =>
      String.fromCharCode(97 + index).repeat(part),
    );
    for (const body of parts) await post(path, { headers: TEXT, body });
    await post(path, { headers: { "stream-closed": "true" } });
    const pages: HttpAnswer[] = [];
    for (let offset = "-1"; pages.at(-1)?.headers["stream-up-to-date"] === undefined;) {
      const page = await read(`${path}?offset=${offset}`);
      pages.push(page);
      offset = nextOffset(page);
    }
    expect(pages.length).toBeGreaterThan(2);
    expect(pages.map(({ text }) => text).join("")).toBe(parts.join(""));
    const last = pages.pop();
    expect([last?.headers["stream-up-to-date"], last?.headers["stream-closed"]]).toEqual([
      "true",
      "true",
    ]);
    for (const page of pages) {
      expect([page.headers["stream-up-to-date"], page.headers["stream-closed"]]).toEqual([
        undefined,
        undefined,
      ]);
      expect(page.headers["cache-control"]).toBe("public, max-age=60, stale-while-revalidate=300");
    }
    expect(last?.headers["cache-control"]).toBe("no-cache");
  });

  test("an offset beyond the tail is 410 in every mode, and no reader is moved back", async () => {
    const path = await fresh(TEXT, "abc");
    for (const offset of [
      "0000000000000000_0000000000000005",
      "0000000000000001_0000000000000000",
      "9999999999999999_9999999999999999",
    ]) {
      for (const mode of ["", "&live=long-poll", "&live=sse"]) {
        const answer = await read(`${path}?offset=${offset}${mode}`);
        expect([mode, answer.status, codeOf(answer)]).toEqual([mode, 410, "offset_beyond_tail"]);
      }
    }
  });

  test("an offset inside an append is answered with the whole append", async () => {
    const path = await fresh(JSON_TYPE);
    const first = nextOffset(await post(path, { headers: JSON_TYPE, body: "[1,2]" }));
    await post(path, { headers: JSON_TYPE, body: "[3,4]" });
    const inside = `0000000000000000_${String(Number(first.slice(17)) + 1).padStart(16, "0")}`;
    expect((await read(`${path}?offset=${inside}`)).text).toBe("[3,4]");
    expect((await read(`${path}?offset=0000000000000000_0000000000000001`)).text).toBe("[1,2,3,4]");
  });

  test("unknown query parameters are ignored, in any number and however written", async () => {
    const path = await fresh(TEXT, "abc");
    const answer = await read(`${path}?a&a&b=%zz&offset=-1&Offset=now&%6fffset=now&=&&c==`);
    expect([answer.status, answer.text]).toEqual([200, "abc"]);
  });

  test("HEAD tells what the stream is, is never stored, and has no body", async () => {
    const path = await fresh({ ...JSON_TYPE, "stream-ttl": "3600" }, "[1]");
    const answer = await head(path);
    expect([answer.status, answer.text]).toEqual([200, ""]);
    expect(answer.headers).toMatchObject({
      "content-type": "application/json",
      "stream-next-offset": "0000000000000000_0000000000000002",
      "stream-ttl": "3600",
      "cache-control": "no-store",
    });
    expect((await head("/v1/stream/none")).status).toBe(404);
  });

  test("an ETag names a page: it stays while the page does and changes with it", async () => {
    const path = await fresh(TEXT, "a");
    const tag = async (): Promise<string> => String((await read(path)).headers.etag);
    const first = await tag();
    expect(await tag()).toBe(first);
    for (const value of [first, `W/${first}`, `"x", ${first}`, "*"]) {
      const same = await read(path, { headers: { "if-none-match": value } });
      expect([value, same.status, same.text, same.headers.etag]).toEqual([value, 304, "", first]);
      expect(nextOffset(same)).toBe("0000000000000000_0000000000000001");
    }
    await post(path, { headers: TEXT, body: "b" });
    const second = await tag();
    await post(path, { headers: { "stream-closed": "true" } });
    expect(new Set([first, second, await tag()]).size).toBe(3);
    const changed = await read(path, { headers: { "if-none-match": second } });
    expect([changed.status, changed.text]).toEqual([200, "ab"]);
  });

  test("offset=now is the tail without data, without a tag, and never stored", async () => {
    const path = await fresh(JSON_TYPE, "[1]");
    const answer = await read(`${path}?offset=now`);
    expect([answer.text, answer.headers.etag, answer.headers["cache-control"]]).toEqual([
      "[]",
      undefined,
      "no-store",
    ]);
    expect(answer.headers["stream-up-to-date"]).toBe("true");
  });

  test("a long-poll waits its time and says where the tail is, with a cursor that moves on", async () => {
    const path = await fresh();
    const before = performance.now();
    const first = await read(`${path}?offset=${ZERO}&live=long-poll`);
    expect(performance.now() - before).toBeGreaterThan(LONG_POLL_MS * 0.9);
    expect([first.status, nextOffset(first), first.headers["stream-up-to-date"]]).toEqual([
      204,
      ZERO,
      "true",
    ]);
    const cursor = String(first.headers["stream-cursor"]);
    const second = await read(`${path}?offset=${ZERO}&live=long-poll&cursor=${cursor}`);
    expect(Number(second.headers["stream-cursor"])).toBeGreaterThan(Number(cursor));
  });

  test("a long-poll is woken by an append, by a close, and by both at once", async () => {
    for (const [body, closes] of [
      ["a", false],
      ["", true],
      ["a", true],
    ] as const) {
      const path = await fresh();
      const poll = read(`${path}?offset=now&live=long-poll`);
      await eventually(() => server.server.engine.liveReaders === 1);
      const headers = closes ? { ...TEXT, "stream-closed": "true" } : TEXT;
      await post(path, { headers, body });
      const answer = await poll;
      expect([answer.status, answer.text]).toEqual([body === "" ? 204 : 200, body]);
      expect(answer.headers["stream-closed"] === "true").toBe(closes);
    }
  });

  test("a client that goes away while it waits frees its listener at once", async () => {
    const slow = await startNodeServer({ store: "memory", port: 0, longPollMs: 600_000 });
    await call("PUT", slow.url, "/a", { headers: TEXT });
    const abort = new AbortController();
    const { signal } = abort;
    const polls = Array.from({ length: 5 }, () =>
      call("GET", slow.url, `/a?offset=${ZERO}&live=long-poll`, {
        signal,
        agent: new Agent(),
      }).catch(() => "aborted"),
    );
    const live = await openSse(slow.url, "/a?offset=-1&live=sse");
    await eventually(() => slow.server.engine.liveReaders === 6);
    abort.abort();
    live.close();
    await eventually(() => slow.server.engine.liveReaders === 0);
    expect(await Promise.all(polls)).toEqual(polls.map(() => "aborted"));
    await slow.stop();
  });

  test("SSE answers with the headers of a stream that is not buffered", async () => {
    const live = await openSse(server.url, `${await fresh(TEXT, "a")}?offset=-1&live=sse`);
    await live.until((client) => client.events().length === 2);
    expect(live.headers).toMatchObject({
      "content-type": "text/event-stream",
      "cache-control": "no-cache",
      "x-accel-buffering": "no",
      "x-content-type-options": "nosniff",
    });
    expect(live.headers["content-length"]).toBeUndefined();
    live.close();
  });

  test("an SSE connection is recycled, and the next one goes on where it ended", async () => {
    const quick = await startNodeServer({ store: "memory", port: 0, sseSecondsMax: 1 });
    await call("PUT", quick.url, "/a", { headers: TEXT, body: "one" });
    const first = await openSse(quick.url, "/a?offset=-1&live=sse");
    expect(await first.ended).toBe("complete");
    const [control] = controlsOf(first.events()).slice(-1);
    expect([control?.upToDate, control?.streamClosed]).toEqual([true, undefined]);
    await call("POST", quick.url, "/a", { headers: TEXT, body: "two" });
    const query = `offset=${control?.streamNextOffset}&cursor=${control?.streamCursor}`;
    const second = await openSse(quick.url, `/a?${query}&live=sse`);
    await second.until((client) => client.events().length === 2);
    expect(second.events()[0]).toEqual({ event: "data", data: "two" });
    second.close();
    await quick.stop();
  });
});

// PROTOCOL.md §8
describe("forks", () => {
  test("a fork has its source's past, its own future, and no producer state", async () => {
    const source = await fresh();
    const middle = nextOffset(
      await post(source, { headers: { ...TEXT, ...producer("p", 0, 0) }, body: "abc" }),
    );
    await post(source, { headers: TEXT, body: "def" });
    const fork = await fresh({ "stream-forked-from": source, "stream-fork-offset": middle });
    expect((await read(fork)).headers["content-type"]).toBe("text/plain");
    const first = await post(fork, { headers: { ...TEXT, ...producer("p", 0, 0) }, body: "xyz" });
    expect(first.status).toBe(200);
    await post(source, { headers: TEXT, body: "ghi" });
    expect((await read(fork)).text).toBe("abcxyz");
    expect((await read(source)).text).toBe("abcdefghi");
  });

  test("a deleted source answers 410 while a fork lives, its path 409, and then it is gone", async () => {
    const source = await fresh(TEXT, "abc");
    const fork = await fresh({ "stream-forked-from": source });
    expect((await remove(source)).status).toBe(204);
    for (const answer of [
      await read(source),
      await remove(source),
      await post(source, { headers: TEXT, body: "a" }),
    ]) {
      expect([answer.status, codeOf(answer)]).toEqual([410, "stream_gone"]);
    }
    expect(codeOf(await put(source, { headers: TEXT }))).toBe("stream_in_use");
    expect((await read(fork)).text).toBe("abc");
    await remove(fork);
    expect((await read(source)).status).toBe(404);
  });
});

// PROTOCOL.md §9
describe("expiry", () => {
  test("a stream ends at its time, and can be created anew", async () => {
    const at = new Date(Date.now() + 300).toISOString();
    const path = await fresh({ ...TEXT, "stream-expires-at": at }, "old");
    expect((await head(path)).headers["stream-expires-at"]).toBe(at);
    while ((await head(path)).status !== 404);
    expect(Date.now()).toBeGreaterThanOrEqual(Date.parse(at));
    expect((await put(path, { headers: TEXT })).status).toBe(201);
    expect((await read(path)).text).toBe("");
  });

  test("a live reader keeps a stream with a sliding expiry alive", async () => {
    const path = await fresh({ ...TEXT, "stream-ttl": "1" });
    const live = await openSse(server.url, `${path}?offset=-1&live=sse`);
    const until = performance.now() + 1500;
    while (performance.now() < until) expect((await head(path)).status).toBe(200);
    live.close();
    while ((await head(path)).status !== 404);
  });
});

// PROTOCOL.md §10
describe("refusals", () => {
  test("every refusal is a problem document with a code, what to do, and no-store", async () => {
    const answer = await read("/v1/stream/none");
    expect(answer.headers).toMatchObject({
      "content-type": "application/problem+json",
      "cache-control": "no-store",
      "x-content-type-options": "nosniff",
    });
    expect(Object.fromEntries(members(answer))).toEqual({
      type: "urn:hapax:error:stream_not_found",
      title: "No such stream",
      status: 404,
      code: "stream_not_found",
      detail: "there is no stream at /v1/stream/none",
      help: "Create it with PUT first.",
      stream: "/v1/stream/none",
    });
  });
});

// PROTOCOL.md §12
describe("our own routes", () => {
  test("the list has pages by prefix, after and limit, in order and without the deleted", async () => {
    const names = ["b", "a", "d", "c", "gone"].map((name) => `/listed/${name}`);
    for (const name of names) await put(name, { headers: TEXT });
    await remove("/listed/gone");
    const listed: unknown[] = [];
    for (let after = ""; ;) {
      const page = await read(`/_hapax/streams?prefix=/listed/&limit=2&after=${after}`);
      const { streams, next } = JSON.parse(page.text) as {
        streams: { path: string }[];
        next?: string;
      };
      listed.push(streams.map(({ path }) => path));
      if (next === undefined) break;
      after = next;
    }
    expect(listed).toEqual([
      ["/listed/a", "/listed/b"],
      ["/listed/c", "/listed/d"],
    ]);
    const [one] = (
      JSON.parse((await read("/_hapax/streams?prefix=/listed/a")).text) as { streams: unknown[] }
    ).streams;
    expect(one).toMatchObject({
      path: "/listed/a",
      contentType: "text/plain",
      nextOffset: ZERO,
      closed: false,
    });
  });

  test.each([
    "limit=0",
    "limit=1001",
    "limit=x",
    "limit=1&limit=2",
    "prefix=%ff",
    "after=a&after=b",
  ])("a list with %s is refused", async (query) => {
    expect((await read(`/_hapax/streams?${query}`)).status).toBe(400);
  });

  test("health tells that the server lives, is ready, and how durable it is", async () => {
    const answer = await read("/_hapax/health");
    expect(JSON.parse(answer.text)).toEqual({
      live: true,
      ready: true,
      writes: "open",
      durability: "memory",
    });
    expect((await call("HEAD", server.url, "/_hapax/health")).status).toBe(200);
    const refused = await post("/_hapax/health");
    expect([refused.status, refused.headers.allow]).toEqual([405, "GET, HEAD, OPTIONS"]);
  });

  test("health tells of a full store, and reads go on", async () => {
    const small = await startNodeServer({ port: 0, store: openMemoryStore({ bytesMax: 4 }) });
    const headers = { "content-type": "text/plain" };
    await call("PUT", small.url, "/full", { headers, body: "1234" });
    const health = await call("GET", small.url, "/_hapax/health");
    expect(health.status).toBe(503);
    expect(JSON.parse(health.text)).toMatchObject({ ready: false, writes: "full" });
    expect((await call("POST", small.url, "/full", { headers, body: "5" })).status).toBe(507);
    expect((await call("GET", small.url, "/full")).text).toBe("1234");
    await small.stop();
  });
});

// PROTOCOL.md §13
describe("hygiene", () => {
  test("a target may be a whole URL, and its host counts instead of Host", async () => {
    const made = await call("PUT", server.url, "http://one.localhost:80/v1/stream/whole", {
      headers: { ...TEXT, host: "two.localhost" },
    });
    expect([made.status, made.headers.location]).toEqual([
      201,
      "http://one.localhost:80/v1/stream/whole",
    ]);
    const appended = await call("POST", server.url, "HTTP://one.localhost/v1/stream/whole?a=b", {
      headers: TEXT,
      body: "x",
    });
    expect(appended.status).toBe(204);
    expect((await read("/v1/stream/whole")).text).toBe("x");
    expect((await call("OPTIONS", server.url, "http://one.localhost")).status).toBe(204);
  });

  test("bytes of no known kind are saved by a browser, not shown", async () => {
    await call("PUT", server.url, "/v1/stream/bytes", { body: "x" });
    const bytes = await call("GET", server.url, "/v1/stream/bytes");
    expect(bytes.headers["content-disposition"]).toBe("attachment");
    const headers = { "content-type": "text/plain" };
    await call("PUT", server.url, "/v1/stream/text", { headers, body: "x" });
    const text = await call("GET", server.url, "/v1/stream/text");
    expect(text.headers["content-disposition"]).toBeUndefined();
  });

  test("a preflight from a browser is allowed everything that the protocol needs", async () => {
    const answer = await call("OPTIONS", server.url, "/v1/stream/any", {
      headers: { origin: "http://localhost:3000", "access-control-request-method": "POST" },
    });
    const origin = answer.headers["access-control-allow-origin"];
    expect([answer.status, origin]).toEqual([204, "http://localhost:3000"]);
    for (const method of ["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS"]) {
      expect(answer.headers["access-control-allow-methods"]).toContain(method);
    }
    const allowed = String(answer.headers["access-control-allow-headers"])
      .toLowerCase()
      .split(", ");
    const needed = [
      "content-type",
      "authorization",
      "if-none-match",
      "if-match",
      "stream-seq",
      "stream-closed",
      "stream-ttl",
      "stream-expires-at",
      "stream-forked-from",
      "stream-fork-offset",
      "stream-fork-sub-offset",
      "producer-id",
      "producer-epoch",
      "producer-seq",
    ];
    expect(needed.filter((name) => !allowed.includes(name))).toEqual([]);
  });

  test("a browser sees every header that the protocol answers with", async () => {
    const path = await fresh({ "content-type": "application/octet-stream" });
    const needed = [
      "stream-next-offset",
      "stream-cursor",
      "stream-up-to-date",
      "stream-closed",
      "producer-epoch",
      "producer-seq",
      "producer-expected-seq",
      "producer-received-seq",
      "etag",
      "content-type",
      "content-encoding",
      "vary",
      "location",
      "stream-sse-data-encoding",
    ];
    for (const answer of [
      await read(path, { headers: { origin: "http://localhost:3000" } }),
      await post(path, { headers: { origin: "http://localhost:3000" } }),
    ]) {
      const exposed = String(answer.headers["access-control-expose-headers"])
        .toLowerCase()
        .split(", ");
      expect(needed.filter((name) => !exposed.includes(name))).toEqual([]);
    }
  });

  test("an answer cannot run as a page of this server", async () => {
    const path = await fresh({ "content-type": "text/html" }, "<script>alert(1)</script>");
    expect((await read(path)).headers).toMatchObject({
      "content-security-policy": "sandbox; default-src 'none'",
      "x-content-type-options": "nosniff",
      "cross-origin-resource-policy": "same-origin",
    });
  });
});

// PROTOCOL.md §13
describe("the end of a server", () => {
  async function within(ms: number, run: () => Promise<unknown>): Promise<void> {
    const before = performance.now();
    await run();
    expect(performance.now() - before).toBeLessThan(ms);
  }

  test("a stop ends live readers and long-polls at once, and idle sockets with them", async () => {
    const ending = await startNodeServer({ store: "memory", port: 0 });
    await call("PUT", ending.url, "/a", { headers: TEXT });
    const agent = new Agent({ keepAlive: true });
    await call("HEAD", ending.url, "/a", { agent });
    const idle = await openSocket(ending.url);
    const live = await openSse(ending.url, "/a?offset=-1&live=sse");
    const pollAgent = new Agent({ keepAlive: true });
    const poll = call("GET", ending.url, `/a?offset=${ZERO}&live=long-poll`, { agent: pollAgent });
    await eventually(() => ending.server.engine.liveReaders === 2);
    // Far less than it would wait for requests that do not end.
    await within(LIMITS.drainMs / 4, () => ending.stop());
    expect(await live.ended).toBe("complete");
    expect([(await poll).status, (await poll).headers.connection]).toEqual([204, "close"]);
    await expect(call("GET", ending.url, "/a", { agent: new Agent() })).rejects.toMatchObject({
      code: "ECONNREFUSED",
    });
    idle.destroy();
    agent.destroy();
    pollAgent.destroy();
  });

  test("a stop lets a running append finish, and what was stored is answered", async () => {
    const ending = await startNodeServer({ store: "memory", port: 0 });
    await call("PUT", ending.url, "/a", { headers: TEXT });
    const live = await openSse(ending.url, "/a?offset=-1&live=sse");
    const { hostname, port } = new URL(ending.url);
    const headers = { ...TEXT, "content-length": 2 };
    const sent = request({ method: "POST", hostname, port, path: "/a", headers });
    const answered = new Promise<number | undefined>((resolve, reject) => {
      sent.on("response", (response) => {
        response.resume();
        resolve(response.statusCode);
      });
      sent.on("error", reject);
    });
    sent.write("a");
    // The server has the request when it has answered one that was sent after it.
    await call("HEAD", ending.url, "/a");
    const stopped = ending.stop();
    expect(await live.ended).toBe("complete");
    sent.end("b");
    expect(await answered).toBe(204);
    await stopped;
  });

  test("a stop waits until an answer that was written is taken", async () => {
    const ending = await startNodeServer({ store: "memory", port: 0 });
    const body = "x".repeat(12 * 1024 * 1024);
    await call("PUT", ending.url, "/large", { headers: TEXT, body });
    const socket = await openSocket(ending.url);
    socket.pause();
    socket.write("GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n");
    await new Promise((resolve) => socket.once("readable", resolve));
    const stopped = ending.stop();
    const received = await untilClosed(socket);
    expect(parseAnswer(received, true)?.body.length).toBe(body.length);
    await stopped;
  });
});
