// G53 SA1 to SA6: sagas in processes that are killed, or stand still, at every cell of the failure matrix, over both databases.
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { FAILPOINTS } from "../../src/testing/failpoints.ts";
import { createSagas } from "../../src/toolkit/saga.ts";
import {
  type Cell,
  expectEither,
  expectWhole,
  MATRIX,
  SHORT_LEASE_MS,
  type Stage,
  STAGES,
  type Task,
  type Worker,
} from "../saga/crash-kit.ts";

const isLong = process.env["HAPAX_LONG"] === "1";
const ROUNDS = isLong ? 10 : 1;
// Ten rounds of all cells take minutes, and more on a busy machine.
if (isLong) vi.setConfig({ testTimeout: 1_200_000 });

/** One for each kind of step and direction: what is stopped in a short run. */
const STOPPED =
  /^(tx forward, after its writes|call undo, after its intent|probe (forward|undo), its answer lost)/;

test("every failpoint of sagas is one at which a process is killed", () => {
  const points = Object.values(MATRIX).map(({ at }) => at);
  const own = FAILPOINTS.filter((name) => name.startsWith("saga."));
  expect(own.length).toBeGreaterThan(5);
  // A takeover that is killed, and a question: each has its own test below.
  const others = ["saga.claimed", "saga.asked", "saga.undo.asked"];
  for (const name of own) expect([...points, ...others]).toContain(name);
});

/** A short run has some tests over one database: they are the same over the other one. */
const here =
  (database: string, only: string) =>
  (title: string, run: () => Promise<void>): void => {
    const isElsewhere = !isLong && STAGES.length > 1 && database !== only;
    test(title, async (context) => {
      context.skip(isElsewhere, `a short run has it over ${only} alone; HAPAX_LONG=1 runs it here`);
      await run();
    });
  };

let cases = 0;

function cellsOf(prefix: string, isFitting: (title: string) => boolean): readonly Cell[] {
  return Object.entries(MATRIX)
    .filter(([title]) => isFitting(title))
    .map(([title, { at, occurrence = 1, fails }]) => {
      cases += 1;
      return { id: `${prefix} ${cases}: ${title}`, at, occurrence, fails };
    });
}

const isInside = ({ id }: Cell): boolean =>
  MATRIX[id.slice(id.indexOf(": ") + 2)]?.isInside === true;

for (const { name, open } of STAGES) {
  describe(name, () => {
    let stage: Stage;
    const workers: Worker[] = [];
    const start = (task: Task): Worker => {
      const worker = stage.start(task);
      workers.push(worker);
      return worker;
    };
    beforeAll(async () => {
      stage = await open();
    });
    afterAll(async () => {
      for (const worker of workers) await worker.kill();
      await stage.close();
    });

    /** Runs sagas until each stands still at its own moment, and kills their process. */
    async function killAt(cells: readonly Cell[]): Promise<void> {
      const worker = start({ kind: "start", cells });
      await worker.reached(cells.length);
      await worker.kill();
    }

    /** Over SQLite those that stand still in a transaction need a process each. */
    async function killAll(cells: readonly Cell[]): Promise<void> {
      const isAlone = (cell: Cell): boolean => stage.isExclusive && isInside(cell);
      await killAt(cells.filter((cell) => !isAlone(cell)));
      for (const cell of cells.filter(isAlone)) await killAt([cell]);
    }

    async function finish(leaseMs?: number): Promise<void> {
      if (leaseMs === undefined) await stage.lapse();
      const worker = start({ kind: "run", ...(leaseMs === undefined ? {} : { leaseMs }) });
      await worker.ended;
      expect(worker.output()).toContain("ended");
    }

    test("SA2 SA4 SA5 killed at every cell of the matrix: each effect once, undone whole, in reverse and once", async () => {
      for (let round = 0; round < ROUNDS; round += 1) {
        // Over SQLite each of those in a transaction is a process: a short run has the moment before each commit.
        const isChosen = (title: string): boolean =>
          isLong || !stage.isExclusive || MATRIX[title]?.isInside !== true || /commit/.test(title);
        const cells = cellsOf(`killed ${round}`, isChosen);
        await killAll(cells);
        await finish();
        for (const cell of cells) await expectWhole(stage, cell);
        const all = Object.keys(MATRIX).length;
        console.log(`${name}: killed at ${cells.length} of ${all} cells, round ${round + 1}`);
      }
    });

    here(name, "PostgreSQL")(
      "SA2 SA6 SA10 killed at every moment of a saga with a group, a pivot, a sleep and a signal: the same",
      async () => {
        const cells: Cell[] = [];
        for (const fails of [false, true]) {
          const first = { id: `trip ${fails}`, saga: "trip", fails } as const;
          const counting = start({ kind: "count", cells: [first] });
          await counting.ended;
          // Cast: the worker says so.
          const passed = JSON.parse(/passed (.*)/.exec(counting.output())?.[1] ?? "[]") as string[];
          expect(passed.length, counting.output()).toBeGreaterThan(15);
          // A short run has every third moment.
          for (let nth = 1; nth <= passed.length; nth += isLong ? 1 : 3)
            cells.push({ id: `trip ${fails} ${nth}`, saga: "trip", fails, nth });
        }
        // The branches of a group reach their moments in any order: over SQLite each may be in a transaction.
        if (stage.isExclusive) for (const cell of cells) await killAt([cell]);
        else await killAt(cells);
        await finish();
        for (const cell of cells) await expectWhole(stage, cell);
        console.log(`${name}: killed at ${cells.length} moments of a trip`);
      },
    );

    here(name, "SQLite")(
      "SA2 SA5 killed again, by each next process as soon as it has taken over or asked: the same",
      async () => {
        for (let round = 0; round < ROUNDS; round += 1) {
          const cells = cellsOf(`again ${round}`, (title) => title.includes("answer lost"));
          await killAll(cells);
          for (const halts of [["saga.claimed"], ["saga.asked", "saga.undo.asked"]]) {
            await stage.lapse();
            const takeover = start({ kind: "run", halts });
            // Two of the sagas have a question, forward and back.
            await takeover.reached(2);
            await takeover.kill();
          }
          await finish();
          for (const cell of cells) await expectWhole(stage, cell);
        }
      },
    );

    here(name, "PostgreSQL")(
      "SA1 stopped beyond its lease and woken by SIGCONT, it sends nothing and records nothing",
      async () => {
        const cells = cellsOf("stopped", (title) => {
          // It has its entry, or over SQLite the database, locked: no other process can go on meanwhile.
          const isBlocking =
            MATRIX[title]?.isInside === true && (stage.isExclusive || /commit/.test(title));
          return !isBlocking && (isLong || STOPPED.test(title));
        });
        expect(cells.length).toBeGreaterThan(2);
        const zombies: Worker[] = [];
        for (const cell of cells) {
          const zombie = start({
            kind: "start",
            cells: [cell],
            by: "stop",
            leaseMs: SHORT_LEASE_MS,
          });
          zombies.push(zombie);
          // Two at a time: one that waits for a processor would lose its lease before it is there.
          if (zombies.length % 2 === 0) await zombie.reached(1);
        }
        await Promise.all(zombies.map((zombie) => zombie.reached(1)));
        await finish(SHORT_LEASE_MS);
        for (const cell of cells) await expectWhole(stage, cell);
        const sagas = createSagas(stage.ledger, []);
        const before = await sagas.list({ max: 10_000 });
        for (const zombie of zombies) zombie.child.kill("SIGCONT");
        await Promise.all(zombies.map((zombie) => zombie.ended));
        for (const zombie of zombies) expect(zombie.output()).toMatch(/ended (completed|undone)/);
        for (const cell of cells) await expectWhole(stage, cell);
        const strip = (view: (typeof before)[number]) => ({ ...view, ageMs: 0 });
        expect((await sagas.list({ max: 10_000 })).map(strip)).toEqual(before.map(strip));
        console.log(`${name}: stopped and woken at ${cells.length} cells`);
      },
    );

    test("SA1 runners that fight, of which some are killed, and operators who abort: each saga is whole", async () => {
      for (let round = 0; round < Math.min(ROUNDS, 5); round += 1) {
        const cells = Array.from({ length: isLong ? 60 : 24 }, (_, at) => ({
          id: `fight ${round} ${at}`,
          fails: at % 3 === 0,
        }));
        await start({ kind: "seed", cells }).ended;
        const task: Task = { kind: "run", leaseMs: SHORT_LEASE_MS };
        const runners = [start(task), start(task)];
        const sagas = createSagas(stage.ledger, []);
        const aborted = new Set<string>();
        for (const { id } of cells.filter((_, at) => at % 5 === 0)) {
          const ref = { saga: "checkout", scope: "crash", key: id };
          try {
            await sagas.abort(ref, { by: "operator" });
            aborted.add(id);
          } catch (error) {
            // It had ended.
            expect(error).toMatchObject({ code: "act_refused" });
          }
        }
        await runners[0]?.kill();
        await finish(SHORT_LEASE_MS);
        await Promise.all(runners.map((runner) => runner.ended));
        for (const cell of cells) {
          const ending = await expectEither(stage, cell);
          const view = await sagas.find({ saga: "checkout", scope: "crash", key: cell.id });
          expect(view?.state, cell.id).toBe(ending);
          if (cell.fails || aborted.has(cell.id)) expect(ending, cell.id).toBe("undone");
          else expect(ending, cell.id).toBe("completed");
        }
      }
    });

    test("the suite would notice an effect that is missing", async () => {
      const cell = { id: "nothing of this name", fails: false };
      await expect(expectWhole(stage, cell)).rejects.toThrow();
      await expect(expectWhole(stage, { ...cell, saga: "trip" })).rejects.toThrow();
    });
  });
}
