// PROTOCOL.md §21.8: the file of API keys.
import {
  chmodSync,
  chownSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { LIMITS } from "../../protocol/all-limits.ts";
import { encodeKeyDocument, type ApiKeyRecord } from "../access/key-document.ts";
import { changeKeyFile, readKeyFile } from "./node-key-file.ts";

let folder = "";
let path = "";

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "hapax-keys-"));
  path = join(folder, "tokens.json");
});

afterEach(() => {
  rmSync(folder, { recursive: true, force: true });
});

const record = (number: number): ApiKeyRecord => ({
  id: String(number).padStart(12, "0"),
  name: "ci",
  sha256: "ab".repeat(32),
  createdAt: "2026-11-17T09:00:00.000Z",
  grants: [{ actions: ["read"] }],
});

const add = (number: number, at = path): Promise<number> =>
  changeKeyFile(at, (keys) => ({ keys: [...keys, record(number)], answer: keys.length }));

const put = (text: string, mode = 0o600): void => {
  writeFileSync(path, text);
  chmodSync(path, mode);
};

describe("a file of keys", () => {
  test("is made with its directory, and no other user can read either", async () => {
    const deep = join(folder, "data", "more", "tokens.json");
    expect(await readKeyFile(deep)).toBeUndefined();
    expect(await add(1, deep)).toBe(0);
    expect(await add(2, deep)).toBe(1);
    expect(await readKeyFile(deep)).toEqual([record(1), record(2)]);
    expect(statSync(deep).mode & 0o777).toBe(0o600);
    expect(statSync(join(folder, "data", "more")).mode & 0o777).toBe(0o700);
  });

  test.each([0o644, 0o640, 0o604, 0o620, 0o602, 0o601])(
    "G49 with mode %o it is refused, and neither read nor changed",
    async (mode) => {
      put(encodeKeyDocument([record(1)]), mode);
      const refusal = {
        code: "invalid_options",
        message: expect.stringContaining(`mode 0${mode.toString(8)}`) as string,
      };
      await expect(readKeyFile(path)).rejects.toMatchObject(refusal);
      await expect(readKeyFile(path)).rejects.toThrow(`chmod 600 ${path}`);
      await expect(add(2)).rejects.toMatchObject(refusal);
      expect(readFileSync(path, "utf8")).toBe(encodeKeyDocument([record(1)]));
    },
  );

  test("what is no document of keys is refused with its path, and not overwritten", async () => {
    put("{");
    await expect(readKeyFile(path)).rejects.toThrow(`${path} cannot be used: it is not JSON`);
    await expect(add(1)).rejects.toMatchObject({ code: "invalid_options" });
    expect(readFileSync(path, "utf8")).toBe("{");
    rmSync(path);
    mkdirSync(path, { mode: 0o700 });
    await expect(readKeyFile(path)).rejects.toThrow("it is not a file");
  });

  test("a file that is too large is refused before it is read", async () => {
    put(" ".repeat(LIMITS.keyFileBytesMax + 1));
    await expect(readKeyFile(path)).rejects.toThrow(
      `more than ${String(LIMITS.keyFileBytesMax)} bytes`,
    );
  });

  test("a link stays a link: the file that it names is changed", async () => {
    const target = join(folder, "real.json");
    writeFileSync(target, encodeKeyDocument([]), { mode: 0o600 });
    symlinkSync(target, path);
    await add(1);
    expect(lstatSync(path).isSymbolicLink()).toBe(true);
    expect(await readKeyFile(target)).toEqual([record(1)]);
  });

  test("a change that root makes leaves the file to its owner", async () => {
    await add(1);
    if (process.getuid?.() !== 0) return expect(statSync(path).uid).toBe(process.getuid?.());
    chownSync(folder, 1234, 1235);
    chownSync(path, 1234, 1235);
    await add(2);
    const { uid, gid, mode } = statSync(path);
    return expect([uid, gid, mode & 0o777]).toEqual([1234, 1235, 0o600]);
  });
});

describe("changes at the same time", () => {
  test("none is lost, and each sees those before it", async () => {
    const numbers = Array.from({ length: 20 }, (_, number) => number);
    const places = await Promise.all(numbers.map((number) => add(number)));
    expect(places.toSorted((one, other) => one - other)).toEqual(numbers);
    const ids = (await readKeyFile(path))?.map(({ id }) => Number(id)) ?? [];
    expect(ids.toSorted((one, other) => one - other)).toEqual(numbers);
  });

  test("a change that fails changes nothing, leaves nothing behind, and frees the file", async () => {
    await add(1);
    const fail = changeKeyFile(path, () => {
      throw new Error("no such key");
    });
    await expect(fail).rejects.toThrow("no such key");
    await add(2);
    expect(await readKeyFile(path)).toEqual([record(1), record(2)]);
    expect(readdirSync(folder).toSorted()).toEqual(["tokens.json", "tokens.json.lock"]);
    expect(readdirSync(`${path}.lock`)).toEqual([]);
  });
});
