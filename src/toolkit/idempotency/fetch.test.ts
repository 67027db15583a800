// A caller against servers whose answers each test chooses, in time that the test moves.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { isHapaxError } from "../../base/errors.ts";
import { createSeededRandom } from "../../testing/seeded-random.ts";
import { createVirtualClock, type VirtualClock } from "../../testing/virtual-clock.ts";
import { turn, watch } from "../../../test/kits/watch.ts";
import {
  createIdempotentFetch,
  type IdempotentFetchOptions,
  type IdempotentInit,
} from "./fetch.ts";
import { type KeyStore, memoryKeyStore } from "./key-store.ts";

const URL_A = "https://api.test/charges";
const WINDOW_MS = 10_000;
/** 2026-01-02 03:04:05 UTC. */
const START_MS = 1_767_323_045_000;

interface Sent {
  readonly atMs: number;
  readonly key: string | null;
  readonly method: string;
  readonly type: string | null;
  readonly body: string;
}

/** What the server does with the n-th request: answers, fails, or stays silent. */
type Reply = Response | "fails" | "silent" | (() => Promise<Response>);

class Stage {
  readonly clock: VirtualClock = createVirtualClock(START_MS);
  readonly sent: Sent[] = [];
  store: KeyStore = memoryKeyStore();
  #replies: Reply[];
  #made = 0;

  constructor(...replies: Reply[]) {
    this.#replies = replies;
  }

  reply(...replies: Reply[]): void {
    this.#replies = replies;
  }

  readonly fetch: typeof fetch = async (input, init) => {
    const request = new Request(input, init);
    this.sent.push({
      atMs: this.clock.nowMs() - START_MS,
      key: request.headers.get("idempotency-key"),
      method: request.method,
      type: request.headers.get("content-type"),
      body: await request.text(),
    });
    const reply = this.#replies.length > 1 ? this.#replies.shift() : this.#replies[0];
    if (reply === "fails" || reply === undefined) throw new TypeError("fetch failed");
    if (typeof reply === "function") return reply();
    if (reply !== "silent") return reply.clone();
    return new Promise((_resolve, reject) => {
      const signal = init?.signal;
      signal?.addEventListener("abort", () => {
        reject(signal.reason as Error);
      });
    });
  };

  make(options: Partial<IdempotentFetchOptions> = {}) {
    // Another source for each: equal keys come from the store, or not at all.
    this.#made += 1;
    return createIdempotentFetch({
      store: this.store,
      windowMs: WINDOW_MS,
      fetch: this.fetch,
      clock: this.clock,
      random: createSeededRandom(this.#made),
      ...options,
    });
  }

  /** Lets a millisecond pass whenever nothing else can happen, until the promise has settled. */
  async drive<T>(promise: Promise<T>): Promise<T> {
    const watched = watch(promise);
    // The digest is computed on another thread: no time passes before something waits for it.
    while (watched.isWaiting) {
      await turn();
      if (this.clock.pending > 0) this.clock.advance(1);
    }
    return promise;
  }

  call(init: IdempotentInit = { json: { cents: 5 } }, options?: Partial<IdempotentFetchOptions>) {
    return this.drive(this.make(options)("charge 17", URL_A, init));
  }

  get keys(): ReadonlySet<string | null> {
    return new Set(this.sent.map(({ key }) => key));
  }
}

const answer = (status: number, headers: Record<string, string> = {}, body = "{}"): Response =>
  new Response(body, { status, headers });
const httpDate = (ms: number): string => new Date(ms).toUTCString();
const failsWith = (code: Parameters<typeof isHapaxError>[1]) => (error: unknown) =>
  isHapaxError(error, code);

describe("the key", () => {
  test("nothing is sent before the store has said that the key is kept", async () => {
    const stage = new Stage(answer(201));
    const memory = memoryKeyStore();
    let release: () => void = () => undefined;
    const kept = new Promise<void>((resolve) => {
      release = resolve;
    });
    let isAsked = false;
    stage.store = {
      ...memory,
      put: async (operation, record) => {
        isAsked = true;
        await kept;
        return memory.put(operation, record);
      },
    };
    const answered = stage.make()("charge 17", URL_A, { json: 1 });
    while (!isAsked) await turn();
    for (let turns = 0; turns < 5; turns += 1) await turn();
    expect(stage.sent).toEqual([]);
    release();
    expect((await stage.drive(answered)).status).toBe(201);
    expect(stage.keys).toEqual(new Set([`"${(await memory.get("charge 17"))?.key}"`]));
  });

  test("a store that fails lets nothing out", async () => {
    const stage = new Stage(answer(201));
    stage.store = { ...stage.store, put: () => Promise.reject(new Error("disk full")) };
    await expect(stage.call()).rejects.toThrow("disk full");
    expect(stage.sent).toEqual([]);
  });

  test("is the same in all attempts, also in those of another process and at once", async () => {
    const stage = new Stage("fails", answer(503), answer(201));
    await stage.call();
    stage.reply("fails", answer(200));
    const calls = Array.from({ length: 8 }, () => stage.call());
    for (const { status } of await Promise.all(calls)) expect(status).toBe(200);
    expect(stage.sent.length).toBeGreaterThan(10);
    expect(stage.keys.size).toBe(1);
  });

  test("two operations have two keys, as has each caller's own header and syntax", async () => {
    const stage = new Stage(answer(200));
    const call = stage.make();
    await stage.drive(call("charge 17", URL_A, { json: 1 }));
    await stage.drive(call("charge 18", URL_A, { json: 1 }));
    expect(stage.keys.size).toBe(2);
    for (const key of stage.keys) expect(key).toMatch(/^"[0-9a-f]{32}"$/);
    const bare = stage.make({ keySyntax: "bare" });
    await stage.drive(bare("charge 19", URL_A, { json: 1 }));
    expect(stage.sent.at(-1)?.key).toMatch(/^[0-9a-f]{32}$/);
    const named = stage.make({ keyHeader: "X-Request-Id" });
    await stage.drive(named("charge 20", URL_A, { json: 1 }));
    expect(stage.sent.at(-1)?.key).toBeNull();
  });

  test("a name that was used for another content is refused before anything is sent", async () => {
    const stage = new Stage(answer(201));
    await stage.call({ json: { cents: 5 } });
    const others: [string, IdempotentInit][] = [
      [URL_A, { json: { cents: 6 } }],
      [URL_A, { json: { cents: 5 }, method: "PATCH" }],
      [`${URL_A}?a`, { json: { cents: 5 } }],
      [URL_A, { body: '{"cents":5}' }],
    ];
    for (const [url, init] of others) {
      const call = stage.drive(stage.make()("charge 17", url, init));
      await expect(call).rejects.toSatisfy(failsWith("key_reused"));
    }
    expect(stage.sent).toHaveLength(1);
    // What may change from one attempt to the next is not content.
    await stage.call({
      body: '{"cents":5}',
      headers: { "content-type": "application/json", a: "b" },
    });
    expect(stage.keys.size).toBe(1);
  });

  test("a name is free after done, and not before, however old it is", async () => {
    const stage = new Stage(answer(201));
    const call = stage.make();
    await stage.drive(call("charge 17", URL_A, { json: 1 }));
    stage.clock.advance(WINDOW_MS * 100);
    const late = stage.drive(call("charge 17", URL_A, { json: 1 }));
    await expect(late).rejects.toSatisfy(failsWith("key_expired"));
    await call.done("charge 17");
    await stage.drive(call("charge 17", URL_A, { json: 2 }));
    expect(stage.sent).toHaveLength(2);
    expect(stage.keys.size).toBe(2);
  });

  test("a late answer in one caller gives no key back that another has freed", async () => {
    let arrive = (_response: Response): void => undefined;
    const late = new Promise<Response>((resolve) => {
      arrive = resolve;
    });
    const stage = new Stage(() => late);
    const [slow, quick] = [stage.make(), stage.make()];
    const first = slow("charge 17", URL_A, { json: 1 });
    while (stage.sent.length === 0) await turn();
    await quick.done("charge 17");
    // The server says when it forgets the key, which is written down.
    arrive(answer(200, { "Idempotency-Expires": httpDate(stage.clock.nowMs() + 5000) }));
    await stage.drive(first);
    expect(await stage.store.get("charge 17")).toBeUndefined();
    stage.reply(answer(200));
    await stage.drive(quick("charge 17", URL_A, { json: 1 }));
    expect(stage.keys.size).toBe(2);
  });

  test("done is refused while a call of the operation is running", async () => {
    const stage = new Stage("silent");
    const call = stage.make();
    const ending = new AbortController();
    const answered = watch(call("charge 17", URL_A, { json: 1, signal: ending.signal }));
    await expect(call.done("charge 17")).rejects.toSatisfy(failsWith("in_progress"));
    await call.done("charge 18");
    while (stage.sent.length === 0) await turn();
    ending.abort(new Error("enough"));
    while (answered.isWaiting) await turn();
    expect(answered.error).toEqual(new Error("enough"));
    await call.done("charge 17");
  });
});

describe("the window", () => {
  test("a call that is resumed when the window is over sends nothing", async () => {
    const stage = new Stage("fails");
    await expect(stage.call()).rejects.toSatisfy(failsWith("unreachable"));
    const sent = stage.sent.length;
    stage.clock.advance(WINDOW_MS);
    stage.reply(answer(201));
    await expect(stage.call()).rejects.toSatisfy(failsWith("key_expired"));
    expect(stage.sent).toHaveLength(sent);
  });

  test("a call that is resumed within the window goes on, and stops before its end", async () => {
    const stage = new Stage("fails");
    await expect(stage.call()).rejects.toSatisfy(failsWith("unreachable"));
    stage.clock.advance(WINDOW_MS - stage.clock.steadyMs() - 3000);
    await expect(stage.call()).rejects.toSatisfy(failsWith("key_expired"));
    expect(Math.max(...stage.sent.map(({ atMs }) => atMs))).toBeLessThanOrEqual(WINDOW_MS - 2000);
    expect(stage.keys.size).toBe(1);
  });

  test("what the server says of a key counts after a restart, by the server's own clock", async () => {
    const serverMs = Date.UTC(2030, 0, 1);
    const stage = new Stage(
      answer(201, {
        date: httpDate(serverMs),
        "idempotency-expires": httpDate(serverMs + 5000),
      }),
    );
    const first = await stage.call();
    expect(first.status).toBe(201);
    stage.clock.advance(2000);
    expect((await stage.call()).status).toBe(201);
    stage.clock.advance(2000);
    await expect(stage.call()).rejects.toSatisfy(failsWith("key_expired"));
    expect(stage.sent).toHaveLength(2);
  });

  test("a clock that was set back far does not make a key young", async () => {
    const stage = new Stage(answer(201));
    await stage.call();
    stage.clock.jump(-2 * WINDOW_MS);
    await expect(stage.call()).rejects.toSatisfy(failsWith("key_expired"));
  });

  test("a clock that jumps during a call changes nothing", async () => {
    const stage = new Stage("fails");
    const answered = stage.call();
    while (stage.sent.length < 2) await turn();
    stage.clock.jump(-WINDOW_MS * 5);
    stage.reply(answer(201));
    expect((await answered).status).toBe(201);
  });

  test("patience that could outlast the window is refused, with all other problems", () => {
    const stage = new Stage();
    expect(() => stage.make({ retry: { totalMs: 8000 }, timeoutMs: 2000 })).not.toThrow();
    const wrong = {
      windowMs: WINDOW_MS,
      retry: { totalMs: 8001, pauseMs: 0, attemptsMax: 0 },
      timeoutMs: 2001,
      keyHeader: "two words",
    };
    let message = "";
    try {
      stage.make(wrong);
    } catch (error) {
      expect(isHapaxError(error, "invalid_options")).toBe(true);
      message = String(error);
    }
    for (const name of ["totalMs", "pauseMs", "attemptsMax", "timeoutMs", "keyHeader"]) {
      expect(message).toContain(name);
    }
    for (const windowMs of [Number.NaN, 0, -1, Infinity]) {
      expect(() => stage.make({ windowMs })).toThrow(/windowMs/);
    }
  });

  test("with every fault of the network, attempts are equal, and none can still be running after the window", async () => {
    const reply = fc.oneof(
      fc.constantFrom<Reply>("fails", "silent"),
      fc.constantFrom(429, 500, 503, 409).map((status) => answer(status, { "retry-after": "1" })),
      fc.constantFrom(408, 502).map((status) => answer(status)),
    );
    const run = fc.record({
      replies: fc.array(reply, { minLength: 1, maxLength: 6 }),
      restarts: fc.array(fc.integer({ min: 0, max: WINDOW_MS }), { minLength: 1, maxLength: 4 }),
      totalMs: fc.integer({ min: 1, max: 8000 }),
      timeoutMs: fc.integer({ min: 1, max: 2000 }),
    });
    await fc.assert(
      fc.asyncProperty(run, async ({ replies, restarts, totalMs, timeoutMs }) => {
        const stage = new Stage(...replies);
        for (const pauseMs of restarts) {
          const startMs = stage.clock.steadyMs();
          const call = stage.call({ body: "x" }, { retry: { totalMs, pauseMs: 50 }, timeoutMs });
          await call.catch((error: unknown) => {
            const isExpected = ["unreachable", "key_expired"].some((code) =>
              isHapaxError(error, code as "unreachable"),
            );
            if (!isExpected) throw error;
          });
          expect(stage.clock.steadyMs() - startMs).toBeLessThanOrEqual(totalMs + 3);
          stage.clock.advance(pauseMs);
        }
        expect(new Set(stage.sent.map(({ key, body }) => `${key} ${body}`)).size).toBe(1);
        const last = Math.max(...stage.sent.map(({ atMs }) => atMs));
        expect(last + timeoutMs).toBeLessThanOrEqual(WINDOW_MS);
      }),
      { numRuns: 30 },
    );
  });
});

describe("repeating", () => {
  const kept = { "idempotency-replayed": "true" };
  const busy = { "retry-after": "1" };
  const problem = JSON.stringify({ type: "urn:hapax:error:in_progress" });
  const conflict = JSON.stringify({ type: "urn:hapax:error:answer_not_kept" });
  const CASES: readonly [string, boolean, Response][] = [
    ["408", true, answer(408)],
    ["425", true, answer(425)],
    ["429", true, answer(429)],
    ["500", true, answer(500)],
    ["503", true, answer(503)],
    ["409 with Retry-After", true, answer(409, busy)],
    ["409 of the type in_progress", true, answer(409, {}, problem)],
    ["409 of another type", false, answer(409, {}, conflict)],
    ["409 without a type", false, answer(409, {}, "no")],
    ["409 that was kept", false, answer(409, { ...kept, ...busy }, problem)],
    ["500 that was kept", false, answer(500, kept)],
    ["500 that Stripe has kept", false, answer(500, { "idempotent-replayed": "true" })],
    ["422", false, answer(422)],
    ["400", false, answer(400)],
    ["501", false, answer(501)],
    ["200", false, answer(200)],
  ];

  test.each(CASES)("%s is repeated: %s", async (_name, isRepeated, first) => {
    const stage = new Stage(first, answer(200, {}, "second"));
    const heard = await stage.call();
    expect(stage.sent).toHaveLength(isRepeated ? 2 : 1);
    expect(heard.status).toBe(isRepeated ? 200 : first.status);
    expect(await heard.text()).toBe(isRepeated ? "second" : await first.text());
  });

  test("an answer that ends before its end is no answer", async () => {
    const cut = async (): Promise<Response> => {
      const pieces = new ReadableStream<Uint8Array>({
        start(controller) {
          controller.enqueue(new TextEncoder().encode("half"));
          controller.error(new Error("cut"));
        },
      });
      return new Response(pieces, { status: 201 });
    };
    const stage = new Stage(cut, answer(201, {}, "whole"));
    expect(await (await stage.call()).text()).toBe("whole");
    expect(stage.sent).toHaveLength(2);
  });

  test("an attempt that stays silent is given up after timeoutMs", async () => {
    const stage = new Stage("silent", answer(200));
    await stage.call({ json: 1 }, { timeoutMs: 700 });
    const [, second] = stage.sent;
    expect(second?.atMs).toBeGreaterThanOrEqual(750);
    expect(second?.atMs).toBeLessThan(900);
  });

  test.each(["answer", "body"])(
    "an attempt whose %s stays silent is given up also if fetch does not look at its signal",
    async (part) => {
      const silent = (): Promise<Response> =>
        part === "answer"
          ? new Promise(() => undefined)
          : Promise.resolve(new Response(new ReadableStream({}), { status: 201 }));
      const stage = new Stage(silent, answer(200));
      expect((await stage.call({ json: 1 }, { timeoutMs: 700 })).status).toBe(200);
      const stop = new AbortController();
      const given = new Stage(silent).make()("charge 18", URL_A, { json: 1, signal: stop.signal });
      await turn();
      stop.abort(new Error("given up"));
      await expect(given).rejects.toThrow("given up");
    },
  );

  test.each([
    [{ cents: Number.NaN }, "json.cents is NaN"],
    [{ lines: new Map() }, "json.lines is a Map"],
    [{ note: "\ud83d" }, "json.note has half of a surrogate pair"],
  ])(
    "JSON that would say something else is refused, and nothing is sent: %o",
    async (json, words) => {
      const stage = new Stage(new Response("ok"));
      await expect(stage.make()("op", URL_A, { json })).rejects.toThrow(words);
      expect(stage.sent).toEqual([]);
    },
  );

  test("a server is asked to wait with its answer, for half of an attempt at most", async () => {
    const preferOf = async (
      options: Partial<IdempotentFetchOptions>,
      init: IdempotentInit = {},
    ): Promise<string | null> => {
      let prefer: string | null = null;
      const stage = new Stage(new Response("ok"));
      const fetch: typeof globalThis.fetch = async (input, given) => {
        prefer = new Request(input, given).headers.get("prefer");
        return await stage.fetch(input, given);
      };
      await stage.make({ windowMs: 24 * 3_600_000, fetch, ...options })("op", URL_A, init);
      return prefer;
    };
    expect(await preferOf({})).toBe("wait=10");
    expect(await preferOf({ timeoutMs: 5000 })).toBe("wait=2");
    expect(await preferOf({ waitMs: 3500 })).toBe("wait=3");
    expect(await preferOf({ waitMs: 0 })).toBeNull();
    expect(await preferOf({}, { headers: { Prefer: "wait=1" } })).toBe("wait=1");
    expect(await preferOf({}, { headers: { Prefer: "return=minimal" } })).toBe(
      "return=minimal, wait=10",
    );
    const page = { location: { origin: "https://page.test" } };
    Object.assign(globalThis, page);
    try {
      expect(await preferOf({})).toBeNull();
      Object.assign(globalThis, { location: { origin: new URL(URL_A).origin } });
      expect(await preferOf({})).toBe("wait=10");
    } finally {
      Reflect.deleteProperty(globalThis, "location");
    }
  });

  test("Retry-After is waited for, as seconds and as a date", async () => {
    const serverMs = Date.UTC(2031, 0, 1);
    const dates = { date: httpDate(serverMs), "retry-after": httpDate(serverMs + 3000) };
    for (const headers of [{ "retry-after": "3" }, dates]) {
      const stage = new Stage(answer(503, headers), answer(200));
      await stage.call();
      expect(stage.sent[1]?.atMs).toBeGreaterThanOrEqual(3000);
      expect(stage.sent[1]?.atMs).toBeLessThan(3100);
    }
  });

  test("a Retry-After beyond the call's total time ends the call, with any number of digits", async () => {
    const stage = new Stage(answer(503, { "retry-after": "99999999999" }));
    expect((await stage.call()).status).toBe(503);
    expect(stage.sent).toHaveLength(1);
  });

  test("a redirection is an answer: it is not followed by a call without its content", async () => {
    const stage = new Stage(answer(302, { location: "https://api.test/other" }));
    const modes: unknown[] = [];
    const fetchOf: typeof fetch = (input, init) => {
      modes.push(init?.redirect);
      return stage.fetch(input, init);
    };
    expect((await stage.call(undefined, { fetch: fetchOf })).status).toBe(302);
    await stage.call({ json: { cents: 5 }, redirect: "follow" }, { fetch: fetchOf });
    expect(modes).toEqual(["manual", "follow"]);
  });

  test("pauses double up to a ceiling, with jitter between the half and the whole", async () => {
    const stage = new Stage("fails");
    const retry = { pauseMs: 100, pauseMsMax: 400, attemptsMax: 6, totalMs: 8000 };
    await expect(stage.call({ json: 1 }, { retry })).rejects.toSatisfy(failsWith("unreachable"));
    const times = stage.sent.map(({ atMs }) => atMs);
    expect(times).toHaveLength(6);
    const pauses = times.slice(1).map((atMs, at) => atMs - (times[at] ?? 0));
    for (const [at, ceilingMs] of [100, 200, 400, 400, 400].entries()) {
      expect(pauses[at]).toBeGreaterThanOrEqual(ceilingMs / 2);
      expect(pauses[at]).toBeLessThanOrEqual(ceilingMs + 5);
    }
    expect(new Set(pauses.slice(2)).size).toBeGreaterThan(1);
  });

  test("when patience ends, the last answer is returned, and no pause begins that would outlast it", async () => {
    const stage = new Stage(answer(503, { "retry-after": "60" }));
    expect((await stage.call()).status).toBe(503);
    expect(stage.sent).toHaveLength(1);
    const limited = new Stage(answer(500));
    expect((await limited.call({ json: 1 }, { retry: { attemptsMax: 3 } })).status).toBe(500);
    expect(limited.sent).toHaveLength(3);
  });

  test("a signal ends a call in an attempt and in a pause, with its own reason", async () => {
    for (const reply of ["silent", "fails"] as const) {
      const stage = new Stage(reply);
      const ending = new AbortController();
      const call = stage.make({ retry: { pauseMs: 5000, totalMs: 8000 } });
      const answered = watch(call("charge 17", URL_A, { json: 1, signal: ending.signal }));
      while (stage.sent.length === 0) await turn();
      for (let turns = 0; turns < 5; turns += 1) await turn();
      expect(answered.isWaiting).toBe(true);
      ending.abort(new Error("enough"));
      while (answered.isWaiting) await turn();
      expect(answered.error).toEqual(new Error("enough"));
      expect(stage.clock.pending).toBe(0);
    }
  });
});

describe("the content", () => {
  test("texts, bytes, forms and JSON are sent with their types, the same in every attempt", async () => {
    const bytes = new TextEncoder().encode("bytes");
    const cases: [IdempotentInit, string, string | null][] = [
      [{ body: "text" }, "text", "text/plain;charset=UTF-8"],
      [{ body: bytes }, "bytes", null],
      [{ body: bytes.buffer }, "bytes", null],
      [{ body: new DataView(bytes.buffer, 1, 3) }, "yte", null],
      [
        { body: new URLSearchParams({ a: "b c" }) },
        "a=b+c",
        "application/x-www-form-urlencoded;charset=UTF-8",
      ],
      [{ json: { a: [1, null] } }, '{"a":[1,null]}', "application/json"],
      [
        { json: 1, headers: { "content-type": "application/vnd+json" } },
        "1",
        "application/vnd+json",
      ],
      [{ json: null, method: "PATCH" }, "null", "application/json"],
      [{}, "", null],
    ];
    for (const [init, body, type] of cases) {
      const stage = new Stage("fails", answer(200));
      await stage.call(init);
      const { method = "POST" } = init;
      expect(stage.sent).toMatchObject([
        { method, body, type },
        { method, body, type },
      ]);
    }
  });

  test("a value whose members come in another order is the same content, and the same bytes", async () => {
    const stage = new Stage(answer(200));
    await stage.call({ json: { a: 1, b: { c: [2, { e: 3, d: 4 }] }, at: new Date(0) } });
    await stage.call({ json: { at: new Date(0), b: { c: [2, { d: 4, e: 3 }] }, a: 1 } });
    const body = '{"a":1,"at":"1970-01-01T00:00:00.000Z","b":{"c":[2,{"d":4,"e":3}]}}';
    expect(stage.sent.map((sent) => sent.body)).toEqual([body, body]);
    expect(stage.keys.size).toBe(1);
  });

  test("bytes that the caller changes meanwhile are sent as they were", async () => {
    const stage = new Stage("fails", answer(200));
    const body = new TextEncoder().encode("before");
    const answered = stage.call({ body });
    body.fill(0);
    await answered;
    expect(stage.sent.map((sent) => sent.body)).toEqual(["before", "before"]);
  });

  test("what may not be readable twice is refused, and no key is made", async () => {
    const cycle: unknown[] = [];
    cycle.push(cycle);
    const wrong = [
      { body: new ReadableStream() },
      { body: new Blob(["x"]) },
      { body: new FormData() },
      { json: cycle },
      { json: () => 1 },
      { json: 1n },
      { json: 1, body: "x" },
      { json: 1, method: "GET" },
      { json: 1, method: "two words" },
      { json: 1, headers: { "idempotency-key": "mine" } },
    ];
    for (const init of wrong) {
      const stage = new Stage(answer(200));
      // Cast: the compiler would refuse some of them as well.
      await expect(stage.call(init as IdempotentInit)).rejects.toSatisfy(
        failsWith("invalid_request"),
      );
      expect(stage.sent).toEqual([]);
      expect(await stage.store.get("charge 17")).toBeUndefined();
    }
    const call = new Stage(answer(200)).make();
    await expect(call("", URL_A)).rejects.toSatisfy(failsWith("invalid_request"));
    await expect(call("x".repeat(513), URL_A)).rejects.toSatisfy(failsWith("invalid_request"));
    await expect(call("a", "not an address")).rejects.toSatisfy(failsWith("invalid_request"));
  });
});
