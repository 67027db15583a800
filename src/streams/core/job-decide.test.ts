/** All small histories of a group of jobs, and long random ones; the rules are checked after each step. */

import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { assert } from "../../base/assert.ts";
import { RUN } from "../../testing/commands.ts";
import { decideGroup, decideGroupReset, decideJoin, decideLeave } from "./group-decide.ts";
import { imageOfGroups, restoreGroups } from "./group-image.ts";
import { createGroupBook } from "./group.ts";
import type { GroupChange, GroupState } from "./group-state.ts";
import {
  decideSettle,
  decideJobs,
  findJob,
  findUnseen,
  lookAtOpen,
  type OpenJobs,
  type JobClaim,
  type JobRecord,
  planTake,
} from "./job-decide.ts";
import type { Offset, StreamId, StreamName, TimeMs } from "./types.ts";
import { applyChange, createWorld } from "./world.ts";

const STREAM = "/jobs" as StreamName;
const LEASE_MS = 100;
const SETTINGS = {
  pattern: undefined,
  streams: [STREAM],
  start: { kind: "beginning" },
  leaseMs: LEASE_MS,
  jobs: true,
} as const;
/** Bytes of each record. */
const SIZE = 10;
const ROOM = { openMax: 3, allMax: 1000 };

/** What may be done, by small numbers: which worker, which of the jobs it was ever given. */
type Step =
  | { readonly kind: "take"; readonly worker: number; readonly max: number }
  | { readonly kind: "done" | "later" | "give_back"; readonly worker: number; readonly job: number }
  | { readonly kind: "leave"; readonly worker: number }
  | { readonly kind: "trim"; readonly records: number }
  | { readonly kind: "pass" | "restore" | "reset" };

class JobHistory {
  world = createWorld();
  atMs = 1_000_000 as TimeMs;
  readonly workers: string[] = [];
  /** Every job that a worker was ever told of. */
  readonly told: (JobClaim & { readonly worker: string; readonly attempt: number })[] = [];
  readonly done = new Set<Offset>();
  readonly dueMs = new Map<Offset, number>();
  readonly counts = new Map<Offset, number>();

  constructor(records: number) {
    applyChange(this.world, {
      kind: "created",
      atMs: this.atMs,
      stream: 1 as StreamId,
      run: RUN,
      name: STREAM,
      contentType: "application/json",
      expiry: { kind: "never" },
      fork: undefined,
      keys: undefined,
    });
    const bare = { producer: undefined, streamSeq: undefined, key: undefined, closes: false };
    const data = new Uint8Array(records * SIZE);
    const { atMs } = this;
    applyChange(this.world, { kind: "appended", atMs, stream: 1 as StreamId, data, ...bare });
    const decision = decideGroup(this.world, "g", SETTINGS, this.atMs, () => true);
    if (decision.kind === "created") applyChange(this.world, decision.change);
    this.join();
    this.join();
  }

  get group(): GroupState {
    const group = this.world.groups.byId.get("g");
    if (group === undefined) throw new Error("there is no group");
    return group;
  }

  join(): void {
    const nonce = String(this.workers.length);
    const change = decideJoin(this.world.groups, this.group, "w", nonce, this.atMs);
    this.workers.push(change.member);
    this.apply(change);
  }

  step(step: Step): void {
    const worker = "worker" in step ? (this.workers[step.worker] ?? "") : "";
    switch (step.kind) {
      case "take":
        this.take(worker, step.max);
        break;
      case "done":
      case "later":
      case "give_back":
        this.settle(step.kind, worker, step.job);
        break;
      case "leave":
        for (const change of decideLeave(this.group, worker, this.atMs)) this.apply(change);
        break;
      case "pass":
        this.atMs = (this.atMs + LEASE_MS) as TimeMs;
        break;
      case "restore":
        this.restore();
        break;
      case "reset":
        this.reset();
        break;
      case "trim":
        this.trim(step.records);
        break;
      default:
        step satisfies never;
    }
    this.check();
  }

  take(worker: string, max: number): void {
    const { groups, streams } = this.world;
    const { tail, id } = streams.get(STREAM) ?? { tail: 0 as Offset, id: 0 as StreamId };
    const open = lookAtOpen(this.group);
    const planBy = (look: OpenJobs) =>
      planTake(groups, this.group, look, worker, max, ROOM, () => ({ id, tail }), this.atMs);
    const plan = planBy(open);
    // What the look leaves out is nothing that this worker could get.
    expect(planBy({ ...open, dueMs: 0 as TimeMs })).toEqual(plan);
    const fresh: JobRecord[] = [];
    for (const { stream, from } of plan.fresh) {
      for (let at = from; at < tail && fresh.length < plan.freshMax; at = (at + SIZE) as Offset) {
        fresh.push({ stream, id, offset: at, end: (at + SIZE) as Offset });
      }
    }
    const records = [...plan.due, ...fresh];
    const decision = decideJobs(groups, this.group, worker, records, streams, this.atMs);
    const isMember = this.group.members.has(worker);
    assert((decision.kind === "member_lost") === !isMember, "only a member takes");
    if (decision.kind !== "taken") return;
    const before = new Map(this.window()?.open);
    const dropped = new Set(decision.change.dropped);
    for (const [stream, offset, , attempt] of decision.change.jobs) {
      const job = before.get(offset);
      const isFree =
        job?.holder === undefined || dropped.has(job.holder) || !this.group.members.has(job.holder);
      assert(isFree, "a job has one worker");
      assert((this.dueMs.get(offset) ?? 0) <= this.atMs, "a job is not given before its time");
      assert(!this.done.has(offset), "a job that is done is given again");
      const count = (this.counts.get(offset) ?? 0) + 1;
      assert(attempt === count, `every time counts: ${attempt} and not ${count}`);
      this.counts.set(offset, count);
      this.told.push({ worker, stream, offset, token: decision.change.token, attempt });
    }
    this.apply(decision.change);
    assert(this.group.jobCount <= ROOM.openMax, "too many jobs are open");
    const own = findUnseen(
      this.group,
      lookAtOpen(this.group),
      worker,
      decision.change.token - 1,
      () => id,
    );
    const given = decision.change.jobs.map(([, offset]) => offset).toSorted(ascending);
    const seen = own?.records.map(({ offset }) => offset).toSorted(ascending);
    assert(JSON.stringify(seen) === JSON.stringify(given), "what was given is found again");
  }

  settle(kind: "done" | "later" | "give_back", worker: string, index: number): void {
    const claim = this.told[index];
    if (claim === undefined) return;
    const { offset } = claim;
    const job = this.window()?.open.get(offset);
    const isOwn =
      this.group.members.has(worker) && job?.holder === worker && job.token === claim.token;
    assert((findJob(this.group, worker, claim) !== undefined) === isOwn, "only its worker has it");
    const later = { ...claim, delayMs: 150, isCounted: kind === "later" };
    const [done, waiting] = kind === "done" ? [[claim], []] : [[], [later]];
    const decision = decideSettle(this.group, worker, done, waiting, this.atMs);
    if (decision.kind !== "settled") return;
    const { change, lost } = decision;
    assert(change.done.length + change.later.length === (isOwn ? 1 : 0), "only its worker");
    const isRepeated = kind === "done" && this.done.has(offset);
    assert(
      lost.length === (isOwn || isRepeated ? 0 : 1),
      "what is neither done nor put back is lost",
    );
    if (isOwn && kind === "done") this.done.add(offset);
    if (isOwn && kind !== "done") this.dueMs.set(offset, this.atMs + 150);
    if (isOwn && kind === "give_back") this.counts.set(offset, claim.attempt - 1);
    this.apply(change);
  }

  reset(): void {
    const { streams } = this.world;
    const to = { kind: "beginning" } as const;
    const decision = decideGroupReset(this.group, undefined, to, this.world, this.atMs, () => true);
    if (decision.kind !== "reset") return;
    this.apply(decision.change);
    for (const facts of [this.done, this.dueMs, this.counts]) facts.clear();
    const earliest = streams.get(STREAM)?.retained?.earliest ?? 0;
    for (let at = 0; at < earliest; at += SIZE) this.done.add(at as Offset);
  }

  /** Of the records before it nothing is left to do. */
  trim(records: number): void {
    const to = (records * SIZE) as Offset;
    applyChange(this.world, { kind: "trimmed", atMs: this.atMs, stream: 1 as StreamId, to });
    for (let at = 0; at < to; at += SIZE) this.done.add(at as Offset);
    const isLeft = this.told.some((claim) => {
      return claim.offset < to && findJob(this.group, claim.worker, claim) !== undefined;
    });
    assert(!isLeft, "a worker has a job that is gone");
    const { offset, jobs } = this.group.cursors.get(STREAM) ?? {};
    assert(offset !== undefined && offset >= to, "the group stays where there is nothing to read");
    assert(jobs === undefined || jobs.next >= to, "what is gone would be given");
  }

  /** The whole state goes through a snapshot. */
  restore(): void {
    const image = JSON.parse(JSON.stringify(imageOfGroups(this.world.groups))) as ReturnType<
      typeof imageOfGroups
    >;
    const again = createGroupBook();
    restoreGroups(again, image);
    assert(again.jobCount === this.world.groups.jobCount, "the count of jobs is restored");
    expect(imageOfGroups(again)).toEqual(imageOfGroups(this.world.groups));
    this.world = Object.assign(createWorld(), { ...this.world, groups: again });
  }

  /** Applies it as a journal would give it back. */
  apply(change: GroupChange): void {
    applyChange(this.world, JSON.parse(JSON.stringify(change)) as GroupChange);
  }

  check(): void {
    const { jobCount, cursors } = this.group;
    const cursor = cursors.get(STREAM);
    const window = this.window();
    assert(jobCount === (window?.open.size ?? 0), "the count of jobs");
    if (cursor === undefined || window === undefined) return;
    const offsets = [...window.open.keys()];
    assert(
      offsets.every((one, at) => at === 0 || one > (offsets[at - 1] ?? 0)),
      "in their order",
    );
    assert(
      cursor.offset === (offsets[0] ?? window.next),
      "the offset is that of the first open job",
    );
    for (let at = 0; at < window.next; at += SIZE) {
      const offset = at as Offset;
      assert(window.open.has(offset) !== this.done.has(offset), "a record is open or done");
    }
  }

  window() {
    return this.group.cursors.get(STREAM)?.jobs;
  }
}

const ascending = (one: number, other: number): number => one - other;

const STEPS: readonly Step[] = [
  { kind: "take", worker: 0, max: 1 },
  { kind: "take", worker: 1, max: 2 },
  { kind: "done", worker: 0, job: 0 },
  { kind: "done", worker: 1, job: 1 },
  { kind: "done", worker: 1, job: 0 },
  { kind: "later", worker: 0, job: 0 },
  { kind: "give_back", worker: 1, job: 1 },
  { kind: "leave", worker: 0 },
  { kind: "pass" },
  { kind: "restore" },
];

describe("jobs", () => {
  test("the rules hold after each step of every history of five", () => {
    let histories = 0;
    const run = (steps: readonly Step[]): void => {
      const history = new JobHistory(2);
      for (const step of steps) history.step(step);
      histories += 1;
    };
    const walk = (steps: readonly Step[]): void => {
      if (steps.length === 5) run(steps);
      else for (const step of STEPS) walk([...steps, step]);
    };
    // A history without a job shows nothing.
    for (const first of STEPS.slice(0, 2)) walk([first]);
    expect(histories).toBe(2 * STEPS.length ** 4);
  }, 60_000);

  test("G120 jobs of what was trimmed are gone, given or not, and others stay", () => {
    const history = new JobHistory(6);
    history.step({ kind: "take", worker: 0, max: 2 });
    history.step({ kind: "take", worker: 1, max: 1 });
    history.step({ kind: "later", worker: 0, job: 0 });
    history.step({ kind: "trim", records: 2 });
    expect([...(history.window()?.open.keys() ?? [])]).toEqual([2 * SIZE]);
    expect(history.world.groups.jobCount).toBe(1);
    history.step({ kind: "restore" });
    history.step({ kind: "trim", records: 5 });
    expect(history.group).toMatchObject({ jobCount: 0 });
    // The next take gives the first record that is left.
    history.step({ kind: "take", worker: 0, max: 9 });
    expect([...(history.window()?.open.keys() ?? [])]).toEqual([5 * SIZE]);
  });

  test("the rules hold in long histories, and each job is done at last", () => {
    const worker = fc.nat(4);
    const kinds = fc.constantFrom("done" as const, "later" as const, "give_back" as const);
    const step: fc.Arbitrary<Step> = fc.oneof(
      {
        weight: 4,
        arbitrary: fc.record({
          kind: fc.constant("take" as const),
          worker,
          max: fc.integer({ min: 1, max: 4 }),
        }),
      },
      { weight: 4, arbitrary: fc.record({ kind: kinds, worker, job: fc.nat(30) }) },
      { weight: 1, arbitrary: fc.record({ kind: fc.constant("leave" as const), worker }) },
      { weight: 2, arbitrary: fc.constantFrom<Step>({ kind: "pass" }, { kind: "restore" }) },
      { weight: 1, arbitrary: fc.constant<Step>({ kind: "reset" }) },
      {
        weight: 1,
        arbitrary: fc.record({ kind: fc.constant("trim" as const), records: fc.nat(8) }),
      },
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const history = new JobHistory(8);
        for (let more = 0; more < 3; more += 1) history.join();
        for (const one of steps) history.step(one);
        // At last a worker that stays does what is left.
        history.join();
        const last = history.workers.length - 1;
        for (let round = 0; round < 12; round += 1) {
          history.step({ kind: "pass" });
          history.step({ kind: "pass" });
          const before = history.told.length;
          history.step({ kind: "take", worker: last, max: 8 });
          for (let job = before; job < history.told.length; job += 1) {
            history.step({ kind: "done", worker: last, job });
          }
        }
        expect(history.done.size).toBe(8);
        expect(history.group.cursors.get(STREAM)?.offset).toBe(8 * SIZE);
      }),
      { numRuns: 300 },
    );
  }, 60_000);
});
