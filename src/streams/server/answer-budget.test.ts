import { describe, expect, test } from "vitest";
import { LIMITS } from "../../protocol/limits.ts";
import { createVirtualClock } from "../../testing/virtual-clock.ts";
import { AnswerBudget, type AnswerShare } from "./answer-budget.ts";

const MIB = 1024 * 1024;

function openStage() {
  const clock = createVirtualClock();
  const budget = new AnswerBudget(clock, 64 * MIB);
  const got: string[] = [];
  /** Asks for room, and notes when it comes. */
  const ask = (name: string, bytes: number, peer?: string): Promise<AnswerShare> =>
    budget.take(bytes, peer).then((share) => {
      got.push(name);
      return share;
    });
  return { clock, budget, got, ask };
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

describe("room for answers", () => {
  test("G34 a reader waits until those before it have left, in the order of asking", async () => {
    const { budget, got, ask } = openStage();
    const first = await ask("first", 40 * MIB);
    void ask("second", 16 * MIB);
    void ask("third", 2 * MIB);
    await turn();
    expect(got).toEqual(["first"]);
    first.release();
    first.release();
    await turn();
    expect(got).toEqual(["first", "second", "third"]);
    expect(budget.bytes).toBe(18 * MIB);
  });

  test("large answers leave a quarter to small ones, and small ones to large ones", async () => {
    const { got, ask } = openStage();
    for (let index = 0; index < 3; index += 1) await ask("large", 16 * MIB);
    void ask("too large", 16 * MIB);
    for (let index = 0; index < 16; index += 1) await ask("small", MIB);
    void ask("too many", MIB);
    await turn();
    expect([got.includes("too large"), got.includes("too many")]).toEqual([false, false]);
  });

  test("what is known to be smaller gives back the rest", async () => {
    const { budget, got, ask } = openStage();
    const shares = [await ask("a", 16 * MIB), await ask("b", 16 * MIB), await ask("c", 16 * MIB)];
    void ask("d", 16 * MIB);
    for (const share of shares) share.resize(1000);
    await turn();
    expect(got).toEqual(["a", "b", "c", "d"]);
    expect(budget.bytes).toBe(16 * MIB + 3000);
  });

  test("an answer larger than everything is let in alone", async () => {
    const { got, ask } = openStage();
    const whole = await ask("whole", 100 * MIB);
    void ask("another", 100 * MIB);
    await turn();
    expect(got).toEqual(["whole"]);
    whole.release();
    await turn();
    expect(got).toEqual(["whole", "another"]);
  });

  test("while others wait, an answer has its time and is then cut; without them it has all the time", async () => {
    const { clock, got, ask } = openStage();
    const cuts: string[] = [];
    const slow = await ask("slow", 40 * MIB);
    slow.onCut(() => cuts.push("slow"));
    clock.advance(600_000);
    expect(cuts).toEqual([]);
    void ask("next", 40 * MIB);
    const limitMs = LIMITS.answerWantedMs + (40 * MIB * 1000) / LIMITS.answerBytesPerSecondFull;
    clock.advance(limitMs - 1000);
    expect(cuts).toEqual([]);
    clock.advance(4000);
    await turn();
    expect([cuts, got]).toEqual([["slow"], ["slow", "next"]]);
  });
});

describe("peers", () => {
  test("G34 the one that holds least is served first, however many answers another one waits for", async () => {
    const { got, ask } = openStage();
    const held = [];
    for (let index = 0; index < 3; index += 1) held.push(await ask("greedy", 16 * MIB, "a"));
    for (let index = 0; index < 50; index += 1) void ask("greedy", 16 * MIB, "a");
    void ask("b", 16 * MIB, "b");
    void ask("c", 16 * MIB, "c");
    void ask("c again", 16 * MIB, "c");
    got.length = 0;
    for (const share of held) {
      share.release();
      await turn();
    }
    // At the end all hold the same, and the first one that asked has its turn.
    expect(got).toEqual(["b", "c", "greedy"]);
  });

  test("G34 one that would hold less than another does not wait for its slow answers", async () => {
    const { clock, got, ask } = openStage();
    const cuts: number[] = [];
    for (let index = 0; index < 3; index += 1) {
      (await ask("greedy", 16 * MIB, "a")).onCut(() => cuts.push(index));
    }
    for (let index = 0; index < 50; index += 1) void ask("greedy again", 16 * MIB, "a");
    clock.advance(LIMITS.answerGreedyMs);
    void ask("b", 16 * MIB, "b");
    clock.advance(2000);
    await turn();
    expect([cuts, got.at(-1)]).toEqual([[0], "b"]);
    // Now b would hold as much as a: it waits as long as anybody does.
    void ask("b again", 16 * MIB, "b");
    clock.advance(4000);
    await turn();
    expect([cuts, got.at(-1)]).toEqual([[0], "b"]);
  });

  test("G34 an answer is not cut for one that holds more, however slowly it leaves", async () => {
    const { clock, ask } = openStage();
    const cuts: string[] = [];
    (await ask("phone", MIB, "phone")).onCut(() => cuts.push("phone"));
    for (let index = 0; index < 3; index += 1) {
      (await ask("greedy", 16 * MIB, "a")).onCut(() => cuts.push("greedy"));
    }
    for (let index = 0; index < 3; index += 1) void ask("greedy", 16 * MIB, "a");
    clock.advance(600_000);
    expect(cuts).toEqual(["greedy", "greedy", "greedy"]);
  });
});
