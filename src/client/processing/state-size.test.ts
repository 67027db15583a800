// The state of a pipeline, and how much of it there may be. PROTOCOL.md §19
import { expect, test } from "vitest";
import { KeyedState } from "./state.ts";

const CHARS_MAX = 40;
/** With a key of one character: 20 characters. */
const HALF = "x".repeat(17);

/** The characters that a state holds, counted anew. */
function charsIn(state: KeyedState, keys: readonly string[]): number {
  return keys.reduce((chars, key) => {
    if (!state.has(key)) return chars;
    return chars + key.length + JSON.stringify(state.get(key)).length;
  }, 0);
}

test("a value that replaces another counts once", () => {
  const state = new KeyedState(CHARS_MAX);
  for (const value of [HALF, HALF, `${HALF}y`, HALF]) {
    state.set("a", value);
    state.keep();
    state.commit();
  }
  state.set("b", HALF);
  expect(() => {
    state.set("c", "");
  }).toThrow("charsMax=40");
});

test("what a transaction adds counts before it is committed", () => {
  const state = new KeyedState(CHARS_MAX);
  state.set("a", HALF);
  state.keep();
  state.set("b", HALF);
  expect(() => {
    state.set("c", "");
  }).toThrow("charsMax=40");
  // Of an attempt that failed nothing counts, and neither does what is deleted.
  state.drop();
  state.set("c", HALF);
  state.delete("a");
  state.set("d", HALF);
  state.dropAll();
  state.set("e", HALF);
  state.set("f", HALF);
});

test("in 2,000 random histories the limit is what is there, exactly", () => {
  let seed = 7;
  const random = (below: number): number => {
    seed = (seed * 48_271) % 2_147_483_647;
    return seed % below;
  };
  const keys = ["a", "bb", "ccc", "d", "e"];
  for (let history = 0; history < 2000; history += 1) {
    const state = new KeyedState(CHARS_MAX);
    for (let step = 0; step < 20; step += 1) {
      const key = keys[random(keys.length)] ?? "a";
      const value = "v".repeat(random(25));
      const before = charsIn(state, keys);
      const own = state.has(key) ? key.length + JSON.stringify(state.get(key)).length : 0;
      const fits = before - own + key.length + value.length + 2 <= CHARS_MAX;
      switch (random(8)) {
        case 0:
          state.delete(key);
          break;
        case 1:
          state.drop();
          break;
        case 2:
          state.dropAll();
          break;
        case 3:
          state.keep();
          state.commit();
          break;
        case 4:
          state.keep();
          break;
        default:
          if (fits) state.set(key, value);
          else expect(() => state.set(key, value)).toThrow("charsMax=40");
      }
    }
  }
});
