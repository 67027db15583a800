/** The built program against its own server: real processes, pipes and signals. */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";

const bin = fileURLToPath(new URL("../dist/bin.js", import.meta.url));
const running = new Set<ChildProcess>();

interface Program {
  readonly child: ChildProcess;
  readonly done: Promise<{ code: number | null; stdout: string; stderr: string }>;
  /** Settles when stdout contains the text, and fails when the program ends before that. */
  printed(text: string): Promise<string>;
}

function start(words: readonly string[], env: Readonly<Record<string, string>> = {}): Program {
  const clean = Object.entries(process.env).filter(([name]) => !name.startsWith("HAPAX_"));
  const child = spawn(process.execPath, [bin, ...words], {
    env: { ...Object.fromEntries(clean), ...env },
    stdio: ["pipe", "pipe", "pipe"],
  });
  running.add(child);
  let stdout = "";
  let stderr = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => (stdout += text));
  child.stderr.setEncoding("utf8").on("data", (text: string) => (stderr += text));
  child.stdin.on("error", () => {}); // A program that refuses early does not read its input.
  const done = once(child, "close").then(() => {
    running.delete(child);
    return { code: child.exitCode, stdout, stderr };
  });
  const printed = (text: string): Promise<string> =>
    new Promise((resolve, reject) => {
      const look = (): void => {
        if (stdout.includes(text)) resolve(stdout);
      };
      child.stdout.on("data", look);
      child.once("close", () => {
        reject(new Error(`ended before it printed ${text}: ${stdout}${stderr}`));
      });
      look();
    });
  return { child, done, printed };
}

async function startServer(...words: readonly string[]): Promise<Program & { url: string }> {
  const directory = mkdtempSync(join(tmpdir(), "hapax-cli-"));
  const place = words.includes("--memory") ? [] : ["--dir", directory];
  const program = start(["serve", "--port", "0", ...place, ...words]);
  void program.done.then(() => {
    rmSync(directory, { recursive: true, force: true });
  });
  const ready = /^hapax listening on (\S+) \(durability: (?:fsync|memory)\)$/m;
  const [, url = ""] = ready.exec(await program.printed("\n")) ?? [];
  return { ...program, url };
}

let server: Program & { url: string };

async function hapax(words: readonly string[], stdin = "") {
  const program = start(words, { HAPAX_URL: server.url });
  program.child.stdin?.end(stdin);
  return program.done;
}

beforeAll(async () => {
  server = await startServer("--test-faults");
});

afterEach(() => {
  for (const child of running) if (child !== server.child) child.kill("SIGKILL");
});

afterAll(() => {
  server.child.kill("SIGKILL");
});

describe("a stream from its creation to its end", () => {
  test("create, append, read, head, list, close and delete work together", async () => {
    expect((await hapax(["create", "cli/orders"])).stdout).toMatch(/^created \/v1\/stream\/cli/);
    expect((await hapax(["create", "cli/orders"])).stdout).toMatch(/^already exists/);
    await hapax(["append", "cli/orders", '{"n": 1.0}']);
    const lines = await hapax(["append", "cli/orders"], "1e400\n\n[2, 3]\n");
    expect(lines.stdout).toMatch(/^appended 2 records/);
    const read = await hapax(["read", "cli/orders"]);
    expect(read).toEqual({ code: 0, stdout: '{"n": 1.0}\n1e400\n[2, 3]\n', stderr: "" });
    expect((await hapax(["list", "cli/or"])).stdout).toMatch(
      /^\/v1\/stream\/cli\/orders +application\/json +\S+ +open$/m,
    );
    expect((await hapax(["close", "cli/orders"])).stdout).toMatch(/^closed/);
    expect((await hapax(["head", "cli/orders"])).stdout).toMatch(/^closed +yes$/m);
    const refused = await hapax(["append", "cli/orders", "5"]);
    expect(refused.code).toBe(1);
    expect(refused.stderr).toContain("stream_closed");
    expect((await hapax(["delete", "cli/orders"])).code).toBe(0);
    expect((await hapax(["read", "cli/orders"])).code).toBe(4);
  });

  test("a tail prints what comes and ends with the close", async () => {
    await hapax(["append", "cli/live", "--create", '"first"']);
    const tail = start(["tail", "cli/live", "--from-start"], { HAPAX_URL: server.url });
    await tail.printed('"first"\n');
    await hapax(["append", "cli/live", '"second"']);
    await tail.printed('"second"\n');
    await hapax(["append", "cli/live", '"last"', "--close"]);
    const end = await tail.done;
    expect(end).toEqual({ code: 0, stdout: '"first"\n"second"\n"last"\n', stderr: "" });
  });

  test("Ctrl-C ends a tail with exit code 0", async () => {
    await hapax(["append", "cli/endless", "--create", "1"]);
    const tail = start(["tail", "cli/endless", "--from-start"], { HAPAX_URL: server.url });
    await tail.printed("1\n");
    tail.child.kill("SIGINT");
    expect(await tail.done).toEqual({ code: 0, stdout: "1\n", stderr: "" });
  });
});

describe("large and unlucky", () => {
  test("50,000 lines arrive in order, each once, although answers are lost", async () => {
    await hapax(["create", "cli/big"]);
    const fault = { path: "/v1/stream/cli/big", method: "POST", count: 2, dropConnection: true };
    const injected = await fetch(`${server.url}/_test/inject-error`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(fault),
    });
    expect(injected.ok).toBe(true);
    const input = Array.from({ length: 50_000 }, (_, i) => `{"number":${String(i)}}\n`).join("");
    const appended = await hapax(["append", "cli/big"], input);
    expect(appended.stdout).toMatch(/^appended 50,000 records/);
    expect(appended.stderr).toContain("trying POST again");
    expect((await hapax(["read", "cli/big"])).stdout === input).toBe(true);
  });

  test("bytes come back as they went in", async () => {
    const text = "\r\nä\n".repeat(400_000);
    const words = ["append", "cli/bytes", "--create", "--content-type", "application/octet-stream"];
    expect((await hapax(words, text)).code).toBe(0);
    expect((await hapax(["read", "cli/bytes"])).stdout === text).toBe(true);
  });

  test("a reader that has seen enough ends a read quietly", async () => {
    const input = `${JSON.stringify("x".repeat(10_000))}\n`.repeat(500);
    await hapax(["append", "cli/pipe", "--create"], input);
    const read = start(["read", "cli/pipe"], { HAPAX_URL: server.url });
    await read.printed('"');
    read.child.stdout?.destroy();
    expect(await read.done).toMatchObject({ code: 0, stderr: "" });
  });
});

describe("serve", () => {
  test("SIGTERM ends an idle server with 0, and its stdout holds the ready line alone", async () => {
    const own = await startServer();
    own.child.kill("SIGTERM");
    const end = await own.done;
    expect(end.code).toBe(0);
    expect(end.stdout).toBe(`hapax listening on ${own.url} (durability: fsync)\n`);
    expect(end.stderr).toContain("and survive a power cut");
  });

  test("keys have the options of the server, and a reset leaves a line with its time", async () => {
    const own = await startServer("--memory", "--key-max", "1", "--key-overflow", "reject");
    const run = async (...words: readonly string[]) => {
      const program = start(words, { HAPAX_URL: own.url });
      program.child.stdin?.end();
      return program.done;
    };
    await run("append", "orders", "--create", "1", "--key", "a");
    const refused = await run("append", "orders", "2", "--key", "b", "--retry-seconds", "0");
    expect(refused.code).toBe(1);
    expect(refused.stderr).toContain("429 key_window_full");
    await run("append", "orders", "3", "--producer", "till", "--epoch", "9");
    expect((await run("producers", "orders", "--reset", "till")).code).toBe(0);
    own.child.kill("SIGTERM");
    const end = await own.done;
    expect(end.stderr).toMatch(
      /^\{"time":"\S+Z","level":"info","event":"audit","message":"producer.reset done","audit":\{.*"target":"till".*"details":\{"stream":"\/v1\/stream\/orders","epoch":9,"sequence":0\}\}\}$/m,
    );
  });

  test("a port in use is one line on stderr and exit code 1", async () => {
    const taken = createServer().listen(0, "127.0.0.1");
    await once(taken, "listening");
    const address = taken.address();
    const port = typeof address === "object" ? (address?.port ?? 0) : 0;
    const end = await start(["serve", "--memory", "--port", String(port)]).done;
    taken.close();
    expect(end).toMatchObject({ code: 1, stdout: "" });
    expect(end.stderr.trim().split("\n")).toHaveLength(1);
  });

  test("a client without a server ends with exit code 3", async () => {
    const own = await startServer();
    own.child.kill("SIGTERM");
    await own.done;
    const end = await start(["head", "orders"], { HAPAX_URL: own.url }).done;
    expect(end.code).toBe(3);
  });
});
