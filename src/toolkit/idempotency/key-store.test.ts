// One contract for all places where keys are kept.
import { mkdtempSync, readdirSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { isHapaxError } from "../../base/errors.ts";
import { fileKeyStore } from "./key-file.ts";
import { type KeyRecord, type KeyStore, memoryKeyStore, storageKeyStore } from "./key-store.ts";

const recordOf = (key: string): KeyRecord => ({ key, digest: `digest of ${key}`, madeAtMs: 5 });
const freshFolder = (): string => mkdtempSync(join(tmpdir(), "hapax-keys-"));

/** A place that can be opened several times, as several processes would. */
const PLACES: readonly { readonly name: string; readonly make: () => () => KeyStore }[] = [
  {
    name: "memory",
    make: () => {
      const store = memoryKeyStore();
      return () => store;
    },
  },
  {
    name: "storage",
    make: () => {
      const texts = new Map<string, string>();
      const storage = {
        getItem: (name: string) => texts.get(name) ?? null,
        setItem: (name: string, text: string) => texts.set(name, text),
        removeItem: (name: string) => texts.delete(name),
      };
      return () => storageKeyStore(storage);
    },
  },
  {
    name: "file",
    make: () => {
      const folder = join(freshFolder(), "not", "yet", "there");
      return () => fileKeyStore(folder);
    },
  },
];

for (const { name: place, make } of PLACES) {
  describe(place, () => {
    test("a stored key is there when the store is opened again, until it is removed", async () => {
      const open = make();
      expect(await open().get("pay")).toBeUndefined();
      expect(await open().put("pay", recordOf("k"))).toEqual(recordOf("k"));
      expect(await open().get("pay")).toEqual(recordOf("k"));
      await open().remove("pay");
      await open().remove("pay");
      expect(await open().get("pay")).toBeUndefined();
      expect(await open().put("pay", recordOf("k2"))).toEqual(recordOf("k2"));
    });

    test("what is learned of a key that was removed brings it not back, nor changes the next one", async () => {
      const open = make();
      const late = { ...recordOf("k1"), expiresAtMs: 9 };
      await open().put("pay", recordOf("k1"));
      await open().remove("pay");
      await open().update("pay", late);
      expect(await open().get("pay")).toBeUndefined();
      expect(await open().put("pay", recordOf("k2"))).toEqual(recordOf("k2"));
      await open().update("pay", late);
      expect(await open().get("pay")).toEqual(recordOf("k2"));
    });

    test("of many keys for one operation the first stays, and every caller gets that one", async () => {
      const open = make();
      const keys = Array.from({ length: 20 }, (_, at) => `k${at}`);
      const told = await Promise.all(keys.map((key) => open().put("pay", recordOf(key))));
      expect(new Set(told.map(({ key }) => key)).size).toBe(1);
      expect(await open().get("pay")).toEqual(told[0]);
    });

    test("the record of the same key is replaced, that of another is not", async () => {
      const open = make();
      const known = { ...recordOf("k"), expiresAtMs: 9 };
      await open().put("pay", recordOf("k"));
      await open().update("pay", known);
      expect(await open().get("pay")).toEqual(known);
      expect(await open().put("pay", recordOf("k"))).toEqual(known);
      expect(await open().put("pay", { ...recordOf("other"), expiresAtMs: 1 })).toEqual(known);
      expect(await open().get("pay")).toEqual(known);
    });

    test("names with any characters are kept apart", async () => {
      const open = make();
      const names = [
        "a",
        "A",
        "a/b",
        "../a",
        "a\0b",
        "ä",
        "__proto__",
        " ",
        "x".repeat(512),
        "é",
        "e\u0301",
      ];
      for (const name of names) await open().put(name, recordOf(`of ${name}`));
      for (const name of names) expect(await open().get(name)).toEqual(recordOf(`of ${name}`));
    });
  });
}

test("a file that is not whole is reported, and no other key is made in its place", async () => {
  const folder = freshFolder();
  const store = fileKeyStore(folder);
  await store.put("pay", recordOf("k"));
  const [name = ""] = readdirSync(folder);
  for (const text of ["", "{}", '{"version":1,"operation":"pay","key":7}']) {
    writeFileSync(join(folder, name), text);
    await expect(store.put("pay", recordOf("k2"))).rejects.toSatisfy((error) =>
      isHapaxError(error, "data_damaged"),
    );
  }
});

test("nothing but the kept keys is left in the folder", async () => {
  const folder = freshFolder();
  const store = fileKeyStore(folder);
  await Promise.all(["k1", "k2", "k3"].map((key) => store.put("pay", recordOf(key))));
  await store.put("refund", recordOf("k"));
  expect(readdirSync(folder).filter((name) => name.endsWith(".json"))).toHaveLength(2);
  expect(readdirSync(folder)).toHaveLength(2);
});

test("a key that is removed while a late answer is written down stays removed", async () => {
  const folder = freshFolder();
  const [one, other] = [fileKeyStore(folder), fileKeyStore(folder)];
  for (let round = 0; round < 50; round += 1) {
    const record = recordOf(`k${String(round)}`);
    await one.put("pay", record);
    await Promise.all([one.update("pay", { ...record, expiresAtMs: 9 }), other.remove("pay")]);
    expect(await other.get("pay")).toBeUndefined();
  }
});
