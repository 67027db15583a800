import { mkdirSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { hapax } from "../../test/kits/cli-harness.ts";
import { fillDirectory, freshDirectory, segmentFile } from "../../test/kits/directory-kit.ts";
import { openFileStore } from "../streams/stores/file.ts";
import { asDirectoryError } from "../streams/stores/file/directory-error.ts";

const folders: string[] = [];

afterAll(() => {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
});

async function filled(): Promise<string> {
  const directory = freshDirectory();
  folders.push(directory);
  await fillDirectory(directory, 30, [20]);
  return directory;
}

test.for([0, 1, 100, 4095])(
  "a segment of %i bytes is damage with a name, for every tool",
  { timeout: 60_000 },
  async (bytes) => {
    for (const number of [1, 3]) {
      const directory = await filled();
      truncateSync(join(directory, segmentFile(number)), bytes);
      const verified = await hapax(["verify", directory]);
      expect(verified).toMatchObject({ code: 1, stderr: "" });
      expect(verified.stdout).toContain(`damaged: ${segmentFile(number)} offset 0`);
      const inspected = await hapax(["inspect", directory]);
      expect(inspected).toMatchObject({ code: 1, stderr: "" });
      expect(inspected.stdout).toContain("damaged");
      const planned = await hapax(["repair", directory]);
      expect(planned).toMatchObject({ code: 1, stderr: "" });
      expect(planned.stdout).toContain(`move ${segmentFile(number)} to quarantine`);
    }
  },
);

test.for(["STORE", "snapshot"])("an empty %s is damage with a name too", async (which) => {
  const directory = await filled();
  const names = which === "STORE" ? ["STORE"] : ["snapshot-0000000000000021.snap"];
  for (const name of names) writeFileSync(join(directory, name), "");
  const { code, stdout, stderr } = await hapax(["verify", directory]);
  expect([code, stderr]).toEqual([1, ""]);
  expect(stdout).toContain(`damaged: ${names[0]}`);
});

test("an error of the directory names the directory and what to do", async () => {
  const directory = freshDirectory();
  folders.push(directory);
  writeFileSync(join(directory, "file"), "");
  const below = join(directory, "file", "data");
  const served = await hapax(["serve", "--port", "0", "--dir", below], {
    startServer: async ({ dir = "" }) => {
      await openFileStore(dir);
      throw new Error("it opened");
    },
  });
  expect(served.code).toBe(1);
  expect(served.stderr).toContain("the directory cannot be used (ENOTDIR)");
  expect(served.stderr).toContain(below);
  expect(served.stderr).not.toContain("cannot listen");
  const error = Object.assign(new Error("EACCES: permission denied, open 'x'"), {
    code: "EACCES",
    syscall: "open",
  });
  expect(asDirectoryError(error, "/data")).toMatchObject({
    code: "directory_unusable",
    message: expect.stringContaining("change the owner or the mode: directory=/data"),
  });
  const other = new Error("a fault of ours");
  expect(asDirectoryError(other, "/data")).toBe(other);
});

test("a directory that other users may write to is warned of", async () => {
  const directory = join(freshDirectory(), "open");
  folders.push(directory);
  const umask = process.umask(0);
  mkdirSync(directory, { mode: 0o777 });
  process.umask(umask);
  const warnings: string[] = [];
  const onWarning = (warning: string): void => void warnings.push(warning);
  const store = await openFileStore(directory, { segmentBytes: 65_536, onWarning });
  await store.close();
  expect(warnings).toEqual([expect.stringContaining("(mode 777)")]);
  expect(warnings[0]).toContain(`chmod 700 ${directory}`);
});
