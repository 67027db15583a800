import { describe, expect, test } from "vitest";
import { codecOf, encode } from "../records.ts";
import { parseTransaction } from "../../protocol/transaction.ts";
import { encodeFrame, TRANSACTION_TYPE } from "../../protocol/transaction-frame.ts";
import { frameBodyOf, operationsIn } from "./frame.ts";

const JSON_CODEC = codecOf("application/json");
const TEXT = codecOf("text/plain");
const BYTES = codecOf("application/octet-stream");

describe("PROTOCOL.md §19.1", () => {
  test("the server reads what was framed: the bodies use up the request exactly", () => {
    const bodies = ["[1,2]", "é", ""].map((text) => new TextEncoder().encode(text));
    const operations = bodies.map((body, index) => ({
      append: { stream: `/s/${String(index)}`, bytes: body.length, close: true },
    }));
    const frame = encodeFrame(operations, bodies);
    const parsed = parseTransaction(TRANSACTION_TYPE, frame, 1000);
    expect(operationsIn(frame)).toBe(3);
    expect(parsed).toMatchObject({
      kind: "operations",
      operations: bodies.map((body, index) => ({ stream: `/s/${String(index)}`, body })),
    });
  });

  test("records become the body of their stream: one array, one text, the bytes", () => {
    const text = (bytes: Uint8Array): string => new TextDecoder().decode(bytes);
    const json = [{ a: 1 }, [2], "x"].map((data) => encode(data, JSON_CODEC));
    expect(text(frameBodyOf(json, JSON_CODEC))).toBe('[{"a":1},[2],"x"]');
    expect(text(frameBodyOf([encode("a", TEXT), encode("b", TEXT)], TEXT))).toBe("ab");
    // A string that was given before the type was known.
    expect(text(frameBodyOf([encode("ü", undefined)], TEXT))).toBe("ü");
    const bytes = [new Uint8Array([0, 255]), new Uint8Array([1])].map((data) =>
      encode(data, BYTES),
    );
    expect([...frameBodyOf(bytes, BYTES)]).toEqual([0, 255, 1]);
  });

  test("data that does not fit its stream is refused", () => {
    expect(() => frameBodyOf([encode({ a: 1 }, undefined)], TEXT)).toThrow(
      "a string or a Uint8Array",
    );
    expect(() => frameBodyOf([encode(new Uint8Array([1]), BYTES)], JSON_CODEC)).toThrow(
      "a JSON value",
    );
  });
});
