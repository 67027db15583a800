import { expect, test } from "vitest";
import { isHapaxError } from "../../base/errors.ts";
import { LIMITS } from "../../protocol/limits.ts";
import { resolveServerOptions, type ServerOptions } from "./options.ts";

test.each([undefined, "0.0.0.0", "10.1.2.3"])(
  "G37 the reach of a server decides: the address %s needs authentication, or the word that it is open",
  (address) => {
    const without = { address, hasAuthentication: false };
    expect(() => resolveServerOptions({}, without)).toThrow(/without authentication every client/);
    expect(resolveServerOptions({ insecurePublic: true }, without).insecurePublic).toBe(true);
    resolveServerOptions({}, { address, hasAuthentication: true });
  },
);

test("the defaults are the limits, frozen, with faults off", () => {
  const options = resolveServerOptions();
  expect(options).toEqual({
    longPollMs: LIMITS.longPollMs,
    bodyBytesMax: LIMITS.bodyBytesMax,
    bodiesBytesMax: LIMITS.bodiesBytesMax,
    answersBytesMax: LIMITS.answersBytesMax,
    pendingBytesMax: LIMITS.pendingBytesMax,
    heldBytesMax: LIMITS.heldBytesMax,
    outcomeBytesMax: LIMITS.outcomeBytesMax,
    sseSecondsMax: LIMITS.sseSecondsMax,
    readerStallMs: LIMITS.readerStallMs,
    readerBufferBytes: LIMITS.readerBufferBytesMax,
    corsOrigins: [],
    insecurePublic: false,
    authorizeTimeoutMs: LIMITS.authorizeTimeoutMs,
    quotas: {},
    allowLoopbackWebhooks: true,
    keyWindowSeconds: 86_400,
    keyMax: 100_000,
    keyOverflow: "evict",
    retentionSeconds: 0,
    retentionBytes: 0,
    stateOffsets: false,
    registry: false,
    logRequests: "none",
    logSample: 1,
    testFaults: false,
  });
  expect(Object.isFrozen(options)).toBe(true);
});

test.each([
  "hapax.example.com:4437", // A URL whose scheme is a host. Its origin would be "null", that of every sandboxed page.
  "localhost:4437",
  "hapax.example.com",
  "file:///srv",
  "https://me:secret@hapax.example.com",
  "https://hapax.example.com?tenant=1",
  "https://hapax.example.com#top",
  "",
])("G37 publicUrl=%s is refused", (publicUrl) => {
  expect(() => resolveServerOptions({ publicUrl })).toThrow(`publicUrl=${publicUrl} is not`);
});

test("publicUrl may have a path", () => {
  const publicUrl = "https://example.com/hapax";
  expect(resolveServerOptions({ publicUrl }).publicUrl).toBe(publicUrl);
});

test("all problems are reported together, each with its field, its value and what is allowed", () => {
  const wrong: ServerOptions = { longPollMs: 0, bodyBytesMax: 1.5, sseSecondsMax: Number.NaN };
  let message = "";
  try {
    resolveServerOptions(wrong);
  } catch (error) {
    if (isHapaxError(error, "invalid_options")) message = error.message;
  }
  expect(message).toBe(
    "longPollMs=0 is not a whole number from 1 to 600000; " +
      "bodyBytesMax=1.5 is not a whole number from 1 to 1073741824; " +
      "sseSecondsMax=NaN is not a whole number from 1 to 86400",
  );
});
