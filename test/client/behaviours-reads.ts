/** What the client does when it describes, reads, follows, forks, closes and deletes. */

import { expect } from "vitest";
import { type FollowOptions, memoryPosition, type Stream } from "../../src/client/client.ts";
import { type Behaviour, count, type World } from "./behaviours-kit.ts";

/** Follows a stream and appends while it does: what came, when the stream has been closed. */
async function followed(
  reader: Stream,
  writer: Stream,
  options: FollowOptions = {},
): Promise<unknown[]> {
  const seen: unknown[] = [];
  for await (const { value } of reader.follow<number>(options)) {
    seen.push(value);
    if (value < 10) await writer.append(value + 1);
    else if (value === 10) await writer.close(11);
  }
  return seen;
}

const describing: readonly Behaviour[] = [
  {
    name: "a stream describes itself",
    async run({ connect }) {
      const stream = connect();
      const { offset } = await stream.create();
      expect(await connect().head()).toMatchObject({
        offset,
        contentType: "application/json",
        isClosed: false,
        ttlSeconds: undefined,
      });
      const appended = await stream.append(1);
      expect((await connect().head()).offset).toBe(appended.offset);
      await stream.close();
      expect(await connect().head()).toMatchObject({ isClosed: true, offset: appended.offset });
    },
  },
  {
    name: "what is asked of a stream that is not there says so by its code",
    async run({ connect }) {
      const refusal = { code: "stream_not_found", retry: "never" };
      await expect(connect().head()).rejects.toMatchObject(refusal);
      await expect(connect().read().values()).rejects.toMatchObject(refusal);
      await expect(connect().delete()).rejects.toMatchObject(refusal);
      const next = connect().follow().batches().next();
      await expect(next).rejects.toMatchObject(refusal);
    },
  },
  {
    name: "reading goes from a place to the tail, and from there on again",
    async run({ connect }) {
      const stream = connect();
      await stream.create();
      for (const id of count(5)) await stream.append(id);
      let from = "";
      const values: number[] = [];
      for await (const { records, nextOffset } of stream.read<number>().pages()) {
        values.push(...records);
        from = nextOffset;
      }
      expect(values).toEqual(count(5));
      expect(await stream.read({ from }).values()).toEqual([]);
      expect(await stream.read({ from: "now" }).values()).toEqual([]);
      await stream.append(5);
      expect(await stream.read({ from }).values()).toEqual([5]);
      expect(JSON.parse(new TextDecoder().decode(await stream.read().bytes()))).toEqual(count(6));
    },
  },
  {
    name: "a place beyond the tail is refused, also where the server would answer for an earlier one",
    async run({ connect }) {
      await connect().create({ data: "of a stream that is deleted" });
      const { offset: from } = await connect().head();
      await connect().delete();
      await connect().create();
      const refusal = { code: "offset_beyond_tail", retry: "never" };
      await expect(connect().read({ from }).values()).rejects.toMatchObject(refusal);
      const next = connect().follow({ from }).batches().next();
      await expect(next).rejects.toMatchObject(refusal);
    },
  },
  {
    name: "a page whose answer is lost is asked for again, and its records come once",
    async run({ connect, connectLosing }) {
      await connect().create();
      await connect().append(["a", "b"]);
      const { stream, proxy } = await connectLosing({ method: "GET", lost: "answer", times: 3 });
      const failures: number[] = [];
      const onReconnect = (reconnect: { readonly failures: number }): void => {
        failures.push(reconnect.failures);
      };
      expect(await stream.read({ onReconnect }).values()).toEqual([["a", "b"]]);
      expect(failures).toEqual([1, 2, 3]);
      expect(proxy.droppedAnswers).toBe(3);
    },
  },
  {
    name: "a reader gives up an outage that outlasts its patience",
    async run({ connect, connectLosing }) {
      await connect().create();
      const loss = { method: "GET", lost: "request", times: Infinity } as const;
      const { stream } = await connectLosing(loss);
      const values = stream.read({ patienceMs: 30 }).values();
      await expect(values).rejects.toMatchObject({ code: "unreachable" });
    },
  },
];

/** The same case for each way to wait. */
function byEachWay(
  name: string,
  run: (world: World, live: "sse" | "long-poll") => Promise<void>,
  needs?: "files",
): readonly Behaviour[] {
  return (["sse", "long-poll"] as const).map((live) => ({
    name: `${name}, by ${live}`,
    ...(needs === undefined ? {} : { needs }),
    run: (world) => run(world, live),
  }));
}

const following: readonly Behaviour[] = [
  ...byEachWay(
    "what is there and what comes is given once, until the stream is closed",
    async ({ connect }, live) => {
      const stream = connect();
      await stream.create({ data: 0 });
      expect(await followed(connect(), stream, { live })).toEqual(count(12));
    },
  ),
  ...byEachWay(
    "across lost requests, lost answers and cut connections each record comes once and in order",
    async ({ connect, connectCuttable }, live) => {
      const writer = connect();
      await writer.create({ data: 0 });
      const faults = { seed: 3, dropAnswers: 0.4, dropRequests: 0.2 };
      const { stream, cut } = await connectCuttable(faults);
      let reconnects = 0;
      const onReconnect = (): void => void (reconnects += 1);
      const seen: number[] = [];
      for await (const { value } of stream.follow<number>({ live, onReconnect })) {
        seen.push(value);
        if (value % 3 === 2) await cut();
        if (value < 10) await writer.append(value + 1);
        else if (value === 10) await writer.close(11);
      }
      expect(seen).toEqual(count(12));
      expect(reconnects).toBeGreaterThan(2);
    },
  ),
  ...byEachWay(
    "across a restart of the server each record comes once and in order",
    async ({ connect, restart }, live) => {
      const writer = connect();
      await writer.create({ data: 0 });
      const seen: number[] = [];
      for await (const { value } of connect().follow<number>({ live })) {
        seen.push(value);
        if (value === 2) await restart();
        if (value < 5) await writer.append(value + 1);
        else await writer.close();
      }
      expect(seen).toEqual(count(6));
    },
    "files",
  ),
  {
    name: "text is followed as it is, with its line ends",
    async run({ connect }) {
      const stream = connect();
      await stream.create({ contentType: "text/plain", data: "a\r\n" });
      let text = "";
      for await (const { value } of connect().follow<string>()) {
        text += value;
        if (text === "a\r\n") await stream.append("é\rb\n");
        if (text.endsWith("b\n")) await stream.close();
      }
      expect(text).toBe("a\r\né\rb\n");
    },
  },
  {
    name: "bytes are followed as they are",
    async run({ connect }) {
      const stream = connect();
      await stream.create({ contentType: "application/octet-stream" });
      await stream.append(Uint8Array.from([0, 200]));
      const bytes: number[] = [];
      for await (const { value } of connect().follow<Uint8Array>()) {
        bytes.push(...value);
        if (bytes.length === 2) await stream.append(Uint8Array.from([13, 10, 255]));
        if (bytes.length === 5) await stream.close();
      }
      expect(bytes).toEqual([0, 200, 13, 10, 255]);
    },
  },
  {
    name: "a reader that follows from now gets later records, and no earlier ones",
    async run({ connect }) {
      const stream = connect();
      await stream.create({ data: "before" });
      const seen: unknown[] = [];
      let isFirst = true;
      for await (const { records } of connect().follow({ from: "now" }).batches()) {
        seen.push(...records);
        if (isFirst) await stream.close("after");
        isFirst = false;
      }
      expect(seen).toEqual(["after"]);
    },
  },
  {
    name: "a reader that begins again goes on where its position is",
    async run({ connect }) {
      const stream = connect();
      await stream.create();
      const position = memoryPosition();
      const seen: number[] = [];
      for (const id of count(3)) {
        const { offset = "" } = await stream.append(id);
        const stop = new AbortController();
        const onUpToDate = (reached: string): void => {
          if (reached === offset) stop.abort(new Error("dealt with"));
        };
        const follow = connect().follow<number>({ position, onUpToDate, signal: stop.signal });
        try {
          for await (const { value } of follow) seen.push(value);
        } catch (error) {
          expect(error).toBe(stop.signal.reason);
        }
        const [kept] = (await position.load())?.split("/") ?? []; // A server of ours adds the life.
        expect(kept).toBe(offset);
      }
      expect(seen).toEqual(count(3));
    },
  },
];

const ending: readonly Behaviour[] = [
  {
    name: "a stream is closed after the appends before it, with its last record, and takes no more",
    async run({ connect, stored }) {
      const stream = connect();
      await stream.create();
      const [, , closed] = await Promise.all([
        stream.append(1),
        stream.append(2),
        stream.close("last"),
      ]);
      expect(await stream.head()).toMatchObject({ isClosed: true, offset: closed.offset });
      const late = connect().append("late");
      await expect(late).rejects.toMatchObject({ code: "stream_closed" });
      expect(await stored()).toEqual([1, 2, "last"]);
    },
  },
  {
    name: "a close of a stream that another client has closed fails with stream_closed",
    async run({ connect, stored }) {
      await connect().create();
      await connect().close("last");
      const refusal = { code: "stream_closed", unconfirmed: [{ outcome: "not_stored" }] };
      await expect(connect().close("another last")).rejects.toMatchObject(refusal);
      await expect(connect().close()).rejects.toMatchObject(refusal);
      expect(await stored()).toEqual(["last"]);
    },
  },
  {
    name: "a close whose answer is lost is done once, with its record",
    async run({ connect, connectLosing, stored }) {
      await connect().create();
      const { stream, proxy } = await connectLosing({ method: "POST", lost: "answer" });
      await stream.close("last");
      expect(proxy.droppedAnswers).toBe(1);
      expect((await connect().head()).isClosed).toBe(true);
      expect(await stored()).toEqual(["last"]);
    },
  },
  {
    name: "a close without a record whose answer is lost is done",
    async run({ connect, connectLosing }) {
      await connect().create({ data: 1 });
      const { stream, proxy } = await connectLosing({ method: "POST", lost: "answer" });
      await stream.close();
      expect(proxy.droppedAnswers).toBe(1);
      expect((await connect().head()).isClosed).toBe(true);
    },
  },
  {
    name: "a stream that is deleted is gone, also if the answer is lost",
    async run({ connect, connectLosing }) {
      await connect().create();
      await connect().delete();
      await expect(connect().head()).rejects.toMatchObject({ code: "stream_not_found" });
      await connect().create();
      const { stream, proxy } = await connectLosing({ method: "DELETE", lost: "answer" });
      await stream.delete();
      expect(proxy.droppedAnswers).toBe(1);
      await expect(connect().head()).rejects.toMatchObject({ code: "stream_not_found" });
    },
  },
  {
    name: "a fork begins with the data of its source, and each goes its own way",
    async run({ connect, url }) {
      const stream = connect();
      await stream.create();
      const { offset = "" } = await stream.append("shared");
      await stream.append("later");
      const early = await stream.fork(`${url}-early`, { offset });
      const whole = await stream.fork(`${url}-whole`);
      const more = await stream.fork(`${url}-more`, { offset, subOffset: 1 });
      await early.append("of the fork");
      await stream.append("of the source");
      expect(await early.read().values()).toEqual(["shared", "of the fork"]);
      expect(await whole.read().values()).toEqual(["shared", "later"]);
      expect(await more.read().values()).toEqual(["shared", "later"]);
      expect(await stream.read().values()).toEqual(["shared", "later", "of the source"]);
    },
  },
  {
    name: "a source that is deleted is gone, and its fork stays whole",
    async run({ connect, url }) {
      await connect().create({ data: "shared" });
      const fork = await connect().fork(`${url}-fork`);
      await connect().delete();
      await expect(connect().head()).rejects.toMatchObject({ code: "stream_gone" });
      await expect(connect().append(1)).rejects.toMatchObject({ code: "stream_gone" });
      expect(await fork.read().values()).toEqual(["shared"]);
    },
  },
  {
    name: "a fork whose answer is lost is made once",
    async run({ connect, connectLosing, url }) {
      await connect().create({ data: "shared" });
      const { stream, proxy } = await connectLosing({ method: "PUT", lost: "answer" });
      const fork = await stream.fork(`${url}-fork`, { contentType: "application/json" });
      expect(proxy.droppedAnswers).toBe(1);
      expect(await fork.read().values()).toEqual(["shared"]);
    },
  },
  {
    name: "a fork that names no type whose answer is lost is made once, with the type of its source",
    async run({ connect, connectLosing, url }) {
      await connect().create({ contentType: "text/plain", data: "shared" });
      const { stream, proxy } = await connectLosing({ method: "PUT", lost: "answer" });
      const fork = await stream.fork(`${url}-fork`, { data: ", and more" });
      expect(proxy.droppedAnswers).toBe(1);
      expect((await fork.head()).contentType).toBe("text/plain");
      expect((await fork.read<string>().values()).join("")).toBe("shared, and more");
    },
  },
];

export const reading: readonly Behaviour[] = [...describing, ...following, ...ending];
