// PROTOCOL.md §10
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

test("what a parser refuses names the field", () => {
  const error = invalid("Producer-Seq", "is not a number");
  expect(isHapaxError(error, "invalid_request")).toBe(true);
  expect(error.message).toBe("Producer-Seq is not a number");
});
