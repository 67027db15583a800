import { expect, test } from "vitest";
import { Drain } from "./drain.ts";

test("everyone who waits is asked to go once, also while others leave", () => {
  const drain = new Drain();
  const gone: string[] = [];
  const leave = drain.onDrain(() => gone.push("left before"));
  const stays = drain.onDrain(() => {
    gone.push("first");
    stays();
  });
  drain.onDrain(() => gone.push("second"));
  leave();
  expect(drain.isDraining).toBe(false);
  drain.start();
  expect([drain.isDraining, gone]).toEqual([true, ["first", "second"]]);
});
