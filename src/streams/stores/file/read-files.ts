/** The files that are open for reading old segments. */

import type { Disk, DiskFile } from "./disk.ts";

/** Keeps a bounded number of files open for reading. Closes the one that was used longest ago first. */
export class ReadFiles {
  readonly #files = new Map<string, { readonly file: Promise<DiskFile>; users: number }>();

  async use<Result>(
    disk: Disk,
    name: string,
    filesMax: number,
    work: (file: DiskFile) => Promise<Result>,
  ): Promise<Result> {
    const entry = this.#files.get(name) ?? { file: disk.open(name, "read"), users: 0 };
    this.#files.delete(name);
    this.#files.set(name, entry);
    entry.users += 1;
    try {
      return await work(await entry.file);
    } catch (error) {
      if (this.#files.get(name) === entry) this.#files.delete(name);
      throw error;
    } finally {
      entry.users -= 1;
      if (entry.users === 0 && this.#files.get(name) !== entry) await closeQuietly(entry.file);
      await this.#shrink(filesMax);
    }
  }

  /** Forgets a file that is about to go. Running reads keep it open and finish. */
  async forget(name: string): Promise<void> {
    const entry = this.#files.get(name);
    this.#files.delete(name);
    if (entry !== undefined && entry.users === 0) await closeQuietly(entry.file);
  }

  async close(): Promise<void> {
    for (const name of [...this.#files.keys()]) await this.forget(name);
  }

  async #shrink(filesMax: number): Promise<void> {
    for (const [name, entry] of this.#files) {
      if (this.#files.size <= filesMax) return;
      if (entry.users > 0) continue;
      this.#files.delete(name);
      await closeQuietly(entry.file);
    }
  }
}

// The file was only read, so closing it loses nothing. A failed open has nothing to close.
async function closeQuietly(file: Promise<DiskFile>): Promise<void> {
  await file.then((opened) => opened.close()).catch(() => undefined);
}
