/**
 * Sends prepared statements together with BEGIN or COMMIT, as one message to PostgreSQL and one answer: its extended protocol, over the
 * connection of a client of `pg`. The server then parses no text, and the client makes no result of what has none.
 *
 *   - the client takes it as a query that reports its result itself, as cursors and streams of rows do;
 *   - an error ends the batch: the server skips the rest of it, and the caller rolls back;
 *   - a client without such a connection, or one that sends queries before the answers of earlier ones, gets texts instead.
 */

import { systemRandom } from "../../base/random.ts";
import type { Keepable } from "./postgres-keeping.ts";

/** A prepared statement with its values. */
export interface WireCall {
  readonly name: string;
  readonly values: readonly (string | number | null | Uint8Array)[];
}

interface Connection {
  readonly stream: { readonly writable?: unknown; write(bytes: Uint8Array): unknown };
}

/** Columns of a row as texts. */
type Fields = readonly (string | null)[];

/** The numbers that PostgreSQL has for types. */
const OIDS: Readonly<Record<string, number>> = {
  bytea: 17,
  bigint: 20,
  integer: 23,
  text: 25,
  float8: 701,
};
/** PostgreSQL finds the type by what the statement does with the value. */
const OF_CONTEXT = 0;

const encoder = new TextEncoder();
/** Longer texts are encoded by the runtime; for short ones the call takes longer than the work. */
const SHORT_CHARS = 64;

/** Batches are written into one piece of memory after the other: one for each batch would be work for the collector. */
const PIECE_BYTES = 65_536;
const BATCH_BYTES = 1_024;
/** What is left of the last piece. What was sent is never written to again. */
let free = new Uint8Array(0);

/** Messages: a letter, their length with its own four bytes, and what they say. Write all of them before you make others. */
class Messages {
  #bytes: Uint8Array;
  #end = 0;

  constructor() {
    if (free.byteLength < BATCH_BYTES) free = new Uint8Array(PIECE_BYTES);
    this.#bytes = free;
  }

  /** Makes a statement of a text, in the place of one of this name. */
  parse({ name, text, types }: Keepable): this {
    const close = this.#begin("C");
    this.#write("S");
    this.#text(name);
    this.#finish(close);
    const at = this.#begin("P");
    this.#text(name);
    this.#text(text);
    this.#int16(types.length);
    for (const type of types) this.#int32(OIDS[type] ?? OF_CONTEXT);
    return this.#finish(at);
  }

  /** Runs a prepared statement to its end. Bytes go as they are, all else as text. */
  call({ name, values }: WireCall): this {
    const at = this.#begin("B");
    this.#text("");
    this.#text(name);
    this.#int16(values.length);
    for (const value of values) this.#int16(value instanceof Uint8Array ? 1 : 0);
    this.#int16(values.length);
    for (const value of values) this.#value(value);
    this.#int16(0);
    this.#finish(at);
    const run = this.#begin("E");
    this.#text("");
    this.#int32(0);
    return this.#finish(run);
  }

  /** Adds messages that were made before. */
  add(bytes: Uint8Array): this {
    this.#reserve(bytes.byteLength);
    this.#bytes.set(bytes, this.#end);
    this.#end += bytes.byteLength;
    return this;
  }

  /** Ends the batch: the server answers all of it. */
  sync(): Uint8Array {
    this.#finish(this.#begin("S"));
    return this.bytes();
  }

  bytes(): Uint8Array {
    if (this.#bytes === free) free = free.subarray(this.#end);
    return this.#bytes.subarray(0, this.#end);
  }

  #value(value: WireCall["values"][number]): void {
    if (value === null) {
      this.#int32(-1);
      return;
    }
    const at = this.#end;
    this.#int32(0);
    if (value instanceof Uint8Array) this.add(value);
    else this.#write(String(value));
    this.#putInt32(at, this.#end - at - 4);
  }

  #begin(letter: string): number {
    this.#reserve(5);
    this.#bytes[this.#end] = letter.charCodeAt(0);
    this.#end += 5;
    return this.#end - 4;
  }

  #finish(at: number): this {
    this.#putInt32(at, this.#end - at);
    return this;
  }

  #text(text: string): void {
    this.#write(text);
    this.#reserve(1);
    this.#bytes[this.#end] = 0;
    this.#end += 1;
  }

  #write(text: string): void {
    this.#reserve(text.length * 3);
    if (text.length > SHORT_CHARS || !this.#writePlain(text))
      this.#end += encoder.encodeInto(text, this.#bytes.subarray(this.#end)).written;
  }

  /** Returns false, and has written nothing, if the text has other characters than those of ASCII. */
  #writePlain(text: string): boolean {
    for (let index = 0; index < text.length; index += 1) {
      const code = text.charCodeAt(index);
      if (code > 127) return false;
      this.#bytes[this.#end + index] = code;
    }
    this.#end += text.length;
    return true;
  }

  #int16(value: number): void {
    this.#reserve(2);
    this.#bytes[this.#end] = value >> 8;
    this.#bytes[this.#end + 1] = value;
    this.#end += 2;
  }

  #int32(value: number): void {
    this.#reserve(4);
    this.#putInt32(this.#end, value);
    this.#end += 4;
  }

  /** The largest byte first. */
  #putInt32(at: number, value: number): void {
    const bytes = this.#bytes;
    bytes[at] = value >> 24;
    bytes[at + 1] = value >> 16;
    bytes[at + 2] = value >> 8;
    bytes[at + 3] = value;
  }

  #reserve(count: number): void {
    if (this.#end + count <= this.#bytes.byteLength) return;
    const larger = new Uint8Array((this.#end + count) * 2);
    larger.set(this.#bytes.subarray(0, this.#end));
    this.#bytes = larger;
  }
}

/** A query of the client that sends bytes, and reports the last row. */
class Batch {
  /** The client may put another one in its place. */
  callback: (error: unknown) => void;
  readonly #bytes: Uint8Array;
  readonly #onRow: (fields: Fields) => void;

  constructor(
    bytes: Uint8Array,
    onRow: (fields: Fields) => void,
    callback: (error: unknown) => void,
  ) {
    this.#bytes = bytes;
    this.#onRow = onRow;
    this.callback = callback;
  }

  submit({ stream }: Connection): Error | null {
    if (stream.writable === false) return new Error("the connection is closed");
    stream.write(this.#bytes);
    return null;
  }

  handleDataRow({ fields }: { readonly fields: Fields }): void {
    this.#onRow(fields);
  }

  handleError(error: unknown): void {
    this.callback(error);
  }

  handleReadyForQuery(): void {
    this.callback(null);
  }

  handleRowDescription(): void {}
  handleCommandComplete(): void {}
  handlePortalSuspended(): void {}
  handleEmptyQuery(): void {}
}

/** What a batch needs of a client of `pg`. */
interface WiredClient {
  query(query: object): unknown;
}

/** Clients whose connection has BEGIN and COMMIT. */
const connected = new WeakSet();
const id = systemRandom.id();
const BEGIN: Keepable = { name: `hapax_begin_${id}`, types: [], text: "BEGIN" };
const COMMIT: Keepable = { name: `hapax_commit_${id}`, types: [], text: "COMMIT" };
const BEGINS = /* @__PURE__ */ callOf(BEGIN);
const COMMITS = /* @__PURE__ */ callOf(COMMIT);

function callOf({ name }: Keepable): Uint8Array {
  return new Messages().call({ name, values: [] }).bytes();
}

/** Returns whether batches can be sent over the client. One whose `query` was replaced may want texts. */
export function isWired(client: object): boolean {
  if (Object.hasOwn(client, "query")) return false;
  const { connection, pipeline } = client as {
    readonly connection?: { readonly stream?: { readonly write?: unknown } };
    readonly pipeline?: unknown;
  };
  return pipeline !== true && typeof connection?.stream?.write === "function";
}

/**
 * Begins a transaction, and runs a statement in it. Returns the fields of its row. `made`: statements that the connection gets before;
 * a pooler that follows prepared statements learns of them this way, and not by PREPARE.
 */
export function beginWith(
  client: object,
  call: WireCall,
  made: readonly Keepable[],
): Promise<Fields> {
  const messages = messagesTo(client);
  for (const statement of made) messages.parse(statement);
  return sent(client, messages.add(BEGINS).call(call).sync());
}

/** Runs the last statement of a transaction, and commits. */
export async function commitWith(client: object, call: WireCall): Promise<void> {
  await sent(client, messagesTo(client).call(call).add(COMMITS).sync());
}

/** The first batch over a connection prepares BEGIN and COMMIT. */
function messagesTo(client: object): Messages {
  const messages = new Messages();
  return connected.has(client) ? messages : messages.parse(BEGIN).parse(COMMIT);
}

function sent(client: object, bytes: Uint8Array): Promise<Fields> {
  return new Promise((resolve, reject) => {
    let row: Fields = [];
    const batch = new Batch(
      bytes,
      (fields) => {
        row = fields;
      },
      (error) => {
        if (error === null) {
          connected.add(client);
          resolve(row);
        } else reject(error as Error); // As the client has made it.
      },
    );
    // Cast: `isWired` has looked at it.
    (client as WiredClient).query(batch);
  });
}
