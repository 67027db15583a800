import { existsSync, mkdtempSync, promises, readdirSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import * as path from "node:path";
import { describe, expect, test } from "vitest";
import { fileKeyStore } from "../idempotency/key-file.ts";
import { fileObjects } from "../window/file-objects.ts";
import { type FileTools, nameIfFree, writeNameless } from "./durable-names.ts";

const freshFolder = (): string => mkdtempSync(path.join(tmpdir(), "hapax-names-"));
const TOOLS: FileTools = { fs: promises, path };

/** As on a disk that is full: the step of the file fails, and all else works. */
function full(step: "writeFile" | "sync"): FileTools {
  const fs: FileTools["fs"] = {
    ...promises,
    async open(...args) {
      const file = await promises.open(...args);
      file[step] = () => Promise.reject(new Error("ENOSPC"));
      return file;
    },
  };
  return { fs, path };
}

describe("a write that fails leaves no file behind", () => {
  test.each(["writeFile", "sync"] as const)("in %s", async (step) => {
    const folder = freshFolder();
    const written = writeNameless(full(step), folder, "content");
    await expect(written).rejects.toThrow("ENOSPC");
    expect(readdirSync(folder)).toEqual([]);
  });

  test("when it gets its name", async () => {
    const folder = freshFolder();
    const written = await writeNameless(TOOLS, folder, "content");
    const named = nameIfFree(TOOLS, written, path.join(folder, "missing", "name"));
    await expect(named).rejects.toThrow("ENOENT");
    expect(readdirSync(folder)).toEqual([]);
  });
});

describe("the first write removes what dead processes have left behind for an hour, and nothing younger", () => {
  const writes = {
    objects: (folder: string) => fileObjects(folder).create("a", new Uint8Array(1)),
    keys: (folder: string) =>
      fileKeyStore(folder).put("pay", { key: "k", digest: "d", madeAtMs: 0 }),
  };
  test.each(Object.entries(writes))("in a folder of %s", async (_name, write) => {
    const folder = freshFolder();
    const hoursAgo = (name: string, hours: number): string => {
      const file = path.join(folder, name);
      writeFileSync(file, "");
      const at = Date.now() / 1000 - hours * 3600;
      utimesSync(file, at, at);
      return file;
    };
    const old = hoursAgo(".new-old", 1.1);
    const kept = [hoursAgo(".new-young", 0.9), hoursAgo("other", 5)];
    await write(folder);
    expect([old, ...kept].map((file) => existsSync(file))).toEqual([false, true, true]);
  });
});
