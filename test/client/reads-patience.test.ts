// What a reader does when something is wrong, and when it is given up. PROTOCOL.md §7
import { describe, expect, test } from "vitest";
import { startFollowing } from "../../src/client/follow.ts";
import { startReading } from "../../src/client/reading.ts";
import { documentVisibility } from "../../src/client/visibility.ts";
import { watch } from "../kits/watch.ts";
import {
  JSON_TYPE,
  CLOSE,
  EVENTS,
  opened,
  values,
  ways,
  control,
  offset,
  pageAt,
} from "./reads-kit.ts";
import { openStage, scripted, STREAM } from "./reads-stage.ts";

describe("refusals", () => {
  test.each([
    ["stream_not_found", undefined],
    ["offset_beyond_tail", offset(500)],
    ["invalid_request", "not-an-offset"],
  ] as const)("%s is thrown at once, from follow and from read", async (code, from) => {
    const stage = openStage();
    if (from !== undefined) await opened(stage, "1");
    const options = from === undefined ? {} : { from };
    await expect(values(stage, options)).rejects.toMatchObject({ code });
    const reading = startReading(stage.caller, STREAM, options).values();
    await expect(reading).rejects.toMatchObject({ code });
    expect(stage.asked.length).toBe(2);
  });

  test("damage at the server is thrown at once, though its status says later", async () => {
    const stage = await opened(openStage(), "1");
    const problem = JSON.stringify({ type: "urn:hapax:error:data_damaged", detail: "frame 7" });
    stage.fate = () => ({ answer: scripted(500, {}, [problem]) });
    await expect(values(stage)).rejects.toMatchObject({ code: "data_damaged" });
    expect(stage.asked.length).toBe(1);
  });

  test.each(["sse", "long-poll"] as const)(
    "a stream that is deleted ends its readers by %s with that",
    async (live) => {
      const stage = await opened(openStage(), "1");
      const reader = values(stage, { live });
      reader.catch(() => undefined);
      await stage.pass(10_000);
      await stage.send("DELETE");
      await expect(stage.drive(reader)).rejects.toMatchObject({ code: "stream_not_found" });
    },
  );

  test("a server that answers for an earlier place is refused, in every way of reading", async () => {
    const back = { ...JSON_TYPE, "stream-next-offset": offset(3), "stream-up-to-date": "true" };
    const answers = [
      ["sse", scripted(200, EVENTS, [control({ streamNextOffset: offset(3), upToDate: true })])],
      ["long-poll", scripted(200, back, ["[]"])],
    ] as const;
    for (const [live, answer] of answers) {
      const stage = openStage();
      stage.fate = ({ query }) => ({ answer: query.get("live") === null ? pageAt(9) : answer });
      const reader = stage.drive(values(stage, { live }));
      await expect(reader).rejects.toMatchObject({ code: "offset_beyond_tail" });
    }
    const stage = openStage();
    stage.fate = () => ({ answer: scripted(200, back, ["[]"]) });
    const reading = startReading(stage.caller, STREAM, { from: offset(4) }).values();
    await expect(reading).rejects.toMatchObject({ code: "offset_beyond_tail" });
  });
});

describe("patience", () => {
  test("a busy server is asked again, not before Retry-After, and onReconnect gets the failures", async () => {
    const stage = await opened(openStage(), "1");
    const answers = [scripted(503, { "retry-after": "7" }), scripted(429, { "retry-after": "20" })];
    stage.fate = ({ query }) => {
      const answer = query.get("live") === null ? undefined : answers.shift();
      return answer === undefined ? {} : { answer };
    };
    const told: string[] = [];
    const reader = values(stage, {
      live: "long-poll",
      onReconnect: ({ error, failures, offset: at }) =>
        told.push(`${String(failures)} ${error.code} ${at}`),
    });
    await stage.pass(40_000);
    await stage.send("POST", { ...JSON_TYPE, ...CLOSE }, "2");
    expect(await stage.drive(reader)).toEqual([1, 2]);
    const [, first = 0, second = 0, third = 0] = stage.asked.map(({ atMs }) => atMs);
    expect(second - first).toBeGreaterThanOrEqual(7_000);
    expect(third - second).toBeGreaterThanOrEqual(20_000);
    expect(told).toEqual([`1 internal ${offset(2)}`, `2 too_many ${offset(2)}`]);
  });

  test.each([null, "sse", "long-poll"] as const)(
    "an outage longer than it is thrown, when reading by %s",
    async (way) => {
      const stage = await opened(openStage({ retry: { totalMs: 30_000 } }), "1");
      const live = way === null ? {} : { live: way };
      stage.fate = ({ query }) => ({ isLost: way === null || query.get("live") === way });
      const startedMs = stage.clock.steadyMs();
      const reader = stage.drive(values(stage, live));
      await expect(reader).rejects.toMatchObject({ code: "unreachable" });
      const tookMs = stage.clock.steadyMs() - startedMs;
      expect([tookMs >= 15_000, tookMs < 50_000]).toEqual([true, true]);
    },
  );

  test("no pause begins that would outlast it", async () => {
    const stage = await opened(openStage(), "1");
    stage.fate = () => ({ answer: scripted(503, { "retry-after": "61" }) });
    await expect(values(stage)).rejects.toMatchObject({ code: "internal" });
    expect(stage.asked.length).toBe(1);
  });

  test("a machine that slept through its pause tries again before it gives up", async () => {
    const stage = await opened(openStage(), "1");
    stage.fate = () => ({ isLost: true });
    const reader = values(stage);
    await stage.pass(1_000);
    stage.clock.advance(3_600_000);
    await stage.pass(5_000);
    stage.fate = () => ({});
    await stage.send("POST", CLOSE);
    expect(await stage.drive(reader)).toEqual([1]);
  });

  test.each(["sse", "long-poll"] as const)(
    "a connection that says nothing any more is left, by %s",
    async (live) => {
      const stage = await opened(openStage(), "1");
      let isSilent = true;
      stage.fate = ({ query }) => {
        if (query.get("live") !== live || !isSilent) return {};
        isSilent = false;
        return { isSilent: true };
      };
      const reader = values(stage, { live });
      await stage.pass(100_000);
      await stage.send("POST", { ...JSON_TYPE, ...CLOSE }, "2");
      expect(await stage.drive(reader)).toEqual([1, 2]);
    },
  );

  test("events that fell silent after they had begun are asked for anew", async () => {
    const stage = await opened(openStage(), "1");
    const lastWords = control({ streamNextOffset: offset(2), upToDate: true });
    stage.fate = ({ query }) =>
      query.get("live") === "sse" && stage.asked.length < 3 ? { isSilent: true, lastWords } : {};
    const reader = values(stage);
    await stage.pass(89_000);
    expect(ways(stage)).toEqual([null, "sse"]);
    await stage.pass(3_000);
    expect(ways(stage)).toEqual([null, "sse", null, "sse"]);
    await stage.send("POST", { ...JSON_TYPE, ...CLOSE }, "2");
    expect(await stage.drive(reader)).toEqual([1, 2]);
  });

  test("a portal's page is not a stream, and is not believed", async () => {
    const stage = await opened(openStage(), "1");
    stage.fate = () =>
      stage.asked.length <= 2
        ? { answer: scripted(200, { "content-type": "text/html" }, ["<p>"]) }
        : {};
    await stage.send("POST", CLOSE);
    expect(await stage.drive(values(stage))).toEqual([1]);
  });
});

describe("giving up", () => {
  test.each(["sse", "long-poll"] as const)(
    "a signal ends a reader by %s that waits, with its reason",
    async (live) => {
      const stage = await opened(openStage(), "1");
      const stop = new AbortController();
      const reader = watch(values(stage, { live, signal: stop.signal }));
      await stage.pass(1_000);
      const why = new Error("enough");
      stop.abort(why);
      await stage.pass(50);
      expect([reader.isWaiting, reader.error]).toEqual([false, why]);
      const requests = stage.asked.length;
      await stage.pass(100_000);
      expect(stage.asked.length).toBe(requests);
    },
  );

  test("the signal of the client ends all its readers", async () => {
    const stop = new AbortController();
    const stage = await opened(openStage({ signal: stop.signal }), "1");
    const readers = (["sse", "long-poll"] as const).map((live) => watch(values(stage, { live })));
    await stage.pass(1_000);
    stop.abort(new Error("enough"));
    await stage.pass(50);
    for (const { error } of readers) expect(error).toMatchObject({ message: "enough" });
  });

  test("a signal ends a reader in its pause", async () => {
    const stage = await opened(openStage(), "1");
    stage.fate = () => ({ answer: scripted(503, { "retry-after": "3600" }) });
    const stop = new AbortController();
    const reader = watch(values(stage, { signal: stop.signal, patienceMs: Infinity }));
    await stage.pass(1_000);
    stop.abort(new Error("enough"));
    await stage.pass(50);
    expect(reader.error).toMatchObject({ message: "enough" });
  });

  test("who leaves the loop leaves no connection and no timer behind", async () => {
    for (const live of ["sse", "long-poll"] as const) {
      const stage = await opened(openStage(), "1");
      await stage.pass(50);
      const idle = stage.clock.pending;
      const reader = (async () => {
        for await (const { value } of startFollowing(stage.caller, STREAM, { live })) {
          if (value === 2) break;
        }
      })();
      await stage.pass(1_000);
      await stage.send("POST", JSON_TYPE, "2");
      await stage.drive(reader);
      await stage.pass(50);
      expect([live, stage.clock.pending]).toEqual([live, idle]);
    }
  });
});

test("a hidden page lets go of its connection, and goes on where it was when it is seen", async () => {
  for (const live of ["sse", "long-poll"] as const) {
    const stage = await opened(openStage(), "1");
    const tab = Object.assign(new EventTarget(), { visibilityState: "visible" });
    const show = (state: string): void => {
      tab.visibilityState = state;
      tab.dispatchEvent(new Event("visibilitychange"));
    };
    const failures: unknown[] = [];
    let listeners = 0;
    const reader = values(stage, {
      live,
      visibility: {
        ...documentVisibility(tab),
        onChange(run) {
          listeners += 1;
          const forget = documentVisibility(tab).onChange(run);
          return () => {
            listeners -= 1;
            forget();
          };
        },
      },
      onReconnect: (reconnect) => failures.push(reconnect),
    });
    await stage.pass(1_000);
    show("hidden");
    const requests = stage.asked.length;
    await stage.send("POST", JSON_TYPE, "2");
    await stage.pass(300_000);
    expect(stage.asked.length).toBe(requests);
    show("visible");
    await stage.pass(1_000);
    await stage.send("POST", { ...JSON_TYPE, ...CLOSE }, "3");
    expect(await stage.drive(reader)).toEqual([1, 2, 3]);
    expect([failures, listeners]).toEqual([[], 0]);
  }
});

test("a page that is hidden from the start reads what is there, and waits with the rest", async () => {
  const stage = await opened(openStage(), "1");
  const tab = Object.assign(new EventTarget(), { visibilityState: "hidden" });
  const stop = new AbortController();
  const options = { visibility: documentVisibility(tab), signal: stop.signal };
  const seen: unknown[] = [];
  const reader = watch(
    (async () => {
      for await (const { value } of startFollowing(stage.caller, STREAM, options)) seen.push(value);
    })(),
  );
  await stage.pass(60_000);
  expect([seen, ways(stage)]).toEqual([[1], [null]]);
  stop.abort(new Error("enough"));
  await stage.pass(50);
  expect(reader.error).toMatchObject({ message: "enough" });
});

test("headers that are functions are asked for before each connection", async () => {
  let count = 0;
  const stage = await opened(
    openStage({ headers: { authorization: () => `t${String(count++)}` } }),
  );
  const reader = values(stage, { live: "sse" });
  await stage.pass(70_000);
  await stage.send("POST", CLOSE);
  await stage.drive(reader);
  expect(stage.asked.map(({ headers }) => headers["authorization"])).toEqual(["t0", "t1", "t2"]);
});
