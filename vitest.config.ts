import { availableParallelism } from "node:os";
import { defineConfig } from "vitest/config";

// Far above what any of them takes: a slow machine is no fault. A planted fault may hang a test, and is caught sooner.
const isPlanted = process.env["HAPAX_PLANTED"] !== undefined;
const TEST_MS = isPlanted ? 20_000 : 60_000;

/** Tests that put something of their own in the place of a module of Node, or count all timers of their process. */
const MOCKED = ["src/streams/stores/file/node-disk.test.ts", "test/once/turns.test.ts"];

export default defineConfig({
  test: {
    testTimeout: TEST_MS,
    hookTimeout: isPlanted ? 10_000 : 60_000,
    expect: { poll: { timeout: isPlanted ? 5_000 : 20_000 } },
    // A focused test would silence its neighbours on a green run.
    allowOnly: false,
    // One more than there are cores: most tests wait for something, and two cores were idle two fifths of the time.
    maxWorkers: availableParallelism() + 1,
    // A fault is caught in every run or in none: properties try the same cases each time.
    setupFiles: isPlanted ? ["test/faults/same-cases.ts"] : [],
    // `isolate`: most files share the modules of their process, which saves a third of the time of short tests. A planted fault
    // is in modules, so its test has its own. Files of "protocol" have their own `fetch`.
    projects: [
      {
        extends: true,
        test: { name: "rules", include: ["src/**/*.test.ts"], exclude: MOCKED, isolate: isPlanted },
      },
      { extends: true, test: { name: "mocked", include: MOCKED } },
      {
        extends: true,
        test: {
          name: "whole",
          isolate: isPlanted,
          include: ["test/**/*.test.ts"],
          exclude: ["test/protocol/**", "test/heavy/**", ...MOCKED],
        },
      },
      {
        extends: true,
        test: {
          name: "protocol",
          include: ["test/protocol/**/*.test.ts"],
          // The published suite imports vitest itself: inlined, it registers with this run's copy.
          server: { deps: { inline: [/@durable-streams\/server-conformance-tests/] } },
        },
      },
      {
        extends: true,
        test: {
          name: "heavy",
          include: ["test/heavy/**/*.test.ts"],
          testTimeout: 180_000,
          hookTimeout: 180_000,
          // Crash and load tests need much of a machine: after all others, two files at a time.
          maxWorkers: 2,
          sequence: { groupOrder: 1 },
        },
      },
    ],
  },
});
