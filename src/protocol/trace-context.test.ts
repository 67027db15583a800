// The W3C Trace Context, read strictly. PROTOCOL.md §22.2
import { expect, test } from "vitest";
import { parseTrace } from "./trace-context.ts";

const TRACE = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN = "00f067aa0ba902b7";

test("a parent is taken with its flags, also one of a later version", () => {
  expect(parseTrace(`00-${TRACE}-${SPAN}-01`, undefined)).toEqual({
    traceId: TRACE,
    spanId: SPAN,
    flags: 1,
  });
  expect(parseTrace(`cc-${TRACE}-${SPAN}-00-more`, undefined)?.flags).toBe(0);
});

test.each([
  "",
  `00-${TRACE}-${SPAN}`,
  `00-${TRACE}-${SPAN}-01-more`,
  `ff-${TRACE}-${SPAN}-01`,
  `00-${TRACE.toUpperCase()}-${SPAN}-01`,
  `00-${"0".repeat(32)}-${SPAN}-01`,
  `00-${TRACE}-${"0".repeat(16)}-01`,
  `00-${TRACE}-${SPAN}-01\n`,
  ` 00-${TRACE}-${SPAN}-01`,
  `cc-${TRACE}-${SPAN}-01more`,
])("a value that is not exactly the grammar is none: %j", (parent) => {
  expect(parseTrace(parent, undefined)).toBeUndefined();
});

test("a state is taken whole or not at all, and its parent is taken in any case", () => {
  const parent = `00-${TRACE}-${SPAN}-01`;
  expect(parseTrace(parent, "a=1, t@v=x y")?.state).toBe("a=1,t@v=x y");
  const many = Array.from({ length: 33 }, (_, at) => `a${at}=1`).join(",");
  for (const wrong of ["", "a", "A=1", "a=1,a=2", "a=1=2", many, `a=${"x".repeat(512)}`]) {
    expect([wrong, parseTrace(parent, wrong)]).toEqual([wrong, parseTrace(parent, undefined)]);
  }
});
