// What a runtime that has the head of a request asks of it.
import { expect, test } from "vitest";
import { isHapaxError } from "../../base/errors.ts";
import { checkHead, type RequestHead } from "./request-head.ts";

function headOf(lines: readonly string[], target = "/v1/stream/orders"): RequestHead {
  const byName = new Map<string, string>();
  for (let at = 0; at < lines.length; at += 2) {
    byName.set(lines[at]?.toLowerCase() ?? "", lines[at + 1] ?? "");
  }
  const field = (name: string): string | undefined => byName.get(name);
  return { target, version: "1.1", lines, names: byName.size, field };
}

test.each([
  [["Accept", "*/*"], /Host is missing/],
  [["Host", "a b"], /Host is not a host/],
  [["Host", "a", "Transfer-Encoding", "gzip, chunked"], /Transfer-Encoding is not chunked/],
  [["Host", "a", "Expect", "tea"], /Expect is not 100-continue/],
  [["Host", "a", "Producer-Seq", "1", "producer-seq", "2"], /producer-seq is sent twice/],
] as const)("a request with the head %j is refused", (lines, message) => {
  const check = (): void => checkHead("POST", headOf(lines));
  expect(check).toThrow(message);
  expect(check).toThrow(expect.objectContaining({ code: "invalid_request" }) as Error);
});

test("a target that is neither a path nor a URL is refused, but for OPTIONS", () => {
  const head = headOf(["Host", "a"], "*");
  expect(() => checkHead("GET", head)).toThrow(/request target/);
  expect(() => checkHead("OPTIONS", head)).not.toThrow();
  try {
    checkHead("GET", headOf(["Host", "a"], "http://a b/"));
    expect.unreachable();
  } catch (error) {
    expect(isHapaxError(error, "invalid_request")).toBe(true);
  }
});
