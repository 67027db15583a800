// Every answer has a name, on every way into the server. PROTOCOL.md §22.1
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type NodeServer, startNodeServer } from "../../src/streams/runtimes/node.ts";
import { openHttp2 } from "../kits/http2-fetch.ts";
import { openTlsStage } from "../kits/tls-server.ts";
import { openSocket } from "./raw-http.ts";

const MADE = /^[\da-f]{12}-\d+$/;
const GOOD = ["a", "req-1", "Az09._-:/+=@", "x".repeat(128)];
const BAD = [
  "x".repeat(129),
  "a b",
  "a,b",
  "a\tb",
  '"a"',
  "<a>",
  "a;b",
  "ä",
  "a%0d%0aSet-Cookie:x",
];

interface Way {
  readonly name: string;
  readonly url: string;
  readonly fetch: typeof fetch;
}

const stage = openTlsStage();
const ways: Way[] = [];
const servers: NodeServer[] = [];

beforeAll(async () => {
  for (const hasFastLane of [true, false]) {
    const server = await startNodeServer({ store: "memory", port: 0, hasFastLane });
    servers.push(server);
    ways.push({ name: hasFastLane ? "lane" : "node:http", url: server.url, fetch });
  }
  const secure = await stage.start();
  const client = openHttp2(secure.url, stage.authority.cert, 1);
  ways.push({ name: "HTTP/2", url: secure.url, fetch: client.fetch });
});

afterAll(async () => {
  for (const server of servers) await server.stop();
  await stage.close();
});

async function named(way: Way, method: string, path: string, id?: string): Promise<string> {
  const headers = {
    "Content-Type": "text/plain",
    ...(id === undefined ? {} : { "X-Request-Id": id }),
  };
  const body = method === "POST" ? "x" : null;
  const answer = await way.fetch(way.url + path, { method, headers, body });
  if (answer.headers.get("content-type") !== "text/event-stream") await answer.text();
  return answer.headers.get("x-request-id") ?? "";
}

async function sendBytes(url: string, bytes: string): Promise<string> {
  const socket = await openSocket(url);
  const first = new Promise<string>((resolve, reject) => {
    socket.once("data", (piece) => {
      resolve(String(piece));
    });
    socket.once("error", reject);
  });
  socket.write(bytes);
  const text = await first;
  socket.destroy();
  return text;
}

function nameIn(text: string): string | undefined {
  return text.split("X-Request-Id: ")[1]?.split("\r\n")[0];
}

describe("every answer has a name", () => {
  test("made by the server, and a new one for each request", async () => {
    for (const way of ways) {
      const names = [
        await named(way, "PUT", "/v1/stream/a"),
        await named(way, "POST", "/v1/stream/a"),
        await named(way, "POST", "/v1/stream/a"),
        await named(way, "POST", "/v1/stream/missing"),
        await named(way, "GET", "/v1/stream/a"),
        await named(way, "GET", "/v1/stream/a?offset=now&live=long-poll&cursor=%"),
        await named(way, "HEAD", "/v1/stream/a"),
        await named(way, "PATCH", "/v1/stream/a"),
        await named(way, "OPTIONS", "/v1/stream/a"),
        await named(way, "GET", "/_hapax/streams"),
        await named(way, "GET", "/_hapax/nothing"),
        await named(way, "GET", "/healthz"),
        await named(way, "GET", "/v1/stream/__ds/jwks.json"),
        await named(way, "GET", "/v1/stream/__ds/nothing"),
      ];
      for (const name of names) expect(name, way.name).toMatch(MADE);
      expect(new Set(names).size, way.name).toBe(names.length);
    }
  });

  test("a live answer has one in its head", async () => {
    for (const way of ways) {
      await named(way, "PUT", "/v1/stream/live");
      const end = new AbortController();
      const answer = await way.fetch(`${way.url}/v1/stream/live?live=sse&offset=-1`, {
        headers: { "X-Request-Id": "live-1" },
        signal: end.signal,
      });
      expect(answer.headers.get("x-request-id"), way.name).toBe("live-1");
      end.abort();
    }
  });

  test("G52 a client's name is taken as it is, or not at all", async () => {
    for (const way of ways) {
      await named(way, "PUT", "/v1/stream/b");
      for (const method of ["POST", "GET", "DELETE"]) {
        for (const id of GOOD) expect(await named(way, method, "/v1/stream/b", id)).toBe(id);
        for (const id of BAD) expect(await named(way, method, "/v1/stream/b", id)).toMatch(MADE);
      }
    }
  });

  test("a refusal of bytes that are no request has one", async () => {
    for (const { url } of ways.slice(0, 2)) {
      for (const bytes of ["nonsense\r\n\r\n", "CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n"]) {
        expect(nameIn(await sendBytes(url, bytes))).toMatch(MADE);
      }
    }
  });

  test("two names are none", async () => {
    for (const { url } of ways.slice(0, 2)) {
      const lines = "Host: localhost\r\nX-Request-Id: a\r\nX-Request-Id: b\r\nContent-Length: 0";
      const bytes = `POST /v1/stream/a HTTP/1.1\r\n${lines}\r\n\r\n`;
      expect(nameIn(await sendBytes(url, bytes))).toMatch(MADE);
    }
  });
});
