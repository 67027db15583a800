import { appendFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { checkHistory } from "./checker.ts";
import { openHistoryFile, readHistory } from "./checker-files.ts";
import { createHistory } from "./checker-history.ts";

let folder = "";

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "hapax-history-"));
});

afterAll(() => {
  rmSync(folder, { recursive: true, force: true });
});

const append = (process: string, id: string) =>
  ({ process, kind: "append", stream: "s", records: [{ id }] }) as const;

test("an operation ends once", () => {
  const history = createHistory();
  const call = history.invoke(append("p", "a"));
  call.unknown();
  expect(() => call.ok()).toThrow("operation 0 of p has ended already");
  expect(history.events.map(({ type }) => type)).toEqual(["invoke", "unknown"]);
});

test("each event is a line before its call returns", () => {
  const lines: string[] = [];
  const history = createHistory({ write: (line) => lines.push(line), nowUs: () => 7 });
  const call = history.invoke(append("p", "a"));
  const head = '"op":0,"process":"p","atUs":7';
  expect(lines).toEqual([
    `{"type":"invoke",${head},"call":{"kind":"append","stream":"s","records":[{"id":"a"}]}}\n`,
  ]);
  call.fail("fenced");
  expect(lines[1]).toBe(`{"type":"fail",${head},"code":"fenced"}\n`);
});

test("a file has each line when the call returns: a kill takes nothing back", () => {
  const path = join(folder, "killed.jsonl");
  const file = openHistoryFile(path);
  const call = file.invoke(append("p", "a"));
  const lines = (): number => readFileSync(path, "utf8").split("\n").length - 1;
  expect(lines()).toBe(1);
  expect(checkHistory(readHistory([path]), { streams: {} }).counts.unknown).toBe(1);
  call.ok();
  expect(lines()).toBe(2);
  expect(file.events).toEqual([]);
  file.close();
});

test("an unfinished line is no event, and the next process goes on behind the one before it", () => {
  const path = join(folder, "torn.jsonl");
  const first = openHistoryFile(path);
  first.invoke(append("p", "a")).ok();
  first.invoke(append("p", "b"));
  first.close();
  const whole = readFileSync(path, "utf8");
  appendFileSync(path, `{"type":"ok","op":1,"proc${"x".repeat(100_000)}`);
  expect(readHistory([path])).toHaveLength(3);
  const second = openHistoryFile(path);
  expect(readFileSync(path, "utf8")).toBe(whole);
  // It counts from 0 again, and its ends do not belong to the first process.
  second.invoke(append("p", "c")).ok();
  second.invoke(append("p", "d")).ok();
  second.close();
  const verdict = checkHistory(readHistory([path]), {
    streams: { s: ["a", "c", "d"].map((id) => ({ id })) },
  });
  expect(verdict).toMatchObject({
    ok: true,
    counts: { operations: 4, acknowledged: 3, unknown: 1 },
  });
});

test("a file with nothing but an unfinished line is empty", () => {
  const path = join(folder, "stump.jsonl");
  writeFileSync(path, "x".repeat(70_000));
  openHistoryFile(path).close();
  expect(readFileSync(path, "utf8")).toBe("");
  expect(readHistory([path])).toEqual([]);
});

test.for([
  ["not JSON", "{oops"],
  ["not an event of a history", "null"],
  [
    "not an event of a history",
    '{"type":"invoke","op":0,"process":"p","atUs":1,"call":{"kind":"dance"}}',
  ],
  ["the end of what never began", '{"type":"ok","op":0,"process":"p","atUs":1}'],
])("a damaged line is named: %s", ([reason = "", line = ""], { task }) => {
  const path = join(folder, `${task.id}.jsonl`);
  writeFileSync(path, `${line}\n`);
  expect(() => readHistory([path])).toThrow(`${path}:1: ${reason}`);
});

test("what ends and begins at one time is concurrent", () => {
  const paths = ["one", "other"].map((process, index) => {
    const lines: string[] = [];
    let nowUs = index * 10;
    const history = createHistory({
      write: (line) => lines.push(line),
      nowUs: () => (nowUs += 10),
    });
    history.invoke(append(process, process)).ok();
    const path = join(folder, `${process}.jsonl`);
    writeFileSync(path, lines.join(""));
    return path;
  });
  const streams = { s: [{ id: "other" }, { id: "one" }] };
  // The first ends at 20, when the second begins: either may have come first.
  expect(checkHistory(readHistory(paths), { streams }).ok).toBe(true);
});
