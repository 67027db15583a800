// Relays that die, freeze and lose answers: nothing is lost, nothing is twice, and keys keep their order.
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { setFailpoint } from "../../src/base/failpoint.ts";
import {
  createDeadLetters,
  createOutbox,
  createRelay,
  functionPublisher,
  type RelayOptions,
} from "../../src/toolkit/outbox.ts";
import { memoryLedger } from "../../src/toolkit/ledgers/memory.ts";
import {
  LEASE_MS,
  type Life,
  live,
  openStage,
  pump,
  Target,
  textOf,
  turns,
  watchFailpoints,
  type Way,
} from "./relay-kit.ts";

beforeAll(() => {
  watchFailpoints();
});
afterAll(() => {
  setFailpoint(undefined);
});

const HEALTHY: Life = { freezesAt: undefined, ways: [] };

function ofKey(texts: readonly string[], key: string): readonly string[] {
  return texts.filter((text) => text.startsWith(`${key}.`));
}

describe("a relay that dies", () => {
  const TEXTS = ["a.1", "b.1", "a.2", ".1", "b.2", "a.3", "c.1"];
  // Two batches with a planned, published and settled each.
  for (const point of [1, 2, 3, 4, 5, 6]) {
    test(`at step ${point} is followed by one that publishes the same under the same identity`, async () => {
      const stage = openStage();
      const target = new Target();
      await stage.add(...TEXTS);
      const publisherOf = (next: () => Way) => target.publisher(next);
      const dead = await live(stage, publisherOf, { freezesAt: point, ways: [] });
      expect(dead.end).toBe("frozen");
      stage.clock.advance(LEASE_MS + 1);
      expect((await live(stage, publisherOf, HEALTHY)).end).toBe("done");
      expect(target.problems).toEqual([]);
      expect(target.stored).toEqual(TEXTS);
    });

    test(`and wakes at step ${point} after another has taken over can change nothing`, async () => {
      const stage = openStage();
      const target = new Target();
      await stage.add(...TEXTS);
      const publisherOf = (next: () => Way) => target.publisher(next);
      const frozen = await live(stage, publisherOf, { freezesAt: point, ways: [] });
      stage.clock.advance(LEASE_MS + 1);
      await live(stage, publisherOf, HEALTHY);
      const place = { kind: "relay", scope: "outbox", key: "relay" };
      const before = await stage.ledger.entries.find(place);
      await frozen.resume();
      const after = await stage.ledger.entries.find(place);
      expect([after?.token, after?.revision]).toEqual([before?.token, before?.revision]);
      await stage.add("a.4");
      await live(stage, publisherOf, HEALTHY);
      expect(target.problems).toEqual([]);
      expect(target.stored).toEqual([...TEXTS, "a.4"]);
    });
  }

  test("and wakes after another has settled what it failed with holds nothing back again", async () => {
    const stage = openStage();
    const target = new Target();
    target.refuses.add("a.1");
    await stage.add("a.1", "a.2", "b.1");
    const publisherOf = (next: () => Way) => target.publisher(next);
    // It has heard the refusal, and then that of the others; it would settle next.
    const frozen = await live(stage, publisherOf, { freezesAt: 4, ways: [] });
    stage.clock.advance(LEASE_MS + 1);
    await live(stage, publisherOf, HEALTHY);
    await createDeadLetters(stage.ledger).discard({ key: "a" });
    await live(stage, publisherOf, HEALTHY);
    await frozen.resume();
    expect(await stage.ledger.outbox.held.list({ relay: "relay", max: 10 })).toEqual([]);
    expect(target.stored).toEqual(["b.1", "a.2"]);
  });

  test("while it is frozen no other relay works before its lease is over", async () => {
    const stage = openStage();
    const target = new Target();
    await stage.add("a.1");
    await live(stage, (next) => target.publisher(next), { freezesAt: 1, ways: [] });
    const relay = createRelay(
      stage.ledger,
      target.publisher(() => "arrives"),
      {
        clock: stage.clock,
      },
    );
    await expect(relay.runOnce()).rejects.toMatchObject({ code: "in_progress" });
    expect(target.stored).toEqual([]);
  });

  test("every event is stored once in the order of its key, with lost, late and frozen attempts", async () => {
    const way = fc.constantFrom<Way>("arrives", "is lost", "loses its answer", "comes late");
    const lives = fc.array(
      fc.record({
        freezesAt: fc.option(fc.nat({ max: 12 }), { nil: undefined }),
        ways: fc.array(way, { maxLength: 4 }),
        adds: fc.array(fc.constantFrom("a", "b", "c", ""), { maxLength: 6 }),
        wakes: fc.boolean(),
        delivers: fc.boolean(),
        discards: fc.boolean(),
        refuses: fc.option(fc.nat({ max: 20 }), { nil: undefined }),
      }),
      { minLength: 1, maxLength: 7 },
    );
    await fc.assert(
      fc.asyncProperty(lives, async (all) => {
        const stage = openStage();
        const target = new Target();
        const letters = createDeadLetters(stage.ledger);
        const publisherOf = (next: () => Way) => target.publisher(next);
        const texts: string[] = [];
        for (const { adds, wakes, delivers, discards, refuses, ...life } of all) {
          const added = adds.map((key, index) => `${key}.${texts.length + index}`);
          texts.push(...added);
          const refused = refuses === undefined ? undefined : added[refuses];
          if (refused !== undefined) target.refuses.add(refused);
          await stage.add(...added);
          const one = await live(stage, publisherOf, life);
          if (delivers) target.deliverLate();
          if (one.end !== "frozen") continue;
          stage.clock.advance(LEASE_MS + 1);
          if (!wakes) continue;
          await live(stage, publisherOf, { freezesAt: undefined, ways: ["loses its answer"] });
          await one.resume();
          stage.clock.advance(LEASE_MS + 1);
          if (discards)
            for (const { event } of await letters.list()) await letters.discard([event.id]);
        }
        // In the end the network is healthy, and the operator discards the dead letters.
        for (let round = 0; round < 30; round += 1) {
          const { end } = await live(stage, publisherOf, HEALTHY);
          expect(end).toBe("done");
          target.deliverLate();
          const dead = await letters.list();
          if (dead.length === 0) break;
          await letters.discard(dead.map(({ event }) => event.id));
        }
        expect(target.problems).toEqual([]);
        const wanted = texts.filter((text) => !target.refuses.has(text));
        expect(target.stored.toSorted()).toEqual(wanted.toSorted());
        for (const key of ["a", "b", "c"]) {
          expect(ofKey(target.stored, key)).toEqual(ofKey(wanted, key));
        }
        expect(await stage.ledger.outbox.held.list({ relay: "relay", max: 10 })).toEqual([]);
      }),
      { numRuns: 400 },
    );
  });
});

describe("a function as publisher", () => {
  const options: RelayOptions = {
    retry: { pauseMs: 10, pauseMsMax: 10, attemptsMax: 3 },
    onError: () => undefined,
  };

  function open(poison: ReadonlySet<string>, other: RelayOptions = {}) {
    const stage = openStage();
    const done: string[] = [];
    const tried: string[] = [];
    const keys = new Map<string, Set<string>>();
    const publisher = functionPublisher(async (event, { idempotencyKey, attempt }) => {
      const text = textOf(event);
      tried.push(`${text} ${attempt}`);
      keys.set(text, (keys.get(text) ?? new Set()).add(idempotencyKey));
      await Promise.resolve();
      if (poison.has(text)) throw new Error(`${text} is poison`);
      done.push(text);
    });
    const relay = createRelay(stage.ledger, publisher, {
      ...options,
      ...other,
      clock: stage.clock,
    });
    const letters = createDeadLetters(stage.ledger);
    /** Until nothing is due any more. */
    const runAll = async (): Promise<void> => {
      for (let round = 0; round < 10; round += 1) {
        await relay.runOnce();
        stage.clock.advance(20);
      }
    };
    return { ...stage, done, tried, keys, relay, letters, runAll };
  }

  test("a poisoned key holds up itself alone, in its order", async () => {
    const poison = new Set(["a.2"]);
    const { add, runAll, done, tried, letters } = open(poison);
    await add("a.1", "b.1", "a.2", "a.3", ".1", "b.2");
    await runAll();
    await add("a.4", "b.3");
    await runAll();
    expect(ofKey(done, "a")).toEqual(["a.1"]);
    expect(ofKey(done, "b")).toEqual(["b.1", "b.2", "b.3"]);
    expect(done).toContain(".1");
    expect(tried.filter((one) => one.startsWith("a.2"))).toEqual(["a.2 1", "a.2 2", "a.2 3"]);
    expect(tried.some((one) => one.startsWith("a.3"))).toBe(false);
    expect((await letters.list()).map(({ event }) => textOf(event))).toEqual(["a.2"]);
  });

  test("a replayed letter goes first, and what waited behind it follows in order", async () => {
    const poison = new Set(["a.1"]);
    const { add, runAll, done, letters } = open(poison);
    await add("a.1", "a.2");
    await runAll();
    await add("a.3");
    await runAll();
    expect(done).toEqual([]);
    poison.clear();
    expect(await letters.replay({ key: "a" })).toBe(1);
    await runAll();
    expect(done).toEqual(["a.1", "a.2", "a.3"]);
    expect(await letters.list()).toEqual([]);
  });

  test("a discarded letter is gone, and its key goes on", async () => {
    const { add, runAll, done, letters } = open(new Set(["a.1", "a.3"]));
    await add("a.1", "a.2", "a.3", "a.4");
    await runAll();
    const [letter] = await letters.list();
    expect(await letters.discard([letter?.event.id ?? ""])).toBe(1);
    await runAll();
    expect(done).toEqual(["a.2"]);
    await expect(letters.discard({})).rejects.toMatchObject({ code: "invalid_request" });
    expect(await letters.discard({ key: "a" })).toBe(1);
    await runAll();
    expect(done).toEqual(["a.2", "a.4"]);
  });

  test("a key behind a dead letter goes on also if the letter was discarded while a batch was published", async () => {
    const stage = openStage();
    const { ledger, clock, add } = stage;
    const letters = createDeadLetters(ledger);
    const done: string[] = [];
    let during: () => Promise<void> = () => Promise.resolve();
    const publisher = functionPublisher(async (event) => {
      await during();
      if (textOf(event) === "a.1") throw new Error("poison");
      done.push(textOf(event));
    });
    const relay = createRelay(ledger, publisher, { clock, retry: { attemptsMax: 1 } });
    await add("a.1");
    await relay.runOnce();
    // The relay has seen that the key waits, and keeps a.2 back; the letter goes before it settles.
    during = async () => {
      during = () => Promise.resolve();
      await letters.discard({ key: "a" });
    };
    await add("a.2", "b.1");
    await relay.runOnce();
    await relay.runOnce();
    expect(done).toEqual(["b.1", "a.2"]);
  });

  test("letters are grouped by the text of their failure", async () => {
    const { add, runAll, letters } = open(new Set(["a.1", "b.2", "c.3"]));
    await add("a.1", "b.2", "c.3");
    await runAll();
    const groups = await letters.groups();
    // The texts differ in more than numbers: `a.#` and `b.#`.
    expect(groups.map(({ count }) => count)).toEqual([1, 1, 1]);
    const [first] = groups;
    const { fingerprint } = first ?? { fingerprint: "" };
    expect(await letters.list({ fingerprint })).toHaveLength(1);
    expect(await letters.replay({ fingerprint })).toBe(1);
    expect(await letters.list()).toHaveLength(2);
  });

  test("with afterDead continue, a dead letter does not hold up its key", async () => {
    const { add, runAll, done, letters } = open(new Set(["a.1"]), { afterDead: "continue" });
    await add("a.1", "a.2");
    await runAll();
    expect(done).toEqual(["a.2"]);
    await add("a.3");
    await runAll();
    expect(done).toEqual(["a.2", "a.3"]);
    expect(await letters.list()).toHaveLength(1);
  });

  test("an event has one idempotency key in all attempts, and other databases have others", async () => {
    const [one, other] = [open(new Set(["a.1"])), open(new Set())];
    for (const { add, runAll } of [one, other]) {
      await add("a.1", "a.2");
      await runAll();
    }
    const used = [...one.keys.values(), ...other.keys.values()].map((keys) => [...keys]);
    expect(used.map((keys) => keys.length)).toEqual(used.map(() => 1));
    expect(new Set(used.flat()).size).toBe(used.length);
  });

  test("keys go at the same time, up to so many", async () => {
    const { ledger, add, clock } = openStage();
    let [now, most] = [0, 0];
    const publisher = functionPublisher(async () => {
      now += 1;
      most = Math.max(most, now);
      await turns(1);
      now -= 1;
    });
    await add(...Array.from({ length: 20 }, (_, index) => `k${index}.1`));
    await createRelay(ledger, publisher, { concurrency: 3, clock }).runOnce();
    expect(most).toBe(3);
  });

  test("a call that never ends fails its event after a while, and everybody else goes on", async () => {
    const { ledger, add, clock } = openStage();
    const done: string[] = [];
    const reasons: unknown[] = [];
    const publisher = functionPublisher(
      (event, { signal }) => {
        if (textOf(event) !== "a.1") return Promise.resolve(void done.push(textOf(event)));
        signal.addEventListener("abort", () => reasons.push(signal.reason));
        return new Promise(() => undefined);
      },
      { callMs: 5000, clock },
    );
    await add("a.1", "a.2", "b.1");
    const options = { clock, leaseMs: 1000, concurrency: 1, retry: { attemptsMax: 1 } };
    let report: unknown;
    const running = createRelay(ledger, publisher, options)
      .runOnce()
      .then((made) => (report = made));
    await pump(clock, () => report !== undefined);
    await running;
    expect(report).toEqual({ published: 1, failed: 1, dead: 1 });
    expect(done).toEqual(["b.1"]);
    expect(reasons).toMatchObject([{ code: "outcome_unknown" }]);
    for (const callMs of [0, 1.5, Infinity]) {
      const make = () => functionPublisher(() => Promise.resolve(), { callMs });
      expect(make).toThrow(expect.objectContaining({ code: "invalid_options" }));
    }
  });

  test("an odd value thrown by publish, or an error of isFinal, fails its own event alone", async () => {
    const { ledger, add, clock } = openStage();
    const odd = Object.assign(new Error("x"), { message: Object.create(null) as string });
    const thrown: readonly unknown[] = [undefined, Object.create(null), odd, "a-".repeat(500_000)];
    const done: string[] = [];
    const publisher = functionPublisher(
      (event) => {
        const [key = "", index = ""] = textOf(event).split(".");
        // oxlint-disable-next-line no-throw-literal, only-throw-error -- Users do it.
        if (key === "bad") throw thrown[Number(index)];
        done.push(textOf(event));
        return Promise.resolve();
      },
      {
        isFinal: (error) => {
          if (error === undefined) throw new TypeError("no code");
          return true;
        },
      },
    );
    await add("bad.0", ...[1, 2, 3].map((index) => `bad.${index}`), "b.1");
    const relay = createRelay(ledger, publisher, {
      clock,
      retry: { attemptsMax: 1 },
      afterDead: "continue",
    });
    for (let run = 0; run < 5; run += 1) await relay.runOnce();
    expect(done).toEqual(["b.1"]);
    expect(await createDeadLetters(ledger).list()).toHaveLength(4);
  });

  test("a failure that is final is not tried again", async () => {
    const { ledger, add, clock } = openStage();
    const publisher = functionPublisher(() => Promise.reject(new Error("no")), {
      isFinal: () => true,
    });
    await add("a.1");
    const report = await createRelay(ledger, publisher, { clock }).runOnce();
    expect(report).toEqual({ published: 0, failed: 1, dead: 1 });
  });
});

describe("a relay that runs on", () => {
  test("goes on after failures, and ends when it is stopped", async () => {
    const { ledger, clock, add } = openStage();
    const errors: unknown[] = [];
    const done: string[] = [];
    let failures = 3;
    const publisher = {
      publish: async ({ events }: { events: readonly { payload: Uint8Array }[] }) => {
        failures -= 1;
        if (failures >= 0) throw new Error("down");
        done.push(...events.map(textOf));
        return events.map(() => ({ kind: "published" }) as const);
      },
    };
    const relay = createRelay(ledger, publisher, {
      clock,
      retry: { pauseMs: 10 },
      onError: (error) => errors.push(error),
    });
    let isOver = false;
    const running = relay.run().finally(() => (isOver = true));
    await add("a.1");
    await pump(clock, () => done.length === 1);
    await turns(5);
    clock.advance(1);
    await turns(5);
    // It waits now, and is woken by the hint, not by the clock.
    await add("a.2");
    await turns(20);
    expect(done).toEqual(["a.1", "a.2"]);
    expect(errors).toHaveLength(3);
    await expect(relay.run()).rejects.toMatchObject({ code: "invalid_request" });
    await relay.stop();
    await running;
    expect([isOver, clock.pending]).toEqual([true, 0]);
  });

  test("two of a name: when one dies the other takes over, when one ends it does so at once", async () => {
    const { ledger, clock, add } = openStage();
    const by: string[] = [];
    const relayOf = (name: string) =>
      createRelay(
        ledger,
        functionPublisher(async (event) => void by.push(`${name} ${textOf(event)}`)),
        { clock, pollMs: 50 },
      );
    const [one, other] = [relayOf("one"), relayOf("other")];
    const running = [one.run(), other.run()];
    await add("a.1");
    await pump(clock, () => by.length === 1);
    const first = by[0]?.startsWith("one") === true ? one : other;
    await first.stop();
    await add("a.2");
    await pump(clock, () => by.length === 2);
    expect(by[1]?.slice(0, 3)).not.toBe(by[0]?.slice(0, 3));
    await Promise.all([one.stop(), other.stop()]);
    await Promise.all(running);
  });

  test("a signal ends it in the middle, and the next one repeats the same", async () => {
    const { ledger, clock, add } = openStage();
    const identities: string[] = [];
    const stop = new AbortController();
    await add("a.1");
    const hanging = {
      publish: ({ identity, signal }: { identity: object; signal: AbortSignal }) =>
        new Promise<never>((_, reject) => {
          identities.push(JSON.stringify(identity));
          signal.addEventListener("abort", () => {
            reject(new Error("given up"));
          });
        }),
    };
    const running = createRelay(ledger, hanging, { clock }).run(stop.signal);
    await pump(clock, () => identities.length === 1);
    stop.abort();
    await running;
    const publisher = {
      publish: async ({ identity, isRetry }: { identity: object; isRetry: boolean }) => {
        identities.push(JSON.stringify(identity));
        expect(isRetry).toBe(true);
        return [{ kind: "published" }] as const;
      },
    };
    await createRelay(ledger, publisher, { clock }).runOnce();
    expect(identities[1]).toBe(identities[0]);
  });

  test("only what all relays are past is deleted, and nothing that is held", async () => {
    const { ledger, clock, add } = openStage();
    const log = ledger.outbox;
    if (log.way === "rows") throw new Error("memory has spans");
    const poison = new Set(["a.1"]);
    const relayOf = (name: string) =>
      createRelay(
        ledger,
        functionPublisher(async (event) => {
          if (poison.has(textOf(event))) throw new Error("poison");
        }),
        { name, clock, cleanup: { keepMs: 10, batchMax: 1 } },
      );
    const [fast, slow] = [relayOf("fast"), relayOf("slow")];
    await slow.runOnce();
    await add("a.1", "b.1", "b.2");
    clock.advance(1000);
    await fast.runOnce();
    const left = async () => {
      const span = await log.spans.plan("0", 100);
      return span === undefined ? 0 : (await log.spans.read(span)).length;
    };
    expect(await left()).toBe(3);
    await slow.runOnce();
    expect(await left()).toBe(0);
    expect(await log.held.list({ relay: "fast", max: 10 })).toHaveLength(1);
    await add("c.1");
    await fast.runOnce();
    await slow.runOnce();
    expect(await left()).toBe(1);
  });

  test("options that make no sense are named together", () => {
    const { ledger } = openStage();
    const publisher = functionPublisher(() => Promise.resolve());
    const make = () =>
      createRelay(ledger, publisher, {
        name: "",
        batchMax: 0,
        retry: { pauseMs: 5, pauseMsMax: 4 },
      });
    expect(make).toThrow(/name=.*batchMax=0.*retry.pauseMsMax=4/);
  });
});

describe("adding", () => {
  test("an event has what it was given, its type and its trace", async () => {
    const ledger = memoryLedger();
    const outbox = createOutbox(ledger, { trace: () => ({ Traceparent: "00-aa-bb-01" }) });
    const bytes = Uint8Array.of(1, 2);
    await ledger.transaction(async (tx) => {
      await outbox.add(tx, { topic: "t", payload: { n: 1 }, headers: { "X-A": "1" } });
      await outbox.add(tx, { topic: "t", payload: "text" });
      await outbox.add(tx, { topic: "t", payload: bytes });
      bytes.fill(9);
      expect(await outbox.addAll(tx, [])).toEqual([]);
    });
    const seen: unknown[] = [];
    const publisher = functionPublisher(async ({ payload, headers }) => {
      seen.push([[...payload], headers]);
    });
    await createRelay(ledger, publisher, { concurrency: 1 }).runOnce();
    const traceparent = "00-aa-bb-01";
    const codes = (text: string) => [...new TextEncoder().encode(text)];
    expect(seen).toEqual([
      [codes('{"n":1}'), { "content-type": "application/json", traceparent, "x-a": "1" }],
      [codes("text"), { "content-type": "text/plain; charset=utf-8", traceparent }],
      [[1, 2], { "content-type": "application/octet-stream", traceparent }],
    ]);
  });

  test("what cannot be kept is refused, and an event of a failed transaction is not published", async () => {
    const ledger = memoryLedger();
    const outbox = createOutbox(ledger);
    const add = (message: Parameters<typeof outbox.add>[1]) =>
      ledger.transaction((tx) => outbox.add(tx, message));
    for (const bad of [
      { topic: "t", payload: undefined },
      { topic: "t", payload: 1n },
      { topic: "t\0", payload: 1 },
      { topic: "t", key: "k".repeat(513), payload: 1 },
      { topic: "t", payload: 1, headers: { a: "\0" } },
    ]) {
      await expect(add(bad)).rejects.toMatchObject({ code: "invalid_request" });
    }
    await ledger
      .transaction(async (tx) => {
        await outbox.add(tx, { topic: "t", payload: 1 });
        throw new Error("no");
      })
      .catch(() => undefined);
    const { published } = await createRelay(
      ledger,
      functionPublisher(() => Promise.resolve()),
    ).runOnce();
    expect(published).toBe(0);
  });
});
