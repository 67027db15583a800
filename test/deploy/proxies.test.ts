// The configurations of deploy/proxies, with the real nginx and Caddy: what arrives live, compressed, large, and what ends.
import { get, request, type RequestOptions } from "node:https";
import type { IncomingMessage } from "node:http";
import { connect as connectHttp2 } from "node:http2";
import { gunzipSync } from "node:zlib";
import { afterEach, beforeAll, describe, expect, test, type TestContext } from "vitest";
import { resolveServerOptions } from "../../src/streams/server/options.ts";
import { requirePart } from "../client/runtimes-kit.ts";
import { read } from "../kits/documents.ts";
import { PROXIES, type Proxied, type Proxy, startBehind } from "./proxies-kit.ts";

const JSON_TYPE = { "content-type": "application/json" };
const PATH = "/v1/stream/orders";
/** The certificate is of an authority of the tests. */
const TRUST = { rejectUnauthorized: false };

// An install may take minutes.
beforeAll(() => {
  for (const proxy of PROXIES) proxy.isHere();
}, 300_000);

const endings: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const end of endings.splice(0).toReversed()) await end();
});

interface Answer {
  readonly status: number;
  readonly headers: IncomingMessage["headers"];
  readonly body: Buffer;
}

function call(url: string, options: RequestOptions, body?: Uint8Array | string): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const sent = request(url, { ...TRUST, agent: false, ...options }, (response) => {
      const pieces: Buffer[] = [];
      response.on("data", (piece: Buffer) => pieces.push(piece)).on("error", reject);
      response.on("end", () => {
        const { statusCode: status = 0, headers } = response;
        resolve({ status, headers, body: Buffer.concat(pieces) });
      });
    });
    sent.on("error", reject).end(body);
  });
}

const append = (url: string, body: string): Promise<Answer> =>
  call(url + PATH, { method: "POST", headers: JSON_TYPE }, body);

async function open(context: TestContext, proxy: Proxy): Promise<Proxied> {
  const reason = `${proxy.name} is not installed: not tested`;
  requirePart(context, proxy.isHere() ? true : undefined, reason);
  const proxied = await startBehind(proxy);
  endings.push(() => proxied.stop());
  expect((await call(proxied.url + PATH, { method: "PUT", headers: JSON_TYPE })).status).toBe(201);
  return proxied;
}

async function readers({ direct }: Proxied): Promise<number> {
  const text = await (await fetch(`${direct}/_hapax/metrics`)).text();
  return Number(/^hapax_live_readers (\d+)/m.exec(text)?.[1]);
}

describe.each(PROXIES)("$name", (proxy) => {
  test("an event arrives while its connection is idle, and a reader that goes is gone", async (context) => {
    const proxied = await open(context, proxy);
    let said = "";
    // As a browser asks: a proxy that compresses would hold the events back.
    const headers = { "accept-encoding": "gzip, br" };
    const options = { ...TRUST, agent: false, headers };
    const live = get(`${proxied.url}${PATH}?offset=-1&live=sse`, options);
    live.on("response", (response) => {
      response.setEncoding("utf8").on("data", (text: string) => (said += text));
      response.on("error", () => undefined);
    });
    live.on("error", () => undefined);
    await expect.poll(() => said).toContain('"upToDate":true');
    for (const id of [1, 2]) {
      expect((await append(proxied.url, `{"id":${id}}`)).status).toBe(204);
      // Nothing else is sent that could push it out of a buffer.
      await expect.poll(() => said).toContain(`data:[{"id":${id}}]`);
    }
    expect(await readers(proxied)).toBe(1);
    live.destroy();
    await expect.poll(() => readers(proxied)).toBe(0);
  });

  test("a long-poll waits for the next append", async (context) => {
    const proxied = await open(context, proxy);
    const tail = (await append(proxied.url, '{"id":1}')).headers["stream-next-offset"];
    const url = `${proxied.url}${PATH}?offset=${String(tail)}&live=long-poll`;
    const waiting = call(url, {});
    await expect.poll(() => readers(proxied)).toBe(1);
    await append(proxied.url, '{"id":2}');
    expect((await waiting).body.toString()).toBe('[{"id":2}]');
  });

  test("what the server compresses arrives as it was, with its ETag", async (context) => {
    const { url, direct } = await open(context, proxy);
    const reading = `${PATH}?offset=-1`;
    const gzip = { "accept-encoding": "gzip" };
    // So little that the server does not compress it: then the proxy must not either.
    await append(url, JSON.stringify({ text: "paid ".repeat(20) }));
    const small = await call(url + reading, { headers: gzip });
    expect(small.headers["content-encoding"]).toBeUndefined();
    expect(small.headers.etag).toBe((await fetch(direct + reading)).headers.get("etag"));
    await append(url, JSON.stringify({ text: "paid ".repeat(10_000) }));
    const answer = await call(url + reading, { headers: gzip });
    expect(answer.headers["content-encoding"]).toBe("gzip");
    expect(gunzipSync(answer.body).length).toBeGreaterThan(50_000);
    const around = await fetch(direct + reading, { headers: gzip });
    expect([answer.headers.etag, answer.headers.vary]).toEqual([
      around.headers.get("etag"),
      around.headers.get("vary"),
    ]);
    const etag = answer.headers.etag ?? "";
    const again = await call(url + reading, { headers: { ...gzip, "if-none-match": etag } });
    expect(again.status).toBe(304);
    const plain = await call(url + reading, {});
    expect([plain.headers["content-encoding"], plain.body.length > 50_000]).toEqual([
      undefined,
      true,
    ]);
  });

  test("the server, not the proxy, says how large a body may be", async (context) => {
    const { url } = await open(context, proxy);
    const most = resolveServerOptions().bodyBytesMax;
    const target = `${url}/v1/stream/blob`;
    const headers = { "content-type": "application/octet-stream" };
    expect((await call(target, { method: "PUT", headers })).status).toBe(201);
    const largest = await call(target, { method: "POST", headers }, new Uint8Array(most));
    expect(largest.status).toBe(204);
    const length = { "content-length": String(most + 1) };
    // The head alone: the server need not take the body to refuse it.
    const refused = await new Promise<Answer>((resolve, reject) => {
      const options = {
        ...TRUST,
        agent: false,
        method: "POST",
        headers: { ...headers, ...length },
      };
      const sent = request(target, options, (response) => {
        let text = "";
        response.setEncoding("utf8").on("data", (piece: string) => (text += piece));
        response.on("end", () => {
          const { statusCode: status = 0, headers: told } = response;
          resolve({ status, headers: told, body: Buffer.from(text) });
          sent.destroy();
        });
      });
      sent.on("error", reject);
      sent.write(new Uint8Array(1));
    });
    expect([refused.status, refused.body.toString()]).toEqual([
      413,
      expect.stringContaining('"code":"body_too_large"'),
    ]);
  });

  test("HTTP/2: many live readers on one connection", async (context) => {
    const proxied = await open(context, proxy);
    const session = connectHttp2(proxied.url, TRUST);
    session.on("error", () => undefined);
    const said: string[] = [];
    for (let at = 0; at < 20; at += 1) {
      const stream = session.request({ ":path": `${PATH}?offset=-1&live=sse` });
      said.push("");
      stream.setEncoding("utf8").on("data", (text: string) => {
        said[at] += text;
      });
      stream.on("error", () => undefined);
    }
    await expect.poll(() => readers(proxied)).toBe(20);
    await append(proxied.url, '{"id":7}');
    await expect.poll(() => said.filter((text) => text.includes('{"id":7}')).length).toBe(20);
    session.destroy();
    await expect.poll(() => readers(proxied)).toBe(0);
  });
});

test("nginx waits longer than a long-poll and an SSE connection of the server take", () => {
  const { longPollMs, sseSecondsMax } = resolveServerOptions();
  const seconds = Number(/proxy_read_timeout (\d+)s;/.exec(read("deploy/proxies/nginx.conf"))?.[1]);
  expect(seconds).toBeGreaterThan(Math.max(longPollMs / 1000, sseSecondsMax) + 5);
});
