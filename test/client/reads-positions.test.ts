// Where a consumer is, kept over its restarts.
import { mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, test } from "vitest";
import { LazyBatch } from "../../src/client/batches.ts";
import { startFollowing } from "../../src/client/follow.ts";
import { memoryPosition, type PositionStore, storagePosition } from "../../src/client/positions.ts";
import { startReading } from "../../src/client/reading.ts";
import { filePosition } from "../../src/streams/runtimes/node-position.ts";
import { createSeededRandom } from "../../src/testing/seeded-random.ts";
import { openStage, type Stage, STREAM } from "./reads-stage.ts";

const JSON_TYPE = { "content-type": "application/json" };
const CLOSE = { "stream-closed": "true" };
const folders: string[] = [];

afterEach(async () => {
  for (const folder of folders.splice(0)) await rm(folder, { recursive: true });
});

async function folder(): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), "hapax-position-"));
  folders.push(path);
  return path;
}

async function opened(...appends: readonly string[]): Promise<Stage> {
  const stage = openStage();
  await stage.send("PUT", JSON_TYPE);
  for (const body of appends) await stage.send("POST", JSON_TYPE, body);
  return stage;
}

/** A position that tells when it is saved. */
function told(log: unknown[], position: PositionStore = memoryPosition()): PositionStore {
  return {
    load: () => position.load(),
    async save(offset) {
      log.push("saved");
      await position.save(offset);
    },
  };
}

describe("a position", () => {
  test("is saved when the consumer has dealt with a batch and asks for more", async () => {
    const stage = await opened("[1,2]");
    const log: unknown[] = [];
    const position = told(log);
    const reader = (async () => {
      for await (const { value } of startFollowing(stage.caller, STREAM, { position }))
        log.push(value);
    })();
    await stage.pass(100);
    await stage.send("POST", { ...JSON_TYPE, ...CLOSE }, "3");
    await stage.drive(reader);
    expect(log).toEqual([1, 2, "saved", 3, "saved"]);
  });

  test("stays where it was when a consumer fails, and the batch comes again", async () => {
    const stage = await opened("[1,2]");
    const position = memoryPosition();
    const seen: unknown[] = [];
    const consume = async (failAt?: number): Promise<void> => {
      for await (const { value } of startFollowing(stage.caller, STREAM, { position })) {
        seen.push(value);
        if (value === failAt) throw new Error("the consumer has failed");
      }
    };
    await expect(stage.drive(consume(2))).rejects.toThrow("the consumer has failed");
    expect(await position.load()).toBe(undefined);
    await stage.send("POST", { ...JSON_TYPE, ...CLOSE }, "3");
    await stage.drive(consume());
    expect(seen).toEqual([1, 2, 1, 2, 3]);
  });

  test("stored together with the effect gives each effect once, wherever the consumer dies", async () => {
    const random = createSeededRandom(3);
    const stage = await opened();
    // The consumer's own database: both change in one step, or neither.
    let database: { readonly effects: readonly unknown[]; readonly offset?: string } = {
      effects: [],
    };
    let deaths = 0;
    let isDone = false;
    const live = async (): Promise<void> => {
      const follow = startFollowing(stage.caller, STREAM, { from: database.offset ?? "-1" });
      for await (const { records, nextOffset, closed } of follow.batches()) {
        const isFatal = records.length > 0 && random.below(3) === 0;
        if (isFatal && random.below(2) === 0) throw new Error("died before it was stored");
        database = { effects: [...database.effects, ...records], offset: nextOffset };
        isDone = closed;
        if (isFatal) throw new Error("died after it was stored");
      }
    };
    const lives = (async () => {
      while (!isDone) await live().catch(() => (deaths += 1));
    })();
    for (let index = 0; index < 60; index += 1) {
      await stage.send("POST", JSON_TYPE, `[${String(index * 2)},${String(index * 2 + 1)}]`);
      await stage.pass(random.below(4) * 50);
    }
    await stage.send("POST", CLOSE);
    await stage.drive(lives);
    expect(database.effects).toEqual(Array.from({ length: 120 }, (_, index) => index));
    expect(deaths).toBeGreaterThan(10);
  });

  test("that begins at now is kept before anything arrives", async () => {
    const stage = await opened("1");
    const position = memoryPosition();
    const stop = new AbortController();
    const options = { from: "now", position };
    const first = (async () => {
      const follow = startFollowing(stage.caller, STREAM, { ...options, signal: stop.signal });
      for await (const { value } of follow) throw new Error(`unexpected ${String(value)}`);
    })();
    first.catch(() => undefined);
    await stage.pass(100);
    stop.abort();
    await expect(stage.drive(first)).rejects.toThrow();
    await stage.send("POST", { ...JSON_TYPE, ...CLOSE }, "2");
    const seen: unknown[] = [];
    const second = (async () => {
      for await (const { value } of startFollowing(stage.caller, STREAM, options)) seen.push(value);
    })();
    await stage.drive(second);
    expect(seen).toEqual([2]);
  });

  test("that cannot be saved ends the reader with that", async () => {
    const stage = await opened("1");
    const full = { getItem: () => null, setItem: () => expect.fail("the storage is full") };
    const reader = (async () => {
      const position = storagePosition(full, "k");
      for await (const _ of startFollowing(stage.caller, STREAM, { position }));
    })();
    await expect(stage.drive(reader)).rejects.toThrow("the storage is full");
  });

  test("is found again under its own key of a storage", async () => {
    const items = new Map<string, string>();
    const storage = {
      getItem: (key: string) => items.get(key) ?? null,
      setItem: (key: string, value: string) => void items.set(key, value),
    };
    await storagePosition(storage, "a").save("1");
    await storagePosition(storage, "b").save("2");
    expect(await storagePosition(storage, "a").load()).toBe("1");
    expect(await storagePosition(storage, "c").load()).toBe(undefined);
  });
});

describe("a position in a file", () => {
  test("is replaced as a whole, and found by the next process", async () => {
    const path = join(await folder(), "position");
    expect(await filePosition(path).load()).toBe(undefined);
    for (const offset of ["a_1", "a_2"]) {
      await filePosition(path).save(offset);
      expect(await filePosition(path).load()).toBe(offset);
    }
    expect(await readdir(join(path, ".."))).toEqual(["position"]);
    // A draft that a crash has left is not read as a position.
    await writeFile(`${path}.new`, "a_");
    expect(await filePosition(path).load()).toBe("a_2");
  });

  test.each([
    ["nothing", ""],
    ["half an offset", "a_"],
    ["two lines", "a_1\na_2\n"],
  ])("is refused if the file holds %s", async (_what, text) => {
    const path = join(await folder(), "position");
    await writeFile(path, text);
    await expect(filePosition(path).load()).rejects.toMatchObject({ code: "data_damaged" });
  });

  test("is refused if it cannot be read", async () => {
    const path = await folder();
    await expect(filePosition(path).load()).rejects.toMatchObject({ code: "EISDIR" });
  });
});

describe("a batch", () => {
  const parts = {
    contentType: "application/json",
    offset: "a",
    nextOffset: "b",
    upToDate: true,
    closed: false,
  };
  const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

  test("is parsed when its records are looked at, and then once", () => {
    const broken = new LazyBatch({ ...parts, body: bytes("[1,") });
    expect([broken.isEmpty, broken.bytes.length, broken.nextOffset]).toEqual([false, 3, "b"]);
    expect(() => broken.records).toThrow(expect.objectContaining({ code: "internal" }));
    const whole = new LazyBatch({ ...parts, body: bytes('[{"a":1}]') });
    expect(whole.records).toBe(whole.records);
    const single = new LazyBatch({ ...parts, body: bytes('{"a":1}') });
    expect(() => single.records).toThrow(expect.objectContaining({ code: "internal" }));
  });

  test("has the bytes of the answer, with the numbers that JavaScript cannot hold", () => {
    const text = "[12345678901234567890,1.0,1e400]";
    for (const body of [bytes(text), [text]]) {
      expect(new TextDecoder().decode(new LazyBatch({ ...parts, body }).bytes)).toBe(text);
    }
    const two = new LazyBatch({ ...parts, body: ["[1.0]", " [ ] ", "[2.0, 3]"] });
    expect(new TextDecoder().decode(two.bytes)).toBe("[1.0,2.0, 3]");
    expect(two.records).toEqual([1, 2, 3]);
  });

  test("without records is known to be empty in every form", () => {
    for (const body of [bytes(""), bytes("[]"), bytes(" [ ]\n"), [], ["[]", "[]"], [""]]) {
      const batch = new LazyBatch({ ...parts, body });
      expect([batch.isEmpty, batch.records]).toEqual([true, []]);
    }
  });

  test("base64 that is none is an error, not other bytes", () => {
    const binary = { ...parts, contentType: "application/octet-stream", isBase64: true };
    const whole = new LazyBatch<Uint8Array>({ ...binary, body: ["AAEC", "/w=="] });
    expect([...(whole.records[0] ?? [])]).toEqual([0, 1, 2, 255]);
    const broken = new LazyBatch({ ...binary, body: ["A"] });
    expect(() => broken.records).toThrow(expect.objectContaining({ code: "internal" }));
  });
});

describe("reading", () => {
  test("asks for a page when it is wanted, and ends at the tail", async () => {
    const stage = openStage();
    const headers = { "content-type": "application/octet-stream" };
    await stage.send("PUT", headers);
    const piece = new Uint8Array(600_000).fill(1);
    for (let index = 0; index < 4; index += 1) await stage.send("POST", headers, piece);
    const pages = startReading<Uint8Array>(stage.caller, STREAM).pages();
    const flags: unknown[] = [];
    for await (const page of pages) {
      flags.push([stage.asked.length, page.records[0]?.length, page.upToDate, page.closed]);
      if (flags.length > 4) break; // A reader that goes in circles fails, and does not hang.
    }
    expect(flags).toEqual([
      [1, 600_000, false, false],
      [2, 600_000, false, false],
      [3, 600_000, false, false],
      [4, 600_000, true, false],
    ]);
  });

  test("gives all bytes at once, of a JSON stream as one array", async () => {
    const stage = await opened('[1.0,"ä"]', JSON.stringify("x".repeat(1_100_000)), "2");
    const text = new TextDecoder().decode(await startReading(stage.caller, STREAM).bytes());
    expect(text).toBe(`[1.0,"ä",${JSON.stringify("x".repeat(1_100_000))},2]`);
    expect(stage.asked.length).toBeGreaterThan(1);
    expect((await startReading(stage.caller, STREAM).values()).length).toBe(4);
  });
});
