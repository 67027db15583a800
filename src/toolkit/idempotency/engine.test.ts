import { runInNewContext } from "node:vm";
import { afterEach, describe, expect, test } from "vitest";
import { createIdempotency, GLOBAL, type IdempotencyOptions, NotStarted } from "../idempotency.ts";
import { setFailpoint } from "../../base/failpoint.ts";
import type { Ledger } from "../ledgers/ledger.ts";
import { memoryLedger, type MemoryTransaction } from "../ledgers/memory.ts";
import type { Meter } from "../meters/meter.ts";
import { acquire } from "../once/claiming.ts";
import { resolveTools } from "../once/tools.ts";
import { nodeDigest } from "../../streams/runtimes/node-digest.ts";
import { createVirtualClock, type VirtualClock } from "../../testing/virtual-clock.ts";
import { turn, watch } from "../../../test/kits/watch.ts";
import type { FetchHandler } from "./engine.ts";
import { WAITING_MAX } from "./limits.ts";
import { FAILPOINTS } from "../../testing/failpoints.ts";

const START_MS = 784_111_777_000; // Sun, 06 Nov 1994 08:49:37 GMT

interface Call {
  readonly key?: string | null;
  readonly body?: BodyInit | object;
  readonly path?: string;
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
  readonly handler?: FetchHandler<MemoryTransaction>;
}

interface World {
  readonly clock: VirtualClock;
  readonly ledger: Ledger<MemoryTransaction>;
  readonly payments: string[];
  readonly counts: Map<string, number>;
  readonly send: (call?: Call) => Promise<Response>;
}

/** An API that pays. Two worlds over one ledger are two processes. */
function open(
  options: Partial<IdempotencyOptions> = {},
  shared?: Pick<World, "clock" | "ledger">,
  // Most tests look at what is answered without waiting.
  others: Partial<IdempotencyOptions> = { waitMs: 0 },
): World {
  const clock = shared?.clock ?? createVirtualClock(START_MS);
  const ledger = shared?.ledger ?? memoryLedger({ clock });
  const payments: string[] = [];
  const counts = new Map<string, number>();
  const meter: Meter = {
    add: (name, value) => counts.set(name, (counts.get(name) ?? 0) + value),
    set: (name, value) => counts.set(name, value),
  };
  const errors: unknown[] = [];
  const engine = createIdempotency(ledger, {
    scope: GLOBAL,
    clock,
    meter,
    digest: nodeDigest, // At once: what can happen without time has happened after a turn.
    onError: (error) => errors.push(error),
    ...others,
    ...options,
  });
  const pay: FetchHandler<MemoryTransaction> = async (request, context) => {
    const text = await request.text();
    payments.push(text);
    if (context.key !== undefined && (options.mode ?? "transaction") === "transaction")
      context.tx.undo(() => payments.pop());
    const headers = { "X-Payment": `p${payments.length}`, "Set-Cookie": "a=b" };
    return Response.json({ paid: payments.length }, { status: 201, headers });
  };
  const send = (call: Call = {}): Promise<Response> => {
    const { key = "k1", body = { amount: 1 }, path = "/pay", method = "POST" } = call;
    const headers = new Headers(call.headers);
    if (key !== null) headers.set("Idempotency-Key", key);
    const isPlain = Object.getPrototypeOf(body) === Object.prototype;
    if (isPlain && !headers.has("content-type")) headers.set("content-type", "application/json");
    const init: RequestInit = { method, headers, signal: call.signal ?? null };
    if (method !== "GET" && method !== "HEAD")
      init.body = isPlain ? JSON.stringify(body) : (body as BodyInit);
    return engine.handle(new Request(`http://localhost${path}`, init), call.handler ?? pay);
  };
  return { clock, ledger, payments, counts, send };
}

/** A handler that waits to be told, and the answer that it gives. */
function gated(): {
  handler: FetchHandler<MemoryTransaction>;
  finish: () => void;
  runs: () => number;
} {
  let finish: () => void = () => undefined;
  let runs = 0;
  const gate = new Promise<void>((resolve) => (finish = resolve));
  const handler = async (): Promise<Response> => {
    runs += 1;
    await gate;
    return new Response("done", { status: 201 });
  };
  return { handler, finish, runs: () => runs };
}

const problemOf = async (
  response: Response,
): Promise<{ status: number; code: unknown; type: unknown }> => {
  expect(response.headers.get("content-type")).toBe("application/problem+json");
  const { code, type } = (await response.json()) as { code: unknown; type: unknown };
  return { status: response.status, code, type };
};

const problem = (status: number, code: string): object => ({
  status,
  code,
  type: `urn:hapax:error:${code}`,
});

afterEach(() => {
  setFailpoint(undefined);
});

describe("the documented behaviour", () => {
  const cases: readonly (readonly [string, () => Promise<void>])[] = [
    [
      "draft 2.1: the header is a structured field string; quotes are not a part of the key",
      async () => {
        const { send, payments } = open();
        await send({ key: '"k1"' });
        const again = await send({ key: "k1" });
        expect(again.headers.get("Idempotency-Replayed")).toBe("true");
        expect(payments).toHaveLength(1);
      },
    ],
    [
      "draft 2.6: the first request is processed and answered",
      async () => {
        const first = await open().send();
        expect(first.status).toBe(201);
        expect(await first.json()).toEqual({ paid: 1 });
        expect(first.headers.get("Idempotency-Replayed")).toBeNull();
      },
    ],
    [
      "draft 2.6: a duplicate after the end gets the result of the first, and nothing is done",
      async () => {
        const { send, payments } = open();
        await send();
        const again = await send();
        expect(again.status).toBe(201);
        expect(await again.json()).toEqual({ paid: 1 });
        expect(payments).toHaveLength(1);
      },
    ],
    [
      "draft 2.6: a result that is an error is repeated too",
      async () => {
        const { send, payments } = open();
        const handler = async (): Promise<Response> => {
          payments.push("tried");
          return new Response("broke", { status: 402 });
        };
        expect((await send({ handler })).status).toBe(402);
        expect((await send({ handler })).status).toBe(402);
        expect(payments).toHaveLength(1);
      },
    ],
    [
      "draft 2.6 and 2.7: a duplicate while the first is running gets 409",
      async () => {
        const { send } = open();
        const { handler, finish, runs } = gated();
        const first = send({ handler });
        await turn();
        const second = await send({ handler });
        expect(second.headers.get("Retry-After")).toBe("1");
        expect(await problemOf(second)).toEqual(problem(409, "in_progress"));
        finish();
        expect((await first).status).toBe(201);
        expect(runs()).toBe(1);
      },
    ],
    [
      "draft 2.7: a missing key gets 400 where it is required",
      async () => {
        const { send, payments } = open();
        expect(await problemOf(await send({ key: null }))).toEqual(problem(400, "key_missing"));
        expect(payments).toHaveLength(0);
      },
    ],
    [
      "draft 2.7: a key with another payload gets 422",
      async () => {
        const { send, counts } = open();
        await send({ body: { amount: 1 } });
        const other = await send({ body: { amount: 2 } });
        expect(await problemOf(other)).toEqual(problem(422, "key_reused"));
        expect(counts.get("mismatches_total")).toBe(1);
      },
    ],
    [
      "draft 2.7: a key with another payload gets 422 and not 409 while the first is running",
      async () => {
        const { send } = open();
        const { handler, finish } = gated();
        const first = send({ handler });
        await turn();
        const other = await send({ body: { amount: 2 } });
        expect(await problemOf(other)).toEqual(problem(422, "key_reused"));
        finish();
        await first;
      },
    ],
    [
      "draft 2.7: a refusal links to its documentation if there is some",
      async () => {
        const { send } = open({ describedBy: "https://example.com/keys" });
        const refused = await send({ key: null });
        expect(refused.headers.get("Link")).toBe('<https://example.com/keys>; rel="describedby"');
      },
    ],
    [
      "draft 2.3, issue 35: the answer says until when it can be repeated",
      async () => {
        const { send, clock } = open();
        const first = await send();
        expect(first.headers.get("Idempotency-Expires")).toBe("Mon, 07 Nov 1994 08:49:37 GMT");
        clock.advance(3_600_000);
        const again = await send();
        expect(again.headers.get("Idempotency-Expires")).toBe("Mon, 07 Nov 1994 08:49:37 GMT");
      },
    ],
    [
      "draft 5: the key counts together with who the client is",
      async () => {
        const { send, payments } = open({ scope: ({ headers }) => headers.get("x-tenant") ?? "" });
        await send({ headers: { "x-tenant": "a" } });
        await send({ headers: { "x-tenant": "b" }, body: { amount: 2 } });
        await send({ headers: { "x-tenant": "a" } });
        expect(payments).toHaveLength(2);
      },
    ],
    [
      "Stripe: the same status and body come again, including 500 errors",
      async () => {
        const { send, payments } = open();
        const handler = async (): Promise<Response> => {
          payments.push("tried");
          return new Response("oh", { status: 500 });
        };
        await send({ handler });
        const again = await send({ handler });
        expect([again.status, await again.text(), payments.length]).toEqual([500, "oh", 1]);
      },
    ],
    [
      "Stripe: parameters are compared with those of the first request",
      async () => {
        const { send } = open();
        await send({ path: "/pay?currency=eur" });
        expect((await send({ path: "/pay?currency=usd" })).status).toBe(422);
        expect((await send({ path: "/refund?currency=eur" })).status).toBe(422);
        expect((await send({ path: "/pay?currency=eur", method: "PATCH" })).status).toBe(422);
        expect((await send({ path: "/pay?currency=eur" })).status).toBe(201);
      },
    ],
    [
      "Stripe: nothing is kept of a request that did not begin to execute",
      async () => {
        const { send, payments, ledger } = open();
        const refused = await send({
          body: { amount: -1 },
          handler: (_request, { notStarted }) => notStarted(new Response("no", { status: 400 })),
        });
        expect(refused.status).toBe(400);
        expect(refused.headers.get("Idempotency-Expires")).toBeNull();
        expect(await ledger.entries.scan({ kind: "http", max: 9 })).toEqual([]);
        expect((await send({ body: { amount: 1 } })).status).toBe(201);
        expect(payments).toHaveLength(1);
      },
    ],
    [
      "Stripe: a conflict with a concurrent request is not kept",
      async () => {
        const { send } = open();
        const { handler, finish } = gated();
        const first = send({ handler });
        await turn();
        expect((await send({ handler })).status).toBe(409);
        finish();
        await first;
        expect((await send({ handler })).status).toBe(201);
      },
    ],
    [
      "Stripe: a key is new again when its result has been removed, after 24 hours",
      async () => {
        const { send, payments, clock } = open();
        await send();
        clock.advance(24 * 3_600_000 - 1);
        await send();
        expect(payments).toHaveLength(1);
        clock.advance(1);
        await send({ body: { amount: 2 } });
        expect(payments).toHaveLength(2);
      },
    ],
    [
      "Stripe: a key has up to 255 characters",
      async () => {
        const { send } = open();
        expect((await send({ key: "x".repeat(255) })).status).toBe(201);
        const refused = await send({ key: "x".repeat(256) });
        expect(await problemOf(refused)).toEqual(problem(400, "invalid_request"));
      },
    ],
    [
      "Stripe: keys are not for GET; here it is refused",
      async () => {
        const { send, payments } = open();
        expect(await problemOf(await send({ method: "GET" }))).toEqual(
          problem(400, "invalid_request"),
        );
        expect(await problemOf(await send({ method: "OPTIONS" }))).toEqual(
          problem(400, "invalid_request"),
        );
        expect(payments).toHaveLength(0);
        expect((await send({ method: "GET", key: null })).status).toBe(201);
      },
    ],
    [
      "DELETE and PUT are passed on without a key, and refused with one, unless the options name them",
      async () => {
        const { send, payments } = open();
        for (const method of ["DELETE", "PUT"]) {
          const refused = await problemOf(await send({ method }));
          expect(refused).toEqual(problem(400, "invalid_request"));
          await send({ method, key: null });
        }
        expect(payments).toHaveLength(2);
        const other = open({ methods: ["POST", "DELETE"] });
        await other.send({ method: "DELETE" });
        await other.send({ method: "DELETE" });
        expect(other.payments).toHaveLength(1);
      },
    ],
    [
      "draft issue 48: a passing 503 that says Retry-After, 409, 425 and 429 free the key",
      async () => {
        const { send, payments } = open();
        const later = { headers: { "Retry-After": "5" } };
        for (const status of [503, 409, 425, 429]) {
          const handler = (): Response => new Response("", { status, ...later });
          const answer = await send({ handler });
          expect([answer.status, answer.headers.get("Idempotency-Expires")]).toEqual([
            status,
            null,
          ]);
        }
        expect((await send()).status).toBe(201);
        expect(payments).toHaveLength(1);
      },
    ],
    [
      "draft issue 42: a duplicate that says Prefer: wait gets the answer of the first",
      async () => {
        const { send } = open();
        const { handler, finish, runs } = gated();
        const first = send({ handler });
        await turn();
        const waiting = Array.from({ length: 64 }, () =>
          send({ handler, headers: { Prefer: "wait=5" } }),
        );
        await turn();
        finish();
        for (const answer of await Promise.all([first, ...waiting])) {
          expect([answer.status, await answer.text()]).toEqual([201, "done"]);
        }
        expect(runs()).toBe(1);
      },
    ],
  ];
  test.each(cases)("%s", (_title, run) => run());
});

describe("an engine", () => {
  test("lets a duplicate in another process wait, and take over when the first is lost", async () => {
    const one = open({ mode: "phases" });
    const other = open({ mode: "phases" }, one);
    await die(one, "k1");
    const refused = await other.send({ body: "x" });
    // It may be at work: its lease was renewed not long ago.
    expect([refused.status, refused.headers.get("Retry-After")]).toEqual([409, "1"]);
    one.clock.advance(10_500);
    expect((await other.send({ body: "x" })).headers.get("Retry-After")).toBe("1");
    const waiting = watch(other.send({ body: "x", headers: { Prefer: "wait=30" } }));
    await turn();
    expect(waiting.isWaiting).toBe(true);
    for (let passed = 0; passed < 19_000; passed += 500) {
      await pass(one.clock, 500);
      if (passed !== 5000) continue;
      // It has not renewed its lease: it is not asked for every second.
      expect((await other.send({ body: "x" })).headers.get("Retry-After")).toBe("5");
    }
    expect(waiting.isWaiting).toBe(true);
    await pass(one.clock, 1500);
    expect(waiting.value?.status).toBe(201);
    expect(other.counts.get("takeovers_total")).toBe(1);
  });

  test("lets a duplicate wait for some seconds by itself, and tells it to come back soon", async () => {
    const { send, clock } = open({}, undefined, {});
    const { handler, finish } = gated();
    const first = send({ handler });
    await turn();
    const patient = watch(send({ handler }));
    await turn();
    await pass(clock, 4999);
    expect(patient.isWaiting).toBe(true);
    await pass(clock, 1);
    // The longer the work takes, the longer it may still take.
    expect([patient.value?.status, patient.value?.headers.get("Retry-After")]).toEqual([409, "3"]);
    await pass(clock, 600_000);
    const late = watch(send({ handler, headers: { Prefer: "wait=0" } }));
    await turn();
    expect(late.value?.headers.get("Retry-After")).toBe("5");
    const lucky = watch(send({ handler }));
    await turn();
    finish();
    await turn();
    expect([lucky.value?.status, (await first).status]).toEqual([201, 201]);
  });

  test("keeps no more duplicates waiting than it may", async () => {
    const { send } = open({ waitMs: 5000 });
    const { handler, finish } = gated();
    const first = send({ handler });
    await turn();
    const many = Array.from({ length: WAITING_MAX + 3 }, () => watch(send({ handler })));
    await turn();
    const told = many.filter(({ isWaiting }) => !isWaiting);
    expect(told.map(({ value }) => value?.status)).toEqual([409, 409, 409]);
    finish();
    await first;
    await turn();
    expect(many.filter(({ value }) => value?.status === 201)).toHaveLength(WAITING_MAX);
    expect((await send({ handler })).status).toBe(201);
  });

  test("lets a duplicate wait no longer than it wants, nor longer than it may", async () => {
    const { send, clock } = open({ waitMsMax: 3000 });
    const { handler, finish } = gated();
    const first = send({ handler });
    await turn();
    const two = watch(send({ handler, headers: { Prefer: "wait=2" } }));
    const nine = watch(send({ handler, headers: { Prefer: "wait=9" } }));
    await turn();
    await pass(clock, 1999);
    expect(two.isWaiting).toBe(true);
    await pass(clock, 1);
    expect([two.value?.status, nine.isWaiting]).toEqual([409, true]);
    await pass(clock, 1000);
    expect(nine.value?.status).toBe(409);
    finish();
    await first;
  });

  test("stops waiting for a client that has gone", async () => {
    const { send } = open({ waitMs: 60_000 });
    const { handler, finish } = gated();
    const first = send({ handler });
    await turn();
    const client = new AbortController();
    const second = watch(send({ handler, signal: client.signal }));
    await turn();
    client.abort();
    await turn();
    expect(second.value?.status).toBe(409);
    finish();
    await first;
  });

  test("runs the handler for one that waited, if the first one failed", async () => {
    const { send, payments } = open({ waitMs: 5000 });
    let fail: () => void = () => undefined;
    const failing = new Promise<Response>(
      (_resolve, reject) => (fail = () => reject(new Error("no"))),
    );
    const first = watch(send({ handler: () => failing }));
    await turn();
    const second = send();
    await turn();
    fail();
    expect((await second).status).toBe(201);
    expect(first.error).toEqual(new Error("no"));
    expect(payments).toHaveLength(1);
  });

  test("frees the key of a process that died within its lease, not after the retention", async () => {
    const world = open({ leaseMs: 1000 });
    await die(world, "k1", 1000);
    expect((await world.send({ body: "x" })).status).toBe(409);
    world.clock.advance(1000);
    expect((await world.send({ body: "x" })).status).toBe(201);
    expect(world.payments).toEqual(["x"]);
  });

  test("answers only after the commit", async () => {
    const { send } = open();
    let go: () => void = () => undefined;
    const reached: string[] = [];
    setFailpoint((name) => {
      reached.push(name);
      return name === "http.completed" ? new Promise<void>((resolve) => (go = resolve)) : undefined;
    });
    const answer = watch(send());
    await turn();
    expect(answer.isWaiting).toBe(true);
    go();
    await turn();
    expect(answer.value?.status).toBe(201);
    expect(reached).toEqual(
      FAILPOINTS.filter((name) => name.startsWith("http.") && name !== "http.phase.done"),
    );
  });

  test("takes the writes of a handler that throws back, and lets a retry run", async () => {
    const { send, payments } = open();
    const handler: FetchHandler<MemoryTransaction> = async (_request, { tx }) => {
      payments.push("half");
      tx.undo(() => payments.pop());
      throw new Error("in the middle");
    };
    await expect(send({ handler })).rejects.toThrow("in the middle");
    expect(payments).toEqual([]);
    expect((await send()).status).toBe(201);
    expect(payments).toHaveLength(1);
  });

  test("a handler that threw has begun: its key stays bound to its content", async () => {
    const { send } = open();
    const handler = (): never => {
      throw new Error("no");
    };
    await expect(send({ handler })).rejects.toThrow("no");
    expect((await send({ body: { amount: 2 } })).status).toBe(422);
  });

  test("takes the writes of an answer that is not kept back", async () => {
    for (const keep of ["success", (status: number) => status !== 500] as const) {
      const { send, payments } = open({ keep });
      const handler: FetchHandler<MemoryTransaction> = async (_request, { tx }) => {
        payments.push("half");
        tx.undo(() => payments.pop());
        return new Response("", { status: 500 });
      };
      expect((await send({ handler })).status).toBe(500);
      expect(payments).toEqual([]);
      expect((await send()).status).toBe(201);
    }
  });

  test("NotStarted frees the key, with the answer that it has or as an error", async () => {
    const { send, ledger } = open();
    const refusing = (error: NotStarted) => (): never => {
      throw error;
    };
    const answer = await send({
      handler: refusing(new NotStarted(new Response("", { status: 401 }))),
    });
    expect(answer.status).toBe(401);
    await expect(send({ handler: refusing(new NotStarted()) })).rejects.toThrow(NotStarted);
    expect(await ledger.entries.scan({ kind: "http", max: 9 })).toEqual([]);
  });

  test("answers what was committed, also if the commit is not known to be done", async () => {
    const { ledger, clock } = open();
    let isLost = true;
    const uncertain: Ledger<MemoryTransaction> = {
      ...ledger,
      transaction: async (work) => {
        const result = await ledger.transaction(work);
        if (!isLost) return result;
        isLost = false;
        throw new Error("the connection was lost in COMMIT");
      },
    };
    const { send, payments } = open({}, { ledger: uncertain, clock });
    expect((await send()).status).toBe(201);
    expect((await send()).headers.get("Idempotency-Replayed")).toBe("true");
    expect(payments).toHaveLength(1);
  });

  test.each(["http.worked", "http.completed"])(
    "says that it failed if the commit was not done, at %s, and a retry runs",
    async (point) => {
      const { send, payments } = open();
      setFailpoint((name) => {
        if (name === point) throw new Error("no commit");
      });
      await expect(send()).rejects.toThrow("no commit");
      expect(payments).toEqual([]);
      setFailpoint(undefined);
      expect((await send()).status).toBe(201);
      expect(payments).toHaveLength(1);
    },
  );

  test("the answer of work that was taken over is not kept, and its client gets 409 in_progress", async () => {
    const one = open({ mode: "phases", leaseMs: 1000 });
    const other = open({ mode: "phases", leaseMs: 1000 }, one);
    let isCutOff = false;
    const { entries } = one.ledger;
    const cutOff: Ledger<MemoryTransaction> = {
      ...one.ledger,
      entries: {
        ...entries,
        put: (...all) => (isCutOff ? Promise.reject(new Error("cut off")) : entries.put(...all)),
      },
    };
    const zombie = open({ mode: "phases", leaseMs: 1000 }, { ledger: cutOff, clock: one.clock });
    const { handler, finish } = gated();
    const old = zombie.send({ handler });
    await turn();
    isCutOff = true;
    await pass(one.clock, 500);
    await pass(one.clock, 600);
    expect((await other.send()).status).toBe(201);
    isCutOff = false;
    finish();
    expect(await problemOf(await old)).toEqual(problem(409, "in_progress"));
    expect(zombie.counts.get("fenced_total")).toBe(1);
    expect(await (await one.send()).json()).toEqual({ paid: 1 });
  });

  test("refuses a request without a scope, and one that says to be everybody", async () => {
    for (const scope of ["", GLOBAL]) {
      const { send } = open({ scope: () => scope });
      expect(await problemOf(await send())).toEqual(problem(400, "invalid_request"));
    }
  });

  test("repeats status, headers and bytes, but neither cookies nor what belongs to a connection", async () => {
    const { send } = open();
    const bytes = crypto.getRandomValues(new Uint8Array(60_000));
    const headers: [string, string][] = [
      ["Content-Type", "image/png"],
      ["ETag", '"v1"'],
      ["Vary", "Accept"],
      ["Set-Cookie", "session=1"],
      ["Set-Cookie", "other=2"],
      ["Connection", "close, X-Hop"],
      ["X-Hop", "1"],
      ["Keep-Alive", "timeout=5"],
      ["Transfer-Encoding", "chunked"],
      ["Proxy-Authenticate", "Basic"],
      ["Date", "Sun, 06 Nov 1994 08:49:37 GMT"],
    ];
    const handler = (): Response => new Response(bytes, { status: 203, headers });
    const first = await send({ handler });
    expect(first.headers.getSetCookie()).toEqual(["session=1", "other=2"]);
    const again = await send({ handler });
    expect(again.status).toBe(203);
    expect(Buffer.from(bytes).equals(new Uint8Array(await again.arrayBuffer()))).toBe(true);
    expect(Object.fromEntries(again.headers)).toEqual({
      "content-type": "image/png",
      etag: '"v1"',
      vary: "Accept",
      "content-length": "60000",
      "idempotency-replayed": "true",
      "idempotency-expires": "Mon, 07 Nov 1994 08:49:37 GMT",
    });
  });

  test("repeats an answer without a body", async () => {
    const { send } = open();
    const handler = (): Response => new Response(null, { status: 204 });
    await send({ handler });
    const again = await send({ handler });
    expect([again.status, again.headers.get("content-length"), await again.text()]).toEqual([
      204,
      null,
      "",
    ]);
  });

  test("sends an answer that is too large, and says to a duplicate that it is not kept", async () => {
    const { send } = open({ answerBytesMax: 1000 });
    const chunks = Array.from({ length: 5 }, (_, at) => new Uint8Array(400).fill(at));
    const handler = (): Response =>
      new Response(
        new ReadableStream({
          start(controller) {
            for (const chunk of chunks) controller.enqueue(chunk);
            controller.close();
          },
        }),
      );
    const first = await send({ handler });
    expect(Buffer.from(await first.arrayBuffer())).toEqual(Buffer.concat(chunks));
    expect(await problemOf(await send({ handler }))).toEqual(problem(409, "answer_not_kept"));
  });

  test("an answer whose body fails is a failure", async () => {
    const { send } = open();
    const handler = (): Response =>
      new Response(
        new ReadableStream({ pull: (controller) => controller.error(new Error("torn")) }),
      );
    await expect(send({ handler })).rejects.toThrow("torn");
    expect((await send()).status).toBe(201);
  });

  test("takes the same JSON in another order for the same content", async () => {
    const { send, payments } = open();
    const headers = { "content-type": "application/json; charset=utf-8" };
    await send({ body: '{"amount":1,"to":{"a":1,"b":[1,2]}}', headers });
    const again = await send({
      body: '{ "to": {"b":[1,2.0],"a":1}, "amount": 1e0 }',
      headers: { "content-type": "application/JSON" },
    });
    expect(again.headers.get("Idempotency-Replayed")).toBe("true");
    expect(payments).toHaveLength(1);
  });

  test("takes other bytes, and another type, for other content", async () => {
    const { send } = open();
    const type = (value: string): Record<string, string> => ({ "content-type": value });
    await send({ body: '{"a":1}', headers: type("text/plain") });
    expect((await send({ body: '{"a": 1}', headers: type("text/plain") })).status).toBe(422);
    expect((await send({ body: '{"a":1}', headers: type("application/json") })).status).toBe(422);
    expect((await send({ body: '{"a":1}', headers: type("text/plain") })).status).toBe(201);
  });

  test("compares what the options say, if they do", async () => {
    const { send } = open({ fingerprint: ({ headers }) => headers.get("x-order") ?? undefined });
    await send({ headers: { "x-order": "1" }, body: "a" });
    expect((await send({ headers: { "x-order": "1" }, body: "b" })).status).toBe(201);
    expect((await send({ headers: { "x-order": "2" }, body: "a" })).status).toBe(422);
  });

  test("waits for what the options say, also if it is a promise of another library", async () => {
    const other = runInNewContext("Promise") as PromiseConstructor;
    const { send } = open({
      fingerprint: ({ headers }) => other.resolve(headers.get("x-order") ?? ""),
    });
    await send({ headers: { "x-order": "1" } });
    expect((await send({ headers: { "x-order": "1" } })).status).toBe(201);
    expect((await send({ headers: { "x-order": "2" } })).status).toBe(422);
  });

  test("compares nothing, if the options say so", async () => {
    const { send } = open({ fingerprint: () => undefined });
    await send({ body: "a" });
    expect((await send({ body: "b" })).headers.get("Idempotency-Replayed")).toBe("true");
  });

  test("a duplicate in the process of a zombie gets the answer of the process that took over", async () => {
    const one = open({ mode: "phases", leaseMs: 1000 });
    let isCutOff = false;
    const { entries } = one.ledger;
    const put: typeof entries.put = (...all) =>
      isCutOff ? Promise.reject(new Error("cut off")) : entries.put(...all);
    const cutOff: Ledger<MemoryTransaction> = { ...one.ledger, entries: { ...entries, put } };
    const zombie = open({ mode: "phases", leaseMs: 1000 }, { ledger: cutOff, clock: one.clock });
    const { handler, finish } = gated();
    const old = zombie.send({ handler });
    await turn();
    isCutOff = true;
    await pass(one.clock, 1100);
    expect((await one.send()).status).toBe(201);
    isCutOff = false;
    expect((await zombie.send()).headers.get("Idempotency-Replayed")).toBe("true");
    finish();
    expect((await old).status).toBe(409);
    expect((await zombie.send()).headers.get("Idempotency-Replayed")).toBe("true");
  });

  test("a request without a key runs in a transaction too, where no key is needed", async () => {
    const { send, payments } = open({ isRequired: false });
    const handler: FetchHandler<MemoryTransaction> = async (_request, { tx, key }) => {
      expect(key).toBeUndefined();
      payments.push("x");
      tx.undo(() => payments.pop());
      throw new Error("no");
    };
    await expect(send({ key: null, handler })).rejects.toThrow("no");
    expect(payments).toEqual([]);
    await send({ key: null });
    const again = await send({ key: null });
    expect(payments).toHaveLength(2);
    expect(again.headers.get("Idempotency-Expires")).toBeNull();
  });

  test("every request without a key has a signal of its own", async () => {
    const { send } = open({ isRequired: false });
    const signals = new Set<AbortSignal>();
    const handler: FetchHandler<MemoryTransaction> = async (_request, { signal }) => {
      signals.add(signal);
      return new Response();
    };
    await send({ key: null, handler });
    await send({ key: null, handler });
    await send({ key: null, method: "GET", handler });
    await send({ key: null, method: "GET", handler });
    expect(signals.size).toBe(4);
  });

  test("with refusesOldKeys, refuses a key whose time is before everything that is kept", async () => {
    const clock = createVirtualClock(Date.UTC(2026, 0, 3));
    const ledger = memoryLedger({ clock });
    const { send, counts } = open({ refusesOldKeys: true }, { clock, ledger });
    const keyAt = (ms: number): string =>
      `${ms
        .toString(16)
        .padStart(12, "0")
        .replace(/^(.{8})/, "$1-")}-7000-8000-000000000000`;
    expect((await send({ key: keyAt(Date.UTC(2026, 0, 2, 1)) })).status).toBe(201);
    const old = await send({ key: keyAt(Date.UTC(2026, 0, 1)) });
    expect(await problemOf(old)).toEqual(problem(422, "key_expired"));
    clock.advance(20 * 3_600_000);
    const kept = await send({ key: keyAt(Date.UTC(2026, 0, 2, 1)) });
    expect(kept.headers.get("Idempotency-Replayed")).toBe("true");
    expect(counts.get("expired_total")).toBe(1);
  });

  test("refuses a body that is larger than allowed before anything is claimed", async () => {
    const { send, payments, ledger } = open({ bodyBytesMax: 100 });
    expect(await problemOf(await send({ body: "x".repeat(101) }))).toEqual(
      problem(413, "body_too_large"),
    );
    expect(payments).toEqual([]);
    expect(await ledger.entries.scan({ kind: "http", max: 9 })).toEqual([]);
  });

  test("says when a request was begun as often as it may", async () => {
    const { send } = open({ attemptsMax: 1 });
    const handler = (): never => {
      throw new Error("no");
    };
    await expect(send({ handler })).rejects.toThrow("no");
    expect(await problemOf(await send())).toEqual(problem(409, "attempts_exhausted"));
  });

  test("counts what it does", async () => {
    const { send, counts, clock } = open();
    await send();
    clock.advance(6 * 3_600_000);
    await send();
    expect(Object.fromEntries(counts)).toEqual({
      claims_total: 1,
      duplicates_total: 1,
      window_headroom_ratio: 0.75,
    });
  });

  test("names all that is wrong with its options at once", () => {
    const wrong = { leaseMs: 1, retainMs: -1, methods: ["GET"], header: "a b" } as never;
    const make = (): unknown => createIdempotency(memoryLedger(), wrong);
    for (const part of ["scope", "leaseMs=1", "retainMs=-1", "GET", "header=a b"])
      expect(make).toThrow(part);
    const withoutTransactions = memoryLedger();
    const ledger = {
      ...withoutTransactions,
      supports: { ...withoutTransactions.supports, transactions: false },
    };
    expect(() => createIdempotency(ledger, { scope: GLOBAL, mode: "transaction" })).toThrow(
      "needs transactions",
    );
    expect(createIdempotency(ledger, { scope: GLOBAL }).options.mode).toBe("phases");
  });
});

/** Claims the key as a process that never renews nor ends it. The content is not compared. */
async function die({ ledger }: World, key: string, leaseMs = 30_000): Promise<void> {
  const stopped = createVirtualClock(START_MS);
  const terms = {
    fingerprint: undefined,
    effect: "repeatable",
    attemptsMax: 9,
    leaseMs,
    retainMs: 86_400_000,
  } as const;
  const place = { kind: "http", scope: GLOBAL, key };
  const acquired = await acquire(ledger, place, terms, resolveTools({ clock: stopped }));
  expect(acquired.kind).toBe("claimed");
}

async function pass(clock: VirtualClock, ms: number): Promise<void> {
  clock.advance(ms);
  await turn();
}
