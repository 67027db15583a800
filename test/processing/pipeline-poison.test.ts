// Records that cannot be processed are put aside, with every kind of problem. PROTOCOL.md §19, §20.3
import Database from "libsql";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { connectServer } from "../../src/client/processing.ts";
import { RecordFailure } from "../../src/client/processing/pipeline-attempts.ts";
import type { PipelineOptions } from "../../src/client/processing/pipeline-options.ts";
import { streamSink } from "../../src/client/processing/pipeline-stream-sink.ts";
import { startNodeServer } from "../../src/streams/runtimes/node.ts";
import { sqliteLedger } from "../../src/toolkit/ledgers/sqlite.ts";
import { ledgerSink } from "../../src/toolkit/once/ledger-sink.ts";
import {
  DEAD,
  fill,
  INPUT,
  type Numbered,
  numbers,
  OUTPUT,
  untilDone,
  valuesOf,
} from "./pipeline-kit.ts";
import { openStage, type ProcessingStage } from "./stage.ts";

let stage: ProcessingStage;
beforeEach(async () => {
  stage = await openStage();
});
afterEach(() => stage.close());

const ONCE = { attemptsMax: 1 };

/** What functions throw, and what is left of it in words. */
const THROWN: readonly (readonly [string, () => unknown])[] = [
  ["no prototype", () => Object.create(null) as unknown],
  ["a message that is no text", () => Object.assign(new Error("x"), { message: undefined })],
  ["a name that is no text", () => Object.assign(new Error("x"), { name: 7, message: { a: 1 } })],
  ["nothing", () => undefined],
  ["null", () => null],
  ["a symbol", () => Symbol("poison")],
  ["a number", () => 5],
  [
    "words that fail",
    () => ({
      toString: () => {
        throw new Error("no words");
      },
    }),
  ],
  [
    "a message that fails",
    () =>
      Object.defineProperty(new Error("x"), "message", {
        get() {
          throw new Error("no");
        },
      }),
  ],
  ["half a character", () => new Error("\ud800")],
  ["a long one", () => new Error("x".repeat(100_000))],
];

type Strategy = "streams" | "a database" | "ids";

/** A pipeline of each kind. */
function options(strategy: Strategy): Pick<PipelineOptions<Numbered, never>, "to" | "sink"> {
  if (strategy === "streams") return { to: OUTPUT };
  if (strategy === "ids") return { sink: streamSink(stage.direct.stream(OUTPUT)) };
  // Cast: nothing of these tests looks at the transaction.
  return { sink: ledgerSink(sqliteLedger(() => new Database(":memory:"))) as never };
}

describe.each(["streams", "a database", "ids"] as const)("with effects in %s", (strategy) => {
  test.each(THROWN)("a record is put aside whose function throws %s", async (_, thrown) => {
    await fill(stage.direct, INPUT, 3);
    if (strategy === "streams") await stage.direct.stream(OUTPUT).create();
    const pipeline = untilDone<Numbered, never>(stage.direct, 3, {
      ...options(strategy),
      from: { streams: [INPUT] },
      group: "poison",
      deadLetter: DEAD,
      retry: ONCE,
      each: ({ n }) => {
        // Functions of users throw anything.
        if (n === 1) throw thrown() as Error;
      },
    });
    await pipeline.run();
    const letters = await stage.direct.deadLetters(DEAD).list();
    expect(letters).toMatchObject([{ record: { n: 1 }, attempts: 1 }]);
    expect(typeof letters[0]?.reason.message).toBe("string");
    expect(pipeline.counters).toMatchObject({ records: 3, deadLetters: 1 });
  });

  test("without a place for dead letters the failure names the record", async () => {
    await fill(stage.direct, INPUT, 1);
    const pipeline = untilDone<Numbered, never>(stage.direct, 1, {
      ...options(strategy),
      from: { streams: [INPUT] },
      group: "poison",
      retry: ONCE,
      each: () => {
        throw Object.create(null) as Error;
      },
    });
    await expect(pipeline.run()).rejects.toBeInstanceOf(RecordFailure);
  });

  test("a record is put aside and replayed with every digit", async () => {
    const nasty = '{"big":12345678901234567890,"far":1e999,"exact":1.0,"twice":1,"twice":2}';
    await stage.direct.stream(INPUT).create();
    if (strategy === "streams") await stage.direct.stream(OUTPUT).create();
    const post = (body: string) =>
      fetch(stage.server.url + INPUT, {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body,
      });
    await post(`[1,${nasty},2]`);
    const pipeline = untilDone<unknown, never>(stage.direct, 3, {
      ...(options(strategy) as object),
      from: { streams: [INPUT] },
      group: "poison",
      deadLetter: DEAD,
      retry: ONCE,
      each: (record) => {
        if (typeof record === "object") throw new Error("nasty");
      },
    });
    await pipeline.run();
    const letters = stage.direct.deadLetters(DEAD);
    const [letter] = await letters.list();
    expect(letter?.recordText).toBe(nasty);
    expect(await letters.replay([letter?.id ?? ""])).toBe(1);
    const stored = await (await fetch(stage.server.url + INPUT)).text();
    expect(stored).toBe(`[1,${nasty},2,${nasty}]`);
  });
});

describe.each(["streams", "a database", "ids"] as const)(
  "with a small server and effects in %s",
  (strategy) => {
    test("a record that is too large for its letter stays in its stream, and is replayed from there", async () => {
      const small = await startNodeServer({ store: "memory", port: 0, bodyBytesMax: 4000 });
      const hapax = connectServer(small.url);
      await fill(hapax, INPUT, 1);
      const large = { n: 1, text: "x".repeat(3300) };
      await hapax.stream(INPUT).append(large);
      await hapax.stream(INPUT).append({ n: 2 });
      if (strategy === "streams") await hapax.stream(OUTPUT).create();
      const own =
        strategy === "ids" ? { sink: streamSink(hapax.stream(OUTPUT)) } : options(strategy);
      const pipeline = untilDone<Numbered, never>(hapax, 3, {
        ...own,
        from: { streams: [INPUT] },
        group: "poison",
        deadLetter: DEAD,
        retry: ONCE,
        each: ({ n }) => {
          if (n === 1) throw new Error("e".repeat(1000));
        },
      });
      await pipeline.run();
      const letters = hapax.deadLetters(DEAD);
      const [letter, ...others] = await letters.list();
      expect(others).toEqual([]);
      expect(letter).toMatchObject({
        record: undefined,
        recordBytes: JSON.stringify(large).length,
      });
      expect(await letters.replay([letter?.id ?? ""])).toBe(1);
      expect(await letters.list()).toEqual([]);
      const values = await valuesOf<unknown>(hapax, INPUT);
      expect(values).toEqual([{ n: 0 }, large, { n: 2 }, large]);
      await small.stop();
    });
  },
);

describe("outputs that cannot be stored", () => {
  const COUNT = 2000;

  test("a page of them costs each record its attempts, and no more", async () => {
    await fill(stage.direct, INPUT, COUNT);
    await stage.direct.stream(OUTPUT).create();
    let calls = 0;
    const pipeline = untilDone<Numbered>(stage.direct, COUNT, {
      from: { streams: [INPUT] },
      group: "poison",
      to: OUTPUT,
      deadLetter: DEAD,
      retry: ONCE,
      each: ({ n }) => {
        calls += 1;
        return n % 2 === 0 ? { n } : { n: BigInt(n) };
      },
    });
    await pipeline.run();
    expect(calls).toBe(COUNT);
    expect(pipeline.counters).toMatchObject({ records: COUNT, deadLetters: COUNT / 2 });
    const kept = (await valuesOf(stage.direct, OUTPUT)).map(({ n }) => n);
    expect(kept).toEqual(numbers(COUNT).filter((n) => n % 2 === 0));
  });

  test("the type of a stream that was not known costs one attempt more", async () => {
    await fill(stage.direct, INPUT, COUNT);
    await stage.direct.stream(OUTPUT).create({ contentType: "text/plain" });
    let calls = 0;
    const pipeline = untilDone<Numbered>(stage.direct, COUNT, {
      from: { streams: [INPUT] },
      group: "poison",
      to: OUTPUT,
      deadLetter: DEAD,
      retry: ONCE,
      each: ({ n }) => {
        calls += 1;
        return n === 7 ? "seven" : { n };
      },
    });
    await pipeline.run();
    expect(calls).toBeLessThanOrEqual(2 * COUNT);
    expect(pipeline.counters).toMatchObject({ records: COUNT, deadLetters: COUNT - 1 });
    expect(await stage.direct.stream(OUTPUT).read().values()).toEqual(["seven"]);
  });

  test("a record that gives more than a transaction can hold is put aside alone", async () => {
    const small = await startNodeServer({ store: "memory", port: 0, bodyBytesMax: 20_000 });
    const hapax = connectServer(small.url);
    await fill(hapax, INPUT, 40);
    await hapax.stream(OUTPUT).create();
    const pipeline = untilDone<Numbered>(hapax, 40, {
      from: { streams: [INPUT] },
      group: "poison",
      to: OUTPUT,
      deadLetter: DEAD,
      retry: ONCE,
      // Together too much, alone small enough, but for one.
      each: ({ n }) => ({ n, text: "x".repeat(n === 13 ? 30_000 : 1000) }),
    });
    await pipeline.run();
    const kept = (await valuesOf(hapax, OUTPUT)).map(({ n }) => n);
    expect(kept).toEqual(numbers(40).filter((n) => n !== 13));
    expect(await hapax.deadLetters(DEAD).list()).toMatchObject([
      { record: { n: 13 }, attempts: 1 },
    ]);
    await small.stop();
  });

  test("a record that writes to more streams than a transaction can is put aside alone", async () => {
    await fill(stage.direct, INPUT, 3);
    const streams = Array.from({ length: 1001 }, (_, at) => `${OUTPUT}/${String(at)}`);
    for (let at = 0; at < streams.length; at += 500) {
      await stage.direct.transaction((tx) => {
        for (const stream of streams.slice(at, at + 500)) tx.create(stream);
      });
    }
    const pipeline = untilDone<Numbered>(stage.direct, 3, {
      from: { streams: [INPUT] },
      group: "poison",
      deadLetter: DEAD,
      retry: ONCE,
      each: ({ n }, { emit }) => {
        for (const to of streams.slice(0, n === 1 ? 1001 : 1)) emit({ n }, { to });
      },
    });
    await pipeline.run();
    expect((await valuesOf(stage.direct, `${OUTPUT}/0`)).map(({ n }) => n)).toEqual([0, 2]);
    expect(await stage.direct.deadLetters(DEAD).list()).toMatchObject([{ record: { n: 1 } }]);
  });

  test("of a sink with ids they are dead letters, and the others are delivered", async () => {
    await fill(stage.direct, INPUT, 10);
    const pipeline = untilDone<Numbered>(stage.direct, 10, {
      from: { streams: [INPUT] },
      group: "poison",
      sink: streamSink(stage.direct.stream(OUTPUT)),
      deadLetter: DEAD,
      retry: ONCE,
      each: ({ n }, { emit }) => {
        emit({ n });
        return n === 3 ? 3n : n === 4 ? Symbol("four") : { n: n + 100 };
      },
    });
    await pipeline.run();
    const kept = (await valuesOf(stage.direct, OUTPUT)).map(({ n }) => n);
    expect(kept).toEqual([0, 1, 2, 5, 6, 7, 8, 9].flatMap((n) => [n, n + 100]));
    const letters = await stage.direct.deadLetters(DEAD).list();
    expect(letters).toMatchObject([{ record: { n: 3 } }, { record: { n: 4 } }]);
  });
});
