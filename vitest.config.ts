import { availableParallelism } from "node:os";
import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    // A focused test would silence its neighbours on a green run.
    allowOnly: false,
    // vitest leaves a core to itself, and on a machine of two would run one file at a time; most tests wait for something.
    maxWorkers: Math.max(2, availableParallelism()),
    // A fault is caught in every run or in none: properties try the same cases each time.
    setupFiles: process.env["HAPAX_PLANTED"] === undefined ? [] : ["test/faults/same-cases.ts"],
    projects: [
      // Properties take seconds, and several times that on a machine that does other things as well.
      {
        extends: true,
        test: { name: "rules", include: ["src/**/*.test.ts"], testTimeout: 30_000 },
      },
      {
        extends: true,
        test: {
          name: "whole",
          include: ["test/**/*.test.ts"],
          exclude: ["test/protocol/**", "test/heavy/**"],
          testTimeout: 20_000,
        },
      },
      {
        extends: true,
        test: {
          name: "protocol",
          include: ["test/protocol/**/*.test.ts"],
          testTimeout: 60_000,
          hookTimeout: 60_000,
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
          // Crash and load tests measure a whole machine: after all others, one file at a time.
          fileParallelism: false,
          sequence: { groupOrder: 1 },
        },
      },
    ],
  },
});
