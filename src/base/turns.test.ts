import { expect, test } from "vitest";
import { Turns } from "./turns.ts";

test("at most two run at a time, all run, in order, also after one has failed", async () => {
  const turns = new Turns(2);
  const started: number[] = [];
  const finish: (() => void)[] = [];
  let running = 0;
  let most = 0;
  const work = (number: number) => async (): Promise<number> => {
    started.push(number);
    running += 1;
    most = Math.max(most, running);
    await new Promise<void>((resolve) => finish.push(resolve));
    running -= 1;
    if (number === 1) throw new Error("one fails");
    return number;
  };
  const results = Promise.allSettled([0, 1, 2, 3, 4].map((number) => turns.run(work(number))));
  for (let count = 0; count < 5; count += 1) {
    const begun = Math.min(5, count + 2);
    while (started.length < begun) await Promise.resolve();
    expect(started).toEqual([0, 1, 2, 3, 4].slice(0, begun));
    finish[count]?.();
  }
  const kinds = (await results).map(({ status }) => status);
  expect(kinds).toEqual(["fulfilled", "rejected", "fulfilled", "fulfilled", "fulfilled"]);
  expect(most).toBe(2);
});
