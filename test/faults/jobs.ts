/** Faults of jobs: what would give a job to two workers, lose one, or end it apart from its effects. */

import type { Fault } from "./faults.ts";

const DECIDE = "src/streams/core/job-decide.ts";
const HISTORIES = {
  file: "src/streams/core/job-decide.test.ts",
  test: "jobs > the rules hold after each step of every history of five",
};
const wire = (test: string) => ({
  file: "src/streams/server/jobs.test.ts",
  test: `jobs over HTTP > ${test}`,
});

export const jobFaults: readonly Fault[] = [
  {
    name: "jobs: each worker that waits looks at all open jobs",
    guarantee: "G34",
    file: "src/streams/engine/jobs.ts",
    find: "if (known?.version === version) return known;",
    replace: "",
    caughtBy: {
      file: "src/streams/engine/jobs.test.ts",
      test: "G34 hundreds of workers that wait look at the open jobs of their group once",
    },
  },
  {
    name: "jobs: a job that another worker has is given",
    guarantee: "G120",
    file: DECIDE,
    find: "  if (job.holder === undefined) return false;\n  const member",
    replace: "  if (job.holder !== except) return false;\n  const member",
    caughtBy: HISTORIES,
  },
  {
    name: "jobs: an attempt of a worker that has lost the job counts as its end",
    guarantee: "G121",
    file: DECIDE,
    find: "job?.holder === id && job.token === claim.token && group",
    replace: "job !== undefined && job.token >= claim.token && group",
    caughtBy: HISTORIES,
  },
  {
    name: "jobs: an attempt is not counted",
    guarantee: "G120",
    file: DECIDE,
    find: "jobs.push([stream, offset, job.end, job.attempts + 1]);",
    replace: "jobs.push([stream, offset, job.end, Math.max(1, job.attempts)]);",
    caughtBy: HISTORIES,
  },
  {
    name: "jobs: a job comes before its time",
    guarantee: "G122",
    file: DECIDE,
    find: "    const dueAtMs = (atMs + claim.delayMs) as TimeMs;",
    replace: "    const dueAtMs = (atMs + claim.delayMs / 2) as TimeMs;",
    caughtBy: HISTORIES,
  },
  {
    name: "jobs: a snapshot forgets that jobs are open",
    guarantee: "G120",
    file: "src/streams/core/group-image.ts",
    find: "      group.jobCount += window?.open.length ?? 0;",
    replace: "",
    caughtBy: HISTORIES,
  },
  {
    name: "jobs: a job that was trimmed stays open",
    guarantee: "G120",
    file: "src/streams/core/group.ts",
    find: "    if (offset >= earliest) break;\n",
    replace: "    if (offset >= earliest || offset >= 0) break;\n",
    caughtBy: {
      file: "src/streams/core/job-decide.test.ts",
      test: "jobs > G120 jobs of what was trimmed are gone, given or not, and others stay",
    },
  },
  {
    name: "jobs: an answer that was received is given again",
    guarantee: "G120",
    file: DECIDE,
    find: "job.token <= seen ||",
    replace: "job.token < seen ||",
    caughtBy: wire("a lost answer is given again, one at a time, and counts once"),
  },
  {
    name: "jobs: a transaction is stored although its job is another worker's",
    guarantee: "G121",
    file: "src/streams/core/transaction.ts",
    find: "    if (decision.change.done.length === 0) return",
    replace: "    if (decision.change.done.length > 1) return",
    caughtBy: wire(
      "G121 a transaction ends a job with its effects, and never that of another worker",
    ),
  },
  {
    name: "jobs: a worker that has gone is given jobs",
    guarantee: "G120",
    file: "src/streams/server/jobs.ts",
    find: "    isGone = true;",
    replace: "    isGone = false;",
    caughtBy: wire("a worker that has gone gets nothing, and stalls no other"),
  },
];
