// Attempts that find an entry at their end: it may be their own, and it may be there only now and then.
import { expect, test } from "vitest";
import { processOnce } from "../../src/toolkit/ledger.ts";
import type { Entries, Ledger } from "../../src/toolkit/ledgers/ledger.ts";
import { gate } from "./stage.ts";
import { createWorld, flush } from "./worlds.ts";

const PLACE = { kind: "once", scope: "s", key: "k" };

/** The same ledger with some other entries. Not a copy: it has members that cannot be read. */
function changed<Tx>(
  ledger: Ledger<Tx>,
  entries: Partial<Entries>,
  others: Partial<Ledger<Tx>> = {},
): Ledger<Tx> {
  const whole = Object.create(ledger) as Ledger<Tx>;
  return Object.assign(whole, others, { entries: { ...ledger.entries, ...entries } });
}

test("an end that fails behind the own entry of its claim is thrown, and frees the key", async () => {
  const world = createWorld({ locks: true });
  const { ledger: base, clock } = world.process();
  const [ended, answered] = [gate(), gate()];
  const ledger = changed(
    base,
    {
      // The claim is written down, and its answer comes late.
      async put(...args) {
        const written = await base.entries.put(...args);
        if (args[2].state === "running") await answered.opened;
        return written;
      },
    },
    {
      in(tx) {
        const inside = base.in(tx);
        return changed(inside, {
          async put(...args) {
            if (args[1].kind === "owned") throw new Error("the write failed");
            return await inside.entries.put(...args);
          },
        });
      },
    },
  );
  const call = processOnce(
    ledger,
    PLACE,
    async ({ tx }) => {
      tx.write("effect");
      await ended.opened;
    },
    { clock },
  );
  call.catch(() => undefined);
  await flush();
  await world.advance(350);
  expect(await world.memory.entries.find(PLACE)).toMatchObject({ state: "running" });
  ended.open();
  await flush();
  answered.open();
  await expect(call).rejects.toThrow("the write failed");
  expect(await world.memory.entries.find(PLACE)).toMatchObject({ state: "released" });
  expect(world.effects).toEqual([]);
});

test("a call that others are always before ends with in_progress, after a bounded number of attempts", async () => {
  const world = createWorld({ locks: true });
  const { ledger: base, clock } = world.process();
  const write = { attempts: 1, leaseMs: undefined, keepMs: 60_000 } as const;
  const nothing = { fingerprint: { value: undefined }, data: { value: undefined } } as const;
  const theirs = { state: "done", token: "next", ...write, ...nothing } as const;
  await world.memory.entries.put(PLACE, { kind: "absent" }, theirs);
  let finds = 0;
  const ledger = changed(
    base,
    {
      // There at the end of each attempt, and gone at the beginning of the next one.
      async find(place) {
        finds += 1;
        if (finds > 100) throw new Error("there is no end");
        return finds % 2 === 1 ? await base.entries.find(place) : undefined;
      },
    },
    { lockedTransaction: () => Promise.resolve("late") },
  );
  const call = processOnce(ledger, PLACE, () => undefined, { clock });
  await expect(call).rejects.toMatchObject({ code: "in_progress" });
  expect(finds).toBeLessThan(20);
});
