// G53 SA1 to SA6: sagas in processes that are killed, or stand still, at every cell of the failure matrix, over both databases.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { FAILPOINTS } from "../../src/testing/failpoints.ts";
import { createSagas } from "../../src/toolkit/saga.ts";
import {
  type Cell,
  expectEither,
  expectWhole,
  LEASE_MS,
  MATRIX,
  type Stage,
  STAGES,
  type Worker,
} from "../saga/crash-kit.ts";

const isLong = process.env["HAPAX_LONG"] === "1";
const ROUNDS = isLong ? 20 : 1;

test("every failpoint of sagas is one at which a process is killed", () => {
  const points = Object.values(MATRIX).map(({ at }) => at);
  const own = FAILPOINTS.filter((name) => name.startsWith("saga."));
  expect(own.length).toBeGreaterThan(5);
  // A takeover that is killed, and a question: each has its own test below.
  const others = ["saga.claimed", "saga.asked", "saga.undo.asked"];
  for (const name of own) expect([...points, ...others]).toContain(name);
});

let cases = 0;

function cellsOf(prefix: string, isFitting: (title: string) => boolean): readonly Cell[] {
  return Object.entries(MATRIX)
    .filter(([title]) => isFitting(title))
    .map(([title, { at, occurrence = 1, fails }]) => {
      cases += 1;
      return { id: `${prefix} ${cases}: ${title}`, at, occurrence, fails };
    });
}

async function finish(stage: Stage, leaseMs = LEASE_MS): Promise<void> {
  const worker = stage.start({ kind: "run", leaseMs });
  await worker.ended;
  expect(worker.output()).toContain("ended");
}

for (const { name, open } of STAGES) {
  describe(name, () => {
    let stage: Stage;
    const workers: Worker[] = [];
    const start = (task: Parameters<Stage["start"]>[0]): Worker => {
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

    /** Starts sagas that all stand still at their own moments. Over SQLite those in a transaction need a process each. */
    async function standStill(cells: readonly Cell[]): Promise<readonly Cell[]> {
      const isInside = ({ id }: Cell): boolean =>
        stage.isExclusive && MATRIX[id.slice(id.indexOf(": ") + 2)]?.isInside === true;
      const outside = start({ kind: "start", cells: cells.filter((cell) => !isInside(cell)) });
      await outside.reached(cells.filter((cell) => !isInside(cell)).length);
      await outside.kill();
      for (const cell of cells.filter(isInside)) {
        const worker = start({ kind: "start", cells: [cell] });
        await worker.reached(1);
        await worker.kill();
      }
      return cells;
    }

    test("SA2 SA4 SA5 killed at every cell of the matrix: each effect once, undone whole, in reverse and once", async () => {
      for (let round = 0; round < ROUNDS; round += 1) {
        const cells = await standStill(cellsOf(`killed ${round}`, () => true));
        await finish(stage);
        for (const cell of cells) await expectWhole(stage, cell);
      }
    });

    test("SA2 SA5 killed again, by each next process as soon as it has taken over or asked: the same", async () => {
      for (let round = 0; round < ROUNDS; round += 1) {
        const cells = await standStill(
          cellsOf(`again ${round}`, (title) => title.includes("answer lost")),
        );
        for (const halts of [["saga.claimed"], ["saga.asked", "saga.undo.asked"]]) {
          const takeover = start({ kind: "run", halts });
          // Two of the sagas have a question, forward and back.
          await takeover.reached(2);
          await takeover.kill();
        }
        await finish(stage);
        for (const cell of cells) await expectWhole(stage, cell);
      }
    });

    test("SA1 stopped beyond its lease and woken by SIGCONT, it sends nothing and records nothing", async () => {
      const cells = cellsOf("stopped", (title) => {
        const cell = MATRIX[title];
        return (
          !(stage.isExclusive && cell?.isInside === true) &&
          /intent|lost|writes|before its record/.test(title)
        );
      });
      const zombies = cells.map((cell) =>
        start({ kind: "start", cells: [cell], by: "stop", leaseMs: 2 * LEASE_MS }),
      );
      await Promise.all(zombies.map((zombie) => zombie.reached(1)));
      await finish(stage);
      for (const cell of cells) await expectWhole(stage, cell);
      const sagas = createSagas(stage.ledger, []);
      const before = await sagas.list({ max: 10_000 });
      for (const zombie of zombies) zombie.child.kill("SIGCONT");
      await Promise.all(zombies.map((zombie) => zombie.ended));
      for (const zombie of zombies) expect(zombie.output()).toMatch(/ended (completed|undone)/);
      for (const cell of cells) await expectWhole(stage, cell);
      const strip = (view: (typeof before)[number]) => ({ ...view, ageMs: 0 });
      expect((await sagas.list({ max: 10_000 })).map(strip)).toEqual(before.map(strip));
    });

    test("SA1 runners that fight, of which some are killed, and operators who abort: each saga is whole", async () => {
      for (let round = 0; round < ROUNDS; round += 1) {
        const cells = Array.from({ length: isLong ? 60 : 24 }, (_, at) => ({
          id: `fight ${round} ${at}`,
          fails: at % 3 === 0,
        }));
        await start({ kind: "seed", cells }).ended;
        const task = { kind: "run", leaseMs: 2 * LEASE_MS } as const;
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
        await finish(stage, 2 * LEASE_MS);
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

    test("the suite would notice an effect that is there twice", async () => {
      expect(LEASE_MS).toBeGreaterThan(100);
      await expect(
        expectWhole(stage, { id: "nothing of this name", fails: false }),
      ).rejects.toThrow();
    });
  });
}
