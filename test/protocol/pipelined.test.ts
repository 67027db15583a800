// A delete that lands between the look and the first read of a live reader. PROTOCOL.md §7
import { once } from "node:events";
import { connect } from "node:net";
import { expect, test } from "vitest";
import { startNodeServer } from "../../src/streams/runtimes/node.ts";

test("an SSE read and a delete in one packet end the reader, and the server goes on", async () => {
  const server = await startNodeServer({ store: "memory", port: 0 });
  const { hostname, port } = new URL(server.url);
  const url = `${server.url}/v1/stream/doomed`;
  await fetch(url, { method: "PUT", headers: { "Content-Type": "text/plain" }, body: "hello" });
  const socket = connect(Number(port), hostname);
  const head = "HTTP/1.1\r\nHost: localhost\r\n\r\n";
  socket.write(`GET /v1/stream/doomed?offset=-1&live=sse ${head}DELETE /v1/stream/doomed ${head}`);
  socket.resume();
  const answer = await fetch(`${server.url}/v1/stream/other`, { method: "PUT" });
  expect(answer.status).toBe(201);
  await server.stop();
  if (!socket.destroyed) await once(socket, "close");
  expect(server.server.engine.liveReaders).toBe(0);
});
