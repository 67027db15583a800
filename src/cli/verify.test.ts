import { rmSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";

import { hapax } from "../../test/kits/cli-harness.ts";
import {
  filesOf,
  fillDirectory,
  flip,
  freshDirectory,
  segmentFile,
} from "../../test/kits/directory-kit.ts";

const golden = fileURLToPath(new URL("../../test/golden/v1", import.meta.url));
const damaged = freshDirectory();

beforeAll(async () => {
  await fillDirectory(damaged, 40, [35, 38]);
  flip(damaged, segmentFile(1), 6000);
});

afterAll(() => {
  rmSync(damaged, { recursive: true, force: true });
});

test("a sound directory ends with 0, also with a torn end, which is called by its name", async () => {
  const whole = await hapax(["verify", `${golden}/whole`]);
  expect(whole).toMatchObject({ code: 0, stderr: "" });
  expect(whole.stdout).toMatch(
    /^3 segments: \d+ frames with \d+ records, .* read\n2 snapshots: 8 blocks\n/,
  );
  expect(whole.stdout).toMatch(/\nsound\n$/);
  const torn = await hapax(["verify", `${golden}/torn`]);
  expect(torn.code).toBe(0);
  expect(torn.stdout).toMatch(/^torn end in journal-000000000006\.seg at \d+: .* not damage$/m);
});

test("damage ends with 1 and one line a problem: file, offset, LSN, what, and what it means", async () => {
  const before = filesOf(damaged);
  const { code, stdout } = await hapax(["verify", damaged]);
  expect(code).toBe(1);
  const lines = stdout.split("\n").filter((line) => line.startsWith("damaged:"));
  expect(lines).toEqual([
    expect.stringMatching(
      /^damaged: journal-000000000001\.seg offset \d+ LSN 3: frame LSN 3 cannot be read \(\d+ bytes\), frames behind can; a snapshot/,
    ),
    expect.stringMatching(
      /^damaged: journal-000000000001\.seg offset \d+: stream \/case\/1, offsets 0 to 1000: .*checksum; reading/,
    ),
  ]);
  expect(stdout).toContain("2 problems; see: hapax repair");
  expect(filesOf(damaged)).toEqual(before);
});

test("--json prints each problem and the result as one object a line", async () => {
  const { code, stdout } = await hapax(["verify", damaged, "--json"]);
  expect(code).toBe(1);
  const lines = stdout
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line) as object);
  expect(lines).toHaveLength(3);
  expect(lines[0]).toMatchObject({ problem: { kind: "frames", lsn: 3, stopsServer: false } });
  expect(lines[2]).toMatchObject({ isSound: false, problems: 2, streams: 2 });
});
