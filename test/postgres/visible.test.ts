// The barrier, without a server: what a look finds is never what a commit is acknowledged for.
import { expect, test } from "vitest";
import { Fence } from "../../src/streams/stores/postgres/fence.ts";
import type { FencedWrite } from "../../src/streams/stores/postgres/tables.ts";
import { createSeededRandom } from "../../src/testing/seeded-random.ts";
import { createVirtualClock } from "../../src/testing/virtual-clock.ts";
import { NO_HARM, SimulatedLog, SimulatedServer } from "./simulated-log.ts";

test("G81 a frame that is visible is not acknowledged before a write of our own has confirmed it", async () => {
  const clock = createVirtualClock();
  const server = new SimulatedServer(createSeededRandom(1), clock, NO_HARM);
  const tables = new SimulatedLog(server, () => 0);
  const asked: string[] = [];
  // The confirmation that comes first finds nothing: a failover has taken the frame back, and a late statement brings it again.
  const confirm = tables.confirm.bind(tables);
  tables.confirm = async (epoch, write) => {
    const done = await confirm(epoch, write);
    asked.push("confirm");
    return asked.length === 1 ? { isDone: false, isSure: true } : done;
  };
  const look = tables.look.bind(tables);
  tables.look = async (write, epoch) => {
    asked.push("look");
    return look(write, epoch);
  };
  const taken = tables.take(0, { node: "n", life: "l" });
  const fence = new Fence({
    tables,
    epoch: 1,
    clock,
    onWarning: () => undefined,
    onFull: () => undefined,
  });
  const segment: FencedWrite = {
    kind: "segment",
    segment: { number: 1, firstLsn: 1, salt: 1, crcBefore: 0 },
  };
  const run = async <T>(promise: Promise<T>): Promise<T> => {
    let isDone = false;
    const ended = promise.finally(() => (isDone = true));
    while (!isDone) {
      await new Promise((resolve) => setImmediate(resolve));
      clock.advance(5);
    }
    return ended;
  };
  await run(taken);
  await run(fence.write(segment));
  const bytes = new Uint8Array(48);
  const frame: FencedWrite = {
    kind: "frame",
    segment: 1,
    position: 0,
    lsn: 1,
    ordinal: 0,
    parts: [bytes],
    before: undefined,
  };
  await run(tables.write(1, frame)); // It is there, and its owner was not told.
  await run(fence.write(frame));
  expect(asked).toEqual(["confirm", "look", "confirm"]);
});
