// Log entries as lines. PROTOCOL.md §22.3.
import { expect, test } from "vitest";
import type { LogEntry } from "../log.ts";
import { createLogWriter, jsonLine, textLine } from "./log-writer.ts";

const ENTRY: LogEntry = {
  time: "2026-01-01T00:00:00.000Z",
  level: "info",
  event: "request",
  message: "GET /v1/stream/a 200",
  requestId: "r-1",
  method: "GET",
  path: "/v1/stream/a",
  status: 200,
  ms: 1.5,
};

test.each([
  { path: "/v1/stream/a\nhapax: forged" },
  { path: "/v1/stream/\u001b[2J" },
  { requestId: "r\r\n2" },
  { identity: "\u202eevil\u0085" },
  { method: "GET\u0000" },
])("no text of a request can make a second line or steer a terminal: %j", (members) => {
  for (const encode of [jsonLine, textLine]) {
    const line = encode({ ...ENTRY, ...members });
    expect(line.endsWith("\n")).toBe(true);
    expect(/^[ -~]+$/.test(line.slice(0, -1))).toBe(true);
  }
  expect(JSON.parse(jsonLine({ ...ENTRY, ...members }))).toEqual({ ...ENTRY, ...members });
});

test.each([
  ["error", ["error"]],
  ["warn", ["error", "warn"]],
  ["info", ["error", "warn", "info"]],
  ["debug", ["error", "warn", "info", "debug"]],
] as const)("the level %s takes %j", async (level, taken) => {
  const lines: string[] = [];
  const writer = createLogWriter(
    (text) => {
      lines.push(text);
      return Promise.resolve();
    },
    { format: "json", level, nowMs: () => 0 },
  );
  for (const one of ["error", "warn", "info", "debug"] as const)
    writer.log({ ...ENTRY, level: one });
  await writer.settled();
  expect(lines.map((line) => (JSON.parse(line) as LogEntry).level)).toEqual(taken);
});

test("a reader that takes nothing costs a bounded memory, and learns how many lines it has missed", async () => {
  const held: (() => void)[] = [];
  const lines: string[] = [];
  const writer = createLogWriter(
    (text) => {
      lines.push(text);
      return new Promise((resolve) => held.push(resolve));
    },
    { format: "json", level: "info", nowMs: () => 0 },
  );
  const count = 20_000;
  for (let at = 0; at < count; at += 1) writer.log(ENTRY);
  const bytes = lines.reduce((sum, line) => sum + line.length, 0);
  expect(bytes).toBeLessThan(1.1 * 1024 * 1024);
  expect(lines.length).toBeLessThan(count);
  const missed = count - lines.length;
  while (held.length > 0) {
    held.shift()?.();
    await Promise.resolve();
    await Promise.resolve();
  }
  await writer.settled();
  const said = lines.filter((line) => line.includes("were dropped"));
  expect(said.join()).toContain(`${missed} log lines were dropped`);
});

test("a writer that fails is as one that has taken the line", async () => {
  const writer = createLogWriter(() => Promise.reject(new Error("EPIPE")), {
    format: "text",
    level: "info",
    nowMs: () => 0,
  });
  for (let at = 0; at < 10_000; at += 1) writer.log(ENTRY);
  await writer.settled();
});
