/**
 * The objects of a log that is kept in object storage or in files, and their names. An object is written once.
 *
 *   log/<segment>/head      a writer has begun the segment: its epoch, its lease's token, its nonce, the log time
 *   log/<segment>/<entry>   a batch of entries, from this one on; or the seal, behind which nothing follows
 *   log/<segment>/gone      the batches of the segment were removed; head and seal stay, so that no late writer takes their place
 *
 *   every object: "HXL1", kind u8, CRC-32 of the rest (u32), then
 *     1 head     epoch, token + 1, nonce (16 bytes), time, count of entries in the segment before
 *     2 plain    time, count, of each entry: length, bytes
 *     3 batch    time, count, of each entry: length of its id (0: none), id, length, bytes
 *     4 seal     nonce (16 bytes) of the writer that sealed it
 *     5 gone     time up to which the log has no entries any more
 *
 * Numbers without a type are varints. A batch without ids is plain: ids cost nothing where they are not used. Pure.
 */

import { crc32Of } from "../../base/crc32.ts";
import { PackedReader, PackedWriter, Unreadable } from "../../base/packed.ts";

const MAGIC = 0x314c5848; // HXL1
const KIND = { head: 1, plain: 2, batch: 3, seal: 4, gone: 5 } as const;
const NONCE_BYTES = 16;
const DIGITS = 12;

/** An entry as it is stored: its id as UTF-8, if it has one. */
export interface PackedEntry {
  readonly id: Uint8Array | undefined;
  readonly bytes: Uint8Array;
}

/** One object of a log. */
export type LogObject =
  | {
      readonly kind: "head";
      readonly epoch: number;
      /** The token of the writer's lease; -1 without one. */
      readonly token: number;
      readonly nonce: Uint8Array;
      readonly atMs: number;
      readonly entriesBefore: number;
    }
  | { readonly kind: "batch"; readonly atMs: number; readonly entries: readonly PackedEntry[] }
  | { readonly kind: "seal"; readonly nonce: Uint8Array }
  | { readonly kind: "gone"; readonly toMs: number };

export function encodeLogObject(object: LogObject): Uint8Array {
  const rest = new PackedWriter();
  const kind = encodeRest(rest, object);
  const payload = rest.bytes();
  const whole = new PackedWriter(payload.length + 9);
  whole.u32(MAGIC);
  whole.u8(kind);
  whole.u32(crc32Of(payload) ^ kind);
  whole.raw(payload);
  return whole.bytes();
}

function encodeRest(rest: PackedWriter, object: LogObject): number {
  switch (object.kind) {
    case "head":
      rest.varint(object.epoch);
      rest.varint(object.token + 1);
      rest.raw(object.nonce);
      rest.varint(object.atMs);
      rest.varint(object.entriesBefore);
      return KIND.head;
    case "batch": {
      const isPlain = object.entries.every(({ id }) => id === undefined);
      rest.varint(object.atMs);
      rest.varint(object.entries.length);
      for (const { id, bytes } of object.entries) {
        if (!isPlain) rest.sized(id ?? new Uint8Array());
        rest.sized(bytes);
      }
      return isPlain ? KIND.plain : KIND.batch;
    }
    case "seal":
      rest.raw(object.nonce);
      return KIND.seal;
    case "gone":
      rest.varint(object.toMs);
      return KIND.gone;
  }
}

/** Throws `Unreadable` if the bytes are not whole, or not an object of a log. */
export function decodeLogObject(bytes: Uint8Array): LogObject {
  const reader = new PackedReader(bytes);
  if (reader.u32() !== MAGIC) throw new Unreadable("it is no object of a log");
  const kind = reader.u8();
  const crc = reader.u32();
  if ((crc32Of(bytes.subarray(9)) ^ kind) >>> 0 !== crc)
    throw new Unreadable("its checksum is wrong");
  const object = decodeRest(reader, kind);
  if (reader.left > 0) throw new Unreadable("it has bytes left over");
  return object;
}

function decodeRest(reader: PackedReader, kind: number): LogObject {
  if (kind === KIND.head) {
    const [epoch, token] = [reader.varint(), reader.varint() - 1];
    const nonce = reader.raw(NONCE_BYTES);
    return {
      kind: "head",
      epoch,
      token,
      nonce,
      atMs: reader.varint(),
      entriesBefore: reader.varint(),
    };
  }
  if (kind === KIND.seal) return { kind: "seal", nonce: reader.raw(NONCE_BYTES) };
  if (kind === KIND.gone) return { kind: "gone", toMs: reader.varint() };
  if (kind !== KIND.plain && kind !== KIND.batch)
    throw new Unreadable(`its kind ${kind} is unknown`);
  const atMs = reader.varint();
  const entries = Array.from({ length: reader.varint() }, () => {
    const id = kind === KIND.batch ? reader.sized() : new Uint8Array();
    return { id: id.length === 0 ? undefined : id, bytes: reader.sized() };
  });
  return { kind: "batch", atMs, entries };
}

const numbered = (value: number): string => String(value).padStart(DIGITS, "0");

/** The name of a segment's object: its head, its marker, or what begins at an entry. */
export function logObjectName(segment: number, what: number | "head" | "gone"): string {
  return `log/${numbered(segment)}/${typeof what === "number" ? numbered(what) : what}`;
}

/** The folder of all snapshots. */
export const SNAPSHOTS = "snapshots/";

/** Which snapshot it is. A later writer's epoch is greater: a writer that was fenced writes beside its successor. */
export interface SnapshotName {
  readonly epoch: number;
  readonly sequence: number;
}

export function encodeWindowSnapshotName({ epoch, sequence }: SnapshotName): string {
  return `${SNAPSHOTS}${numbered(epoch)}-${numbered(sequence)}`;
}

/** Undefined: it is no name of a snapshot. Names of later snapshots are greater. */
export function parseWindowSnapshotName(name: string): SnapshotName | undefined {
  const match = /^snapshots\/(\d{12})-(\d{12})$/.exec(name);
  return match === null ? undefined : { epoch: Number(match[1]), sequence: Number(match[2]) };
}
