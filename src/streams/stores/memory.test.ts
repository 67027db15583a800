// The memory store keeps the contract. conformance.test.ts shows that the cases can fail.
import { describe, expect, test } from "vitest";
import type { Store } from "../store.ts";
import { type FaultyStore, openFaultyStore } from "../../../test/kits/faulty-store.ts";
import {
  appended,
  created,
  ended,
  read,
  SYSTEM_STREAM,
  trimmed,
  write,
} from "../../testing/store-case-kit.ts";
import { type OpenStore, STORE_CASES, storeConformance } from "../../testing/store-conformance.ts";
import { openMemoryStore } from "./memory.ts";

const failNextCommit = (store: Store): void => {
  // Every store of this opener is a faulty one.
  (store as FaultyStore).failNextCommit();
};

const memory: OpenStore = {
  isDurable: false,
  open: async () => openFaultyStore(openMemoryStore()),
  abandon: async () => undefined,
  failNextCommit,
};

describe("the memory store", () => {
  test.each(storeConformance(memory).map((entry) => [entry.name, entry] as const))(
    "%s",
    (_name, entry) => entry.run(memory),
  );

  test("is asked about every case that needs neither durability nor a second owner", () => {
    const left = STORE_CASES.filter((entry) => !storeConformance(memory).includes(entry));
    for (const { needs } of left) expect(["durability", "takeover"]).toContain(needs);
    expect(left.length).toBeLessThan(STORE_CASES.length);
  });

  test("takes back the room of removed streams", async () => {
    const store = openMemoryStore({ bytesMax: 10 });
    await write(store, created(1), appended(1, "123456"));
    expect(store.room.bytes).toBe(4);
    await write(store, ended("removed", 1));
    expect(store.room.bytes).toBe(10);
    await store.close();
  });

  test("takes back the room of what was trimmed", async () => {
    const store = openMemoryStore({ bytesMax: 10 });
    await write(store, created(1, { name: SYSTEM_STREAM }));
    await write(store, appended(1, "123"), appended(1, "4567"));
    await write(store, trimmed(1, 6));
    expect([store.room.bytes, store.stats().liveBytes]).toEqual([6, 4]);
    expect((await read(store, 1, 2, 7)).appends).toEqual([]);
    await write(store, trimmed(1, 7), trimmed(1, 7));
    expect([store.room.bytes, store.stats().liveBytes]).toEqual([10, 0]);
    await write(store, appended(1, "89"), ended("removed", 1));
    expect(store.room.bytes).toBe(10);
    await store.close();
  });

  test("keeps the bytes of an append and not the buffer around them", async () => {
    const store = openMemoryStore();
    const buffer = new Uint8Array(1024 * 1024);
    await write(store, created(1), appended(1, buffer.subarray(0, 3)));
    const page = await read(store, 1, 0, 3);
    expect(page.appends[0]?.buffer.byteLength).toBe(3);
    await store.close();
  });
});
