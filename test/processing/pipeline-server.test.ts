// Pipelines whose outputs are streams of the same server. PROTOCOL.md §19, §20.3
import { afterEach, describe, expect, test } from "vitest";
import { connectServer, streamSink } from "../../src/client/processing.ts";
import type { Transport } from "../../src/client/transport.ts";
import { RecordFailure } from "../../src/client/processing/pipeline-attempts.ts";
import type {
  PipelineContext,
  PipelineOptions,
} from "../../src/client/processing/pipeline-options.ts";
import {
  DEAD,
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
import { Events, openStage, pausable, type ProcessingStage } from "./stage.ts";

const stages: ProcessingStage[] = [];
afterEach(async () => {
  await Promise.all(stages.splice(0).map((stage) => stage.close()));
});

async function onStage(...args: Parameters<typeof openStage>): Promise<ProcessingStage> {
  const stage = await openStage(...args);
  stages.push(stage);
  return stage;
}

const sorted = (values: readonly Numbered[]): number[] =>
  values.map(({ n }) => n).toSorted((a, b) => a - b);

describe("a copy", () => {
  test("of thousands of records over a bad network has each once and in order", async () => {
    const stage = await onStage(lossy(5));
    const inputs = ["/v1/stream/in/0", "/v1/stream/in/1", "/v1/stream/in/2"];
    for (const input of inputs) await fill(stage.direct, input, 0);
    const outputs = stage.direct.partitioned(OUTPUT, 4);
    await outputs.create();
    const hapax = stage.connect();
    const pipeline = untilDone<Numbered>(hapax, 3000, {
      from: { pattern: "/v1/stream/in/*" },
      group: "copy",
      to: outputs,
      key: (output) => String((output as Numbered).n % 16),
      each: ({ n }) => ({ n }),
    });
    const running = pipeline.run();
    // While it runs, so that there are many pages.
    for (let first = 0; first < 3000; first += 25) {
      await stage.direct.transaction((tx) => {
        for (let n = first; n < first + 25; n += 1) tx.append(inputs[n % 3] ?? "", { n });
      });
    }
    await running;
    const copied = await Promise.all(outputs.streams.map((path) => valuesOf(stage.direct, path)));
    expect(sorted(copied.flat())).toEqual(numbers(3000));
    for (const values of copied) {
      // Of one input stream and one key: in order.
      for (const key of numbers(48)) {
        const ofKey = values.map(({ n }) => n).filter((n) => n % 48 === key);
        expect(ofKey).toEqual(ofKey.toSorted((a, b) => a - b));
      }
    }
    expect(pipeline.counters).toMatchObject({ records: 3000, outputs: 3000, deadLetters: 0 });
    expect(pipeline.counters.commits).toBeGreaterThan(10);
    expect(stage.proxy.counts.droppedAnswers + stage.proxy.counts.cutAnswers).toBeGreaterThan(5);
    expect(await lagOf(stage.direct, "copy")).toBe(0);
  });

  test("to streams that a function names, with outputs that are given one by one", async () => {
    const stage = await onStage();
    await fill(stage.direct, INPUT, 10);
    for (const name of ["even", "odd", "all"])
      await stage.direct.stream(`${OUTPUT}-${name}`).create();
    const pipeline = untilDone<Numbered>(stage.direct, 10, {
      from: { streams: [INPUT] },
      group: "split",
      to: (output) => `${OUTPUT}-${(output as Numbered).n % 2 === 0 ? "even" : "odd"}`,
      each: async (record, { emit, id, stream, attempt }) => {
        const note = { ...record };
        const context = { emit, id, stream, attempt };
        expect(context).toMatchObject({ stream: INPUT, attempt: 1 });
        expect(id).toMatch(/^split\/v1\/stream\/in\/[0-9a-z]+-[0-9a-z]+\/\d{16}_\d{16}$/);
        await Promise.resolve();
        return note;
      },
    });
    await pipeline.run();
    expect(sorted(await valuesOf(stage.direct, `${OUTPUT}-even`))).toEqual([0, 2, 4, 6, 8]);
    expect(sorted(await valuesOf(stage.direct, `${OUTPUT}-odd`))).toEqual([1, 3, 5, 7, 9]);
  });

  test("of streams that are closed ends with them, and goes on with those that come", async () => {
    const stage = await onStage();
    await stage.direct.stream(OUTPUT).create();
    const pipeline = untilDone<Numbered>(stage.direct, 30, {
      from: { pattern: "/v1/stream/in/*" },
      group: "copy",
      to: stage.direct.stream(OUTPUT),
      each: (record) => record,
    });
    const running = pipeline.run();
    for (const name of [0, 1, 2]) {
      const input = `/v1/stream/in/${String(name)}`;
      await fill(stage.direct, input, 10, name * 10);
      await stage.direct.stream(input).close();
    }
    await running;
    expect(sorted(await valuesOf(stage.direct, OUTPUT))).toEqual(numbers(30));
  });

  test("whose commit cannot be known goes on from what the server says", async () => {
    let isBad = true;
    const stage = await onStage({
      fateOf: ({ method, path }) =>
        isBad && method === "POST" && path.endsWith("/transactions") ? { harm: "dropAnswers" } : {},
    });
    await fill(stage.direct, INPUT, 100);
    await stage.direct.stream(OUTPUT).create();
    const unknown = gate();
    // The first hundred are stored, but their answer is lost; the pipeline gets the answer for the second hundred only.
    const pipeline = untilDone<Numbered>(
      stage.connect({ retry: { totalMs: 20, pauseMs: 5, pauseMsMax: 5 } }),
      100,
      {
        from: { streams: [INPUT] },
        group: "copy",
        to: OUTPUT,
        each: ({ n }) => ({ n }),
        onRetry: () => {
          isBad = false;
          unknown.open();
        },
      },
    );
    const running = pipeline.run();
    await unknown.opened;
    await stage.direct.transaction((tx) => {
      for (let n = 100; n < 200; n += 1) tx.append(INPUT, { n });
    });
    await running;
    expect(pipeline.counters).toMatchObject({ restarts: 1, records: 100 });
    expect(sorted(await valuesOf(stage.direct, OUTPUT))).toEqual(numbers(200));
  });
});

describe("a holder that is paused before its commit", () => {
  for (const comesBack of [true, false]) {
    const end = comesBack ? "comes back" : "never comes back";
    test(`and ${end} leaves no effect: outputs and state are those of the next one`, async () => {
      const stage = await onStage();
      await fill(stage.direct, INPUT, 50);
      await stage.direct.stream(OUTPUT).create();
      const line = pausable();
      const events = new Events();
      let isLast = false;
      // Paused as late as can be: a holder that knows by itself that its lease is over sends no commit.
      const transport: Transport = (request) => {
        if (isLast && request.url.endsWith("/transactions")) line.pause();
        return line.transport(request);
      };
      const options = {
        from: { streams: [INPUT], leaseMs: 1000 },
        group: "sums",
        to: OUTPUT,
        state: { changelog: "/v1/stream/sums-state" },
      };
      const first = connectServer(stage.server.url, { transport }).pipeline<Numbered>({
        ...options,
        onEvent: events.take,
        each: ({ n }, { state }) => {
          state.set("sum", (state.get<number>("sum") ?? 0) + n);
          isLast = n === 49;
          return { n };
        },
      });
      const running = first.run();
      await line.held("/transactions");
      const second = untilDone<Numbered>(stage.direct, 50, {
        ...options,
        each: ({ n }, { state }) => {
          state.set("sum", (state.get<number>("sum") ?? 0) + n);
          return { n };
        },
      });
      await second.run();
      if (comesBack) {
        line.resume();
        await line.answered();
        await events.until("member_lost");
        await first.close();
        await running;
      } else {
        void first.close().catch(() => undefined);
      }
      expect((await valuesOf(stage.direct, OUTPUT)).map(({ n }) => n)).toEqual(numbers(50));
      const log = await valuesOf<unknown>(stage.direct, `/v1/stream/sums-state${INPUT}`);
      expect(log.slice(1)).toEqual([{ key: "sum", value: 1225 }]);
      line.resume();
      await running;
    });
  }
});

describe("state", () => {
  test("is rebuilt by the worker that takes a stream over", async () => {
    const stage = await onStage();
    await fill(stage.direct, INPUT, 30);
    await stage.direct.stream(OUTPUT).create();
    const options = {
      from: { streams: [INPUT] },
      group: "counts",
      to: OUTPUT,
      state: { changelog: (stream: string) => `${stream}-state` },
      each: ({ n }: Numbered, { state }: PipelineContext) => {
        const key = `mod ${String(n % 3)}`;
        const count = (state.get<number>(key) ?? 0) + 1;
        state.set(key, count);
        if (n % 10 === 0) state.set("gone", n);
        else state.delete("gone");
        return { n, count };
      },
    };
    await untilDone<Numbered>(stage.direct, 30, options).run();
    await stage.direct.transaction((tx) => {
      for (let n = 30; n < 60; n += 1) tx.append(INPUT, { n });
    });
    // Another process.
    await untilDone<Numbered>(stage.connect(), 30, options).run();
    const out = await valuesOf<{ n: number; count: number }>(stage.direct, OUTPUT);
    expect(out).toEqual(numbers(60).map((n) => ({ n, count: Math.floor(n / 3) + 1 })));
  });

  test("of an attempt that failed is as it was before, and so are the outputs", async () => {
    const stage = await onStage();
    await fill(stage.direct, INPUT, 20);
    await stage.direct.stream(OUTPUT).create();
    const pipeline = untilDone<Numbered>(stage.direct, 20, {
      from: { streams: [INPUT] },
      group: "sums",
      to: OUTPUT,
      state: { changelog: "/v1/stream/state" },
      each: ({ n }, { state, emit, attempt }) => {
        const sum = (state.get<{ of: number }>("sum")?.of ?? 0) + n;
        state.set("sum", { of: sum });
        const seen = state.get<{ of: number }>("sum");
        if (seen !== undefined) seen.of = -1;
        emit({ n, sum });
        if (n % 4 === 1 && attempt < 3) throw new Error("not yet");
      },
    });
    await pipeline.run();
    let sum = 0;
    expect(await valuesOf<unknown>(stage.direct, OUTPUT)).toEqual(
      numbers(20).map((n) => ({ n, sum: (sum += n) })),
    );
    const log = await valuesOf<unknown>(stage.direct, `/v1/stream/state${INPUT}`);
    expect(log.slice(1)).toEqual([{ key: "sum", value: { of: 190 } }]);
    expect(pipeline.counters.failures).toBe(10);
  });

  test("above its limit ends the pipeline, and nothing is put aside for it", async () => {
    const stage = await onStage();
    await fill(stage.direct, INPUT, 5);
    const pipeline = stage.direct.pipeline<Numbered>({
      from: { streams: [INPUT] },
      group: "large",
      state: { changelog: "/v1/stream/state", charsMax: 100 },
      deadLetter: DEAD,
      each: ({ n }, { state }) => {
        state.set(`key ${String(n)}`, "x".repeat(n * 50));
      },
    });
    await expect(pipeline.run()).rejects.toMatchObject({ code: "invalid_options" });
    expect(await valuesOf(stage.direct, DEAD)).toEqual([]);
  });
});

describe("a record that keeps failing", () => {
  const poison = ({ n }: Numbered): Numbered => {
    if (n === 7) throw new RangeError("seven");
    return { n };
  };

  test("is put aside once, in the transaction of its page, also over a bad network", async () => {
    const stage = await onStage(lossy(11));
    await fill(stage.direct, INPUT, 20);
    await stage.direct.stream(OUTPUT).create();
    const pipeline = untilDone<Numbered>(stage.connect(), 20, {
      from: { streams: [INPUT] },
      group: "copy",
      to: OUTPUT,
      deadLetter: DEAD,
      retry: { attemptsMax: 3, pauseMs: 1, pauseMsMax: 2 },
      each: (record, { emit }) => {
        if (record.n === 7) emit({ n: -1 });
        return poison(record);
      },
    });
    await pipeline.run();
    expect(sorted(await valuesOf(stage.direct, OUTPUT))).toEqual(
      numbers(20).filter((n) => n !== 7),
    );
    const letters = await valuesOf<unknown>(stage.direct, DEAD);
    expect(letters).toHaveLength(1);
    expect(letters[0]).toMatchObject({
      stream: INPUT,
      record: { n: 7 },
      reason: { message: "RangeError: seven" },
      attempts: 3,
    });
    expect(pipeline.counters).toMatchObject({ deadLetters: 1, outputs: 19, failures: 3 });
  });

  test("is not put aside if its offset is not committed", async () => {
    const stage = await onStage();
    await fill(stage.direct, INPUT, 10);
    const pipeline = stage.direct.pipeline<Numbered>({
      from: { streams: [INPUT] },
      group: "copy",
      to: "/v1/stream/missing",
      deadLetter: DEAD,
      retry: { attemptsMax: 1 },
      each: poison,
    });
    await expect(pipeline.run()).rejects.toMatchObject({ code: "stream_not_found" });
    expect(await valuesOf(stage.direct, DEAD)).toEqual([]);
  });

  test("is found in a batch that fails, and the others of it are processed", async () => {
    const stage = await onStage();
    await fill(stage.direct, INPUT, 25);
    await stage.direct.stream(OUTPUT).create();
    const sizes: number[] = [];
    const pipeline = untilDone<Numbered>(stage.direct, 25, {
      from: { streams: [INPUT] },
      group: "copy",
      to: OUTPUT,
      deadLetter: DEAD,
      retry: { attemptsMax: 2, pauseMs: 1 },
      batchMax: 10,
      batch: async (records) => {
        sizes.push(records.length);
        await Promise.resolve();
        return records.map(poison);
      },
    });
    await pipeline.run();
    expect(sizes).toEqual([10, 10, ...Array.from({ length: 10 }, () => 1), 10, 5]);
    expect((await valuesOf(stage.direct, OUTPUT)).map(({ n }) => n)).toEqual(
      numbers(25).filter((n) => n !== 7),
    );
    expect(await stage.direct.deadLetters(DEAD).list()).toMatchObject([{ record: { n: 7 } }]);
  });

  test("ends a pipeline that has no place for it, and says so", async () => {
    const stage = await onStage();
    await fill(stage.direct, INPUT, 10);
    await stage.direct.stream(OUTPUT).create();
    const pipeline = stage.direct.pipeline<Numbered>({
      from: { streams: [INPUT] },
      group: "copy",
      to: OUTPUT,
      retry: { attemptsMax: 2, pauseMs: 1 },
      each: poison,
    });
    const failure: unknown = await pipeline.run().catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(RecordFailure);
    expect(String(failure)).toMatch(/failed 2 times: seven; .* no deadLetter/);
    expect(await valuesOf(stage.direct, OUTPUT)).toEqual([]);
    const { members } = await stage.direct.group("copy").describe();
    expect(members).toEqual([]);
  });

  test("because its output does not fit the stream is put aside, also if the type was not known", async () => {
    const stage = await onStage();
    await fill(stage.direct, INPUT, 10);
    await stage.direct.stream(OUTPUT).create({ contentType: "text/plain" });
    const pipeline = untilDone<Numbered>(stage.direct, 10, {
      from: { streams: [INPUT] },
      group: "texts",
      to: OUTPUT,
      deadLetter: DEAD,
      each: ({ n }, { emit }) => {
        emit(`${String(n)};`);
        return n === 3 ? { n } : undefined;
      },
    });
    await pipeline.run();
    const [text] = await valuesOf<string>(stage.direct, OUTPUT);
    expect(text).toBe("0;1;2;4;5;6;7;8;9;");
    expect(await stage.direct.deadLetters(DEAD).list()).toMatchObject([{ record: { n: 3 } }]);
  });

  test("is kept byte by byte if it is no JSON", async () => {
    const stage = await onStage();
    const bytes = Uint8Array.from({ length: 70_000 }, (_, at) => (at * 7) % 256);
    await stage.direct.stream(INPUT).create({ contentType: "application/octet-stream" });
    await stage.direct.stream(INPUT).append(bytes);
    await untilDone<Uint8Array>(stage.direct, 1, {
      from: { streams: [INPUT] },
      group: "copy",
      deadLetter: DEAD,
      retry: { attemptsMax: 1 },
      each: () => {
        throw new Error("no");
      },
    }).run();
    const [letter] = await stage.direct.deadLetters(DEAD).list();
    expect(letter?.record).toEqual(bytes);
  });
});

describe("an end", () => {
  test("in the middle of retries comes at once, and the record is for the next one", async () => {
    const stage = await onStage();
    await fill(stage.direct, INPUT, 1);
    await stage.direct.stream(OUTPUT).create();
    const failed = gate();
    const options = { from: { streams: [INPUT] }, group: "copy", to: OUTPUT };
    const pipeline = stage.direct.pipeline<Numbered>({
      ...options,
      retry: { pauseMs: 3_600_000, pauseMsMax: 3_600_000 },
      each: () => {
        failed.open();
        throw new Error("not today");
      },
    });
    const running = pipeline.run();
    await failed.opened;
    await pipeline.close();
    await running;
    await untilDone<Numbered>(stage.direct, 1, { ...options, each: (record) => record }).run();
    expect(await valuesOf(stage.direct, OUTPUT)).toEqual([{ n: 0 }]);
  });

  test("by its signal lets the attempt at hand finish and count", async () => {
    const stage = await onStage();
    await fill(stage.direct, INPUT, 5);
    await stage.direct.stream(OUTPUT).create();
    const stop = new AbortController();
    const pipeline = stage.direct.pipeline<Numbered>({
      from: { streams: [INPUT] },
      group: "copy",
      to: OUTPUT,
      signal: stop.signal,
      each: async (record) => {
        stop.abort();
        await Promise.resolve();
        return record;
      },
    });
    await pipeline.run();
    expect(await valuesOf(stage.direct, OUTPUT)).toEqual([{ n: 0 }]);
    expect(await lagOf(stage.direct, "copy")).toBeGreaterThan(0);
  });

  test("comes before a pipeline reads what it writes", async () => {
    const stage = await onStage();
    let rounds = 0;
    for (const [to, state, pattern] of [
      ["/v1/stream/x/out", undefined, "/v1/stream/x/*"],
      [stage.direct.stream("/v1/stream/x/out"), undefined, "/v1/stream/x/*"],
      [stage.direct.partitioned("/v1/stream/x", 2), undefined, "/v1/stream/x/*"],
      [OUTPUT, { changelog: "/v1/stream/x" }, "/v1/stream/x/**"],
    ] as const) {
      for (const name of ["out", "0", "1", "v1/stream/in"]) {
        await fill(stage.direct, `/v1/stream/x/${name}`, 1);
      }
      const run = async (): Promise<void> =>
        stage.direct
          .pipeline<Numbered>({
            from: { pattern },
            group: `round ${String((rounds += 1))}`,
            to,
            key: () => "k",
            ...(state === undefined ? {} : { state }),
            each: () => undefined,
          })
          .run();
      await expect(run()).rejects.toMatchObject({ code: "invalid_options" });
    }
  });

  test.for([
    [
      "emit",
      { each: (record: Numbered, context: PipelineContext) => context.emit(record, { to: INPUT }) },
    ],
    ["a function", { to: () => INPUT, each: (record: Numbered) => record }],
    [
      "emit, in a batch",
      {
        batch: ([one]: readonly Numbered[], { emit }: PipelineContext) => emit(one, { to: INPUT }),
      },
    ],
    ["dead letters", { deadLetter: INPUT, each: () => Promise.reject(new Error("never")) }],
    ["a function for changelogs", { state: { changelog: () => INPUT }, each: () => undefined }],
  ] as const)("comes before an output by %s is its own input", async ([, options]) => {
    const stage = await onStage();
    await fill(stage.direct, INPUT, 3);
    for (const from of [{ streams: [INPUT] }, { pattern: "/v1/stream/*" }]) {
      const run = async (): Promise<void> =>
        untilDone<Numbered>(stage.direct, 20, {
          from,
          group: JSON.stringify(from).replace(/\W+/g, "-"),
          ...(options as Partial<PipelineOptions<Numbered>>),
        }).run();
      await expect(run()).rejects.toMatchObject({
        code: "invalid_options",
        message: expect.stringContaining("read and written by the same pipeline") as string,
      });
      expect(await valuesOf(stage.direct, INPUT)).toHaveLength(3);
    }
  });

  test("comes before anything is sent if an output is on another server, and not with every record", async () => {
    const stage = await onStage();
    await fill(stage.direct, INPUT, 3);
    const far = connectServer("http://127.0.0.1:1").stream(OUTPUT);
    const options = {
      from: { streams: [INPUT] },
      group: "far",
      each: (record: Numbered) => record,
    };
    for (const more of [{ to: far }, { deadLetter: far }, { to: "relative" }]) {
      expect(() => stage.direct.pipeline<Numbered>({ ...options, ...more })).toThrow(
        expect.objectContaining({ code: "invalid_options" }),
      );
    }
    // A function says it with its first output.
    const named = untilDone<Numbered>(stage.direct, 3, {
      ...options,
      to: () => far,
      deadLetter: DEAD,
    });
    await expect(named.run()).rejects.toMatchObject({ code: "invalid_options" });
    expect(await valuesOf(stage.direct, DEAD)).toEqual([]);
  });

  test("comes before a sink that is a stream gets what the pipeline reads from it", async () => {
    const stage = await onStage();
    await fill(stage.direct, INPUT, 3);
    const sink = streamSink(stage.direct.stream(INPUT));
    const options = {
      from: { streams: [INPUT] },
      group: "sink",
      sink,
      each: (record: Numbered) => record,
    };
    expect(() => stage.direct.pipeline<Numbered>(options)).toThrow(
      expect.objectContaining({ code: "invalid_options" }),
    );
  });

  test("of options that contradict each other comes before anything is sent", () => {
    const hapax = connectServer("http://127.0.0.1:1");
    const from = { streams: [INPUT] };
    const each = (): void => undefined;
    const sink = { deduplicates: true, write: () => Promise.resolve() } as const;
    for (const [options, words] of [
      [{ from, group: "g" }, "one of each and batch"],
      [{ from, group: "", each }, "group is empty"],
      [{ from, group: "g", each, sink, to: OUTPUT }, "to and sink"],
      [{ from, group: "g", each, sink, state: { changelog: "/s" } }, "state and sink"],
      [{ from, group: "g", batch: each, sink }, "needs each"],
      [{ from, group: "g", each, retry: { attemptsMax: 0 } }, "retry.attemptsMax=0"],
    ] as const) {
      expect(() => hapax.pipeline(options)).toThrow(words);
    }
  });
});
