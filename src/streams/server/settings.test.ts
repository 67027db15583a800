import { expect, test } from "vitest";
import { isHapaxError } from "../../base/errors.ts";
import { LIMITS } from "../../protocol/limits.ts";
import { resolveSettings, type ServerSettings } from "./settings.ts";

test("the defaults are the limits, frozen, with faults off", () => {
  const settings = resolveSettings();
  expect(settings).toEqual({
    longPollMs: LIMITS.longPollMs,
    bodyMaxBytes: LIMITS.bodyBytesMax,
    answersMaxBytes: LIMITS.answersBytesMax,
    sseMaxSeconds: LIMITS.sseMaxSeconds,
    readerStallMs: LIMITS.readerStallMs,
    readerBufferBytes: LIMITS.readerBufferBytesMax,
    allowLoopbackWebhooks: true,
    keyWindowSeconds: 86_400,
    keyMax: 100_000,
    keyOverflow: "evict",
    stateOffsets: false,
    testFaults: false,
  });
  expect(Object.isFrozen(settings)).toBe(true);
});

test("all problems are reported together, each with its field, its value and what is allowed", () => {
  const wrong: ServerSettings = { longPollMs: 0, bodyMaxBytes: 1.5, sseMaxSeconds: Number.NaN };
  let message = "";
  try {
    resolveSettings(wrong);
  } catch (error) {
    if (isHapaxError(error, "invalid_settings")) message = error.message;
  }
  expect(message).toBe(
    "longPollMs=0 is not a whole number from 1 to 600000; " +
      "bodyMaxBytes=1.5 is not a whole number from 1 to 1073741824; " +
      "sseMaxSeconds=NaN is not a whole number from 1 to 86400",
  );
});
