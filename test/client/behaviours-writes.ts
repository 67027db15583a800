/** What the client does when it creates and appends. */

import { expect } from "vitest";
import { AppendFailure } from "../../src/client/client.ts";
import { type Behaviour, count, failureOf, until } from "./behaviours-kit.ts";

const creating: readonly Behaviour[] = [
  {
    name: "a stream that is created again with the same configuration stays as it is",
    async run({ connect }) {
      const first = await connect().create({ contentType: "text/plain" });
      expect(first).toMatchObject({ isCreated: true, contentType: "text/plain", isClosed: false });
      await connect().append("kept");
      const second = await connect().create({ contentType: "text/plain" });
      expect(second).toMatchObject({ isCreated: false, contentType: "text/plain" });
      expect(await connect().read<string>().values()).toEqual(["kept"]);
    },
  },
  {
    name: "a stream is created with its first record, and closed at once",
    async run({ connect, stored }) {
      const created = await connect().create({ data: { id: 1 }, isClosed: true });
      expect(created).toMatchObject({ isCreated: true, isClosed: true });
      expect(await connect().head()).toMatchObject({ isClosed: true, offset: created.offset });
      expect(await stored()).toEqual([{ id: 1 }]);
    },
  },
  {
    name: "another configuration is refused, and the stream stays as it is",
    async run({ connect, code }) {
      await connect().create({ contentType: "text/plain" });
      const refused = connect().create({ contentType: "application/json" });
      await expect(refused).rejects.toMatchObject({ code: code("stream_exists"), retry: "never" });
      expect((await connect().head()).contentType).toBe("text/plain");
    },
  },
  {
    name: "a creation whose answer is lost counts as done by its caller",
    async run({ connectLosing, stored }) {
      const { stream, proxy } = await connectLosing({ method: "PUT", lost: "answer" });
      expect((await stream.create({ data: 1 })).isCreated).toBe(true);
      expect(proxy.droppedAnswers).toBe(1);
      expect(await stored()).toEqual([1]);
    },
  },
  {
    name: "an expiry comes back as it was given",
    async run({ connect }) {
      await connect().create({ ttlSeconds: 3600 });
      expect((await connect().head()).ttlSeconds).toBe(3600);
    },
  },
  {
    name: "a new stream is made only where there is none",
    needs: "If-None-Match",
    async run({ connect }) {
      expect((await connect().create({ isNew: true })).isCreated).toBe(true);
      const again = connect().create({ isNew: true });
      await expect(again).rejects.toMatchObject({ code: "stream_present" });
    },
  },
  {
    name: "where nothing but a new stream would do, none is made without If-None-Match",
    lacks: "If-None-Match",
    async run({ connect }) {
      const asked = connect().create({ isNew: true });
      await expect(asked).rejects.toMatchObject({ code: "unsupported" });
      await expect(connect().head()).rejects.toMatchObject({ code: "stream_not_found" });
    },
  },
];

const appending: readonly Behaviour[] = [
  {
    name: "an append answers the tail, and any JSON value is one record",
    async run({ connect, stored }) {
      const stream = connect();
      const empty = await stream.create();
      const values = [null, 0, "ü\r\n", [1, [2]], {}, { a: { b: true } }];
      let offset: string | undefined = empty.offset;
      for (const value of values) {
        const appended = await stream.append(value);
        expect(appended.isDuplicate).toBe(false);
        expect(appended.offset).not.toBe(offset);
        offset = appended.offset;
      }
      expect((await stream.head()).offset).toBe(offset);
      expect(await stored()).toEqual(values);
    },
  },
  {
    name: "text and bytes are stored as they are given",
    async run({ connect, url }) {
      const stream = connect();
      await stream.create({ contentType: "application/octet-stream" });
      const bytes = Uint8Array.from([0, 255, 10, 13, 128]);
      await stream.append(bytes);
      await stream.append("é\r\n");
      const stored = new Uint8Array(await (await fetch(`${url}?offset=-1`)).arrayBuffer());
      expect([...stored]).toEqual([...bytes, ...Buffer.from("é\r\n")]);
      expect([...(await stream.read().bytes())]).toEqual([...stored]);
    },
  },
  {
    name: "appends that do not wait for each other are stored in the order of the calls",
    async run({ connect, stored }) {
      const stream = connect();
      await stream.create();
      await Promise.all(count(100).map((id) => stream.append(id)));
      expect(await stored()).toEqual(count(100));
    },
  },
  {
    name: "an append whose answer is lost twice is stored once, and known as a repetition",
    async run({ connect, connectLosing, stored }) {
      await connect().create();
      const loss = { method: "POST", lost: "answer", times: 2 } as const;
      const { stream, proxy } = await connectLosing(loss);
      expect(await stream.append("once")).toMatchObject({ isDuplicate: true });
      expect(await stream.append("after")).toMatchObject({ isDuplicate: false });
      expect(proxy.droppedAnswers).toBe(2);
      expect(await stored()).toEqual(["once", "after"]);
    },
  },
  {
    name: "an append that never arrives is sent again, and is no repetition",
    async run({ connect, connectLosing, stored }) {
      await connect().create();
      const { stream, proxy } = await connectLosing({ method: "POST", lost: "request" });
      expect(await stream.append("once")).toMatchObject({ isDuplicate: false });
      expect(proxy.droppedRequests).toBe(1);
      expect(await stored()).toEqual(["once"]);
    },
  },
  {
    name: "appends behind a network that loses a third both ways are each stored once, in order",
    async run({ connect, connectBehind, stored }) {
      await connect().create();
      const faults = { seed: 7, dropAnswers: 0.2, dropRequests: 0.15, delayRequests: 0.2 };
      const { stream, proxy } = await connectBehind({ ...faults, delayMsMax: 3 });
      for (const id of count(40)) await stream.append(id);
      await Promise.all(count(40).map((id) => stream.append(40 + id)));
      expect(await stored()).toEqual(count(80));
      expect(proxy.droppedAnswers).toBeGreaterThan(5);
      expect(proxy.droppedRequests).toBeGreaterThan(3);
    },
  },
  {
    name: "an append to a stream that is not there is handed back as not stored, and is its own cause",
    async run({ connect }) {
      const unconfirmed = [{ data: { id: 1 }, outcome: "not_stored", isCause: true }];
      // With the type the append itself is refused, without it the question for the type.
      for (const options of [{ contentType: "application/json" }, {}]) {
        const error = await failureOf(connect(options).append({ id: 1 }));
        expect(error).toBeInstanceOf(AppendFailure);
        expect(error).toMatchObject({ code: "stream_not_found", unconfirmed });
      }
    },
  },
  {
    name: "data that does not fit the stream is refused before anything is sent",
    async run({ connect }) {
      const stream = connect();
      await stream.create({ contentType: "text/plain" });
      const refused = stream.append({ an: "object" });
      await expect(refused).rejects.toMatchObject({ code: "invalid_request" });
      await stream.append("text");
      expect(await stream.read<string>().values()).toEqual(["text"]);
    },
  },
  {
    name: "an append whose Stream-Seq does not sort after the last is refused alone",
    async run({ connect, stored, code }) {
      const stream = connect();
      await stream.create();
      await stream.append("b", { seq: "b" });
      const calls = [
        stream.append("a", { seq: "a" }),
        stream.append("plain"),
        stream.append("c", { seq: "c" }),
      ];
      const [refused] = await Promise.allSettled(calls);
      expect(refused).toMatchObject({
        status: "rejected",
        reason: { code: code("sequence_regression"), unconfirmed: [{ outcome: "not_stored" }] },
      });
      expect(await stored()).toEqual(["b", "plain", "c"]);
    },
  },
  {
    name: "an append that is given up rejects with the reason",
    async run({ connect, connectLosing }) {
      await connect().create();
      const stop = new AbortController();
      const loss = { method: "POST", lost: "request", times: Infinity } as const;
      const { stream, proxy } = await connectLosing(loss);
      const appended = failureOf(stream.append(1, { signal: stop.signal }));
      await until(() => proxy.droppedRequests > 2);
      const reason = new Error("enough");
      stop.abort(reason);
      expect(await appended).toBe(reason);
    },
  },
  {
    name: "without an answer a call ends after retry.totalMs, and the outcome is unknown",
    async run({ connect, connectLosing, stored }) {
      await connect().create();
      const loss = { method: "POST", lost: "answer", times: Infinity } as const;
      const retry = { totalMs: 60, pauseMs: 2, pauseMsMax: 10 };
      const { stream, proxy } = await connectLosing(loss, { retry });
      const error = await failureOf(stream.append("maybe"));
      const unconfirmed = [{ data: "maybe", outcome: "unknown", isCause: true }];
      expect(error).toMatchObject({ code: "unreachable", unconfirmed });
      expect(proxy.droppedAnswers).toBeGreaterThan(0);
      expect(await stored()).toEqual(["maybe"]);
    },
  },
];

export const writing: readonly Behaviour[] = [...creating, ...appending];
