// The secret of a directory: made once, for its owner alone, and in no data.
import { chmodSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import type { TimeMs } from "../../core/types.ts";
import { openFileStore } from "../file.ts";
import { surveyDirectory } from "./survey.ts";
import { openNodeDisk } from "./node-disk.ts";

function makeDirectory(): string {
  const directory = mkdtempSync(join(tmpdir(), "hapax-secret-"));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

const open = (directory: string) => openFileStore(directory, { durability: "os" });

/** Opens the store, takes its secret, and closes it. */
async function secretOf(directory: string): Promise<string | undefined> {
  const store = await open(directory);
  try {
    return await store.secret?.();
  } finally {
    await store.close();
  }
}

test("a secret is made when it is first needed, and is the same from then on", async () => {
  const directory = makeDirectory();
  const path = join(directory, "SECRET");
  const store = await open(directory);
  expect(existsSync(path)).toBe(false);
  const secrets = await Promise.all([store.secret?.(), store.secret?.()]);
  await store.close();
  expect(secrets[0]).toMatch(/^[\da-f]{64}$/);
  expect(secrets[1]).toBe(secrets[0]);
  expect(statSync(path).mode & 0o777).toBe(0o600);
  expect(await secretOf(directory)).toBe(secrets[0]);
  expect(await secretOf(makeDirectory())).not.toBe(secrets[0]);
});

test("a secret is in no other file of its directory", async () => {
  const directory = makeDirectory();
  const secret = await secretOf(directory);
  for (const name of readdirSync(directory)) {
    const bytes = readFileSync(join(directory, name));
    if (name === "SECRET") continue;
    expect(bytes.includes(secret ?? "")).toBe(false);
    expect(bytes.includes(Buffer.from(secret ?? "", "hex"))).toBe(false);
  }
  expect((await surveyDirectory(openNodeDisk(directory, false))).others).toEqual([]);
});

test.each([
  ["other users can read", 0o640, undefined, /mode 0640.*chmod 600/],
  ["other users can change", 0o602, undefined, /mode 0602.*chmod 600/],
  ["is empty", 0o600, "", /damaged/],
  ["is cut", 0o600, "0123\n", /damaged/],
])("a directory whose secret %s is not opened", async (_, mode, text, message) => {
  const directory = makeDirectory();
  await secretOf(directory);
  const path = join(directory, "SECRET");
  if (text !== undefined) writeFileSync(path, text);
  chmodSync(path, mode);
  const error: unknown = await open(directory).catch((caught: unknown) => caught);
  expect(error).toMatchObject({ code: "directory_unusable" });
  expect(String(error)).toMatch(message);
  // The directory is not left locked.
  rmSync(path);
  expect(await secretOf(directory)).toMatch(/^[\da-f]{64}$/);
});

test("the store warns of a copy without its secret, and not of a directory that never had keys", async () => {
  const directory = makeDirectory();
  const warnings: string[] = [];
  const start = async (): Promise<void> => {
    const onWarning = (warning: string): void => void warnings.push(warning);
    const store = await openFileStore(directory, { durability: "os", onWarning });
    await store.commit([{ kind: "signing_key_added", atMs: 1 as TimeMs, key: "{}" }]);
    await store.secret?.();
    await store.close();
  };
  await start();
  await start();
  expect(warnings).toEqual([]);
  rmSync(join(directory, "SECRET"));
  await start();
  expect(warnings).toEqual([expect.stringMatching(/SECRET is missing.*new keys.*put it back/)]);
});

test("what a process that was killed has left of a secret is removed", async () => {
  const directory = makeDirectory();
  writeFileSync(join(directory, "SECRET.tmp"), "01");
  expect((await surveyDirectory(openNodeDisk(directory, false))).unfinished).toEqual([
    "SECRET.tmp",
  ]);
  expect(await secretOf(directory)).toMatch(/^[\da-f]{64}$/);
  expect(readdirSync(directory)).not.toContain("SECRET.tmp");
});
