import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { exactJson, flatJson } from "./exact-json.ts";

const circle: Record<string, unknown> = {};
circle["self"] = circle;
const half = "\ud83d";

describe("JSON that comes back as it went", () => {
  test("has every JSON value as JSON.stringify has it", () => {
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        expect(exactJson(value, "it")).toEqual({ text: JSON.stringify(value) });
      }),
    );
  });

  test.each([
    [undefined, "it", "is undefined"],
    [new Map([[1, 2]]), "it", "is a Map"],
    [{ a: new Map() }, "it.a", "is a Map"],
    [{ a: [{ b: new Set() }] }, "it.a[0].b", "is a Set"],
    [[1, Number.NaN], "it[1]", "is NaN"],
    [{ "a b": Infinity }, 'it["a b"]', "is Infinity"],
    [{ a: [undefined] }, "it.a[0]", "is undefined, in a list"],
    // eslint-disable-next-line no-sparse-arrays
    [[1, , 2], "it[1]", "is undefined, in a list"],
    [{ a: 1n }, "it.a", "is a bigint"],
    [{ a: () => 1 }, "it.a", "is a function"],
    [{ a: Symbol("x") }, "it.a", "is a symbol"],
    [half, "it", "has half of a surrogate pair"],
    [{ a: { b: `x${half}` } }, "it.a.b", "has half of a surrogate pair"],
    [{ [half]: 1 }, 'it["\\ud83d"]', "has a name with half of a surrogate pair"],
    [{ at: new Date(Number.NaN) }, "it.at", "is an invalid Date"],
    [{ a: Uint8Array.of(1) }, "it.a", "is a Uint8Array"],
    [{ a: Promise.resolve(1) }, "it.a", "is a Promise"],
    [{ a: new Error("x") }, "it.a", "is a Error"],
    [{ a: /x/ }, "it.a", "is a RegExp"],
  ])("refuses %o, and says where", (value, path, problem) => {
    expect(exactJson(value, "it")).toEqual({ path, problem });
  });

  test("G25 a copy that is made without reading the text is what the text reads back as, and is another object", () => {
    const plain = fc.oneof(
      fc.string(),
      fc.string({ unit: "binary" }),
      fc.double(),
      fc.constantFrom(0, -0, null, true, false, undefined, 1n, '"', "\\", "\u2028", half, "\0"),
    );
    const name = fc.oneof(fc.string(), fc.constantFrom("__proto__", "toJSON", "1", "0", '"', half));
    const value = fc.oneof(plain, fc.dictionary(name, plain, { noNullPrototype: true }));
    let copies = 0;
    fc.assert(
      fc.property(value, (given) => {
        const flat = flatJson(given);
        if (flat === undefined) return;
        copies += 1;
        expect(flat.text).toBe(JSON.stringify(given));
        const read: unknown = JSON.parse(flat.text);
        expect(flat.copy).toStrictEqual(read);
        // In this order, too.
        expect(JSON.stringify(flat.copy)).toBe(JSON.stringify(read));
        if (typeof given === "object" && given !== null) expect(flat.copy).not.toBe(given);
      }),
      { numRuns: 400 },
    );
    expect(copies).toBeGreaterThan(50);
  });

  test("refuses what refers to itself, and what throws", () => {
    expect(exactJson(circle, "it")).toMatchObject({ path: "it" });
    const toJSON = (): never => {
      throw new Error("not today");
    };
    expect(exactJson({ toJSON }, "it")).toMatchObject({
      problem: "cannot be written as JSON (not today)",
    });
  });

  test("leaves out members that are undefined, and asks toJSON", () => {
    const value = {
      a: undefined,
      b: new Date(0),
      c: new (class {
        x = 1;
      })(),
    };
    expect(exactJson(value, "it")).toEqual({ text: JSON.stringify(value) });
  });
});
