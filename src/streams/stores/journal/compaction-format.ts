/**
 * Encodes the rule of a changelog, for records and snapshots.
 *
 *   rule      flags u8 (1 there is a rule, 2 tombstone), [path of the key], [path of the tombstone], [seconds of the lag]
 *
 * Paths are texts, and the lag is a varint.
 */

import type { CompactionRule } from "../../core/compaction.ts";
import { type ByteReader, type ByteWriter, damaged, share } from "./bytes.ts";

const FLAG_RULE = 1;
const FLAG_TOMBSTONE = 2;

export function encodeCompaction(writer: ByteWriter, rule: CompactionRule | undefined): void {
  if (rule === undefined) {
    writer.u8(0);
    return;
  }
  writer.u8(FLAG_RULE | (rule.tombstone === undefined ? 0 : FLAG_TOMBSTONE));
  writer.text(rule.key);
  if (rule.tombstone !== undefined) writer.text(rule.tombstone);
  writer.varint(rule.lagSeconds);
}

export function decodeCompaction(reader: ByteReader): CompactionRule | undefined {
  const flags = reader.u8();
  if (flags === 0) return undefined;
  if (flags !== FLAG_RULE && flags !== (FLAG_RULE | FLAG_TOMBSTONE)) {
    throw damaged(`a rule of compaction has the unknown flags ${flags}`);
  }
  const key = share(reader.text());
  const tombstone = flags === FLAG_RULE ? undefined : share(reader.text());
  return { key, tombstone, lagSeconds: reader.varint() };
}
