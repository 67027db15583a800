// Takeovers between real processes: the owner is stopped (SIGSTOP) at a statement of its commits, another process takes the
// streams over, and the first one wakes up (SIGCONT) and goes on committing. `npm run test:crash`: 1,000 takeovers.
import { type ChildProcess, spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createSeededRandom } from "../../src/testing/seeded-random.ts";
import { startPostgres, type TestPostgres, whyNoPostgres } from "../databases/postgres.ts";
import { freshSchema } from "./kit.ts";

const reason = whyNoPostgres() ?? (process.platform === "win32" ? "no SIGSTOP" : undefined);
if (reason !== undefined) console.log(`fencing between processes is not tested: ${reason}`);
const IS_LONG = process.env["HAPAX_LONG"] === "1";
const TAKEOVERS = IS_LONG ? 1000 : 21;
const PRODUCERS = 3;
const POINTS = ["before", "sent", "after"] as const;
/** How long an owner works before it is stopped at any other place, if the statement does not come. */
const WORK_MS = 2000;
const TYPE = { "Content-Type": "application/octet-stream" };

interface Order {
  readonly at: number;
  readonly point: (typeof POINTS)[number];
  readonly losesAnswers: boolean;
}

/** A process that owns the streams from time to time. */
class Owner {
  readonly child: ChildProcess;
  url = "";
  stoppedAt = "";
  #onStopping: (statement: string) => void = () => undefined;

  constructor(host: string, schema: string) {
    const program = fileURLToPath(new URL("fenced-owner.mjs", import.meta.url));
    this.child = spawn(process.execPath, [program, JSON.stringify({ host, schema })], {
      stdio: ["ignore", "pipe", "ignore", "ipc"],
    });
    this.child.stdout?.setEncoding("utf8").on("data", (text: string) => {
      const statement = /^stopping (.*)$/m.exec(text)?.[1];
      if (statement !== undefined) this.#onStopping(statement);
    });
  }

  #ask<T>(message: object): Promise<T> {
    return new Promise((resolve, reject) => {
      const onExit = (code: number | null): void =>
        reject(new Error(`an owner ended with ${code}`));
      this.child.once("exit", onExit);
      this.child.once("message", (answer) => {
        this.child.off("exit", onExit);
        resolve(answer as T);
      });
      this.child.send(message);
    });
  }

  async take(order: Order): Promise<number> {
    this.stoppedAt = "";
    this.#onStopping = (statement) => (this.stoppedAt = statement);
    const { url, epoch } = await this.#ask<{ url: string; epoch: number }>({ take: order });
    this.url = url;
    return epoch;
  }

  /** Waits until it has stopped itself; stops it if it does not. */
  async stopped(): Promise<void> {
    const begunMs = performance.now();
    while (this.stoppedAt === "" && performance.now() - begunMs < WORK_MS) await pause(2);
    this.child.kill("SIGSTOP");
  }

  async drop(): Promise<void> {
    // It may reach the statement at which it stops only now.
    const waking = setInterval(() => this.child.kill("SIGCONT"), 50);
    await this.#ask({ drop: true }).finally(() => clearInterval(waking));
  }
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, ms);
  });
}

/** Appends numbered records, each again and again until some owner has acknowledged it. */
class Producer {
  readonly path: string;
  readonly #id: string;
  /** The first record that was not acknowledged. */
  next = 0;
  /** Of records that were answered by an owner after the next one was there. */
  lateAcks = 0;
  offset = "";
  readonly problems: string[] = [];
  isDone = false;

  constructor(id: string) {
    this.#id = id;
    this.path = `/v1/stream/fenced/${id}`;
  }

  async send(url: string, sequence: number): Promise<{ status: number; offset: string }> {
    const headers = {
      ...TYPE,
      "Producer-Id": this.#id,
      "Producer-Epoch": "0",
      "Producer-Seq": String(sequence),
    };
    const body = `${String(sequence).padStart(9, "0")};${"x".repeat(890)}`;
    const answer = await fetch(`${url}${this.path}`, { method: "POST", headers, body });
    await answer.arrayBuffer();
    return { status: answer.status, offset: answer.headers.get("Stream-Next-Offset") ?? "" };
  }

  async work(urlNow: () => string): Promise<void> {
    while (!this.isDone) {
      const url = urlNow();
      const sequence = this.next;
      const sending = this.send(url, sequence).then(
        ({ status, offset }) => {
          this.#answered(sequence, status, offset, url !== urlNow());
        },
        () => undefined,
      );
      // An owner that was stopped does not answer. Its answer counts whenever it comes.
      let isOver = false;
      void sending.then(() => (isOver = true));
      while (!isOver && url === urlNow() && !this.isDone) await pause(1);
    }
  }

  #answered(sequence: number, status: number, offset: string, isLate: boolean): void {
    if (status !== 200 && status !== 204) return;
    if (isLate) this.lateAcks += 1;
    // A late answer may speak of a record that was acknowledged since. No answer may speak of one that is to come.
    if (sequence > this.next) this.problems.push(`${sequence} before ${this.next}`);
    if (sequence !== this.next) return;
    if (offset < this.offset) this.problems.push(`${offset} after ${this.offset}`);
    this.offset = offset;
    this.next += 1;
  }
}

describe.skipIf(reason !== undefined)("owners in processes", () => {
  let server: TestPostgres;

  beforeAll(async () => {
    server = await startPostgres();
  });

  afterAll(async () => {
    await server.stop();
  });

  test(
    "G80 takeovers from a process that was stopped at a statement and goes on lose nothing and store nothing twice",
    async () => {
      const random = createSeededRandom(102);
      const schema = freshSchema();
      let owner = new Owner(server.host, schema);
      let other = new Owner(server.host, schema);
      const statements = new Map<string, number>();
      const orderOf = (round: number): Order => ({
        at: 1 + random.below(24),
        point: POINTS[round % POINTS.length] ?? "before",
        losesAnswers: round % 2 === 1,
      });
      let epoch = await owner.take({ at: 0, point: "before", losesAnswers: false });
      const producers = Array.from({ length: PRODUCERS }, (_, at) => new Producer(`p${at}`));
      const zombie = new Producer("zombie");
      for (const { path } of [...producers, zombie]) {
        const made = await fetch(`${owner.url}${path}`, { method: "PUT", headers: TYPE });
        expect(made.status).toBe(201);
      }
      await owner.drop();
      epoch = await owner.take(orderOf(0));
      const working = producers.map((producer) => producer.work(() => owner.url));
      let zombieAcks = 0;
      for (let round = 1; round <= TAKEOVERS; round += 1) {
        await owner.stopped();
        const { stoppedAt } = owner;
        const kind = stoppedAt === "" ? "anywhere" : stoppedAt;
        statements.set(kind, (statements.get(kind) ?? 0) + 1);
        const before = epoch;
        epoch = await other.take(orderOf(round));
        expect(epoch).toBe(before + 1);
        [owner, other] = [other, owner];
        // It wakes up, and goes on with what it was doing, and with more.
        const late = zombie.send(other.url, 0).catch(() => ({ status: 0 }));
        const waking = setInterval(() => other.child.kill("SIGCONT"), 20);
        const { status } = await Promise.race([late, pause(5000).then(() => ({ status: -1 }))]);
        clearInterval(waking);
        if (status !== 503 && status !== 0) zombieAcks += 1;
        await other.drop();
        if (round % 100 === 0) console.log(`${round} takeovers`);
      }
      for (const producer of producers) producer.isDone = true;
      await Promise.all(working);
      // The last one has stopped itself, or will be stopped no more: another one looks at what there is.
      await owner.stopped();
      epoch = await other.take({ at: 0, point: "before", losesAnswers: false });
      let records = 0;
      for (const { path, next, problems } of [...producers, zombie]) {
        const answer = await fetch(`${other.url}${path}`);
        const text = await readAll(other.url, path, answer);
        const found = [...text.matchAll(/(\d{9});/g)].map(([, digits]) => Number(digits));
        expect(found).toEqual(found.map((_, at) => at));
        // What was not acknowledged when the work ended may be there.
        expect([next, next + 1]).toContain(found.length);
        expect(problems).toEqual([]);
        records += found.length;
      }
      expect(zombieAcks).toBe(0);
      expect(statements.size).toBeGreaterThan(3);
      const lateAcks = producers.reduce((sum, producer) => sum + producer.lateAcks, 0);
      console.log(
        JSON.stringify({
          takeovers: TAKEOVERS,
          records,
          lateAcks,
          stopped: Object.fromEntries(statements),
        }),
      );
      for (const { child } of [owner, other]) child.kill("SIGKILL");
    },
    IS_LONG ? 3_600_000 : 120_000,
  );
});

async function readAll(url: string, path: string, first: Response): Promise<string> {
  let answer = first;
  let text = "";
  for (;;) {
    text += await answer.text();
    const offset = answer.headers.get("Stream-Next-Offset") ?? "";
    if (answer.headers.get("Stream-Up-To-Date") === "true") return text;
    answer = await fetch(`${url}${path}?offset=${offset}`);
  }
}
