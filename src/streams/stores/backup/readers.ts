/** The two forms in which a backup is read: a directory of backups, and a stream. */

import { HapaxError } from "../../../base/errors.ts";
import type { Disk } from "../file/disk.ts";
import {
  type BackupDocument,
  type BackupFile,
  backupDamage,
  decodeDocument,
  filesOf,
  isDocumentFile,
} from "./document.ts";
import type { BackupReader } from "./restoring.ts";
import { readTar, type TarFile } from "./tar.ts";

const STEP_BYTES = 1024 * 1024;
/** A document has a line for each file, and a file 64 MiB of data. */
const DOCUMENT_BYTES_MAX = 64 * 1024 * 1024;

/** A backup in a directory: of each file the beginning that its document names. */
export function folderReader(disk: Disk, document: BackupDocument): BackupReader {
  return {
    async *files() {
      const names = new Set(await disk.list());
      for (const file of filesOf(document)) {
        if (!names.has(file.file)) throw backupDamage(file.file, "it is missing");
        yield { name: file.file, bytes: file.bytes, content: beginningOf(disk, file) };
      }
    },
    document: () => Promise.resolve(document),
  };
}

async function* beginningOf(disk: Disk, { file: name, bytes }: BackupFile) {
  const file = await disk.open(name, "read");
  try {
    for (let at = 0; at < bytes;) {
      const piece = await file.read(at, Math.min(STEP_BYTES, bytes - at));
      if (piece.length === 0) throw backupDamage(name, `it has ${at} of ${bytes} bytes`);
      yield piece;
      at += piece.length;
    }
  } finally {
    await file.close();
  }
}

/** A backup in a stream. Its document is its last file, so a stream that was cut has none. */
export function tarReader(input: AsyncIterable<Uint8Array>): BackupReader {
  let document: BackupDocument | undefined;
  return {
    async *files() {
      for await (const file of readTar(input)) {
        if (document !== undefined) throw backupDamage(file.name, "it comes behind the document");
        if (!isDocumentFile(file.name)) yield file;
        else document = decodeDocument(file.name, await contentOf(file));
      }
    },
    document() {
      if (document !== undefined) return Promise.resolve(document);
      const what = "the backup is not whole: it has no document";
      return Promise.reject(new HapaxError("data_damaged", what));
    },
  };
}

async function contentOf({ name, bytes, content }: TarFile): Promise<Uint8Array> {
  if (bytes > DOCUMENT_BYTES_MAX) throw backupDamage(name, "the document is too long");
  const pieces: Uint8Array[] = [];
  for await (const piece of content) pieces.push(piece);
  return Buffer.concat(pieces);
}
