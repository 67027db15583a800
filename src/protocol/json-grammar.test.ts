// JSON.parse is the judge: both must give the same answer for every text, also for damaged ones.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { LIMITS } from "./limits.ts";
import { readJsonShape } from "./json-grammar.ts";

const encoder = new TextEncoder();
const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

function isJson(bytes: Uint8Array): boolean {
  try {
    JSON.parse(utf8.decode(bytes));
    return true;
  } catch {
    return false;
  }
}

/** Decides as splitJson does with this grammar: bytes above 0x7f must be UTF-8 too. */
function isAccepted(bytes: Uint8Array): boolean {
  const shape = readJsonShape(bytes);
  if (shape === undefined) return false;
  if (!shape.hasHighBytes) return true;
  try {
    utf8.decode(bytes);
    return true;
  } catch {
    return false;
  }
}

/** Bytes that matter to the grammar, so that random changes hit its edges. */
const EDGES = [
  ...encoder.encode('[]{},:"\\/ \t\n\r-+.eE0123456789utrfalsn\u0000\u001f'),
  0x7f,
  0xc3,
  0xff,
];

describe("the grammar", () => {
  test("J5 accepts every text that JSON.stringify makes, with any indent", () => {
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 6 }), fc.constantFrom(0, 1, "\t"), (value, indent) => {
        const bytes = encoder.encode(JSON.stringify(value, undefined, indent));
        expect(isAccepted(bytes)).toBe(true);
        const { count, isArray } = readJsonShape(bytes) ?? {};
        expect(isArray).toBe(Array.isArray(value));
        expect(count).toBe(Array.isArray(value) ? value.length : 1);
      }),
      { numRuns: 3000 },
    );
  });

  test("J5 answers as JSON.parse does after any few bytes were changed, put in or taken out", () => {
    const change = fc.record({
      at: fc.double({ min: 0, max: 1, noNaN: true }),
      byte: fc.oneof({ weight: 5, arbitrary: fc.constantFrom(...EDGES) }, fc.nat(255)),
      kind: fc.constantFrom("put", "replace", "remove"),
    });
    let refused = 0;
    fc.assert(
      fc.property(
        fc.json({ maxDepth: 4, noUnicodeString: false }),
        fc.array(change, { minLength: 1, maxLength: 4 }),
        (text, changes) => {
          const bytes = [...encoder.encode(text)];
          for (const { at, byte, kind } of changes) {
            const index = Math.floor(at * bytes.length);
            if (kind === "put") bytes.splice(index, 0, byte);
            else if (kind === "replace") bytes[index] = byte;
            else bytes.splice(index, 1);
          }
          const damaged = Uint8Array.from(bytes);
          if (!isJson(damaged)) refused += 1;
          expect(isAccepted(damaged)).toBe(isJson(damaged));
        },
      ),
      { numRuns: 40_000 },
    );
    expect(refused).toBeGreaterThan(10_000);
  });

  test("J5 answers as JSON.parse does for every text of up to four bytes that matter", () => {
    const alphabet = [...encoder.encode('[]{},:"\\ 0-1.eu')];
    let texts: number[][] = [[]];
    for (let length = 0; length <= 4; length += 1) {
      for (const text of texts) {
        const bytes = Uint8Array.from(text);
        if (isAccepted(bytes) !== isJson(bytes)) throw new Error(`differs: ${utf8.decode(bytes)}`);
      }
      texts = length < 4 ? texts.flatMap((text) => alphabet.map((byte) => [...text, byte])) : [];
    }
  });

  test.each([
    ["[1,2]", { count: 2, isArray: true, isCompact: true, hasHighBytes: false }],
    ["[1, 2]", { count: 2, isArray: true, isCompact: false, hasHighBytes: false }],
    ["[1,2 ]", { count: 2, isArray: true, isCompact: false, hasHighBytes: false }],
    ["[ 1]", { count: 1, isArray: true, isCompact: false, hasHighBytes: false }],
    [" [1]", { count: 1, isArray: true, isCompact: false, hasHighBytes: false }],
    ["[1]\n", { count: 1, isArray: true, isCompact: false, hasHighBytes: false }],
    ["[]", { count: 0, isArray: true, isCompact: true, hasHighBytes: false }],
    ['{"a": [1, 2]}', { count: 1, isArray: false, isCompact: true, hasHighBytes: false }],
    ['["é"]', { count: 1, isArray: true, isCompact: true, hasHighBytes: true }],
  ])("finds the shape of %j", (text, shape) => {
    expect(readJsonShape(encoder.encode(text))).toEqual(shape);
  });

  test("J5 the nesting of a record is limited, the outermost array not counted", () => {
    const nested = (depth: number): Uint8Array =>
      encoder.encode(`[${"[".repeat(depth)}${"]".repeat(depth)}]`);
    expect(readJsonShape(nested(LIMITS.jsonDepthMax))).toBeDefined();
    expect(readJsonShape(nested(LIMITS.jsonDepthMax + 1))).toBeUndefined();
  });
});
