/** Faults of the steady clock that is made of one that jumps. */

import type { Fault } from "./faults.ts";

const STEADY = "src/base/steady-time.ts";
const TEST = "src/base/steady-time.test.ts";

export const clockFaults: readonly Fault[] = [
  {
    name: "clock: a wall clock that is set back takes time back",
    guarantee: "G16",
    file: STEADY,
    find: "    if (stepMs > 0) this.#passedMs += stepMs;",
    replace: "    this.#passedMs += stepMs;",
    caughtBy: {
      file: TEST,
      test: "steady time > a clock that is set back by an hour takes nothing back, and the time after it counts",
    },
  },
  {
    name: "clock: a wall clock that is set ahead counts whole",
    guarantee: "G16",
    file: STEADY,
    find: "    if (stepMs > STEP_MS) {",
    replace: "    if (stepMs > STEP_MS && this.#pending.size < 0) {",
    caughtBy: {
      file: TEST,
      test: "steady time > a clock that is set an hour ahead counts no further than the first timer, or a second",
    },
  },
  {
    name: "clock: a timer that vanished stops the clock",
    guarantee: "G16",
    file: STEADY,
    find: "      if (timer.dueMs < this.#passedMs - STEP_MS) this.#pending.delete(timer);\n      else ",
    replace: "      ",
    caughtBy: {
      file: TEST,
      test: "steady time > timers that vanished with their object hold up one step, and then nothing",
    },
  },
  {
    name: "clock: the wall clock counts as steady on Workers",
    guarantee: "G16",
    file: "src/base/clock.ts",
    find: "  return readMs < WALL_MS_MIN ? readMs : steadyTime.read(readMs);",
    replace: "  return readMs;",
    caughtBy: {
      file: "test/once/jumping-clock.test.ts",
      test: "a wall clock that jumps by -3600000 ms > moves neither of the two clocks by more than a second while a timer runs",
    },
  },
];
