// The primitives on a ledger in Redis: work elsewhere, messages, leases, versions, sweeps and keys of HTTP APIs.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createIdempotency } from "../../src/toolkit/idempotency.ts";
import fc from "fast-check";
import {
  acquireLease,
  createHybridClock,
  createInbox,
  createSweeper,
  fenced,
  getNewest,
  GLOBAL,
  ledgerSink,
  processOnce,
  setIfNewer,
  setVersion,
} from "../../src/toolkit/ledger.ts";
import { systemClock } from "../../src/base/clock.ts";
import { createOutbox } from "../../src/toolkit/outbox.ts";
import { type RedisLedger, redisLedger } from "../../src/toolkit/ledgers/redis.ts";
import { startRedis, type TestRedis } from "../databases/redis.ts";
import { connect, newest } from "../ledgers/redis-kit.ts";

const codeOf = (code: string): unknown => expect.objectContaining({ code });

describe.skipIf(newest === undefined)("on Redis", () => {
  let server: TestRedis;
  beforeAll(async () => {
    if (newest !== undefined) server = await startRedis(newest, ["--appendonly", "no"]);
  });
  afterAll(() => server.stop());

  /** As another process has it. */
  async function newLedger(): Promise<RedisLedger> {
    const ledger = redisLedger(await connect(server));
    await ledger.migrate();
    return ledger;
  }

  const ledgers = (count: number): Promise<RedisLedger[]> =>
    Promise.all(Array.from({ length: count }, newLedger));

  test("G25 of many processes that call at once, one does the work, and all get its result", async () => {
    let runs = 0;
    const charge = async ({ key }: { readonly key: string }): Promise<object> => {
      runs += 1;
      await new Promise((resolve) => setTimeout(resolve, 50));
      return { receipt: key };
    };
    const options = { effect: "repeatable", waitMs: 10_000 } as const;
    const identity = { scope: "tenant", key: "order 17" };
    const all = await Promise.all(
      (await ledgers(6)).map((ledger) => processOnce(ledger, identity, charge, options)),
    );
    expect(runs).toBe(1);
    expect(all.filter(({ isDuplicate }) => !isDuplicate)).toHaveLength(1);
    for (const { result } of all) expect(result).toEqual({ receipt: "tenant/order%2017" });
  });

  test("G58 with clocks an hour apart that jump, a write that had seen another is never lost to it", async () => {
    const nodes = await ledgers(3);
    const [first] = nodes;
    if (first === undefined) throw new Error("there are three");
    let things = 0;
    const step = fc.record({
      node: fc.nat({ max: 2 }),
      jumpMs: fc.integer({ min: -3_600_000, max: 3_600_000 }),
      looks: fc.boolean(),
    });
    const histories = fc.array(step, { minLength: 1, maxLength: 8 });
    await fc.assert(
      fc.asyncProperty(histories, async (steps) => {
        things += 1;
        const thing = { scope: "profiles", key: `${things}` };
        const walls = [0, -3_600_000, 3_600_000].map((offMs) => Date.now() + offMs);
        const clocks = walls.map((_, node) =>
          createHybridClock({
            node: `node-${node}`,
            clock: { ...systemClock, nowMs: () => walls[node] ?? 0 },
          }),
        );
        const written: string[] = [];
        for (const { node, jumpMs, looks } of steps) {
          const [ledger, clock] = [nodes[node], clocks[node]];
          if (ledger === undefined || clock === undefined) continue;
          walls[node] = (walls[node] ?? 0) + jumpMs;
          const before = looks ? await getNewest(ledger, thing) : undefined;
          if (before !== undefined) clock.see(before.stamp);
          const stamp = clock.now();
          const value = new TextEncoder().encode(`${written.length}`);
          const { kind } = await setIfNewer(ledger, thing, { stamp, value });
          if (looks) expect(kind).toBe("applied");
          written.push(stamp);
        }
        const newest = await getNewest(first, thing);
        expect(newest?.stamp).toBe(written.toSorted().at(-1));
      }),
      { numRuns: 30 },
    );
  });

  test("G25 work that threw is asked for before it is repeated, if it must be", async () => {
    const [one, other] = await ledgers(2);
    if (one === undefined || other === undefined) throw new Error("there are two");
    const identity = { scope: GLOBAL, key: "probed" };
    const asked: string[] = [];
    let answer: "done" | "not_done" = "not_done";
    const options = {
      effect: "probed",
      reconcile: async ({ key }: { readonly key: string }) => {
        asked.push(key);
        return answer === "done"
          ? ({ kind: "done", result: "found" } as const)
          : ({ kind: "not_done" } as const);
      },
    } as const;
    const fail = (): never => {
      throw new RangeError("no answer");
    };
    await expect(processOnce(one, identity, fail, options)).rejects.toThrow("no answer");
    await expect(processOnce(other, identity, fail, options)).rejects.toThrow("no answer");
    answer = "done";
    const ended = await processOnce(one, identity, fail, options);
    expect(ended).toMatchObject({ result: "found", isDuplicate: true });
    expect(asked).toHaveLength(2);
  });

  test("G27 a message has its effect once for each consumer, under a key that its work can pass on", async () => {
    const [one, other] = await ledgers(2);
    if (one === undefined || other === undefined) throw new Error("there are two");
    const options = { consumer: "billing", retainMs: 3_600_000, effect: "repeatable" } as const;
    const seen: string[] = [];
    const message = { scope: "payments", key: "evt_1" };
    const handle = (ledger: RedisLedger, consumer = "billing", sentAtMs?: number) =>
      createInbox(ledger, { ...options, consumer }).handle(
        message,
        ({ key }) => {
          seen.push(key);
          return "booked";
        },
        sentAtMs === undefined ? {} : { sentAtMs },
      );
    expect(await handle(one)).toEqual({ isDuplicate: false, result: "booked" });
    expect(await handle(other)).toEqual({ isDuplicate: true });
    expect(await handle(one, "shipping")).toEqual({ isDuplicate: false, result: "booked" });
    expect(seen).toHaveLength(2);
    expect(new Set(seen).size).toBe(2);
    // A message that is older than the inbox remembers is a duplicate if it is known, and never new.
    const longAgo = Date.now() - 7_200_000;
    expect(await handle(one, "billing", longAgo)).toEqual({ isDuplicate: true });
    await expect(handle(one, "audit", longAgo)).rejects.toThrow(codeOf("key_expired"));
    for (const wrong of [{ effect: "probed" }, { leaseMs: 1 }, { retainMs: 1_000 }])
      expect(() => createInbox(one, { ...options, ...wrong } as never)).toThrow(
        codeOf("invalid_options"),
      );
  });

  test("G27 a message whose work failed is handled by the next delivery, under the same key", async () => {
    const ledger = await newLedger();
    const inbox = createInbox(ledger, {
      consumer: "flaky",
      retainMs: 3_600_000,
      effect: "repeatable",
    });
    const message = { scope: "payments", key: "evt_2" };
    const keys: string[] = [];
    const failed = inbox.handle(message, ({ key }) => {
      keys.push(key);
      throw new Error("the provider is away");
    });
    await expect(failed).rejects.toThrow("the provider is away");
    const handled = await inbox.handle(message, ({ key, attempt }) => {
      keys.push(key);
      return attempt;
    });
    expect(handled).toEqual({ isDuplicate: false, result: 2 });
    expect(new Set(keys).size).toBe(1);
    expect(() => inbox.in({} as never)).toThrow(codeOf("unsupported"));
  });

  test("G29 a lease has one holder, and its token rises", async () => {
    const [one, other] = await ledgers(2);
    if (one === undefined || other === undefined) throw new Error("there are two");
    const identity = { scope: GLOBAL, key: "nightly" };
    const first = await acquireLease(one, identity);
    expect(await acquireLease(other, identity)).toBeUndefined();
    await first?.release();
    const second = await acquireLease(other, identity);
    expect(second?.token).toBeGreaterThan(first?.token ?? Infinity);
    await second?.release();
  });

  test("G30 of writes that expect the same version one is applied, and its repetition is a duplicate", async () => {
    const all = await ledgers(4);
    const cart = { scope: "carts", key: "cart 1" };
    const answers = await Promise.all(
      all.map((ledger, at) => setVersion(ledger, cart, { expected: 0, id: `write ${at}` })),
    );
    const winner = answers.findIndex(({ kind }) => kind === "applied");
    expect(answers.map(({ kind }) => kind).toSorted()).toEqual([
      "applied",
      "conflict",
      "conflict",
      "conflict",
    ]);
    const [ledger] = all;
    if (ledger === undefined) throw new Error("there are four");
    const again = await setVersion(ledger, cart, { expected: 0, id: `write ${winner}` });
    expect(again).toEqual({ kind: "duplicate", version: 1 });
  });

  test("a sweeper deletes what is past its retention", async () => {
    const ledger = await newLedger();
    const options = { effect: "repeatable", leaseMs: 100, retainMs: 100 } as const;
    await processOnce(ledger, { scope: "swept", key: "k" }, () => 1, options);
    const sweeper = createSweeper(ledger);
    let deleted = 0;
    while (deleted === 0) deleted = await sweeper.sweepOnce();
    const again = await processOnce(ledger, { scope: "swept", key: "k" }, () => 2, options);
    expect(again).toMatchObject({ isDuplicate: false, result: 2 });
  });

  test("G26 a request with a key has one effect, and a retry goes on after its last phase", async () => {
    const all = await ledgers(3);
    const charges: string[] = [];
    let isBroken = true;
    const pay = (ledger: RedisLedger, body = '{"cents":500}') =>
      createIdempotency(ledger, { scope: GLOBAL, onError: () => undefined }).handle(
        new Request("http://localhost/pay", {
          method: "POST",
          headers: { "idempotency-key": '"order-17"', "content-type": "application/json" },
          body,
        }),
        async (_request, { phase }) => {
          const receipt = await phase(
            "charge",
            async ({ key }) => {
              charges.push(key);
              return `receipt ${charges.length}`;
            },
            { effect: "call" },
          );
          if (isBroken) throw new Error("the process has a bad day");
          return Response.json({ receipt }, { status: 201 });
        },
      );
    const [one, two, three] = all;
    if (one === undefined || two === undefined || three === undefined) throw new Error("three");
    const broken = await pay(one).catch((error: unknown) => error);
    expect(String(broken instanceof Response ? broken.status : broken)).toMatch(/500|bad day/);
    isBroken = false;
    const answers = await Promise.all([pay(two), pay(three), pay(one)]);
    expect(answers.map(({ status }) => status)).toEqual([201, 201, 201]);
    for (const answer of answers) expect(await answer.json()).toEqual({ receipt: "receipt 1" });
    expect(charges).toHaveLength(1);
    expect((await pay(two, '{"cents":9}')).status).toBe(422);
  });

  test("what needs a transaction is refused by name, before anything is done", async () => {
    const ledger = await newLedger();
    const identity = { scope: GLOBAL, key: "refused" };
    const unsupported = codeOf("unsupported");
    let runs = 0;
    const work = (): number => (runs += 1);
    await expect(processOnce(ledger, identity, work)).rejects.toThrow(unsupported);
    expect(() => createInbox(ledger, { consumer: "c", retainMs: 60_000 })).toThrow(unsupported);
    expect(() => createOutbox(ledger)).toThrow(unsupported);
    expect(() => ledgerSink(ledger)).toThrow(unsupported);
    const lease = await acquireLease(ledger, identity);
    await expect(lease?.transaction(work)).rejects.toThrow(unsupported);
    await lease?.release();
    await expect(fenced(ledger, identity, 1)).rejects.toThrow(unsupported);
    const options = { scope: GLOBAL, mode: "transaction" } as const;
    expect(() => createIdempotency(ledger, options)).toThrow("mode=transaction needs transactions");
    expect(runs).toBe(0);
    expect(await ledger.entries.find({ kind: "once", ...identity })).toBeUndefined();
  });
});
