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

test("who begins to wait after the start is asked to go too, unless they have gone by themselves", async () => {
  const drain = new Drain();
  drain.start();
  const gone: string[] = [];
  drain.onDrain(() => gone.push("late"));
  drain.onDrain(() => gone.push("left before"))();
  // Not at once: a reader is not ready to leave before this call has returned.
  expect(gone).toEqual([]);
  await Promise.resolve();
  expect(gone).toEqual(["late"]);
});
