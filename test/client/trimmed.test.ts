// Readers of streams that were trimmed: what they learn, and how they go on. PROTOCOL.md §23.2
import { stream as base } from "@durable-streams/client";
import { afterAll, beforeAll, expect, test } from "vitest";
import {
  connect,
  type FollowOptions,
  isHapaxError,
  TrimmedFailure,
} from "../../src/client/client.ts";
import { connectServer } from "../../src/client/processing.ts";
import { type NodeServer, startNodeServer } from "../../src/streams/runtimes/node.ts";

let server: NodeServer;
beforeAll(async () => {
  server = await startNodeServer({ store: "memory", port: 0, onAudit: () => undefined });
});
afterAll(() => server.stop());

const ZERO = "0000000000000000_0000000000000000";

/** A stream with the numbers 1 to 6, trimmed before the fourth. */
async function trimmed(name: string) {
  const stream = connect<number>(`${server.url}/v1/stream/${name}`);
  await stream.create();
  const offsets: string[] = [];
  for (let value = 1; value <= 6; value += 1)
    offsets.push((await stream.append(value)).offset ?? "");
  expect(await connectServer(server.url).trim(stream, offsets[2] ?? "")).toBe(offsets[2]);
  return { stream, offsets, earliest: offsets[2] };
}

const failureOf = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(
    () => "it did not fail",
    (error: unknown) => error,
  );

test("G110 a reader of trimmed data learns where the stream begins, and goes on there if it asks", async () => {
  const { stream, offsets, earliest } = await trimmed("told");
  expect(await stream.head()).toMatchObject({ earliestOffset: earliest });
  for (const from of [ZERO, offsets[0], offsets[1]]) {
    const failure = await failureOf(stream.read({ from }).values());
    expect(failure).toBeInstanceOf(TrimmedFailure);
    expect(failure).toMatchObject({
      code: "offset_trimmed",
      status: 410,
      earliestOffset: earliest,
    });
    expect(await stream.read({ from, onTrimmed: "skip" }).values()).toEqual([4, 5, 6]);
  }
  expect(await stream.read({ from: earliest }).values()).toEqual([4, 5, 6]);
});

test("G110 the beginning of a trimmed stream is what is left, for every client of the protocol", async () => {
  const { stream } = await trimmed("beginning");
  expect(await stream.read().values()).toEqual([4, 5, 6]);
  const other = await base<number>({ url: stream.url, offset: "-1", live: false });
  expect(await other.json()).toEqual([4, 5, 6]);
  await expect(base({ url: stream.url, offset: ZERO, live: false })).rejects.toThrow();
});

test.each(["sse", "long-poll"] as const)(
  "G110 a follower by %s that comes back behind a trim fails, or goes on where it asks to",
  async (live) => {
    const { stream } = await trimmed(live);
    await stream.close();
    const follow = async (options: FollowOptions): Promise<number[]> => {
      const values: number[] = [];
      for await (const { value } of stream.follow({ from: ZERO, live, ...options }))
        values.push(value);
      return values;
    };
    expect(isHapaxError(await failureOf(follow({})), "offset_trimmed")).toBe(true);
    expect(await follow({ onTrimmed: "skip" })).toEqual([4, 5, 6]);
  },
);

test("G111 a client sets a rule, and is refused a cut that a fork still needs", async () => {
  const { stream, offsets } = await trimmed("rules");
  const hapax = connectServer(server.url);
  await stream.fork(`${stream.url}-fork`);
  const refused = await failureOf(hapax.trim(stream, offsets[4] ?? ""));
  expect(isHapaxError(refused, "data_needed")).toBe(true);
  expect(await hapax.trim(stream, offsets[4] ?? "", { needed: "drop" })).toBe(offsets[4]);
  await hapax.setRetention(stream, "seconds=60, bytes=1000");
  expect((await stream.head()).retention).toBe("seconds=60, bytes=1000");
  await hapax.setRetention(stream, "none");
  expect((await stream.head()).retention).toBeUndefined();
  const other = connect(`${server.url}/v1/stream/own-rule`);
  expect(await other.create({ retention: "bytes=5, needed=drop" })).toMatchObject({
    retention: "bytes=5, needed=drop",
  });
});
