import { describe, expect, test } from "vitest";
import { HapaxError as ClientError } from "./error-codes.ts";
import { ERRORS, HapaxError } from "./errors.ts";
import { OptionsCheck } from "./options-check.ts";

function thrownBy(call: () => void): unknown {
  try {
    call();
  } catch (error) {
    return error;
  }
  return undefined;
}

describe("OptionsCheck", () => {
  test("lists all problems in one error", () => {
    const check = new OptionsCheck(HapaxError);
    expect(check.number("leaseMs", undefined, 5, 1, 10)).toBe(5);
    check.number("leaseMs", 11, 5, 1, 10);
    check.number("waitMs", NaN, 0, 0);
    check.problem("group is empty");
    expect(() => check.end()).toThrow(
      "leaseMs=11 is not from 1 to 10; waitMs=NaN is not from 0 to Infinity; group is empty",
    );
  });

  test("throws nothing without a problem", () => {
    expect(() => new OptionsCheck(HapaxError).end()).not.toThrow();
  });

  test.each(["invalid_options", "invalid_request"] as const)(
    "throws %s as the class of the wing, so that its help is the one of the wing",
    (code) => {
      const [ours, clients] = [HapaxError, ClientError].map((Failure) => {
        const check = new OptionsCheck(Failure);
        check.problem("wrong");
        return thrownBy(() => check.end(code));
      });
      expect(ours).toMatchObject({ code, help: ERRORS[code].help });
      expect(clients).toMatchObject({ code, help: `See ${code} in docs/errors.md.` });
    },
  );
});
