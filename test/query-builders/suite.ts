/** What a ledger over a query builder must do, whichever it is. */

import { setTimeout as pause } from "node:timers/promises";
import { beforeEach, expect, test } from "vitest";
import type { Ledger } from "../../src/toolkit/ledgers/ledger.ts";
import { GLOBAL, processOnce } from "../../src/toolkit/ledger.ts";
import { outageOf } from "../../src/toolkit/databases/outage.ts";
import { createOutbox, createRelay, functionPublisher } from "../../src/toolkit/outbox.ts";
import type { TestPostgres } from "../databases/postgres.ts";
import { ABSENT, CLAIM } from "../ledgers/kit.ts";
import { type BuilderCase, type Opened, PAID_AT } from "./builders.ts";

const ENDED = "the transaction has ended";

export function builderSuite<Tx extends object>(
  { open, pay, paid, payLater, run, nest, frail }: BuilderCase<Tx>,
  server: () => TestPostgres,
  endings: (() => unknown)[],
): void {
  let opened: Opened<Tx>;
  let ledger: Ledger<Tx>;
  const openOne = (max = 4): Opened<Tx> => {
    const one = open(server().host, max);
    endings.push(() => one.close());
    return one;
  };
  const orders = async (): Promise<readonly string[]> => {
    const { rows } = await server().pool.query<{ order_id: string }>("SELECT * FROM payments");
    return rows.map(({ order_id: order }) => order).toSorted();
  };
  const done = async (key: string): Promise<boolean> => {
    const entry = await ledger.entries.find({ kind: "once", scope: GLOBAL, key });
    return entry?.state === "done";
  };
  const events = async (): Promise<readonly unknown[]> => {
    const { rows } = await server().pool.query("SELECT payload FROM hapax_outbox ORDER BY id");
    return rows;
  };
  const once = (one: Ledger<Tx>, key: string, work: (tx: Tx) => Promise<unknown>) =>
    processOnce(one, { scope: GLOBAL, key }, ({ tx }) => work(tx).then(() => key));

  const endSleeping = async (): Promise<void> => {
    const text = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
      WHERE query LIKE '%pg_sleep%' AND wait_event = 'PgSleep'`;
    while ((await server().pool.query(text)).rowCount === 0) await pause(5);
  };

  beforeEach(async () => {
    await server().pool.query("TRUNCATE payments, hapax_entries, hapax_outbox");
    opened = openOne();
    ({ ledger } = opened);
  });

  test("a transaction of the user commits its data, the claim and the event together", async () => {
    const outbox = createOutbox(ledger);
    const first = await opened.begin(async (tx) => {
      await pay(tx, "1");
      await outbox.add(tx, { topic: "paid", payload: { order: "1" } });
      const result = await once(ledger.in(tx), "1", (inner) => pay(inner, "2"));
      expect(await orders()).toEqual([]);
      return result;
    });
    expect(first).toMatchObject({ result: "1", isDuplicate: false });
    expect([await orders(), await done("1"), (await events()).length]).toEqual([
      ["1", "2"],
      true,
      1,
    ]);
    const again = await opened.begin((tx) => once(ledger.in(tx), "1", (inner) => pay(inner, "3")));
    expect(again).toMatchObject({ result: "1", isDuplicate: true });
    expect(await orders()).toEqual(["1", "2"]);
  });

  test("a transaction of the user rolls its data, the claim and the event back together", async () => {
    const outbox = createOutbox(ledger);
    const call = opened.begin(async (tx) => {
      await outbox.add(tx, { topic: "paid", payload: {} });
      await once(ledger.in(tx), "1", (inner) => pay(inner, "1"));
      throw new RangeError("no");
    });
    await expect(call).rejects.toThrow(RangeError);
    expect([await orders(), await done("1"), await events()]).toEqual([[], false, []]);
  });

  test("processOnce hands out a transaction of the query builder, with its dates and names", async () => {
    const outbox = createOutbox(ledger);
    const call = () =>
      processOnce(ledger, { scope: GLOBAL, key: "1" }, async ({ tx }) => {
        await pay(tx, "1");
        await outbox.add(tx, { topic: "paid", payload: { order: "1" } });
        const [row] = await paid(tx, "1");
        expect(row).toEqual({ order: "1", cents: 500, paidAt: PAID_AT });
        return row?.paidAt;
      });
    expect(await call()).toMatchObject({ result: PAID_AT.toISOString(), isDuplicate: false });
    expect(await call()).toMatchObject({ result: PAID_AT.toISOString(), isDuplicate: true });
    expect([await orders(), (await events()).length]).toEqual([["1"], 1]);
  });

  test("an error inside rolls both back, and reaches the caller as the query builder threw it", async () => {
    const outbox = createOutbox(ledger);
    const failing = once(ledger, "1", async (tx) => {
      await pay(tx, "1");
      await outbox.add(tx, { topic: "paid", payload: {} });
      await pay(tx, "bad");
    });
    const direct = opened.begin((tx) => pay(tx, "bad"));
    const [mine, theirs] = await Promise.all(
      [failing, direct].map((call) => call.then(String, (error: unknown) => error)),
    );
    expect((mine as Error).constructor).toBe((theirs as Error).constructor);
    expect([await orders(), await done("1"), await events()]).toEqual([[], false, []]);
    expect(await once(ledger, "1", (tx) => pay(tx, "2"))).toMatchObject({ isDuplicate: false });
    expect(await orders()).toEqual(["2"]);
  });

  test("an error that the work catches still undoes everything, and is not reported as done", async () => {
    const call = once(ledger, "1", async (tx) => {
      await pay(tx, "1");
      await Promise.resolve(pay(tx, "bad")).catch(() => undefined);
    });
    await expect(call).rejects.toThrow();
    const alone = ledger.transaction(async (tx) => {
      await pay(tx, "2");
      await Promise.resolve(pay(tx, "bad")).catch(() => undefined);
    });
    await expect(alone).rejects.toThrow("a statement failed: the transaction is undone");
    expect([await orders(), await done("1")]).toEqual([[], false]);
  });

  test("of concurrent claims in two processes one has the effect", async () => {
    const other = openOne();
    const calls = [opened, other, opened, other].map((one) =>
      processOnce(
        one.ledger,
        { scope: GLOBAL, key: "1" },
        ({ tx }) => pay(tx, "1").then(() => "paid"),
        { waitMs: 10_000 },
      ),
    );
    const results = await Promise.all(calls);
    expect(results.filter(({ isDuplicate }) => !isDuplicate)).toHaveLength(1);
    expect(await orders()).toEqual(["1"]);
  });

  test("of two transactions of users that claim at once, one has the effect", async () => {
    const other = openOne();
    const outcomes = await Promise.allSettled(
      [opened, other].map((one) =>
        one.begin(async (tx) => {
          const result = await once(one.ledger.in(tx), "1", (inner) => pay(inner, "1"));
          await pause(50);
          return result;
        }),
      ),
    );
    // The second one waits for the first, and then finds its result or has to repeat.
    expect(outcomes.filter(({ status }) => status === "fulfilled").length).toBeGreaterThan(0);
    expect(await orders()).toEqual(["1"]);
  });

  test("what was handed out is refused after the work: the transaction, its queries and its parts", async () => {
    let kept: Tx | undefined;
    let late: () => unknown = () => undefined;
    let inner: Tx | undefined;
    await once(ledger, "1", async (tx) => {
      kept = tx;
      late = payLater(tx, "late");
      await nest?.(tx, async (part) => {
        inner = part;
        await pay(part, "in time");
      });
    });
    const tx = kept as Tx;
    const attempts = [() => pay(tx, "late"), late, () => run(tx, "SELECT 1"), () => paid(tx, "1")];
    if (inner !== undefined) attempts.push(() => pay(inner as Tx, "late"));
    for (const attempt of attempts)
      await expect((async () => await attempt())()).rejects.toThrow(ENDED);
    expect(() => ledger.in(tx)).toThrow(ENDED);
    expect(await orders()).toEqual(nest === undefined ? [] : ["in time"]);
  });

  test("what the work started and did not await is a part of the transaction, or undoes it", async () => {
    await once(ledger, "1", async (tx) => void pay(tx, "1"));
    expect(await orders()).toEqual(["1"]);
    const failing = once(ledger, "2", async (tx) => {
      void Promise.resolve(pay(tx, "bad")).catch(() => undefined);
    });
    await expect(failing).rejects.toThrow();
    expect([await orders(), await done("2")]).toEqual([["1"], false]);
  });

  test("the work cannot end the transaction that it was given", async () => {
    for (const text of ["COMMIT", "ROLLBACK"]) {
      const call = once(ledger, text, async (tx) => {
        await pay(tx, "1");
        await run(tx, text);
        await run(tx, "SELECT 1");
      });
      await expect(call).rejects.toThrow();
      expect([text, await done(text)]).toEqual([text, false]);
    }
  });

  if (nest !== undefined)
    test("a part of the work can be undone with the query builder's own means", async () => {
      await once(ledger, "1", async (tx) => {
        await pay(tx, "1");
        await nest(tx, async (part) => {
          await pay(part, "2");
          throw new RangeError("no");
        }).catch(() => undefined);
      });
      expect([await orders(), await done("1")]).toEqual([["1"], true]);
    });

  test("a lost connection undoes the work, is an outage, and ends no process", async (context) => {
    if (frail !== undefined) {
      console.log(`skipped: a lost connection: ${frail}`);
      context.skip(frail);
    }
    const call = ledger.transaction(async (tx) => {
      await pay(tx, "1");
      const sleeping = Promise.resolve(run(tx, "SELECT pg_sleep(20)"));
      await Promise.all([sleeping, endSleeping()]);
    });
    const error: unknown = await call.then(String, (reason: unknown) => reason);
    expect(outageOf(error)?.code, String(error)).toBe("unreachable");
    expect(await orders()).toEqual([]);
    await once(ledger, "1", (tx) => pay(tx, "3"));
    expect(await orders()).toEqual(["3"]);
  });

  test("a signal ends a transaction at once, and its late work writes nothing", async () => {
    const controller = new AbortController();
    let late: Promise<unknown> = Promise.resolve();
    const call = ledger.transaction(async (tx) => {
      late = pause(50).then(() => pay(tx, "late"));
      late.catch(() => undefined);
      controller.abort(new RangeError("enough"));
      await late;
    }, controller.signal);
    await expect(call).rejects.toThrow("enough");
    await expect(late).rejects.toThrow(ENDED);
    expect(await orders()).toEqual([]);
  });

  test("an entry that another transaction holds is in progress, also if the error is wrapped", async () => {
    const place = { kind: "once", scope: "", key: "held" };
    await opened.begin(async (tx) => {
      await ledger.in(tx).entries.put(place, ABSENT, CLAIM);
      const second = ledger.entries.put(place, ABSENT, CLAIM);
      await expect(second).rejects.toMatchObject({ code: "in_progress" });
    });
    expect(await ledger.entries.find(place)).toMatchObject({ state: "running" });
  });

  test("what COMMIT refuses is undone, and the error has the code of PostgreSQL", async () => {
    const call = (text: string) => once(ledger, "1", (tx) => Promise.resolve(run(tx, text)));
    const twice = call("INSERT INTO once_only VALUES (1), (1)");
    await expect(twice).rejects.toMatchObject({ code: "23505" });
    expect(await done("1")).toBe(false);
    expect(await call("SELECT 1")).toMatchObject({ isDuplicate: false });
  });

  test("a relay publishes what was added, exactly as it was", async () => {
    const payload = { big: "9007199254740993", at: PAID_AT.toISOString(), text: "a ? b $1 ü" };
    await opened.begin((tx) => createOutbox(ledger).add(tx, { topic: "paid", payload }));
    const seen: unknown[] = [];
    const publisher = functionPublisher(async ({ payload: bytes }) => {
      seen.push(JSON.parse(new TextDecoder().decode(bytes)));
    });
    await createRelay(ledger, publisher).runOnce();
    expect(seen).toEqual([payload]);
  });
}
