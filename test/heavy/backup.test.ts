// `hapax backup` of a server under load, in processes: with kills at any time and at every system call of the backup and of the
// restore. With `npm run test:crash` all calls and many rounds. GUARANTEES.md, G142 and G143.
import { spawn } from "node:child_process";
import { existsSync, rmSync } from "node:fs";
import { connect as connectSocket, type Socket } from "node:net";
import { join } from "node:path";
import { expect, test, type TestContext } from "vitest";
import { connect } from "../../src/client/client.ts";
import { inDirectory, type ServerProcess, startServer } from "../crash/processes.ts";
import { choose } from "../crash/recorded-script.ts";
import { CALLS, callsIn, inject, type Occurrence, record, straceMissing } from "../crash/strace.ts";

const IS_LONG = process.env["HAPAX_LONG"] !== undefined;
const BIN = new URL("../../dist/bin.js", import.meta.url).pathname;
const JOURNAL = { segmentBytes: 1 << 20, snapshotBytes: 4 << 20 };

interface Ended {
  readonly how: number | NodeJS.Signals;
  readonly text: string;
}

/** One command as a process of its own; `killAfterMs` ends it as a kill does. */
function command(
  words: readonly string[],
  more: {
    readonly killAfterMs?: number;
    readonly wrapper?: readonly string[];
    readonly env?: object;
  } = {},
): Promise<Ended> {
  const [program = "", ...args] = [...(more.wrapper ?? []), process.execPath, BIN, ...words];
  const child = spawn(program, args, { env: { ...process.env, ...more.env } });
  let text = "";
  child.stdout.on("data", (chunk) => (text += String(chunk)));
  child.stderr.on("data", (chunk) => (text += String(chunk)));
  const timer =
    more.killAfterMs === undefined
      ? undefined
      : setTimeout(() => child.kill("SIGKILL"), more.killAfterMs);
  return new Promise((resolve) => {
    child.once("close", (code, signal) => {
      clearTimeout(timer);
      resolve({ how: signal ?? code ?? -1, text });
    });
  });
}

const DEPTH = 64;

/** Appends numbers to a stream of its own, many requests on their way at once over one socket. */
class Pipe {
  readonly path: string;
  readonly #socket: Socket;
  readonly #host: string;
  #rest = "";
  #isOver = false;
  #ended: () => void = () => undefined;
  sent = 0;
  acked = 0;

  constructor(url: URL, name: string) {
    this.path = `/v1/stream/${name}`;
    this.#host = url.host;
    this.#socket = connectSocket(Number(url.port), url.hostname);
    this.#socket.setNoDelay(true);
  }

  async run(): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      this.#ended = resolve;
      this.#socket.on("error", reject);
      this.#socket.on("data", (chunk: Buffer) => this.#hear(chunk.toString("latin1")));
      this.#send(DEPTH);
    });
    this.#socket.destroy();
  }

  stop(): void {
    this.#isOver = true;
  }

  #send(count: number): void {
    let text = "";
    for (let at = 0; at < count; at += 1) {
      this.sent += 1;
      const body = `${String(this.sent).padStart(9, "0")};`;
      text += `POST ${this.path} HTTP/1.1\r\nHost: ${this.#host}\r\nContent-Type: text/plain\r\nContent-Length: 10\r\n\r\n${body}`;
    }
    this.#socket.write(text);
  }

  #hear(text: string): void {
    const parts = (this.#rest + text).split("HTTP/1.1 204");
    this.#rest = parts.pop()?.slice(-16) ?? "";
    this.acked += parts.length;
    if (!this.#isOver) this.#send(parts.length);
    else if (this.acked === this.sent) this.#ended();
  }
}

async function underLoad(
  server: ServerProcess,
  pipes: number,
  work: (all: readonly Pipe[]) => Promise<void>,
): Promise<number> {
  const url = new URL(server.url);
  const all = Array.from({ length: pipes }, (_, at) => new Pipe(url, `load-${at}`));
  for (const { path } of all) {
    await connect(new URL(path, url)).create({ contentType: "text/plain" });
  }
  const beganMs = performance.now();
  const running = all.map((pipe) => pipe.run());
  try {
    await work(all);
  } finally {
    for (const pipe of all) pipe.stop();
    await Promise.all(running);
  }
  const total = all.reduce((sum, { acked }) => sum + acked, 0);
  return total / ((performance.now() - beganMs) / 1000);
}

/** All that was acknowledged before is there, and the records are the first ones that were sent. */
async function compare(
  directory: string,
  before: ReadonlyMap<string, number>,
  all: readonly Pipe[],
) {
  const restored = await startServer({ dir: directory });
  try {
    for (const { path, sent } of all) {
      const bytes = await connect(new URL(path, restored.url)).read().bytes();
      const count = bytes.length / 10;
      const last = Buffer.from(bytes.subarray(-10)).toString("latin1");
      expect(last).toBe(`${String(count).padStart(9, "0")};`);
      expect(count).toBeGreaterThanOrEqual(before.get(path) ?? 0);
      expect(count).toBeLessThanOrEqual(sent);
    }
  } finally {
    await restored.stop();
  }
}

test(
  "G142 a backup of a server under thousands of appends a second, with kills of the backup, has all that was acknowledged",
  { timeout: IS_LONG ? 900_000 : 120_000 },
  async () => {
    await inDirectory(async (dir) => {
      const server = await startServer({ dir: join(dir, "data"), journal: JOURNAL });
      const backups = join(dir, "backups");
      let kills = 0;
      const rate = await underLoad(server, 16, async (all) => {
        for (let round = 0; round < (IS_LONG ? 12 : 2); round += 1) {
          for (const killAfterMs of IS_LONG ? [150, 250, 350, 450, 600] : [250, 400]) {
            const { how } = await command(["backup", backups, "--url", server.url], {
              killAfterMs,
            });
            if (how === "SIGKILL") kills += 1;
          }
          const before = new Map(all.map(({ path, acked }) => [path, acked]));
          const made = await command([
            "backup",
            backups,
            "--url",
            server.url,
            "--bytes-per-second",
            "0",
          ]);
          expect(made, made.text).toMatchObject({ how: 0 });
          const target = join(dir, `restored-${round}`);
          const restored = await command(["restore", backups, target]);
          expect(restored, restored.text).toMatchObject({ how: 0 });
          await compare(target, before, all);
          rmSync(target, { recursive: true });
        }
      });
      console.log(`${Math.round(rate)} appends a second, ${kills} backups killed`);
      expect(kills).toBeGreaterThan(0);
      await server.stop();
    });
  },
);

const missing = straceMissing();

function requireStrace(context: TestContext): void {
  if (missing === undefined) return;
  if (process.env["CI"] === "true") throw new Error(missing);
  context.skip(missing);
}

/** The calls of a command that change the disk, as strace sees them. */
async function callsOf(
  words: readonly string[],
  dir: string,
  log: string,
): Promise<readonly Occurrence[]> {
  const { wrapper = [], env = {} } = record(log);
  const { how, text } = await command(words, { wrapper, env });
  expect(how, text).toBe(0);
  return callsIn(log, dir).filter(({ call }) => call !== "openat");
}

const SHARE = 4;

test(
  "G142 G143 a kill at any system call of a backup and of a restore leaves nothing half",
  { timeout: IS_LONG ? 1_800_000 : 180_000 },
  async (context) => {
    requireStrace(context);
    await inDirectory(async (dir) => {
      const server = await startServer({ dir: join(dir, "data"), journal: JOURNAL });
      await underLoad(server, 2, () => new Promise((resolve) => setTimeout(resolve, 200)));
      await server.maintain();
      const [backups, target] = [join(dir, "backups"), join(dir, "target")];
      const backup = ["backup", backups, "--url", server.url, "--keep", "3"];
      const restore = ["restore", backups, target];
      const check = ["restore", "--check", backups];
      const fresh = () => rmSync(target, { recursive: true, force: true });
      const all = await callsOf(backup, backups, join(dir, "log-backup"));
      expect(new Set(all.map(({ call }) => call)).size).toBeGreaterThan(2);
      const stream = connect(`${server.url}/v1/stream/load-0`);
      let kills = 0;
      for (const { call, when } of choose(all, IS_LONG ? all.length : SHARE)) {
        if (!CALLS.includes(call as never)) continue;
        await stream.append(`${String(when)};`);
        const killed = await command(backup, inject(call, `signal=SIGKILL:when=${when}`));
        if (killed.how === "SIGKILL") kills += 1;
        const sound = await command(check);
        expect(sound, `${call} ${when}: ${sound.text}`).toMatchObject({ how: 0 });
      }
      const made = await command(backup);
      expect(made, made.text).toMatchObject({ how: 0 });
      const calls = await callsOf(restore, target, join(dir, "log-restore"));
      for (const { call, when } of choose(calls, IS_LONG ? calls.length : SHARE)) {
        fresh();
        const killed = await command(restore, inject(call, `signal=SIGKILL:when=${when}`));
        if (killed.how !== "SIGKILL") continue;
        kills += 1;
        const isOpen = existsSync(join(target, "STORE")) && !existsSync(join(target, "COPY"));
        const seen = await command(["verify", target]);
        expect(seen.how === 0, `${call} ${when}: ${seen.text}`).toBe(isOpen);
        if (isOpen) continue;
        const again = await command(restore);
        expect(again, `${call} ${when}: ${again.text}`).toMatchObject({ how: 0 });
      }
      console.log(`killed at ${kills} of ${all.length + calls.length} system calls`);
      expect(kills).toBeGreaterThan(IS_LONG ? 20 : 3);
      await server.stop();
    });
  },
);
