// Live readers over a connection and a clock that the test moves. PROTOCOL.md §7
import { afterEach, describe, expect, test } from "vitest";
import { LIMITS } from "../../protocol/limits.ts";
import type { ServerAnswer, Exchange } from "./exchange.ts";
import { createServer, type HapaxServer, type ServerOptions } from "../server.ts";
import { openMemoryStore } from "../stores/memory.ts";
import { SseDecoder } from "../../protocol/sse-decoder.ts";
import { ManualClock, ManualSink } from "../../../test/kits/live-stage.ts";

const servers: HapaxServer[] = [];

afterEach(async () => {
  for (const server of servers.splice(0)) await server.close();
});

function exchange(
  method: string,
  target: string,
  body = "",
  headers: Record<string, string> = {},
): Exchange {
  const [path = "", query = ""] = target.split("?");
  const sent: Record<string, string> = { "content-type": "text/plain", ...headers };
  return {
    method,
    path,
    query,
    baseUrl: "http://test",
    authority: "localhost",
    header: (name) => sent[name],
    hasBody: body !== "",
    body: () => Promise.resolve(new TextEncoder().encode(body)),
    onAbort: () => undefined,
  };
}

interface World {
  readonly server: HapaxServer;
  readonly clock: ManualClock;
  append(body: string, headers?: Record<string, string>): Promise<ServerAnswer>;
  follow(offset?: string): Promise<ManualSink>;
}

async function openWorld(options: ServerOptions = {}): Promise<World> {
  const clock = new ManualClock();
  const server = createServer(
    {
      store: openMemoryStore(),
      clock,
      random: { unit: () => 0.5, id: () => "id" },
      courier: { deliver: () => Promise.resolve({ kind: "refused", reason: "none here" }) },
      address: "127.0.0.1",
      publicUrl: () => "http://test",
      onFault: (error) => {
        throw error;
      },
    },
    options,
  );
  servers.push(server);
  await server.handle(exchange("PUT", "/s"));
  return {
    server,
    clock,
    append: (body, headers) => server.handle(exchange("POST", "/s", body, headers)),
    async follow(offset = "-1") {
      const answer = await server.handle(exchange("GET", `/s?offset=${offset}&live=sse`));
      if (!("live" in answer)) throw new Error(`answered ${answer.status}`);
      const sink = new ManualSink();
      answer.live(sink);
      await settle();
      return sink;
    },
  };
}

/** Lets everything run that is ready to run. */
function settle(): Promise<void> {
  return new Promise((resolve) => {
    setImmediate(resolve);
  });
}

const kinds = (sink: ManualSink): string[] => sink.events().map(({ event }) => event);

describe("frames", () => {
  test("every write holds a data event and its control event, caught up and live", async () => {
    const world = await openWorld();
    await world.append("before");
    const sink = await world.follow();
    await world.append("after");
    for (const bytes of sink.writes) {
      const events = [...new SseDecoder().push(bytes)];
      expect(events.map(({ event }) => event)).toEqual(["data", "control"]);
    }
    expect(sink.data()).toBe("beforeafter");
  });

  test("all readers of an append are given the same bytes, which were made once", async () => {
    const world = await openWorld();
    const sinks = [await world.follow(), await world.follow(), await world.follow("now")];
    await world.append("shared");
    const [first, ...others] = sinks.map((sink) => sink.writes.at(-1));
    const [event] = new SseDecoder().push(first ?? new Uint8Array());
    expect(event?.data).toBe("shared");
    for (const other of others) expect(other).toBe(first);
  });

  test("readers that read a page of the store at about the same time share its bytes", async () => {
    const world = await openWorld();
    const part = "x".repeat(LIMITS.sseEventBytesMax / 2 + 1);
    for (let index = 0; index < 3; index += 1) await world.append(part);
    const sinks = await Promise.all([world.follow(), world.follow(), world.follow()]);
    const [first, ...others] = sinks.map(({ writes }) => writes);
    expect(first).toHaveLength(3);
    for (const writes of others)
      for (const [index, bytes] of writes.entries()) expect(bytes).toBe(first?.[index]);
  });

  test("a reader with another cursor gets the same data and keeps its own cursor", async () => {
    const world = await openWorld();
    const plain = await world.follow();
    const answer = await world.server.handle(
      exchange("GET", "/s?offset=-1&live=sse&cursor=999999999"),
    );
    const ahead = new ManualSink();
    if ("live" in answer) answer.live(ahead);
    await settle();
    await world.append("shared");
    expect(ahead.data()).toBe(plain.data());
    const cursor = (sink: ManualSink): number =>
      Number(/"streamCursor":"(\d+)"/.exec(sink.events().at(-1)?.data ?? "")?.[1]);
    expect(cursor(ahead)).toBeGreaterThan(999_999_999);
    expect(cursor(plain)).toBeLessThan(999_999_999);
  });

  test("a stream longer than one event is caught up in several, and only the last is up to date", async () => {
    const world = await openWorld();
    const part = "x".repeat(LIMITS.sseEventBytesMax / 2 + 1);
    for (let index = 0; index < 3; index += 1) await world.append(part);
    const sink = await world.follow();
    expect(sink.data()).toBe(part.repeat(3));
    const upToDate = sink.events().filter(({ data }) => data.includes('"upToDate":true'));
    expect(sink.writes.length).toBeGreaterThan(1);
    expect(upToDate).toEqual([sink.events().at(-1)]);
  });

  test("an empty stream is answered at once with its tail", async () => {
    const sink = await (await openWorld()).follow();
    expect(sink.events()).toMatchObject([{ event: "control" }]);
    expect(sink.events()[0]?.data).toContain('"upToDate":true');
  });
});

describe("readers that do not take their bytes", () => {
  const options = { readerBufferBytes: 1024 };

  test("nothing more is written to a reader whose queue is full", async () => {
    const world = await openWorld(options);
    const sink = await world.follow();
    sink.isTaking = false;
    for (let index = 0; index < 50; index += 1) await world.append("x".repeat(600));
    expect(sink.queuedBytes).toBeLessThan(1024 + 2 * 800);
    expect(sink.isWatched).toBe(true);
  });

  test("a reader that takes nothing for too long is cut, and its listener is gone", async () => {
    const world = await openWorld(options);
    const sink = await world.follow();
    sink.isTaking = false;
    await world.append("x".repeat(5000));
    expect(world.server.engine.liveReaders).toBe(1);
    sink.stick();
    expect([sink.ending, world.server.engine.liveReaders]).toEqual(["cut", 0]);
  });

  test("a reader that takes its bytes after all goes on at its own offset, without a hole", async () => {
    const world = await openWorld(options);
    const sink = await world.follow();
    sink.isTaking = false;
    const parts = Array.from({ length: 20 }, (_, index) => `${index}${"x".repeat(600)};`);
    for (const part of parts) await world.append(part);
    expect(sink.data()).not.toBe(parts.join(""));
    sink.drain();
    await settle();
    await world.append("last");
    expect(sink.data()).toBe(`${parts.join("")}last`);
    expect([sink.isWatched, sink.ending]).toEqual([false, "open"]);
  });

  test("a reader that stalls while it catches up comes back the same way", async () => {
    const world = await openWorld(options);
    const part = "y".repeat(LIMITS.sseEventBytesMax);
    for (let index = 0; index < 4; index += 1) await world.append(part);
    const answer = await world.server.handle(exchange("GET", "/s?offset=-1&live=sse"));
    const sink = new ManualSink();
    sink.isTaking = false;
    if ("live" in answer) answer.live(sink);
    for (let index = 0; index < 4; index += 1) {
      await settle();
      expect(sink.writes.length).toBe(index + 1);
      sink.drain();
      sink.isTaking = false;
    }
    await settle();
    expect(sink.data()).toBe(part.repeat(4));
  });
});

describe("the life of a connection", () => {
  test("it ends after its time, within a twentieth, and its listener goes with it", async () => {
    const world = await openWorld({ sseSecondsMax: 10 });
    const sink = await world.follow();
    world.clock.move(9400);
    expect(sink.ending).toBe("open");
    world.clock.move(1200);
    expect([sink.ending, world.server.engine.liveReaders]).toEqual(["ended", 0]);
  });

  test("a comment keeps it alive while nothing happens", async () => {
    const world = await openWorld();
    const sink = await world.follow();
    world.clock.move(LIMITS.sseHeartbeatMs * 2 + 1);
    const comments = sink.writes.filter((bytes) => bytes[0] === 0x3a);
    expect(comments.length).toBe(2);
    expect(kinds(sink)).toEqual(["control"]);
  });

  test("a reader that goes takes its listener and its timers along", async () => {
    const world = await openWorld();
    const sink = await world.follow();
    const writes = sink.writes.length;
    sink.leave();
    expect(world.server.engine.liveReaders).toBe(0);
    await world.append("unheard");
    world.clock.move(600_000);
    expect([sink.writes.length, sink.ending]).toEqual([writes, "open"]);
  });

  test("the last append before a close always arrives, and the close with it", async () => {
    const world = await openWorld();
    const sink = await world.follow();
    await world.append("end", { "stream-closed": "true" });
    expect([sink.data(), sink.ending]).toEqual(["end", "ended"]);
    expect(sink.events().at(-1)?.data).toContain('"streamClosed":true');
  });

  test("a close without data is sent, and a delete ends the connection without a close", async () => {
    const world = await openWorld();
    const closed = await world.follow();
    await world.append("", { "stream-closed": "true" });
    expect(closed.events().at(-1)?.data).toContain('"streamClosed":true');
    expect(closed.ending).toBe("ended");

    await world.server.handle(exchange("PUT", "/t"));
    const answer = await world.server.handle(exchange("GET", "/t?offset=-1&live=sse"));
    const deleted = new ManualSink();
    if ("live" in answer) answer.live(deleted);
    await settle();
    await world.server.handle(exchange("DELETE", "/t"));
    expect([kinds(deleted), deleted.ending]).toEqual([["control"], "ended"]);
    expect(deleted.events()[0]?.data).not.toContain("streamClosed");
  });

  test("a drain ends every reader at once", async () => {
    const world = await openWorld();
    const sinks = [await world.follow(), await world.follow()];
    world.server.drain();
    expect(sinks.map(({ ending }) => ending)).toEqual(["ended", "ended"]);
    expect(world.server.engine.liveReaders).toBe(0);
  });
});
