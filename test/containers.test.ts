// Containers that share a volume: processes in network and PID namespaces of their own, on one directory.
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, expect, test, type TestContext, vi } from "vitest";
import { openFileStore } from "../src/streams/stores/file.ts";

const HOLDER = fileURLToPath(new URL("containers/holder.mjs", import.meta.url));
const root = mkdtempSync(join(tmpdir(), "hapax-containers-"));
const running = new Set<ChildProcess>();
const NETWORK = ["unshare", "--net"];
const NETWORK_AND_PIDS = ["unshare", "--net", "--pid", "--fork", "--kill-child"];

afterAll(() => {
  for (const child of running) child.kill("SIGKILL");
  rmSync(root, { recursive: true, force: true });
});

function requireNamespaces(context: TestContext): void {
  const [program, ...args] = [...NETWORK_AND_PIDS, "true"];
  if (spawnSync(program, args, { stdio: "ignore" }).status === 0) return;
  const reason = "this user may not make network namespaces (unshare --net --pid)";
  if (process.env["CI"] === "true") throw new Error(reason);
  context.skip(reason);
}

interface Holder {
  readonly child: ChildProcess;
  /** `held`, or the code and the message of the refusal. */
  readonly said: string;
}

async function start(directory: string, namespaces: readonly string[]): Promise<Holder> {
  const [program, ...args] = [...namespaces, process.execPath, HOLDER, directory];
  const child = spawn(program, args, { stdio: ["ignore", "pipe", "inherit"] });
  running.add(child);
  if (child.stdout === null) throw new Error("the holder has no output");
  const [said] = (await once(child.stdout.setEncoding("utf8"), "data")) as [string];
  return { child, said: said.trim() };
}

async function kill({ child }: Holder): Promise<void> {
  child.kill("SIGKILL");
  if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
  running.delete(child);
}

test("G32 a process in another network namespace keeps the directory until it is killed", async (context) => {
  requireNamespaces(context);
  const directory = join(root, "shared");
  const holder = await start(directory, NETWORK);
  expect(holder.said).toBe("held");
  const refused = { code: "directory_locked", message: expect.stringMatching(/^process \d+ on /) };
  await expect(openFileStore(directory)).rejects.toMatchObject(refused);
  expect((await start(directory, NETWORK)).said).toMatch(/^directory_locked/);
  expect((await start(directory, NETWORK_AND_PIDS)).said).toMatch(/^directory_locked/);
  await kill(holder);
  const next = await start(directory, NETWORK_AND_PIDS);
  expect(next.said).toBe("held");
  await expect(openFileStore(directory)).rejects.toMatchObject(refused);
  await kill(next);
  // The namespace ends a moment after the process that made it.
  await vi.waitFor(async () => {
    const store = await openFileStore(directory, { segmentBytes: 65_536 });
    await store.close();
  }, 10_000);
  expect(readdirSync(directory).filter((name) => /^lock/i.test(name))).toEqual([]);
});

test("of many that begin at once on a directory of a killed process exactly one gets it", async (context) => {
  requireNamespaces(context);
  const directory = join(root, `${"long-".repeat(30)}path`);
  for (let round = 0; round < 3; round += 1) {
    const holders = await Promise.all(Array.from({ length: 5 }, () => start(directory, NETWORK)));
    const held = holders.filter(({ said }) => said === "held");
    expect(held, holders.map(({ said }) => said).join("\n")).toHaveLength(1);
    for (const { said } of holders) expect(said).toMatch(/^(held|directory_locked: .*)$/);
    for (const holder of holders) await kill(holder);
  }
}, 60_000);
