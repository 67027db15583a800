// Cases where one caller's change came between the decision and the wait of another caller.
import { expect, test } from "vitest";
import type { CreateDecision } from "../core/create.ts";
import type { Offset, StreamName } from "../core/types.ts";
import { LIMITS } from "../../protocol/limits.ts";
import type { Store } from "../store.ts";
import { openMemoryStore } from "../stores/memory.ts";
import { appendCommand, createCommand } from "../../testing/commands.ts";
import { createVirtualClock } from "../../testing/testing.ts";
import { type GatedStore, openGatedStore } from "../../../test/kits/gated-store.ts";
import { turn, watch } from "../../../test/kits/watch.ts";
import type { Engine } from "./engine.ts";
import { WholeEngine } from "./whole-engine.ts";

const SOURCE = "/source" as StreamName;
const FORK = "/fork" as StreamName;

async function openWith(
  text: string,
  inner: Store = openMemoryStore(),
  onFault: (error: unknown) => void = () => undefined,
): Promise<{ readonly store: GatedStore; readonly engine: Engine }> {
  const store = openGatedStore(inner);
  const clock = createVirtualClock(1);
  const engine = new WholeEngine({ store, clock, jsonRecordsEnd: () => undefined, onFault });
  const created = engine.create(createCommand(SOURCE, { text }));
  await store.arrival();
  await store.release();
  await created;
  return { store, engine };
}

const forkAt = (anchor: number, text = ""): Parameters<Engine["create"]>[0] =>
  createCommand(FORK, {
    text,
    fork: { sourceName: SOURCE, anchor: anchor as Offset, subOffset: 0 },
  });

test("the tail in an exists answer is durable, also when more changes follow", async () => {
  const { store, engine } = await openWith("");
  void engine.append(SOURCE, appendCommand("one"));
  await store.arrival();
  let answer: CreateDecision | undefined;
  void engine.create(createCommand(SOURCE)).then((decision) => {
    answer = decision;
  });
  await turn();
  void engine.append(SOURCE, appendCommand("two"));
  await store.release();
  await turn();
  expect(answer).toMatchObject({ kind: "exists", tail: 3 });
});

test("W1 a fork with a body does not go beyond the room of the store", async () => {
  const { store, engine } = await openWith("1234", openMemoryStore({ bytesMax: 10 }));
  void engine.append(SOURCE, appendCommand("5"));
  await store.arrival();
  const fork = watch(engine.create(forkAt(4, "abcde")));
  await turn();
  const filling = watch(engine.append(SOURCE, appendCommand("6789A")));
  store.open();
  await turn();
  expect(store.room.bytes).toBe(0);
  expect(filling.value?.kind).toBe("accepted");
  expect(fork.error).toMatchObject({ code: "store_full" });
});

test("a fork never begins inside an uncommitted append", async () => {
  const { store, engine } = await openWith("0123456789");
  void engine.append(SOURCE, appendCommand("x"));
  await store.arrival();
  const fork = watch(engine.create(forkAt(15)));
  await turn();
  void engine.append(SOURCE, appendCommand("ABCDEFGHIJ"));
  await store.release();
  await turn();
  store.open();
  await turn();
  expect(fork.value?.kind).toBe("invalid_fork");
});

test("a reader that comes after the end of its stream receives that end", async () => {
  const { store, engine } = await openWith("data");
  const look = await engine.look(SOURCE);
  if (look.kind !== "found") throw new Error("the stream is missing");
  void engine.delete(SOURCE);
  store.open();
  await turn();
  const told: boolean[] = [];
  engine.listen(look.state, ({ isGone }) => told.push(isGone));
  await turn();
  expect(told).toEqual([true]);
  await expect(engine.read(look.state, 0 as Offset, 10)).rejects.toMatchObject({
    code: "stream_not_found",
  });
});

test("W4 a reader that throws is reported and does not hold up the writes of others", async () => {
  const faults: unknown[] = [];
  const { store, engine } = await openWith("data", openMemoryStore(), (error) =>
    faults.push(error),
  );
  store.open();
  const look = await engine.look(SOURCE);
  if (look.kind !== "found") throw new Error("the stream is missing");
  const broken = new Error("a broken reader");
  engine.listen(look.state, () => {
    throw broken;
  });
  await engine.append(SOURCE, appendCommand("x"));
  expect(await engine.append(SOURCE, appendCommand("y"))).toMatchObject({ kind: "accepted" });
  expect(faults).toEqual([broken, broken]);
});

test("a page of the list looks at its own names, and passes over many that are not listed in pages", async () => {
  const store = openMemoryStore();
  const clock = createVirtualClock(1_800_000_000_000);
  const engine = new WholeEngine({ store, clock, jsonRecordsEnd: () => undefined });
  const count = 2 * LIMITS.listLookedMax + 10;
  const expiry = { kind: "at", timeMs: clock.nowMs() + 1000 } as const;
  const nameOf = (index: number): StreamName =>
    `/s/${String(index).padStart(6, "0")}` as StreamName;
  await Promise.all(
    Array.from({ length: count }, (_, index) =>
      engine.create(createCommand(nameOf(index), index === count - 1 ? {} : { expiry })),
    ),
  );
  expect(engine.list("", nameOf(7), 2)).toMatchObject({
    found: [{ state: { name: nameOf(8) } }, { state: { name: nameOf(9) } }],
    next: nameOf(9),
  });
  expect(engine.list("/s/00001", "", 99).found.length).toBe(10);
  expect(engine.list("/t", "", 99)).toEqual({ found: [], next: undefined });
  // They have expired, and nothing has swept them yet.
  clock.jump(1000);
  const pages = [];
  for (let after: string | undefined = ""; after !== undefined; after = pages.at(-1)?.next) {
    pages.push(engine.list("", after, 10));
  }
  expect(pages.map(({ found }) => found.length)).toEqual([0, 0, 1]);
  await engine.close();
});
