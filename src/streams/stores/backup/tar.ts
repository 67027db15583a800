/**
 * A backup as one stream of bytes: `tar` (POSIX ustar, sizes beyond 8 GiB as GNU writes them), so that every `tar` lists it and makes a
 * directory of it. The document is the last file.
 */

import { HapaxError } from "../../../base/errors.ts";

const RECORD_BYTES = 512;
const OCTAL_SIZE_MAX = 8 ** 11;
const SIZE_AT = 124;
const SIZE_BYTES = 12;
const SUM_AT = 148;
const ZEROS = new Uint8Array(RECORD_BYTES);

/** What stands before the bytes of a file. */
export function tarHeader(name: string, bytes: number, timeMs: number): Uint8Array {
  const head = Buffer.alloc(RECORD_BYTES);
  head.write(name, 0, "latin1");
  head.write("0000600\0", 100, "latin1");
  head.write("0000000\0", 108, "latin1");
  head.write("0000000\0", 116, "latin1");
  if (bytes < OCTAL_SIZE_MAX) head.write(octal(bytes, 11), SIZE_AT, "latin1");
  else {
    head.writeUInt8(0x80, SIZE_AT);
    head.writeBigUInt64BE(BigInt(bytes), SIZE_AT + 4);
  }
  head.write(octal(Math.floor(timeMs / 1000), 11), 136, "latin1");
  head.write("0", 156, "latin1");
  head.write("ustar\x0000", 257, "latin1");
  head.write(`${sumOf(head).toString(8).padStart(6, "0")}\0 `, SUM_AT, "latin1");
  return head;
}

/** What stands behind them. */
export function tarPadding(bytes: number): Uint8Array {
  return ZEROS.subarray(0, (RECORD_BYTES - (bytes % RECORD_BYTES)) % RECORD_BYTES);
}

/** What stands behind the last file. */
export const TAR_END: Uint8Array = new Uint8Array(2 * RECORD_BYTES);

const octal = (value: number, digits: number): string =>
  `${value.toString(8).padStart(digits, "0")}\0`;

/** The sum of all bytes, with spaces in the place of the sum itself. */
function sumOf(head: Uint8Array): number {
  let sum = 8 * 0x20;
  for (const [at, byte] of head.entries()) if (at < SUM_AT || at >= SUM_AT + 8) sum += byte;
  return sum;
}

export interface TarFile {
  readonly name: string;
  readonly bytes: number;
  /** To be read to its end before the next file is asked for. */
  readonly content: AsyncIterable<Uint8Array>;
}

/** Reads files one after the other. Throws `data_damaged` for what is cut, or no tar. */
export async function* readTar(input: AsyncIterable<Uint8Array>): AsyncGenerator<TarFile> {
  const reader = new Reader(input);
  try {
    for (;;) {
      const head = await reader.take(RECORD_BYTES);
      if (head.every((byte) => byte === 0)) return;
      const { name, bytes, isFile } = parseHeader(head);
      if (!isFile) continue;
      let left = bytes;
      const content = async function* (): AsyncGenerator<Uint8Array> {
        while (left > 0) {
          const piece = await reader.some(left);
          left -= piece.length;
          yield piece;
        }
      };
      yield { name, bytes, content: content() };
      if (left > 0) throw new HapaxError("internal", "a file of a tar was not read to its end");
      await reader.take(tarPadding(bytes).length);
    }
  } finally {
    await reader.close();
  }
}

/** A folder, as a `tar` of a directory has it, is no file. */
function parseHeader(head: Buffer) {
  const sum = Number.parseInt(head.toString("latin1", SUM_AT, SUM_AT + 6), 8);
  if (sum !== sumOf(head)) throw notWhole("a header does not match its checksum");
  const [name = ""] = head.toString("latin1", 0, 100).split("\0");
  const isLarge = head.readUInt8(SIZE_AT) === 0x80;
  const bytes = isLarge
    ? Number(head.readBigUInt64BE(SIZE_AT + 4))
    : Number.parseInt(head.toString("latin1", SIZE_AT, SIZE_AT + SIZE_BYTES - 1), 8);
  if (!Number.isSafeInteger(bytes) || bytes < 0) throw notWhole("a header has no size");
  const type = head.toString("latin1", 156, 157);
  if (type !== "0" && type !== "\0" && type !== "5") throw notWhole(`${name} is no file`);
  return { name: name.slice(name.lastIndexOf("/") + 1), bytes, isFile: type !== "5" };
}

class Reader {
  readonly #input: AsyncIterator<Uint8Array>;
  #rest: Uint8Array = new Uint8Array();

  constructor(input: AsyncIterable<Uint8Array>) {
    this.#input = input[Symbol.asyncIterator]();
  }

  /** Some of the next bytes; at least one. */
  async some(max: number): Promise<Uint8Array> {
    while (this.#rest.length === 0) {
      const next = await this.#input.next();
      if (next.done === true) throw notWhole("it ends too early");
      this.#rest = next.value;
    }
    const piece = this.#rest.subarray(0, max);
    this.#rest = this.#rest.subarray(piece.length);
    return piece;
  }

  async take(bytes: number): Promise<Buffer> {
    const pieces: Uint8Array[] = [];
    for (let left = bytes; left > 0;) {
      const piece = await this.some(left);
      pieces.push(piece);
      left -= piece.length;
    }
    return Buffer.concat(pieces);
  }

  async close(): Promise<void> {
    await this.#input.return?.();
  }
}

function notWhole(what: string): HapaxError {
  return new HapaxError("data_damaged", `the backup is not whole: ${what}`);
}
