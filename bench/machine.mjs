/** Where a benchmark ran: figures without machine, commit and durability are worth nothing. */

import { execFileSync } from "node:child_process";
import * as fs from "node:fs";
import { cpus, release, totalmem, type } from "node:os";
import { join } from "node:path";
import { root } from "../scripts/run.mjs";

export function machineOf(directory) {
  const { version } = JSON.parse(fs.readFileSync(join(root, "package.json"), "utf8"));
  return {
    cpu: cpus()[0]?.model.trim() ?? "unknown",
    cores: cpus().length,
    memoryGB: Math.round(totalmem() / 1e9),
    kernel: `${type()} ${release()}`,
    node: process.versions.node,
    hapax: version,
    commit: commit(),
    diskWritesPerSecond: probeDisk(directory),
  };
}

export function formatMachine(machine) {
  return [
    `machine     ${machine.cpu}, ${machine.cores} cores, ${machine.memoryGB} GB, ${machine.kernel}`,
    `node        ${machine.node}`,
    `hapax       ${machine.hapax}, commit ${machine.commit}`,
    `disk        ${machine.diskWritesPerSecond.toLocaleString("en-US")} durable writes/s ` +
      "(4 KiB, O_DSYNC, pre-zeroed, one after the other)",
  ].join("\n");
}

function commit() {
  try {
    const git = (...args) =>
      execFileSync("git", ["-C", root, ...args], {
        encoding: "utf8",
        stdio: ["ignore", "pipe", "ignore"],
      }).trim();
    const isDirty = git("status", "--porcelain", "--untracked-files=no") !== "";
    return git("rev-parse", "--short", "HEAD") + (isDirty ? " with changes" : "");
  } catch {
    return "none";
  }
}

/** What the disk itself can do: every durable append of one connection waits for one of these. */
export function probeDisk(directory, blockBytes = 4096, bytes = 4 * 1024 * 1024) {
  const file = join(directory, `hapax-probe-${process.pid}`);
  const block = Buffer.alloc(blockBytes, 1);
  try {
    fs.writeFileSync(file, Buffer.alloc(bytes), { flush: true });
    const flags = fs.constants.O_RDWR | (fs.constants.O_DSYNC ?? fs.constants.O_SYNC);
    const fd = fs.openSync(file, flags);
    let count = 0;
    const start = performance.now();
    while (performance.now() - start < 1000) {
      fs.writeSync(fd, block, 0, block.length, (count * block.length) % bytes);
      count += 1;
    }
    fs.closeSync(fd);
    return Math.round((count * 1000) / (performance.now() - start));
  } finally {
    fs.rmSync(file, { force: true });
  }
}
