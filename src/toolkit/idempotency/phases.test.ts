import { afterEach, describe, expect, test } from "vitest";
import { createIdempotency, GLOBAL, type IdempotencyOptions } from "../idempotency.ts";
import { setFailpoint } from "../../base/failpoint.ts";
import type { Ledger } from "../ledgers/ledger.ts";
import { memoryLedger, type MemoryTransaction } from "../ledgers/memory.ts";
import { acquire } from "../once/claiming.ts";
import { resolveTools } from "../once/tools.ts";
import { createSeededRandom } from "../../testing/seeded-random.ts";
import { createVirtualClock, type VirtualClock } from "../../testing/virtual-clock.ts";
import { turn, watch } from "../../../test/kits/watch.ts";
import type { FetchHandler, Idempotency } from "./engine.ts";
import { nodeDigest } from "../../streams/runtimes/node-digest.ts";

interface Shop {
  readonly clock: VirtualClock;
  readonly ledger: Ledger<MemoryTransaction>;
  readonly engine: Idempotency<MemoryTransaction>;
  readonly errors: unknown[];
  /** What was done, in its order. */
  readonly log: string[];
  /** Keys that the remote was called with. */
  readonly remote: string[];
  readonly buy: FetchHandler<MemoryTransaction>;
  readonly send: (handler?: FetchHandler<MemoryTransaction>) => Promise<Response>;
}

function open(
  options: Partial<IdempotencyOptions> = {},
  shared?: Pick<Shop, "clock" | "ledger" | "log" | "remote">,
): Shop {
  const clock = shared?.clock ?? createVirtualClock();
  const ledger = shared?.ledger ?? memoryLedger({ clock });
  const log = shared?.log ?? [];
  const remote = shared?.remote ?? [];
  const errors: unknown[] = [];
  const engine = createIdempotency(ledger, {
    scope: GLOBAL,
    mode: "phases",
    completes: true,
    clock,
    digest: nodeDigest,
    random: createSeededRandom(7),
    onError: (error) => errors.push(error),
    waitMs: 0,
    ...options,
  });
  const write = (tx: MemoryTransaction, line: string): void => {
    log.push(line);
    tx.undo(() => log.pop());
  };
  const buy: FetchHandler<MemoryTransaction> = async (request, { phase }) => {
    const order = await request.text();
    const id = await phase("order", async ({ tx }) => {
      write(tx, `order ${order}`);
      return { id: log.length };
    });
    const charge = await phase(
      "charge",
      async ({ key }) => {
        remote.push(key);
        return `charged ${id.id}`;
      },
      { effect: "call" },
    );
    await phase("ship", async ({ tx }) => write(tx, "ship"));
    return Response.json({ id, charge }, { status: 201 });
  };
  const send = (handler = buy): Promise<Response> => {
    const headers = {
      "Idempotency-Key": "k1",
      authorization: "secret",
      cookie: "secret",
      "x-trace": "1",
    };
    const request = new Request("http://localhost/buy?x=1", {
      method: "POST",
      headers,
      body: "book",
    });
    return engine.handle(request, handler);
  };
  return { clock, ledger, engine, errors, log, remote, buy, send };
}

/** Fails once, at the n-th time that the failpoint comes by. */
function failAt(point: string, time: number): void {
  let seen = 0;
  setFailpoint((name) => {
    if (name !== point) return;
    seen += 1;
    if (seen === time) throw new Error(`died at ${point}`);
  });
}

afterEach(() => {
  setFailpoint(undefined);
});

describe("phases", () => {
  test("run once each, whichever of them an attempt ends after", async () => {
    for (const [point, time] of [
      ["http.phase.done", 1],
      ["http.phase.done", 2],
      ["http.phase.done", 3],
      ["http.worked", 1],
    ] as const) {
      const { send, log, remote } = open();
      failAt(point, time);
      await expect(send()).rejects.toThrow("died");
      const answer = await send();
      expect(await answer.json()).toEqual({ id: { id: 1 }, charge: "charged 1" });
      expect(log).toEqual(["order book", "ship"]);
      expect(remote).toHaveLength(1);
      const again = await send();
      expect(again.headers.get("Idempotency-Replayed")).toBe("true");
    }
  });

  test("a phase that fails leaves no writes and no value behind", async () => {
    const { send, log, buy } = open();
    const failing: FetchHandler<MemoryTransaction> = async (_request, { phase }) =>
      phase("order", async ({ tx }) => {
        log.push("half");
        tx.undo(() => log.pop());
        throw new Error("no");
      });
    await expect(send(failing)).rejects.toThrow("no");
    expect(log).toEqual([]);
    await send(buy);
    expect(log).toEqual(["order book", "ship"]);
  });

  test("a phase of work that was taken over is rolled back", async () => {
    const { send, log, clock, ledger } = open({ leaseMs: 1000 });
    let finish: () => void = () => undefined;
    const gate = new Promise<void>((resolve) => (finish = resolve));
    const slow: FetchHandler<MemoryTransaction> = async (_request, { phase }) => {
      await phase("one", async () => 1);
      await gate;
      await phase("two", async ({ tx }) => {
        log.push("zombie");
        tx.undo(() => log.pop());
      });
      return new Response();
    };
    const old = watch(send(slow));
    await turn();
    // Another process takes it over, as if this process had been stopped for longer than its lease.
    const place = { kind: "http", scope: GLOBAL, key: "k1" };
    const entry = await ledger.entries.find(place);
    const owned = { kind: "owned", token: entry?.token ?? 0 } as const;
    const lost = {
      state: "running",
      token: "next",
      attempts: 2,
      leaseMs: 9000,
      keepMs: 9000,
      fingerprint: "same",
      data: "same",
    } as const;
    expect(await ledger.entries.put(place, owned, lost)).toBeDefined();
    finish();
    await turn();
    expect(old.value?.status).toBe(409);
    expect(log).toEqual([]);
    expect((await ledger.entries.find(place))?.state).toBe("running");
    clock.advance(9000);
  });

  test("values are the same for the first attempt and for later ones: JSON", async () => {
    const { send } = open();
    const seen: unknown[] = [];
    const handler: FetchHandler<MemoryTransaction> = async (_request, { phase, attempt }) => {
      seen.push(await phase("a", async () => ({ at: new Date(0), none: undefined })));
      seen.push(await phase("b", async () => undefined));
      if (attempt === 1) throw new Error("again");
      return new Response();
    };
    await expect(send(handler)).rejects.toThrow("again");
    await send(handler);
    expect(seen.slice(0, 2)).toEqual([{ at: "1970-01-01T00:00:00.000Z" }, undefined]);
    expect(seen.slice(2)).toEqual(seen.slice(0, 2));
  });

  test("a value that JSON cannot carry is refused, and its phase rolled back", async () => {
    const { send, log } = open();
    const handler: FetchHandler<MemoryTransaction> = async (_request, { phase }) => {
      await phase("a", async ({ tx }) => {
        log.push("x");
        tx.undo(() => log.pop());
        return 1n;
      });
      return new Response();
    };
    await expect(send(handler)).rejects.toThrow("bigint");
    expect(log).toEqual([]);
  });

  test("a name that comes twice, and phases at once, are refused", async () => {
    const twice: FetchHandler<MemoryTransaction> = async (_request, { phase }) => {
      await phase("a", async () => 1);
      await phase("a", async () => 2);
      return new Response();
    };
    await expect(open().send(twice)).rejects.toMatchObject({ code: "invalid_options" });
    const atOnce: FetchHandler<MemoryTransaction> = async (_request, { phase }) => {
      await Promise.all([phase("a", async () => 1), phase("b", async () => 2)]);
      return new Response();
    };
    await expect(open().send(atOnce)).rejects.toThrow("phase=b begins while phase=a is running");
  });

  test("a call that is repeated has the same key; another phase and another request have others", async () => {
    const { send, remote, engine } = open();
    const call =
      (name: string): FetchHandler<MemoryTransaction> =>
      async (_request, { phase }) => {
        await phase(
          name,
          async ({ key }) => {
            remote.push(key);
            throw new Error("no answer");
          },
          { effect: "call" },
        );
        return new Response();
      };
    await expect(send(call("charge"))).rejects.toThrow("no answer");
    await expect(send(call("charge"))).rejects.toThrow("no answer");
    await expect(send(call("refund"))).rejects.toThrow("no answer");
    const headers = { "Idempotency-Key": "k2" };
    const other = new Request("http://localhost/buy", { method: "POST", headers });
    await expect(engine.handle(other, call("charge"))).rejects.toThrow("no answer");
    expect(remote[0]).toMatch(/^[0-9a-f]{64}$/);
    expect(remote[1]).toBe(remote[0]);
    expect(new Set(remote).size).toBe(3);
  });

  test("each mode refuses what belongs to the other", async () => {
    const { send } = open();
    await expect(
      send(async (_request, context) => Response.json(context.tx)),
    ).rejects.toMatchObject({ code: "unsupported" });
    const transactional = open({ mode: "transaction", completes: false });
    await expect(transactional.send(transactional.buy)).rejects.toMatchObject({
      code: "unsupported",
    });
  });

  test("a ledger without transactions takes calls only", async () => {
    const ledger = memoryLedger();
    const plain = { ...ledger, supports: { ...ledger.supports, transactions: false } };
    const { send } = open({}, { clock: createVirtualClock(), ledger: plain, log: [], remote: [] });
    await expect(send()).rejects.toMatchObject({ code: "unsupported" });
    const handler: FetchHandler<MemoryTransaction> = async (_request, { phase }) =>
      new Response(await phase("charge", async () => "paid", { effect: "call" }));
    expect(await (await send(handler)).text()).toBe("paid");
  });

  test("a request that had finished phases keeps them, with every answer of a later attempt", async () => {
    const { send, log } = open();
    failAt("http.phase.done", 1);
    await expect(send()).rejects.toThrow("died");
    const answer = await send((_request, { notStarted }) =>
      notStarted(new Response("", { status: 401 })),
    );
    expect(answer.status).toBe(401);
    await send();
    expect(log).toEqual(["order book", "ship"]);
  });
});

/** Leaves a request as a process does that dies after its first phase. */
async function abandon(shop: Shop): Promise<void> {
  failAt("http.phase.done", 1);
  await expect(shop.send()).rejects.toThrow("died");
  setFailpoint(undefined);
  const place = { kind: "http", scope: GLOBAL, key: "k1" };
  const terms = {
    fingerprint: undefined,
    effect: "repeatable",
    attemptsMax: 9,
    leaseMs: 30_000,
    retainMs: 86_400_000,
  } as const;
  const { fingerprint } = (await shop.ledger.entries.find(place)) ?? {};
  await acquire(
    shop.ledger,
    place,
    { ...terms, fingerprint },
    resolveTools({ clock: createVirtualClock() }),
  );
}

describe("a completer", () => {
  test("finishes a request whose process died and whose client never came back", async () => {
    const shop = open();
    await abandon(shop);
    const requests: Request[] = [];
    const completer = shop.engine.completer((request, place) => {
      requests.push(request);
      expect(place).toEqual({ scope: GLOBAL, key: "k1" });
      return shop.buy;
    });
    expect(await completer.run()).toBe(0); // Its lease is not over.
    shop.clock.advance(30_000);
    expect(await completer.run()).toBe(1);
    expect(shop.log).toEqual(["order book", "ship"]);
    expect(shop.remote).toHaveLength(1);
    const answer = await shop.send();
    expect(answer.headers.get("Idempotency-Replayed")).toBe("true");
    expect(await answer.json()).toEqual({ id: { id: 1 }, charge: "charged 1" });
    const [request] = requests;
    expect([request?.method, request?.url]).toEqual(["POST", "http://localhost/buy?x=1"]);
    expect([...(request?.headers.keys() ?? [])]).toEqual(["content-type"]);
    expect(await completer.run()).toBe(0);
  });

  test("stores the headers that storedHeaders names, and no others", async () => {
    const shop = open({ storedHeaders: ["x-trace", "cookie"] });
    await abandon(shop);
    shop.clock.advance(30_000);
    let headers: object = {};
    const completer = shop.engine.completer((request) => {
      headers = Object.fromEntries(request.headers);
      return shop.buy;
    });
    await completer.run();
    expect(headers).toMatchObject({ "x-trace": "1", cookie: "secret" });
    expect(headers).not.toHaveProperty("authorization");
  });

  test("finishes work whose handler failed after a phase, but not what left nothing", async () => {
    const shop = open();
    failAt("http.phase.done", 1);
    await expect(shop.send()).rejects.toThrow("died");
    const completer = shop.engine.completer(() => shop.buy, { everyMs: 1000 });
    expect(await completer.run()).toBe(0); // Its client may come back first.
    shop.clock.advance(1000);
    expect(await completer.run()).toBe(1);
    const other = open();
    await expect(other.send(() => Promise.reject(new Error("no")))).rejects.toThrow("no");
    other.clock.advance(100_000);
    expect(await other.engine.completer(() => other.buy).run()).toBe(0);
    expect(other.log).toEqual([]);
  });

  test("of many at once, and of a client that comes back, one works", async () => {
    const shop = open();
    await abandon(shop);
    shop.clock.advance(30_000);
    const others = Array.from({ length: 5 }, () => open({}, shop));
    const runs = others.map((other) => other.engine.completer(() => other.buy).run());
    const client = shop.send();
    const finished = (await Promise.all(runs)).reduce((sum, one) => sum + one, 0);
    const { status } = await client;
    expect(finished).toBeLessThanOrEqual(1);
    expect([201, 409]).toContain(status);
    expect(shop.log).toEqual(["order book", "ship"]);
    expect(shop.remote).toHaveLength(1);
  });

  test("tries again what fails, with growing pauses, and not more often than it may", async () => {
    const shop = open();
    await abandon(shop); // Two attempts so far.
    shop.clock.advance(30_000);
    let tries = 0;
    const failing: FetchHandler<MemoryTransaction> = async () => {
      tries += 1;
      throw new Error(`try ${tries}`);
    };
    const errors: unknown[] = [];
    const onError = (error: unknown): void => void errors.push(error);
    const completer = shop.engine.completer(() => failing, {
      everyMs: 1000,
      attemptsMax: 5,
      onError,
    });
    await completer.run();
    expect(tries).toBe(1);
    shop.clock.advance(3999);
    await completer.run();
    expect(tries).toBe(1);
    shop.clock.advance(1);
    await completer.run();
    expect(tries).toBe(2);
    shop.clock.advance(8000);
    await completer.run();
    shop.clock.advance(1_000_000);
    await completer.run();
    expect(tries).toBe(3);
    expect(errors.map(String)).toEqual(["Error: try 1", "Error: try 2", "Error: try 3"]);
  });

  test("looks past requests that it can do nothing for", async () => {
    const shop = open();
    const terms = {
      fingerprint: undefined,
      effect: "repeatable",
      attemptsMax: 9,
      leaseMs: 10_000,
      retainMs: 86_400_000,
    } as const;
    const tools = resolveTools({ clock: createVirtualClock() });
    for (let at = 0; at < 30; at += 1)
      await acquire(shop.ledger, { kind: "http", scope: GLOBAL, key: `lost ${at}` }, terms, tools);
    shop.clock.advance(1);
    await abandon(shop);
    shop.clock.advance(40_000);
    expect(await shop.engine.completer(() => shop.buy, { batch: 2 }).run()).toBe(1);
  });

  test("looks by itself from start to stop", async () => {
    const shop = open();
    await abandon(shop);
    const completer = shop.engine.completer(() => shop.buy, { everyMs: 10_000 });
    completer.start();
    completer.start();
    for (let at = 0; at < 5; at += 1) {
      shop.clock.advance(10_500);
      await turn();
    }
    expect(shop.log).toEqual(["order book", "ship"]);
    await completer.stop();
    expect(shop.clock.pending).toBe(0);
    expect(shop.errors).toEqual([]);
  });

  test("needs requests to be stored", () => {
    expect(() => open({ completes: false }).engine.completer(() => undefined)).toThrow("completes");
  });

  test("finishes a transaction that was abandoned before it began", async () => {
    const shop = open({ mode: "transaction" });
    const pay: FetchHandler<MemoryTransaction> = async (_request, { tx }) => {
      shop.log.push("paid");
      tx.undo(() => shop.log.pop());
      return new Response("paid");
    };
    let isDead = false;
    const { entries } = shop.ledger;
    const dying: Ledger<MemoryTransaction> = {
      ...shop.ledger,
      entries: {
        ...entries,
        put: (...all) => (isDead ? new Promise(() => undefined) : entries.put(...all)),
      },
    };
    const victim = open({ mode: "transaction" }, { ...shop, ledger: dying });
    void victim.send(async () => {
      isDead = true;
      throw new Error("died");
    });
    await turn();
    shop.clock.advance(30_000);
    await turn();
    expect(await shop.engine.completer(() => pay).run()).toBe(1);
    expect(shop.log).toEqual(["paid"]);
  });
});
