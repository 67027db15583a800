import { expect, test } from "vitest";
import { memoryLedger } from "../ledgers/memory.ts";
import type { OutboxEvent } from "../outbox/log.ts";
import type { PublishBatch } from "../outbox/publisher.ts";
import type { ObjectDelivery } from "./receiving.ts";
import { toObjects } from "./to-objects.ts";

test("G68 events for more objects than are known in memory arrive in one go, also if each object wants a new epoch", async () => {
  const received: string[] = [];
  let calls = 0;
  const namespace = {
    idFromName: (name: string) => name,
    get: () => ({
      receive: async ({ epoch, sequence, messages }: ObjectDelivery) => {
        // Some answer later than others.
        for (let turn = calls % 17; turn > 0; turn -= 1) await Promise.resolve();
        calls += 1;
        if (epoch === 0) return { kind: "refused", currentEpoch: 0 };
        received.push(...messages.map(({ key }) => key));
        return { kind: "received", last: sequence + Math.max(0, messages.length - 1) };
      },
    }),
  };
  const events = Array.from({ length: 1_100 }, (_, at): OutboxEvent => ({
    id: String(at),
    topic: "t",
    key: `k${at}`,
    payload: new Uint8Array(1),
    headers: {},
    addedAtMs: 1,
  }));
  const batch = { source: "s", events, signal: new AbortController().signal, concurrency: 20 };
  // Cast: the publisher uses no other members.
  const outcomes = await toObjects(memoryLedger(), namespace, "receive").publish(
    batch as unknown as PublishBatch,
  );
  const failed = Array.isArray(outcomes)
    ? outcomes.filter((outcome) => outcome.kind !== "published")
    : [outcomes];
  expect(failed).toEqual([]);
  expect(received).toHaveLength(1_100);
});
