// `npm run cluster`, in short: nodes over a PostgreSQL with a synchronous standby are killed under a load, and the verdict is exact.
// A planted duplicate is found by a run of `npm run test:crash`; each other fault of the verdict in test/demo.test.ts.

import { spawn } from "node:child_process";
import { chmodSync, mkdtempSync, readdirSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { makeCluster } from "../databases/postgres-server.mjs";
import { whyNoPostgres } from "../databases/postgres.ts";

vi.setConfig({ testTimeout: 180_000, hookTimeout: 120_000 });

const script = (name: string): URL => new URL(`../../scripts/${name}.mjs`, import.meta.url);
const reason = whyNoPostgres();

if (reason !== undefined) {
  console.log(`npm run cluster is not tested: ${reason}`);
  test("CI has a PostgreSQL", () => {
    expect(process.env["CI"]).not.toBe("true");
  });
} else {
  const folder = mkdtempSync(join(tmpdir(), "hapax-cluster-test-"));
  let kept: readonly string[] = [];

  beforeAll(async () => {
    const { buildIfNeeded } = (await import(script("prepare").href)) as {
      buildIfNeeded: () => Promise<void>;
    };
    await buildIfNeeded();
    chmodSync(folder, 0o755); // PostgreSQL runs as another user if this one is root.
    rmSync(makeCluster().folder, { recursive: true });
    // The copy of the binaries is for all processes, and stays.
    kept = readdirSync(tmpdir()).filter((name) => /^hapax-postgres-\d.*-\d+$/.test(name));
    for (const name of kept) symlinkSync(join(tmpdir(), name), join(folder, name));
  });

  afterAll(() => {
    rmSync(folder, { recursive: true, force: true });
  });

  const runCluster = (
    args: readonly string[],
  ): Promise<{ code: number | null; output: string }> => {
    const child = spawn(process.execPath, [fileURLToPath(script("cluster")), ...args], {
      env: { ...process.env, TMPDIR: folder },
      stdio: ["ignore", "pipe", "pipe"],
    });
    let output = "";
    const hear = (text: string): void => void (output += text);
    child.stdout.setEncoding("utf8").on("data", hear);
    child.stderr.setEncoding("utf8").on("data", hear);
    return new Promise((resolve, reject) => {
      child.on("error", reject);
      child.on("close", (code) => {
        resolve({ code, output });
      });
    });
  };

  test("DM1 G90 payments to nodes that are killed are stored once, in order, in every stream", async () => {
    const { code, output } = await runCluster(["--seconds", "8"]);
    expect(output).toMatch(
      /sent 7680, acknowledged 7680; kill -9 [4-9], .*\nEXACT: every stream has each payment once, in order\n$/,
    );
    expect(output.match(/^sent 1280, stored 1280$/gm), output).toHaveLength(6);
    expect(output.match(/^n\d +alive /gm), output).toHaveLength(6);
    expect(code).toBe(0);
    expect(readdirSync(folder).toSorted()).toEqual([...kept].toSorted());
  });

  if (process.env["HAPAX_LONG"] === "1") {
    test("DM1 a planted duplicate is found, and is the exit code", async () => {
      const { code, output } = await runCluster(["--seconds", "1", "--plant", "duplicate"]);
      expect(output).toContain(" 1 stored more than once: append 0\nNOT EXACT\n");
      expect(output.match(/^EXACT: each payment once, in order$/gm), output).toHaveLength(5);
      expect(output).toMatch(/\nNOT EXACT\n$/);
      expect(code).toBe(1);
    });
  }
}
