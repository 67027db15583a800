// Which backups a server keeps open, and for how long. PROTOCOL.md §27.1
import { expect, test } from "vitest";
import { LIMITS } from "../../protocol/all-limits.ts";
import { createVirtualClock } from "../../testing/virtual-clock.ts";
import type { StoreBackup } from "../store.ts";
import { BackupBook } from "./backup-book.ts";

function stage() {
  const clock = createVirtualClock(1_700_000_000_000);
  const book = new BackupBook(clock);
  const released: string[] = [];
  const begin = (id: string) =>
    book.begin(id, () => {
      const release = (): void => void released.push(id);
      const none = () => Promise.resolve(new Uint8Array());
      const facts = { storeId: "", lsn: 7, crc: 0, changes: 0, segments: [], images: [] };
      const backup: StoreBackup = { ...facts, readSegment: none, readImage: none, release };
      return Promise.resolve(backup);
    });
  return { clock, book, released, begin };
}

test("a backup ends a minute after the last request for it, and gives back what it holds", async () => {
  const { clock, book, released, begin } = stage();
  await begin("a");
  clock.advance(LIMITS.backupLeaseMs - 1);
  book.find("a");
  clock.advance(LIMITS.backupLeaseMs - 1);
  expect(released).toEqual([]);
  clock.advance(1);
  expect(released).toEqual(["a"]);
  expect(() => book.find("a")).toThrow(expect.objectContaining({ code: "backup_over" }));
  expect(book.last).toBeUndefined();
});

test("so many run at once; one more ends those that are silent, and is refused if none is", async () => {
  const { clock, book, released, begin } = stage();
  for (let at = 0; at < LIMITS.backupsMax; at += 1) await begin(`b${at}`);
  await expect(begin("more")).rejects.toMatchObject({ code: "too_many" });
  clock.advance(LIMITS.backupSilentMs);
  book.find("b1");
  await begin("more");
  expect(released).toEqual(["b0", "b2", "b3"]);
  expect(book.running).toBe(2);
});

test("a backup that a client has finished is the last one, and an end that is repeated changes nothing", async () => {
  const { book, released, begin } = stage();
  await begin("a");
  expect(book.end("a", true)?.id).toBe("a");
  expect(book.end("a", true)).toBeUndefined();
  expect(book.last).toMatchObject({ lsn: 7, takenAtMs: 1_700_000_000_000, bytes: 0 });
  expect(released).toEqual(["a"]);
});
