// Real disks that fail: full, broken and slow ones, too few file descriptors, and two processes on one
// directory. No false answer, no torn record, reads go on, and the server says what is the matter.
import { rmSync, writeFileSync } from "node:fs";
import { Agent } from "node:http";
import { connect, type Socket } from "node:net";
import { join } from "node:path";
import { beforeAll, expect, test, type TestContext, vi } from "vitest";
import { inDirectory, runTool, type ServerProcess, startServer } from "../crash/processes.ts";
import { choose, type RecordedScript, recordScript } from "../crash/recorded-script.ts";
import {
  readState,
  reopenAndRetry,
  runScript,
  SCRIPT,
  SCRIPT_JOURNAL,
  stateAfter,
} from "../crash/script.ts";
import { type Call, CALLS, inject, straceMissing } from "../crash/strace.ts";
import { call, type HttpAnswer, members } from "../protocol/raw-http.ts";

const isLong = process.env["HAPAX_CRASH_CYCLES"] !== undefined;
const MIB = 1024 * 1024;
const TEXT = { "content-type": "text/plain" };
const LIMIT = { timeout: isLong ? 1_800_000 : 180_000 };

const missing = straceMissing();

/** Where a tool may be missing the test is left out and says so; in CI that is a failure. */
function requireTool(context: TestContext, reason: string | undefined): void {
  if (reason === undefined) return;
  if (process.env["CI"] === "true") throw new Error(reason);
  context.skip(reason);
}

function append(
  server: ServerProcess,
  stream: string,
  number: number,
  body: string,
  agent?: Agent,
): Promise<HttpAnswer> {
  const identity = { "producer-id": "p", "producer-epoch": "0", "producer-seq": String(number) };
  const headers = { ...TEXT, ...identity };
  const options = agent === undefined ? {} : { agent };
  return call("POST", server.url, `/v1/stream/${stream}`, { headers, body, ...options });
}

async function create(server: ServerProcess, stream: string): Promise<void> {
  const { status } = await call("PUT", server.url, `/v1/stream/${stream}`, { headers: TEXT });
  expect(status).toBe(201);
}

async function readText(server: ServerProcess, stream: string): Promise<string> {
  let text = "";
  for (let offset = "-1"; ;) {
    const answer = await call("GET", server.url, `/v1/stream/${stream}?offset=${offset}`);
    expect(answer.status).toBe(200);
    text += answer.text;
    offset = String(answer.headers["stream-next-offset"]);
    if (answer.headers["stream-up-to-date"] === "true") return text;
  }
}

function recordOf(number: number, bytes: number): string {
  const unit = `${number};`;
  return unit.repeat(Math.ceil(bytes / unit.length)).slice(0, bytes);
}

/** A file system of its own, so small that it fills. */
async function onSmallDisk(
  context: TestContext,
  run: (dir: string) => Promise<void>,
): Promise<void> {
  await inDirectory(async (dir) => {
    const isMounted = runTool("mount", ["-t", "tmpfs", "-o", "size=3m", "tmpfs", dir]);
    requireTool(context, isMounted ? undefined : "this user may not mount a small disk");
    try {
      await run(dir);
    } finally {
      runTool("umount", ["-l", dir]);
    }
  });
}

/** Appends until the disk is full; resolves with the number of the append that was refused. */
async function fill(server: ServerProcess, from: number): Promise<number> {
  for (let number = from; ; number += 1) {
    const answer = await append(server, "full", number, recordOf(number, 9000));
    if (answer.status === 200) continue;
    expect([answer.status, members(answer).get("code")]).toEqual([507, "store_full"]);
    return number;
  }
}

function textUpTo(number: number): string {
  return Array.from({ length: number }, (_, index) => recordOf(index, 9000)).join("");
}

test(
  "a full disk refuses with 507, tears nothing and goes on when there is room",
  LIMIT,
  (context) =>
    onSmallDisk(context, async (dir) => {
      const journal = {
        segmentBytes: 256 * 1024,
        snapshotBytes: 512 * 1024,
        cacheBytes: 64 * 1024,
      };
      const ballast = join(dir, "ballast");
      writeFileSync(ballast, Buffer.alloc(MIB));
      let server = await startServer({ dir: join(dir, "data"), journal });
      await create(server, "full");
      await create(server, "other");
      const refused = await fill(server, 0);
      expect(refused).toBeGreaterThan(20);
      expect(await readText(server, "full")).toBe(textUpTo(refused));
      expect((await call("HEAD", server.url, "/v1/stream/full")).status).toBe(200);
      // Every one of a crowd is answered, and none of them hangs.
      const crowd = Array.from({ length: 50 }, (_, number) =>
        append(server, "other", number, "x".repeat(9000)),
      );
      expect(new Set((await Promise.all(crowd)).map(({ status }) => status))).toEqual(
        new Set([507]),
      );

      rmSync(ballast);
      let answer: HttpAnswer | undefined;
      await vi.waitUntil(
        async () => {
          answer = await append(server, "full", refused, recordOf(refused, 9000));
          return answer.status !== 507;
        },
        { timeout: 30_000, interval: 100 },
      );
      expect(answer?.status).toBe(200);
      const next = await fill(server, refused + 1);
      expect(await readText(server, "full")).toBe(textUpTo(next));

      await server.kill();
      server = await startServer({ dir: join(dir, "data"), journal });
      expect(await readText(server, "full")).toBe(textUpTo(next));
      expect((await append(server, "full", next - 1, "again")).status).toSatisfy(
        (status) => status === 204 || status === 507,
      );
      await server.kill();
    }),
);

test(
  "deletes make room on a full disk without a restart, and health tells the truth all the while",
  LIMIT,
  (context) =>
    onSmallDisk(context, async (dir) => {
      const journal = {
        segmentBytes: 256 * 1024,
        snapshotBytes: 512 * 1024,
        cacheBytes: 64 * 1024,
      };
      const server = await startServer({ dir: join(dir, "data"), journal });
      const put = async (number: number): Promise<number> => {
        const body = recordOf(number, number % 5 === 0 ? 300 : 9000);
        const path = `/v1/stream/s${number}`;
        return (await call("PUT", server.url, path, { headers: TEXT, body })).status;
      };
      const writes = async (): Promise<unknown> =>
        members(await call("GET", server.url, "/_hapax/health")).get("writes");
      let next = 0;
      const putUntilRefused = async (): Promise<number> => {
        const from = next;
        while ((await put(next)) === 201) next += 1;
        return next - from;
      };
      for (let round = 0; round < 4; round += 1) {
        const from = next;
        await vi.waitUntil(
          async () => {
            await putUntilRefused();
            return next - from > 50;
          },
          { timeout: 60_000, interval: 500 },
        );
        for (let number = from; number < next; number += 1) {
          if (number % 10 === 0) continue;
          const { status } = await call("DELETE", server.url, `/v1/stream/s${number}`);
          expect(status).toBe(204);
        }
      }
      await vi.waitUntil(async () => (await put(next)) === 201, { timeout: 60_000, interval: 500 });
      expect(await writes()).toBe("open");
      expect(server.stderr()).not.toContain("writes_stopped");
      await server.stop();
    }),
);

test(
  "a server stops and starts on a disk without a free byte, and serves its streams",
  LIMIT,
  (context) =>
    onSmallDisk(context, async (dir) => {
      const journal = { segmentBytes: 256 * 1024, snapshotBytes: 512 * 1024 };
      const data = join(dir, "data");
      const first = await startServer({ dir: data, journal });
      await create(first, "full");
      const refused = await fill(first, 0);
      expect(await first.stop()).toBe(0);
      // Fails when there is no room for one more byte, which is what is wanted.
      runTool("dd", ["if=/dev/zero", `of=${join(dir, "ballast")}`]);
      const second = await startServer({ dir: data, journal });
      expect(await readText(second, "full")).toBe(textUpTo(refused));
      await second.kill();
    }),
);

test(
  "on a full disk a flood of empty creates is refused, and deletes are still answered",
  LIMIT,
  (context) =>
    onSmallDisk(context, async (dir) => {
      const journal = { segmentBytes: 256 * 1024, snapshotBytes: 512 * 1024 };
      const server = await startServer({ dir: join(dir, "data"), journal });
      await create(server, "full");
      await fill(server, 0);
      // They carry no data, but each needs a kilobyte for its name.
      const statuses = new Set<number>();
      for (let number = 0; number < 400; number += 1) {
        const path = `/v1/stream/${number}-${"n".repeat(900)}`;
        statuses.add((await call("PUT", server.url, path, { headers: TEXT })).status);
      }
      expect(statuses).toContain(507);
      expect((await call("DELETE", server.url, "/v1/stream/full")).status).toBe(204);
      expect((await call("GET", server.url, "/v1/stream/full")).status).toBe(404);
      await server.kill();
    }),
);

/** Calls that fail in `npm test`; `npm run test:crash` fails each of them. */
const CHOICE = 20;
let script: RecordedScript = { calls: [], files: [] };

beforeAll(async () => {
  if (missing === undefined) script = await recordScript();
});

type DiskError = "EIO" | "ENOSPC";

/** The script on a disk whose k-th call fails once. */
async function failAt(
  dir: string,
  name: Call,
  when: number,
  error: DiskError,
): Promise<readonly string[]> {
  let server: ServerProcess;
  try {
    const fault = inject(name, `error=${error}:when=${when}`);
    server = await startServer({ dir, journal: SCRIPT_JOURNAL, ...fault });
  } catch {
    return reopenAndRetry(dir, 0); // It refused to start: fine.
  }
  const outcome = await runScript(server.url, () => server.maintain());
  const { refusal } = outcome;
  let { acked } = outcome;
  const problems: string[] = [];
  if (refusal !== undefined && !(await isReadable(server, acked))) {
    problems.push(`reads changed after step ${acked}`);
  }
  if (refusal?.status === 507 && error === "ENOSPC") {
    acked = await untilThereIsRoom(server);
  } else if (refusal !== undefined) {
    problems.push(...(await whatIsWrongWithStop(server, refusal)));
  } else if (acked < SCRIPT.length) {
    problems.push(`the server ended: ${server.stderr()}`);
  }
  await server.kill();
  problems.push(...(await reopenAndRetry(dir, acked)));
  return problems;
}

/** The disk was full for one call only: the server finds that out by itself. */
async function untilThereIsRoom(server: ServerProcess): Promise<number> {
  await vi.waitUntil(
    async () => (await runScript(server.url, () => server.maintain())).acked === SCRIPT.length,
    { timeout: 30_000, interval: 200 },
  );
  return SCRIPT.length;
}

async function whatIsWrongWithStop(
  server: ServerProcess,
  refusal: HttpAnswer,
): Promise<readonly string[]> {
  const problems: string[] = [];
  const health = await call("GET", server.url, "/_hapax/health");
  const facts = [refusal.status, members(refusal).get("code"), health.status];
  if (String(facts) !== String([503, "writes_stopped", 503])) {
    problems.push(`${facts.join(" ")} ${refusal.text}`);
  }
  const again = await runScript(server.url, () => Promise.resolve());
  if (again.acked > 0) problems.push("a write was accepted after the failure");
  return problems;
}

/** Whether every stream reads as after so many steps, as far as it is not about to come or go. */
async function isReadable(server: ServerProcess, acked: number): Promise<boolean> {
  const expected = stateAfter(acked);
  const step = SCRIPT[acked];
  const unsure = step === undefined || step.kind === "maintain" ? "" : step.stream;
  const streams = [...expected.keys()].filter(
    (stream) => stream !== unsure || step?.kind === "append",
  );
  const found = await readState(server.url, streams);
  return streams.every((stream) => found.get(stream)?.text === expected.get(stream)?.text);
}

for (const name of CALLS) {
  test(
    `an I/O error at ${name} gives no false answer and stops writes only`,
    LIMIT,
    async (context) => {
      requireTool(context, missing);
      const all = script.calls.filter(({ call: one }) => one === name);
      const count = isLong ? all.length : (all.length / script.calls.length) * CHOICE;
      const chosen = choose(all, count);
      for (const [index, { when }] of chosen.entries()) {
        const errors: DiskError[] = index % 2 === 0 ? ["EIO", "ENOSPC"] : ["ENOSPC", "EIO"];
        for (const error of errors.slice(0, isLong ? 2 : 1)) {
          const problems = await inDirectory((dir) => failAt(dir, name, when, error));
          expect(problems, `${name} number ${when} ${error}`).toEqual([]);
        }
      }
      console.log(`${name}: ${chosen.length} of ${all.length} calls failed`);
    },
  );
}

test("a slow sync does not slow reads", LIMIT, async (context) => {
  requireTool(context, missing);
  const fast = await readLatencies([]);
  const delay = "delay_enter=500000";
  const calls = "pwrite64,pwritev,fdatasync,fsync";
  const trace = ["-e", `trace=${calls}`, "-e", `inject=${calls}:${delay}`];
  const slow = await readLatencies(["strace", "-D", "-f", "-qq", "-o", "/dev/null", ...trace]);
  console.log(`reads without and with syncs of 500 ms: ${JSON.stringify({ fast, slow })}`);
  expect(slow.appendP50).toBeGreaterThan(400);
  // A read that waits for a sync takes 500 ms or more.
  for (const figure of ["headP99", "cachedP99", "oldP99"] as const) {
    expect(slow[figure]).toBeLessThan(Math.max(400, 2 * fast[figure]));
  }
});

interface Latencies {
  readonly appendP50: number;
  readonly headP99: number;
  readonly cachedP99: number;
  readonly oldP99: number;
}

/** Milliseconds that reads take while appends run all the time. */
function readLatencies(wrapper: readonly string[]): Promise<Latencies> {
  return inDirectory(async (dir) => {
    const journal = { segmentBytes: MIB, cacheBytes: 64 * 1024 };
    // What is read from the disk below is written fast.
    const before = await startServer({ dir, journal });
    await create(before, "old");
    await create(before, "new");
    for (let number = 0; number < 20; number += 1) {
      await append(before, "old", number, recordOf(number, 20_000));
    }
    expect(await before.stop()).toBe(0);
    const server = await startServer({ dir, journal, wrapper });
    const agent = new Agent({ keepAlive: true });
    const appends: number[] = [];
    let isStopped = false;
    const writers = Array.from({ length: 4 }, async (_, writer) => {
      while (!isStopped) {
        const body = recordOf(writer, 1000);
        appends.push(
          await timed(() => call("POST", server.url, "/v1/stream/new", { headers: TEXT, body })),
        );
      }
    });
    const read = async (method: string, path: string): Promise<number> => {
      const samples: number[] = [];
      for (let count = 0; count < 150; count += 1) {
        samples.push(await timed(() => call(method, server.url, path, { agent })));
      }
      return percentile(samples, 0.99);
    };
    const headP99 = await read("HEAD", "/v1/stream/new");
    const cachedP99 = await read("GET", "/v1/stream/new?offset=now");
    const oldP99 = await read("GET", "/v1/stream/old");
    isStopped = true;
    await Promise.all(writers);
    agent.destroy();
    await server.kill();
    return { appendP50: percentile(appends, 0.5), headP99, cachedP99, oldP99 };
  });
}

async function timed(run: () => Promise<HttpAnswer>): Promise<number> {
  const startMs = performance.now();
  const { status } = await run();
  expect(status).toBeLessThan(300);
  return performance.now() - startMs;
}

function percentile(samples: readonly number[], share: number): number {
  const sorted = [...samples].sort((one, other) => one - other);
  return Math.round((sorted[Math.floor(sorted.length * share)] ?? Number.NaN) * 10) / 10;
}

// Node opens the modules of the program side by side when it starts, so it needs more than a few.
const FEW_FILES = "--nofile=128";

test("more sockets than file descriptors do not stop writes", LIMIT, async (context) => {
  const works = runTool("prlimit", [FEW_FILES, "true"]);
  requireTool(context, works ? undefined : "prlimit is missing");
  await inDirectory(async (dir) => {
    const server = await startServer({ dir, wrapper: ["prlimit", FEW_FILES] });
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    const headers = TEXT;
    expect((await call("PUT", server.url, "/v1/stream/many", { headers, agent })).status).toBe(201);
    const crowd = await Promise.all(Array.from({ length: 200 }, () => settledSocket(server.url)));
    // Enough for the journal to need a new file while there is a crowd at the door.
    const bytes = 6 * MIB;
    for (let number = 0; number < 12; number += 1) {
      const answer = await append(server, "many", number, recordOf(number, bytes), agent);
      expect([answer.status, answer.text]).toEqual([200, ""]);
    }
    expect((await call("GET", server.url, "/_hapax/health", { agent })).status).toBe(200);
    for (const socket of crowd) socket.destroy();
    await server.kill();
    const again = await startServer({ dir });
    const expected = Array.from({ length: 12 }, (_, number) => recordOf(number, bytes)).join("");
    expect((await readText(again, "many")) === expected).toBe(true);
    await again.kill();
  });
});

/** A socket that says nothing; resolves when it is accepted or refused. */
function settledSocket(url: string): Promise<Socket> {
  const { hostname, port } = new URL(url);
  return new Promise((resolve) => {
    const socket = connect({ host: hostname, port: Number(port) });
    const settle = (): void => {
      resolve(socket);
    };
    socket.on("connect", settle);
    socket.on("error", settle);
  });
}

test(
  "a second process on the directory is refused, and a killed one leaves no lock behind",
  LIMIT,
  () =>
    inDirectory(async (dir) => {
      let server = await startServer({ dir });
      await create(server, "one");
      for (let number = 0; number < 5; number += 1) {
        // The refused one ends by itself, says why and who, and leaves the other one alone.
        const refused = await startServer({ dir }).catch((error: unknown) => String(error));
        expect(refused).toContain(`process ${server.child.pid} uses directory=`);
        expect(refused).toContain("ended with 1 ");
        expect((await append(server, "one", number, `${number},`)).status).toBe(200);
        server.child.kill("SIGKILL");
        // At once: without waiting until the first has gone.
        server = await startServer({ dir });
        expect((await append(server, "one", number, `${number},`)).status).toBe(204);
      }
      expect(await readText(server, "one")).toBe("0,1,2,3,4,");
      await server.kill();
    }),
);
