// Events that cannot go, errors that cannot be read, rows that an operator deleted: each concerns itself alone.
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Database from "libsql";
import { afterEach, describe, expect, test } from "vitest";
import { setFailpoint } from "../../src/base/failpoint.ts";
import { sqliteLedger } from "../../src/toolkit/ledgers/sqlite.ts";
import {
  createDeadLetters,
  createOutbox,
  createRelay,
  forgetRelay,
  functionPublisher,
  type Publisher,
  type RelayOptions,
} from "../../src/toolkit/outbox.ts";
import { openStage, pump, Target, textOf, turns } from "./relay-kit.ts";

const QUICK: RelayOptions = {
  leaseMs: 10_000,
  pollMs: 5,
  retry: { pauseMs: 1, pauseMsMax: 4, attemptsMax: 2 },
  onError: () => undefined,
};

afterEach(() => {
  setFailpoint(undefined);
});

/** Errors that hurt those who read them. */
const HOSTILE: Readonly<Record<string, () => unknown>> = {
  "a message that throws": () =>
    Object.defineProperty(new Error("x"), "message", {
      get: () => {
        throw new Error("not readable");
      },
    }),
  "a name that throws": () =>
    Object.defineProperty(new Error("x"), "name", {
      get: () => {
        throw new Error("not readable");
      },
    }),
  "a code that throws": () =>
    Object.defineProperty(new Error("x"), "code", {
      get: () => {
        throw new Error("not readable");
      },
    }),
  "a proxy that throws": () =>
    new Proxy(new Error("x"), {
      get: () => {
        throw new Error("no");
      },
      has: () => {
        throw new Error("no");
      },
      getPrototypeOf: () => {
        throw new Error("no");
      },
    }),
  "a message cut in half by its end": () => new Error("😀".repeat(2000)),
  "a message with halves": () => new Error("\ud800 \0"),
};

describe("an error that cannot be read", () => {
  for (const [what, errorOf] of Object.entries(HOSTILE)) {
    test(`${what} concerns its event alone, and the others are published once`, async () => {
      const { ledger, clock, add } = openStage();
      await add("a.1", "b.1", "c.1", "d.1");
      const calls: string[] = [];
      const publisher = functionPublisher(async (event) => {
        calls.push(textOf(event));
        if (textOf(event) === "b.1") throw errorOf();
      });
      const relay = createRelay(ledger, publisher, {
        clock,
        retry: { pauseMs: 1, pauseMsMax: 4, attemptsMax: 1 },
        onError: () => undefined,
      });
      let isOver = false;
      const report = relay.runOnce().finally(() => (isOver = true));
      await pump(clock, () => isOver);
      expect(await report).toEqual({ published: 3, failed: 1, dead: 1 });
      expect(calls.toSorted()).toEqual(["a.1", "b.1", "c.1", "d.1"]);
      const [letter] = await createDeadLetters(ledger).list();
      expect(letter?.reason?.message).not.toMatch(/\p{Surrogate}|\0/u);
    });

    test(`${what} does not end a relay, thrown for a whole batch or by onError and the meter`, async () => {
      const { ledger, clock, add } = openStage();
      await add("a.1");
      let failures = 0;
      const publisher: Publisher = {
        publish: async ({ events }) => {
          failures += 1;
          if (failures < 4) throw errorOf();
          return events.map(() => ({ kind: "published" }));
        },
      };
      const relay = createRelay(ledger, publisher, {
        clock,
        retry: { pauseMs: 1, pauseMsMax: 4 },
        onError: (error) => {
          throw error;
        },
        meter: {
          add: () => {
            throw errorOf();
          },
          set: () => {
            throw errorOf();
          },
        },
      });
      let isOver = false;
      const running = relay.run().finally(() => (isOver = true));
      await pump(clock, () => failures === 4 || isOver);
      await turns(20);
      expect([failures, isOver]).toEqual([4, false]);
      await relay.stop();
      await running;
      expect(failures).toBe(4);
    });
  }
});

describe("an event that no database and no stream can keep", () => {
  const half = "\ud83d";
  test.each([
    ["topic", { topic: `t${half}`, payload: 1 }],
    ["key", { topic: "t", key: `k${half}`, payload: 1 }],
    ['header "a"', { topic: "t", payload: 1, headers: { a: half } }],
    ["header", { topic: "t", payload: 1, headers: { [`a${half}`]: "b" } }],
    ["payload", { topic: "t", payload: half }],
    ["payload.a[1]", { topic: "t", payload: { a: [1, half] } }],
  ])("half of a surrogate pair in its %s is refused when it is added", async (where, message) => {
    const { ledger } = openStage();
    const outbox = createOutbox(ledger);
    await expect(ledger.transaction((tx) => outbox.add(tx, message))).rejects.toMatchObject({
      code: "invalid_request",
      message: expect.stringContaining(where),
    });
  });
});

describe("a row that is deleted by hand", () => {
  function openFile() {
    const path = join(mkdtempSync(join(tmpdir(), "hapax-poison-")), "db");
    const database = new Database(path);
    return { database, ledger: sqliteLedger(() => database) };
  }

  async function begun(texts: readonly string[], at: "outbox.planned" | "outbox.published") {
    const { database, ledger } = openFile();
    await ledger.migrate();
    const outbox = createOutbox(ledger);
    for (const text of texts) {
      const key = text.split(".")[0] ?? "";
      await ledger.transaction((tx) => outbox.add(tx, { topic: "t", key, payload: text }));
    }
    const target = new Target();
    setFailpoint((name) => {
      if (name === at) throw new Error("killed");
      return undefined;
    });
    const publisher = target.publisher(() => "arrives");
    await expect(createRelay(ledger, publisher, QUICK).runOnce()).rejects.toThrow("killed");
    setFailpoint(undefined);
    return { database, ledger, target, publisher };
  }

  test.each([
    // Nothing was stored: what is left goes under another number.
    ["outbox.planned", ["a.1", "a.3", "b.2"]],
    // All was stored under the number, the deleted one too.
    ["outbox.published", ["a.1", "b.1", "a.3", "b.2"]],
  ] as const)("after %s is left out, and everything else is stored once", async (point, stored) => {
    const { database, ledger, target, publisher } = await begun(
      ["a.1", "b.1", "a.3", "b.2"],
      point,
    );
    database.exec("DELETE FROM hapax_outbox WHERE id = 2");
    await createRelay(ledger, publisher, QUICK).runOnce();
    expect([target.problems, target.stored]).toEqual([[], stored]);
    await createRelay(ledger, publisher, QUICK).runOnce();
    expect(target.stored).toEqual(stored);
  });

  test("is left out also by a publisher that sends one by one, wherever it was in the batch", async () => {
    for (const gone of [1, 2, 3, 4]) {
      const { database, ledger } = await begun(["a.1", "b.1", "a.3", "b.2"], "outbox.planned");
      database.exec(`DELETE FROM hapax_outbox WHERE id = ${gone}`);
      const sent: string[] = [];
      const publisher = functionPublisher(async (event) => void sent.push(event.id));
      const { published } = await createRelay(ledger, publisher, QUICK).runOnce();
      expect([published, sent.toSorted()]).toEqual([
        3,
        ["1", "2", "3", "4"].filter((id) => id !== String(gone)),
      ]);
    }
  });

  test("and the marks of a batch stay with their events", async () => {
    const { database, ledger } = openFile();
    await ledger.migrate();
    const outbox = createOutbox(ledger);
    for (const text of ["a.1", "b.1", "c.1", "d.1"]) {
      const key = text.split(".")[0] ?? "";
      await ledger.transaction((tx) => outbox.add(tx, { topic: "t", key, payload: text }));
    }
    const target = new Target();
    target.refuses.add("b.1");
    let rounds = 0;
    setFailpoint((name) => {
      if (name === "outbox.planned") rounds += 1;
      // The refusal of b.1 is kept with the plan of the rest.
      if (rounds === 2) throw new Error("killed");
      return undefined;
    });
    const publisher = target.publisher(() => "arrives");
    await expect(createRelay(ledger, publisher, QUICK).runOnce()).rejects.toThrow("killed");
    setFailpoint(undefined);
    database.exec("DELETE FROM hapax_outbox WHERE id = 1");
    await createRelay(ledger, publisher, QUICK).runOnce();
    expect([target.problems, target.stored]).toEqual([[], ["c.1", "d.1"]]);
    const dead = await createDeadLetters(ledger).list();
    expect(dead.map(({ event }) => textOf(event))).toEqual(["b.1"]);
  });

  test("held events that are gone hold up nothing", async () => {
    const { database, ledger } = openFile();
    await ledger.migrate();
    const outbox = createOutbox(ledger);
    for (const key of ["a", "b"]) {
      await ledger.transaction((tx) => outbox.add(tx, { topic: "t", key, payload: `${key}.1` }));
    }
    let isDown = true;
    const sent: string[] = [];
    const publisher = functionPublisher(async (event) => {
      if (isDown) throw new Error("down");
      sent.push(textOf(event));
    });
    // Longer than a step on a busy machine: else they would be due again within the first run, until they are dead.
    const options = { ...QUICK, retry: { pauseMs: 500, pauseMsMax: 500, attemptsMax: 100 } };
    const relay = createRelay(ledger, publisher, options);
    await relay.runOnce();
    await new Promise((resolve) => setTimeout(resolve, 600));
    isDown = false;
    setFailpoint((name) => {
      if (name === "outbox.planned") throw new Error("killed");
      return undefined;
    });
    await expect(relay.runOnce()).rejects.toThrow("killed");
    setFailpoint(undefined);
    database.exec("DELETE FROM hapax_outbox_held WHERE key = 'a'");
    await relay.runOnce();
    expect(sent).toEqual(["b.1"]);
    await forgetRelay(ledger, "relay");
  });
});

describe("what cannot be done now", () => {
  test("a batch that cannot be settled is not published again, and is tried again after growing pauses", async () => {
    const { ledger, clock, add } = openStage();
    await add("a.1", "b.1", "c.1");
    let holds = 0;
    const atMs: number[] = [];
    const failing: typeof ledger = {
      ...ledger,
      in: (tx) => {
        const joined = ledger.in(tx);
        const change: typeof joined.outbox.held.change = (...given) => {
          holds += 1;
          atMs.push(clock.steadyMs());
          if (holds <= 5) throw new Error("no place");
          return joined.outbox.held.change(...given);
        };
        const held = { ...joined.outbox.held, change };
        return { ...joined, outbox: { ...joined.outbox, held } };
      },
    };
    const calls: string[] = [];
    const publisher = functionPublisher(async (event) => {
      calls.push(textOf(event));
      if (textOf(event) === "b.1") throw new Error("poison");
    });
    const relay = createRelay(failing, publisher, {
      clock,
      retry: { pauseMs: 100, pauseMsMax: 10_000, attemptsMax: 1 },
      onError: () => undefined,
    });
    const running = relay.run();
    await pump(clock, () => holds > 5);
    await turns(20);
    expect(calls.toSorted()).toEqual(["a.1", "b.1", "c.1"]);
    // Each pause is half of a ceiling that doubles, and a random half.
    const pauses = atMs.slice(1).map((at, index) => at - (atMs[index] ?? 0));
    for (const [index, pause] of pauses.entries())
      expect(pause).toBeGreaterThanOrEqual(50 * 2 ** index);
    await relay.stop();
    await running;
    expect(await createDeadLetters(ledger).list()).toHaveLength(1);
  });

  test("the signal ends it at once, whether publishers and databases listen to it or not", async () => {
    const never = new Promise<never>(() => undefined);
    for (const deaf of ["publisher", "function", "database"] as const) {
      const { ledger, clock, add } = openStage();
      await add("a.1");
      const stop = new AbortController();
      let isThere = false;
      const hang = async (): Promise<never> => {
        isThere = true;
        return await never;
      };
      const publisher =
        deaf === "publisher" ? { publish: hang } : functionPublisher(hang, { clock });
      const stuck: typeof ledger = deaf === "database" ? { ...ledger, transaction: hang } : ledger;
      let isOver = false;
      const running = createRelay(stuck, publisher, { clock })
        .run(stop.signal)
        .finally(() => (isOver = true));
      await pump(clock, () => isThere);
      stop.abort();
      await turns(20);
      // A database that does not answer has a second to take the lease back.
      if (deaf === "database") clock.advance(1000);
      await turns(20);
      expect([deaf, isOver]).toEqual([deaf, true]);
      await running;
    }
  });

  test("a number belongs to as many events as the publisher takes at once", async () => {
    const stage = openStage();
    const target = new Target();
    await stage.add("a.1", "b.1", "c.1", "d.1", "e.1");
    const ways = ["loses its answer", "arrives", "is lost"] as const;
    let at = 0;
    const publisher = { ...target.publisher(() => ways[at++] ?? "arrives"), fits: () => 2 };
    const sizes = new Set<number>();
    const sized: Publisher = {
      ...publisher,
      publish: (batch) => {
        sizes.add(batch.events.length);
        return publisher.publish(batch);
      },
    };
    const retry = { pauseMs: 1, pauseMsMax: 2, attemptsMax: 5 };
    let isOver = false;
    const options = { clock: stage.clock, retry, onError: () => undefined };
    const running = createRelay(stage.ledger, sized, options)
      .runOnce()
      .finally(() => (isOver = true));
    await pump(stage.clock, () => isOver);
    await running;
    expect([target.problems, target.stored]).toEqual([[], ["a.1", "b.1", "c.1", "d.1", "e.1"]]);
    expect([...sizes]).toEqual([2, 1]);
  });
});
