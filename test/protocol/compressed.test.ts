// Compressed bodies: what they may cost, their order, their quotas, and the client that sends them. PROTOCOL.md §4.5
import { connect as connectSocket } from "node:net";
import { brotliCompressSync, deflateSync, gzipSync } from "node:zlib";
import { afterEach, expect, test } from "vitest";
import { connect, fetchTransport, gzipTransport } from "../../src/client/client.ts";
import { connectServer } from "../../src/client/processing.ts";
import type { Authorize } from "../../src/streams/access/identity.ts";
import { createFetchServer } from "../../src/streams/runtimes/fetch.ts";
import { type NodeServerOptions, startNodeServer } from "../../src/streams/runtimes/node.ts";

const MIB = 1024 * 1024;
const TEXT = { "Content-Type": "text/plain" };
const PACK = { gzip: gzipSync, deflate: deflateSync, br: brotliCompressSync } as const;
const stops: (() => Promise<void>)[] = [];

afterEach(async () => {
  for (const stop of stops.splice(0)) await stop();
});

async function start(options: Partial<NodeServerOptions> = {}): Promise<string> {
  const server = await startNodeServer({ store: "memory", port: 0, ...options });
  stops.push(() => server.stop());
  return server.url;
}

type Fetch = (url: string, init: RequestInit) => Promise<Response>;

async function createOn(send: Fetch, url: string): Promise<string> {
  const stream = `${url}/v1/stream/packed`;
  expect((await send(stream, { method: "PUT", headers: TEXT })).status).toBe(201);
  return stream;
}

/** All of a stream of text. */
async function textOf(url: string): Promise<string> {
  return (await connect(url).read<string>().values()).join("");
}

/** Both kinds of server, with the codings that they decode here. */
const SERVERS = {
  node: async (): Promise<{ readonly send: Fetch; readonly url: string }> => ({
    send: fetch,
    url: await start({ bodyBytesMax: MIB }),
  }),
  fetch: async (): Promise<{ readonly send: Fetch; readonly url: string }> => {
    const server = createFetchServer({
      store: "memory",
      address: "127.0.0.1",
      bodyBytesMax: MIB,
    });
    stops.push(() => server.stop());
    return {
      send: (url, init) => server.fetch(new Request(url, init)),
      url: "http://127.0.0.1",
    };
  },
} as const;

test.each([
  ["node", "gzip"],
  ["node", "deflate"],
  ["node", "br"],
  ["fetch", "gzip"],
  ["fetch", "deflate"],
] as const)(
  "on %s a body of %s stops at the limit of a body, also if few bytes were sent",
  async (kind, coding) => {
    const { send, url } = await SERVERS[kind]();
    const stream = await createOn(send, url);
    const append = (body: Uint8Array<ArrayBuffer>): Promise<Response> =>
      send(stream, { method: "POST", headers: { ...TEXT, "Content-Encoding": coding }, body });
    const pack = (bytes: number): Uint8Array<ArrayBuffer> =>
      new Uint8Array(PACK[coding](Buffer.alloc(bytes, "a")));
    const small = pack(64 * MIB);
    expect(small.length).toBeLessThan(MIB);
    const refused = await append(small);
    expect([refused.status, ((await refused.json()) as { code: string }).code]).toEqual([
      413,
      "body_too_large",
    ]);
    expect((await append(pack(MIB + 1))).status).toBe(413);
    expect((await append(pack(MIB))).status).toBe(204);
    const head = await send(stream, { method: "HEAD" });
    expect(head.headers.get("Stream-Next-Offset")).toMatch(new RegExp(`_0*${String(MIB)}$`));
  },
);

test("a platform without Brotli says so, and what it decodes", async () => {
  const { send, url } = await SERVERS.fetch();
  const stream = await createOn(send, url);
  const body = new Uint8Array(brotliCompressSync("hello"));
  const answer = await send(stream, {
    method: "POST",
    headers: { ...TEXT, "Content-Encoding": "br" },
    body,
  });
  const codings = answer.headers.get("Accept-Encoding");
  // Newer versions of the platform have it.
  if (answer.status === 415) expect(codings).toBe("gzip, deflate");
  else
    expect([
      answer.status,
      (await send(stream, { method: "HEAD" })).headers.get("Accept-Encoding"),
    ]).toEqual([204, "gzip, deflate, br"]);
});

test.each([true, false])(
  "requests of one connection are decided in their order, compressed or not (fast lane: %s)",
  async (hasFastLane) => {
    const url = await start({ hasFastLane });
    const stream = await createOn(fetch, url);
    const { hostname, port } = new URL(url);
    const letters = "abcdefghij";
    const requests = letters.split("").map((letter, index) => {
      const isPacked = index % 2 === 0;
      const body = isPacked ? gzipSync(letter.repeat(MIB)) : Buffer.from(letter);
      const head = [
        "POST /v1/stream/packed HTTP/1.1",
        "Host: localhost",
        "Content-Type: text/plain",
        `Content-Length: ${String(body.length)}`,
        ...(isPacked ? ["Content-Encoding: gzip"] : []),
        "",
        "",
      ];
      return Buffer.concat([Buffer.from(head.join("\r\n")), body]);
    });
    const socket = connectSocket(Number(port), hostname);
    let seen = "";
    await new Promise<void>((resolve) => {
      socket.on("data", (bytes: Buffer) => {
        seen += bytes.toString("latin1");
        if ((seen.match(/HTTP\/1\.1 204/g) ?? []).length === letters.length) resolve();
      });
      socket.write(Buffer.concat(requests));
    });
    socket.destroy();
    const text = await textOf(stream);
    const order = [...text.matchAll(/(.)\1*/g)].map(([run]) => run[0]).join("");
    expect(order).toBe(letters);
  },
);

test("a quota of bytes counts what a body decodes to", async () => {
  const authorize: Authorize = () => ({
    name: "one",
    grants: [{ actions: ["append", "create", "read"], streams: ["/**"] }],
    quotas: { bytesPerSecond: 100_000 },
  });
  const url = await start({ authorize });
  const stream = await createOn(fetch, url);
  const append = async (body: Uint8Array<ArrayBuffer>): Promise<number> => {
    const headers = { ...TEXT, "Content-Encoding": "gzip" };
    return (await fetch(stream, { method: "POST", headers, body })).status;
  };
  const large = new Uint8Array(gzipSync("a".repeat(50 * MIB).slice(0, 5 * MIB)));
  expect(await append(large)).toBe(204);
  // It has used up the next fifty seconds.
  expect(await append(new Uint8Array(gzipSync("b")))).toBe(429);
});

test("the client compresses large bodies when the server decodes them, and asks once", async () => {
  const url = await start();
  const sent: string[] = [];
  const transport = gzipTransport((request) => {
    const coding = request.headers["Content-Encoding"] ?? "plain";
    sent.push(`${request.method} ${coding} ${String((request.body?.length ?? 0) < 2000)}`);
    return fetchTransport(fetch)(request);
  });
  await createOn(fetch, url);
  const stream = connect(`${url}/v1/stream/packed`, { transport, contentType: "text/plain" });
  await stream.append("short");
  for (const letter of ["a", "b"]) await stream.append(letter.repeat(50_000));
  const heads = sent.filter((line) => line.startsWith("HEAD")).length;
  expect(heads).toBeLessThanOrEqual(2);
  expect(sent.filter((line) => line === "POST gzip true")).toHaveLength(2);
  expect(await textOf(stream.url)).toBe(`short${"a".repeat(50_000)}${"b".repeat(50_000)}`);
  // What gets no smaller goes as it is.
  const headers = { "Content-Type": "application/octet-stream" };
  await fetch(`${url}/v1/stream/noise`, { method: "PUT", headers });
  const body = crypto.getRandomValues(new Uint8Array(5000));
  await transport({ method: "POST", url: `${url}/v1/stream/noise`, headers, body });
  expect(sent.at(-1)).toBe("POST plain false");
});

test("the client sends nothing compressed to a server that does not say that it decodes", async () => {
  const url = await start();
  const codings: string[] = [];
  const transport = gzipTransport(async (request) => {
    codings.push(request.headers["Content-Encoding"] ?? "");
    const answer = await fetchTransport(fetch)(request);
    const header = (name: string): string | undefined =>
      name === "accept-encoding" ? undefined : answer.header(name);
    return { ...answer, status: answer.status, header };
  });
  const stream = connect(`${url}/v1/stream/plain`, { transport });
  await stream.create(TEXT_STREAM);
  await stream.append("a".repeat(50_000));
  expect(codings.join("")).toBe("");
});

test("the client sends a body again as it is, if its coding is refused", async () => {
  const url = await start();
  let refusals = 0;
  const transport = gzipTransport(async (request) => {
    const answer = await fetchTransport(fetch)(request);
    if (request.headers["Content-Encoding"] === undefined) return answer;
    refusals += 1;
    return { ...answer, status: 415, header: () => undefined };
  });
  const stream = connect(`${url}/v1/stream/plain`, { transport });
  await stream.create(TEXT_STREAM);
  for (const letter of ["a", "b"]) await stream.append(letter.repeat(2000));
  expect(refusals).toBe(1);
  expect(await textOf(stream.url)).toBe("a".repeat(2000) + "b".repeat(2000));
});

test("transactions of the client are compressed too", async () => {
  const url = await start();
  let packed = 0;
  const transport = gzipTransport((request) => {
    if (request.headers["Content-Encoding"] !== undefined) packed += 1;
    return fetchTransport(fetch)(request);
  });
  const hapax = connectServer(url, { transport });
  for (const path of ["/v1/stream/one", "/v1/stream/two"]) {
    await hapax.transaction((tx) => {
      tx.create(path);
      for (let n = 0; n < 500; n += 1) tx.append(path, { n, text: "the same again" });
    });
  }
  expect(packed).toBeGreaterThan(0);
  for (const path of ["/v1/stream/one", "/v1/stream/two"]) {
    expect((await hapax.stream(path).read().values()).length).toBe(500);
  }
});

const TEXT_STREAM = { contentType: "text/plain" };
