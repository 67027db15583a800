/**
 * The crash suite of ledgers, as cases that any test runner can run. Every primitive runs in a process of its own,
 * which is killed at every failpoint, or stopped beyond its lease. At the end each effect must be there once.
 *
 * The processes run `runCrashTask` of ledger-crash-work.ts over the tested ledger. `startCrashProcess` starts one.
 */

import { strict as assert } from "node:assert";
import { spawn } from "node:child_process";
import { CRASH_SAYS, type CrashTask, type CrashWork } from "./ledger-crash-work.ts";

export type { CrashTask, CrashWork } from "./ledger-crash-work.ts";
export { runCrashTask } from "./ledger-crash-work.ts";

/** How a process ended. `failed` has a code of `ERRORS`, or the message of another error. */
export type CrashEnd =
  | { readonly kind: "killed" }
  | { readonly kind: "done" }
  | { readonly kind: "failed"; readonly reason: string };

/** A process that does a task. */
export interface CrashProcess {
  /** Resolves when the process is about to stop, if its task says so. */
  readonly stopping: Promise<void>;
  readonly ended: Promise<CrashEnd>;
  /** Sends SIGCONT. */
  resume(): void;
  /** Sends SIGKILL. Resolves when the process is gone. */
  kill(): Promise<void>;
}

/**
 * Gives the cases access to a ledger. You implement it. Cases may run at once, but not over an outbox of rows: there
 * every relay takes all rows, also those of other cases.
 */
export interface CrashTarget {
  /** `supports.isExclusive` of the ledger: a process that stops inside a transaction stops all others. */
  readonly isExclusive: boolean;
  start(task: CrashTask): CrashProcess;
  /** Returns all rows and all letters, each as often as it is there. */
  read(): Promise<readonly string[]>;
}

/**
 * One case that kills or stops a process. `run` throws if an effect is missing, or there twice, or if a stopped process
 * could still write.
 */
export interface CrashCase {
  readonly title: string;
  readonly work: CrashWork;
  /** Whether the case stops a process inside a transaction. Not for ledgers that are exclusive. */
  readonly needsShared: boolean;
  readonly run: (target: CrashTarget) => Promise<void>;
}

/** Short, for a test; long enough for a process that has to wait for a processor. */
const LEASE_MS = 1000;
/** On a busy machine a process may lose its lease. Then the next process does the work. */
const PROCESSES_MAX = 4;
/** How a process may end that has lost its lease. */
const LOST = ["lease_lost", "in_progress"];

interface Stop {
  readonly at: string;
  readonly isInside: boolean;
  /** The error that the zombie gets, if not `lease_lost`: a client of HTTP may ask again. */
  readonly isTold?: string;
}

interface Story {
  readonly name: string;
  readonly work: CrashWork;
  /** Failpoints in order. A number behind the name says at which visit. */
  readonly kills: readonly string[];
  /** Where a process may stop between its claim and its record. */
  readonly stops: readonly Stop[];
  /** The effects that must be there, once each. */
  readonly effects: readonly string[];
}

const STORIES: readonly Story[] = [
  {
    name: "G25 processOnce in a transaction",
    work: "once",
    kills: ["once.claimed", "once.began", "once.worked", "once.completed", "once.committed"],
    stops: [
      { at: "once.claimed", isInside: true },
      { at: "once.worked", isInside: true },
    ],
    effects: ["row"],
  },
  {
    name: "G25 processOnce that claims first",
    work: "once claimed first",
    kills: ["once.claimed", "once.began", "once.worked", "once.completed", "once.committed"],
    stops: [
      { at: "once.claimed", isInside: false },
      { at: "once.began", isInside: true },
      { at: "once.worked", isInside: true },
    ],
    effects: ["row"],
  },
  {
    name: "G25 processOnce with a receiver that takes keys",
    work: "once repeatable",
    kills: ["once.claimed", "once.began", "once.worked", "once.committed"],
    stops: [
      { at: "once.began", isInside: false },
      { at: "once.worked", isInside: false },
    ],
    effects: ["letter"],
  },
  {
    name: "G25 processOnce with a receiver that must be asked",
    work: "once probed",
    kills: ["once.claimed", "once.began", "once.worked", "once.committed"],
    // Not before: a receiver without keys and tokens cannot refuse a zombie.
    stops: [{ at: "once.worked", isInside: false }],
    effects: ["row"],
  },
  {
    name: "G27 the inbox",
    work: "inbox",
    kills: ["inbox.began", "inbox.worked", "inbox.committed"],
    stops: [],
    effects: ["row"],
  },
  {
    name: "G29 a lease",
    work: "lease",
    kills: ["lease.acquired", "lease.wrote", "lease.checked"],
    stops: [
      { at: "lease.acquired", isInside: false },
      { at: "lease.decided", isInside: false },
      { at: "lease.wrote", isInside: true },
    ],
    effects: ["row"],
  },
  {
    name: "G26 a request with a key",
    work: "http",
    kills: ["http.claimed", "http.worked", "http.completed", "http.committed"],
    stops: [
      { at: "http.claimed", isInside: true, isTold: "in_progress" },
      { at: "http.worked", isInside: true, isTold: "in_progress" },
    ],
    effects: ["row"],
  },
  {
    name: "G26 a request with a key that is claimed first",
    work: "http claimed first",
    kills: ["http.claimed", "http.worked", "http.completed", "http.committed"],
    stops: [
      { at: "http.claimed", isInside: false, isTold: "in_progress" },
      { at: "http.worked", isInside: true, isTold: "in_progress" },
    ],
    effects: ["row"],
  },
  {
    name: "G26 a request in phases",
    work: "http in phases",
    kills: [
      "http.claimed",
      "http.phase.done",
      "http.phase.done 2",
      "http.phase.done 3",
      "http.worked",
      "http.completed",
      "http.committed",
    ],
    stops: [
      { at: "http.claimed", isInside: false, isTold: "in_progress" },
      { at: "http.phase.done", isInside: false, isTold: "in_progress" },
      { at: "http.worked", isInside: false, isTold: "in_progress" },
    ],
    effects: ["row", "letter", "second row"],
  },
  {
    name: "G28 the outbox and its relay",
    work: "outbox",
    kills: [
      "outbox.added",
      "outbox.added 2",
      "outbox.planned",
      "outbox.published",
      "outbox.settled",
    ],
    stops: [
      { at: "outbox.planned", isInside: false },
      { at: "outbox.published", isInside: false },
    ],
    effects: ["row", "letter", "second letter"],
  },
];

let cases = 0;

function freshId(work: CrashWork): string {
  cases += 1;
  return `${work} ${process.pid}-${cases}`;
}

/**
 * Starts processes, one after the other, until one has done the work. The first waits for the lease of the process
 * that is gone.
 */
async function finish(target: CrashTarget, task: CrashTask): Promise<void> {
  for (let processes = 1; ; processes += 1) {
    const end = await target.start(task).ended;
    if (end.kind === "done") return;
    const isBadLuck = end.kind === "failed" && LOST.includes(end.reason);
    assert.ok(
      isBadLuck && processes < PROCESSES_MAX,
      `the work is not done: ${JSON.stringify(end)}`,
    );
  }
}

async function expectOnce(target: CrashTarget, { effects }: Story, id: string): Promise<void> {
  const mine = (await target.read()).filter((text) => text.startsWith(`${id} `));
  assert.deepEqual(mine.toSorted(), effects.map((text) => `${id} ${text}`).toSorted());
}

function killedAt(story: Story, failpoint: string): CrashCase {
  const [at = "", occurrence = "1"] = failpoint.split(" ");
  return {
    title: `${story.name}: killed at ${failpoint}, its effect is there once`,
    work: story.work,
    needsShared: false,
    async run(target) {
      const id = freshId(story.work);
      const task = { work: story.work, id, leaseMs: LEASE_MS };
      const halt = { at, occurrence: Number(occurrence), by: "kill" } as const;
      const end = await target.start({ ...task, times: 1, halt }).ended;
      assert.deepEqual(end, { kind: "killed" }, `it does not come by ${failpoint}`);
      // Twice: the second attempt gets the result that is there, and changes nothing.
      await finish(target, { ...task, times: 2 });
      await expectOnce(target, story, id);
    },
  };
}

function stoppedAt(story: Story, { at, isInside, isTold }: Stop): CrashCase {
  return {
    title: `${story.name}: stopped at ${at} beyond its lease, it can neither write nor record`,
    work: story.work,
    needsShared: isInside,
    async run(target) {
      const id = freshId(story.work);
      const task = { work: story.work, id, leaseMs: LEASE_MS, times: 1 };
      const zombie = target.start({ ...task, halt: { at, occurrence: 1, by: "stop" } });
      try {
        await Promise.race([zombie.stopping, zombie.ended.then(refuseEnd)]);
        await finish(target, task);
        zombie.resume();
        const end = await zombie.ended;
        // Before its work it may also look again, find the work done, and return its result. The effects are counted
        // below.
        const hasLooked = at.endsWith(".claimed") && end.kind === "done";
        const reason = isTold ?? "lease_lost";
        if (!hasLooked) assert.deepEqual(end, { kind: "failed", reason });
      } finally {
        await zombie.kill();
      }
      await expectOnce(target, story, id);
    },
  };
}

function refuseEnd(end: CrashEnd): never {
  throw new Error(`it ended before it could be stopped: ${JSON.stringify(end)}`);
}

/**
 * Cases that kill a process at every failpoint of every function of the toolkit. Then another process does the work,
 * and the case checks that its effect is there once.
 *
 * ```ts
 * import { ledgerCrashes } from "hapax/testing";
 *
 * console.assert(ledgerCrashes.every(({ title }) => title.includes("killed at")));
 * ```
 */
export const ledgerCrashes: readonly CrashCase[] = STORIES.flatMap((story) =>
  story.kills.map((failpoint) => killedAt(story, failpoint)),
);

/**
 * Cases that pause a process with a lease until another process has taken over its work. When the paused
 * process goes on, it must get `lease_lost` (or, if its work had not begun, the result of the other process),
 * and write nothing.
 *
 * ```ts
 * import { ledgerZombies } from "hapax/testing";
 *
 * const onSqlite = ledgerZombies.filter(({ needsShared }) => !needsShared);
 * console.assert(onSqlite.length > 0);
 * ```
 */
export const ledgerZombies: readonly CrashCase[] = STORIES.flatMap((story) =>
  story.stops.map((stop) => stoppedAt(story, stop)),
);

/**
 * Starts `node <script> <options and task as JSON>`: the script reads `process.argv[2]`, opens its ledger by the options,
 * and calls `runCrashTask` with `task`.
 *
 * ```ts
 * import { startCrashProcess } from "hapax/testing";
 *
 * const none = startCrashProcess("no-such-script.mjs", {}, { work: "once", id: "a", leaseMs: 1000, times: 1 });
 * console.assert((await none.ended).kind === "failed");
 * ```
 */
export function startCrashProcess(
  script: string,
  options: Readonly<Record<string, unknown>>,
  task: CrashTask,
): CrashProcess {
  const child = spawn(process.execPath, [script, JSON.stringify({ ...options, task })], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  const lines: string[] = [];
  let output = "";
  let errors = "";
  let onStopping: () => void = () => undefined;
  const stopping = new Promise<void>((resolve) => {
    onStopping = resolve;
  });
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    output += text;
    const whole = output.split("\n");
    output = whole.pop() ?? "";
    lines.push(...whole);
    if (lines.includes(CRASH_SAYS.stopping)) onStopping();
  });
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    errors += text;
  });
  const ended = new Promise<CrashEnd>((resolve) => {
    child.once("close", (_code, signal) => {
      resolve(signal === "SIGKILL" ? { kind: "killed" } : endOf(lines, errors));
    });
  });
  return {
    stopping,
    ended,
    resume: () => child.kill("SIGCONT"),
    async kill() {
      child.kill("SIGKILL");
      await ended;
    },
  };
}

function endOf(lines: readonly string[], errors: string): CrashEnd {
  if (lines.includes(CRASH_SAYS.done)) return { kind: "done" };
  const failed = lines.find((line) => line.startsWith(CRASH_SAYS.failed));
  const reason = failed?.slice(CRASH_SAYS.failed.length);
  return { kind: "failed", reason: reason ?? `it said nothing: ${errors.slice(-2000)}` };
}
