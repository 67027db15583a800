/** Faults in the memory of idempotency keys. */
const KEY_WINDOW = "src/streams/core/key-window.test.ts";
export const keyFaults = [
  {
    name: "a key that left the window leaves a gap before others",
    guarantee: "G15",
    file: "src/streams/core/key-window-index.ts",
    find: "if (distance < ((slot - gap) & mask)) continue;",
    replace: "if (distance >= 0) continue;",
    caughtBy: {
      file: KEY_WINDOW,
      test: "KW5 keys that begin at the same slot are found after those before them are evicted",
    },
  },
  {
    name: "the place of a key is taken for its ordinal",
    guarantee: "G15",
    file: "src/streams/core/key-window-entries.ts",
    find: "return this.#first + ((place - this.#first) & PLACE_MASK);",
    replace: "return place;",
    caughtBy: {
      file: KEY_WINDOW,
      test: "KW1 a key is found under its own ordinal when ordinals pass 2^31, 2^32 and 2^40",
    },
  },
];
