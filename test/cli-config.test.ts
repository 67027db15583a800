/** Configuration of the built program: a real file, a real SIGHUP, and appends meanwhile. */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import { afterEach, beforeEach, expect, test } from "vitest";

const bin = fileURLToPath(new URL("../dist/bin.js", import.meta.url));
const running = new Set<ChildProcess>();
let folder = "";

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "hapax-config-"));
});

afterEach(() => {
  for (const child of running) child.kill("SIGKILL");
  rmSync(folder, { recursive: true, force: true });
});

function start(words: readonly string[]) {
  const clean = Object.entries(process.env).filter(([name]) => !name.startsWith("HAPAX_"));
  const child = spawn(process.execPath, [bin, ...words], {
    cwd: folder,
    env: { ...Object.fromEntries(clean), HAPAX_LOG_FORMAT: "text" },
    stdio: ["ignore", "pipe", "pipe"],
  });
  running.add(child);
  let output = "";
  const collect = (text: string): void => void (output += text);
  child.stdout.setEncoding("utf8").on("data", collect);
  child.stderr.setEncoding("utf8").on("data", collect);
  const done = once(child, "close").then(() => {
    running.delete(child);
    return { code: child.exitCode, signal: child.signalCode, output };
  });
  /** Settles with the match once all output so far has it; fails when the program ends before that. */
  const printed = (pattern: RegExp): Promise<RegExpExecArray> =>
    new Promise((resolve, reject) => {
      const look = (): void => {
        const match = pattern.exec(output);
        if (match !== null) resolve(match);
      };
      child.stdout.on("data", look);
      child.stderr.on("data", look);
      child.once("close", () => {
        reject(new Error(`ended before it printed ${String(pattern)}: ${output}`));
      });
      look();
    });
  return { child, done, printed };
}

const configure = (members: object | string): void => {
  const text = typeof members === "string" ? members : JSON.stringify(members);
  writeFileSync(join(folder, "hapax.config.json"), text);
};

const TEXT = { "content-type": "text/plain" };
const PAGE = { ...TEXT, origin: "https://a.example" };

async function serve() {
  const server = start(["serve"]);
  const [, url = ""] = await server.printed(/^hapax listening on (\S+)/m);
  const stream = `${url}/v1/stream/a`;
  const append = async (body: string, headers: Record<string, string> = TEXT): Promise<number> =>
    (await fetch(stream, { method: "POST", headers, body })).status;
  expect((await fetch(stream, { method: "PUT", headers: TEXT })).status).toBe(201);
  return { ...server, append };
}

test("G39 SIGHUP changes what it can while appends run, and none of them fails", async () => {
  configure({ port: 0, memory: true });
  const { child, done, printed, append } = await serve();
  expect(await append("x", PAGE)).toBe(403);
  let isOver = false;
  const failed: number[] = [];
  let appends = 0;
  const work = Array.from({ length: 4 }, async () => {
    while (!isOver) {
      const status = await append("12345678");
      appends += 1;
      if (status !== 204) failed.push(status);
    }
  });
  for (let round = 1; round <= 6; round += 1) {
    configure({ port: 0, memory: true, corsOrigins: [PAGE.origin], longPollMs: 1000 + round });
    child.kill("SIGHUP");
    await printed(new RegExp(`SIGHUP: in force now: longPollMs=${String(1000 + round)} `));
  }
  expect(await append("x", PAGE)).toBe(204);
  configure({ port: 1, memory: true, corsOrigins: [], longPollMs: 1 });
  child.kill("SIGHUP");
  await printed(/SIGHUP: NOT IN FORCE, needs a restart: port=1 \(is 0\)/);
  expect(await append("x", PAGE)).toBe(403);
  isOver = true;
  await Promise.all(work);
  expect(failed).toEqual([]);
  expect(appends).toBeGreaterThan(20);
  child.kill("SIGTERM");
  expect((await done).code).toBe(0);
});

test("G39 a wrong file at a reload is reported, and the server goes on as it was", async () => {
  configure({ port: 0, memory: true, bodyBytesMax: 4 });
  const { child, done, printed, append } = await serve();
  configure({ port: 0, memory: true, bodyBytesMax: 8, corsOrigin: "*" });
  child.kill("SIGHUP");
  await printed(/NOTHING WAS CHANGED: an option is not valid\n.*did you mean "corsOrigins"\?/);
  expect([await append("1234"), await append("12345")]).toEqual([204, 413]);
  configure({ port: 0, memory: true, bodyBytesMax: 8 });
  child.kill("SIGHUP");
  await printed(/in force now: bodyBytesMax=8 \(was 4\)/);
  expect(await append("12345")).toBe(204);
  child.kill("SIGTERM");
  expect((await done).code).toBe(0);
});

test("without a file SIGHUP ends the server, as it ends other programs", async () => {
  const server = start(["serve", "--memory", "--port", "0"]);
  await server.printed(/^hapax listening on /m);
  server.child.kill("SIGHUP");
  expect((await server.done).signal).toBe("SIGHUP");
});

test("config check sees the file of the working directory, and ends with 2 if it is wrong", async () => {
  configure({ port: 8080 });
  const good = await start(["config", "check"]).done;
  expect([good.code, good.output]).toEqual([0, expect.stringMatching(/^port +8080 +file/m)]);
  configure("{");
  expect(await start(["config", "check"]).done).toMatchObject({ code: 2 });
  expect(await start(["serve"]).done).toMatchObject({ code: 2 });
  const missing = await start(["serve", "--config", "none.json"]).done;
  expect([missing.code, missing.output]).toEqual([2, expect.stringContaining("ENOENT")]);
});

test("the package has the schema that the program prints", async () => {
  const { output } = await start(["config", "schema"]).done;
  const file = fileURLToPath(import.meta.resolve("hapax/config.schema.json"));
  expect(readFileSync(file, "utf8")).toBe(output);
});
