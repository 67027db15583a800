// Pipelines whose sink knows outputs by their ids. PROTOCOL.md §16, §20.3
import { afterEach, expect, test } from "vitest";
import type { Transport } from "../../src/client/transport.ts";
import { connectServer } from "../../src/client/processing.ts";
import type {
  DeduplicatingSink,
  IdentifiedOutput,
} from "../../src/client/processing/pipeline-options.ts";
import { streamSink } from "../../src/client/processing/pipeline-stream-sink.ts";
import { startNodeServer } from "../../src/streams/runtimes/node.ts";
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

/** Keeps what it is given, each id once, and counts how often each came. */
function shelf(): DeduplicatingSink & {
  readonly kept: Map<string, unknown>;
  readonly deliveries: string[];
} {
  const kept = new Map<string, unknown>();
  const deliveries: string[] = [];
  return {
    deduplicates: true,
    kept,
    deliveries,
    write(outputs: readonly IdentifiedOutput[]) {
      for (const { id, data } of outputs) {
        deliveries.push(id);
        if (!kept.has(id)) kept.set(id, data);
      }
      return Promise.resolve();
    },
  };
}

test("a copy to another server over two bad networks has each record once and in order", async () => {
  const [near, far] = await Promise.all([onStage(lossy(21)), onStage(lossy(22))]);
  await fill(near.direct, INPUT, 0);
  const pipeline = untilDone<Numbered>(near.connect(), 100, {
    from: { streams: [INPUT] },
    group: "copy",
    sink: streamSink(far.connect().stream(OUTPUT), { keyWindowSeconds: 3600 }),
    batchMax: 20,
    each: ({ n }, { emit }) => {
      emit({ n, part: 0 });
      return { n, part: 1 };
    },
  });
  const running = pipeline.run();
  for (let first = 0; first < 100; first += 20) {
    await near.direct.transaction((tx) => {
      for (let n = first; n < first + 20; n += 1) tx.append(INPUT, { n });
    });
  }
  await running;
  expect(await valuesOf<unknown>(far.direct, OUTPUT)).toEqual(
    numbers(100).flatMap((n) => [
      { n, part: 0 },
      { n, part: 1 },
    ]),
  );
  expect(pipeline.counters).toMatchObject({ records: 100, outputs: 200 });
});

test("what a holder delivered but did not commit comes again under the same ids, from whomever", async () => {
  const stage = await onStage();
  await fill(stage.direct, INPUT, 20);
  const sink = shelf();
  const line = pausable();
  const stored = gate();
  const events = new Events();
  // Everything passes but the commit of the offset: the outputs and the letter are stored, and then it sleeps.
  const transport: Transport = (request) => {
    if (request.url.endsWith("/commit")) {
      line.pause();
      stored.open();
    }
    return line.transport(request);
  };
  const options = {
    from: { streams: [INPUT], leaseMs: 1000 },
    group: "copy",
    deadLetter: DEAD,
    retry: { attemptsMax: 2, pauseMs: 1, pauseMsMax: 1 },
    each: ({ n }: Numbered): unknown => {
      if (n === 4) throw new Error("four");
      return { n };
    },
  };
  const first = connectServer(stage.server.url, { transport }).pipeline<Numbered>({
    ...options,
    sink,
    onEvent: events.take,
  });
  const running = first.run();
  await stored.opened;
  // The page is longer when it is read again.
  await stage.direct.transaction((tx) => {
    for (let n = 20; n < 30; n += 1) tx.append(INPUT, { n });
  });
  const second = untilDone<Numbered>(stage.direct, 30, { ...options, sink });
  await second.run();
  expect([...sink.kept.values()]).toEqual(numbers(30).flatMap((n) => (n === 4 ? [] : [{ n }])));
  expect(sink.deliveries.length).toBe(19 + 29);
  expect(await valuesOf<unknown>(stage.direct, DEAD)).toMatchObject([{ record: { n: 4 } }]);
  expect(await valuesOf(stage.direct, DEAD)).toHaveLength(1);
  line.resume();
  await events.until("member_lost");
  await first.close();
  await running;
  expect(sink.kept.size).toBe(29);
});

test("nothing is committed before the sink has confirmed it, however often it fails", async () => {
  const stage = await onStage();
  await fill(stage.direct, INPUT, 20);
  const sink = shelf();
  const lags: number[] = [];
  const pipeline = untilDone<Numbered>(stage.direct, 20, {
    from: { streams: [INPUT] },
    group: "copy",
    batchMax: 8,
    each: ({ n }) => ({ n }),
    sink: {
      ...sink,
      async write(outputs, options) {
        lags.push(await lagOf(stage.direct, "copy"));
        // Half of them arrive, then the connection ends.
        if (lags.length % 2 === 1) {
          await sink.write(outputs.slice(0, 4), options);
          throw new Error("cut");
        }
        await sink.write(outputs, options);
      },
    },
  });
  await pipeline.run();
  expect([...sink.kept.values()]).toEqual(numbers(20).map((n) => ({ n })));
  expect(sink.deliveries.length).toBe(4 * 3 + 20);
  expect(lags).toHaveLength(6);
  expect(Math.min(...lags)).toBeGreaterThan(0);
});

test("streams without records of their own are refused", async () => {
  const stage = await onStage();
  await stage.direct.stream(INPUT).create({ contentType: "text/plain" });
  await stage.direct.stream(INPUT).append("text");
  const sink = shelf();
  const from = { streams: [INPUT] };
  const pipeline = stage.direct.pipeline({
    from,
    group: "copy",
    sink,
    each: (text) => text,
  });
  await expect(pipeline.run()).rejects.toThrow("only records of JSON have an id");
  expect(sink.deliveries).toEqual([]);
});

test("a stream that would forget ids too early is refused before anything is written", async () => {
  const stage = await onStage();
  await fill(stage.direct, INPUT, 3);
  const out = stage.direct.stream(OUTPUT);
  await out.create({ keyWindowSeconds: 60 });
  const copy = (sink: DeduplicatingSink) =>
    untilDone<Numbered>(stage.direct, 3, {
      from: { streams: [INPUT] },
      group: "copy",
      sink,
      each: (record) => record,
    });
  await expect(copy(streamSink(out)).run()).rejects.toMatchObject({ code: "stream_exists" });
  expect(await valuesOf(stage.direct, OUTPUT)).toEqual([]);
  await out.delete();
  await copy(streamSink(out, { keyMax: 3 })).run();
  // Full: a new id has to wait, the known ones are known.
  const [record] = await valuesOf(stage.direct, OUTPUT);
  expect(record).toEqual({ n: 0 });
  const hasty = stage.connect({ retry: { totalMs: 1 } }).stream(OUTPUT);
  await expect(hasty.append({ n: 3 }, { key: "new" })).rejects.toMatchObject({
    code: "key_window_full",
  });
});

test("an output that is not the same again ends the pipeline instead of being left out", async () => {
  const stage = await onStage();
  await fill(stage.direct, INPUT, 1);
  const out = stage.direct.stream(OUTPUT);
  const options = { from: { streams: [INPUT] }, group: "copy", sink: streamSink(out) };
  await untilDone<Numbered>(stage.direct, 1, { ...options, each: () => ({ at: 1 }) }).run();
  await stage.direct.group("copy").reset({ to: "beginning" });
  const again = stage.direct.pipeline<Numbered>({ ...options, each: () => ({ at: 2 }) });
  await expect(again.run()).rejects.toMatchObject({ code: "key_reused" });
  await stage.direct.group("copy").reset({ to: "beginning" });
  await untilDone<Numbered>(stage.direct, 1, { ...options, each: () => ({ at: 1 }) }).run();
  expect(await valuesOf<unknown>(stage.direct, OUTPUT)).toEqual([{ at: 1 }]);
});

test("ids longer than a key are their digest, and as good", async () => {
  const stage = await onStage();
  const long = `/v1/stream/${"ü".repeat(100)}`;
  await fill(stage.direct, long, 5);
  const out = stage.direct.stream(OUTPUT);
  const options = {
    from: { streams: [long] },
    group: "a/b",
    sink: streamSink(out),
    each: ({ n }: Numbered, { id }: { readonly id: string }) => {
      expect(id).toMatch(/^a%2Fb\/v1\/stream\/%C3%BC/);
      return { n };
    },
  };
  await untilDone<Numbered>(stage.direct, 5, options).run();
  await stage.direct.group("a/b").reset({ to: "beginning" });
  await untilDone<Numbered>(stage.direct, 5, options).run();
  expect((await valuesOf(stage.direct, OUTPUT)).map(({ n }) => n)).toEqual(numbers(5));
});

test("after a reset every output has the id that it had, however the pages are cut", async () => {
  const stage = await onStage();
  await fill(stage.direct, INPUT, 0);
  const out = stage.direct.stream(OUTPUT);
  const ids: string[][] = [[], []];
  const copy = (life: number, onProgress = () => Promise.resolve()) =>
    untilDone<Numbered>(stage.direct, 5, {
      from: { streams: [INPUT] },
      group: "copy",
      sink: streamSink(out),
      each: (record, { id }) => {
        ids[life]?.push(id);
        return record;
      },
      onProgress: () => void onProgress(),
    });
  // One page for each append, of which one has two records; then, after the reset, one page with all of them.
  const appends = [[1, 2], [3], [4]];
  const append = async (ns: readonly number[] = []): Promise<void> => {
    await stage.direct.transaction((tx) => {
      for (const n of ns) tx.append(INPUT, { n, text: 'é\\",[{' });
    });
  };
  await append([0]);
  await copy(0, () => append(appends.shift())).run();
  await stage.direct.group("copy").reset({ to: "beginning" });
  await copy(1).run();
  expect(ids[1]).toEqual(ids[0]);
  expect((await valuesOf(stage.direct, OUTPUT)).map(({ n }) => n)).toEqual(numbers(5));
});

test("a server that adds offsets to records of the State protocol gives the same ids and positions", async () => {
  const server = await startNodeServer({
    store: "memory",
    port: 0,
    stateOffsets: true,
    onAudit: () => undefined,
  });
  try {
    const hapax = connectServer(server.url);
    const input = hapax.stream(INPUT);
    await input.create({ contentType: "application/json" });
    const record = { type: "order", headers: { operation: "insert" } };
    const bytes = JSON.stringify(record).length + 1;
    await hapax.transaction((tx) => {
      for (const _ of numbers(3)) tx.append(INPUT, record);
    });
    const ids: string[] = [];
    await untilDone<typeof record>(hapax, 3, {
      from: { streams: [INPUT] },
      group: "state",
      sink: shelf(),
      each: (value, { id }) => {
        ids.push(`${id.split("_").at(-1) ?? ""} ${Object.keys(value.headers).join()}`);
      },
    }).run();
    const places = [0, 1, 2].map((index) => String(index * bytes).padStart(16, "0"));
    expect(ids).toEqual(places.map((place) => `${place} operation`));
  } finally {
    await server.stop();
  }
});

test("an output of any class is stored as an append of it would be", async () => {
  const stage = await onStage();
  await fill(stage.direct, INPUT, 3);
  class Money {
    readonly cents: number;
    constructor(cents: number) {
      this.cents = cents;
    }
    toJSON(): string {
      return `${String(this.cents)} cents`;
    }
  }
  const out = stage.direct.stream(OUTPUT);
  const outputs = [new Money(5), { toJSON: () => 7 }, { at: new Money(9) }];
  await untilDone<Numbered>(stage.direct, 3, {
    from: { streams: [INPUT] },
    group: "classes",
    sink: streamSink(out),
    deadLetter: DEAD,
    retry: { attemptsMax: 1 },
    each: ({ n }) => outputs[n],
  }).run();
  expect(await out.read().values()).toEqual(["5 cents", 7, { at: "9 cents" }]);
});

test("a record may have very many outputs", async () => {
  const stage = await onStage();
  await fill(stage.direct, INPUT, 1);
  const sink = shelf();
  const count = 200_000;
  await untilDone<Numbered>(stage.direct, 1, {
    from: { streams: [INPUT] },
    group: "many",
    sink,
    each: (_record, { emit }) => {
      for (let n = 0; n < count; n += 1) emit(n);
    },
  }).run();
  expect([...sink.kept.values()]).toEqual(numbers(count));
});
