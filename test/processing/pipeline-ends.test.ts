// How pipelines end, and how soon they hand streams over. PROTOCOL.md §20.2
import Database from "libsql";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { waitingClock } from "../../src/base/clock.ts";
import { connectServer } from "../../src/client/processing.ts";
import { RecordFailure } from "../../src/client/processing/pipeline-attempts.ts";
import type {
  DeduplicatingSink,
  PipelineContext,
  PipelineOptions,
} from "../../src/client/processing/pipeline-options.ts";
import { streamSink } from "../../src/client/processing/pipeline-stream-sink.ts";
import { sqliteLedger } from "../../src/toolkit/ledgers/sqlite.ts";
import { ledgerSink } from "../../src/toolkit/once/ledger-sink.ts";
import {
  fill,
  gate,
  INPUT,
  lagOf,
  lossy,
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

type Connection = InstanceType<typeof Database>;
type Kind = "streams" | "a database" | "ids";
type Options = Pick<PipelineOptions<Numbered, Connection>, "to" | "sink" | "each">;

/** A copy of each kind, and what it has stored. */
async function copier(
  kind: Kind,
  before: (record: Numbered) => void | Promise<void>,
): Promise<{ readonly options: Options; readonly stored: () => Promise<number[]> }> {
  const isRows = kind === "a database";
  const connection = new Database(":memory:");
  connection.exec("CREATE TABLE effects (id INTEGER PRIMARY KEY, n INTEGER)");
  if (kind === "streams") await stage.direct.stream(OUTPUT).create();
  const stored = async (): Promise<number[]> => {
    const rows = isRows
      ? (connection.prepare("SELECT n FROM effects ORDER BY id").all() as readonly Numbered[])
      : await valuesOf(stage.direct, OUTPUT);
    return rows.map(({ n }) => n);
  };
  const each = async (record: Numbered, { tx }: { readonly tx: Connection }): Promise<unknown> => {
    await before(record);
    if (!isRows) return record;
    tx.prepare("INSERT INTO effects (n) VALUES (?)").run(record.n);
    return undefined;
  };
  if (kind === "streams") return { options: { to: OUTPUT, each }, stored };
  // Cast: a sink with ids has no transaction, and the function above does not look at it then.
  const ids = streamSink(stage.direct.stream(OUTPUT)) as never;
  return {
    options: { sink: isRows ? ledgerSink(sqliteLedger(() => connection)) : ids, each },
    stored,
  };
}

describe.each(["streams", "a database", "ids"] as const)("with effects in %s", (kind) => {
  test("the end comes after the record at hand, and what is through is committed", async () => {
    await fill(stage.direct, INPUT, 200);
    let calls = 0;
    let told = 0;
    const { options, stored } = await copier(kind, async () => {
      calls += 1;
      if (calls === 7) {
        told = calls;
        void first.close();
      }
      await Promise.resolve();
    });
    const common = { ...options, from: { streams: [INPUT] }, group: "copy" };
    const first = stage.direct.pipeline<Numbered, Connection>({ ...common, batchMax: 5 });
    await first.run();
    expect([told, calls]).toEqual([7, 7]);
    expect(await stored()).toEqual(numbers(7));
    expect(first.counters).toMatchObject({ records: 7, commits: 2 });
    expect((await stage.direct.group("copy").describe()).members).toEqual([]);
    await untilDone<Numbered, Connection>(stage.direct, 193, common).run();
    expect(await stored()).toEqual(numbers(200));
    expect(calls).toBe(200);
    expect(await lagOf(stage.direct, "copy")).toBe(0);
  });

  test("an end before another attempt commits what is through before the record that failed", async () => {
    await fill(stage.direct, INPUT, 20);
    const { options, stored } = await copier(kind, ({ n }) => {
      if (n === 7) throw new Error("not now");
    });
    const pipeline = stage.direct.pipeline<Numbered, Connection>({
      ...options,
      from: { streams: [INPUT] },
      group: "copy",
      retry: { pauseMs: 60_000, pauseMsMax: 60_000 },
      onRetry: () => setTimeout(() => void pipeline.close(), 100),
    });
    await pipeline.run();
    expect(await stored()).toEqual(numbers(7));
    expect(pipeline.counters).toMatchObject({ records: 7, deadLetters: 0 });
  });

  test("a transaction has batchMax records, also of one append", async () => {
    await fill(stage.direct, INPUT, 50);
    const { options, stored } = await copier(kind, () => undefined);
    const portions: number[] = [];
    let before = 0;
    await untilDone<Numbered, Connection>(stage.direct, 50, {
      ...options,
      from: { streams: [INPUT] },
      group: "copy",
      batchMax: 8,
      onProgress: ({ records }) => {
        portions.push(records - before);
        before = records;
      },
    }).run();
    expect(portions).toEqual([8, 8, 8, 8, 8, 8, 2]);
    expect(await stored()).toEqual(numbers(50));
  });

  test("a transaction collects for no longer than batchMs", async () => {
    await fill(stage.direct, INPUT, 20);
    let nowMs = 0;
    const { options, stored } = await copier(kind, () => {
      nowMs += 300;
    });
    const pipeline = untilDone<Numbered, Connection>(stage.direct, 20, {
      ...options,
      from: { streams: [INPUT] },
      group: "copy",
      batchMs: 1000,
      clock: { ...waitingClock, steadyMs: () => nowMs },
    });
    await pipeline.run();
    expect(pipeline.counters.commits).toBe(5);
    expect(await stored()).toEqual(numbers(20));
  });
});

test("a slow sink with ids holds up the end for a second, and what it has stored is committed", async () => {
  await fill(stage.direct, INPUT, 20);
  let nowMs = 0;
  const stored: string[] = [];
  const sink: DeduplicatingSink = {
    deduplicates: true,
    async write(outputs, { isEnding }) {
      for (const [index, { id }] of outputs.entries()) {
        if (index > 0 && isEnding()) return { stored: index };
        // Told to end while the outputs of the first record are written: each output takes 300 ms.
        if (stored.length === 1) void first.close();
        nowMs += 300;
        if (!stored.includes(id)) stored.push(id);
        await Promise.resolve();
      }
      return { stored: outputs.length };
    },
  };
  const common = {
    sink,
    from: { streams: [INPUT] },
    group: "copy",
    clock: { ...waitingClock, steadyMs: () => nowMs },
    each: ({ n }: Numbered, { emit }: PipelineContext) => {
      emit({ n, part: 0 });
      emit({ n, part: 1 });
    },
  };
  const first = stage.direct.pipeline<Numbered>(common);
  await first.run();
  // The second of the first record, and four more in the second that is left: half of the third record is not committed.
  expect(stored).toHaveLength(6);
  expect(first.counters).toMatchObject({ records: 3, outputs: 6 });
  await untilDone<Numbered>(stage.direct, 17, common).run();
  expect(stored).toHaveLength(40);
  expect(await lagOf(stage.direct, "copy")).toBe(0);
});

describe.each(["streams", "a database"] as const)("a batch that fails, into %s", (kind) => {
  test("does not hold up the end while its records are tried alone", async () => {
    await fill(stage.direct, INPUT, 40);
    const { options, stored } = await copier(kind, () => undefined);
    const { each, ...target } = options;
    let alone = 0;
    const pipeline = stage.direct.pipeline<Numbered, Connection>({
      ...target,
      from: { streams: [INPUT] },
      group: "copy",
      retry: { attemptsMax: 1 },
      deadLetter: "/v1/stream/dead",
      batch: async (records, context) => {
        if (records.length > 1) throw new Error("all together do not work");
        alone += 1;
        if (alone === 3) void pipeline.close();
        const [record] = records;
        const output = record === undefined ? undefined : await each?.(record, context);
        return output === undefined ? [] : [output];
      },
    });
    await pipeline.run();
    expect(alone).toBe(3);
    expect(await stored()).toEqual(numbers(3));
    expect(pipeline.counters).toMatchObject({ records: 3, deadLetters: 0 });
  });
});

describe("a function that does not end", () => {
  test("hides no failure of another stream, and keeps no lease", async () => {
    const streams = ["/v1/stream/hung", "/v1/stream/poison"];
    for (const stream of streams) await fill(stage.direct, stream, 3);
    const hung = gate();
    const pipeline = stage.direct.pipeline<Numbered>({
      from: { streams },
      group: "hung",
      retry: { attemptsMax: 1 },
      closeMs: 50,
      each: async (_, { stream }) => {
        if (stream.endsWith("hung")) {
          hung.open();
          await new Promise(() => undefined);
        }
        await hung.opened;
        throw new Error("poison");
      },
    });
    await expect(pipeline.run()).rejects.toBeInstanceOf(RecordFailure);
    expect((await stage.direct.group("hung").describe()).members).toEqual([]);
  });

  test("holds up no close, and its signal says that its work counts for nothing", async () => {
    await fill(stage.direct, INPUT, 3);
    const hung = gate();
    let signal: AbortSignal | undefined;
    const pipeline = stage.direct.pipeline<Numbered>({
      from: { streams: [INPUT] },
      group: "hung",
      closeMs: 50,
      each: async (_, context) => {
        ({ signal } = context);
        hung.open();
        await new Promise(() => undefined);
      },
    });
    const running = pipeline.run();
    await hung.opened;
    await pipeline.close();
    await running;
    expect(signal?.aborted).toBe(true);
    expect((await stage.direct.group("hung").describe()).members).toEqual([]);
  });
});

test("a close does not wait for a server that is away", async () => {
  await fill(stage.direct, INPUT, 3);
  await stage.direct.stream(OUTPUT).create();
  const collected = gate();
  // With the default patience of a client: a minute for each call.
  const hapax = connectServer(stage.proxy.url);
  const pipeline = hapax.pipeline<Numbered>({
    from: { streams: [INPUT] },
    group: "away",
    to: OUTPUT,
    each: async (record) => {
      if (record.n === 2) {
        await stage.proxy.close();
        collected.open();
      }
      return record;
    },
  });
  const running = pipeline.run();
  await collected.opened;
  const startedMs = waitingClock.steadyMs();
  await pipeline.close();
  await running;
  // Five seconds for the work at hand, three to leave; on a machine that is busy, twice that.
  expect(waitingClock.steadyMs() - startedMs).toBeLessThan(20_000);
}, 90_000);

test("a stream that is asked back is handed over after the transaction at hand, and not after a page", async () => {
  const inputs = numbers(4).map((n) => `/v1/stream/in/${String(n)}`);
  const COUNT = 500;
  for (const [at, input] of inputs.entries()) await fill(stage.direct, input, COUNT, at * COUNT);
  await stage.direct.stream(OUTPUT).create();
  const begun = gate();
  let secondHas = 0;
  const through = { first: 0, second: 0 };
  const member = (name: "first" | "second") => {
    const pipeline = stage.direct.pipeline<Numbered>({
      from: { pattern: "/v1/stream/in/*" },
      group: "shared",
      to: OUTPUT,
      batchMs: 50,
      each: async (record) => {
        begun.open();
        if (name === "second") secondHas += 1;
        // Slow until the second one has something to do.
        if (secondHas === 0) await new Promise((resolve) => setTimeout(resolve, 20));
        return record;
      },
      onProgress: ({ records }) => {
        through[name] = records;
        if (through.first + through.second < inputs.length * COUNT) return;
        for (const one of members) void one.close();
      },
    });
    return pipeline;
  };
  const members = [member("first"), member("second")] as const;
  const running = members[0].run();
  await Promise.race([begun.opened, running]);
  await Promise.all([running, members[1].run()]);
  expect(through.second).toBeGreaterThan(0);
  const values = (await valuesOf(stage.direct, OUTPUT)).map(({ n }) => n);
  expect(values.toSorted((a, b) => a - b)).toEqual(numbers(inputs.length * COUNT));
}, 60_000);

test.each(["streams", "ids"] as const)(
  "in lives that end at random records, over a bad network, each record counts once and in order: %s",
  async (kind) => {
    const bad = await openStage(lossy(31));
    const COUNT = 400;
    try {
      await bad.direct.stream(INPUT).create();
      for (let first = 0; first < COUNT; first += 80) {
        await bad.direct.transaction((tx) => {
          for (let n = first; n < first + 80; n += 1) tx.append(INPUT, { n });
        });
      }
      await bad.direct
        .stream(OUTPUT)
        .create({ keyWindowSeconds: 86_400, keyMax: 10_000_000, keyOverflow: "reject" });
      for (let life = 0; life < 50; life += 1) {
        if (life > 0 && (await lagOf(bad.direct, "lives")) === 0) break;
        let left = 20 + ((life * 17) % 40);
        const hapax = bad.connect();
        const sink = { sink: streamSink(bad.connect().stream(OUTPUT)) };
        const pipeline = untilDone<Numbered>(hapax, COUNT, {
          ...(kind === "ids" ? sink : { to: OUTPUT }),
          from: { streams: [INPUT], leaseMs: 1000 },
          group: "lives",
          batchMax: 7,
          each: async (record) => {
            left -= 1;
            if (left === 0 || record.n === COUNT - 1) void pipeline.close();
            await Promise.resolve();
            return record;
          },
        });
        await pipeline.run();
      }
      expect((await valuesOf(bad.direct, OUTPUT)).map(({ n }) => n)).toEqual(numbers(COUNT));
    } finally {
      await bad.close();
    }
  },
  60_000,
);
