// The server is killed with SIGKILL every second under writers in sessions, with keys, and with expected tails.
// Some of them come back as new processes do, with a new session. GUARANTEES.md; PROTOCOL.md §14 to §18
import { expect, test } from "vitest";
import { identityRun, type IdentityReport, type IdentityOptions } from "../crash/identity-run.ts";
import { inDirectory } from "../crash/processes.ts";

const SEED = Number(process.env["HAPAX_SEED"] ?? Date.now() % 1_000_000_007);
/** 6 in `npm test`, 60 in `npm run test:crash`. */
const CYCLES = process.env["HAPAX_LONG"] === undefined ? 6 : 60;
const LIMIT = { timeout: 120_000 + CYCLES * 4000 };

function run(options: Omit<IdentityOptions, "dir" | "seed">): Promise<IdentityReport> {
  return inDirectory(async (dir) => {
    const { problems, ...figures } = await identityRun({ dir, seed: SEED, ...options });
    console.log(`${expect.getState().currentTestName}: ${JSON.stringify(figures)}`);
    return { ...figures, problems: problems.slice(0, 10) };
  });
}

test(
  "a kill every second loses, doubles and reorders no append of any identity",
  LIMIT,
  async () => {
    const report = await run({ cycles: CYCLES });
    expect(report.problems, `HAPAX_SEED=${SEED}`).toEqual([]);
    expect(report.kills).toBe(CYCLES);
    expect(report.stored).toBe(report.acked);
    expect(report.restarts).toBeGreaterThan(0);
    expect(report.conflicts).toBeGreaterThan(0);
  },
);

for (const fault of ["forgets-producers", "forgets-keys"] as const) {
  test(`the count of identities sees a server that ${fault.replace("-", " ")}`, LIMIT, async () => {
    const journal = { segmentBytes: 1024 * 1024, fault };
    const seen = await run({ cycles: 10, lifeMs: 300, journal }).then(
      ({ problems }) => problems,
      (error: unknown) => {
        // A later start may see it first: it refuses a journal that has one key twice.
        if (!String(error).includes("KW1 a key is added that is in the window")) throw error;
        return [String(error)];
      },
    );
    expect(seen, `HAPAX_SEED=${SEED}`).not.toEqual([]);
  });
}
