// PROTOCOL.md §10
import { readdirSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { type ErrorCode, ERRORS, isHapaxError } from "../base/errors.ts";
import { ERROR_TITLES, OTHER_TITLES } from "../base/error-titles.ts";
import { encodeProblem, invalid } from "./refusal.ts";

test("every code makes a problem document that says what happened and what to do", () => {
  for (const code of Object.keys(ERRORS) as ErrorCode[]) {
    const { status, help } = ERRORS[code];
    const title = ERROR_TITLES[code];
    // A server has no titles of errors that it does not answer.
    const given = Object.hasOwn(OTHER_TITLES, code) ? { title } : {};
    const bytes = encodeProblem({ code, detail: "why", ...given, facts: { expected: 1 } });
    const type = `urn:hapax:error:${code}`;
    const document: unknown = JSON.parse(new TextDecoder().decode(bytes));
    expect(document).toEqual({ type, title, status, code, detail: "why", help, expected: 1 });
  }
});

test("no module of the server makes an error whose title only the toolkit and the client have", () => {
  const others = Object.keys(OTHER_TITLES).join("|");
  const made = new RegExp(`(?:HapaxError\\(|code:)\\s*"(?:${others})"`);
  const found: string[] = [];
  for (const wing of ["../streams/", "./"]) {
    const folder = new URL(wing, import.meta.url);
    for (const file of readdirSync(folder, { recursive: true, encoding: "utf8" })) {
      if (!file.endsWith(".ts") || file.endsWith(".test.ts")) continue;
      if (made.test(readFileSync(new URL(file, folder), "utf8"))) found.push(file);
    }
  }
  expect(found).toEqual([]);
});

test("what a parser refuses names the field", () => {
  const error = invalid("Producer-Seq", "is not a number");
  expect(isHapaxError(error, "invalid_request")).toBe(true);
  expect(error.message).toBe("Producer-Seq is not a number");
});
