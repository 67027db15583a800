// PROTOCOL.md §7
import { expect, test } from "vitest";
import { isHapaxError } from "../base/errors.ts";
import { parseRead } from "./read.ts";

const AT = "0000000000000000_0000000000000005";

function isRefused(query: string): boolean {
  try {
    parseRead(query);
    return false;
  } catch (error) {
    return isHapaxError(error, "invalid_request");
  }
}

test("no query, and one that says nothing to us, is a read from the start", () => {
  for (const query of ["", "x=1", "OFFSET=now", "offsets=now", "&", "Live=sse"]) {
    expect(parseRead(query)).toEqual({
      mode: "catch-up",
      from: { kind: "start" },
      cursor: undefined,
      isResumed: false,
      stateOffsets: undefined,
    });
  }
});

test("an offset is the start, the tail or a place, in every mode", () => {
  expect(parseRead("offset=-1").from).toEqual({ kind: "start" });
  expect(parseRead("offset=now&live=sse")).toEqual({
    mode: "sse",
    from: { kind: "now" },
    cursor: undefined,
    isResumed: false,
    stateOffsets: undefined,
  });
  expect(parseRead(`live=long-poll&cursor=7&offset=${AT}`)).toEqual({
    mode: "long-poll",
    from: { kind: "at", offset: 5 },
    cursor: "7",
    isResumed: false,
    stateOffsets: undefined,
  });
  expect(parseRead("offset=0000000000000001_0000000000000005").from).toEqual({ kind: "beyond" });
});

test("the last event id is where an SSE reader goes on, and other reads do not look at it", () => {
  const from = { kind: "at", offset: 5 };
  expect(parseRead("offset=now&live=sse", AT)).toMatchObject({ from, isResumed: true });
  expect(parseRead("offset=now&live=sse", "")).toMatchObject({ isResumed: false });
  expect(parseRead("offset=-1&live=long-poll", AT)).toMatchObject({ isResumed: false });
  for (const id of ["-1", "now", "5", `${AT} `]) {
    expect(() => parseRead("offset=-1&live=sse", id)).toThrow("Last-Event-ID");
  }
});

test("a live read needs an offset, and nothing is guessed or taken twice", () => {
  const refused = [
    "live=sse",
    "live=long-poll",
    "live=",
    "live=true&offset=-1",
    "offset=",
    "offset",
    "offset=5",
    "offset=%ff",
    `offset=${AT}&offset=${AT}`,
    "offset=-1&live=sse&live=sse",
    "offset=-1&cursor=1&cursor=2",
    "offset=-1&cursor=%",
    "state-offsets=1",
    "state-offsets=true&state-offsets=true",
  ];
  expect(refused.filter((query) => !isRefused(query))).toEqual([]);
});
