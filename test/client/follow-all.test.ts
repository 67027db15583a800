// Several streams over one connection, from the client's side. PROTOCOL.md §7.12, GUARANTEES.md G180
import { afterEach, describe, expect, test } from "vitest";
import { connect, followAll, TrimmedFailure } from "../../src/client/client.ts";
import { connectServer } from "../../src/client/processing.ts";
import { type NodeServer, startNodeServer } from "../../src/streams/runtimes/node.ts";
import { createSeededRandom } from "../../src/testing/seeded-random.ts";

const servers: NodeServer[] = [];

afterEach(async () => {
  for (const server of servers.splice(0)) await server.stop();
});

async function start(): Promise<NodeServer> {
  const server = await startNodeServer({ store: "memory", port: 0, onAudit: () => undefined });
  servers.push(server);
  return server;
}

async function streamsOn(server: NodeServer, count: number): Promise<string[]> {
  const paths = Array.from({ length: count }, (_, n) => `/v1/stream/many/${n}`);
  for (const path of paths) await connect(server.url + path).create();
  return paths;
}

/** Cuts each answer of events after some bytes, and refuses some requests. */
function cutting(seed: number): typeof fetch {
  const random = createSeededRandom(seed);
  return async (input, init) => {
    const below = (limit: number): number => random.below(limit);
    if (below(5) === 0) return Promise.reject(new Error("cut"));
    if (below(8) === 0) return new Response("busy", { status: 503 });
    const { body, status, headers } = await fetch(input, init);
    const pieces = body?.getReader();
    let left = below(1500);
    let held = new Uint8Array();
    const cut = new ReadableStream<Uint8Array>(
      {
        // In pieces, so that an event comes in parts, and the reader has them before the end.
        async pull(controller) {
          if (held.length === 0) held = new Uint8Array((await pieces?.read())?.value ?? []);
          if (held.length === 0) controller.close();
          else if (left <= 0) {
            await pieces?.cancel();
            controller.error(new Error("cut"));
          } else {
            const piece = held.slice(0, Math.min(left, 1 + below(200)));
            held = held.slice(piece.length);
            left -= piece.length;
            controller.enqueue(piece);
          }
        },
        cancel: () => pieces?.cancel(),
      },
      { highWaterMark: 0 },
    );
    return new Response(status === 204 ? null : cut, { status, headers });
  };
}

describe("followAll", () => {
  test("G180 follows streams over outages, and each record comes once", async () => {
    for (let seed = 1; seed <= 5; seed += 1) {
      const server = await start();
      const paths = await streamsOn(server, 4);
      const writing = Promise.all(
        paths.map(async (path) => {
          const stream = connect<string>(server.url + path);
          for (let n = 0; n < 25; n += 1) await stream.append(`${path}-${n}`);
          await stream.close(`${path}-25`);
        }),
      );
      const seen = new Map(paths.map((path): [string, unknown[]] => [path, []]));
      const reading = followAll<string>(
        server.url,
        paths.map((stream) => ({ stream })),
        { fetch: cutting(seed), retry: { pauseMs: 1, pauseMsMax: 5, totalMs: Infinity } },
      );
      for await (const { stream, batch, failure } of reading) {
        if (failure !== undefined) throw failure;
        seen.get(stream)?.push(...batch.records);
      }
      await writing;
      for (const [path, records] of seen) {
        expect(records, `seed ${seed}`).toEqual(
          Array.from({ length: 26 }, (_, n) => `${path}-${n}`),
        );
      }
    }
  });

  test("§7.12 goes on at a position, and text and bytes come back as they were stored", async () => {
    const server = await start();
    const [text, bytes] = ["/v1/stream/text", "/v1/stream/bytes"];
    const written = connect<string>(server.url + text);
    await written.create({ contentType: "text/plain" });
    const { offset = "" } = await written.append("before");
    // An append may end inside a character.
    const raw = new TextEncoder().encode("a\r\nü");
    for (const part of [raw.subarray(0, 4), raw.subarray(4)]) {
      const headers = { "Content-Type": "text/plain" };
      await fetch(server.url + text, { method: "POST", headers, body: part });
    }
    await written.close();
    const stored = connect<Uint8Array>(server.url + bytes);
    await stored.create({ contentType: "application/octet-stream" });
    await stored.close(new Uint8Array([0, 255, 10, 13]));
    const seen: unknown[] = [];
    const hapax = connectServer(server.url);
    for await (const { batch } of hapax.followAll([
      { stream: written, from: offset },
      { stream: bytes },
    ])) {
      seen.push(...(batch?.records ?? []));
    }
    expect(seen).toEqual(expect.arrayContaining(["a\r\nü", new Uint8Array([0, 255, 10, 13])]));
    expect(seen).toHaveLength(2);
  });

  test("§7.12 the end of one stream is a failure of its own, and the others go on", async () => {
    const server = await start();
    const hapax = connectServer(server.url);
    const [one = "", deleted = "", trimmed = ""] = await streamsOn(server, 3);
    const cut = hapax.stream<number>(trimmed);
    const { offset = "" } = await cut.append(1);
    await cut.append(2);
    await hapax.trim(cut, offset);
    const told: unknown[] = [];
    const sources = [
      { stream: one },
      { stream: deleted },
      { stream: trimmed, from: "0000000000000000_0000000000000000" },
    ];
    for await (const { stream, batch, failure } of hapax.followAll<number>(sources)) {
      if (batch?.upToDate === true && stream === deleted) await hapax.stream(deleted).delete();
      if (failure instanceof TrimmedFailure) told.push([stream, failure.earliestOffset]);
      else if (failure !== undefined) {
        told.push([stream, failure.code]);
        await hapax.stream(one).close(7);
      } else if (batch.records.length > 0) told.push([stream, ...batch.records]);
    }
    expect(told).toEqual([
      [trimmed, offset],
      [deleted, "stream_not_found"],
      [one, 7],
    ]);
  });

  test("§7.12 a server that does not know it is refused by name, and so is a stream that is named twice", async () => {
    const server = await start();
    const [path = ""] = await streamsOn(server, 1);
    const other: typeof fetch = () => Promise.resolve(new Response("no", { status: 404 }));
    const unknown = followAll(server.url, [{ stream: path }], { fetch: other });
    await expect(unknown.next()).rejects.toMatchObject({ code: "unsupported" });
    const twice = followAll(server.url, [{ stream: path }, { stream: path }]);
    await expect(twice.next()).rejects.toMatchObject({ code: "invalid_request" });
  });

  test("§7.12 connections that end at once are not opened again without a pause", async () => {
    const server = await start();
    const [path = ""] = await streamsOn(server, 1);
    let requests = 0;
    const ending: typeof fetch = () => {
      requests += 1;
      const headers = { "Content-Type": "text/event-stream" };
      return Promise.resolve(new Response(":\n\n", { headers }));
    };
    const stop = new AbortController();
    const following = followAll(server.url, [{ stream: path }], {
      fetch: ending,
      signal: stop.signal,
    });
    setTimeout(() => {
      stop.abort(new Error("enough"));
    }, 500);
    await expect(following.next()).rejects.toThrow("enough");
    expect(requests).toBeLessThan(12);
  });
});
