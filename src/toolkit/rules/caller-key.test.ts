// When a kept key may be sent: every small case of ages, windows and what the server said.
import { describe, expect, test } from "vitest";
import { applyExpiry, decideUse, isWorthRepeating, type KeyRecord } from "./caller-key.ts";

const WINDOW_MS = 10;
const record: KeyRecord = { key: "k", digest: "d", madeAtMs: 100 };

describe("decideUse", () => {
  test("sends if and only if the attempt ends within the window and before the expiry", () => {
    for (let nowMs = 95; nowMs <= 115; nowMs += 1) {
      for (let timeoutMs = 1; timeoutMs <= 4; timeoutMs += 1) {
        for (const expiresAtMs of [undefined, 103, 108, 120]) {
          const kept = { ...record, ...(expiresAtMs === undefined ? {} : { expiresAtMs }) };
          const endMs = nowMs + timeoutMs;
          const isInTime = endMs <= 110 && endMs <= (expiresAtMs ?? Infinity);
          // A clock that went back by more than a tenth of the window is not believed.
          const expected = isInTime && nowMs >= 99 ? "send" : "expired";
          expect(decideUse(kept, { digest: "d", nowMs, windowMs: WINDOW_MS, timeoutMs })).toBe(
            expected,
          );
        }
      }
    }
  });

  test("another content is refused, also when the key is expired", () => {
    for (const nowMs of [100, 1000]) {
      const attempt = { digest: "other", nowMs, windowMs: WINDOW_MS, timeoutMs: 1 };
      expect(decideUse(record, attempt)).toBe("reused");
    }
  });
});

test("what the server says counts if it is earlier than what is known", () => {
  expect(applyExpiry(record, undefined, WINDOW_MS)).toBe(record);
  expect(applyExpiry(record, 110, WINDOW_MS)).toBe(record);
  const earlier = applyExpiry(record, 105, WINDOW_MS);
  expect(earlier).toEqual({ ...record, expiresAtMs: 105 });
  expect(applyExpiry(earlier, 107, WINDOW_MS)).toBe(earlier);
});

test("408, 425, 429, 5xx and a conflict with a running request are worth another attempt, unless they were kept", () => {
  const again = Array.from({ length: 600 }, (_, status) => status).filter((status) =>
    isWorthRepeating({ status, isDuplicate: false, isInProgress: false }),
  );
  const server = Array.from({ length: 100 }, (_, at) => 500 + at);
  const expected = [408, 425, 429, ...server.filter((status) => status !== 501 && status !== 505)];
  expect(again).toEqual(expected);
  expect(isWorthRepeating({ status: 409, isDuplicate: false, isInProgress: true })).toBe(true);
  for (const status of [200, 409, 422, 500, 503]) {
    expect(isWorthRepeating({ status, isDuplicate: true, isInProgress: true })).toBe(false);
  }
});
