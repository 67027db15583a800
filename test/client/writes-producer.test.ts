/** The producer against a real server: each answer that it can get, and what it makes of it. */

import { expect, test } from "vitest";
import { AppendFailure, type Producer, type ProducerOptions } from "../../src/client/client.ts";
import { isHapaxError } from "../../src/base/errors.ts";
import { createSeededRandom } from "../../src/testing/seeded-random.ts";
import { type Fate, openWriteStage, type StageOptions, type WriteStage } from "./writes-stage.ts";

async function withStage(
  options: StageOptions,
  run: (stage: WriteStage) => Promise<void>,
  contentType = "application/json",
): Promise<void> {
  const stage = openWriteStage(options);
  await stage.direct("PUT", { "content-type": contentType });
  await run(stage);
  await stage.close();
}

/** One record in each batch, so that a test can name them. */
const SINGLE: ProducerOptions = { batchRecordsMax: 1 };

async function failureOf(stage: WriteStage, promise: Promise<unknown>): Promise<AppendFailure> {
  const error: unknown = await stage.drive(
    promise.then(
      () => undefined,
      (reason: unknown) => reason,
    ),
  );
  expect(error).toBeInstanceOf(AppendFailure);
  return error as AppendFailure;
}

function appendAll(producer: Producer, count: number): void {
  for (let id = 0; id < count; id += 1) producer.append(id);
}

const outcomes = (failure: AppendFailure): unknown[] =>
  failure.unconfirmed.map(({ data, outcome, isCause }) => [data, outcome, isCause]);

/** The fate of the first attempts of one batch. */
function befalls(sequence: number, ...fates: readonly Fate[]): WriteStage["fate"] {
  const left = [...fates];
  return (sent) => (sent.sequence === sequence ? (left.shift() ?? {}) : {});
}

test("G19 one 503 on batch 1 of 5 loses nothing, and every flush is true", () =>
  withStage({}, async (stage) => {
    stage.fate = befalls(1, { status: 503 });
    const producer = stage.connect().producer(SINGLE);
    const flushes: Promise<void>[] = [];
    for (let id = 0; id < 5; id += 1) {
      producer.append({ id });
      flushes.push(producer.flush());
    }
    await stage.drive(Promise.all(flushes));
    expect(await stage.stored()).toEqual([0, 1, 2, 3, 4].map((id) => ({ id })));
    expect(producer.pendingCount).toBe(0);
    const attempts = stage.sent.filter(({ sequence }) => sequence === 1);
    expect(attempts).toHaveLength(2);
    expect(attempts[0]).toEqual(attempts[1]);
  }));

test("fifty in flight with random lost answers keep their order", () =>
  withStage({}, async (stage) => {
    const random = createSeededRandom(50);
    stage.fate = (sent) => ({
      thereMs: random.below(300),
      ...(sent.sequence !== undefined && random.below(3) === 0 ? { lost: "answer" } : {}),
    });
    const producer = stage.connect().producer({ ...SINGLE, inFlightMax: 50 });
    producer.append("the largest");
    await stage.drive(producer.flush());
    appendAll(producer, 400);
    let inFlightMost = 0;
    const flushed = producer.flush();
    for (let round = 0; round < 20; round += 1) {
      await stage.pass(10);
      inFlightMost = Math.max(inFlightMost, producer.inFlightCount);
    }
    await stage.drive(flushed);
    expect(inFlightMost).toBe(50);
    const records = Array.from({ length: 400 }, (_, id) => id);
    expect(await stage.stored()).toEqual(["the largest", ...records]);
    expect(stage.sent.length).toBeGreaterThan(500);
  }));

test("a zombie writes nothing after another took over, and hears that it is fenced", () =>
  withStage({}, async (stage) => {
    const zombie = stage.connect().producer({ ...SINGLE, id: "writer" });
    zombie.append("z0");
    await stage.drive(zombie.flush());
    const heir = stage.connect().producer({ ...SINGLE, id: "writer" });
    heir.append("h0");
    await stage.drive(heir.flush());
    let heard: AppendFailure | undefined;
    zombie.append("z1");
    zombie.append("z2");
    const failure = await failureOf(stage, zombie.flush());
    expect(failure.code).toBe("producer_fenced");
    expect(outcomes(failure)).toEqual([
      ["z1", "not_stored", true],
      ["z2", "not_stored", false],
    ]);
    expect(() => {
      zombie.append("z3");
    }).toThrow(failure);
    heard = await failureOf(stage, zombie.send("z4"));
    expect(heard.code).toBe("producer_fenced");
    expect(await stage.stored()).toEqual(["z0", "h0"]);
    expect([zombie.epoch, heir.epoch]).toEqual([0, 1]);
  }));

test("an append whose answer was lost before the fence is unknown, and it was stored indeed", () =>
  withStage({}, async (stage) => {
    const zombie = stage.connect().producer({ ...SINGLE, id: "writer" });
    zombie.append("z0");
    await stage.drive(zombie.flush());
    stage.fate = befalls(1, { lost: "answer", isSilent: true });
    zombie.append("z1");
    await stage.pass(1_000);
    const heir = stage.connect().producer({ ...SINGLE, id: "writer" });
    heir.append("h0");
    await stage.drive(heir.flush());
    const failure = await failureOf(stage, zombie.flush());
    expect(failure.code).toBe("producer_fenced");
    expect(outcomes(failure)).toEqual([["z1", "unknown", true]]);
    expect(await stage.stored()).toEqual(["z0", "z1", "h0"]);
  }));

test("a gap that cannot be filled ends the producer: the server has forgotten it", () =>
  withStage({}, async (stage) => {
    const producer = stage.connect().producer({ ...SINGLE, id: "writer" });
    appendAll(producer, 3);
    await stage.drive(producer.flush());
    await stage.direct("DELETE");
    await stage.direct("PUT", { "content-type": "application/json" });
    producer.append(3);
    producer.append(4);
    const failure = await failureOf(stage, producer.flush());
    expect(failure.code).toBe("producer_gap");
    expect(outcomes(failure)).toEqual([
      [3, "not_stored", true],
      [4, "not_stored", false],
    ]);
    expect(await stage.stored()).toEqual([]);
  }));

test("batches that overtake each other by more than the server waits are sent again", () =>
  withStage({}, async (stage) => {
    stage.fate = befalls(1, { thereMs: 12_000 });
    const producer = stage.connect().producer(SINGLE);
    appendAll(producer, 5);
    await stage.drive(producer.flush());
    expect(await stage.stored()).toEqual([0, 1, 2, 3, 4]);
    // Held for five seconds, answered with a gap, and sent again when the one before was there.
    expect(stage.sent.filter(({ sequence }) => sequence === 4)).toHaveLength(2);
  }));

test("a closed stream hands back what came after the close", () =>
  withStage({}, async (stage) => {
    const producer = stage.connect().producer(SINGLE);
    producer.append(0);
    await stage.drive(producer.flush());
    await stage.direct("POST", { "stream-closed": "true" });
    producer.append(1);
    const failure = await failureOf(stage, producer.flush());
    expect(failure.code).toBe("stream_closed");
    expect(outcomes(failure)).toEqual([[1, "not_stored", true]]);
  }));

test("a batch that is too large is cut smaller, and the numbers stay right", () =>
  withStage({ server: { bodyBytesMax: 100 } }, async (stage) => {
    const acks: number[] = [];
    const producer = stage.connect().producer({
      batchRecordsMax: 32,
      onBatchAck: ({ sequence, records }) => acks.push(sequence, records),
    });
    const records = Array.from({ length: 64 }, (_, id) => `record ${String(id)}`);
    for (const record of records) producer.append(record);
    await stage.drive(producer.flush());
    expect(await stage.stored()).toEqual(records);
    const sequences = acks.filter((_, at) => at % 2 === 0);
    expect(sequences).toEqual(sequences.map((_, at) => at));
    expect(acks.filter((_, at) => at % 2 === 1).reduce((sum, count) => sum + count)).toBe(64);
  }));

/** Batch 2 is too large for a proxy on the way; of those behind it one is lost, and arrives late. */
function shrunk(): WriteStage["fate"] {
  const [small, late] = [
    befalls(2, { status: 413, thereMs: 1_000 }),
    befalls(3, { lost: "late", lateMs: 4_000 }),
  ];
  return (sent, at) => ({ ...small(sent, at), ...late(sent, at) });
}

test("a producer of a random id goes on under a new one if others were sent behind a batch that is cut", () =>
  withStage({}, async (stage) => {
    stage.fate = shrunk();
    const producer = stage.connect().producer({ batchRecordsMax: 4 });
    const records = Array.from({ length: 40 }, (_, id) => id + 10);
    for (const record of records) producer.append(record);
    await stage.drive(producer.flush());
    await stage.pass(10_000);
    expect(await stage.stored()).toEqual(records);
    // No number of an identity had two bodies but the one that was refused for its size.
    const bodies = new Map<string, Set<string>>();
    for (const { headers, sequence, body } of stage.sent) {
      if (sequence === undefined) continue;
      const number = `${headers["Producer-Id"] ?? ""} ${String(sequence)}`;
      bodies.set(number, (bodies.get(number) ?? new Set()).add(body));
    }
    expect([...bodies.values()].every(({ size }) => size === 1)).toBe(true);
    expect(new Set([...bodies.keys()].map((number) => number.split(" ")[0])).size).toBe(2);
    expect(producer.epoch).toBe(0);
  }));

test("a named producer ends if others were sent behind a batch that would be cut, and knows that none is stored", () =>
  withStage({}, async (stage) => {
    stage.fate = shrunk();
    const producer = stage.connect().producer({ id: "writer", batchRecordsMax: 4 });
    const records = Array.from({ length: 40 }, (_, id) => id + 10);
    for (const record of records) producer.append(record);
    const failure = await failureOf(stage, producer.flush());
    expect(failure.code).toBe("body_too_large");
    const rest = records.slice(8).map((id) => [id, "not_stored", id < 22]);
    expect(outcomes(failure)).toEqual(rest);
    await stage.pass(10_000);
    expect(await stage.stored()).toEqual(records.slice(0, 8));
  }));

test("what was stored before a batch that is cut stays before what goes on under a new id", () =>
  withStage({}, async (stage) => {
    // Batch 3 is refused while batch 1 is stored and its answer has not arrived yet.
    const held = befalls(1, { lost: "answer" }, { status: 503 });
    const small = befalls(3, { status: 413, thereMs: 20 });
    stage.fate = (sent, at) => ({ ...held(sent, at), ...small(sent, at) });
    const producer = stage.connect().producer({ batchRecordsMax: 2, inFlightMax: 8 });
    const records = Array.from({ length: 30 }, (_, id) => id + 10);
    for (const record of records) producer.append(record);
    await stage.drive(producer.flush());
    expect(await stage.stored()).toEqual(records);
  }));

test("nothing is sent behind a batch larger than all before, and beside others a little larger one is cut down", () =>
  withStage({}, async (stage) => {
    const producer = stage.connect().producer({ batchRecordsMax: 2, inFlightMax: 9 });
    const inFlight = async (...data: readonly string[]): Promise<number> => {
      for (const one of data) producer.append(one);
      await stage.pass(200);
      const count = producer.inFlightCount;
      await stage.drive(producer.flush());
      return count;
    };
    stage.fate = (sent) => (sent.sequence === undefined ? {} : { thereMs: 1_000 });
    // The first of a size, and one of twice the size, are alone; then as many as wanted are on their way.
    expect(await inFlight("aa", "bb", "cc", "dd")).toBe(1);
    expect(await inFlight("aa", "bb", "cc", "dd", "ee", "ff")).toBe(3);
    expect(await inFlight("a".repeat(9), "b".repeat(9), "cc", "dd")).toBe(1);
    // Two records of the new size are less than twice as much: one goes without the other, and none waits.
    stage.sent.length = 0;
    expect(await inFlight("cc", "dd", "e".repeat(11), "f".repeat(11), "gg")).toBe(3);
    expect(stage.sent.map(({ body }) => body.length)).toEqual([11, 15, 20]);
    expect(await stage.stored()).toHaveLength(19);
  }));

test("a single record that is too large is named; those before it are stored", () =>
  withStage({ server: { bodyBytesMax: 60 } }, async (stage) => {
    const producer = stage.connect().producer();
    const large = "x".repeat(100);
    for (const data of ["a", "b", large, "c"]) producer.append(data);
    const failure = await failureOf(stage, producer.flush());
    expect(failure.code).toBe("body_too_large");
    expect(outcomes(failure)).toEqual([
      [large, "not_stored", true],
      ["c", "not_stored", false],
    ]);
    expect(await stage.stored()).toEqual(["a", "b"]);
  }));

test("a record that the server cannot take as JSON is found in its batch", () =>
  withStage({}, async (stage) => {
    const producer = stage.connect().producer();
    const deep: unknown = JSON.parse("[".repeat(600) + "]".repeat(600));
    for (const data of [0, 1, 2, deep, 4, 5]) producer.append(data);
    const failure = await failureOf(stage, producer.flush());
    expect(failure.code).toBe("invalid_json");
    expect(failure.unconfirmed.filter(({ isCause }) => isCause)).toEqual([
      { data: deep, outcome: "not_stored", isCause: true },
    ]);
    expect(await stage.stored()).toEqual([0, 1, 2]);
  }));

test("another refusal hands back its batch and those behind it, which stay unstored", () =>
  withStage({}, async (stage) => {
    stage.fate = befalls(1, { status: 402, words: "pay first" });
    const failures: AppendFailure[] = [];
    const producer = stage.connect().producer({
      ...SINGLE,
      onError: (failure) => failures.push(failure),
    });
    const sends = [0, 1, 2, 3].map((data) => producer.send(data));
    const ends = await stage.drive(Promise.allSettled(sends));
    expect(ends.map(({ status }) => status)).toEqual([
      "fulfilled",
      "rejected",
      "rejected",
      "rejected",
    ]);
    const failure = await failureOf(stage, producer.flush());
    expect(failures).toEqual([failure]);
    expect([failure.code, failure.retry]).toEqual(["refused", "never"]);
    expect(failure.message).toContain("pay first status=402");
    expect(outcomes(failure)).toEqual([
      [1, "not_stored", true],
      [2, "not_stored", false],
      [3, "not_stored", false],
    ]);
    await stage.pass(10_000);
    expect(await stage.stored()).toEqual([0]);
  }));

test("G19 what was sent behind an unknown batch is unknown too, also if the server has refused it", () =>
  withStage({}, async (stage) => {
    // No attempt of batch 1 arrives; batch 2 is refused for the gap. A copy that the network keeps may come later.
    stage.fate = (sent) => (sent.sequence === 1 ? { lost: "request" } : {});
    const retry = { pauseMs: 10, pauseMsMax: 20, totalMs: 500 };
    const producer = stage.connect({ retry }).producer(SINGLE);
    appendAll(producer, 3);
    const failure = await failureOf(stage, producer.flush());
    expect(stage.sent.some(({ sequence }) => sequence === 2)).toBe(true);
    expect(outcomes(failure)).toEqual([
      [1, "unknown", true],
      [2, "unknown", false],
    ]);
  }));

test("giving up is unknown for what was sent, certain for what was not", () =>
  withStage({}, async (stage) => {
    const producer = stage
      .connect({ retry: { totalMs: 1_000 } })
      .producer({ ...SINGLE, inFlightMax: 2 });
    producer.append("before");
    await stage.drive(producer.flush());
    stage.fate = (sent) => ({ lost: sent.method === "HEAD" ? "request" : "answer" });
    appendAll(producer, 4);
    const failure = await failureOf(stage, producer.flush());
    expect(failure.code).toBe("unreachable");
    expect(outcomes(failure)).toEqual([
      [0, "unknown", true],
      [1, "unknown", false],
      [2, "not_stored", false],
      [3, "not_stored", false],
    ]);
    expect(await stage.stored()).toEqual(["before", 0, 1]);
  }));

test("before it gives up the producer asks what is stored, and goes on if all is", () =>
  withStage({}, async (stage) => {
    const producer = stage
      .connect({ retry: { totalMs: 1_000 } })
      .producer({ ...SINGLE, inFlightMax: 2 });
    producer.append("before");
    await stage.drive(producer.flush());
    stage.fate = (sent) =>
      sent.method === "POST" && (sent.sequence ?? 9) < 3 ? { lost: "answer" } : {};
    const receipts = Promise.all(["a", "b", "c"].map((data) => producer.send(data)));
    expect(await stage.drive(receipts)).toMatchObject([
      { sequence: 1, isDuplicate: true, offset: undefined },
      { sequence: 2, isDuplicate: true, offset: undefined },
      { sequence: 3, isDuplicate: false },
    ]);
    await stage.drive(producer.flush());
    expect(await stage.stored()).toEqual(["before", "a", "b", "c"]);
  }));

test("a receipt has the place of the batch, also if the answer was lost", () =>
  withStage({}, async (stage) => {
    stage.fate = befalls(0, { lost: "answer" });
    const producer = stage.connect().producer(SINGLE);
    const [first, second] = await stage.drive(
      Promise.all([producer.send("a"), producer.send("b")]),
    );
    expect(first).toMatchObject({ epoch: 0, sequence: 0, isDuplicate: true });
    expect(second).toMatchObject({ epoch: 0, sequence: 1, isDuplicate: false });
    const head = await stage.direct("HEAD");
    expect(second?.offset).toBe(head.header("stream-next-offset"));
    expect(String(first?.offset) < String(second?.offset)).toBe(true);
  }));

test("a producer never holds more than its limit, and says when there is room", () =>
  withStage({}, async (stage) => {
    const options = { highWaterBytes: 1_000, pendingBytesMax: 2_000 };
    const producer = stage.connect().producer(options);
    let taken = 0;
    const fill = (): unknown => {
      try {
        for (; taken < 1_000; taken += 1) producer.append(taken);
        return undefined;
      } catch (error) {
        return error;
      }
    };
    expect(isHapaxError(fill(), "producer_full")).toBe(true);
    // Each record of a byte or two counts 128 more.
    expect(taken).toBe(15);
    expect(producer.pendingCount).toBe(15);
    await stage.drive(producer.ready);
    producer.append(taken);
    await stage.drive(producer.close());
    expect(await stage.stored()).toHaveLength(16);
    expect(() => {
      producer.append(1);
    }).toThrow(expect.objectContaining({ code: "producer_closed" }));
  }));

test("back-pressure bounds what waits for a server that does not answer", () =>
  withStage({}, async (stage) => {
    stage.fate = () => ({ status: 503 });
    const producer = stage
      .connect({ retry: { totalMs: 5_000 } })
      .producer({ highWaterBytes: 10_000, pendingBytesMax: 20_000 });
    let isReady = false;
    let given = 0;
    const feed = (async () => {
      while (given < 10_000) {
        isReady = false;
        await producer.ready;
        isReady = true;
        producer.append(given);
        given += 1;
      }
    })().catch((error: unknown) => error);
    await stage.pass(2_000);
    expect(isReady).toBe(false);
    expect(given).toBeLessThan(100);
    // The end of the producer wakes the callers that wait.
    expect(await stage.drive(feed)).toBeInstanceOf(AppendFailure);
  }));

test("batches fill while others are on their way, and go beside them when they are worth it", () =>
  withStage({}, async (stage) => {
    stage.fate = () => ({ thereMs: 100 });
    const acks: number[] = [];
    const producer = stage.connect().producer({
      batchBytesMax: 1_000,
      onBatchAck: ({ records }) => acks.push(records),
    });
    await stage.drive(producer.send("warm"));
    for (let id = 0; id < 30; id += 1) {
      producer.append(id);
      await stage.pass(10);
      expect(producer.inFlightCount).toBe(1);
    }
    await stage.drive(producer.flush());
    // The first goes at once and alone; what came meanwhile shares a batch.
    expect(acks.slice(0, 2)).toEqual([1, 1]);
    expect(Math.min(...acks.slice(2, -1))).toBeGreaterThan(3);
    expect(await stage.stored()).toHaveLength(31);
    await stage.drive(producer.send("-".repeat(300)));
    for (const fill of ["a", "b", "c"]) {
      producer.append(fill.repeat(300));
      await stage.pass(10);
    }
    expect(producer.inFlightCount).toBe(3);
    await stage.drive(producer.flush());
    expect(await stage.stored()).toHaveLength(35);
  }));

test("a batch has at most its bytes, also of texts whose characters are several", () =>
  withStage({}, async (stage) => {
    const producer = stage.connect().producer({ batchBytesMax: 1_000 });
    const records = Array.from({ length: 600 }, (_, id) => "aé€😀".repeat(id % 9) + String(id));
    for (const record of records) producer.append(record);
    await stage.drive(producer.flush());
    expect(await stage.stored()).toEqual(records);
    const sizes = stage.sent.map(({ body }) => new TextEncoder().encode(body).length);
    expect(Math.max(...sizes)).toBeLessThanOrEqual(1_000);
    // They are well filled all the same.
    expect(sizes.filter((size) => size > 700).length).toBeGreaterThan(sizes.length / 2);
  }));

test("lingering waits for a full batch, for its time, or for a flush", () =>
  withStage({}, async (stage) => {
    const options = { lingerMs: 1_000, batchRecordsMax: 3 };
    const producer = stage.connect().producer(options);
    const sent = (): number => stage.sent.filter(({ sequence }) => sequence !== undefined).length;
    producer.append(0);
    producer.append(1);
    await stage.pass(900);
    expect(sent()).toBe(0);
    producer.append(2);
    await stage.pass(50);
    expect(sent()).toBe(1);
    producer.append(3);
    await stage.pass(1_100);
    expect(sent()).toBe(2);
    producer.append(4);
    await stage.drive(producer.flush());
    expect(sent()).toBe(3);
    expect(await stage.stored()).toEqual([0, 1, 2, 3, 4]);
    // A flush with nothing to send does not hurry later appends.
    await stage.drive(producer.flush());
    producer.append(5);
    await stage.pass(900);
    expect(sent()).toBe(3);
    await stage.drive(producer.close());
  }));

test("bytes and text are stored one after the other, as they were when they were given", () =>
  withStage(
    {},
    async (stage) => {
      const producer = stage.connect().producer();
      const buffer = new Uint8Array([97, 98]);
      producer.append(buffer);
      buffer.fill(0);
      producer.append("cé😀");
      await stage.drive(producer.flush());
      expect(await stage.stored()).toEqual(["abcé😀"]);
      expect(() => {
        producer.append({ not: "bytes" });
      }).toThrow(expect.objectContaining({ code: "invalid_request" }));
    },
    "text/plain",
  ));

test("on a server without sessions one batch is on its way at a time, under an epoch", () =>
  withStage({ isBase: true }, async (stage) => {
    const random = createSeededRandom(3);
    stage.fate = (sent) =>
      sent.sequence !== undefined && random.below(3) === 0 ? { lost: "answer" } : {};
    const producer = stage.connect().producer(SINGLE);
    appendAll(producer, 50);
    const flushed = producer.flush();
    let inFlightMost = 0;
    for (let round = 0; round < 50; round += 1) {
      await stage.pass(10);
      inFlightMost = Math.max(inFlightMost, producer.inFlightCount);
    }
    await stage.drive(flushed);
    expect(inFlightMost).toBe(1);
    expect(await stage.stored()).toEqual(Array.from({ length: 50 }, (_, id) => id));
    const appends = stage.sent.filter(({ sequence }) => sequence !== undefined);
    expect(appends.every(({ headers }) => headers["Producer-Epoch"] === "0")).toBe(true);
    expect(appends.some(({ headers }) => "Prefer" in headers)).toBe(false);
  }));

test("a named producer needs an epoch where there are no sessions, and one that is new", () =>
  withStage({ isBase: true }, async (stage) => {
    const without = stage.connect().producer({ id: "writer" });
    without.append("never sent");
    const failure = await failureOf(stage, without.flush());
    expect(failure.code).toBe("unsupported");
    expect(outcomes(failure)).toEqual([["never sent", "not_stored", true]]);
    let epoch = 4;
    const epochs = (): number => (epoch += 1);
    const first = stage.connect().producer({ id: "writer", epoch: epochs });
    first.append("a");
    await stage.drive(first.flush());
    const again = stage.connect().producer({ id: "writer", epoch: 5 });
    again.append("other data under a number that was used");
    const reused = await failureOf(stage, again.flush());
    expect(reused.code).toBe("producer_seq_reused");
    expect(outcomes(reused)).toEqual([
      ["other data under a number that was used", "not_stored", true],
    ]);
    const same = stage.connect().producer({ id: "writer", epoch: 5 });
    same.append("a");
    expect((await failureOf(stage, same.flush())).code).toBe("producer_fenced");
    const second = stage.connect().producer({ id: "writer", epoch: epochs });
    second.append("b");
    await stage.drive(second.flush());
    expect(await stage.stored()).toEqual(["a", "b"]);
    expect(second.epoch).toBe(6);
  }));

test("a server that knows no producers is found out by its first answer", () =>
  withStage({}, async (stage) => {
    stage.fate = (sent) => (sent.sequence === undefined ? {} : { status: 204 });
    const producer = stage.connect().producer(SINGLE);
    producer.append("a");
    const failure = await failureOf(stage, producer.flush());
    expect(failure.code).toBe("unsupported");
    expect(outcomes(failure)).toEqual([["a", "unknown", true]]);
  }));

test("options that cannot be kept are refused together", () =>
  withStage({}, async (stage) => {
    const stream = stage.connect();
    expect(() => stream.producer({ inFlightMax: 0, batchBytesMax: -1, lingerMs: NaN })).toThrow(
      /batchBytesMax=-1.*inFlightMax=0.*lingerMs=NaN/,
    );
    expect(() => stream.producer({ id: "two\nlines" })).toThrow(/id must be/);
    await Promise.resolve();
  }));

test("the connection's signal ends a producer; what was sent is unknown", () =>
  withStage({}, async (stage) => {
    const controller = new AbortController();
    const producer = stage
      .connect({ signal: controller.signal })
      .producer({ ...SINGLE, inFlightMax: 1 });
    await stage.drive(producer.send("a"));
    stage.fate = () => ({ thereMs: 5_000 });
    producer.append("b");
    producer.append("c");
    await stage.pass(100);
    controller.abort();
    const failure = await failureOf(stage, producer.flush());
    expect(failure.code).toBe("producer_closed");
    expect(outcomes(failure)).toEqual([
      ["b", "unknown", true],
      ["c", "not_stored", false],
    ]);
    await stage.pass(6_000);
    expect(await stage.stored()).toEqual(["a", "b"]);
  }));
