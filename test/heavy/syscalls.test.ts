// The server process is killed at the k-th system call of each kind by which the journal changes the disk, for
// k = 1, 2, 3 … of a scripted life with rolls, snapshots, recycling, compaction, a fork, a close and deletes.
// Then the directory is opened and the whole script is repeated under the same identities.
import { afterAll, beforeAll, expect, test, type TestContext } from "vitest";
import { inDirectory, type ServerProcess, startServer } from "../crash/processes.ts";
import { choose, type RecordedScript, recordScript } from "../crash/recorded-script.ts";
import { reopenAndRetry, runScript, SCRIPT, SCRIPT_JOURNAL } from "../crash/script.ts";
import { type Call, CALLS, inject, type Occurrence, straceMissing } from "../crash/strace.ts";

/** `npm run test:crash` tries every call, `npm test` an even choice of so many. */
const isLong = process.env["HAPAX_CRASH_CYCLES"] !== undefined;
const CHOICE = 60;

const missing = straceMissing();
let script: RecordedScript = { calls: [], files: [] };
/** Runs, those that the fault ended, and the calls there are. */
const tried = { runs: 0, kills: 0, calls: 0 };

function requireStrace(context: TestContext): void {
  if (missing === undefined) return;
  if (process.env["CI"] === "true") throw new Error(missing);
  context.skip(missing);
}

beforeAll(async () => {
  if (missing === undefined) script = await recordScript();
});

afterAll(() => {
  if (missing !== undefined) return;
  const { runs, kills, calls } = tried;
  console.log(`tried ${runs} of ${calls} system calls, ${kills} runs were killed there`);
});

/** One server with its fault, as far as it comes; resolves with the steps that it answered. */
async function untilKilled(dir: string, call: Call, when: number): Promise<number> {
  const fault = inject(call, `signal=SIGKILL:when=${when}`);
  let server: ServerProcess;
  try {
    server = await startServer({ dir, journal: SCRIPT_JOURNAL, ...fault });
  } catch {
    tried.kills += 1;
    return 0; // Killed while it started.
  }
  const { acked, refusal } = await runScript(server.url, () => server.maintain());
  if (refusal !== undefined) throw new Error(`step ${acked} was refused: ${refusal.text}`);
  if (acked < SCRIPT.length) tried.kills += 1;
  // The script may end before the background work makes the call.
  await server.kill();
  return acked;
}

async function killAt(calls: readonly Occurrence[]): Promise<readonly string[]> {
  const problems: string[] = [];
  const left = [...calls];
  // Two at a time: each spends half of its life starting a process.
  const lane = async (): Promise<void> => {
    for (let next = left.shift(); next !== undefined; next = left.shift()) {
      const { call, when } = next;
      await inDirectory(async (dir) => {
        const acked = await untilKilled(dir, call, when);
        for (const problem of await reopenAndRetry(dir, acked)) {
          problems.push(`${call} number ${when}: ${problem}`);
        }
        tried.runs += 1;
      });
    }
  };
  await Promise.all([lane(), lane()]);
  return problems;
}

test("the script makes every kind of call that the journal makes", (context) => {
  requireStrace(context);
  const kinds = new Set(script.calls.map(({ call }) => call));
  expect([...kinds].sort()).toEqual([...CALLS, "openat"].sort());
});

test("the script rolls, recycles and compacts", (context) => {
  requireStrace(context);
  const renames = script.calls.filter(({ call }) => call === "rename").map(({ line }) => line);
  expect(renames.filter((line) => /"[^"]*snapshot-\d+\.tmp", /.test(line)).length).toBeGreaterThan(
    2,
  );
  expect(renames.filter((line) => /", "[^"]*journal-\d+\.seg"/.test(line)).length).toBeGreaterThan(
    3,
  );
  expect(renames.some((line) => /"[^"]*journal-\d+\.seg", "[^"]*spare-/.test(line))).toBe(true);
  // The first records of streams that live on were there: only compaction can have taken them out.
  expect(script.files).not.toContain("journal-000000000001.seg");
});

for (const call of [...CALLS, "openat"] as const) {
  test(
    `a kill at any ${call} leaves every step exactly once`,
    { timeout: 900_000 },
    async (context) => {
      requireStrace(context);
      const all = script.calls.filter((one) => one.call === call);
      tried.calls += all.length;
      const killsBefore = tried.kills;
      // The share of a kind is its share of all calls.
      const count = isLong ? all.length : (all.length / script.calls.length) * CHOICE;
      expect(await killAt(choose(all, count))).toEqual([]);
      expect(tried.kills).toBeGreaterThan(killsBefore);
    },
  );
}
