import { expect, test } from "vitest";
import { DeliveryQueue } from "./delivery-queue.ts";

interface Job {
  readonly name: string;
  readonly end: () => void;
}

function createLoad(countMax: number, perHostMax: number) {
  const queue = new DeliveryQueue({ countMax, perHostMax });
  const started: Job[] = [];
  const add = (host: string, name: string): (() => void) =>
    queue.add(host, () => {
      const { promise, resolve } = withResolvers();
      started.push({ name, end: resolve });
      return promise;
    });
  const names = (): readonly string[] => started.map((job) => job.name);
  /** Ends a job and waits until the queue has seen it. */
  const end = async (name: string): Promise<void> => {
    started.find((job) => job.name === name)?.end();
    for (let turn = 0; turn < 5; turn += 1) await Promise.resolve();
  };
  return { queue, add, names, end };
}

function withResolvers(): { promise: Promise<void>; resolve: () => void } {
  let resolve = (): void => undefined;
  const promise = new Promise<void>((onResolve) => {
    resolve = onResolve;
  });
  return { promise, resolve };
}

test("no more deliveries run at once than allowed, over all subscriptions", async () => {
  const load = createLoad(2, 2);
  for (const name of ["a", "b", "c", "d"]) load.add(name, name);
  expect(load.names()).toEqual(["a", "b"]);
  await load.end("b");
  expect(load.names()).toEqual(["a", "b", "c"]);
  expect(load.queue.running).toBe(2);
});

test("a host that hangs holds up only its own deliveries", async () => {
  const load = createLoad(10, 1);
  load.add("slow", "slow-1");
  load.add("slow", "slow-2");
  load.add("fast", "fast-1");
  expect(load.names()).toEqual(["slow-1", "fast-1"]);
  await load.end("slow-1");
  expect(load.names()).toEqual(["slow-1", "fast-1", "slow-2"]);
});

test("what has left the queue is never started", async () => {
  const load = createLoad(1, 1);
  load.add("a", "first");
  const leave = load.add("a", "second");
  load.add("a", "third");
  leave();
  await load.end("first");
  expect(load.names()).toEqual(["first", "third"]);
});
