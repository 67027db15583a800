/** Servers and the load in processes of their own, and what the kernel says of them. */

import { fork } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

/** Linux counts the time of processes in hundredths of a second. */
const TICK_MS = 10;

function start(file, args, options) {
  const path = fileURLToPath(new URL(file, import.meta.url));
  const child = fork(path, args, { stdio: ["ignore", "inherit", "inherit", "ipc"], ...options });
  const waiting = [];
  child.on("message", (message) => {
    const index = waiting.findIndex(({ kinds }) => kinds.includes(message.kind));
    if (index !== -1) waiting.splice(index, 1)[0].resolve(message);
  });
  child.once("exit", (code) => {
    for (const { reject } of waiting.splice(0))
      reject(new Error(`${file} ended with code ${code}`));
  });
  const next = (...kinds) =>
    new Promise((resolve, reject) => waiting.push({ kinds, resolve, reject }));
  const forget = (kind) => {
    for (const one of waiting.filter(({ kinds }) => kinds.includes(kind))) {
      waiting.splice(waiting.indexOf(one), 1);
    }
  };
  return { child, next, forget };
}

export async function startServer(kind, directory, options = {}) {
  const { child, next } = start("server.mjs", [kind, directory], options);
  const { port, ports } = await next("ready");
  return {
    kind,
    port,
    ports,
    pid: child.pid,
    async stats() {
      const answer = next("stats");
      child.send({ kind: "stats" });
      return answer;
    },
    async stop() {
      if (child.exitCode !== null) return;
      const ended = new Promise((resolve) => child.once("exit", resolve));
      child.send({ kind: "stop" });
      const cut = setTimeout(() => child.kill("SIGKILL"), 15_000);
      await ended;
      clearTimeout(cut);
    },
  };
}

export async function startLoad() {
  const { child, next, forget } = start("load.mjs", [], {});
  await next("ready");
  return {
    async run(task) {
      const result = next("result", "failure");
      child.send(task);
      return resultOf(await result);
    },
    /** Runs a task that marks the start and the end of what it measures. */
    async measure(task, server) {
      const marks = [next("mark"), next("mark")];
      const result = next("result", "failure");
      for (const mark of marks) mark.catch(() => undefined);
      child.send(task);
      await Promise.race([marks[0], result]);
      const before = await usageOf(server);
      await Promise.race([marks[1], result]);
      const after = await usageOf(server);
      const ended = await result;
      forget("mark"); // A task that failed has not sent them all.
      return { ...resultOf(ended), usage: differenceOf(before, after) };
    },
    stop() {
      child.disconnect();
    },
  };
}

function resultOf(message) {
  if (message.kind === "failure") throw new Error(message.message);
  return message.result;
}

async function usageOf(server) {
  const cpu = cpuOf(server.pid);
  const atMs = performance.now();
  return { cpu, atMs, stats: await server.stats() };
}

function differenceOf(before, after) {
  const seconds = (after.atMs - before.atMs) / 1000;
  const { commits, liveBytes } = after.stats;
  return {
    seconds,
    userMs: after.cpu.userMs - before.cpu.userMs,
    systemMs: after.cpu.systemMs - before.cpu.systemMs,
    ...(commits === undefined
      ? {}
      : { commitsPerSecond: (commits - before.stats.commits) / seconds }),
    ...(liveBytes === undefined ? {} : { liveBytes: liveBytes - before.stats.liveBytes }),
  };
}

/** The time of all threads. */
function cpuOf(pid) {
  const text = readFileSync(`/proc/${pid}/stat`, "utf8");
  const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
  return { userMs: Number(fields[11]) * TICK_MS, systemMs: Number(fields[12]) * TICK_MS };
}
