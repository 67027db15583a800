/**
 * Keys of operations in a folder, one small file each, for callers on Node. Several
 * processes may use one folder.
 *
 * A record is written to a file of its own, synced, and then given its name by one call that fails if the name is taken;
 * at last the folder is synced. A process that dies in between leaves a `.new-` file behind, which no process reads, and which
 * a later process removes.
 *
 * A later change of a record goes into a second file, which names the key. No call of a file system replaces a file only if
 * it still exists, and a key that another process has removed meanwhile must not come back.
 */

import { createHash } from "node:crypto";
import { promises as fs } from "node:fs";
import * as path from "node:path";
import {
  makeFolder,
  nameIfFree,
  orRemove,
  removeOld,
  syncFolder,
  unlessMissing,
  writeNameless,
} from "../files/durable-names.ts";
import { encodeKeyRecord, type KeyRecord, type KeyStore, parseKeyRecord } from "./key-store.ts";

const tools = { fs, path };

/**
 * Returns a store that keeps keys in a folder. Creates the folder if it does not exist.
 *
 * ```ts
 * import { mkdtemp } from "node:fs/promises";
 * import { tmpdir } from "node:os";
 * import { join } from "node:path";
 * import { fileKeyStore } from "hapax/idempotency/node";
 *
 * const folder = await mkdtemp(join(tmpdir(), "keys-"));
 * const { key } = await fileKeyStore(folder).put("charge 17", { key: "k1", digest: "d", madeAtMs: 0 });
 * // Another process, or this one after a restart:
 * const found = await fileKeyStore(folder).get("charge 17");
 * console.assert(key === "k1" && found?.key === "k1");
 * ```
 */
export function fileKeyStore(folder: string): KeyStore {
  return new FileKeyStore(folder);
}

class FileKeyStore implements KeyStore {
  readonly #folder: string;
  #tidied: Promise<void> | undefined;

  constructor(folder: string) {
    this.#folder = folder;
  }

  async get(operation: string): Promise<KeyRecord | undefined> {
    const text = await fs.readFile(this.#path(operation), "utf8").catch(unlessMissing);
    if (text === undefined) return undefined;
    // The writer may not have synced it yet. Nothing may be sent under a key that can vanish.
    await syncFolder(tools, this.#folder);
    const record = parseKeyRecord(text, operation);
    const later = await fs.readFile(this.#path(operation, "later"), "utf8").catch(unlessMissing);
    const learned = later === undefined ? undefined : parseKeyRecord(later, operation);
    return learned?.key === record.key ? learned : record;
  }

  async put(operation: string, record: KeyRecord): Promise<KeyRecord> {
    const place = this.#path(operation);
    for (;;) {
      const there = await this.get(operation);
      if (there !== undefined) return there;
      const written = await this.#write(encodeKeyRecord(operation, record));
      const isNamed = await nameIfFree(tools, written, place);
      await fs.rm(written, { force: true });
      if (!isNamed) continue;
      await syncFolder(tools, this.#folder);
      return record;
    }
  }

  async update(operation: string, record: KeyRecord): Promise<void> {
    const there = await this.get(operation);
    if (there?.key !== record.key) return;
    const written = await this.#write(encodeKeyRecord(operation, record));
    await orRemove(fs, written, () => fs.rename(written, this.#path(operation, "later")));
    await syncFolder(tools, this.#folder);
  }

  async remove(operation: string): Promise<void> {
    await fs.rm(this.#path(operation, "later"), { force: true });
    const isGone = await fs.rm(this.#path(operation)).then(() => true, unlessMissing);
    if (isGone === true) await syncFolder(tools, this.#folder);
  }

  /** A digest is short, and every file system takes its characters. */
  #path(operation: string, kind = "json"): string {
    return path.join(
      this.#folder,
      `${createHash("sha256").update(operation).digest("hex")}.${kind}`,
    );
  }

  async #write(text: string): Promise<string> {
    await makeFolder(tools, this.#folder);
    this.#tidied ??= removeOld(tools, this.#folder);
    await this.#tidied;
    return await writeNameless(tools, this.#folder, text);
  }
}
