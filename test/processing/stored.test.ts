// Places of records at a server that adds to them for readers, and dead letters of streams that were created anew.
// PROTOCOL.md §7.4, §7.8, §7.9
import { afterEach, describe, expect, test } from "vitest";
import { connectServer, type DeadLetters } from "../../src/client/processing.ts";
import type { Connection } from "../../src/client/processing/connection.ts";
import { type NodeServer, startNodeServer } from "../../src/streams/runtimes/node.ts";
import type { Sink } from "../../src/client/processing/sink.ts";
import type { PipelineOptions } from "../../src/client/processing/pipeline-options.ts";
import { DEAD, INPUT, numbers } from "./pipeline-kit.ts";

const servers: NodeServer[] = [];
afterEach(async () => {
  await Promise.all(servers.splice(0).map((server) => server.stop()));
});

async function onServer(
  options: { stateOffsets?: boolean; bodyBytesMax?: number } = {},
): Promise<Connection> {
  const server = await startNodeServer({
    store: "memory",
    port: 0,
    onAudit: () => undefined,
    ...options,
  });
  servers.push(server);
  return connectServer(server.url);
}

/** A change of the State protocol: what such a server adds to. */
interface Change {
  readonly n: number;
  readonly text?: string;
  readonly headers: { readonly operation: "insert" };
}

/** One append. */
async function append(hapax: Connection, count: number, first = 0, text?: string): Promise<void> {
  await hapax.transaction((tx) => {
    tx.create(INPUT);
    for (const n of numbers(count)) {
      tx.append(INPUT, { n: first + n, text, headers: { operation: "insert" } });
    }
  });
}

/** Keeps effects and one position; `position` is where it begins. */
function sinkAt(position: string): Sink<number[]> & { readonly effects: number[] } {
  const effects: number[] = [];
  let at = position;
  return {
    effects,
    prepare: () => Promise.resolve(),
    take: () => Promise.resolve(at),
    async move(_place, _token, _from, work) {
      const tx: number[] = [];
      at = await work(tx);
      effects.push(...tx);
    },
  };
}

/** A pipeline that has ended when it was at the tail. */
async function runToTail<Tx>(
  hapax: Connection,
  options: Omit<PipelineOptions<Change, Tx>, "from" | "group">,
): Promise<void> {
  const { offset: tail } = await hapax.stream(INPUT).head();
  const pipeline = hapax.pipeline<Change, Tx>({
    ...options,
    from: { streams: [INPUT] },
    group: "stored",
    onProgress: ({ offset }) => {
      if (offset === tail) void pipeline.close();
    },
  });
  await pipeline.run();
}

/** Every record has a letter, without the record: it is too large for the server's limit with it. */
async function putAll(hapax: Connection): Promise<DeadLetters> {
  await runToTail(hapax, {
    deadLetter: DEAD,
    retry: { attemptsMax: 1 },
    each: () => {
      throw new Error("e".repeat(1000));
    },
  });
  return hapax.deadLetters(DEAD);
}

describe("a server that adds offsets to records of the State protocol", () => {
  test("G24 a sink that is ahead of its group leaves out no record", async () => {
    const hapax = await onServer({ stateOffsets: true });
    await append(hapax, 10);
    let position = "";
    for await (const page of hapax.stream(INPUT).read().pages()) ({ position } = page);
    await append(hapax, 20, 10);
    // The commit behind the first append has not reached the server.
    const sink = sinkAt(position);
    await runToTail<number[]>(hapax, {
      sink,
      each: ({ n }, { tx }) => void tx.push(n),
    });
    expect(sink.effects).toEqual(numbers(20).map((n) => 10 + n));
  });

  test("a record that its letter does not have is replayed as it was stored", async () => {
    const hapax = await onServer({ stateOffsets: true, bodyBytesMax: 4000 });
    await append(hapax, 1);
    await append(hapax, 1, 1, "x".repeat(3300));
    const letters = await putAll(hapax);
    for (const { id } of await letters.list()) expect(await letters.replay([id])).toBe(1);
    const values = await hapax.stream(INPUT).read<Change>().values();
    expect(values.map(({ n, text }) => [n, text?.length])).toEqual([
      [0, undefined],
      [1, 3300],
      [0, undefined],
      [1, 3300],
    ]);
  });
});

describe("a stream that is deleted and created anew", () => {
  test("G31 as one for dead letters has its own letters, for a tool that has read the one before", async () => {
    const hapax = await onServer();
    await append(hapax, 2);
    const letters = await putAll(hapax);
    const [first] = await letters.list();
    await hapax.stream(DEAD).delete();
    await hapax.stream(DEAD).create();
    await append(hapax, 3, 2);
    await putAll(hapax);
    const pending = await letters.list();
    expect(pending.map(({ record }) => (record as Change).n)).toEqual([2, 3, 4]);
    expect(await letters.replay([first?.id ?? ""])).toBe(0);
  });

  test("G31 gives no record for a letter of the one before", async () => {
    const hapax = await onServer({ bodyBytesMax: 4000 });
    await append(hapax, 1, 0, "x".repeat(3300));
    const letters = await putAll(hapax);
    const [letter] = await letters.list();
    await hapax.stream(INPUT).delete();
    await append(hapax, 1, 9, "y".repeat(3300));
    await expect(letters.replay([letter?.id ?? ""])).rejects.toMatchObject({
      code: "stream_replaced",
    });
    const values = await hapax.stream(INPUT).read<Change>().values();
    expect(values.map(({ n }) => n)).toEqual([9]);
  });
});
