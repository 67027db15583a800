import { describe, expect, test } from "vitest";
import { isHapaxError } from "../../base/errors.ts";
import type { Ledger, Place } from "../ledgers/ledger.ts";
import { memoryLedger } from "../ledgers/memory.ts";
import { createVirtualClock } from "../../testing/virtual-clock.ts";
import { acquire, type Claim, type ClaimTerms } from "./claiming.ts";
import { resolveTools } from "./tools.ts";

const PLACE: Place = { kind: "once", scope: "s", key: "k" };
const TERMS: ClaimTerms = {
  fingerprint: undefined,
  effect: "repeatable",
  attemptsMax: 10,
  leaseMs: 1_000,
  retainMs: 60_000,
};

/** What is due has been done when this resolves: nothing here waits for anything but promises. */
const flush = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

function stage() {
  const clock = createVirtualClock();
  const ledger = memoryLedger({ clock });
  const tools = resolveTools({ clock });
  const claimOn = async <Tx>(from: Ledger<Tx>, terms: ClaimTerms = TERMS): Promise<Claim<Tx>> => {
    const acquired = await acquire(from, PLACE, terms, tools);
    if (acquired.kind !== "claimed") throw new Error(acquired.kind);
    return acquired.claim;
  };
  const advance = async (ms: number): Promise<void> => {
    for (let passed = 0; passed < ms; passed += 50) {
      clock.advance(50);
      await flush();
    }
  };
  return { clock, ledger, tools, claimOn, advance };
}

/** The same ledger, whose writes outside transactions fail while `isDown` says so. */
function failing<Tx>(ledger: Ledger<Tx>, isDown: () => boolean): Ledger<Tx> {
  const { entries } = ledger;
  const put: typeof entries.put = (...args) =>
    isDown() ? Promise.reject(new Error("the database is gone")) : entries.put(...args);
  return { ...ledger, entries: { ...entries, put } };
}

describe("a claim", () => {
  test("CK1 is seen by everybody as soon as it is given", async () => {
    const { ledger, tools, claimOn } = stage();
    const claim = await claimOn(ledger);
    const other = await acquire(ledger, PLACE, TERMS, tools);
    expect(other).toMatchObject({ kind: "running", entry: { token: claim.token, attempts: 1 } });
    claim.stop();
  });

  test("OC4 keeps its fingerprint when a caller without a fingerprint takes it over", async () => {
    const { ledger, tools, claimOn } = stage();
    const first = await claimOn(ledger, { ...TERMS, fingerprint: "a" });
    await first.release();
    const second = await claimOn(ledger);
    second.stop();
    const other = await acquire(ledger, PLACE, { ...TERMS, fingerprint: "b" }, tools);
    expect(other.kind).toBe("mismatch");
  });

  test("CK2 is renewed for as long as it is held, and taken when it is not any more", async () => {
    const { ledger, tools, claimOn, advance } = stage();
    const claim = await claimOn(ledger);
    await advance(5_000);
    expect(claim.signal.aborted).toBe(false);
    expect((await acquire(ledger, PLACE, TERMS, tools)).kind).toBe("running");
    claim.stop();
    await advance(1_000);
    const heir = await claimOn(ledger);
    expect(heir).toMatchObject({ attempts: 2, isTakeover: true });
    expect(heir.token).toBeGreaterThan(claim.token);
    heir.stop();
  });

  test("CK2 aborts its signal before its lease is over, if it cannot be renewed", async () => {
    const { ledger, claimOn, advance } = stage();
    let isDown = false;
    const claim = await claimOn(failing(ledger, () => isDown));
    isDown = true;
    await advance(850);
    expect(claim.signal.aborted).toBe(false);
    await advance(100);
    expect(claim.signal.aborted).toBe(true);
    expect(isHapaxError(claim.signal.reason, "lease_lost")).toBe(true);
    expect((await ledger.entries.find(PLACE))?.leaseLeftMs).toBeGreaterThan(0);
  });

  test("CK2 survives a database that is gone for less than its lease", async () => {
    const { ledger, claimOn, advance } = stage();
    let isDown = false;
    const claim = await claimOn(failing(ledger, () => isDown));
    isDown = true;
    await advance(500);
    isDown = false;
    await advance(3_000);
    expect(claim.signal.aborted).toBe(false);
    claim.stop();
  });

  test("CK2 aborts its signal at the next renewal after another process has taken it", async () => {
    const { ledger, claimOn, advance } = stage();
    const claim = await claimOn(ledger);
    await ledger.entries.remove(PLACE, { kind: "owned", token: claim.token });
    await advance(400);
    expect(claim.signal.aborted).toBe(true);
  });

  test("CK3 cannot be completed after it was taken, and its transaction is undone", async () => {
    const { ledger, claimOn, advance } = stage();
    const zombie = await claimOn(ledger);
    zombie.stop();
    await advance(1_000);
    const heir = await claimOn(ledger);
    let effects = 1;
    const work = ledger.transaction(async (tx) => {
      effects += 1;
      tx.undo(() => (effects -= 1));
      await zombie.complete(ledger.in(tx), "done", new Uint8Array([1]));
    });
    await expect(work).rejects.toMatchObject({ code: "lease_lost" });
    expect(effects).toBe(1);
    await zombie.release();
    await zombie.forget();
    expect(await ledger.entries.find(PLACE)).toMatchObject({ token: heir.token, state: "running" });
    heir.stop();
  });

  test("CK3 is not lost by a renewal that comes after its end", async () => {
    const { ledger, claimOn, advance } = stage();
    const claim = await claimOn(ledger);
    await claim.complete(ledger, "done", undefined);
    await advance(2_000);
    expect(claim.signal.aborted).toBe(false);
  });

  test("CK4 rests while a transaction excludes everybody, and is held after it", async () => {
    const { ledger, tools, claimOn, advance } = stage();
    const claim = await claimOn(ledger);
    await ledger.transaction(async () => {
      claim.pause();
      await advance(5_000);
    });
    expect(claim.signal.aborted).toBe(false);
    await claim.resume();
    await advance(2_000);
    expect(claim.signal.aborted).toBe(false);
    expect((await acquire(ledger, PLACE, TERMS, tools)).kind).toBe("running");
    claim.stop();
  });

  test("CK4 knows when it resumes that it was taken", async () => {
    const { ledger, claimOn, advance } = stage();
    const claim = await claimOn(ledger);
    claim.pause();
    await advance(1_000);
    const heir = await claimOn(ledger);
    await claim.resume();
    expect(claim.signal.aborted).toBe(true);
    heir.stop();
  });

  test("OC6 counts its attempts and keeps its progress when it is given back", async () => {
    const { ledger, claimOn } = stage();
    const claim = await claimOn(ledger);
    await claim.progress(ledger, new Uint8Array([7]));
    await claim.release();
    const next = await claimOn(ledger);
    expect(next).toMatchObject({ attempts: 2, isTakeover: false, data: new Uint8Array([7]) });
    await next.forget();
    expect(await claimOn(ledger)).toMatchObject({ attempts: 1, data: undefined });
  });

  test("OC5 can be abandoned: the next claim may begin at once, needs a probe, and no sweep deletes it", async () => {
    const { ledger, tools, claimOn, advance } = stage();
    const terms = { ...TERMS, effect: "probed" } as const;
    const claim = await claimOn(ledger, terms);
    await claim.abandon();
    await advance(100_000);
    expect(await ledger.entries.sweep(10)).toBe(0);
    const next = await acquire(ledger, PLACE, terms, tools);
    expect(next).toMatchObject({ kind: "claimed", needsProbe: true, isExhausted: false });
    if (next.kind === "claimed") next.claim.stop();
  });
});
