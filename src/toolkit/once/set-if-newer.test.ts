import { describe, expect, test } from "vitest";
import { createVirtualClock } from "../../testing/virtual-clock.ts";
import { memoryLedger } from "../ledgers/memory.ts";
import { createHybridClock } from "./hybrid-clock.ts";
import { getNewest, setIfNewer } from "./set-if-newer.ts";

const THING = { scope: "profiles", key: "1" };
const HOUR_MS = 3_600_000;

/** Two nodes, the second of which is an hour behind. */
function stage() {
  const wall = [createVirtualClock(10 * HOUR_MS), createVirtualClock(9 * HOUR_MS)] as const;
  const ahead = createHybridClock({ node: "ahead", clock: wall[0] });
  const behind = createHybridClock({ node: "behind", clock: wall[1] });
  return { ledger: memoryLedger(), wall, ahead, behind };
}

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
const textOf = (value: Uint8Array | undefined): string => new TextDecoder().decode(value);

describe("setIfNewer", () => {
  test("G58 a node whose clock is an hour behind is not hidden by what it has seen", async () => {
    const { ledger, ahead, behind } = stage();
    const stamp = ahead.now();
    await setIfNewer(ledger, THING, { stamp, value: bytes("first") });
    // What it has not seen may hide its write. The answer says so.
    const blind = await setIfNewer(ledger, THING, { stamp: behind.now(), value: bytes("blind") });
    expect(blind).toEqual({ kind: "older", stamp });
    behind.see((await getNewest(ledger, THING))?.stamp ?? "");
    const later = { stamp: behind.now(), value: bytes("second") };
    expect(await setIfNewer(ledger, THING, later)).toEqual({ kind: "applied", stamp: later.stamp });
    expect(await setIfNewer(ledger, THING, later)).toMatchObject({ kind: "duplicate" });
    expect(textOf((await getNewest(ledger, THING))?.value)).toBe("second");
    expect(await getNewest(ledger, { ...THING, key: "2" })).toBeUndefined();
  });

  test("of many at once the newest stays, in every order", async () => {
    const { ledger, ahead } = stage();
    const stamps = Array.from({ length: 20 }, () => ahead.now());
    const newest = stamps.at(-1);
    for (const order of [stamps, stamps.toReversed()]) {
      const thing = { ...THING, key: `order ${order[0]}` };
      await Promise.all(
        order.map((stamp) => setIfNewer(ledger, thing, { stamp, value: bytes(stamp) })),
      );
      expect(await getNewest(ledger, thing)).toEqual({ stamp: newest, value: bytes(newest ?? "") });
    }
  });

  test("goes with the caller's transaction, and needs one or a value", async () => {
    const { ledger, ahead } = stage();
    const stamp = ahead.now();
    const undone = ledger.transaction(async (tx) => {
      expect(await setIfNewer(ledger.in(tx), THING, { stamp })).toMatchObject({ kind: "applied" });
      throw new Error("undo");
    });
    await expect(undone).rejects.toThrow("undo");
    expect(await getNewest(ledger, THING)).toBeUndefined();
    const invalid = { code: "invalid_request" };
    await expect(setIfNewer(ledger, THING, { stamp })).rejects.toMatchObject(invalid);
    const wrong = setIfNewer(ledger, THING, { stamp: "yesterday", value: bytes("") });
    await expect(wrong).rejects.toMatchObject(invalid);
  });

  test("G58 a stamp of a broken clock is refused, and does not hide what is written after it", async () => {
    const { ledger, ahead, behind, wall } = stage();
    wall[0].jump(100 * 24 * HOUR_MS);
    const broken = { stamp: ahead.now(), value: bytes("broken") };
    const near = { clock: wall[1] };
    const invalid = { code: "invalid_request" };
    await expect(setIfNewer(ledger, THING, broken, near)).rejects.toMatchObject(invalid);
    await expect(
      ledger.transaction((tx) => setIfNewer(ledger.in(tx), THING, { stamp: broken.stamp }, near)),
    ).rejects.toMatchObject(invalid);
    const sound = { stamp: behind.now(), value: bytes("sound") };
    expect(await setIfNewer(ledger, THING, sound, near)).toMatchObject({ kind: "applied" });
    const wider = { ...near, aheadMsMax: 101 * 24 * HOUR_MS };
    expect(await setIfNewer(ledger, THING, broken, wider)).toMatchObject({ kind: "applied" });
    await expect(setIfNewer(ledger, THING, sound, { aheadMsMax: -1 })).rejects.toMatchObject(
      invalid,
    );
  });

  test("a clock refuses stamps from a far future, and goes on after its wall clock was set back", () => {
    const { ahead, behind, wall } = stage();
    const [first] = [ahead.now(), wall[0].jump(-2 * HOUR_MS)];
    expect(ahead.now() > first).toBe(true);
    wall[0].jump(100 * 24 * HOUR_MS);
    expect(() => {
      behind.see(ahead.now());
    }).toThrow(expect.objectContaining({ code: "invalid_request" }));
    expect(() => {
      behind.see("no stamp");
    }).toThrow(expect.objectContaining({ code: "invalid_request" }));
    expect(() => createHybridClock({ node: "not a name" })).toThrow(
      expect.objectContaining({ code: "invalid_options" }),
    );
    expect(createHybridClock().now()).not.toBe(createHybridClock().now());
  });
});
