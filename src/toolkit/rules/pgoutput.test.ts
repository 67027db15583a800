import fc from "fast-check";
import { expect, test } from "vitest";
import {
  formatLsn,
  int64Of,
  parseLsn,
  parsePgoutput,
  type PgoutputMessage,
  timeMsOf,
} from "./pgoutput.ts";

/** As PostgreSQL 18 has sent them: a message outside of transactions, and two transactions. */
const SENT = [
  "4d000000000001784e7068617061782e6f7574626f7800000000056e6f6e7478",
  "420000000001784eb80003035ee3112f1e000002f9",
  "4d010000000001784eb868617061782e6f7574626f7800000000027478",
  "43000000000001784eb80000000001784ee80003035ee3112f1e",
  "420000000001784ee80003035ee3113093000002f4",
  "52000040017075626c6963006f006400060169640000000014ffffffff00747800000013cdffffffff00746f7069630000000019ffffffff007061796c6f61640000000011ffffffff00686561646572730000000edaffffffff0061646465645f617400000004a0ffffffff",
  "49000040014e000662000000080000000000000001620000000800000000000002f4620000000161620000000200ff620000000b017b2261223a202262227d62000000080003035ee3111436",
  "49000040014e000662000000080000000000000003620000000800000000000002f46200000001636e6e62000000080003035ee3111941",
  "43000000000001784ee80000000001784f280003035ee3113093",
].map((hex) => new Uint8Array(Buffer.from(hex, "hex")));

const bytesOf = (text: string): Uint8Array => new TextEncoder().encode(text);

test("PU1 PU3 messages that PostgreSQL has sent are read, with their bytes", () => {
  const [alone, begin, message, commit, , relation, insert, absent] = SENT.map(parsePgoutput);
  expect(alone).toEqual({
    kind: "message",
    isTransactional: false,
    prefix: "hapax.outbox",
    content: bytesOf("nontx"),
  });
  expect(begin).toEqual({ kind: "begin", xid: 761 });
  expect(message).toMatchObject({ isTransactional: true, content: bytesOf("tx") });
  expect(commit).toMatchObject({ kind: "commit", endLsn: parseLsn("0/1784EE8") });
  expect(new Date(timeOf(commit)).toISOString()).toBe("2026-11-16T07:56:41.495Z");
  const columns = ["id", "tx", "topic", "payload", "headers", "added_at"];
  expect(relation).toEqual({ kind: "relation", id: 16385, schema: "public", name: "o", columns });
  if (insert?.kind !== "insert" || absent?.kind !== "insert") throw new Error("not inserts");
  expect(insert.relation).toBe(16385);
  expect(int64Of(insert.values[0]?.bytes ?? new Uint8Array())).toBe(1n);
  expect(insert.values[3]).toEqual({ format: "binary", bytes: Uint8Array.of(0, 255) });
  expect(insert.values[4]?.bytes).toEqual(bytesOf('\u0001{"a": "b"}'));
  expect(absent.values.slice(3, 5)).toEqual([undefined, undefined]);
});

function timeOf(message: PgoutputMessage | undefined): number {
  return message?.kind === "commit" ? message.committedAtMs : 0;
}

test("PU1 a message that ends too early, or goes on, is refused", () => {
  for (const bytes of SENT) {
    for (let length = 0; length < bytes.length; length += 1) {
      expect(() => parsePgoutput(bytes.subarray(0, length))).toThrow("PU1");
    }
    expect(() => parsePgoutput(Uint8Array.of(...bytes, 0))).toThrow("PU1");
  }
});

test("PU2 what adds nothing is skipped, and what is not known is refused", () => {
  for (const tag of "YOUDT") expect(parsePgoutput(bytesOf(`${tag}…`))).toEqual({ kind: "skipped" });
  for (const tag of "SEcAXbr\0") expect(() => parsePgoutput(bytesOf(`${tag}abc`))).toThrow("PU2");
  const insert = SENT[6] ?? new Uint8Array();
  expect(() => parsePgoutput(insert.with(5, 79))).toThrow("PU2 an insert without a new row");
  // `u`, an unchanged value, belongs to updates.
  expect(() => parsePgoutput(insert.with(8, 117))).toThrow("PU2 an unknown value");
});

test("PU3 values of any bytes come out as they went in, wherever the message lies in its buffer", () => {
  const value = fc.option(fc.uint8Array({ maxLength: 300 }), { nil: undefined });
  const values = fc.array(value, { maxLength: 20 });
  fc.assert(
    fc.property(values, fc.nat({ max: 9 }), (given, before) => {
      const parts = [...Buffer.from("I"), 0, 0, 0, 7, ...Buffer.from("N"), 0, given.length];
      for (const one of given) {
        if (one === undefined) parts.push(110);
        else parts.push(98, 0, 0, one.length >> 8, one.length & 255, ...one);
      }
      const buffer = Uint8Array.of(...Array.from({ length: before }, () => 9), ...parts);
      const message = parsePgoutput(buffer.subarray(before));
      if (message.kind !== "insert") throw new Error("not an insert");
      expect(message.values.map((one) => one?.bytes)).toEqual(given);
    }),
  );
});

test("PU1 an LSN is the same number as text and back, and a time has its milliseconds", () => {
  fc.assert(
    fc.property(fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }), (lsn) => {
      expect(parseLsn(formatLsn(lsn))).toBe(lsn);
    }),
  );
  expect(formatLsn(0x16_b374_d848n)).toBe("16/B374D848");
  for (const text of ["", "16", "16/", "/1", "1/2/3", "g/1", "123456789/0"]) {
    expect(() => parseLsn(text)).toThrow("not an LSN");
  }
  expect(timeMsOf(Uint8Array.of(0, 0, 0, 0, 0, 0, 5, 221))).toBe(946_684_800_001);
  expect(() => int64Of(new Uint8Array(4))).toThrow("PU1");
});
