/** The benchmark beside peers: that its rows are there, and that one of them measures and judges. Rates say nothing here. */

import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

const root = fileURLToPath(new URL("../..", import.meta.url));
const program = join(root, "bench", "peers.mjs");

interface Row {
  readonly row: string;
  readonly failure?: string;
  readonly measured?: readonly { readonly kind: string; readonly answered: number }[];
  readonly checks?: readonly { readonly value: number; readonly isMet: boolean }[];
}

/** What is missing for it here. */
function reasonToSkip(): string | undefined {
  if (process.platform !== "linux") return "it reads /proc";
  return spawnSync("cc", ["--version"]).status === 0 ? undefined : "its load needs a C compiler";
}

const reason = reasonToSkip();

test("every row of the comparison is there", () => {
  const { stdout, stderr } = spawnSync(process.execPath, [program, "--only", "none"], {
    cwd: root,
    encoding: "utf8",
  });
  const words =
    process.platform === "linux" ? "1, 2a, 2b, 3, 4, 5, 7, 8, 6, 9, 10, 11, 12" : "Linux";
  expect(stdout + stderr).toContain(words);
});

test.skipIf(reason !== undefined)(
  `a row is measured in turns and judged${reason === undefined ? "" : ` (not here: ${reason})`}`,
  () => {
    const folder = mkdtempSync(join(tmpdir(), "hapax-bench-peers-"));
    const result = join(folder, "result.json");
    try {
      const args = [program, "--quick", "--only", "3", "--result", result];
      const { status, stdout, stderr } = spawnSync(process.execPath, args, {
        cwd: root,
        encoding: "utf8",
        timeout: 150_000,
      });
      expect(stderr).toBe("");
      expect(status).toBe(0);
      expect(stdout).toMatch(/verdict[^]*150,000[^]*of bare node:net/);
      const { results } = JSON.parse(readFileSync(result, "utf8")) as {
        readonly results: readonly Row[];
      };
      const [row] = results;
      expect(row?.failure).toBeUndefined();
      expect(row?.measured?.map(({ kind }) => kind)).toEqual(["hapax-fsync", "bare-net"]);
      // All that are sent are answered, though on a busy disk perhaps none in the short time that is measured.
      for (const { answered } of row?.measured ?? []) expect(answered).toBeGreaterThanOrEqual(1024);
      expect(row?.checks).toHaveLength(2);
      for (const { value } of row?.checks ?? []) expect(value).toBeGreaterThanOrEqual(0);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  },
);
