import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import {
  existsSync,
  lstatSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { hostname, tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { LOCK_NAME, lockDirectory, lockForReading } from "./lock.ts";

const root = mkdtempSync(join(tmpdir(), "hapax-lock-"));

afterAll(() => {
  rmSync(root, { recursive: true, force: true });
});

/** Starts another process that holds the directory, with the lock of this system. */
async function startHolder(directory: string): Promise<ChildProcess> {
  const { dev, ino } = statSync(directory, { bigint: true });
  const name = `hapax-${dev}-${ino}`;
  const listen = `require("node:net").createServer().listen({ path: "\\0${name}" }, say)`;
  const script = `const say = () => console.log("held");
    ${process.platform === "linux" ? listen : "say(); setInterval(say, 60_000)"};`;
  const child = spawn(process.execPath, ["-e", script], { stdio: ["ignore", "pipe", "inherit"] });
  if (child.stdout === null) throw new Error("the holder has no output");
  await once(child.stdout, "data");
  writeFileSync(join(directory, LOCK_NAME), `${child.pid}\n${hostname()}\n`);
  return child;
}

test("a directory that is held cannot be taken, also not for reading, until it is released", async () => {
  const directory = mkdtempSync(join(root, "case-"));
  const lock = await lockDirectory(directory);
  expect(readFileSync(join(directory, LOCK_NAME), "utf8").split("\n")[0]).toBe(String(process.pid));
  if (process.platform === "linux") {
    const held = { code: "directory_locked" };
    await expect(lockDirectory(directory)).rejects.toMatchObject(held);
    await expect(lockForReading(directory)).rejects.toMatchObject(held);
  }
  await lock.release();
  expect(existsSync(join(directory, LOCK_NAME))).toBe(false);
  const reading = await lockForReading(directory);
  expect(existsSync(join(directory, LOCK_NAME))).toBe(false);
  await reading.release();
  await (await lockDirectory(directory)).release();
});

test("a link under the name of the lock is removed, and what it points to is left alone", async () => {
  const directory = mkdtempSync(join(root, "case-"));
  const target = join(root, "precious");
  writeFileSync(target, "precious");
  symlinkSync(target, join(directory, LOCK_NAME));
  const lock = await lockDirectory(directory);
  expect(readFileSync(target, "utf8")).toBe("precious");
  expect(lstatSync(join(directory, LOCK_NAME)).isFile()).toBe(true);
  expect(statSync(join(directory, LOCK_NAME)).mode & 0o077).toBe(0);
  await lock.release();
  expect(readFileSync(target, "utf8")).toBe("precious");
});

test("another process keeps the directory as long as it lives, and a killed one does not", async () => {
  const directory = mkdtempSync(join(root, "case-"));
  const holder = await startHolder(directory);
  await expect(lockDirectory(directory)).rejects.toMatchObject({ code: "directory_locked" });
  await expect(lockDirectory(directory)).rejects.toThrow(`process ${holder.pid}`);
  holder.kill("SIGKILL");
  await once(holder, "exit");
  expect(existsSync(join(directory, LOCK_NAME))).toBe(true);
  await (await lockDirectory(directory)).release();
});
