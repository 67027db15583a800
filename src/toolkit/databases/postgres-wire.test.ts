// The bytes of batches, read by a parser of its own.
import { expect, test } from "vitest";
import { beginWith, commitWith, type WireCall } from "./postgres-wire.ts";

type Value = WireCall["values"][number];

interface Message {
  readonly letter: string;
  readonly body: Buffer;
}

/** What a client of `pg` does with a batch, without a server: it keeps the bytes, and answers that all is done. */
class Client {
  readonly sent: Uint8Array[] = [];

  query(batch: { submit(connection: unknown): unknown; handleReadyForQuery(): void }): void {
    batch.submit({ stream: { write: (bytes: Uint8Array) => this.sent.push(bytes) } });
    batch.handleReadyForQuery();
  }
}

function messagesIn(bytes: Uint8Array): readonly Message[] {
  const all = Buffer.from(bytes);
  const found: Message[] = [];
  for (let at = 0; at < all.length;) {
    const end = at + 1 + all.readInt32BE(at + 1);
    found.push({ letter: all.toString("latin1", at, at + 1), body: all.subarray(at + 5, end) });
    at = end;
  }
  return found;
}

/** Of a message that binds values: the name of its statement, and the values. */
function boundBy({ body }: Message): { readonly name: string; readonly values: unknown[] } {
  const nameAt = body.indexOf(0) + 1;
  const name = body.toString("utf8", nameAt, body.indexOf(0, nameAt));
  let at = nameAt + Buffer.byteLength(name) + 1;
  const formats = Array.from({ length: body.readInt16BE(at) }, (_, index) =>
    body.readInt16BE(at + 2 + index * 2),
  );
  at += 2 + formats.length * 2;
  expect(body.readInt16BE(at)).toBe(formats.length);
  at += 2;
  const values = formats.map((format) => {
    const size = body.readInt32BE(at);
    at += 4;
    if (size === -1) return null;
    const value = body.subarray(at, at + size);
    at += size;
    return format === 1 ? new Uint8Array(value) : value.toString("utf8");
  });
  expect(body.subarray(at)).toEqual(Buffer.from([0, 0]));
  return { name, values };
}

const texts = ["", "a", "x".repeat(64), "x".repeat(65), "ß", "€".repeat(30), "x".repeat(63) + "😀"];
const large = ["y".repeat(5_000), "ü".repeat(70_000)];
const values: readonly Value[] = [
  ...texts,
  ...large,
  ...[0, 1.5, -7, 9_007_199_254_740_991],
  null,
  new Uint8Array(0),
  new Uint8Array([0, 255, 10]),
  new Uint8Array(100_000).fill(7),
];

function asRead(value: Value): unknown {
  return typeof value === "number" ? String(value) : value;
}

test("a batch has all its values as they were given, of every kind and size", async () => {
  for (const value of values) {
    const client = new Client();
    const call = { name: "statement_ß", values: [value, "behind", value] };
    await beginWith(client, call, []);
    await commitWith(client, call);
    const [first, second] = client.sent.map(messagesIn);
    // The first batch over a connection makes BEGIN and COMMIT.
    expect(first?.map(({ letter }) => letter).join("")).toBe("CPCPBEBES");
    expect(second?.map(({ letter }) => letter).join("")).toBe("BEBES");
    const bound = [first?.[6], second?.[0]].map((message) => message && boundBy(message));
    const expected = { name: call.name, values: [value, "behind", value].map(asRead) };
    expect(bound).toEqual([expected, expected]);
  }
});

test("what was sent is not written to by later batches, also if the socket sends it later", async () => {
  const client = new Client();
  const copies: Uint8Array[] = [];
  for (let number = 0; number < 500; number += 1) {
    const value = number % 50 === 0 ? "z".repeat(3_000) : `key ${number}`;
    await beginWith(client, { name: "one", values: [value, number, null] }, []);
    copies.push(Uint8Array.from(client.sent.at(-1) ?? []));
  }
  expect(client.sent.length).toBe(500);
  expect(
    client.sent.every((bytes, index) => Buffer.compare(bytes, copies[index] ?? bytes) === 0),
  ).toBe(true);
});

test("statements are made in the batch in which they are used first", async () => {
  const client = new Client();
  const made = { name: "made", types: ["text", "bigint"], text: "SELECT $1, $2" };
  await beginWith(client, { name: "made", values: ["a", 1] }, [made]);
  const letters = messagesIn(client.sent[0] ?? new Uint8Array()).map(({ letter }) => letter);
  expect(letters.join("")).toBe("CPCPCPBEBES");
});
