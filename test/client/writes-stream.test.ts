/** The handle against a real server: plain appends, keys, conditions, and the life of a stream. */

import { expect, test } from "vitest";
import { AppendFailure, connect } from "../../src/client/client.ts";
import { isHapaxError } from "../../src/base/errors.ts";
import { createSeededRandom } from "../../src/testing/seeded-random.ts";
import { badNetwork, openWriteStage, type StageOptions, type WriteStage } from "./writes-stage.ts";

async function withStage(
  run: (stage: WriteStage) => Promise<void>,
  options: StageOptions = {},
  headers: Record<string, string> = {},
): Promise<void> {
  const stage = openWriteStage(options);
  await stage.direct("PUT", { "content-type": "application/json", ...headers });
  await run(stage);
  await stage.close();
}

async function codeOf(stage: WriteStage, promise: Promise<unknown>): Promise<string> {
  const error: unknown = await stage.drive(
    promise.then(
      () => "it was done",
      (reason: unknown) => reason,
    ),
  );
  return isHapaxError(error) ? error.code : String(error);
}

const appendsOf = (stage: WriteStage): WriteStage["sent"] =>
  stage.sent.filter(({ method, body }) => method === "POST" && body !== "");

test("a plain append is stored once when its answer is lost", () =>
  withStage(async (stage) => {
    stage.fate = (sent) =>
      sent.body === "" || appendsOf(stage).length > 2 ? {} : { lost: "answer" };
    const appended = await stage.drive(stage.connect().append({ order: 1 }));
    expect(appended.isDuplicate).toBe(true);
    expect(appendsOf(stage)).toHaveLength(3);
    expect(await stage.stored()).toEqual([{ order: 1 }]);
  }));

test("two hundred calls at once over a bad network are stored in the order of the calls", async () => {
  for (let seed = 1; seed <= 20; seed += 1) {
    await withStage(
      async (stage) => {
        stage.fate = badNetwork(createSeededRandom(seed), 4);
        const stream = stage.connect({ retry: { totalMs: Infinity }, timeoutMs: 2_000 });
        const ids = Array.from({ length: 200 }, (_, id) => id);
        await stage.drive(Promise.all(ids.map((id) => stream.append(id))));
        await stage.pass(5_000);
        expect(await stage.stored(), `seed ${String(seed)}`).toEqual(ids);
      },
      { seed, isBase: seed % 4 === 0 },
    );
  }
});

test("an append that is refused takes none of its neighbours with it", () =>
  withStage(
    async (stage) => {
      const stream = stage.connect();
      await stage.drive(stream.append("first"));
      const large = "x".repeat(200);
      const calls = ["a", large, "b", "c"].map((data) => stream.append(data));
      const ends = await stage.drive(Promise.allSettled(calls));
      expect(ends.map(({ status }) => status)).toEqual([
        "fulfilled",
        "rejected",
        "fulfilled",
        "fulfilled",
      ]);
      expect(await codeOf(stage, calls[1] ?? Promise.resolve())).toBe("body_too_large");
      expect(await stage.stored()).toEqual(["first", "a", "b", "c"]);
    },
    { server: { bodyBytesMax: 100 } },
  ));

test("behind an unknown outcome nothing goes on, because it could end up before it", () =>
  withStage(async (stage) => {
    const stream = stage.connect({ retry: { totalMs: 500 } });
    await stage.drive(stream.append("first"));
    stage.fate = (sent) =>
      sent.method === "POST" ? { lost: "late", lateMs: 5_000 } : { lost: "request" };
    const lost = stream.append("a");
    await stage.pass(100);
    const behind = stream.append("b");
    const ends = await stage.drive(Promise.allSettled([lost, behind]));
    const failures = ends.map((end) => (end.status === "rejected" ? (end.reason as unknown) : end));
    expect(failures.every((failure) => isHapaxError(failure, "unreachable"))).toBe(true);
    stage.fate = () => ({});
    await stage.drive(stream.append("c"));
    await stage.pass(6_000);
    const [first, ...rest] = (await stage.stored()) as string[];
    expect(first).toBe("first");
    // The late copies land: what was unknown is stored once at most, and never twice.
    expect(rest).toContain("c");
    expect(new Set(rest).size).toBe(rest.length);
  }));

test("appends that were never sent stay behind one of unknown outcome", () =>
  withStage(async (stage) => {
    const stream = stage.connect({ retry: { totalMs: 500 } });
    await stage.drive(stream.append("first"));
    let isBroken = true;
    stage.fate = (sent) =>
      isBroken ? { lost: sent.method === "POST" ? "late" : "request", lateMs: 5_000 } : {};
    const lost = stream.append("a", { seq: "1" });
    await stage.pass(100);
    // It waits behind the other, which has to be alone on its way; then the network is well again.
    const behind = stream.append("b");
    const healed = lost.catch((error: unknown) => {
      isBroken = false;
      throw error;
    });
    const codes = await Promise.all([codeOf(stage, healed), codeOf(stage, behind)]);
    expect(codes).toEqual(["unreachable", "unreachable"]);
    await stage.pass(6_000);
    expect(await stage.stored()).toEqual(["first", "a"]);
  }));

test("a condition that does not hold refuses its own append alone, and its number is used again", () =>
  withStage(async (stage) => {
    const stream = stage.connect();
    const { offset } = await stage.drive(stream.append("a"));
    const calls = [
      stream.append("b"),
      stream.append("too late", { ifMatch: String(offset) }),
      stream.append("c"),
      stream.append("d", { seq: "2" }),
      stream.append("back", { seq: "1" }),
      stream.append("e"),
    ];
    const ends = await stage.drive(Promise.allSettled(calls));
    const codes = ends.map((end) =>
      end.status === "fulfilled" ? "stored" : (end.reason as AppendFailure).code,
    );
    expect(codes).toEqual([
      "stored",
      "tail_moved",
      "stored",
      "stored",
      "sequence_regression",
      "stored",
    ]);
    expect(await stage.stored()).toEqual(["a", "b", "c", "d", "e"]);
    const ids = new Set(appendsOf(stage).map(({ headers }) => headers["Producer-Id"]));
    expect(ids.size).toBe(1);
  }));

test("the number of an append whose condition may still come true is not used again", () =>
  withStage(async (stage) => {
    const stream = stage.connect();
    const { offset = "" } = await stage.drive(stream.append("first"));
    const [before, behind] = offset.split("_");
    const future = `${before ?? ""}_${String(Number(behind) + 9).padStart(16, "0")}`;
    for (const ifMatch of ["", future]) {
      const refused = stream.append("other", { ifMatch: ifMatch || "0".repeat(33) });
      const next = stream.append("next");
      await expect(stage.drive(refused)).rejects.toMatchObject({ code: "tail_moved" });
      await stage.drive(next);
    }
    const numbers = stage.sent.filter(({ sequence }) => sequence !== undefined);
    // A tail that has passed comes never again; one that has not may, and so may a copy of the append.
    expect(numbers.map(({ sequence }) => sequence)).toEqual([0, 1, 1, 2, 0]);
    expect(new Set(numbers.map(({ headers }) => headers["Producer-Id"])).size).toBe(2);
    expect(await stage.stored()).toEqual(["first", "next", "next"]);
  }));

test("a compare-and-append whose answer was lost is no conflict with itself", () =>
  withStage(async (stage) => {
    const stream = stage.connect();
    const { offset } = await stage.drive(stream.append("a"));
    let losses = 1;
    stage.fate = () => ((losses -= 1) >= 0 ? { lost: "answer" } : {});
    const appended = await stage.drive(stream.append("b", { ifMatch: String(offset) }));
    expect(appended.isDuplicate).toBe(true);
    expect(await stage.stored()).toEqual(["a", "b"]);
  }));

test("a decision is made again until nothing came between it and its append", () =>
  withStage(async (stage) => {
    const random = createSeededRandom(5);
    stage.fate = () => ({
      thereMs: random.below(200),
      ...(random.below(5) === 0 ? { lost: "answer" } : {}),
    });
    const increment = (): Promise<unknown> => {
      const stream = stage.connect({ retry: { pauseMs: 200 } });
      return stream.update(async () => {
        let last = 0;
        for await (const { value } of stream.read<number>()) last = value;
        return last + 1;
      });
    };
    await stage.drive(Promise.all(Array.from({ length: 8 }, increment)));
    expect(await stage.stored()).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
    const nothing = stage.connect().update(() => undefined);
    expect(await stage.drive(nothing)).toBeUndefined();
  }));

test("a retry policy that outlives the stream's window of keys is refused before anything is sent", () =>
  withStage(
    async (stage) => {
      const patient = stage.connect({ retry: { totalMs: 81_000 } });
      expect(await codeOf(stage, patient.append(1, { key: "k" }))).toBe("invalid_options");
      const forever = stage.connect({ retry: { totalMs: Infinity } });
      expect(await codeOf(stage, forever.append(1, { key: "k" }))).toBe("invalid_options");
      const fitting = stage.connect({ retry: { totalMs: 80_000 } });
      expect(await codeOf(stage, fitting.append(1, { key: "k" }))).toBe("it was done");
      expect(await stage.stored()).toEqual([1]);
    },
    {},
    { "stream-key-window": "100" },
  ));

test("without a window of the stream's own the one of the options counts", () =>
  withStage(async (stage) => {
    const short = stage.connect({ keyWindowSeconds: 10 });
    expect(await codeOf(stage, short.append(1, { key: "k" }))).toBe("invalid_options");
    expect(await codeOf(stage, stage.connect().append(1, { key: "k" }))).toBe("it was done");
  }));

test("keys and conditions are never sent to a server that would ignore them", () =>
  withStage(
    async (stage) => {
      const stream = stage.connect();
      expect(await codeOf(stage, stream.append(1, { key: "k" }))).toBe("unsupported");
      expect(await codeOf(stage, stream.append(1, { ifMatch: "0" }))).toBe("unsupported");
      expect(await codeOf(stage, stream.create({ isNew: true }))).toBe("unsupported");
      expect(await codeOf(stage, stream.create({ keyMax: 5 }))).toBe("unsupported");
      expect(await codeOf(stage, stream.resume("writer"))).toBe("unsupported");
      expect(await codeOf(stage, stream.append(2))).toBe("it was done");
      expect(await stage.stored()).toEqual([2]);
    },
    { isBase: true },
  ));

test("a key makes one append of many attempts, also by different processes", () =>
  withStage(async (stage) => {
    stage.fate = (sent) =>
      sent.body === "" || appendsOf(stage).length > 1 ? {} : { lost: "answer" };
    const key = 'pay "7" \\';
    const [one, other] = [stage.connect(), stage.connect()];
    const first = await stage.drive(one.append({ cents: 7 }, { key }));
    expect(first.isDuplicate).toBe(true);
    const second = await stage.drive(other.append({ cents: 7 }, { key }));
    expect(second).toEqual(first);
    expect(await codeOf(stage, other.append({ cents: 8 }, { key }))).toBe("key_reused");
    expect(await codeOf(stage, other.append(1, { key: "é" }))).toBe("invalid_request");
    expect(await stage.stored()).toEqual([{ cents: 7 }]);
  }));

test("the question what the server is stores nothing, and is asked once", () =>
  withStage(async (stage) => {
    const stream = stage.connect();
    await stage.drive(Promise.all([stream.append(1), stream.append(2)]));
    await stage.drive(stream.append(3));
    const questions = stage.sent.filter(({ method, body }) => method === "POST" && body === "");
    expect(questions).toHaveLength(1);
    expect(await stage.stored()).toEqual([1, 2, 3]);
    expect(questions[0]?.headers).toEqual({});
    expect((await stage.direct("POST")).status).toBe(400);
  }));

test("a proxy that answers the question makes it slower, and loses nothing", () =>
  withStage(async (stage) => {
    stage.fate = (sent) => (sent.body === "" && sent.method === "POST" ? { status: 400 } : {});
    const stream = stage.connect();
    await stage.drive(Promise.all([1, 2, 3].map((id) => stream.append(id))));
    expect(await stage.stored()).toEqual([1, 2, 3]);
    expect(appendsOf(stage).every(({ headers }) => headers["Producer-Epoch"] === "0")).toBe(true);
  }));

test("a refusal of the token says nothing of the server: the next writer asks again", () =>
  withStage(async (stage) => {
    stage.fate = (sent) => (sent.method === "POST" ? { status: 401 } : {});
    const stream = stage.connect();
    expect(await codeOf(stage, stream.append(1))).toBe("unauthenticated");
    stage.fate = () => ({});
    expect(await codeOf(stage, stream.append(2))).toBe("it was done");
    expect(appendsOf(stage).at(-1)?.headers).toHaveProperty("Producer-Session");
    expect(await stage.stored()).toEqual([2]);
  }));

test("resume tells what the stream last stored of a producer, and nothing of one it does not know", () =>
  withStage(async (stage) => {
    const stream = stage.connect();
    expect(await stage.drive(stream.resume("writer"))).toBeUndefined();
    const producer = stream.producer({ id: "writer", batchRecordsMax: 1 });
    const receipts = await stage.drive(Promise.all(["a", "b"].map((data) => producer.send(data))));
    const { offset } = receipts[1] ?? {};
    expect(await stage.drive(stream.resume("writer"))).toEqual({ epoch: 0, sequence: 1, offset });
  }));

test("a source that can be replayed goes on exactly after each crash", () =>
  withStage(async (stage) => {
    const random = createSeededRandom(9);
    const source = Array.from({ length: 60 }, (_, id) => ({ id }));
    const lives: (number | undefined)[] = [];
    for (let done = 0; done < source.length;) {
      stage.fate = (sent) => ({
        thereMs: random.below(40),
        ...(sent.sequence !== undefined && random.below(3) === 0 ? { lost: "answer" } : {}),
      });
      const life = new AbortController();
      const stream = stage.connect({ signal: life.signal });
      const state = await stage.drive(stream.resume("source"));
      lives.push(state?.epoch);
      // The stream up to the offset of the last append says how far this source got.
      done = state === undefined ? 0 : (await stage.stored()).length;
      expect(state?.offset).toBe(
        done === 0 ? undefined : (await stage.drive(stream.head())).offset,
      );
      const producer = stream.producer({ id: "source", batchRecordsMax: 1, inFlightMax: 3 });
      for (const record of source.slice(done)) producer.append(record);
      // The process dies with appends on their way; they arrive, and their answers are lost.
      await stage.pass(100 + random.below(200));
      life.abort();
      await stage.pass(100);
    }
    expect(await stage.stored()).toEqual(source);
    expect(lives.length).toBeGreaterThan(3);
  }));

test("a close comes after the appends before it, once, and with its last record", () =>
  withStage(async (stage) => {
    stage.fate = (sent) => (sent.body === "" ? {} : { thereMs: 50 });
    const stream = stage.connect();
    const calls = [stream.append(1), stream.append(2), stream.close("the end"), stream.append(3)];
    const ends = await stage.drive(Promise.allSettled(calls));
    expect(ends.map(({ status }) => status)).toEqual([
      "fulfilled",
      "fulfilled",
      "fulfilled",
      "rejected",
    ]);
    expect(await stage.stored()).toEqual([1, 2, "the end"]);
    expect(await stage.drive(stream.head())).toMatchObject({ isClosed: true });
    expect(await codeOf(stage, stream.append(4))).toBe("stream_closed");
  }));

test("a close without data whose answer is lost is answered as done", () =>
  withStage(async (stage) => {
    const stream = stage.connect();
    await stage.drive(stream.append(1));
    let losses = 2;
    stage.fate = () => ((losses -= 1) >= 0 ? { lost: "answer" } : {});
    expect(await codeOf(stage, stream.close())).toBe("it was done");
    expect(await stage.drive(stream.head())).toMatchObject({ isClosed: true });
  }));

test("create is repeated safely, and tells of another configuration by its code", async () => {
  const stage = openWriteStage();
  let losses = 1;
  stage.fate = () => ((losses -= 1) >= 0 ? { lost: "answer" } : {});
  const stream = stage.connect();
  const created = await stage.drive(stream.create({ ttlSeconds: 60, data: { id: 1 } }));
  expect(created).toMatchObject({ isCreated: true, contentType: "application/json" });
  expect(await stage.drive(stream.create({ ttlSeconds: 60 }))).toMatchObject({ isCreated: false });
  expect(await codeOf(stage, stream.create({ contentType: "text/plain" }))).toBe("stream_exists");
  expect(await codeOf(stage, stream.create({ isNew: true }))).toBe("stream_present");
  expect(await stage.stored()).toEqual([{ id: 1 }]);
  expect(await stage.drive(stream.head())).toMatchObject({ ttlSeconds: 60, isClosed: false });
  await stage.close();
});

test("delete is done once, also if its answer is lost; calls of a missing stream fail with stream_not_found", () =>
  withStage(async (stage) => {
    let losses = 1;
    stage.fate = () => ((losses -= 1) >= 0 ? { lost: "answer" } : {});
    const stream = stage.connect();
    await stage.drive(stream.delete());
    expect(await codeOf(stage, stream.delete())).toBe("stream_not_found");
    expect(await codeOf(stage, stream.append(1))).toBe("stream_not_found");
    expect(await codeOf(stage, stream.head())).toBe("stream_not_found");
  }));

test("a fork begins with the data of its source and goes its own way", () =>
  withStage(async (stage) => {
    const stream = stage.connect();
    const { offset } = await stage.drive(stream.append(1));
    await stage.drive(stream.append(2));
    const fork = await stage.drive(
      stream.fork("/v1/stream/fork", { offset: String(offset), subOffset: 0 }),
    );
    await stage.drive(fork.append("own"));
    const records: unknown[] = [];
    const read = (async () => {
      for await (const { value } of fork.read()) records.push(value);
    })();
    await stage.drive(read);
    expect(records).toEqual([1, "own"]);
    expect(await stage.stored()).toEqual([1, 2]);
  }));

test("an append that is given up before it was sent is not stored; after that it may be", () =>
  withStage(async (stage) => {
    const stream = stage.connect();
    await stage.drive(stream.append("a"));
    const early = new AbortController();
    const call = stream.append("never", { signal: early.signal });
    early.abort(new Error("changed my mind"));
    expect(await codeOf(stage, call)).toBe("Error: changed my mind");
    stage.fate = () => ({ thereMs: 1_000 });
    const late = new AbortController();
    const sent = stream.append("sent", { signal: late.signal });
    await stage.pass(100);
    late.abort(new Error("too slow"));
    expect(await codeOf(stage, sent)).toBe("Error: too slow");
    stage.fate = () => ({});
    await stage.drive(stream.append("b"));
    // It was still on its way: what is appended after it fences it.
    await stage.pass(2_000);
    expect(await stage.stored()).toEqual(["a", "b"]);
    const gone = AbortSignal.abort(new Error("from the start"));
    expect(await codeOf(stage, stream.append("x", { signal: gone }))).toBe("Error: from the start");
  }));

test("data that the stream cannot hold is refused before it is sent", () =>
  withStage(async (stage) => {
    const stream = stage.connect();
    const loop: Record<string, unknown> = {};
    loop["self"] = loop;
    expect(await codeOf(stage, stream.append(undefined))).toBe("invalid_request");
    expect(await codeOf(stage, stream.append(loop))).toBe("invalid_request");
    expect(
      await codeOf(
        stage,
        stream.append(() => 1),
      ),
    ).toBe("invalid_request");
    // The type is not known yet: bytes may be right. They are not, and the others go on.
    const calls = [stream.append(new Uint8Array([1])), stream.append("fine")];
    const ends = await stage.drive(Promise.allSettled(calls));
    expect(ends[0]).toMatchObject({ status: "rejected", reason: { code: "invalid_request" } });
    expect(await codeOf(stage, stream.append([1, [2]]))).toBe("it was done");
    expect((await stage.stored()).at(-1)).toEqual([1, [2]]);
  }));

test("a URL and options that are not valid are refused at once", () => {
  expect(() => connect("not a url")).toThrow(expect.objectContaining({ code: "invalid_options" }));
  const options = { retry: { totalMs: -1, pauseMs: 5, pauseMsMax: 1 }, timeoutMs: 0 };
  expect(() => connect("http://stage.test/s", options)).toThrow(
    /retry.pauseMsMax=1 is not from 5.*timeoutMs=0/,
  );
});
