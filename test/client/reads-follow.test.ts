// What a follower does besides delivering: safe points, cursors, the end, ways of reading. PROTOCOL.md §7
import { describe, expect, test } from "vitest";
import type { Batch, StreamRecord } from "../../src/client/batches.ts";
import { startFollowing } from "../../src/client/follow.ts";
import { startReading } from "../../src/client/reading.ts";
import { watch } from "../kits/watch.ts";
import {
  JSON_TYPE,
  CLOSE,
  EVENTS,
  opened,
  values,
  ways,
  dataEvent,
  control,
  offset,
  pageAt,
} from "./reads-kit.ts";
import { openStage, scripted, type Stage, STREAM } from "./reads-stage.ts";

describe("data without its control event", () => {
  test.each([
    ["the connection ends", []],
    ["the connection is reset", [undefined]],
  ])("is not delivered when %s, and comes once with the next", async (_how, ending) => {
    const stage = openStage();
    const script = [
      pageAt(0),
      scripted(200, EVENTS, [
        control({ streamNextOffset: offset(0) }),
        dataEvent("[1]"),
        ...ending,
      ]),
      pageAt(0),
      scripted(200, EVENTS, [
        dataEvent("[1]"),
        control({ streamNextOffset: offset(2), streamClosed: true }),
      ]),
    ];
    stage.fate = () => ({ answer: script.shift() ?? scripted(500, {}) });
    const seen = await stage.drive(values(stage, { live: "sse" }));
    expect(seen).toEqual([1]);
    expect(stage.asked.map(({ query }) => query.get("offset"))).toEqual([
      "-1",
      offset(0),
      offset(0),
      offset(0),
    ]);
  });

  test("several data events before one control event are one batch", async () => {
    const stage = openStage();
    const script = [
      pageAt(0),
      scripted(200, EVENTS, [
        dataEvent("[1,2]") + dataEvent("[]") + dataEvent("[3]"),
        control({ streamNextOffset: offset(6), streamClosed: true }),
      ]),
    ];
    stage.fate = () => ({ answer: script.shift() ?? scripted(500, {}) });
    const batches: Batch<unknown>[] = [];
    const all = (async () => {
      for await (const batch of startFollowing(stage.caller, STREAM).batches()) batches.push(batch);
    })();
    await stage.drive(all);
    expect(batches.map(({ records }) => records)).toEqual([[], [1, 2, 3]]);
    expect(new TextDecoder().decode(batches[1]?.bytes)).toBe("[1,2,3]");
  });
});

describe("the cursor", () => {
  test.each(["sse", "long-poll"] as const)(
    "of the last live answer goes with the next %s request",
    async (live) => {
      const stage = await opened(openStage());
      const reader = values(stage, { live });
      const cursors: string[] = [];
      for (let index = 0; index < 5; index += 1) {
        await stage.pass(61_000);
        await stage.send("POST", JSON_TYPE, String(index));
      }
      await stage.send("POST", CLOSE);
      expect(await stage.drive(reader)).toEqual([0, 1, 2, 3, 4]);
      for (const { query } of stage.asked) cursors.push(query.get("cursor") ?? "none");
      // The page and the first live request have none; then they only grow.
      expect(cursors.slice(0, 2)).toEqual(["none", "none"]);
      const later = cursors.slice(2).map(Number);
      expect(later.length).toBeGreaterThan(3);
      expect(later.every((cursor, at) => cursor > 3e6 / 2 && cursor >= (later[at - 1] ?? 0))).toBe(
        true,
      );
    },
  );

  test("is echoed as it was given, also from control events", async () => {
    const stage = openStage();
    const script = [
      pageAt(0),
      scripted(200, EVENTS, [
        control({ streamNextOffset: offset(0), streamCursor: "41", upToDate: true }),
      ]),
      pageAt(0),
      scripted(200, EVENTS, [control({ streamNextOffset: offset(0), streamClosed: true })]),
    ];
    stage.fate = () => ({ answer: script.shift() ?? scripted(500, {}) });
    await stage.drive(values(stage, { live: "sse" }));
    expect(stage.asked.map(({ query }) => query.toString())).toEqual([
      "offset=-1",
      `live=sse&offset=${offset(0)}`,
      `offset=${offset(0)}`,
      `cursor=41&live=sse&offset=${offset(0)}`,
    ]);
  });
});

describe("the end", () => {
  test.each(["sse", "long-poll"] as const)(
    "is reached when the stream is closed, by %s",
    async (live) => {
      const stage = await opened(openStage(), "1");
      const reader = watch(values(stage, { live }));
      await stage.pass(120_000);
      expect(reader.isWaiting).toBe(true);
      await stage.send("POST", { ...JSON_TYPE, ...CLOSE }, "2");
      await stage.pass(100);
      expect(reader.value).toEqual([1, 2]);
    },
  );

  test.each(["sse", "long-poll"] as const)(
    "of a close without data gives an empty batch, by %s",
    async (live) => {
      const stage = await opened(openStage());
      const closed: boolean[] = [];
      const reader = (async () => {
        const follow = startFollowing(stage.caller, STREAM, { live });
        for await (const batch of follow.batches()) closed.push(batch.closed);
      })();
      await stage.pass(1_000);
      await stage.send("POST", CLOSE);
      await stage.drive(reader);
      expect(closed).toEqual([false, true]);
    },
  );

  test("of a stream that is closed already needs one request", async () => {
    const stage = await opened(openStage(), "[1,2]");
    await stage.send("POST", CLOSE);
    expect(await stage.drive(values(stage))).toEqual([1, 2]);
    expect(ways(stage)).toEqual([null]);
  });
});

describe("beginning", () => {
  test("at now gives what comes from then on, also over a lost connection", async () => {
    const stage = await opened(openStage(), "1", "2");
    stage.fate = ({ query }) => (query.get("live") === null ? {} : { isLost: true });
    const reader = values(stage, { from: "now", patienceMs: Infinity });
    await stage.pass(1_000);
    await stage.send("POST", JSON_TYPE, "3");
    await stage.pass(10_000);
    stage.fate = () => ({});
    await stage.send("POST", { ...JSON_TYPE, ...CLOSE }, "4");
    expect(await stage.drive(reader)).toEqual([3, 4]);
    expect(stage.asked.filter(({ query }) => query.get("offset") === "now").length).toBe(1);
  });

  test("at the offset of any record that has one gives exactly what follows it", async () => {
    const stage = await opened(openStage(), "[1,2,3]", "4");
    const records: StreamRecord<number>[] = [];
    const reader = (async () => {
      for await (const record of startFollowing<number>(stage.caller, STREAM)) records.push(record);
    })();
    for (const body of ["[5,6]", "7", "[8,9,10]"]) {
      await stage.pass(100);
      await stage.send("POST", JSON_TYPE, body);
    }
    await stage.send("POST", CLOSE);
    await stage.drive(reader);
    const values = records.map(({ value }) => value);
    expect(values).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    const safe = records.filter((record) => record.offset !== undefined);
    expect(safe.map(({ value }) => value)).toEqual([4, 6, 7, 10]);
    for (const { value, offset: from = "" } of safe) {
      const rest = await startReading<number>(stage.caller, STREAM, { from }).values();
      expect(rest).toEqual(values.slice(values.indexOf(value) + 1));
    }
  });
});

test("onUpToDate is called when all records before the tail were handled, once each time", async () => {
  const stage = await opened(openStage(), "1", "2");
  const told: unknown[] = [];
  const reader = (async () => {
    const options = { onUpToDate: () => told.push("tail") };
    for await (const { value } of startFollowing(stage.caller, STREAM, options)) told.push(value);
  })();
  await stage.pass(100);
  expect(told).toEqual([1, 2, "tail"]);
  await stage.send("POST", JSON_TYPE, "3");
  await stage.send("POST", CLOSE);
  await stage.drive(reader);
  expect(told).toEqual([1, 2, "tail", 3]);
});

describe("where events do not get through", () => {
  const finish = async (stage: Stage, reader: Promise<unknown[]>): Promise<void> => {
    await stage.pass(20_000);
    await stage.send("POST", JSON_TYPE, "2");
    await stage.pass(5_000);
    await stage.send("POST", { ...JSON_TYPE, ...CLOSE }, "3");
    expect(await stage.drive(reader)).toEqual([1, 2, 3]);
  };

  test("a proxy that collects them sends the reader to long-poll", async () => {
    const stage = await opened(openStage(), "1");
    stage.fate = ({ query }) => ({ isCollected: query.get("live") === "sse" });
    await finish(stage, values(stage));
    expect(new Set(ways(stage).slice(2))).toEqual(new Set(["long-poll"]));
    // The first events are waited for, five seconds and no longer.
    expect((stage.asked[2]?.atMs ?? 0) - (stage.asked[1]?.atMs ?? 0)).toBeLessThanOrEqual(5_100);
  });

  test.each([400, 406, 415, 501])("so does a refusal of this way with %d", async (status) => {
    const stage = await opened(openStage(), "1");
    stage.fate = ({ query }) =>
      query.get("live") === "sse" ? { answer: scripted(status, {}, ["not here"]) } : {};
    await finish(stage, values(stage));
    expect(ways(stage).slice(0, 3)).toEqual([null, "sse", "long-poll"]);
  });

  test("so does an answer that is a page", async () => {
    const stage = await opened(openStage(), "1");
    stage.fate = ({ query }) => {
      if (query.get("live") === "sse") query.delete("live");
      return query.get("live") === null && stage.asked.length === 2 ? { answer: pageAt(2) } : {};
    };
    await finish(stage, values(stage));
    expect(ways(stage)[2]).toBe("long-poll");
  });

  test("so do three connections in a row that end at once, and not two", async () => {
    for (const [count, last] of [
      [3, "long-poll"],
      [2, "sse"],
    ] as const) {
      const stage = await opened(openStage(), "1");
      stage.fate = ({ query }) => {
        return query.get("live") === "sse" && stage.cuts < count ? { endAfterBytes: 60 } : {};
      };
      await finish(stage, values(stage));
      expect([count, ways(stage).at(-1)]).toEqual([count, last]);
    }
  });

  test("so do three requests for them that get no answer while pages do", async () => {
    const stage = await opened(openStage(), "1");
    stage.fate = ({ query }) => ({ isLost: query.get("live") === "sse" });
    await finish(stage, values(stage));
    const tried = ways(stage).filter((way) => way !== null);
    expect(tried.slice(0, 4)).toEqual(["sse", "sse", "sse", "long-poll"]);
  });

  test("so does a server that sends data without end and no control event", async () => {
    const stage = await opened(openStage(), "1");
    const flood = Array.from({ length: 40 }, () =>
      dataEvent(JSON.stringify("x".repeat(1_000_000))),
    );
    stage.fate = ({ query }) =>
      query.get("live") === "sse" ? { answer: scripted(200, EVENTS, flood) } : {};
    await finish(stage, values(stage));
    expect(ways(stage).slice(0, 3)).toEqual([null, "sse", "long-poll"]);
  });

  test("who insists on events waits for them longer", async () => {
    const stage = await opened(openStage(), "1");
    stage.fate = ({ query }) => ({ isCollected: query.get("live") === "sse" });
    await finish(stage, values(stage, { live: "sse" }));
    expect(ways(stage).slice(0, 2)).toEqual([null, "sse"]);
    expect(ways(stage)).not.toContain("long-poll");
  });

  test("who insists on events is not busy with connections that end at once", async () => {
    const stage = await opened(openStage(), "1");
    const ending = control({ streamNextOffset: offset(2), upToDate: true });
    stage.fate = ({ query }) =>
      query.get("live") === "sse" ? { answer: scripted(200, EVENTS, [ending]) } : {};
    const reader = watch(values(stage, { live: "sse" }));
    await stage.pass(60_000);
    const tried = ways(stage).filter((way) => way === "sse").length;
    expect([reader.isWaiting, tried > 20, tried < 75]).toEqual([true, true, true]);
  });

  test("with live sse, a server without events is an error", async () => {
    const stage = await opened(openStage(), "1");
    stage.fate = ({ query }) =>
      query.get("live") === "sse" ? { answer: scripted(400, {}, ["not here"]) } : {};
    const reader = values(stage, { live: "sse" });
    await expect(stage.drive(reader)).rejects.toMatchObject({ code: "invalid_request" });
  });

  test("text is followed by pages that are exact, unless events are asked for", async () => {
    for (const [live, way, expected] of [
      ["auto", "long-poll", "a\r\nb\rc"],
      ["sse", "sse", "a\nb\nc"],
    ] as const) {
      const stage = openStage();
      const headers = { "content-type": "text/plain" };
      await stage.send("PUT", headers);
      const reader = values(stage, { live });
      await stage.pass(100);
      await stage.send("POST", { ...headers, ...CLOSE }, "a\r\nb\rc");
      expect(await stage.drive(reader)).toEqual([expected]);
      expect(ways(stage)).toEqual([null, way]);
    }
  });

  test("connections that are cut late, however often, change nothing", async () => {
    const stage = await opened(openStage());
    stage.fate = ({ query }) => (query.get("live") === "sse" ? { cutAfterBytes: 200 } : {});
    const reader = values(stage);
    for (let index = 0; index < 6; index += 1) {
      await stage.pass(10_000);
      await stage.send("POST", JSON_TYPE, String(index));
    }
    await stage.pass(1_000);
    stage.fate = () => ({});
    await stage.send("POST", CLOSE);
    expect(await stage.drive(reader)).toEqual([0, 1, 2, 3, 4, 5]);
    // Each append was cut, and the close.
    expect([stage.cuts, ways(stage).includes("long-poll")]).toEqual([7, false]);
  });

  test("a server that does not wait is not asked without end", async () => {
    const stage = await opened(openStage(), "1");
    stage.fate = ({ query }) => {
      if (query.get("live") === null) return {};
      // A reader in a hurry fails here, and does not hang the test.
      return stage.asked.length < 500 ? { answer: pageAt(2) } : { isLost: true };
    };
    const reader = watch(values(stage, { live: "long-poll", signal: AbortSignal.timeout(1e6) }));
    await stage.pass(60_000);
    expect(reader.isWaiting).toBe(true);
    expect(stage.asked.length).toBeLessThan(100);
  });
});
