import { expect, test } from "vitest";
import { KeyedState } from "./state.ts";

test.each([
  [new Map([["a", 1]]), "is a Map"],
  [{ total: Number.NaN }, ".total is NaN"],
  [{ names: ["\ud83d"] }, ".names[0] has half of a surrogate pair"],
  [undefined, "is undefined"],
])("state that would not come back as it was is refused: %o", (value, words) => {
  const state = new KeyedState();
  expect(() => {
    state.set("sum", value);
  }).toThrow(words);
  expect(state.has("sum")).toBe(false);
  state.set("sum", { total: 1, none: undefined });
  expect(state.get("sum")).toEqual({ total: 1 });
});
