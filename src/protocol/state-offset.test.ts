// PROTOCOL.md §7.8
import fc from "fast-check";
import { expect, test } from "vitest";
import { splitJson } from "./json.ts";
import { addStateOffsets } from "./state-offset.ts";

const utf8 = new TextEncoder();
const text = new TextDecoder();
const OFFSET = "0000000000000000_0000000000000042";

function added(body: string): string {
  const split = splitJson(utf8.encode(body));
  if (split.kind === "invalid") throw new Error(split.reason);
  return text.decode(addStateOffsets(split.stored, OFFSET));
}

test.each([
  [
    '{"headers":{"operation":"insert"}}',
    `{"headers":{"operation":"insert","offset":"${OFFSET}"}},`,
  ],
  ['{"headers":{"control":"reset"} }', `{"headers":{"control":"reset","offset":"${OFFSET}"} },`],
  [
    '{ "\\u0068eaders" : {"c":[{"}":"]\\""}] , "operation" : "x"\n} , "n" : 1e400}',
    `{ "\\u0068eaders" : {"c":[{"}":"]\\""}] , "operation" : "x"\n,"offset":"${OFFSET}"} , "n" : 1e400},`,
  ],
  [
    '{"\\u0068\\u0065\\u0061\\u0064\\u0065\\u0072\\u0073":{"contro\\u006C":"\\u006c"}}',
    `{"\\u0068\\u0065\\u0061\\u0064\\u0065\\u0072\\u0073":{"contro\\u006C":"\\u006c","offset":"${OFFSET}"}},`,
  ],
  [
    '{"headers":{"operation":"a"},"headers":{"control":"b"}}',
    `{"headers":{"operation":"a"},"headers":{"control":"b","offset":"${OFFSET}"}},`,
  ],
])("%s has its offset behind the other members", (body, expected) => {
  expect(added(body)).toBe(expected);
});

test.each([
  "1",
  '"headers"',
  "{}",
  '{"headers":null}',
  '{"headers":[{"operation":"x"}]}',
  '{"headers":{}}',
  '{"headers":{"operation":1,"control":null}}',
  '{"headers":{"operatio":"x","operations":"x","\\u006eoperation":"x","operatio\\n":"x"}}',
  '{"headers":{"operation":"a"},"headers":1}',
  '{"headers":{"operation":"a","operation":2}}',
  '{"value":{"headers":{"operation":"x"}}}',
  '[[{"headers":{"operation":"x"}}]]',
])("%s is no message of the State protocol and stays as it is", (body) => {
  const split = splitJson(utf8.encode(body));
  expect(split.kind === "records" && added(body) === text.decode(split.stored)).toBe(true);
});

const record = fc.oneof(
  fc.jsonValue(),
  fc.record({
    value: fc.jsonValue(),
    headers: fc.oneof(
      fc.jsonValue(),
      fc.record(
        {
          operation: fc.jsonValue(),
          control: fc.oneof(fc.string(), fc.jsonValue()),
          offset: fc.jsonValue(),
        },
        { requiredKeys: [] },
      ),
    ),
  }),
);

test("what is read back is every record, with its offset if it is a change or a control message", () => {
  fc.assert(
    fc.property(fc.array(record, { minLength: 1 }), fc.nat(2), (records, indent) => {
      const body = JSON.stringify(records, undefined, indent);
      const back = JSON.parse(`[${added(body).slice(0, -1)}]`) as unknown;
      expect(back).toEqual((JSON.parse(body) as unknown[]).map(expected));
    }),
  );
});

/** Computes the result by way of values, as the reference server does. */
function expected(value: unknown): unknown {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  if (!("headers" in value)) return value;
  const { headers } = value;
  if (typeof headers !== "object" || headers === null || Array.isArray(headers)) return value;
  const isMessage =
    ("operation" in headers && typeof headers.operation === "string") ||
    ("control" in headers && typeof headers.control === "string");
  return isMessage ? { ...value, headers: { ...headers, offset: OFFSET } } : value;
}

test("hostile nesting and repeated names cost no more time a byte than plain records", () => {
  const deep = `{"headers":{"operation":"x","d":${"[".repeat(500)}${"]".repeat(500)}}}`;
  const names = `{${'"headers":{"operation":"x"},'.repeat(40)}"headers":{"operation":"x"}}`;
  const plain = '{"type":"user","key":"1","value":{"n":1},"headers":{"operation":"insert"}}';
  const perByte = (one: string): number => {
    const body = utf8.encode(`${one},`.repeat(Math.ceil(500_000 / one.length)));
    let best = Infinity;
    for (let run = 0; run < 5; run += 1) {
      const before = performance.now();
      addStateOffsets(body, OFFSET);
      best = Math.min(best, performance.now() - before);
    }
    return best / body.length;
  };
  const escapes = `{"headers":{${'"\\u006fx":1,'.repeat(40)}"operation":"x"}}`;
  perByte(plain);
  expect(perByte(escapes) / perByte(plain)).toBeLessThan(10);
  expect(perByte(deep) / perByte(plain)).toBeLessThan(10);
  expect(perByte(names) / perByte(plain)).toBeLessThan(10);
});
