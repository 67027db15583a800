import { describe, expect, test } from "vitest";
import { memoryLedger } from "../ledgers/memory.ts";
import { setVersion } from "./set-version.ts";

const CART = { scope: "carts", key: "1" };

function stage() {
  const ledger = memoryLedger();
  const cart = { value: "empty" };
  const write = (expected: number, id: string, more: { scope?: string; key?: string } = {}) =>
    ledger.transaction(async (tx) => {
      const cart1 = { ...CART, ...more };
      const decision = await setVersion(ledger.in(tx), cart1, { expected, id });
      if (decision.kind === "applied" && more.scope === undefined) {
        const before = cart.value;
        cart.value = id;
        tx.undo(() => (cart.value = before));
      }
      return decision;
    });
  return { ledger, cart, write };
}

describe("setVersion", () => {
  test("G30 tells a conflict from a repeat", async () => {
    const { cart, write } = stage();
    expect(await write(0, "a")).toEqual({ kind: "applied", version: 1 });
    expect(await write(1, "b")).toEqual({ kind: "applied", version: 2 });
    expect(await write(0, "a")).toEqual({ kind: "duplicate", version: 1 });
    expect(await write(1, "c")).toEqual({ kind: "conflict", version: 2 });
    expect(await write(5, "d")).toEqual({ kind: "conflict", version: 2 });
    expect(cart.value).toBe("b");
    expect(await write(0, "a", { scope: "other" })).toEqual({ kind: "applied", version: 1 });
  });

  test("applies one of many at once, of a new thing and of an old one", async () => {
    const { write } = stage();
    for (const expected of [0, 1]) {
      const ids = Array.from({ length: 10 }, (_, index) => `write ${expected} ${index}`);
      const all = await Promise.all(ids.map((id) => write(expected, id)));
      expect(all.map(({ kind }) => kind).toSorted()).toEqual([
        "applied",
        ...Array.from({ length: 9 }, () => "conflict"),
      ]);
    }
  });

  test("moves nothing if the transaction is undone", async () => {
    const { ledger, write } = stage();
    const undone = ledger.transaction(async (tx) => {
      const set = { expected: 0, id: "a" };
      expect(await setVersion(ledger.in(tx), CART, set)).toMatchObject({ kind: "applied" });
      throw new Error("no");
    });
    await expect(undone).rejects.toThrow("no");
    expect(await write(0, "b")).toEqual({ kind: "applied", version: 1 });
  });

  test("refuses to move a version outside of a transaction", async () => {
    const { ledger } = stage();
    const alone = setVersion(ledger, CART, { expected: 0, id: "a" });
    await expect(alone).rejects.toMatchObject({ code: "invalid_request" });
  });

  test("says of what is too long ago that it is forgotten", async () => {
    const { write } = stage();
    for (let version = 0; version < 70; version += 1) await write(version, `w${version}`);
    expect(await write(2, "w2")).toEqual({ kind: "forgotten", version: 70 });
    expect(await write(6, "w6")).toEqual({ kind: "duplicate", version: 7 });
  });

  test("refuses writes that make no sense", async () => {
    const { write } = stage();
    for (const expected of [-1, 0.5, NaN])
      await expect(write(expected, "a")).rejects.toMatchObject({ code: "invalid_request" });
    await expect(write(0, "")).rejects.toMatchObject({ code: "invalid_request" });
  });
});
