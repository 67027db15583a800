// Files that decide who may come in: whose they are, and what others may do with them. PROTOCOL.md §21.8.
import { chmodSync, chownSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { isTrustedOwner, readSecretFile, readTrustedFile } from "./node-secret-file.ts";

let folder = "";
let path = "";

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "hapax-secret-"));
  path = join(folder, "file");
  writeFileSync(path, "text", { mode: 0o600 });
});

afterEach(() => {
  rmSync(folder, { recursive: true, force: true });
});

test.each([
  [0o600, true, true],
  [0o400, true, true],
  [0o640, false, true],
  [0o644, false, true],
  [0o620, false, false],
  [0o602, false, false],
  [0o666, false, false],
])(
  "a file of mode %o may have secrets: %s, may be trusted: %s",
  async (mode, isSecret, isTrusted) => {
    chmodSync(path, mode);
    const isRead = (read: Promise<string>): Promise<boolean> =>
      read.then(
        (text) => text === "text",
        () => false,
      );
    expect(await isRead(readSecretFile(path))).toBe(isSecret);
    expect(await isRead(readTrustedFile(path))).toBe(isTrusted);
  },
);

const [ME, ROOT, OTHER] = [1000, 0, 1001];

test.each([
  [ME, ME, ME, true],
  [ME, ME, OTHER, true],
  [ROOT, ME, ME, true],
  [OTHER, ME, ME, false],
  [OTHER, ME, OTHER, false],
  [ROOT, ROOT, OTHER, true],
  [OTHER, ROOT, OTHER, true],
  [OTHER, ROOT, ROOT, false],
  [OTHER, ROOT, undefined, false],
])("G49 a file of %d, for a process of %d, in a directory of %s is trusted: %s", (...row) => {
  const [uid, processUid, directoryUid, isTrusted] = row;
  expect(isTrustedOwner(uid, processUid, directoryUid)).toBe(isTrusted);
});

test("a file of another user is refused, with what to do", async () => {
  const me = process.geteuid?.() ?? 0;
  // Only root can give a file away. Others see that their own file is read.
  if (me !== 0) return expect(await readSecretFile(path)).toBe("text");
  chownSync(path, 1234, 1234);
  for (const read of [readSecretFile, readTrustedFile]) {
    await expect(read(path)).rejects.toMatchObject({ code: "invalid_options" });
    await expect(read(path)).rejects.toThrow(`belongs to the user 1234`);
    await expect(read(path)).rejects.toThrow(`chown 0 ${path}`);
  }
  chownSync(folder, 1234, 1234);
  return expect(await readSecretFile(path)).toBe("text");
});
