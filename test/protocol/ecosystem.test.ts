// What programs of the ecosystem see that speak to servers of the public protocol: a browser's own EventSource,
// coming clients, the State protocol, and tests of clients that inject faults. PROTOCOL.md §7, §13.5
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { LIMITS } from "../../src/protocol/limits.ts";
import { type NodeServer, startNodeServer } from "../../src/streams/runtimes/node.ts";
import { openFileStore } from "../../src/streams/stores/file.ts";
import { call, type HttpAnswer, members, openSse } from "./raw-http.ts";

const ZERO = "0000000000000000_0000000000000000";
const JSON_TYPE = { "content-type": "application/json" };
const INJECT = "/_test/inject-error";
let server: NodeServer;
let paths = 0;

beforeAll(async () => {
  server = await startNodeServer({ store: "memory", port: 0, longPollMs: 300, testFaults: true });
});

afterAll(async () => {
  await server.stop();
});

async function freshStream(body?: string, headers: Record<string, string> = {}): Promise<string> {
  paths += 1;
  const path = `/v1/stream/ecosystem/${paths}`;
  const made = await call("PUT", server.url, path, {
    headers: { ...JSON_TYPE, ...headers },
    ...(body === undefined ? {} : { body }),
  });
  expect(made.status).toBe(201);
  return path;
}

function append(path: string, body: string, headers: Record<string, string> = {}) {
  return call("POST", server.url, path, { headers: { ...JSON_TYPE, ...headers }, body });
}

function read(path: string): Promise<HttpAnswer> {
  return call("GET", server.url, path);
}

/** The event stream of an EventSource by the HTML standard: its last event id moves when an event ends. */
interface BrowserEvents {
  readonly data: string[];
  lastEventId: string;
}

function takeEvents(text: string, into: BrowserEvents): void {
  let event = "";
  let data: string[] = [];
  let id: string | undefined;
  const lines = text.split("\n");
  lines.pop();
  for (const line of lines) {
    const colon = line.indexOf(":");
    const field = colon === -1 ? line : line.slice(0, colon);
    const value = colon === -1 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (line === "") {
      if (id !== undefined) into.lastEventId = id;
      if (data.length > 0 && event === "data") into.data.push(data.join("\n"));
      event = "";
      data = [];
      id = undefined;
    } else if (field === "event") event = value;
    else if (field === "data") data.push(value);
    else if (field === "id") id = value;
  }
}

describe("Server-Sent Events", () => {
  test("the answer says in its headers where it begins and at which cursor", async () => {
    const path = await freshStream('["a"]');
    const { headers: tail } = await read(path);
    for (const [offset, begins] of [
      ["-1", ZERO],
      ["now", tail["stream-next-offset"]],
    ] as const) {
      const sse = await openSse(server.url, `${path}?offset=${offset}&live=sse`);
      expect(sse.headers["stream-next-offset"]).toBe(begins);
      expect(sse.headers["stream-cursor"]).toMatch(/^[1-9][0-9]*$/);
      sse.close();
    }
  });

  test("an EventSource that comes back after any byte has every record once", async () => {
    const path = await freshStream();
    for (const record of ["1", "2", "3"]) await append(path, record);
    const recycled = await openSse(server.url, `${path}?offset=-1&live=sse`);
    await recycled.until((client) => client.text().includes("upToDate"));
    await append(path, "4");
    await recycled.until((client) => client.text().includes("data:[4]"));
    const whole = recycled.text();
    recycled.close();
    for (let cut = 0; cut <= whole.length; cut += 7) {
      const seen: BrowserEvents = { data: [], lastEventId: "" };
      takeEvents(whole.slice(0, cut), seen);
      const headers = seen.lastEventId === "" ? {} : { "last-event-id": seen.lastEventId };
      const again = await openSse(server.url, `${path}?offset=-1&live=sse`, headers);
      await again.until((client) => client.text().includes("upToDate"));
      takeEvents(again.text(), seen);
      again.close();
      expect(seen.data.flatMap((data) => JSON.parse(data) as number[])).toEqual([1, 2, 3, 4]);
    }
  });

  test("an EventSource that began at the tail goes on where it began", async () => {
    const path = await freshStream("[1]");
    const first = await openSse(server.url, `${path}?offset=now&live=sse`);
    await first.until((client) => client.text().includes("upToDate"));
    const seen: BrowserEvents = { data: [], lastEventId: "" };
    takeEvents(first.text(), seen);
    first.close();
    await append(path, "2");
    const headers = { "last-event-id": seen.lastEventId };
    const again = await openSse(server.url, `${path}?offset=now&live=sse`, headers);
    await again.until((client) => client.text().includes("upToDate"));
    expect(again.text()).toContain("data:[2]");
    again.close();
  });

  test("an EventSource that comes back to the end of a closed stream is asked to stay away", async () => {
    const path = await freshStream("[1]");
    const closed = await append(path, "[2]", { "stream-closed": "true" });
    const end = String(closed.headers["stream-next-offset"]);
    const back = await call("GET", server.url, `${path}?offset=-1&live=sse`, {
      headers: { "last-event-id": end },
    });
    expect([back.status, back.headers["stream-closed"]]).toEqual([204, "true"]);
    const anew = await read(`${path}?offset=${end}&live=sse`);
    expect([anew.status, anew.text.includes('"streamClosed":true')]).toEqual([200, true]);
  });

  test("a Last-Event-ID that is no offset of this server is refused, and other reads do not look at it", async () => {
    const path = await freshStream("[1]");
    const headers = { "last-event-id": "42" };
    const sse = await call("GET", server.url, `${path}?offset=-1&live=sse`, { headers });
    expect([sse.status, members(sse).get("code")]).toEqual([400, "invalid_request"]);
    expect((await call("GET", server.url, path, { headers })).text).toBe("[1]");
  });
});

describe("long-poll", () => {
  test("at -1 of an empty stream it answers at once, as a catch-up does", async () => {
    const path = await freshStream();
    const before = performance.now();
    const answer = await read(`${path}?offset=-1&live=long-poll`);
    expect([answer.status, answer.text]).toEqual([200, "[]"]);
    expect(answer.headers["stream-up-to-date"]).toBe("true");
    expect(answer.headers["stream-next-offset"]).toBe(ZERO);
    expect(answer.headers["stream-cursor"]).toMatch(/^[1-9]/);
    expect(performance.now() - before).toBeLessThan(300);
    expect((await read(`${path}?offset=${ZERO}&live=long-poll`)).status).toBe(204);
  });
});

test("a Stream-Seq that does not sort after the last one is a sequence conflict, in these words", async () => {
  const path = await freshStream();
  await append(path, "1", { "stream-seq": "b" });
  const refused = await append(path, "2", { "stream-seq": "a" });
  expect(refused.status).toBe(409);
  expect(refused.text.toLowerCase()).toContain("sequence conflict");
});

test("an append above the default limit is refused with the option's name, and taken where that is raised", async () => {
  const document = new Uint8Array(LIMITS.bodyBytesMax + 1).fill(7);
  const snapshot = "/v1/stream/yjs/docs/d/.snapshots/1_snapshot";
  const refused = await call("PUT", server.url, snapshot, { body: document });
  expect([refused.status, members(refused).get("help")]).toEqual([
    413,
    "Split it; --body-bytes-max raises the limit.",
  ]);
  const directory = await mkdtemp(join(tmpdir(), "hapax-large-"));
  const bodyBytesMax = 2 * LIMITS.bodyBytesMax;
  const store = await openFileStore(directory);
  const large = await startNodeServer({ port: 0, bodyBytesMax, store });
  expect((await call("PUT", large.url, snapshot, { body: document })).status).toBe(201);
  await large.stop();
  const again = await startNodeServer({ port: 0, store: await openFileStore(directory) });
  const read = await call("GET", again.url, snapshot);
  expect([read.status, read.body.equals(document)]).toEqual([200, true]);
  await again.stop();
  await rm(directory, { recursive: true });
});

describe("headers.offset of the State protocol", () => {
  const CHANGE = '{"type":"user","key":"1","value":{"n":1.0},"headers":{"operation":"insert"}}';
  const OTHER = '{"headers":{"x":1},"n":1e400}';

  test("is added for a reader that asks, and for no other", async () => {
    const path = await freshStream();
    const first = await append(path, `[${CHANGE},${OTHER}]`);
    const second = await append(path, '{"headers":{"control":"reset","offset":"old"}}');
    const [one, two] = [first, second].map(({ headers }) => String(headers["stream-next-offset"]));
    const plain = `[${CHANGE},${OTHER},{"headers":{"control":"reset","offset":"old"}}]`;
    expect((await read(path)).text).toBe(plain);
    expect((await read(`${path}?state-offsets=false`)).text).toBe(plain);
    const asked = await read(`${path}?state-offsets=true`);
    expect(asked.text).toBe(
      `[{"type":"user","key":"1","value":{"n":1.0},"headers":{"operation":"insert","offset":"${one}"}},${OTHER},` +
        `{"headers":{"control":"reset","offset":"old","offset":"${two}"}}]`,
    );
    expect(asked.headers.etag).not.toBe((await read(path)).headers.etag);
    expect((await read(`${path}?state-offsets=yes`)).status).toBe(400);
  });

  test("is added to live events too, each with the end of its append", async () => {
    const path = await freshStream(`[${CHANGE}]`);
    const asking = await openSse(server.url, `${path}?offset=-1&live=sse&state-offsets=true`);
    const plain = await openSse(server.url, `${path}?offset=-1&live=sse`);
    await Promise.all(
      [asking, plain].map((one) => one.until((c) => c.text().includes("upToDate"))),
    );
    const appended = await append(path, CHANGE);
    const end = String(appended.headers["stream-next-offset"]);
    await asking.until((client) => client.text().includes(`"offset":"${end}"}}]`));
    await plain.until((client) => client.text().split(`data:[${CHANGE}]`).length === 3);
    asking.close();
    plain.close();
  });

  test("is added for every reader of a server that was started so, unless one declines", async () => {
    const as = await startNodeServer({ store: "memory", port: 0, stateOffsets: true });
    await call("PUT", as.url, "/s", { headers: JSON_TYPE, body: CHANGE });
    const all = await call("GET", as.url, "/s");
    expect(all.text).toContain(`"offset":"${String(all.headers["stream-next-offset"])}"`);
    const declined = await call("GET", as.url, "/s?state-offsets=false");
    expect(declined.text).toBe(`[${CHANGE}]`);
    await as.stop();
  });
});

describe("faults that tests of clients inject", () => {
  function inject(fault: unknown): Promise<HttpAnswer> {
    return call("POST", server.url, INJECT, { body: JSON.stringify(fault) });
  }

  test("corruptBody spoils the body and keeps its length", async () => {
    const path = await freshStream("[1,2,3,4,5,6,7,8,9]");
    expect((await inject({ path, corruptBody: true })).status).toBe(200);
    const spoiled = await read(path);
    expect(spoiled.text).toHaveLength("[1,2,3,4,5,6,7,8,9]".length);
    expect(() => JSON.parse(spoiled.text) as unknown).toThrow();
    expect((await read(path)).text).toBe("[1,2,3,4,5,6,7,8,9]");
  });

  test("injectSseEvent sends one more event before those of the stream", async () => {
    const path = await freshStream("[1]");
    await inject({ path, method: "GET", injectSseEvent: { eventType: "unknown", data: "{x" } });
    const sse = await openSse(server.url, `${path}?offset=-1&live=sse`);
    await sse.until((client) => client.text().includes("upToDate"));
    sse.close();
    expect(sse.events().map(({ event }) => event)).toEqual(["unknown", "data", "control"]);
    expect(sse.events()[0]?.data).toBe("{x");
  });

  test("a fault that does nothing, or that is misspelt, is refused", async () => {
    for (const fault of [
      { path: "/s" },
      { path: "/s", corruptBody: 1 },
      { path: "/s", injectSseEvent: "x" },
      { path: "/s", injectSseEvent: { eventType: "x" } },
      { path: "/s", status: 500, probability: 2 },
    ]) {
      expect([fault, (await inject(fault)).status]).toEqual([fault, 400]);
    }
  });

  test("probability 0 never strikes", async () => {
    const path = await freshStream("[1]");
    await inject({ path, status: 500, probability: 0 });
    expect((await read(path)).status).toBe(200);
    await call("DELETE", server.url, INJECT);
  });
});
