// What only this runtime can do wrong: addresses, options, and the memory that its sockets hold.
import { connect } from "node:net";
import { afterEach, expect, test } from "vitest";
import { openMemoryStore } from "../stores/memory.ts";
import { type NodeServer, type NodeServerOptions, startNodeServer } from "./node.ts";

const servers: NodeServer[] = [];

afterEach(async () => {
  for (const server of servers.splice(0)) await server.stop();
});

async function start(options: Partial<NodeServerOptions> = {}): Promise<NodeServer> {
  const server = await startNodeServer({ store: "memory", port: 0, ...options });
  servers.push(server);
  return server;
}

test("it listens on this machine only, unless the options name another host", async () => {
  expect((await start()).url).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/);
  const six = await start({ host: "::1" });
  expect(six.url).toMatch(/^http:\/\/\[::1\]:\d+$/);
  expect((await fetch(`${six.url}/_hapax/health`)).status).toBe(200);
});

test("a port that is taken is an error, and the store is closed", async () => {
  const first = await start();
  const store = openMemoryStore();
  const port = Number(new URL(first.url).port);
  await expect(startNodeServer({ port, store })).rejects.toMatchObject({ code: "EADDRINUSE" });
  await expect(store.commit([])).rejects.toMatchObject({ code: "store_closed" });
});

test("a server without a store is refused, also where there are no types: nothing is in memory by omission", async () => {
  for (const options of [undefined, {}, { port: 0 }, { store: undefined }, { store: "disk" }]) {
    const started = Reflect.apply(startNodeServer, undefined, [options]);
    await expect(started).rejects.toMatchObject({ code: "invalid_options" });
    await expect(started).rejects.toThrow(/openFileStore/);
  }
});

test("options that cannot be are refused", async () => {
  const wrong = { store: "memory", port: 0, longPollMs: -1 } as const;
  await expect(startNodeServer(wrong)).rejects.toMatchObject({ code: "invalid_options" });
  for (const options of [{ longPollMs: -1 }, { host: "0.0.0.0" }, { corsOrigins: ["a"] }]) {
    const given = openMemoryStore();
    const started = startNodeServer({ port: 0, store: given, ...options });
    await expect(started).rejects.toMatchObject({ code: "invalid_options" });
    await expect(given.commit([])).rejects.toMatchObject({ code: "store_closed" });
  }
  const store = openMemoryStore();
  const reversed = { port: 0, headersTimeoutMs: 2000, requestTimeoutMs: 1000, store };
  await expect(startNodeServer(reversed)).rejects.toThrow(/headersTimeout|requestTimeout/);
  await expect(store.commit([])).rejects.toMatchObject({ code: "store_closed" });
});

test("a stopped server has closed its store and tells of its durability", async () => {
  const store = openMemoryStore();
  const server = await startNodeServer({ port: 0, store });
  expect(server.durability).toBe("memory");
  await server.stop();
  await expect(store.commit([])).rejects.toMatchObject({ code: "store_closed" });
});

test("a client that goes away in the middle of its body is no fault of the server", async () => {
  const faults: unknown[] = [];
  const server = await start({ onFault: (error) => faults.push(error) });
  await fetch(`${server.url}/a`, { method: "PUT", headers: { "content-type": "text/plain" } });
  const { hostname, port } = new URL(server.url);
  for (let index = 0; index < 20; index += 1) {
    const socket = connect(Number(port), hostname);
    const closed = new Promise((resolve) => socket.once("close", resolve));
    const head =
      "POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 9\r\n\r\n";
    socket.write(`${head}abc`, () => {
      socket.resetAndDestroy();
    });
    await closed;
  }
  const answer = await fetch(`${server.url}/a`);
  expect([await answer.text(), faults]).toEqual(["", []]);
});

test("an answer that cannot be sent is reported as a fault, and the server goes on", async () => {
  const faults: unknown[] = [];
  const server = await start({
    publicUrl: "http://not\na.header",
    onFault: (error) => faults.push(error),
  });
  await expect(fetch(`${server.url}/a`, { method: "PUT" })).rejects.toThrow();
  expect(faults).toMatchObject([{ code: "ERR_INVALID_CHAR" }]);
  expect((await fetch(`${server.url}/a`)).status).toBe(200);
});

test.each([true, false])(
  "requests that come together on one connection are decided in their order (fast lane: %s)",
  async (hasFastLane) => {
    const server = await start({ hasFastLane });
    const { hostname, port } = new URL(server.url);
    const head = "HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n";
    for (let round = 0; round < 20; round += 1) {
      const path = `/ordered-${round}`;
      const requests =
        `PUT ${path} ${head}\r\n` +
        `POST ${path} ${head}Content-Length: 1\r\n\r\nx` +
        `POST ${path} ${head}Content-Length: 0\r\nStream-Closed: true\r\n\r\n`;
      const socket = connect(Number(port), hostname);
      // In two pieces, cut anywhere, because the parser then sees other parts at once.
      const cut = 1 + ((round * 13) % (requests.length - 1));
      socket.write(requests.slice(0, cut), () => socket.write(requests.slice(cut)));
      let text = "";
      await new Promise<void>((resolve) => {
        socket.on("data", (bytes) => {
          text += bytes.toString("latin1");
          if (text.split("HTTP/1.1 ").length === 4) resolve();
        });
      });
      socket.destroy();
      expect(text.match(/HTTP\/1\.1 \d+/g)).toEqual([
        "HTTP/1.1 201",
        "HTTP/1.1 204",
        "HTTP/1.1 204",
      ]);
      const answer = await fetch(`${server.url}${path}`);
      expect([await answer.text(), answer.headers.get("stream-closed")]).toEqual(["x", "true"]);
    }
  },
);
