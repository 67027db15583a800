// The published clients, unchanged, against a real server on a real socket. PROTOCOL.md §1
import { randomUUID } from "node:crypto";
import { DurableStream, IdempotentProducer, stream } from "@durable-streams/client";
import { createStateSchema, MaterializedState } from "@durable-streams/state";
import { createStreamDB } from "@durable-streams/state/db";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type NodeServer, startNodeServer } from "../../src/streams/runtimes/node.ts";
import { call, openSse } from "./raw-http.ts";

let server: NodeServer;
let paths = 0;

beforeAll(async () => {
  server = await startNodeServer({ store: "memory", port: 0, longPollMs: 500 });
});

afterAll(async () => {
  await server.stop();
});

function freshPath(): string {
  paths += 1;
  return `/v1/stream/clients/${paths}`;
}

function freshUrl(): string {
  return server.url + freshPath();
}

/**
 * Collects what a subscriber receives until `count` items have come. The client's own `closed` resolves
 * when the last answer has arrived, which may be before its subscriber has received it.
 */
function collector<T>(count: number): {
  items: T[];
  add: (more: readonly T[]) => void;
  full: Promise<void>;
} {
  const items: T[] = [];
  let finish: () => void = () => undefined;
  const full = new Promise<void>((resolve) => {
    finish = resolve;
  });
  const add = (more: readonly T[]): void => {
    items.push(...more);
    if (items.length >= count) finish();
  };
  return { items, add, full };
}

const LIVE = ["sse", "long-poll"] as const;

describe("@durable-streams/client", () => {
  test("creates, appends and reads JSON, text and bytes", async () => {
    const json = await DurableStream.create({ url: freshUrl(), contentType: "application/json" });
    await json.append('{"n":1}');
    await json.append('{"n":2}');
    const items = await (await stream({ url: json.url, live: false })).json();
    expect(items).toEqual([{ n: 1 }, { n: 2 }]);

    const text = await DurableStream.create({ url: freshUrl(), contentType: "text/plain" });
    await text.append("line\r\n");
    await text.append("\u{1f600}");
    expect(await (await stream({ url: text.url, live: false })).text()).toBe("line\r\n\u{1f600}");

    const type = "application/octet-stream";
    const bytes = await DurableStream.create({ url: freshUrl(), contentType: type });
    await bytes.append(Uint8Array.of(0, 255, 10, 13));
    const body = await (await stream({ url: bytes.url, live: false })).body();
    expect([...body]).toEqual([0, 255, 10, 13]);
  });

  test("sees what HEAD tells, and that a second creation finds the first", async () => {
    const url = freshUrl();
    const first = await DurableStream.create({ url, contentType: "text/plain", ttlSeconds: 600 });
    await first.append("abc");
    const second = await DurableStream.create({ url, contentType: "text/plain", ttlSeconds: 600 });
    const head = await second.head();
    expect(head).toMatchObject({ exists: true, contentType: "text/plain", streamClosed: false });
    expect(head.exists && head.offset).toBe("0000000000000000_0000000000000003");
    expect(await DurableStream.head({ url: freshUrl() })).toEqual({ exists: false });
  });

  test("appends a stream of chunks, which arrive whole", async () => {
    const target = await DurableStream.create({ url: freshUrl(), contentType: "text/plain" });
    const chunks = async function* (): AsyncGenerator<string> {
      for (let index = 0; index < 100; index += 1) yield `${index};`;
    };
    await target.appendStream(chunks());
    const expected = Array.from({ length: 100 }, (_, index) => `${index};`).join("");
    expect(await (await stream({ url: target.url, live: false })).text()).toBe(expected);
  });

  test("an IdempotentProducer with batches in flight stores each record once and in order", async () => {
    const target = await DurableStream.create({ url: freshUrl(), contentType: "application/json" });
    const errors: Error[] = [];
    const producer = new IdempotentProducer(target, "writer", {
      maxInFlight: 5,
      lingerMs: 0,
      maxBatchBytes: 64,
      onError: (error) => errors.push(error),
    });
    for (let index = 0; index < 500; index += 1) producer.append(JSON.stringify({ index }));
    const { finalOffset } = await producer.close(JSON.stringify({ index: 500 }));
    expect(errors).toEqual([]);
    const answer = await stream<{ index: number }>({ url: target.url, live: false });
    const stored = await answer.json();
    expect(stored.map(({ index }) => index)).toEqual(Array.from({ length: 501 }, (_, at) => at));
    expect([answer.offset, answer.streamClosed]).toEqual([finalOffset, true]);
  });

  test("an IdempotentProducer of an old epoch is fenced, and claims the next one by itself", async () => {
    const target = await DurableStream.create({ url: freshUrl(), contentType: "application/json" });
    const newer = new IdempotentProducer(target, "writer", { epoch: 3 });
    newer.append("3");
    await newer.flush();
    const errors: Error[] = [];
    const zombie = new IdempotentProducer(target, "writer", {
      onError: (error) => errors.push(error),
    });
    zombie.append('"zombie"');
    await zombie.flush().catch(() => undefined); // What matters is what onError hears.
    expect(errors).toMatchObject([{ name: "StaleEpochError", currentEpoch: 3 }]);
    const claimer = new IdempotentProducer(target, "writer", { autoClaim: true });
    claimer.append("4");
    await claimer.flush();
    expect(claimer.epoch).toBe(4);
    expect(await (await stream({ url: target.url, live: false })).json()).toEqual([3, 4]);
  });

  test.each(LIVE)(
    "follows JSON live by %s, from the start over appends to the close",
    async (live) => {
      const target = await DurableStream.create({
        url: freshUrl(),
        contentType: "application/json",
      });
      await target.append('{"n":0}');
      const { items, add, full } = collector<unknown>(4);
      const reader = await stream({ url: target.url, live, offset: "-1", json: true });
      reader.subscribeJson((batch) => {
        add(batch.items);
      });
      await target.append('{"n":1}');
      await target.append('{"n":2}');
      await target.close({ body: '{"n":3}' });
      await Promise.all([full, reader.closed]);
      expect(items).toEqual([{ n: 0 }, { n: 1 }, { n: 2 }, { n: 3 }]);
      expect(reader.streamClosed).toBe(true);
    },
  );

  test.each(LIVE)("follows bytes live by %s, exactly", async (live) => {
    const type = "application/octet-stream";
    const target = await DurableStream.create({ url: freshUrl(), contentType: type });
    const all = Uint8Array.from({ length: 256 }, (_, index) => index);
    const { items, add, full } = collector<number>(512);
    const reader = await stream({ url: target.url, live, offset: "-1" });
    reader.subscribeBytes((chunk) => {
      add([...chunk.data]);
    });
    await target.append(all);
    await target.append(all);
    await full;
    await target.close();
    await reader.closed;
    expect(items).toEqual([...all, ...all]);
  });

  test.each(LIVE)("follows text live by %s", async (live) => {
    const target = await DurableStream.create({ url: freshUrl(), contentType: "text/plain" });
    const { items, add, full } = collector<string>(11);
    const reader = await stream({ url: target.url, live, offset: "-1" });
    reader.subscribeText((chunk) => {
      add(chunk.text.split(""));
    });
    await target.append("one\n");
    await target.append("two\nend");
    await full;
    await target.close();
    await reader.closed;
    expect(items.join("")).toBe("one\ntwo\nend");
  });

  test.each(LIVE)(
    "resumes by %s at the offset of its last batch, without loss or repetition",
    async (live) => {
      const target = await DurableStream.create({
        url: freshUrl(),
        contentType: "application/json",
      });
      await target.append("0");
      await target.append("1");
      const first = await stream<number>({ url: target.url, live, offset: "-1", json: true });
      const seen: number[] = [];
      const offset = await new Promise<string>((resolve) => {
        first.subscribeJson((batch) => {
          seen.push(...batch.items);
          if (seen.length >= 2) resolve(batch.offset);
        });
      });
      first.cancel();
      await target.append("2");
      await target.append("3");
      const { items, add, full } = collector<number>(2);
      const second = await stream<number>({ url: target.url, live, offset, json: true });
      second.subscribeJson((batch) => {
        add(batch.items);
      });
      await full;
      second.cancel();
      expect([...seen, ...items]).toEqual([0, 1, 2, 3]);
    },
  );

  test("an append after the close is refused, a repeated close is not, and a delete ends it", async () => {
    const target = await DurableStream.create({ url: freshUrl(), contentType: "text/plain" });
    const closed = await target.close({ body: "end" });
    expect((await target.close()).finalOffset).toBe(closed.finalOffset);
    const refusal = await target.append("more").catch((error: unknown) => error);
    expect(refusal).toMatchObject({ status: 409 });
    await target.delete();
    expect((await call("HEAD", server.url, new URL(target.url).pathname)).status).toBe(404);
  });

  test("readers that start while a producer writes get the same records", async () => {
    const target = await DurableStream.create({ url: freshUrl(), contentType: "application/json" });
    const producer = new IdempotentProducer(target, "writer", { lingerMs: 0, maxBatchBytes: 32 });
    const readers = Array.from({ length: 8 }, async (_, index) => {
      const answer = await stream<number>({
        url: target.url,
        live: LIVE[index % 2] ?? "sse",
        offset: "-1",
        json: true,
      });
      const { items, add, full } = collector<number>(300);
      answer.subscribeJson((batch) => {
        add(batch.items);
      });
      await Promise.all([full, answer.closed]);
      return items;
    });
    for (let index = 0; index < 300; index += 1) producer.append(String(index));
    await producer.close();
    const expected = Array.from({ length: 300 }, (_, index) => index);
    for (const seen of await Promise.all(readers)) expect(seen).toEqual(expected);
  });
});

interface User {
  readonly id: string;
  readonly name: string;
}

const isUser = (value: unknown): value is User =>
  typeof value === "object" && value !== null && "id" in value && "name" in value;

const schema = createStateSchema({
  users: {
    schema: {
      "~standard": {
        version: 1,
        vendor: "test",
        validate: (value: unknown) =>
          isUser(value) ? { value } : { issues: [{ message: "not a user" }] },
      },
    },
    type: "user",
    primaryKey: "id",
  },
});

describe("@durable-streams/state", () => {
  test.each(["sse", "long-poll"] as const)(
    "a StreamDB preloads, and follows inserts, updates and deletes by %s",
    async (live) => {
      const url = freshUrl();
      const target = await DurableStream.create({ url, contentType: "application/json" });
      await target.append(JSON.stringify(schema.users.insert({ value: { id: "1", name: "Ada" } })));
      const db = createStreamDB({
        streamOptions: { url, contentType: "application/json" },
        state: schema,
        live,
      });
      try {
        await db.preload();
        const { users } = db.collections;
        expect(users.get("1")).toMatchObject({ name: "Ada" });
        const txid = randomUUID();
        const changes = [
          schema.users.insert({ value: { id: "2", name: "Bob" } }),
          schema.users.update({ value: { id: "1", name: "Ada L." } }),
          schema.users.delete({ key: "2", headers: { txid } }),
        ];
        const arrived = db.utils.awaitTxId(txid);
        for (const change of changes) await target.append(JSON.stringify(change));
        await arrived;
        expect(users.get("1")).toMatchObject({ name: "Ada L." });
        expect(users.get("2")).toBeUndefined();
      } finally {
        db.close();
      }
    },
  );

  test("a StreamDB preloads an empty stream at once", async () => {
    const url = freshUrl();
    await DurableStream.create({ url, contentType: "application/json" });
    const db = createStreamDB({
      streamOptions: { url, contentType: "application/json" },
      state: schema,
    });
    await db.preload();
    expect(db.collections.users.size).toBe(0);
    db.close();
  });

  test("a MaterializedState replays the stream's own events", async () => {
    const target = await DurableStream.create({ url: freshUrl(), contentType: "application/json" });
    await target.append(JSON.stringify(schema.users.insert({ value: { id: "1", name: "Ada" } })));
    await target.append(JSON.stringify(schema.users.update({ value: { id: "1", name: "A." } })));
    const state = new MaterializedState();
    const answer = await stream<Parameters<MaterializedState["apply"]>[0]>({
      url: target.url,
      live: false,
    });
    for (const event of await answer.json()) state.apply(event);
    expect(state.get("user", "1")).toMatchObject({ name: "A." });
  });
});

describe("what other packages of the ecosystem send", () => {
  const increment = (offset: string): string => {
    const [file = "", bytes = ""] = offset.split("_");
    return `${file}_${String(Number(bytes) + 1).padStart(16, "0")}`;
  };

  test("an offset plus one reads the whole appends that end after it, also at the tail", async () => {
    const path = "/v1/stream/yjs/service/docs/a/b.c/.updates";
    const headers = { "content-type": "application/octet-stream" };
    await call("PUT", server.url, path, { headers });
    const first = await call("POST", server.url, path, { headers, body: "first" });
    await call("POST", server.url, path, { headers, body: "second" });
    const tail = (await call("POST", server.url, path, { headers, body: "third" })).headers;
    const afterFirst = increment(String(first.headers["stream-next-offset"]));
    const rest = await call("GET", server.url, `${path}?offset=${afterFirst}`);
    expect([rest.status, rest.text]).toEqual([200, "secondthird"]);

    const afterTail = increment(String(tail["stream-next-offset"]));
    const none = await call("GET", server.url, `${path}?offset=${afterTail}`);
    expect([none.status, none.text, none.headers["stream-up-to-date"]]).toEqual([200, "", "true"]);
    expect(none.headers["stream-next-offset"]).toBe(tail["stream-next-offset"]);
    const waiting = call("GET", server.url, `${path}?offset=${afterTail}&live=long-poll`);
    const live = await openSse(server.url, `${path}?offset=${afterTail}&live=sse`);
    await live.until((client) => client.events().length === 1);
    await call("POST", server.url, path, { headers, body: "fourth" });
    expect((await waiting).text).toBe("fourth");
    await live.until((client) => client.events().length === 3);
    expect(live.events()[1]).toEqual({ event: "data", data: btoa("fourth") });
    live.close();
  });

  test.each([
    `/v1/streams/${randomUUID()}`,
    "/v1/stream/yjs/s/docs/d/.index",
    "/v1/stream/yjs/s/docs/d/.snapshots/0000000000000000_0000000000000009_snapshot",
    "/v1/stream/yjs/s/docs/d/.awareness/default",
    "/v1/stream/a/b/c/d/e",
    "/plain",
    "/v1/stream/with%20space/%F0%9F%98%80",
  ])("%s is a path like any other", async (path) => {
    const created = await call("PUT", server.url, path, { headers: { "stream-ttl": "600" } });
    expect([created.status, created.headers.location]).toEqual([201, server.url + path]);
    const headers = { "content-type": "application/octet-stream" };
    expect((await call("POST", server.url, path, { headers, body: "chunk" })).status).toBe(204);
    expect((await call("GET", server.url, path)).text).toBe("chunk");
    expect((await call("DELETE", server.url, path)).status).toBe(204);
  });

  test("a close without a body is not judged by its Content-Type, with Content-Length 0 or without", async () => {
    for (const length of [{ "content-length": "0" }, { "transfer-encoding": "chunked" }]) {
      const path = freshPath();
      await call("PUT", server.url, path, { headers: { "content-type": "application/json" } });
      const closed = await call("POST", server.url, path, {
        headers: { "content-type": "text/other", "stream-closed": "true", ...length },
      });
      expect([closed.status, closed.headers["stream-closed"]]).toEqual([204, "true"]);
    }
  });
});
