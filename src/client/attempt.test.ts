import { expect, test } from "vitest";
import { isHapaxError } from "../base/errors.ts";
import { createSeededRandom } from "../testing/seeded-random.ts";
import { createVirtualClock, type VirtualClock } from "../testing/virtual-clock.ts";

import { turn } from "../../test/kits/watch.ts";
import { type Answered, type Call, Caller, refusalOf } from "./attempt.ts";
import { RequestAttempt } from "./request.ts";
import { type ClientOptions, resolveClientOptions } from "./options.ts";
import type { ClientAnswer, ClientRequest } from "./transport.ts";

type Script =
  | number
  | "lost"
  | "silent"
  | readonly [number, Readonly<Record<string, string>>, string?];

interface Bench {
  readonly clock: VirtualClock;
  readonly caller: Caller;
  readonly requests: { readonly atMs: number; readonly request: ClientRequest }[];
  readonly settle: <Value>(promise: Promise<Value>) => Promise<Value>;
}

function answer(
  status: number,
  headers: Readonly<Record<string, string>>,
  body = "",
): ClientAnswer {
  return {
    status,
    header: (name) => headers[name],
    bytes: () => Promise.resolve(new TextEncoder().encode(body)),
    async *chunks() {
      yield await Promise.resolve(new TextEncoder().encode(body));
    },
    discard: () => undefined,
  };
}

/** A caller whose transport answers as the script says; the last line is repeated. */
function open(script: readonly Script[], options: ClientOptions = {}): Bench {
  const clock = createVirtualClock(Date.UTC(2026, 0, 1));
  const requests: Bench["requests"] = [];
  const transport = (request: ClientRequest): Promise<ClientAnswer> => {
    const line = script[Math.min(requests.length, script.length - 1)] ?? 200;
    requests.push({ atMs: clock.steadyMs(), request });
    if (line === "lost") return Promise.reject(new TypeError("fetch failed"));
    if (line === "silent") return new Promise(() => undefined);
    return Promise.resolve(typeof line === "number" ? answer(line, {}) : answer(...line));
  };
  const random = createSeededRandom(1);
  const caller = new Caller(
    resolveClientOptions({ clock, random, transport, ...options }, "http://stage.test"),
  );
  return {
    clock,
    caller,
    requests,
    async settle(promise) {
      let isSettled = false;
      const settled = (): void => {
        isSettled = true;
      };
      promise.then(settled, settled);
      for (let step = 0; !isSettled && step < 100_000; step += 1) {
        await turn();
        if (!isSettled) clock.advance(10);
      }
      return promise;
    },
  };
}

const CALL: Call = {
  method: "POST",
  url: "http://stage.test/s?live=1",
  headers: { "Producer-Seq": "7" },
  body: new Uint8Array([1, 2, 3]),
};

test("every attempt sends the same call, with what the options add asked for anew", async () => {
  let tokens = 0;
  const { caller, requests, settle } = open([503, "lost", 200], {
    headers: {
      Authorization: () => Promise.resolve(`token ${String((tokens += 1))}`),
      "X-Who": "me",
    },
    params: { at: () => String(tokens), "a b": "&" },
  });
  await settle(caller.untilAnswered(CALL));
  expect(requests.map(({ request }) => request.headers)).toEqual(
    ["token 1", "token 2", "token 3"].map((token) => ({
      Authorization: token,
      "X-Who": "me",
      "Producer-Seq": "7",
    })),
  );
  expect(requests[2]?.request.url).toBe("http://stage.test/s?a+b=%26&at=3&live=1");
  expect(requests.every(({ request }) => request.body === CALL.body)).toBe(true);
});

for (const status of [408, 425, 429, 500, 502, 503, 504, 507]) {
  test(`a ${String(status)} is repeated`, async () => {
    const { caller, requests, settle } = open([status, 200]);
    const { answer: last } = await settle(caller.untilAnswered(CALL));
    expect([last.status, requests.length]).toEqual([200, 2]);
  });
}

for (const status of [200, 204, 301, 400, 401, 403, 404, 409, 412, 413, 501, 505]) {
  test(`a ${String(status)} is an answer`, async () => {
    const { caller, requests, settle } = open([status, 200]);
    const { answer: last } = await settle(caller.untilAnswered(CALL));
    expect([last.status, requests.length]).toEqual([status, 1]);
  });
}

test("pauses double with jitter, up to the longest", async () => {
  const options = { retry: { pauseMs: 100, pauseMsMax: 1_000, totalMs: 20_000 } };
  const { caller, requests, settle } = open(["lost"], options);
  await expect(settle(caller.untilAnswered(CALL))).rejects.toMatchObject({ code: "unreachable" });
  const pauses = requests.slice(1).map(({ atMs }, at) => atMs - (requests[at]?.atMs ?? 0));
  for (const [at, pauseMs] of pauses.entries()) {
    const ceilingMs = Math.min(1_000, 100 * 2 ** at);
    // The clock moves by 10.
    expect(pauseMs).toBeGreaterThanOrEqual(ceilingMs / 2);
    expect(pauseMs).toBeLessThanOrEqual(ceilingMs + 10);
  }
  expect(new Set(pauses.slice(5)).size).toBeGreaterThan(1);
});

test("no pause is shorter than Retry-After, in seconds or as a date", async () => {
  const date = new Date(Date.UTC(2026, 0, 1, 0, 0, 30)).toUTCString();
  const script: Script[] = [[429, { "retry-after": "7" }], [503, { "retry-after": date }], 200];
  const { caller, requests, settle } = open(script);
  await settle(caller.untilAnswered(CALL));
  expect(requests.map(({ atMs }) => Math.floor(atMs / 1000))).toEqual([0, 7, 30]);
});

test("no pause begins that would outlast the time of the call", async () => {
  const asked = open([[503, { "retry-after": "61" }]]);
  const { answer: last } = await asked.settle(asked.caller.untilAnswered(CALL));
  expect([last.status, asked.requests.length]).toEqual([503, 1]);
  const lost = open(["lost"], { retry: { totalMs: 5_000 } });
  await expect(lost.settle(lost.caller.untilAnswered(CALL))).rejects.toMatchObject({
    code: "unreachable",
  });
  expect(lost.clock.steadyMs()).toBeLessThanOrEqual(5_000);
  expect(lost.requests.length).toBeGreaterThan(3);
  const once = open(["lost"], { retry: { totalMs: 0 } });
  await expect(once.settle(once.caller.untilAnswered(CALL))).rejects.toThrow("fetch failed");
  expect(once.requests).toHaveLength(1);
});

test("an attempt without an answer ends at its time limit", async () => {
  const { caller, requests, settle } = open(["silent", 200], { timeoutMs: 1_000 });
  const { wasUnknown } = await settle(caller.untilAnswered(CALL));
  expect([requests.length, wasUnknown]).toEqual([2, true]);
  expect(requests[1]?.atMs).toBeGreaterThanOrEqual(1_000);
  expect(requests[0]?.request.signal?.aborted).toBe(true);
});

for (const [script, wasUnknown] of [
  [[200], false],
  [[429, 425, 200], false],
  [["lost", 200], true],
  [["silent", 200], true],
  [[500, 200], true],
  [[408, 409], true],
  [["lost", 429, 404], true],
] as readonly [readonly (number | "lost" | "silent")[], boolean][]) {
  test(`after ${script.join(", ")} the outcome of an attempt ${wasUnknown ? "was" : "was never"} unknown`, async () => {
    const { caller, settle } = open(script);
    const answered: Answered = await settle(caller.untilAnswered(CALL));
    expect(answered.wasUnknown).toBe(wasUnknown);
  });
}

test("a call that ends with a 5xx leaves its outcome open", async () => {
  const { caller, settle } = open([503], { retry: { totalMs: 0 } });
  const { answer: last, wasUnknown } = await settle(caller.untilAnswered(CALL));
  expect([last.status, wasUnknown]).toEqual([503, true]);
});

test("a signal ends an attempt, a pause and a connection with its reason", async () => {
  const reason = new Error("enough");
  for (const script of ["silent", "lost"] as const) {
    const controller = new AbortController();
    const { caller, settle, clock } = open([script], { retry: { pauseMs: 1_000 } });
    const call = caller.untilAnswered({ ...CALL, signal: controller.signal });
    clock.after(100, () => {
      controller.abort(reason);
    });
    await expect(settle(call)).rejects.toBe(reason);
    expect(clock.steadyMs()).toBeLessThan(200);
  }
  const connection = new AbortController();
  const { caller, requests, settle } = open([200], { signal: connection.signal });
  connection.abort(reason);
  await expect(settle(caller.untilAnswered(CALL))).rejects.toBe(reason);
  expect(requests).toEqual([]);
});

test("a body that stops coming ends with the attempt's time; one in pieces has what its reader gives it", async () => {
  const stuck: ClientAnswer = { ...answer(200, {}), bytes: () => new Promise(() => undefined) };
  const bench = open([200], { transport: () => Promise.resolve(stuck), timeoutMs: 500 });
  const whole = bench.caller.once(CALL).then((came) => came.bytes());
  await expect(bench.settle(whole)).rejects.toMatchObject({ code: "unreachable" });
  for (const isLive of [true, false]) {
    const came = await bench.settle(new RequestAttempt(bench.caller, CALL).send());
    const chunks = came.chunks();
    expect((await chunks.next()).done).toBe(false);
    if (isLive) came.arm(Infinity);
    bench.clock.advance(10_000);
    expect(came.isSilent).toBe(!isLive);
    if (isLive) expect((await chunks.next()).done).toBe(true);
    else await expect(chunks.next()).rejects.toMatchObject({ code: "unreachable" });
    expect(bench.clock.pending).toBe(0);
  }
});

for (const [status, headers, body, code] of [
  [409, {}, '{"type":"urn:hapax:error:stream_exists","detail":"another TTL"}', "stream_exists"],
  [409, { "stream-closed": "true" }, "closed", "stream_closed"],
  [409, { "producer-expected-seq": "3" }, "gap", "producer_gap"],
  [409, {}, "conflict", "refused"],
  [403, { "producer-epoch": "4" }, "stale", "producer_fenced"],
  [403, {}, "forbidden by a proxy", "not_allowed"],
  [404, {}, "", "stream_not_found"],
  [410, {}, "", "stream_gone"],
  [413, {}, "<html>", "body_too_large"],
  [418, {}, "teapot", "refused"],
  [302, {}, "", "refused"],
  [400, {}, '{"type":"urn:hapax:error:toString"}', "invalid_request"],
  [400, {}, '{"type":"urn:hapax:error:constructor"}', "invalid_request"],
  [400, {}, '{"type":"urn:hapax:error:__proto__"}', "invalid_request"],
] as const) {
  test(`a ${String(status)} that says ${body.slice(0, 40)} ${JSON.stringify(headers)} is ${code}`, async () => {
    const error = await refusalOf(answer(status, headers, body));
    expect(isHapaxError(error, code)).toBe(true);
    expect(error.message).toContain(`status=${String(status)}`);
  });
}

test("a code of a newer server stays, with the status of its answer and what that says of repeating", async () => {
  const seen: unknown[] = [];
  for (const status of [409, 429, 500]) {
    const body = '{"type":"urn:hapax:error:from_the_future"}';
    const error = await refusalOf(answer(status, {}, body));
    seen.push([error.code, error.status, error.retry]);
  }
  expect(seen).toEqual([
    ["from_the_future", 409, "never"],
    ["from_the_future", 429, "later"],
    ["from_the_future", 500, "later"],
  ]);
});

test("an answer without a code has the status of the code that it gets", async () => {
  const seen: unknown[] = [];
  for (const status of [418, 425, 502]) {
    const error = await refusalOf(answer(status, {}, ""));
    seen.push([error.code, error.status, error.retry]);
  }
  expect(seen).toEqual([
    ["refused", 400, "never"],
    ["too_many", 429, "later"],
    ["internal", 500, "later"],
  ]);
});

test("a refusal whose words are cut is still that refusal", async () => {
  const { caller, settle } = open([404], {
    transport: () =>
      Promise.resolve({ ...answer(404, {}), bytes: () => Promise.reject(new TypeError("cut")) }),
  });
  const cut = await settle(caller.once(CALL));
  expect((await refusalOf(cut)).code).toBe("stream_not_found");
});
