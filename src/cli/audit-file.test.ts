// The audit log as a file. PROTOCOL.md §22.4.
import {
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { AuditEntry } from "../streams/log.ts";
import { openAuditFile } from "./audit-file.ts";

let folder: string;
let complaints: string[];
let nowMs: number;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "hapax-audit-"));
  complaints = [];
  nowMs = 1_000_000;
});

afterEach(() => {
  rmSync(folder, { recursive: true, force: true });
});

const entry = (target: string): AuditEntry => ({
  time: "2026-01-01T00:00:00.000Z",
  act: "stream.delete",
  outcome: "done",
  target,
});
const open = (path: string) =>
  openAuditFile(
    path,
    () => nowMs,
    (message) => complaints.push(message),
  );
const targetsIn = (path: string): unknown[] =>
  readFileSync(path, "utf8")
    .trimEnd()
    .split("\n")
    .map((line) => (JSON.parse(line) as AuditEntry).target);

test("each entry is a line of JSON in a file that only its owner may read, and is there at once", () => {
  const path = join(folder, "audit.log");
  const file = open(path);
  file.write(entry("/v1/stream/a"));
  file.write(entry('/v1/stream/b\n{"act":"forged"}\u001b[31m'));
  expect(targetsIn(path)).toEqual(["/v1/stream/a", '/v1/stream/b\n{"act":"forged"}\u001b[31m']);
  // No byte of it can steer a terminal.
  expect(/^[\n -~]*$/.test(readFileSync(path, "latin1"))).toBe(true);
  expect(statSync(path).mode & 0o777).toBe(0o600);
  file.close();
});

test("a file is never cut or written over, and a line that a crash has cut is ended", () => {
  const path = join(folder, "audit.log");
  writeFileSync(path, '{"target":"old"}\n{"target":"cu');
  const file = open(path);
  file.write(entry("new"));
  file.close();
  const lines = readFileSync(path, "utf8").split("\n");
  expect(lines.slice(0, 2)).toEqual(['{"target":"old"}', '{"target":"cu']);
  expect(JSON.parse(lines[2] ?? "")).toMatchObject({ target: "new" });
});

test("after a rename, reopen goes on in a new file, and the old one keeps what it has", () => {
  const path = join(folder, "audit.log");
  const file = open(path);
  file.write(entry("one"));
  renameSync(path, `${path}.1`);
  file.write(entry("two"));
  file.reopen();
  file.write(entry("three"));
  file.close();
  expect(targetsIn(`${path}.1`)).toEqual(["one", "two"]);
  expect(targetsIn(path)).toEqual(["three"]);
  expect(statSync(path).mode & 0o777).toBe(0o600);
});

test("a reopen that fails is reported, and entries go on into the old file", () => {
  const path = join(folder, "audit.log");
  const file = open(path);
  renameSync(path, `${path}.1`);
  symlinkSync(join(folder, "elsewhere"), path);
  file.reopen();
  file.write(entry("one"));
  file.close();
  expect(complaints.join()).toContain("audit entries go on into the old file");
  expect(targetsIn(`${path}.1`)).toEqual(["one"]);
});

test.each([
  ["a link", (path: string) => symlinkSync("/tmp/elsewhere", path)],
  ["a device", undefined],
])("%s is refused", (_, make) => {
  const path = make === undefined ? "/dev/full" : join(folder, "audit.log");
  make?.(path);
  expect(() => open(path)).toThrow("cannot open the audit file");
});

test("what cannot be written is counted, and reported once a second", () => {
  const file = open(join(folder, "audit.log"));
  file.close(); // From now on every write fails.
  for (let at = 0; at < 5; at += 1) file.write(entry("lost"));
  expect(complaints).toHaveLength(1);
  nowMs += 1000;
  file.write(entry("lost"));
  expect(complaints).toHaveLength(2);
  expect(complaints[1]).toContain("lost=6");
});
