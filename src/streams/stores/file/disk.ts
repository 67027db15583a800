/**
 * PORT, inside the file store: one flat directory of files. It is small enough for a simulated disk that can lose
 * power at every instant (testing/simulated-disk.ts).
 *
 *   - a write resolves when all its bytes are written, and, on a file opened `durable`, when they survive a power
 *     cut; a short count is no success: the disk writes the rest;
 *   - a file that was created or renamed survives a power cut only after `syncDirectory`;
 *   - a failed call is never tried again: the caller stops.
 */

export interface Disk {
  /** Returns the names of the files, in no order. */
  list(): Promise<readonly string[]>;
  open(name: string, mode: DiskMode): Promise<DiskFile>;
  rename(from: string, to: string): Promise<void>;
  remove(name: string): Promise<void>;
  syncDirectory(): Promise<void>;
}

/**
 * `read`: must exist. `write`: must exist; written bytes need `sync`. `durable`: must exist; a write is
 * durable when it resolves. `create`: must not exist; written bytes need `sync`.
 */
export type DiskMode = "read" | "write" | "durable" | "create";

export interface DiskFile {
  size(): Promise<number>;
  /**
   * Reads up to `length` bytes from `position`; fewer only at the end of the file. Puts them at the start of `into`,
   * if given.
   */
  read(position: number, length: number, into?: Buffer): Promise<Buffer>;
  write(buffers: readonly Uint8Array[], position: number): Promise<void>;
  sync(): Promise<void>;
  close(): Promise<void>;
}
