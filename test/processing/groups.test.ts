/** The administration of groups, and how many streams are read with few connections. PROTOCOL.md §20.4 */

import { connectServer } from "../../src/client/processing.ts";
import { afterEach, beforeEach, expect, test } from "vitest";
import { Caller } from "../../src/client/attempt.ts";
import { resolveClientOptions } from "../../src/client/options.ts";
import { waitingClock } from "../../src/base/clock.ts";
import { Addresses } from "../../src/client/processing/paths.ts";
import { Sources } from "../../src/client/processing/sources.ts";
import { openStage, type ProcessingStage } from "./stage.ts";

const IN = [0, 1, 2].map((index) => `/v1/stream/in/${String(index)}`);

let stage: ProcessingStage;
beforeEach(async () => {
  stage = await openStage();
  for (const name of IN) await stage.direct.stream(name).create();
});
afterEach(async () => {
  await stage.close();
});

test("G22 a group is created once, described in pages, moved and forgotten", async () => {
  const { direct } = stage;
  const group = direct.group("billing / 7");
  await group.create({ pattern: "/v1/stream/in/*", leaseMs: 5000 });
  await group.create({ pattern: "/v1/stream/in/*", leaseMs: 5000 });
  const other = group.create({ streams: [direct.stream(IN[0] ?? "")] });
  await expect(other).rejects.toMatchObject({ code: "group_exists" });
  await direct.stream(IN[1] ?? "").append("abc");
  const first = await group.describe({ limit: 2 });
  expect(first).toMatchObject({ group: "billing / 7", leaseMs: 5000, start: "beginning" });
  expect(first.cursors.map(({ stream, lag }) => [stream, lag > 0])).toEqual([
    [IN[0], false],
    [IN[1], true],
  ]);
  const rest = await group.describe({ after: first.next ?? "" });
  expect([rest.cursors.map(({ stream }) => stream), rest.next]).toEqual([[IN[2]], undefined]);
  expect(await group.reset({ to: "tail" })).toBe(3);
  expect(await group.reset({ to: "beginning", stream: IN[1] ?? "" })).toBe(1);
  expect((await group.describe()).cursors.map(({ lag }) => lag > 0)).toEqual([false, true, false]);
  const beyond = group.reset({ to: "9999999999999999_9999999999999999" });
  await expect(beyond).rejects.toMatchObject({ code: "offset_beyond_tail" });
  await group.delete();
  await group.delete();
  await expect(group.describe()).rejects.toMatchObject({ code: "group_not_found" });
});

test("a stream with data takes the connection of one that was silent for long, and both are read on", async () => {
  const { direct, server } = stage;
  let skewMs = 0;
  const clock = { ...waitingClock, steadyMs: () => waitingClock.steadyMs() + skewMs };
  const live: string[] = [];
  const caller = new Caller(
    resolveClientOptions(
      {
        clock,
        transport: async (request) => {
          const { pathname, searchParams } = new URL(request.url);
          if (searchParams.has("live")) live.push(pathname);
          return options.transport(request);
        },
      },
      server.url,
    ),
  );
  const options = resolveClientOptions({}, server.url);
  const sources = new Sources(caller, new Addresses(server.url), {
    liveMax: 1,
    pollMs: 5,
    patienceMs: 1000,
    onReconnect: undefined,
  });
  const stop = new AbortController();
  const start = "0000000000000000_0000000000000000";
  const [a = "", b = ""] = IN;
  const [one, two] = await Promise.all(
    [a, b].map(async (path) => {
      const { life = "" } = await connectServer(server.url).stream(path).head();
      return sources.batches<number>(path, life, start, stop.signal);
    }),
  );
  /** The next records of a reader; empty batches tell of the tail only. */
  const take = async (reader: typeof one): Promise<readonly number[]> => {
    for (;;) {
      const next = await reader?.next();
      if (next === undefined || next.done === true) throw new Error("a reader has ended");
      if (next.value.records.length > 0) return next.value.records;
    }
  };
  const silent = take(one);
  await direct.stream(b).append(1);
  expect(await take(two)).toEqual([1]);
  // Not long enough yet: the other one keeps its connection.
  await direct.stream(b).append(2);
  expect(await take(two)).toEqual([2]);
  expect(new Set(live)).toEqual(new Set([a]));
  skewMs = 20_000;
  const third = take(two);
  await direct.stream(b).append(3);
  expect(await third).toEqual([3]);
  await direct.stream(b).append(4);
  expect(await take(two)).toEqual([4]);
  await direct.stream(a).append(5);
  expect(await silent).toEqual([5]);
  const fourth = take(two);
  await direct.stream(b).append(6);
  expect(await fourth).toEqual([6]);
  expect(live).toContain(b);
  stop.abort();
  await Promise.all([one?.return(), two?.return()]);
});
