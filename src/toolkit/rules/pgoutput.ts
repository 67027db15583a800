/**
 * Parses the messages of PostgreSQL's own output plugin: `pgoutput`, protocol version 1, one message at a time.
 * Numbers are big-endian; a name is bytes up to a zero.
 *
 *   B  begin      lsn of the commit (8)  time (8)  xid (4)
 *   R  relation   id (4)  schema  name  identity (1)  count (2)  { flags (1)  name  type (4)  modifier (4) }
 *   I  insert     relation (4)  'N'  count (2)  { 'n' | 'b' length (4) bytes | 't' length (4) bytes }
 *   M  message    flags (1)  lsn (8)  prefix  length (4)  bytes
 *   C  commit     flags (1)  lsn (8)  lsn of its end (8)  time (8)
 *
 *   PU1  a message is read to its last byte; a message that is too short or too long is refused;
 *   PU2  messages that add nothing (types, origins, updates, deletes, truncates) are skipped; unknown ones are refused;
 *   PU3  bytes come out as they went in, without a copy; absent values differ from empty ones.
 *
 * Names are compared, never shown, so each byte becomes one character.
 */

/** A value of a row. Undefined if it is NULL. */
export type PgoutputValue =
  | { readonly format: "binary" | "text"; readonly bytes: Uint8Array }
  | undefined;

export type PgoutputMessage =
  | { readonly kind: "begin"; readonly xid: number }
  | {
      readonly kind: "relation";
      readonly id: number;
      readonly schema: string;
      readonly name: string;
      readonly columns: readonly string[];
    }
  | {
      readonly kind: "insert";
      readonly relation: number;
      readonly values: readonly PgoutputValue[];
    }
  | {
      readonly kind: "message";
      readonly isTransactional: boolean;
      readonly prefix: string;
      readonly content: Uint8Array;
    }
  | { readonly kind: "commit"; readonly endLsn: bigint; readonly committedAtMs: number }
  | { readonly kind: "skipped" };

/** Type, Origin, Update, Delete, Truncate. */
const SKIPPED = "YOUDT";
/** PostgreSQL counts from the year 2000. */
const EPOCH_MS = 946_684_800_000;

export function parsePgoutput(bytes: Uint8Array): PgoutputMessage {
  const reader = new Reader(bytes);
  const tag = reader.character();
  // PU2: their content does not matter, so they are not read to their end.
  if (SKIPPED.includes(tag)) return { kind: "skipped" };
  const message = parseTagged(tag, reader);
  if (!reader.isAtEnd) throw new Error(`PU1 a message goes on behind its end; tag=${tag}`);
  return message;
}

function parseTagged(tag: string, reader: Reader): PgoutputMessage {
  switch (tag) {
    case "B": {
      reader.take(16);
      return { kind: "begin", xid: reader.uint32() };
    }
    case "C": {
      reader.take(9);
      return { kind: "commit", endLsn: reader.uint64(), committedAtMs: reader.timeMs() };
    }
    case "R":
      return parseRelation(reader);
    case "I":
      return parseInsert(reader);
    case "M": {
      const isTransactional = (reader.uint8() & 1) === 1;
      reader.take(8);
      const prefix = reader.name();
      return { kind: "message", isTransactional, prefix, content: reader.take(reader.uint32()) };
    }
    default:
      throw new Error(`PU2 an unknown message; tag=${JSON.stringify(tag)}`);
  }
}

function parseRelation(reader: Reader): PgoutputMessage {
  const id = reader.uint32();
  const schema = reader.name();
  const name = reader.name();
  reader.take(1);
  const columns = Array.from({ length: reader.uint16() }, () => {
    reader.take(1);
    const column = reader.name();
    reader.take(8);
    return column;
  });
  return { kind: "relation", id, schema, name, columns };
}

function parseInsert(reader: Reader): PgoutputMessage {
  const relation = reader.uint32();
  const kind = reader.character();
  if (kind !== "N")
    throw new Error(`PU2 an insert without a new row; kind=${JSON.stringify(kind)}`);
  const values = Array.from({ length: reader.uint16() }, () => parseValue(reader));
  return { kind: "insert", relation, values };
}

function parseValue(reader: Reader): PgoutputValue {
  const kind = reader.character();
  switch (kind) {
    case "n":
      return undefined;
    case "b":
      return { format: "binary", bytes: reader.take(reader.uint32()) };
    case "t":
      return { format: "text", bytes: reader.take(reader.uint32()) };
    default:
      // An insert has all its values. `u` (unchanged) occurs only in updates.
      throw new Error(`PU2 an unknown value; kind=${JSON.stringify(kind)}`);
  }
}

/** Reads a number of 8 bytes, such as the binary form of a bigint. */
export function int64Of(bytes: Uint8Array): bigint {
  if (bytes.length !== 8)
    throw new Error(`PU1 a bigint has 8 bytes; bytes=${String(bytes.length)}`);
  return viewOf(bytes).getBigInt64(0);
}

/** Reads the binary form of a timestamptz, in whole milliseconds. */
export function timeMsOf(bytes: Uint8Array): number {
  return Math.floor(Number(int64Of(bytes)) / 1000) + EPOCH_MS;
}

/** Parses a place in PostgreSQL's journal, such as `16/B374D848`. */
export function parseLsn(text: string): bigint {
  const [, high, low] = /^([0-9A-F]{1,8})\/([0-9A-F]{1,8})$/i.exec(text) ?? [];
  if (high === undefined || low === undefined) throw new Error(`not an LSN: ${text}`);
  return (BigInt(`0x${high}`) << 32n) | BigInt(`0x${low}`);
}

export function formatLsn(lsn: bigint): string {
  const hex = (part: bigint): string => part.toString(16).toUpperCase();
  return `${hex(lsn >> 32n)}/${hex(lsn & 0xffff_ffffn)}`;
}

function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

class Reader {
  readonly #bytes: Uint8Array;
  #at = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  get isAtEnd(): boolean {
    return this.#at === this.#bytes.length;
  }

  /** PU1 PU3 */
  take(count: number): Uint8Array {
    const end = this.#at + count;
    if (end > this.#bytes.length) throw new Error("PU1 a message ends too early");
    const taken = this.#bytes.subarray(this.#at, end);
    this.#at = end;
    return taken;
  }

  uint8(): number {
    return viewOf(this.take(1)).getUint8(0);
  }

  uint16(): number {
    return viewOf(this.take(2)).getUint16(0);
  }

  uint32(): number {
    return viewOf(this.take(4)).getUint32(0);
  }

  uint64(): bigint {
    return viewOf(this.take(8)).getBigUint64(0);
  }

  timeMs(): number {
    return timeMsOf(this.take(8));
  }

  character(): string {
    return String.fromCharCode(this.uint8());
  }

  name(): string {
    const end = this.#bytes.indexOf(0, this.#at);
    if (end === -1) throw new Error("PU1 a message ends too early");
    const name = String.fromCharCode(...this.take(end - this.#at));
    this.take(1);
    return name;
  }
}
