// processOnce in several processes that crash, stop, lose connections and answers, in random order.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { processOnce } from "../../src/toolkit/ledger.ts";
import { createWorld, flush, type Process, type World } from "./worlds.ts";

type Step =
  | { readonly kind: "call"; readonly process: number; readonly waitMs: number }
  | { readonly kind: "finish"; readonly work: number; readonly isFailure: boolean }
  | { readonly kind: "advance"; readonly ms: number }
  | { readonly kind: "crash" | "cut" | "heal"; readonly process: number }
  | { readonly kind: "lose"; readonly process: number; readonly fate: "stored" | "undone" };

const process = fc.nat(2);
const steps: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant("call" as const),
      process,
      waitMs: fc.constantFrom(0, 700, 3_000),
    }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant("finish" as const),
      work: fc.nat(3),
      isFailure: fc.boolean(),
    }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant("advance" as const),
      ms: fc.constantFrom(50, 300, 700, 1_500),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constantFrom("crash" as const, "cut" as const, "heal" as const),
      process,
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant("lose" as const),
      process,
      fate: fc.constantFrom("stored" as const, "undone" as const),
    }),
  },
);

/** Work that waits for `end`. */
interface Pending {
  readonly end: (isFailure: boolean) => void;
}

class Run {
  readonly world: World;
  readonly processes: Process[];
  readonly pending: Pending[] = [];
  readonly tokens: number[] = [];
  readonly results: unknown[] = [];
  readonly errors: unknown[] = [];

  constructor(locks: boolean) {
    this.world = createWorld({ locks });
    this.processes = [0, 1, 2].map(() => this.world.process());
  }

  call(process: Process, waitMs: number): void {
    const { ledger, clock } = process;
    processOnce(
      ledger,
      { scope: "s", key: "key" },
      async ({ tx, token }) => {
        this.tokens.push(token);
        await new Promise<void>((resolve, reject) => {
          const end = (isFailure: boolean): void => {
            if (isFailure) reject(new Error("it failed"));
            else resolve();
          };
          this.pending.push({ end });
        });
        tx.write(`effect ${token}`);
        return `result ${token}`;
      },
      { leaseMs: 1_000, waitMs, clock },
    ).then(
      ({ result }) => this.results.push(result),
      (error: unknown) => this.errors.push(error),
    );
  }

  async take(step: Step): Promise<void> {
    switch (step.kind) {
      case "call":
        this.call(this.#process(step.process), step.waitMs);
        break;
      case "finish": {
        const [work] = this.pending.splice(step.work, 1);
        work?.end(step.isFailure);
        break;
      }
      case "advance":
        await this.world.advance(step.ms);
        break;
      case "crash":
        this.#process(step.process).crash();
        // Another one is started in its place.
        this.processes[step.process] = this.world.process();
        break;
      case "cut":
      case "heal":
        this.#process(step.process).cut(step.kind === "cut");
        break;
      case "lose":
        this.#process(step.process).loseCommit(step.fate);
        break;
    }
    await flush();
  }

  /** Lets all running and later work succeed, for longer than any call waits. */
  async finish(): Promise<void> {
    for (let round = 0; round < 12; round += 1) {
      for (const work of this.pending.splice(0)) work.end(false);
      await this.world.advance(500);
    }
  }

  #process(index: number): Process {
    const found = this.processes[index];
    if (found === undefined) throw new Error("no such process");
    return found;
  }
}

const KNOWN = new Set(["in_progress", "lease_lost", "outcome_unknown"]);
const TEXTS = /^(it failed|no connection|the connection was lost in COMMIT)$/;

describe("processOnce in processes that crash, hang and lose answers", () => {
  const check = async (locks: boolean): Promise<void> => {
    let taken = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(steps, { minLength: 5, maxLength: 40 }), async (plan) => {
        const run = new Run(locks);
        for (const step of plan) {
          await run.take(step);
          expect(run.world.effects.length).toBeLessThanOrEqual(1);
        }
        // All running work ends; then every later call gets the one result.
        for (const process of run.processes) process.cut(false);
        await run.finish();
        run.call(run.world.process(), 0);
        await run.finish();
        const [effect] = run.world.effects;
        expect(run.world.effects).toHaveLength(1);
        const result = effect?.replace("effect", "result");
        expect(new Set(run.results)).toEqual(new Set([result]));
        expect(run.tokens).toEqual(run.tokens.toSorted((one, other) => one - other));
        for (const error of run.errors) {
          const { code, message } = error as { code?: string; message: string };
          if (code === undefined ? !TEXTS.test(message) : !KNOWN.has(code)) throw error;
        }
        if (run.tokens.length > 1) taken += 1;
      }),
      { numRuns: 500 },
    );
    expect(taken).toBeGreaterThan(100);
  };

  test("OC2 commits one effect at most, answers no other, and always ends", () => check(false));

  test("CK7 OC2 does so where claim and work are one commit", () => check(true));
});
