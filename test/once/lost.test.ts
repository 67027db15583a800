// processOnce where something is lost: a claim, the answer to a commit, the database. Transactions run beside each other.
import { describe, expect, test } from "vitest";
import { processOnce } from "../../src/toolkit/ledger.ts";
import { createWorld, flush, type Process } from "./worlds.ts";

const PLACE = { kind: "once", scope: "s", key: "k" };

function stage() {
  const world = createWorld();
  const options = ({ clock }: Process) => ({ leaseMs: 1_000, clock });
  /** A call whose work waits for `go`. */
  const slow = (process: Process, name: string) => {
    let go: () => void = () => undefined;
    let signal: AbortSignal | undefined;
    const gate = new Promise<void>((resolve) => {
      go = resolve;
    });
    const call = processOnce(
      process.ledger,
      PLACE,
      async (context) => {
        ({ signal } = context);
        context.tx.write(name);
        await gate;
        return name;
      },
      options(process),
    );
    call.catch(() => undefined);
    return { call, go: () => go(), signal: () => signal };
  };
  return { world, options, slow };
}

describe("a claim that is lost", () => {
  test("CK3 has no effect and leaves no record, whenever its work ends", async () => {
    const { world, slow } = stage();
    const [one, other] = [world.process(), world.process()];
    const zombie = slow(one, "zombie");
    await flush();
    one.cut(true); // Its renewals do not arrive.
    await world.advance(950);
    expect(zombie.signal()?.aborted).toBe(true);
    expect(zombie.signal()?.reason).toMatchObject({ code: "lease_lost" });
    await world.advance(100);
    const heir = slow(other, "heir");
    await flush();
    one.cut(false);
    zombie.go();
    await expect(zombie.call).rejects.toMatchObject({ code: "lease_lost" });
    expect(world.effects).toEqual([]);
    heir.go();
    expect(await heir.call).toMatchObject({ result: "heir", isDuplicate: false });
    expect(world.effects).toEqual(["heir"]);
  });

  test("CK3 has no effect after the work of the next one is done", async () => {
    const { world, slow } = stage();
    const [one, other] = [world.process(), world.process()];
    const zombie = slow(one, "zombie");
    await flush();
    one.cut(true);
    await world.advance(1_100);
    const heir = slow(other, "heir");
    heir.go();
    await heir.call;
    one.cut(false);
    zombie.go();
    await expect(zombie.call).rejects.toMatchObject({ code: "lease_lost" });
    expect(world.effects).toEqual(["heir"]);
    const entry = await world.memory.entries.find(PLACE);
    expect(new TextDecoder().decode(entry?.data)).toBe('"heir"');
  });

  test("CK2 is not lost by work that takes many leases", async () => {
    const { world, slow } = stage();
    const long = slow(world.process(), "long");
    await flush();
    await world.advance(10_000);
    const other = slow(world.process(), "other");
    await expect(other.call).rejects.toMatchObject({ code: "in_progress" });
    long.go();
    expect((await long.call).result).toBe("long");
    expect(long.signal()?.aborted).toBe(false);
  });

  test("OC2 by a crash is free within its lease", async () => {
    const { world, slow } = stage();
    const crashed = world.process();
    slow(crashed, "crashed");
    await flush();
    crashed.crash();
    const other = world.process();
    await expect(slow(other, "early").call).rejects.toMatchObject({ code: "in_progress" });
    await world.advance(1_000);
    const heir = slow(other, "heir");
    heir.go();
    expect(await heir.call).toMatchObject({ result: "heir" });
    expect(world.effects).toEqual(["heir"]);
  });
});

describe("a commit without an answer", () => {
  test("counts if it was stored", async () => {
    const { world, slow } = stage();
    const process = world.process();
    process.loseCommit("stored");
    const { call, go } = slow(process, "paid");
    go();
    expect(await call).toMatchObject({ result: "paid", isDuplicate: false });
    expect(world.effects).toEqual(["paid"]);
  });

  test("is reported as failed if it was undone, and the key is free at once", async () => {
    const { world, slow } = stage();
    const process = world.process();
    process.loseCommit("undone");
    const first = slow(process, "paid");
    first.go();
    await expect(first.call).rejects.toThrow("lost in COMMIT");
    expect(world.effects).toEqual([]);
    const second = slow(process, "paid again");
    second.go();
    expect(await second.call).toMatchObject({ result: "paid again", isDuplicate: false });
    expect(world.effects).toEqual(["paid again"]);
  });

  test("is looked up when the database is back", async () => {
    const { world, slow } = stage();
    const process = world.process();
    process.loseCommit("stored");
    const { call, go } = slow(process, "paid");
    await flush();
    process.cut(true);
    go();
    await world.advance(300);
    process.cut(false);
    await world.advance(600);
    expect(await call).toMatchObject({ result: "paid" });
  });

  test("is unknown if the database does not come back, and a later call finds its result", async () => {
    const { world, slow } = stage();
    const process = world.process();
    process.loseCommit("stored");
    const { call, go } = slow(process, "paid");
    await flush();
    process.cut(true);
    go();
    await world.advance(1_100);
    await expect(call).rejects.toMatchObject({
      code: "outcome_unknown",
      cause: { message: "the connection was lost in COMMIT" },
    });
    const later = await slow(world.process(), "other").call;
    expect(later).toMatchObject({ result: "paid", isDuplicate: true });
    expect(world.effects).toEqual(["paid"]);
  });
});

describe("work elsewhere", () => {
  test("is recorded when the database is back", async () => {
    const { world, options } = stage();
    const process = world.process();
    let calls = 0;
    const call = processOnce(
      process.ledger,
      PLACE,
      () => {
        calls += 1;
        process.cut(true);
        return "receipt";
      },
      { ...options(process), effect: "repeatable" },
    );
    await world.advance(300);
    process.cut(false);
    await world.advance(300);
    expect(await call).toMatchObject({ result: "receipt", isDuplicate: false });
    expect(calls).toBe(1);
    expect(await world.memory.entries.find(PLACE)).toMatchObject({ state: "done" });
  });

  test("is known as recorded if only the answer to that was lost", async () => {
    const { world, options } = stage();
    const process = world.process();
    const call = processOnce(
      process.ledger,
      PLACE,
      () => {
        process.loseAnswer();
        return "receipt";
      },
      { ...options(process), effect: "repeatable" },
    );
    await world.advance(300);
    expect(await call).toMatchObject({ result: "receipt", isDuplicate: false });
  });

  test("is asked for when its process was lost in the middle of it", async () => {
    const { world, options } = stage();
    const remote: string[] = [];
    const pay = (process: Process, afterwards: Promise<void>) =>
      processOnce(
        process.ledger,
        PLACE,
        async ({ key }) => {
          remote.push(key);
          await afterwards;
          return "receipt";
        },
        {
          ...options(process),
          effect: "probed",
          reconcile: async ({ key }) =>
            remote.includes(key) ? { kind: "done", result: "found" } : { kind: "not_done" },
        },
      );
    const crashed = world.process();
    void pay(crashed, new Promise(() => undefined));
    await flush();
    expect(remote).toHaveLength(1);
    crashed.crash();
    await world.advance(1_000);
    expect(await pay(world.process(), Promise.resolve())).toMatchObject({ result: "found" });
    expect(remote).toHaveLength(1);
  });
});
