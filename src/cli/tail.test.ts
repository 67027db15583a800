import type { ServerResponse } from "node:http";

import { afterEach, expect, test } from "vitest";

import { createConsumer } from "./tail.ts";
import { hapax, startServer, stopServers, type TestServer } from "../../test/kits/cli-harness.ts";

afterEach(stopServers);

const data = (payload: string) => `event: data\ndata:${payload}\n\n`;
const control = (offset: string, more: object = {}) =>
  `event: control\ndata:${JSON.stringify({ streamNextOffset: offset, streamCursor: "9", ...more })}\n\n`;

interface Connection {
  readonly text: string;
  /** How the connection ends: orderly, by a cut, or not at all. */
  readonly end: "end" | "cut" | "stay";
}

/** Each GET gets the next connection; the last one is repeated. */
async function startTail(
  connections: readonly Connection[],
  headers: Readonly<Record<string, string>> = {},
): Promise<TestServer> {
  const contentType = headers["x-stream-type"] ?? "application/json";
  let count = 0;
  return startServer((request, response) => {
    if (request.method === "HEAD") {
      response.writeHead(200, { "content-type": contentType }).end();
      return;
    }
    const connection = connections[Math.min(count, connections.length - 1)];
    count += 1;
    response.writeHead(200, { "content-type": "text/event-stream", ...headers });
    if (connection !== undefined) deliver(connection, response);
  });
}

function deliver({ text, end }: Connection, response: ServerResponse): void {
  response.write(text, () => {
    if (end === "end") response.end();
    if (end === "cut") response.socket?.resetAndDestroy();
  });
}

const offsets = (server: TestServer) =>
  server.received
    .filter((request) => request.method === "GET")
    .map((request) => request.url.searchParams.get("offset"));

test("data without its control event is printed once, after the resume", async () => {
  const server = await startTail([
    { text: control("0_0") + data("[1]") + control("0_1") + data("[2,3]"), end: "end" },
    { text: data("[2,3]") + control("0_3"), end: "end" },
    { text: data("[4]") + control("0_4", { streamClosed: true }), end: "end" },
  ]);
  const result = await hapax(["tail", "orders", "--from-start", "--url", server.url]);
  expect(result).toMatchObject({ code: 0, stdout: "1\n2\n3\n4\n", stderr: "" });
  expect(offsets(server)).toEqual(["-1", "0_1", "0_3"]);
  expect(server.received.at(-1)?.url.searchParams.get("cursor")).toBe("9");
});

test("a connection that is cut is resumed at the last control event after a pause", async () => {
  const server = await startTail([
    { text: control("0_0"), end: "end" },
    { text: "", end: "cut" },
    { text: data("[1]") + control("0_1", { streamClosed: true }), end: "end" },
  ]);
  const result = await hapax(["tail", "orders", "--url", server.url]);
  expect(result).toMatchObject({ code: 0, stdout: "1\n" });
  expect(offsets(server)).toEqual(["now", "0_0", "0_0"]);
  expect(result.waits).toHaveLength(1);
});

test("giving up names the offset to go on from", async () => {
  const server = await startTail([
    { text: data("[1]") + control("0_1"), end: "end" },
    { text: "", end: "end" },
  ]);
  const result = await hapax(["tail", "orders", "--retry-seconds", "2", "--url", server.url]);
  expect(result.code).toBe(1);
  expect(result.stdout).toBe("1\n");
  expect(result.stderr).toContain("--offset 0_1");
});

test("Ctrl-C ends a tail with exit code 0", async () => {
  const server = await startTail([{ text: data("[1]") + control("0_1"), end: "stay" }]);
  let interrupt = (): void => {};
  const result = await hapax(["tail", "orders", "--url", server.url], {
    onReady: (send) => {
      interrupt = () => {
        send("SIGINT");
      };
    },
    onOutput: () => {
      interrupt();
    },
  });
  expect(result).toMatchObject({ code: 0, stdout: "1\n", stderr: "" });
});

test("binary data arrives byte for byte", async () => {
  const bytes = Buffer.from([0, 1, 2, 0x7f]);
  const server = await startTail(
    [{ text: data(bytes.toString("base64")) + control("0_4", { streamClosed: true }), end: "end" }],
    { "stream-sse-data-encoding": "base64", "x-stream-type": "application/octet-stream" },
  );
  const result = await hapax(["tail", "photo", "--from-start", "--url", server.url]);
  expect(result.stdout).toBe(bytes.toString());
});

test("a stream that is missing ends a tail with exit code 4, at once", async () => {
  const server = await startServer((_request, response) => response.writeHead(404).end());
  const result = await hapax(["tail", "orders", "--url", server.url]);
  expect(result).toMatchObject({ code: 4, waits: [] });
});

test("a server that is not there ends a tail with exit code 3, at once", async () => {
  const server = await startServer(() => {});
  await stopServers();
  const result = await hapax(["tail", "orders", "--url", server.url]);
  expect(result).toMatchObject({ code: 3, waits: [] });
});

test("an event beyond the limit ends a tail: no other connection can cure it", async () => {
  const position = {
    offset: "0",
    start: undefined,
    cursor: undefined,
    isClosed: false,
    controls: 0,
    writer: undefined,
  };
  const consume = createConsumer(position, false, 20);
  const chunk = new TextEncoder().encode(`data:${"x".repeat(30)}`);
  await expect(consume(chunk)).rejects.toMatchObject({ name: "CommandFailure", exitCode: 1 });
});
