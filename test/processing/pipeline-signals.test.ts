// Workers in processes of their own, which run programs of dist/: what SIGTERM and a second worker do to a function that never
// waits. GUARANTEES.md G23, G24
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import Database from "libsql";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { GroupOptions } from "../../src/client/processing/group.ts";
import { fill, INPUT, lagOf, type Numbered, numbers, OUTPUT, valuesOf } from "./pipeline-kit.ts";
import { openStage, type ProcessingStage } from "./stage.ts";

const WORKER = fileURLToPath(new URL("worker.mjs", import.meta.url));
const KINDS = ["streams", "a database", "ids"] as const;

interface Line {
  readonly begun?: number;
  readonly told?: boolean;
  readonly event?: string;
  readonly stream?: string;
  readonly ended?: number;
}

interface Job {
  readonly kind: (typeof KINDS)[number];
  readonly from: GroupOptions;
  readonly workMs: number;
}

/** A worker, and its lines so far. */
class Worker {
  readonly lines: Line[] = [];
  readonly ended: Promise<number | NodeJS.Signals>;
  readonly #child: ChildProcess;
  #look = (): void => undefined;

  constructor(child: ChildProcess) {
    this.#child = child;
    if (child.stdout === null) throw new Error("the worker has no output");
    createInterface(child.stdout).on("line", (line) => {
      this.lines.push(JSON.parse(line) as Line);
      this.#look();
    });
    this.ended = new Promise((resolve) => {
      child.once("close", (code, signal) => {
        resolve(signal ?? code ?? -1);
        this.#look();
      });
    });
  }

  /** The numbers of the records whose function was called. */
  get begun(): readonly number[] {
    return this.lines.flatMap(({ begun }) => (begun === undefined ? [] : [begun]));
  }

  /** Resolves when the lines so far are as wanted. */
  until(isThere: (worker: Worker) => boolean): Promise<void> {
    return new Promise((resolve, reject) => {
      const look = (): void => {
        if (isThere(this)) resolve();
        else if (this.#child.exitCode !== null) reject(new Error("the worker has ended"));
      };
      this.#look = look;
      look();
    });
  }

  /** SIGTERM. Resolves with how it ended. */
  stop(): Promise<number | NodeJS.Signals> {
    this.#child.kill("SIGTERM");
    return this.ended;
  }

  kill(): void {
    this.#child.kill("SIGKILL");
  }
}

let stage: ProcessingStage;
let folder: string;
let database: string;
let workers: Worker[];
beforeEach(async () => {
  stage = await openStage();
  folder = mkdtempSync(join(tmpdir(), "hapax-signals-"));
  database = join(folder, "effects.db");
  workers = [];
  const connection = new Database(database);
  connection.exec("PRAGMA journal_mode = WAL");
  connection.exec("CREATE TABLE effects (id INTEGER PRIMARY KEY, n INTEGER)");
  connection.close();
});
afterEach(async () => {
  for (const worker of workers) worker.kill();
  await Promise.all(workers.map((worker) => worker.ended));
  await stage.close();
  rmSync(folder, { recursive: true, force: true });
});

function start(job: Job): Worker {
  const options = { url: stage.server.url, database, out: OUTPUT, ...job };
  const child = spawn(process.execPath, [WORKER, JSON.stringify(options)], {
    stdio: ["ignore", "pipe", "inherit", "ipc"],
  });
  const worker = new Worker(child);
  workers.push(worker);
  return worker;
}

async function storedBy(kind: Job["kind"]): Promise<number[]> {
  if (kind !== "a database") return (await valuesOf(stage.direct, OUTPUT)).map(({ n }) => n);
  const connection = new Database(database);
  const rows = connection.prepare("SELECT n FROM effects ORDER BY id").all() as readonly Numbered[];
  connection.close();
  return rows.map(({ n }) => n);
}

/** Processes the rest without any work. */
async function finish(job: Job, count: number): Promise<void> {
  const last = start({ ...job, workMs: 0 });
  await expect.poll(async () => (await storedBy(job.kind)).length, { timeout: 50_000 }).toBe(count);
  expect(await last.stop()).toBe(0);
  expect(await lagOf(stage.direct, "work")).toBe(0);
}

describe.each(KINDS)("with effects in %s", (kind) => {
  test("SIGTERM ends a busy worker after the current record, and what it has processed is stored", async () => {
    // Outputs for a sink with ids are appended one by one.
    const COUNT = kind === "ids" ? 40 : 200;
    await fill(stage.direct, INPUT, COUNT);
    if (kind === "streams") await stage.direct.stream(OUTPUT).create();
    const job: Job = { kind, from: { streams: [INPUT] }, workMs: 5000 / COUNT };
    const worker = start(job);
    await worker.until(({ begun }) => begun.length >= 3);
    expect(await worker.stop()).toBe(0);
    const { begun, lines } = worker;
    // All of them are one page, and without an end they would be one transaction.
    expect(begun.length).toBeLessThan(COUNT);
    const told = lines.findIndex((line) => line.told);
    expect(lines.slice(told).filter((line) => line.begun !== undefined)).toEqual([]);
    const { ended = -1 } = lines.at(-1) ?? {};
    expect(await storedBy(kind)).toEqual(numbers(ended));
    // With ids, for a second at most.
    if (kind !== "ids") expect(ended).toBe(begun.length);
    await finish(job, COUNT);
    expect(await storedBy(kind)).toEqual(numbers(COUNT));
  });
});

test("G23 a second worker gets its share of the streams while the first one is busy, and no record counts twice", async () => {
  const inputs = numbers(4).map((n) => `/v1/stream/in/${String(n)}`);
  const COUNT = 300;
  for (const [at, input] of inputs.entries()) await fill(stage.direct, input, COUNT, at * COUNT);
  await stage.direct.stream(OUTPUT).create();
  const job: Job = { kind: "streams", from: { pattern: "/v1/stream/in/*" }, workMs: 10 };
  const first = start(job);
  await first.until(({ begun }) => begun.length >= 10);
  const second = start(job);
  const leasedBy = ({ lines }: Worker): number =>
    lines.filter(({ event }) => event === "leased").length -
    lines.filter(({ event }) => event === "handed_over" || event === "lost").length;
  await second.until((worker) => leasedBy(worker) === 2 && worker.begun.length >= 3);
  await first.until((worker) => leasedBy(worker) === 2);
  // No stream was taken from it: it gave them back.
  expect(first.lines.filter(({ event }) => event === "lost")).toEqual([]);
  expect(await Promise.all([first.stop(), second.stop()])).toEqual([0, 0]);
  expect(first.begun.length + second.begun.length).toBeLessThan(inputs.length * COUNT);
  await finish(job, inputs.length * COUNT);
  const values = await storedBy("streams");
  for (const at of inputs.keys()) {
    const own = values.filter((n) => Math.floor(n / COUNT) === at);
    expect(own).toEqual(numbers(COUNT).map((n) => at * COUNT + n));
  }
});
