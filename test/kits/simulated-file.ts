/** One file of the simulated disk: what is on the platter, what is in the page cache, and where they differ. */

import type { SeededRandom } from "../../src/testing/seeded-random.ts";

const SECTOR_BYTES = 512;

/** The part of a sector that was written since the last sync. */
interface DirtyPart {
  from: number;
  to: number;
}

/**
 * The platter and the cache of one file. A power cut keeps, loses or garbles each unsynced sector, one by one. Only
 * written bytes are at risk: a sector keeps what was durable in it before (SQLite calls this powersafe overwrite).
 */
export class SimulatedFile {
  #durable: Buffer = Buffer.alloc(0);
  #cached: Buffer = Buffer.alloc(0);
  #durableSize = 0;
  #size = 0;
  /** The cache shows bytes that are not on the platter and never will be. */
  #hasForgotten = false;
  readonly #dirty = new Map<number, DirtyPart>();

  get size(): number {
    return this.#size;
  }

  /** Returns a copy, which the caller may keep. */
  read(position: number, length: number): Buffer {
    const end = Math.min(this.#size, position + length);
    return Buffer.from(this.#cached.subarray(Math.min(position, end), end));
  }

  write(bytes: Uint8Array, position: number): void {
    const end = position + bytes.length;
    this.#cached = grown(this.#cached, end);
    this.#cached.set(bytes, position);
    this.#size = Math.max(this.#size, end);
    for (let at = position; at < end;) {
      const sector = Math.floor(at / SECTOR_BYTES);
      const to = Math.min(end, (sector + 1) * SECTOR_BYTES);
      const part = this.#dirty.get(sector);
      if (part === undefined) this.#dirty.set(sector, { from: at, to });
      else {
        part.from = Math.min(part.from, at);
        part.to = Math.max(part.to, to);
      }
      at = to;
    }
  }

  sync(): void {
    for (const part of this.#dirty.values()) this.#keep(part);
    this.#durable = grown(this.#durable, this.#size);
    this.#durableSize = this.#size;
    this.#dirty.clear();
  }

  /** Makes only this range durable, like a synchronous write. */
  syncRange(position: number, end: number): void {
    const last = Math.floor(Math.max(position, end - 1) / SECTOR_BYTES);
    for (let sector = Math.floor(position / SECTOR_BYTES); sector <= last; sector += 1) {
      const part = this.#dirty.get(sector);
      if (part === undefined) continue;
      this.#keep(part);
      this.#dirty.delete(sector);
    }
    this.#durableSize = Math.max(this.#durableSize, Math.min(end, this.#size));
  }

  /** Does what a failed sync does: the cache still shows the bytes, but the kernel will not write them any more. */
  forget(): void {
    this.#hasForgotten = true;
    this.#dirty.clear();
    this.#durable = grown(this.#durable, this.#size);
    this.#durableSize = this.#size;
  }

  /** Does what a power cut does: afterwards the cache has what is on the platter. */
  losePower(random: SeededRandom): void {
    const isClean = this.#dirty.size === 0 && this.#size === this.#durableSize;
    if (isClean && !this.#hasForgotten) return;
    for (const part of this.#dirty.values()) {
      const fate = random.below(3);
      if (fate === 0) continue;
      this.#keep(part);
      if (fate === 1) continue;
      for (let at = part.from; at < part.to; at += 1) this.#durable[at] = random.below(256);
    }
    if (random.below(2) === 0) this.#durableSize = this.#size;
    this.#size = this.#durableSize;
    this.#durable = grown(this.#durable, this.#size);
    this.#cached = Buffer.from(this.#durable);
    this.#dirty.clear();
    this.#hasForgotten = false;
  }

  #keep({ from, to }: DirtyPart): void {
    this.#durable = grown(this.#durable, to);
    this.#durable.set(this.#cached.subarray(from, to), from);
    this.#durableSize = Math.max(this.#durableSize, to);
  }
}

function grown(buffer: Buffer, length: number): Buffer {
  if (length <= buffer.length) return buffer;
  const larger = Buffer.alloc(Math.max(length, buffer.length * 2));
  larger.set(buffer);
  return larger;
}

export function ioError(code: string, call: string, name?: string): NodeJS.ErrnoException {
  const where = name === undefined ? "" : ` '${name}'`;
  const error: NodeJS.ErrnoException = new Error(`${code}: simulated, ${call}${where}`);
  error.code = code;
  return error;
}
