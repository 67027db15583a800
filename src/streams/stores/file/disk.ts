/**
 * PORT, inside the file store: one flat directory of files. Small enough for a simulated disk that loses
 * power at every instant (testing/simulated-disk.ts).
 *
 *   DK1  a write resolves when all its bytes are written, and, on a file opened `durable`, when they
 *        survive a power cut; a short count is gone on with, never taken for success;
 *   DK2  a file that was created or renamed survives a power cut only after `syncDirectory`;
 *   DK3  nothing is ever tried again after it failed: the caller stops.
 */

export interface Disk {
  /** Names of the files, in no order. */
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
  /** Up to `length` bytes from `position`; fewer only at the end of the file. At the start of `into`, if given. */
  read(position: number, length: number, into?: Buffer): Promise<Buffer>;
  write(buffers: readonly Uint8Array[], position: number): Promise<void>;
  sync(): Promise<void>;
  close(): Promise<void>;
}
