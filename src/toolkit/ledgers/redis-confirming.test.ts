import { expect, test } from "vitest";
import type { RedisSession } from "../databases/redis.ts";
import { confirming } from "./redis-confirming.ts";
import { PUT_NEW } from "./redis-scripts.ts";

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test("two writes at once that a power cut has lost are both made again before they count", async () => {
  let connection = 1;
  let memory = new Set<string>();
  let disk = new Set<string>();
  const writers = new Set<number>();
  let writesLeft = Number.POSITIVE_INFINITY;
  // As a server with WAITAOF: it answers a connection that has written nothing at once.
  const session: RedisSession = {
    async run(_script, [key = ""]) {
      memory.add(key);
      writers.add(connection);
      writesLeft -= 1;
      if (writesLeft === 0)
        queueMicrotask(() => {
          memory = new Set(disk);
          connection = 2;
        });
      await turn();
      return ["1", "1"];
    },
    async command(_key, [name]) {
      const at = connection;
      await turn();
      if (name !== "WAITAOF") return `id=${at} addr=127.0.0.1:${5000 + at}`;
      if (writers.has(at)) disk = new Set(memory);
      return [1, 0];
    },
  };
  const confirmed = confirming(session, 0);
  await confirmed.run(PUT_NEW, ["first"], []);
  writesLeft = 2;
  await Promise.all([confirmed.run(PUT_NEW, ["a"], []), confirmed.run(PUT_NEW, ["b"], [])]);
  expect([...disk].toSorted()).toEqual(["a", "b", "first"]);
});
