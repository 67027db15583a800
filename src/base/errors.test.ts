import { expect, test } from "vitest";
import { HapaxError as ClientError, isHapaxError } from "./error-codes.ts";
import { type ErrorCode, ERRORS, HapaxError, helpOf } from "./errors.ts";

const codes = Object.keys(ERRORS) as ErrorCode[];

test("an error has the status, the advice and the help of its code, not those of an answer", () => {
  for (const code of codes) {
    const { status, retry, help } = ERRORS[code];
    const cause = new Error("why");
    const error = new HapaxError(code, "words", { cause, status: 418 });
    expect(error).toMatchObject({
      name: "HapaxError",
      code,
      message: "words",
      status,
      retry,
      help,
    });
    expect(error.cause).toBe(cause);
    expect("cause" in new HapaxError(code, "words")).toBe(false);
  }
});

test("the client's errors have the same status and advice, and help by way of the table", () => {
  for (const code of codes) {
    const { status, retry, help } = ERRORS[code];
    const error = new ClientError(code, "words", { status });
    expect(error).toMatchObject({ name: "HapaxError", code, status, retry });
    expect(error.help).toContain(code);
    expect(helpOf(error)).toBe(help);
  }
});

test("the client's class takes a code that is not its own with a status only", () => {
  // @ts-expect-error The status is missing: it does not compile.
  expect(new ClientError("stream_closed", "words").status).toBe(500);
});

test("a code that this side does not know has the status of its answer", () => {
  // Cast: a newer server has more codes than the type.
  const code = "from_the_future" as string as ErrorCode;
  const error = new HapaxError(code, "words", { status: 429 });
  expect([error.status, error.retry]).toEqual([429, "later"]);
  expect(error.help).toContain("docs/errors.md");
  expect(new HapaxError(code, "words").status).toBe(500);
});

test("each class takes the errors of the other for its own, and a subclass only its own", () => {
  class Special extends HapaxError {}
  const all = new HapaxError("internal", "words");
  const client = new ClientError("internal", "words");
  const special = new Special("internal", "words");
  for (const error of [all, client, special]) {
    expect(error).toBeInstanceOf(HapaxError);
    expect(error).toBeInstanceOf(ClientError);
    expect(isHapaxError(error, "internal")).toBe(true);
    expect(isHapaxError(error, "refused")).toBe(false);
    expect(error instanceof Special).toBe(error === special);
  }
  for (const other of [new Error("words"), { name: "HapaxError", code: "internal" }, undefined]) {
    expect(other).not.toBeInstanceOf(HapaxError);
    expect(isHapaxError(other)).toBe(false);
  }
});
