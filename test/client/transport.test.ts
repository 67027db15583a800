// The contract of transports, kept by each of them over real sockets.
import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import {
  createServer as createNetServer,
  type AddressInfo,
  type Server,
  type Socket,
} from "node:net";
import { afterEach, describe, expect, test } from "vitest";
import { connect, fetchTransport, type Transport } from "../../src/client/client.ts";
import { startNodeServer } from "../../src/streams/runtimes/node.ts";
import { nodeTransport } from "../../src/client/node.ts";

const TRANSPORTS: readonly (readonly [string, () => Transport])[] = [
  ["fetchTransport", () => fetchTransport(fetch)],
  ["nodeTransport", () => nodeTransport()],
];
const endings: (() => void)[] = [];

afterEach(() => {
  for (const end of endings.splice(0)) end();
});

async function listen(server: Server): Promise<string> {
  const sockets = new Set<Socket>();
  server.on("connection", (socket: Socket) => {
    sockets.add(socket);
    socket.on("error", () => undefined);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  endings.push(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return `http://127.0.0.1:${String((server.address() as AddressInfo).port)}`;
}

interface Seen {
  readonly method: string;
  readonly path: string;
  readonly headers: IncomingMessage["headers"];
  readonly body: string;
  readonly port: number;
}

/** A server that tells what it got, and answers as the test says. */
async function serve(
  answer: (response: ServerResponse, seen: Seen) => void,
): Promise<{ url: string; seen: Seen[] }> {
  const seen: Seen[] = [];
  const server = createServer((request, response) => {
    let body = "";
    request.setEncoding("utf8").on("data", (text: string) => (body += text));
    request.on("end", () => {
      const { method = "", url: path = "", headers } = request;
      const one = { method, path, headers, body, port: request.socket.remotePort ?? 0 };
      seen.push(one);
      answer(response, one);
    });
  });
  return { url: await listen(server), seen };
}

/** A server that sends these bytes on every connection, and then ends the connection, or not. */
async function speak(bytes: string, end: "end" | "reset" | "stay"): Promise<string> {
  const server = createNetServer((socket) => {
    socket.once("data", () => {
      socket.write(bytes, () => {
        if (end === "end") socket.end();
        if (end === "reset") socket.resetAndDestroy();
      });
    });
  });
  return listen(server);
}

const GET = { method: "GET", headers: {} };

describe.each(TRANSPORTS)("%s", (_, make) => {
  test("sends the method, headers and bytes as they are, and gives status, headers and bytes", async () => {
    const { url, seen } = await serve((response) => {
      response.writeHead(409, { "X-Answer": "yes", "Content-Type": "text/plain" });
      response.end("höher");
    });
    const body = new TextEncoder().encode("[1,2,€]");
    const headers = { "Producer-Seq": "7", "Content-Type": "application/json" };
    const answer = await make()({ method: "POST", url: `${url}/a?b=c%20d`, headers, body });
    expect([answer.status, answer.header("x-answer"), answer.header("x-none")]).toEqual([
      409,
      "yes",
      undefined,
    ]);
    const bytes = await answer.bytes();
    expect(Object.getPrototypeOf(bytes)).toBe(Uint8Array.prototype);
    expect(new TextDecoder().decode(bytes)).toBe("höher");
    expect(seen).toMatchObject([{ method: "POST", path: "/a?b=c%20d", body: "[1,2,€]" }]);
    expect(seen[0]?.headers).toMatchObject({ "producer-seq": "7", "content-length": "9" });
  });

  test("a write without a body says that it has none, and HEAD and 204 have none", async () => {
    const { url, seen } = await serve((response) => {
      response.writeHead(204).end();
    });
    const transport = make();
    for (const method of ["POST", "PUT", "HEAD", "DELETE"]) {
      const answer = await transport({ method, url, headers: {} });
      expect([answer.status, (await answer.bytes()).length]).toEqual([204, 0]);
    }
    const lengths = seen.map(({ headers }) => headers["content-length"]);
    expect(lengths).toEqual(["0", "0", undefined, undefined]);
    for (const { headers } of seen) expect(headers["transfer-encoding"]).toBeUndefined();
  });

  test("rejects when no server listens, and when the connection ends without an answer", async () => {
    const { url } = await serve((response) => response.socket?.destroy());
    await expect(make()({ ...GET, url })).rejects.toThrow();
    const server = createNetServer();
    const gone = await listen(server);
    server.close();
    await once(server, "close");
    await expect(make()({ ...GET, url: gone })).rejects.toThrow();
  });

  for (const end of ["end", "reset"] as const) {
    const heads = {
      length: "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
      chunked: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
      "in a chunk": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\nhalf",
    };
    for (const [name, bytes] of Object.entries(heads)) {
      test(`a body that is cut (${name}, ${end}) rejects, whole or in pieces`, async () => {
        const url = await speak(bytes, end);
        const whole = async (): Promise<unknown> => (await make()({ ...GET, url })).bytes();
        await expect(whole()).rejects.toThrow();
        const pieces = async (): Promise<void> => {
          const answer = await make()({ ...GET, url });
          for await (const piece of answer.chunks()) expect(piece.length).toBeGreaterThan(0);
        };
        await expect(pieces()).rejects.toThrow();
      });
    }
  }

  test("bytes that are no HTTP reject", async () => {
    const url = await speak("SSH-2.0-OpenSSH_9.2\r\n\r\n", "end");
    await expect(make()({ ...GET, url })).rejects.toThrow();
  });

  test("a signal ends the request with its reason: before it, while it waits, in the body", async () => {
    const reason = new Error("given up");
    const { url, seen } = await serve(() => undefined);
    await expect(make()({ ...GET, url, signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
    expect(seen).toEqual([]);
    const waiting = new AbortController();
    const { url: silent } = await serve(() => {
      waiting.abort(reason);
    });
    await expect(make()({ ...GET, url: silent, signal: waiting.signal })).rejects.toBe(reason);
    const reading = new AbortController();
    const live = await speak(
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
      "stay",
    );
    const answer = await make()({ ...GET, url: live, signal: reading.signal });
    const pieces: string[] = [];
    const read = async (): Promise<void> => {
      for await (const piece of answer.chunks()) {
        pieces.push(new TextDecoder().decode(piece));
        reading.abort(reason);
      }
    };
    await expect(read()).rejects.toThrow();
    expect(pieces).toEqual(["half"]);
  });

  test("a write is not sent again to where a redirect leads; a read is", async () => {
    const { url, seen } = await serve((response, { path }) => {
      if (path === "/there") response.end("here");
      else response.writeHead(307, { Location: "/there" }).end();
    });
    const transport = make();
    const body = new Uint8Array([1]);
    const refused = await transport({ method: "POST", url: `${url}/a`, headers: {}, body });
    expect(refused.status).toBe(307);
    refused.discard();
    const answer = await transport({ ...GET, url: `${url}/a`, headers: { "X-Kept": "1" } });
    expect(new TextDecoder().decode(await answer.bytes())).toBe("here");
    expect(seen.map(({ method, path }) => `${method} ${path}`)).toEqual([
      "POST /a",
      "GET /a",
      "GET /there",
    ]);
    expect(seen[2]?.headers["x-kept"]).toBe("1");
  });

  test("redirects without an end reject, and another server does not get the token", async () => {
    const round = await serve((response) => response.writeHead(302, { Location: "/" }).end());
    await expect(make()({ ...GET, url: round.url })).rejects.toThrow();
    const other = await serve((response) => response.end());
    const first = await serve((response) => {
      response.writeHead(302, { Location: other.url }).end();
    });
    const headers = { Authorization: "Bearer secret", "X-Kept": "1" };
    (await make()({ method: "GET", url: first.url, headers })).discard();
    expect(first.seen[0]?.headers.authorization).toBe("Bearer secret");
    expect(other.seen[0]?.headers).toMatchObject({ "x-kept": "1" });
    expect(other.seen[0]?.headers.authorization).toBeUndefined();
  });

  test("a reader that does not ask for more makes the server wait", async () => {
    let written = 0;
    const { url } = await serve((response) => {
      const chunk = Buffer.alloc(64 * 1024, "x");
      const push = (): void => {
        if (written >= 256 * 1024 * 1024) {
          response.end();
          return;
        }
        written += chunk.length;
        if (response.write(chunk)) setImmediate(push);
        else response.once("drain", push);
      };
      push();
    });
    const stop = new AbortController();
    const answer = await make()({ ...GET, url, signal: stop.signal });
    const chunks = answer.chunks()[Symbol.asyncIterator]();
    await chunks.next();
    // Until the server is held up: written does not grow from one look to the next.
    let before = -1;
    for (let still = 0; still < 20;) {
      still = written === before ? still + 1 : 0;
      before = written;
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    expect(written).toBeLessThan(64 * 1024 * 1024);
    stop.abort();
    await expect(chunks.next().then(() => chunks.next())).rejects.toThrow();
  });

  test("answers that were read or dropped leave their connection to the next request", async () => {
    const { url, seen } = await serve((response, { path }) => {
      if (path === "/204") response.writeHead(204).end();
      else response.end("short");
    });
    const transport = make();
    for (const path of ["/204", "/200", "/204", "/200"]) {
      const answer = await transport({ ...GET, url: url + path });
      if (path === "/204") answer.discard();
      else await answer.bytes();
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(new Set(seen.map(({ port }) => port)).size).toBe(1);
  });

  test("a dropped answer without an end lets go of its connection", async () => {
    const closed = new Promise<void>((resolve) => {
      void serve((response) => {
        response.on("close", resolve);
        response.write("event: data\n");
      }).then(async ({ url }) => {
        (await make()({ ...GET, url })).discard();
      });
    });
    await closed;
  });

  test("an SSE reader, a producer and plain appends work over it", async () => {
    const server = await startNodeServer({ store: "memory", port: 0 });
    try {
      const stream = connect(`${server.url}/v1/stream/s`, { transport: make() });
      await stream.create();
      const producer = stream.producer();
      for (let id = 0; id < 20_000; id += 1) producer.append({ id, text: "ä".repeat(20) });
      const seen: number[] = [];
      const reading = (async () => {
        for await (const { value } of stream.follow<{ id: number }>()) seen.push(value.id);
      })();
      await producer.flush();
      await stream.append({ id: 20_000 });
      await stream.close();
      await reading;
      expect(seen).toEqual(Array.from({ length: 20_001 }, (_id, at) => at));
    } finally {
      await server.stop();
    }
  });
});
