// The bytes of answers. test/protocol/lane.test.ts compares them with those of node:http.
import { expect, test } from "vitest";
import { encodeLaneAnswer, HeadEnds, requireWhole } from "./node-lane-answer.ts";

const ends = new HeadEnds(65_000);
const DATE = /Date: \w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT/;

function encoded(...args: [Parameters<typeof encodeLaneAnswer>[0], boolean]): string {
  return encodeLaneAnswer(args[0], ends, args[1]).replace(DATE, "Date: now");
}

test("an answer without a body says that the connection stays, and for how long", () => {
  expect(encoded({ status: 204, headers: { "Stream-Next-Offset": "1" } }, false)).toBe(
    "HTTP/1.1 204 No Content\r\nStream-Next-Offset: 1\r\nDate: now\r\n" +
      "Connection: keep-alive\r\nKeep-Alive: timeout=65\r\n\r\n",
  );
});

test("the last answer says so, and a body is counted in bytes", () => {
  const body = [Buffer.from("caf\u00e9"), Buffer.from([0, 255])];
  expect(encoded({ status: 400, headers: {}, body }, true)).toBe(
    "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 7\r\n" +
      `Date: now\r\n\r\n${Buffer.concat(body).toString("latin1")}`,
  );
});

test.each(["a\r\nb", "a\nb", "\0", "\u0100", "\u007f"])(
  "a header with the value %j is never sent",
  (value) => {
    expect(() => encoded({ status: 200, headers: { X: value } }, false)).toThrow(/cannot be sent/);
  },
);

test("answers that no append has are refused", () => {
  expect(() => requireWhole({ status: 200, headers: {}, live: () => undefined })).toThrow(/lane/);
  expect(() => requireWhole({ status: 200, headers: {}, mayCompress: true })).toThrow(/lane/);
});
