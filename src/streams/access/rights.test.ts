// Grants as JSON: what is not understood is refused. PROTOCOL.md §21.
import { expect, test } from "vitest";
import { readRights } from "./rights.ts";

const READ = { actions: ["read"] };

test("grants, a namespace and quotas are read as they are", () => {
  const rights = {
    grants: [
      { actions: ["read", "append"], streams: ["/v1/stream/orders/**"], producers: ["shop-*"] },
      { actions: ["consume"], groups: ["billing"], subscriptions: [] },
    ],
    namespace: "/v1/stream/ac me",
    quotas: { streamsMax: 10, appendsPerSecond: 0 },
  };
  expect(readRights(rights)).toEqual({ value: rights });
  expect(readRights({ grants: [] })).toEqual({ value: { grants: [] } });
});

const WRONG: readonly (readonly [name: string, json: unknown, problem: RegExp])[] = [
  ["no object", "read", /must be an object/],
  ["a list", [READ], /must be an object/],
  ["no grants", {}, /grants must be a list/],
  ["null", { grants: null }, /grants must be a list/],
  ["an unknown member", { grants: [READ], tenant: "a" }, /has a member that does not exist/],
  ["an unknown member of a grant", { grants: [{ ...READ, stream: ["/a"] }] }, /grants\[0\] has a/],
  ["a prototype as a member", JSON.parse('{"grants":[],"__proto__":{}}'), /has a member/],
  ["an unknown action", { grants: [READ, { actions: ["write"] }] }, /grants\[1\]\.actions has/],
  ["an action in capitals", { grants: [{ actions: ["READ"] }] }, /action that does not exist/],
  ["no action", { grants: [{ actions: [] }] }, /actions is empty/],
  ["actions as text", { grants: [{ actions: "read" }] }, /must be a list/],
  ["a pattern without a slash", { grants: [{ ...READ, streams: ["**"] }] }, /slash/],
  ["an empty name", { grants: [{ ...READ, groups: [""] }] }, /1 to 1024 characters/],
  ["a number as a name", { grants: [{ ...READ, producers: [7] }] }, /1 to 1024 characters/],
  ["null as a limit", { grants: [{ ...READ, streams: null }] }, /must be a list/],
  ["too many grants", { grants: Array(101).fill(READ) }, /at most 100/],
  ["a namespace above all", { grants: [], namespace: "/v1/stream/" }, /namespace must/],
  ["a namespace elsewhere", { grants: [], namespace: "/v2/acme" }, /namespace must/],
  ["a namespace with a slash at its end", { grants: [], namespace: "/v1/stream/a/" }, /namespace/],
  ["a namespace with dots", { grants: [], namespace: "/v1/stream/../b" }, /namespace must/],
  ["a namespace that is no text", { grants: [], namespace: ["/v1/stream/a"] }, /namespace must/],
  ["a namespace with half a character", { grants: [], namespace: "/v1/stream/\ud800" }, /names/],
  ["a negative quota", { grants: [], quotas: { streamsMax: -1 } }, /quotas\.streamsMax/],
  ["a quota as text", { grants: [], quotas: { streamsMax: "1" } }, /quotas\.streamsMax/],
  ["an unknown quota", { grants: [], quotas: { streams: 1 } }, /quotas has a member/],
];

test.each(WRONG)("rights are refused: %s", (_name, json, problem) => {
  expect(readRights(json)).toEqual({ problem: expect.stringMatching(problem) as string });
});
