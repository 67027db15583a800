// Which errors are an outage of the database, in the words and codes of each client.
import { expect, test } from "vitest";
import { noteLost, outageOf } from "./outage.ts";

function coded(code: string, message = "it broke"): Error {
  return Object.assign(new Error(message), { code });
}

test("what may pass, what has no room, what will never be, and what is the work's own", () => {
  const passing = [
    coded("40001"),
    coded("40P01"),
    coded("57P01"),
    coded("08006"),
    coded("CONNECTION_CLOSED"),
    coded("CONNECT_TIMEOUT"),
    new Error("database is locked"),
    coded("ERR_SQLITE_ERROR", "disk I/O error"),
  ];
  const full = [
    coded("53100"),
    new Error("database or disk is full"),
    new Error("SQLITE_FULL: 13"),
  ];
  const hopeless = [coded("28P01"), coded("3D000")];
  const own = [coded("23505"), coded("ECONNRESET"), coded("EPIPE"), new Error("no"), "text", null];
  const codes = (errors: readonly unknown[]) => errors.map((error) => outageOf(error)?.code);
  expect(new Set(codes(passing))).toEqual(new Set(["unreachable"]));
  expect(new Set(codes(full))).toEqual(new Set(["store_full"]));
  expect(new Set(codes(hopeless))).toEqual(new Set(["invalid_options"]));
  expect(new Set(codes(own))).toEqual(new Set([undefined]));
});

test("the error that undid a transaction is judged by its cause too, and kept as the cause", () => {
  const error = new Error("rolled back", { cause: coded("40P01", "deadlock detected") });
  const outage = outageOf(error);
  expect(outage).toMatchObject({ code: "unreachable", cause: error });
  expect(outage?.message).toContain("deadlock detected");
});

test("any error is an outage if the session says that its connection was lost", () => {
  const error = new Error("Connection terminated unexpectedly");
  expect(outageOf(error)).toBeUndefined();
  noteLost(error);
  expect(outageOf(error)?.code).toBe("unreachable");
  noteLost("no object");
});
