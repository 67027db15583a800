// A stream that is deleted and created anew at its path is another stream: positions, state, ids and readers of the
// life before must not be held against it. PROTOCOL.md §7.9, §20.2
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Database from "libsql";
import { afterEach, describe, expect, test } from "vitest";
import type { HapaxError } from "../../src/base/errors.ts";
import type { Connection } from "../../src/client/processing/connection.ts";
import type {
  PipelineContext,
  PipelineOptions,
} from "../../src/client/processing/pipeline-options.ts";
import { filePosition } from "../../src/streams/runtimes/node-position.ts";
import { sqliteLedger } from "../../src/toolkit/ledgers/sqlite.ts";
import { ledgerSink } from "../../src/toolkit/once/ledger-sink.ts";
import {
  DEAD,
  fill,
  gate,
  INPUT,
  type Numbered,
  numbers,
  OUTPUT,
  untilDone,
  valuesOf,
} from "./pipeline-kit.ts";
import { openStage, type ProcessingStage } from "./stage.ts";

const stages: ProcessingStage[] = [];
afterEach(async () => {
  await Promise.all(stages.splice(0).map((stage) => stage.close()));
});

async function onStage(): Promise<ProcessingStage> {
  const stage = await openStage();
  stages.push(stage);
  return stage;
}

const folder = (): string => mkdtempSync(join(tmpdir(), "hapax-lives-"));

/** Creates the input with numbers, each in an append of its own: every offset between two is one of the stream. */
async function fillApart(hapax: Connection, count: number, first = 0): Promise<void> {
  await fill(hapax, INPUT, 0);
  for (let n = first; n < first + count; n += 1) await add(hapax, n);
}

const add = (hapax: Connection, n: number): Promise<unknown> =>
  hapax.transaction((tx) => {
    tx.append(INPUT, { n });
  });

/** The path has another life from now on. */
async function replace(hapax: Connection, count: number, first = 100): Promise<void> {
  await hapax.stream(INPUT).delete();
  await fillApart(hapax, count, first);
}

const codeOf = (work: Promise<unknown>): Promise<string> =>
  work.then(
    () => "no error",
    (error: HapaxError) => error.code,
  );

describe("a stream that is deleted and created anew", () => {
  test("G31 is processed from its beginning by a pipeline whose positions are in a database", async () => {
    const { direct } = await onStage();
    const file = join(folder(), "rows.db");
    const database = new Database(file);
    database.exec("CREATE TABLE seen (n INTEGER)");
    type Tx = typeof database;
    const run = (count: number): Promise<void> =>
      untilDone<Numbered, Tx>(direct, count, {
        from: { streams: [INPUT] },
        group: "rows",
        sink: ledgerSink(sqliteLedger(() => new Database(file))),
        batchMax: 4,
        each: ({ n }, { tx }: PipelineContext<Tx>) => {
          tx.exec(`INSERT INTO seen VALUES (${String(n)})`);
        },
      }).run();
    await fillApart(direct, 10);
    await run(10);
    await replace(direct, 15);
    await run(15);
    const rows = database.prepare("SELECT n FROM seen ORDER BY rowid").all() as Numbered[];
    expect(rows.map(({ n }) => n)).toEqual([...numbers(10), ...numbers(15).map((n) => 100 + n)]);
  });

  test("G31 has a state of its own, which begins empty", async () => {
    const { direct } = await onStage();
    await fill(direct, OUTPUT, 0);
    const run = (count: number): Promise<void> =>
      untilDone<Numbered>(direct, count, {
        from: { streams: [INPUT] },
        group: "sums",
        to: OUTPUT,
        state: { changelog: "/v1/stream/state" },
        each: (_record, { state }) => {
          const n = (state.get<number>("count") ?? 0) + 1;
          state.set("count", n);
          return { n };
        },
      }).run();
    await fillApart(direct, 3);
    await run(3);
    await replace(direct, 2);
    await run(2);
    // The same life again, in another process: its state is found.
    await add(direct, 1);
    await run(1);
    expect((await valuesOf(direct, OUTPUT)).map(({ n }) => n)).toEqual([1, 2, 3, 1, 2, 3]);
  });

  test("G31 has ids of its own, so that no sink takes its outputs for those before", async () => {
    const { direct } = await onStage();
    const stored = new Map<string, unknown>();
    const letters: string[] = [];
    const run = (count: number): Promise<void> =>
      untilDone<Numbered>(direct, count, {
        from: { streams: [INPUT] },
        group: "ids",
        sink: {
          deduplicates: true,
          write: (outputs) => {
            for (const { id, data } of outputs) if (!stored.has(id)) stored.set(id, data);
            return Promise.resolve();
          },
        },
        deadLetter: DEAD,
        retry: { attemptsMax: 1 },
        each: ({ n }, { id }) => {
          if (n % 10 === 0) {
            letters.push(id);
            throw new Error("not this one");
          }
          return n;
        },
      }).run();
    await fillApart(direct, 3);
    await run(3);
    await replace(direct, 3);
    await run(3);
    expect([...stored.values()]).toEqual([1, 2, 101, 102]);
    expect(new Set(letters).size).toBe(2);
    expect(await valuesOf(direct, DEAD)).toHaveLength(2);
  });

  test("G31 is not read under a lease of the life before", async () => {
    const { direct } = await onStage();
    await fillApart(direct, 2);
    const [taken, replaced] = [gate(), gate()];
    const seen: [string, number][] = [];
    const file = join(folder(), "rows.db");
    const database = new Database(file);
    type Tx = typeof database;
    const pipeline = untilDone<Numbered, Tx>(direct, 5, {
      from: { streams: [INPUT], leaseMs: 60_000 },
      group: "held",
      sink: ledgerSink(sqliteLedger(() => new Database(file))),
      batchMax: 1,
      each: async ({ n }, { id }: PipelineContext<Tx>) => {
        seen.push([id, n]);
        if (n !== 1) return;
        taken.open();
        await replaced.opened;
      },
    });
    const running = pipeline.run();
    await taken.opened;
    // Longer than the first one: its old offset is in the middle of the new one.
    await replace(direct, 3);
    replaced.open();
    await running;
    expect(seen.map(([, n]) => n)).toEqual([0, 1, 100, 101, 102]);
    expect(new Set(seen.map(([id]) => id)).size).toBe(5);
  });

  test("G31 ends a reader with stream_replaced, instead of going on in its middle", async () => {
    const { direct } = await onStage();
    await fillApart(direct, 5);
    const stream = direct.stream(INPUT);
    const { offset, life } = await stream.head();
    for (const live of ["long-poll", "sse"] as const) {
      const following = stream.follow<Numbered>({ live, onReconnect: () => undefined });
      let count = 0;
      const reading = (async () => {
        for await (const batch of following.batches()) {
          count += batch.records.length;
          if (!batch.upToDate) continue;
          await replace(direct, 20);
          await add(direct, 1);
        }
      })();
      expect(await codeOf(reading)).toBe("stream_replaced");
      expect([5, 20, 21]).toContain(count);
    }
    expect((await stream.head()).life).not.toBe(life);
    // An offset alone says nothing of its life; a position does.
    expect((await stream.read<Numbered>({ from: offset }).values()).length).toBeGreaterThan(0);
    const from = `${offset}/${life ?? ""}`;
    expect(await codeOf(stream.read({ from }).values())).toBe("stream_replaced");
  });

  test("G31 is not taken for the one whose position was kept", async () => {
    const { direct } = await onStage();
    await fillApart(direct, 5);
    const stream = direct.stream(INPUT);
    const position = filePosition(join(folder(), "position"));
    const follow = async (): Promise<number> => {
      let count = 0;
      for await (const batch of stream.follow({ position }).batches()) {
        count += batch.records.length;
        if (batch.upToDate && batch.records.length === 0) break;
      }
      return count;
    };
    const stop = new AbortController();
    const following = stream.follow({
      position,
      signal: stop.signal,
      onUpToDate: () => {
        stop.abort();
      },
    });
    await codeOf(
      (async () => {
        for await (const record of following) expect(record.value).toBeDefined();
      })(),
    );
    expect(await position.load()).toMatch(/^0{16}_\d{16}\/[0-9a-z]+-[0-9a-z]+$/);
    await replace(direct, 10);
    expect(await codeOf(follow())).toBe("stream_replaced");
  });

  test("G31 whose tail has gone back, as after a restore, stops a pipeline whose sink is further", async () => {
    const { direct } = await onStage();
    await fillApart(direct, 3);
    const { life = "" } = await direct.stream(INPUT).head();
    const sink = ledgerSink(sqliteLedger(() => new Database(join(folder(), "rows.db"))));
    await sink.prepare();
    const place = { pipeline: "rows", stream: INPUT };
    const from = await sink.take(place, 0);
    await sink.move(place, 0, from, () => `0000000000000000_0000000000000900/${life}`);
    const pipeline = untilDone<Numbered, unknown>(direct, 3, {
      from: { streams: [INPUT] },
      group: "rows",
      sink,
      each: () => undefined,
    });
    expect(await codeOf(pipeline.run())).toBe("offset_beyond_tail");
  });
});

describe("a changelog", () => {
  const counting = (group: string, from: readonly string[]): PipelineOptions<Numbered> => ({
    from: { streams: from },
    group,
    state: { changelog: () => "/v1/stream/state" },
    each: (_record, { state }) => {
      state.set("count", (state.get<number>("count") ?? 0) + 1);
    },
  });

  test("belongs to one group: a second one is refused, and the state of the first stays", async () => {
    const { direct } = await onStage();
    await fillApart(direct, 3);
    await untilDone<Numbered>(direct, 3, counting("one", [INPUT])).run();
    const second = untilDone<Numbered>(direct, 3, counting("two", [INPUT]));
    await expect(second.run()).rejects.toMatchObject({
      code: "invalid_options",
      message: expect.stringContaining("group=one") as string,
    });
    const records = await valuesOf<{ readonly key?: string }>(direct, "/v1/stream/state");
    expect(records.filter(({ key }) => key !== undefined).at(-1)).toEqual({
      key: "count",
      value: 3,
    });
  });

  test("belongs to one group also if two begin with it at the same moment", async () => {
    const { direct } = await onStage();
    await fillApart(direct, 3);
    const codes = await Promise.all(
      ["one", "two"].map((group) =>
        codeOf(untilDone<Numbered>(direct, 3, counting(group, [INPUT])).run()),
      ),
    );
    expect(codes.toSorted()).toEqual(["invalid_options", "no error"]);
  });

  test("belongs to one stream", async () => {
    const { direct } = await onStage();
    await fillApart(direct, 3);
    await fill(direct, "/v1/stream/other", 3);
    const pipeline = untilDone<Numbered>(direct, 6, counting("one", [INPUT, "/v1/stream/other"]));
    expect(await codeOf(pipeline.run())).toBe("invalid_options");
  });
});
