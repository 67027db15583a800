import { describe, expect, test } from "vitest";
import { memoryLedger, type MemoryTransaction } from "../ledgers/memory.ts";
import type { Meter } from "../meters/meter.ts";
import { createVirtualClock } from "../../testing/virtual-clock.ts";
import { createInbox } from "./inbox.ts";

function stage(retainMs = 1_000) {
  const clock = createVirtualClock(1_000_000);
  const ledger = memoryLedger({ clock });
  const counted: string[] = [];
  const headroom: number[] = [];
  const meter: Meter = {
    add: (name) => void counted.push(name),
    set: (_, value) => void headroom.push(value),
  };
  const effects: string[] = [];
  const write = (tx: MemoryTransaction, text: string): void => {
    effects.push(text);
    tx.undo(() => void effects.splice(effects.lastIndexOf(text), 1));
  };
  const options = { consumer: "billing", retainMs, clock, meter };
  return {
    clock,
    ledger,
    options,
    inbox: createInbox(ledger, options),
    effects,
    write,
    counted,
    headroom,
  };
}

const MESSAGE = { scope: "shop", key: "m1" };

describe("an inbox", () => {
  test("handles a message once, and reports it when it comes again", async () => {
    const { inbox, effects, write, counted, headroom, clock } = stage();
    const handle = () => inbox.handle(MESSAGE, (tx) => write(tx, "booked"));
    expect(await handle()).toEqual({ isDuplicate: false, result: undefined });
    clock.advance(750);
    expect(await handle()).toEqual({ isDuplicate: true });
    expect(effects).toEqual(["booked"]);
    expect(counted).toEqual(["claims_total", "duplicates_total"]);
    expect(headroom).toEqual([0.25]);
  });

  test("handles a message once that comes many times at once", async () => {
    const { inbox, effects, write } = stage();
    const handle = (_: unknown, index: number) =>
      inbox.handle(MESSAGE, async (tx) => {
        await Promise.resolve();
        write(tx, `booked ${index}`);
      });
    const all = await Promise.all(Array.from({ length: 20 }, handle));
    expect(all.filter(({ isDuplicate }) => !isDuplicate)).toHaveLength(1);
    expect(effects).toEqual(["booked 0"]);
  });

  test("keeps consumers and scopes apart, with any characters in their names", async () => {
    const { ledger, options } = stage();
    const all = [
      ["a", "b"],
      ["a,b", "c"],
      ["a", "b,c"],
      ['a","b', "c"],
      ["b", "a"],
    ] as const;
    for (const [consumer, scope] of all) {
      const inbox = createInbox(ledger, { ...options, consumer });
      expect((await inbox.handle({ scope, key: "1" }, () => 1)).isDuplicate).toBe(false);
      expect((await inbox.handle({ scope, key: "1" }, () => 1)).isDuplicate).toBe(true);
    }
  });

  test("handles a message again that failed, also if both came at once", async () => {
    const { inbox, effects, write } = stage();
    const failure = new Error("no");
    const first = inbox.handle(MESSAGE, (tx) => {
      write(tx, "half");
      throw failure;
    });
    const second = inbox.handle(MESSAGE, (tx) => write(tx, "whole"));
    expect(await first.catch((error) => error)).toBe(failure);
    expect((await second).isDuplicate).toBe(false);
    expect(effects).toEqual(["whole"]);
  });

  test("takes a message for new after its retention, if nothing says that it is old", async () => {
    const { inbox, clock } = stage();
    await inbox.handle(MESSAGE, () => 1);
    clock.advance(1_000);
    expect((await inbox.handle(MESSAGE, () => 1)).isDuplicate).toBe(false);
    expect((await inbox.handle(MESSAGE, () => 1)).isDuplicate).toBe(true);
  });

  test("refuses a message that is older than it remembers, and notes nothing of it", async () => {
    const { inbox, effects, write, clock, counted, ledger } = stage();
    const old = { sentAtMs: clock.nowMs() - 1_000 };
    const handle = inbox.handle(MESSAGE, (tx) => write(tx, "booked"), old);
    await expect(handle).rejects.toMatchObject({ code: "key_expired" });
    expect(effects).toEqual([]);
    expect(counted).toEqual(["expired_total"]);
    expect(await ledger.entries.scan({ kind: "inbox", max: 10 })).toEqual([]);
    const young = { sentAtMs: clock.nowMs() - 999 };
    expect((await inbox.handle(MESSAGE, () => 1, young)).isDuplicate).toBe(false);
  });

  test("G27 refuses a message with its time in the place of the identity, instead of ignoring the time", async () => {
    const { inbox, effects, write, clock } = stage();
    const message = { ...MESSAGE, sentAtMs: clock.nowMs() - 1_000 };
    const handle = inbox.handle(message, (tx) => write(tx, "booked"));
    await expect(handle).rejects.toMatchObject({ code: "invalid_request" });
    expect(effects).toEqual([]);
  });

  test("reports an old message that it still knows, and refuses it when it does not any more", async () => {
    const { inbox, clock } = stage();
    const sent = { sentAtMs: clock.nowMs() };
    clock.advance(600);
    expect((await inbox.handle(MESSAGE, () => 1, sent)).isDuplicate).toBe(false);
    clock.advance(900);
    expect((await inbox.handle(MESSAGE, () => 1, sent)).isDuplicate).toBe(true);
    clock.advance(200);
    const late = inbox.handle(MESSAGE, () => 1, sent);
    await expect(late).rejects.toMatchObject({ code: "key_expired" });
  });

  test("is refused if the sender repeats for longer than it remembers", () => {
    const { ledger, options } = stage(1_000);
    expect(() => createInbox(ledger, { ...options, senderHorizonMs: 1_001 })).toThrow(
      expect.objectContaining({ code: "invalid_options" }),
    );
    expect(() => createInbox(ledger, { ...options, senderHorizonMs: NaN })).toThrow();
    createInbox(ledger, { ...options, senderHorizonMs: 1_000 });
  });

  test("stays or goes with the caller's transaction", async () => {
    const { inbox, ledger, options, effects, write } = stage();
    const undone = ledger.transaction(async (tx) => {
      expect((await inbox.in(tx).handle(MESSAGE, (inner) => write(inner, "a"))).isDuplicate).toBe(
        false,
      );
      expect((await inbox.in(tx).handle(MESSAGE, (inner) => write(inner, "b"))).isDuplicate).toBe(
        true,
      );
      throw new Error("no");
    });
    await expect(undone).rejects.toThrow("no");
    expect(effects).toEqual([]);
    const kept = await ledger.transaction((tx) =>
      createInbox(ledger.in(tx), options).handle(MESSAGE, (inner) => write(inner, "c")),
    );
    expect(kept.isDuplicate).toBe(false);
    expect((await inbox.handle(MESSAGE, () => 1)).isDuplicate).toBe(true);
    expect(effects).toEqual(["c"]);
  });

  test("refuses messages without a name, and options that make no sense", async () => {
    const { inbox, ledger, options } = stage();
    for (const wrong of [
      { key: "" },
      { scope: "" },
      { key: "a\0" },
      { scope: "x".repeat(505) },
      { sentAtMs: NaN },
    ]) {
      const { sentAtMs, ...message } = { sentAtMs: 0, ...MESSAGE, ...wrong };
      const handle = inbox.handle(message, () => 1, { sentAtMs });
      await expect(handle).rejects.toMatchObject({ code: "invalid_request" });
    }
    expect(() => createInbox(ledger, { ...options, retainMs: 0, consumer: "" })).toThrow(
      /consumer.*retainMs/,
    );
  });
});
