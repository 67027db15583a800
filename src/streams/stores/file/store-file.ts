/**
 * The file STORE: it says which store a directory is, which process writes to it, and how far its journal goes at
 * least.
 *
 *   two copies of 80 bytes, at 0 and at 4096, in a file of 8192 bytes; zeros between
 *     0   8  "HAPAXSTO"
 *     8   4  format version
 *     12  4  CRC-32 of bytes 16..79, started with the format version
 *     16  16 store id: random, made with the directory, in every segment and snapshot
 *     32  8  epoch: how often the directory was opened for writing
 *     40  8  owner: random, of the process that opened it last
 *     48  8  number of the newest segment that is known to be there
 *     56  8  LSN of a frame that is known to be there
 *     64  4  CRC of that frame; 0 for LSN 0
 *     68  4  flags: 1 closed in order, so that the LSN is the last one
 *     72  8  zeros
 *
 * It is written in place, one copy after the other, when the directory is opened, when a segment is begun and when
 * the store is closed. Its values never go back, so the greater of two copies is the later one. The later copy is
 * overwritten last: a killed process may have left the other one torn.
 *
 *   ID1  a file of another store is refused, and so is a segment that does not follow the one before it;
 *   ID2  a journal that ends before the frame that STORE names is damaged: its end is missing;
 *   ID3  a process that finds another owner in STORE stops writing.
 */

import { crc32 } from "node:zlib";
import { HapaxError } from "../../../base/errors.ts";
import type { Random } from "../../../base/random.ts";
import { ByteReader, ByteWriter, damage } from "../journal/bytes.ts";
import type { Disk, DiskFile } from "./disk.ts";
import { FORMAT_VERSION, unknownFormat } from "../journal/format.ts";

export const STORE_NAME = "STORE";
export const UNFINISHED_STORE = "STORE.tmp";
export const STORE_COPIES_AT = [0, 4096] as const;
export const STORE_BYTES = 8192;
const COPY_BYTES = 80;
const MAGIC = Buffer.from("HAPAXSTO", "latin1");
const FLAG_CLOSED = 1;
/** How long a process may trust its last check that no other process has taken the directory. */
const CHECK_MS = 200;

export interface StoreMark {
  /** 32 hexadecimal digits. */
  readonly id: string;
  readonly epoch: number;
  /** 16 hexadecimal digits. */
  readonly owner: string;
  readonly segment: number;
  readonly lsn: number;
  readonly crc: number;
  readonly isClosed: boolean;
}

/** The last frame of the journal. */
export interface LastFrame {
  readonly lsn: number;
  readonly crc: number;
}

export interface StoreCopy {
  readonly at: number;
  /** Undefined if the copy does not match its checksum. */
  readonly mark: StoreMark | undefined;
}

/** Returns all bytes of the file. */
export function encodeStoreFile(mark: StoreMark): Buffer {
  const block = Buffer.alloc(STORE_BYTES);
  for (const at of STORE_COPIES_AT) block.set(encodeCopy(mark), at);
  return block;
}

function encodeCopy(mark: StoreMark): Buffer {
  const body = new ByteWriter(COPY_BYTES);
  body.raw(Buffer.from(mark.id, "hex"));
  body.u64(mark.epoch);
  body.raw(Buffer.from(mark.owner, "hex"));
  body.u64(mark.segment);
  body.u64(mark.lsn);
  body.u32(mark.crc);
  body.u32(mark.isClosed ? FLAG_CLOSED : 0);
  body.zeros(COPY_BYTES - 16 - body.length);
  const copy = new ByteWriter(COPY_BYTES);
  copy.raw(MAGIC);
  copy.u32(FORMAT_VERSION);
  copy.u32(crc32(body.bytes(), FORMAT_VERSION));
  copy.raw(body.bytes());
  return copy.bytes();
}

/** Throws `format_unknown` if other software has written the file. */
function decodeCopy(block: Buffer, at: number): StoreMark | undefined {
  const copy = block.subarray(at, at + COPY_BYTES);
  if (copy.length < COPY_BYTES || !copy.subarray(0, 8).equals(MAGIC)) return undefined;
  const reader = new ByteReader(copy, 8);
  const version = reader.u32();
  if (reader.u32() !== crc32(copy.subarray(16), version)) return undefined;
  if (version !== FORMAT_VERSION) throw unknownFormat(STORE_NAME, version);
  const id = reader.raw(16).toString("hex");
  const epoch = reader.u64();
  const owner = reader.raw(8).toString("hex");
  const segment = reader.u64();
  const lsn = reader.u64();
  const crc = reader.u32();
  return { id, epoch, owner, segment, lsn, crc, isClosed: (reader.u32() & FLAG_CLOSED) !== 0 };
}

export async function readStoreCopies(disk: Disk): Promise<readonly StoreCopy[]> {
  const file = await disk.open(STORE_NAME, "read");
  try {
    return await readCopies(file);
  } finally {
    await file.close();
  }
}

async function readCopies(file: DiskFile): Promise<readonly StoreCopy[]> {
  const block = await file.read(0, STORE_BYTES);
  return STORE_COPIES_AT.map((at) => ({ at, mark: decodeCopy(block, at) }));
}

/** Returns the later of the copies that are whole. */
export function latestMark(copies: readonly StoreCopy[]): StoreMark | undefined {
  return latestCopy(copies)?.mark;
}

function latestCopy(
  copies: readonly StoreCopy[],
): { readonly at: number; readonly mark: StoreMark } | undefined {
  let latest: { readonly at: number; readonly mark: StoreMark } | undefined;
  for (const { at, mark } of copies) {
    if (mark === undefined) continue;
    if (latest === undefined || isLater(mark, latest.mark)) latest = { at, mark };
  }
  return latest;
}

function isLater(one: StoreMark, other: StoreMark): boolean {
  if (one.epoch !== other.epoch) return one.epoch > other.epoch;
  if (one.isClosed !== other.isClosed) return one.isClosed;
  return one.segment > other.segment || (one.segment === other.segment && one.lsn > other.lsn);
}

/** Reads STORE. Throws `data_damaged` if no copy is whole. Undefined if there is no such file. */
export async function readStoreMark(
  disk: Disk,
  names: readonly string[],
): Promise<StoreMark | undefined> {
  if (!names.includes(STORE_NAME)) return undefined;
  const mark = latestMark(await readStoreCopies(disk));
  if (mark === undefined) throw damage(STORE_NAME, 0, "neither copy matches its checksum");
  return mark;
}

/** This process's right to write to a directory. */
export class Ownership {
  /** Open as long as the store, so that a check never lacks a file descriptor. */
  readonly #file: DiskFile;
  readonly #owner: string;
  #mark: StoreMark;
  #isStuck = false;
  #checkedMs: number;

  private constructor(file: DiskFile, owner: string, mark: StoreMark, steadyMs: number) {
    this.#file = file;
    this.#owner = owner;
    this.#mark = mark;
    this.#checkedMs = steadyMs;
  }

  /**
   * Makes this process the owner of the directory. Without a mark the directory is new. Everything that `known` names
   * is durable.
   */
  static async take(
    disk: Disk,
    found: StoreMark | undefined,
    random: Random,
    known: Pick<StoreMark, "id" | "segment" | "lsn" | "crc">,
    steadyMs: number,
  ): Promise<Ownership> {
    const owner = random.id().slice(0, 16);
    const epoch = (found?.epoch ?? 0) + 1;
    const mark = { epoch, owner, ...known, isClosed: false };
    if (found === undefined) await createStoreFile(disk, mark);
    const file = await disk.open(STORE_NAME, "durable");
    const ownership = new Ownership(file, owner, found ?? mark, steadyMs);
    if (found !== undefined) {
      // A killed process may have left one copy only in the page cache. To overwrite the other one would risk both.
      await file.sync();
      const later = latestCopy(await readCopies(file));
      await ownership.#write(mark, later?.at);
    }
    return ownership;
  }

  /** Whether the last check is too old to be trusted. */
  isCheckDue(steadyMs: number): boolean {
    return steadyMs - this.#checkedMs >= CHECK_MS;
  }

  /** ID3: throws if another process has opened the directory since. Reads the file at most a few times a second. */
  async check(steadyMs: number): Promise<void> {
    if (!this.isCheckDue(steadyMs)) return;
    const latest = latestMark(await readCopies(this.#file));
    const { epoch, owner } = this.#mark;
    if (latest?.owner !== this.#owner && latest?.owner !== owner) {
      const what = `another process has opened the directory (epoch ${latest?.epoch ?? "unknown"})`;
      throw new HapaxError("directory_locked", `${what}; this one (epoch ${epoch}) writes no more`);
    }
    this.#checkedMs = steadyMs;
  }

  /** Writes down a new segment. It is durable, and so are the frames before it. */
  rolled(segment: number, last: LastFrame): Promise<void> {
    return this.#write({ ...this.#mark, segment, ...last });
  }

  closed(last: LastFrame): Promise<void> {
    return this.#write({ ...this.#mark, ...last, isClosed: true });
  }

  close(): Promise<void> {
    return this.#file.close();
  }

  /** Writes copy by copy, the one at `last` last, so that one of them is always whole. */
  async #write(mark: StoreMark, last: number = STORE_COPIES_AT[1]): Promise<void> {
    if (this.#isStuck) return;
    const copy = encodeCopy(mark);
    try {
      for (const at of STORE_COPIES_AT) if (at !== last) await this.#file.write([copy], at);
      await this.#file.write([copy], last);
    } catch (error) {
      // If writing in place needs room and there is none, the former mark stays. It says less and is still true.
      if (!isNoRoom(error)) throw error;
      this.#isStuck = true; // A failed write is not tried again.
      return;
    }
    this.#mark = mark;
  }
}

async function createStoreFile(disk: Disk, mark: StoreMark): Promise<void> {
  const file = await disk.open(UNFINISHED_STORE, "create");
  try {
    await file.write([encodeStoreFile(mark)], 0);
    await file.sync();
  } finally {
    await file.close();
  }
  await disk.rename(UNFINISHED_STORE, STORE_NAME);
  await disk.syncDirectory();
}

export function isNoRoom(error: unknown): boolean {
  const { code } = error as NodeJS.ErrnoException;
  return code === "ENOSPC" || code === "EDQUOT" || code === "EFBIG";
}
