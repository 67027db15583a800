// Exactly once in a Durable Object, in a real workerd: the scenarios of an object that sleeps, is evicted, aborted and killed.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { requirePart } from "../client/runtimes-kit.ts";
import { whyNoWorkerd } from "../kits/workerd-objects.ts";
import { eventually, type ShopStage, startShop } from "./shop-stage.ts";

const reason = whyNoWorkerd();
let stage: ShopStage;

beforeAll(async () => {
  if (reason === undefined) stage = await startShop();
}, 60_000);

afterAll(() => stage.stop());

const inWorkerd = (name: string, run: () => Promise<void>): void => {
  test(name, { timeout: 60_000 }, async (context) => {
    requirePart(context, reason === undefined ? "workerd" : undefined, reason ?? "");
    await run();
  });
};

/** The object of the two sketches, with a real eviction. */
function createTestDO(name: string) {
  const object = stage.shop(name);
  return {
    processEvent: ({ id }: { id: string; data: string }) =>
      object.json("/process", { id, stop: "object.began" }),
    /** The platform waits for work that runs: it goes on when the eviction has been asked for. */
    async simulateHibernation() {
      const go = await stage.stopped("object.began");
      const evicted = object.evict();
      go("go");
      await evicted;
    },
    wake: () => object.json("/life"),
    getProcessedEvents: async () => (await stage.effects(name)).map((id) => ({ id })),
    emit: ({ orderId }: { type: string; orderId: string }) =>
      object.json("/emit", { id: orderId, text: `${name} sink`, stop: "outbox.planned" }),
    getPendingOutboxEvents: () => object.json<unknown[]>("/pending"),
    flush: () => object.json("/flush"),
    getDeliveredEvents: () => stage.effects(`${name} sink`),
  };
}

describe("exactly-once with hibernation", () => {
  inWorkerd("G66 should not duplicate on hibernation during processing", async () => {
    const object = createTestDO("sketch 1");

    // Start processing
    const eventId = "evt-123";
    const processingPromise = object.processEvent({ id: eventId, data: "test" });

    // Simulate hibernation mid-processing
    await object.simulateHibernation();
    await processingPromise;

    // Wake up and retry same event
    await object.wake();
    const again = object.processEvent({ id: eventId, data: "test" });
    (await stage.stopped("object.began"))("go");
    await again;

    // Should only process once
    const results = await object.getProcessedEvents();
    expect(results.filter((event) => event.id === eventId)).toHaveLength(1);
  });

  inWorkerd("G66 should recover outbox on wake, from a real eviction", async () => {
    const object = createTestDO("sketch 2");
    // The alarm that would publish them at once is lost
    await stage.shop("sketch 2").json("/quiet", { n: 1 });

    // Buffer events
    await stage.shop("sketch 2").json("/emit", { id: "123", text: "sketch 2 sink" });
    await stage.shop("sketch 2").json("/emit", { id: "456", text: "sketch 2 sink" });

    // Hibernate before flush
    await stage.shop("sketch 2").evict();

    // Wake and verify outbox persisted
    await object.wake();
    const pending = await object.getPendingOutboxEvents();
    expect(pending).toHaveLength(2);

    // Flush should complete
    await object.flush();
    const delivered = await object.getDeliveredEvents();
    expect(delivered).toHaveLength(2);
    expect(delivered).toEqual(['got {"orderId":"123"}', 'got {"orderId":"456"}']);
  });

  inWorkerd("G66 should recover outbox on wake", async () => {
    const object = createTestDO("sketch 3");

    // Buffer events; the alarm that would publish them stops before it sends
    await object.emit({ type: "order.created", orderId: "123" });
    const go = await stage.stopped("outbox.planned");
    await object.emit({ type: "order.created", orderId: "456" });

    // Lost before the flush: harder than hibernation, which would wait for it
    await stage.host.abortAll();
    go("go");

    // Wake and verify outbox persisted
    await object.wake();
    const pending = await object.getPendingOutboxEvents();
    expect(pending).toHaveLength(2);

    // Flush should complete
    (await stage.stopped("outbox.planned"))("go");
    await object.flush();
    const delivered = await object.getDeliveredEvents();
    expect(delivered).toHaveLength(2);
    expect(delivered).toEqual(['got {"orderId":"123"}', 'got {"orderId":"456"}']);
  });
});

inWorkerd("G66 a result is kept, and comes again over eviction, abort and SIGKILL", async () => {
  const object = stage.shop("kept");
  const call = () => object.json<Once>("/process", { id: "a" });
  const first = await call();
  expect(first).toMatchObject({ result: { of: "a" }, isDuplicate: false });
  for (const lose of [
    () => object.evict(),
    () => object.abort(),
    () => stage.host.abortAll(),
    () => stage.host.restart(),
  ]) {
    await lose();
    expect(await call()).toEqual({ ...first, isDuplicate: true });
  }
  expect(await stage.effects("kept")).toEqual(["a"]);
  await eventually(
    () => object.json<Metrics>("/metrics"),
    (metrics) => {
      expect(metrics).toMatchObject({ processedCount: 1, dedupCacheSize: 1 });
    },
  );
});

inWorkerd("G66 work that throws leaves nothing: no row, no event, no record", async () => {
  const object = stage.shop("thrown");
  const failed = await object.fetch("/transfer", {
    method: "POST",
    body: JSON.stringify({ id: "t", text: "thrown sink", n: -1 }),
  });
  expect(failed.status).not.toBe(200);
  expect(await stage.effects("thrown")).toEqual([]);
  expect(await object.json("/pending")).toEqual([]);
  await object.json("/transfer", { id: "t", text: "thrown sink" });
  await eventually(
    () => stage.effects("thrown sink"),
    (effects) => {
      expect(effects).toEqual(['got "t"']);
    },
  );
  expect(await stage.effects("thrown")).toEqual(["t"]);
});

inWorkerd("G66 calls that come at once have one effect, and all get its result", async () => {
  const object = stage.shop("at once");
  const all = await object.json<Once[]>("/many", { id: "m", n: 5 });
  expect(all.map(({ isDuplicate }) => isDuplicate)).toEqual([false, true, true, true, true]);
  expect(new Set(all.map(({ result }) => JSON.stringify(result))).size).toBe(1);
  expect(await stage.effects("at once")).toEqual(["m"]);
  const charges = (await stage.charges()).filter(({ key }) => key.endsWith("/m"));
  expect(charges).toMatchObject([{ calls: 1 }]);
});

inWorkerd("G66 processing writes one row for an event", async () => {
  const object = stage.shop("rows");
  await object.json("/rows", { id: "first", n: 1 });
  expect(await object.json("/rows", { id: "event", n: 100 })).toBe(100);
});

inWorkerd(
  "G66 of several fences of a name the newest counts, over lives and also for others",
  async () => {
    const object = stage.shop("fences");
    const first = await object.json<number>("/fence", { id: "f", text: "first" });
    await object.evict();
    const second = await object.json<number>("/fence", { id: "f", text: "second" });
    expect(second).toBeGreaterThan(first);
    await object.json("/fence", { id: "f", text: "again", n: second });
    const old = { id: "f", text: "stale", n: first };
    const refused = await object.fetch("/fence", { method: "POST", body: JSON.stringify(old) });
    expect(await refused.text()).toContain("a newer fence was taken");
    expect(await stage.effects("fences")).toEqual(["first", "second", "again"]);
  },
);

inWorkerd(
  "G66 a saga goes on where an earlier life was lost, without a call of the object",
  async () => {
    const object = stage.shop("saga");
    const started = object.json("/saga", { id: "s", stop: "saga.called" }).catch(() => "lost");
    await stage.stopped("saga.called");
    await stage.host.restart();
    await started;
    await eventually(
      () => stage.charges(),
      (charges) => {
        expect(charges.some(({ key }) => key.includes("/s/"))).toBe(true);
      },
    );
    await eventually(
      () => stage.effects("saga"),
      (effects) => {
        expect(effects).toEqual(["reserve s", "ship s"]);
      },
    );
  },
);

inWorkerd("G66 the counts have the fields of their description, and survive sleep", async () => {
  const object = stage.shop("counts");
  await object.json("/transfer", { id: "a", text: "counts sink" });
  await object.json("/transfer", { id: "a", text: "counts sink" });
  await eventually(
    () => stage.effects("counts sink"),
    (effects) => {
      expect(effects).toHaveLength(1);
    },
  );
  const read = () => object.json<Metrics>("/metrics");
  const metrics = await eventually(read, (seen) => {
    expect(seen["outboxFlushLatencyP99"]).toBeGreaterThan(0);
    expect(seen["walEntriesPending"]).toBe(0);
  });
  expect(metrics).toEqual({
    duplicatesDetected: 1,
    processedCount: 1,
    hibernationRecoveries: 0,
    outboxFlushLatencyP99: metrics["outboxFlushLatencyP99"],
    dedupCacheSize: 1,
    walEntriesPending: 0,
    alarmsLate: 0,
    alarmsRepeated: 0,
    alarmsFailed: 0,
    takeovers: 0,
    sagasStuck: 0,
    deadLetters: 0,
    oldestPendingMs: 0,
    sequenceGaps: 0,
  });
  // The alarm has stored them with the flush; those of a crash are not promised.
  await object.json("/fire");
  await object.evict();
  expect(await read()).toEqual(metrics);
});

interface Once {
  readonly result: unknown;
  readonly isDuplicate: boolean;
}

type Metrics = Readonly<Record<string, number>>;
