/** The demo, in short: its verdict on a real run, on a planted fault, and on each fault by itself. */

import { spawn } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

interface Sent {
  readonly writer: string;
  readonly count: number;
  readonly confirmed: boolean;
}

interface Verdict {
  readonly isExact: boolean;
  readonly lost: readonly string[];
  readonly duplicated: readonly string[];
  readonly outOfOrder: readonly string[];
  readonly foreign: readonly string[];
  readonly unconfirmed: readonly string[];
}

const script = (name: string): URL => new URL(`../scripts/${name}.mjs`, import.meta.url);

// Scripts without types; these are the parts of them that are used.
const { judge, verdictLines } = (await import(script("demo-verdict").href)) as {
  judge: (sent: readonly Sent[], stored: readonly unknown[]) => Verdict;
  verdictLines: (verdict: Verdict) => readonly string[];
};

const folder = mkdtempSync(join(tmpdir(), "hapax-demo-test-"));

afterAll(() => {
  rmSync(folder, { recursive: true, force: true });
});

beforeAll(async () => {
  const { buildIfNeeded } = (await import(script("prepare").href)) as {
    buildIfNeeded: () => Promise<void>;
  };
  await buildIfNeeded();
}, 120_000);

interface Ended {
  readonly code: number | null;
  readonly output: string;
}

function runDemo(args: readonly string[], onOutput?: (stop: () => void) => void): Promise<Ended> {
  const child = spawn(process.execPath, [fileURLToPath(script("demo")), ...args], {
    env: { ...process.env, TMPDIR: folder },
  });
  let output = "";
  const hear = (text: string): void => {
    output += text;
    if (output.includes("kill -9 1,")) onOutput?.(() => child.kill("SIGINT"));
  };
  child.stdout.setEncoding("utf8").on("data", hear);
  child.stderr.setEncoding("utf8").on("data", hear);
  return new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (code) => {
      resolve({ code, output });
    });
  });
}

const countOf = (output: string, name: string): number =>
  Number(
    output
      .match(new RegExp(`${name} (\\d+)`, "g"))
      ?.at(-1)
      ?.split(" ")
      .at(-1),
  );

describe.concurrent("a run", () => {
  test("DM1 payments over a lossy network to a server that is killed are stored once, in order", async ({
    expect,
  }) => {
    let output = "";
    // The network loses at random: a run in which no repetition had to be stopped shows too little.
    for (let run = 0; run < 3; run += 1) {
      const ended = await runDemo(["--seconds", "4"]);
      output = ended.output;
      expect(output).toContain("sent 4400, stored 4400\nEXACT: each payment once, in order\n");
      expect(ended.code).toBe(0);
      if (countOf(output, "duplicates stopped") > 0) break;
    }
    // The run was not an easy one.
    for (const name of ["kill -9", "requests lost", "answers lost", "sent again"]) {
      expect(countOf(output, name), `${name}\n${output}`).toBeGreaterThan(0);
    }
    expect(countOf(output, "duplicates stopped")).toBeGreaterThan(0);
  });

  test("DM1 a planted duplicate is found, and is the exit code", async ({ expect }) => {
    const { code, output } = await runDemo(["--seconds", "1", "--plant", "duplicate"]);
    expect(output).toContain("sent 1100, stored 1101\n");
    expect(output).toMatch(/ 1 stored more than once: append 0\nNOT EXACT\n$/);
    expect(code).toBe(1);
  });

  test("Ctrl-C ends a run", async ({ expect }) => {
    const { code, output } = await runDemo(["--seconds", "30"], (stop) => {
      stop();
    });
    expect(output).toMatch(/stopped; nothing was kept\n$/);
    expect(code).toBe(130);
  });

  test("options that mean nothing are refused with the list of those that do", async ({
    expect,
  }) => {
    for (const args of [["--seconds", "x"], ["--against", "unknown"], ["--faster"]]) {
      const { code, output } = await runDemo(args);
      expect(output).toContain("npm run demo -- [options]");
      expect(code).toBe(1);
    }
  });
});

test("no run leaves anything behind", () => {
  expect(readdirSync(folder)).toEqual([]);
});

describe("the verdict", () => {
  const sent = [
    { writer: "one", count: 3, confirmed: true },
    { writer: "two", count: 2, confirmed: true },
  ];
  const records = (...names: string[]): unknown[] =>
    names.map((name) => ({ writer: name.split(" ")[0], number: Number(name.split(" ")[1]) }));

  test("DM1 writers may be mixed as long as each is in its own order", () => {
    const verdict = judge(sent, records("two 0", "one 0", "one 1", "two 1", "one 2"));
    expect(verdict.isExact).toBe(true);
    expect(verdictLines(verdict)).toEqual([
      "sent 5, stored 5",
      "EXACT: each payment once, in order",
    ]);
  });

  const faults = [
    { fault: "lost", stored: records("two 0", "one 0", "one 2", "two 1"), named: ["one 1"] },
    {
      fault: "duplicated",
      stored: records("one 0", "one 1", "one 0", "one 2", "two 0", "two 1"),
      named: ["one 0"],
    },
    {
      fault: "outOfOrder",
      stored: records("one 1", "one 0", "one 2", "two 0", "two 1"),
      named: ["one 0"],
    },
    {
      fault: "foreign",
      stored: [...records("one 0", "one 1", "one 2", "two 0", "two 1", "one 3"), null],
      named: ['{"writer":"one","number":3}', "null"],
    },
  ] as const;

  test.for(faults)("DM1 what is $fault is named", ({ fault, stored, named }) => {
    const verdict = judge(sent, stored);
    expect(verdict.isExact).toBe(false);
    expect(verdict[fault]).toEqual(named);
    expect(verdictLines(verdict).at(-1)).toBe("NOT EXACT");
  });

  test("DM1 a writer that was not told of all is not well served", () => {
    const all = records("one 0", "one 1", "one 2", "two 0", "two 1");
    const verdict = judge([{ writer: "one", count: 3, confirmed: false }, ...sent.slice(1)], all);
    expect(verdict.unconfirmed).toEqual(["one"]);
    expect(verdict.isExact).toBe(false);
  });
});
