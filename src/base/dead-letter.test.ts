// Reasons of dead letters: equal ones are found together, and anything can be thrown.
import { expect, test } from "vitest";
import { fingerprintFailure, groupLetters, reasonOf } from "./dead-letter.ts";

test("failures that differ in numbers and ids alone are the same", () => {
  const one = fingerprintFailure("Error", "order 17 of 2026-11-16 (id 9f8e-77) timed out");
  expect(fingerprintFailure("Error", "order 4 of 2025-01-02 (id 0aaa-12) timed out")).toBe(one);
  expect(fingerprintFailure("Error", "order 17 was refused")).not.toBe(one);
  expect(fingerprintFailure("TypeError", "order 17 of 2026-11-16 (id 9f8e-77) timed out")).not.toBe(
    one,
  );
});

test("a reason has the code or the name of what was thrown, and what it says", () => {
  const coded = Object.assign(new Error("no route"), { code: "EHOSTUNREACH" });
  const thrown = [new RangeError("seven"), coded, "text", undefined, Object.create(null)];
  const messages = thrown.map((error) => reasonOf(error).message);
  expect(messages.slice(0, 4)).toEqual([
    "RangeError: seven",
    "EHOSTUNREACH: no route",
    "Error: text",
    "Error: undefined",
  ]);
  expect(messages[4]).toContain("Error: ");
  expect(reasonOf(new Error("x".repeat(5000))).message).toHaveLength(1007);
});

test("groups have the most frequent reason first, and its first and last letter", () => {
  const [one, other] = [reasonOf(new Error("a 1")), reasonOf(new Error("b"))];
  const reasons = [one, other, reasonOf(new Error("a 2")), undefined];
  const letters = reasons.map((reason, at) => ({ id: String(at), reason }));
  expect(groupLetters(letters)).toEqual([
    { ...one, count: 2, firstId: "0", lastId: "2" },
    { ...other, count: 1, firstId: "1", lastId: "1" },
    { fingerprint: "", message: "", count: 1, firstId: "3", lastId: "3" },
  ]);
});
