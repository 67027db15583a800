import { expect, test } from "vitest";
import { KeptStatements } from "./postgres-keeping.ts";

const LOCK = { name: "lock", types: ["text"], text: "SELECT $1" };
const END = { name: "end", types: ["text", "bigint"], text: "INSERT INTO t VALUES ($1, $2)" };
const PREPARE =
  "PREPARE end(text,bigint) AS INSERT INTO t VALUES ($1, $2); PREPARE lock(text) AS SELECT $1; ";
const DROP = "DEALLOCATE lock; DEALLOCATE end; ";

test("the third use of a connection prepares its statements, and later ones find them", () => {
  const kept = new KeptStatements([LOCK, END]);
  const [one, other] = [{}, {}];
  const uses = Array.from({ length: 5 }, () => kept.before(one, 0));
  expect(uses).toEqual([undefined, undefined, PREPARE, "", ""]);
  expect(kept.before(other, 0)).toBeUndefined();
});

test("plans are made again after ten seconds, and only if the connection is still used often", () => {
  const kept = new KeptStatements([LOCK, END]);
  const connection = {};
  const uses = (nowMs: number): (string | undefined)[] =>
    Array.from({ length: 4 }, () => kept.before(connection, nowMs));
  expect(uses(0)).toEqual([undefined, undefined, PREPARE, ""]);
  expect(kept.before(connection, 9_999)).toBe("");
  expect(uses(10_000)).toEqual([undefined, undefined, DROP + PREPARE, ""]);
  expect(kept.before(connection, 20_000)).toBeUndefined();
  expect(kept.before(connection, 30_000)).toBeUndefined();
});

test("after an error that says that they are forgotten, no connection gets statements", () => {
  for (const code of ["26000", "42P05"]) {
    const kept = new KeptStatements([LOCK, END]);
    const connection = {};
    for (let use = 0; use < 3; use += 1) kept.before(connection, 0);
    expect(kept.areForgotten(Object.assign(new Error("no"), { code: "23505" }))).toBe(false);
    expect(kept.areForgotten(undefined)).toBe(false);
    expect(kept.before(connection, 0)).toBe("");
    expect(kept.areForgotten(Object.assign(new Error("no"), { code }))).toBe(true);
    expect(kept.before(connection, 0)).toBeUndefined();
  }
});

test("a connection that failed to prepare gets no statements any more, and others do", () => {
  const kept = new KeptStatements([LOCK, END]);
  const [one, other] = [{}, {}];
  for (let use = 0; use < 3; use += 1) kept.before(one, 0);
  kept.bar(one);
  const uses = Array.from({ length: 4 }, (_, use) => kept.before(one, use * 10_000));
  expect(uses).toEqual([undefined, undefined, undefined, undefined]);
  const others = Array.from({ length: 3 }, () => kept.before(other, 0));
  expect(others).toEqual([undefined, undefined, PREPARE]);
});
