// The file with the keys of signed URLs. PROTOCOL.md §21.7.
import { expect, test } from "vitest";
import { parseUrlKeys } from "./url-keys.ts";

const secret = Buffer.alloc(32, "s").toString("base64url");

test("keys are read in their order: the first one signs", () => {
  const keys = [
    { id: "b", secret },
    { id: "a", secret },
  ];
  expect(parseUrlKeys(JSON.stringify({ keys }))).toEqual(keys);
});

test.each([
  ["no JSON", "keys", /must be JSON/],
  ["a list", "[]", /must be JSON/],
  ["another member", `{"keys":[{"id":"a","secret":"${secret}"}],"x":1}`, /must be JSON/],
  ["keys twice", `{"keys":[],"keys":[{"id":"a","secret":"${secret}"}]}`, /must be JSON/],
  ["no key", '{"keys":[]}', /1 to 20 entries/],
  ["a key with more", `{"keys":[{"id":"a","secret":"${secret}","x":1}]}`, /nothing else/],
  ["a key that is text", '{"keys":["a"]}', /keys\[0\] must have id and secret/],
  [
    "the same id twice",
    `{"keys":[{"id":"a","secret":"${secret}"},{"id":"a","secret":"${secret}"}]}`,
    /same id/,
  ],
  [
    "a short secret",
    '{"keys":[{"id":"a","secret":"c2VjcmV0"}]}',
    /keys\[0\] id=a must have a secret/,
  ],
  ["a secret with padding", `{"keys":[{"id":"a","secret":"${secret}="}]}`, /must have a secret/],
])("a file is refused: %s", (_name, text, problem) => {
  expect(() => parseUrlKeys(text)).toThrow(problem);
  expect(() => parseUrlKeys(text)).not.toThrow(new RegExp(`${secret}|c2VjcmV0`));
});
