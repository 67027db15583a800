// Headers behind the 1,000th count like the first: node:http would drop them in silence. PROTOCOL.md §13
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { nodeTransport } from "../../src/client/node.ts";
import { type NodeServer, startNodeServer } from "../../src/streams/runtimes/node.ts";
import { openFaultProxy } from "../../src/testing/fault-proxy.ts";
import { call, sendRaw } from "./raw-http.ts";

let server: NodeServer;
let streams = 0;

beforeAll(async () => {
  server = await startNodeServer({ store: "memory", port: 0 });
});

afterAll(async () => {
  await server.stop();
});

const MANY = "a:\r\n".repeat(1500);

async function fresh(): Promise<string> {
  streams += 1;
  const headers = { "content-type": "text/plain" };
  expect((await call("PUT", server.url, `/s${streams}`, { headers })).status).toBe(201);
  return `/s${streams}`;
}

const append = (path: string, lines: string, body = "x"): string =>
  `POST ${path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: ${body.length}\r\n` +
  `${MANY}${lines}\r\n${body}`;

const textOf = async (path: string): Promise<string> => (await call("GET", server.url, path)).text;

describe("behind 1,500 other headers", () => {
  test.each([
    ["an idempotency key", "Idempotency-Key: k\r\n"],
    ["a producer", "Producer-Id: p\r\nProducer-Epoch: 0\r\nProducer-Seq: 0\r\n"],
  ])("%s counts: a retry is stored once", async (_name, lines) => {
    const path = await fresh();
    for (let attempt = 0; attempt < 2; attempt += 1) {
      expect((await sendRaw(server.url, append(path, lines)))?.status).toBeLessThan(300);
    }
    expect(await textOf(path)).toBe("x");
  });

  test("If-Match counts: an append to another tail is refused", async () => {
    const path = await fresh();
    const lines = `If-Match: "0000000000000000_0000000000000005"\r\n`;
    expect((await sendRaw(server.url, append(path, lines)))?.status).toBe(412);
    expect(await textOf(path)).toBe("");
  });

  test("Content-Length counts: the body is read and is no request", async () => {
    const path = await fresh();
    const head = `POST ${path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n`;
    const sent = `${head}${MANY}Content-Length: 3\r\n\r\nxyz`;
    expect((await sendRaw(server.url, sent))?.status).toBe(204);
    expect(await textOf(path)).toBe("xyz");
  });

  test("a header that is sent twice is refused", async () => {
    const path = await fresh();
    const answer = await sendRaw(server.url, append(path, "Content-Type: text/plain\r\n"));
    expect(answer?.status).toBe(400);
  });

  test("a proxy of tests passes all of them on", async () => {
    const path = await fresh();
    const proxy = await openFaultProxy(() => server.url, { seed: 1 });
    try {
      for (let attempt = 0; attempt < 2; attempt += 1) {
        const sent = append(path, "Idempotency-Key: k\r\n");
        expect((await sendRaw(proxy.url, sent))?.status).toBeLessThan(300);
      }
    } finally {
      await proxy.close();
    }
    expect(await textOf(path)).toBe("x");
  });
});

test("the client for Node sees the headers of an answer behind the 1,000th", async () => {
  const answering = createServer((_request, response) => {
    const many = Array.from({ length: 1500 }, (_, at): [string, string] => [`a${at}`, "b"]);
    response.writeHead(200, [...many, ["Stream-Next-Offset", "last"]].flat());
    response.end();
  });
  await new Promise<void>((resolve) => answering.listen(0, "127.0.0.1", resolve));
  const { port } = answering.address() as AddressInfo;
  const url = `http://127.0.0.1:${port}/`;
  const answer = await nodeTransport()({ method: "GET", url, headers: {} });
  expect(answer.header("stream-next-offset")).toBe("last");
  answering.closeAllConnections();
  answering.close();
});
