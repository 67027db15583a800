// Appends that overtake each other, in virtual time. PROTOCOL.md §17
import fc from "fast-check";
import { afterEach, describe, expect, test } from "vitest";
import type { AppendCommand } from "../core/append.ts";
import type { ProducerClaim } from "../core/producer.ts";
import { type Offset, type ProducerId, SEQUENCE_ZERO, type StreamName } from "../core/types.ts";
import { LIMITS } from "../../protocol/all-limits.ts";
import { openMemoryStore } from "../stores/memory.ts";
import type { Store } from "../store.ts";
import {
  appendCommand,
  createCommand,
  producerClaim,
  sessionClaim,
  joinedText,
} from "../../testing/commands.ts";
import { openFaultyStore } from "../../../test/kits/faulty-store.ts";
import { openGatedStore } from "../../../test/kits/gated-store.ts";
import { createVirtualClock, type VirtualClock } from "../../testing/virtual-clock.ts";
import { turn, watch, type Watched } from "../../../test/kits/watch.ts";
import type { Engine } from "./engine.ts";
import { WholeEngine } from "./whole-engine.ts";
import type { AppendOutcome } from "./outcomes.ts";

const A = "/a" as StreamName;
const WAIT_MS = 5_000;

/** An append that was sent, and what has come of it. */
interface Sent extends Watched<AppendOutcome> {
  readonly patient: { readonly wasHeld: boolean };
  readonly abort: () => void;
}

interface Bench {
  readonly engine: Engine;
  readonly clock: VirtualClock;
  /** Sends an append that may wait. */
  readonly send: (
    producer: ProducerClaim | undefined,
    parts?: Partial<AppendCommand>,
    waitMs?: number,
  ) => Sent;
  readonly read: () => Promise<string>;
}

const opened: Engine[] = [];
afterEach(async () => {
  for (const engine of opened.splice(0)) await engine.close();
});

async function openBench(store: Store = openMemoryStore()): Promise<Bench> {
  const clock = createVirtualClock(1_000_000);
  const engine = new WholeEngine({ store, clock, jsonRecordsEnd: () => undefined });
  opened.push(engine);
  if (!engine.world.streams.has(A)) await engine.create(createCommand(A));
  return {
    engine,
    clock,
    send(producer, parts, waitMs = WAIT_MS) {
      const aborts: (() => void)[] = [];
      const patient = { waitMs, onAbort: (run: () => void) => aborts.push(run), wasHeld: false };
      const text = producer === undefined ? "-" : `${producer.sequence};`;
      const command = { ...appendCommand(text, { producer }), ...parts };
      const watched = watch(engine.append(A, command, patient));
      const abort = (): void => {
        for (const run of aborts.splice(0)) run();
      };
      // The watched object itself: it goes on to tell what has come of it.
      return Object.assign(watched, { patient, abort });
    },
    async read() {
      const look = await engine.look(A);
      if (look.kind !== "found") return look.kind;
      return joinedText((await engine.read(look.state, 0 as Offset, 1_000_000)).appends);
    },
  };
}

const p = (sequence: number, epoch = 0): ProducerClaim => producerClaim("p", epoch, sequence);
const s = (sequence: number, session = "s"): ProducerClaim => sessionClaim("p", session, sequence);
const kindsOf = (sent: readonly Sent[]): (string | undefined)[] =>
  sent.map(({ isWaiting, value }) => (isWaiting ? "waiting" : value?.kind));

describe("appends that came too early", () => {
  test("are decided in the order of their sequences, all in one batch", async () => {
    const inner = openMemoryStore();
    await openBench(inner);
    const store = openGatedStore(inner);
    const { engine, send } = await openBench(store);
    const held = [4, 2, 3, 1].map((sequence) => send(p(sequence)));
    await turn();
    expect(kindsOf(held)).toEqual(Array.from({ length: 4 }, () => "waiting"));
    expect([engine.heldAppends, store.waiting]).toEqual([4, []]);
    const first = send(p(0));
    await store.arrival();
    const staged = store.waiting.map((changes) =>
      changes.map((change) => ("producer" in change ? change.producer : undefined)),
    );
    expect(staged).toMatchObject([
      [0, 1, 2, 3, 4].map((sequence) => ({ id: "p", epoch: 0, sequence })),
    ]);
    expect(engine.heldAppends).toBe(0);
    await turn();
    expect(kindsOf([first, ...held])).toEqual(Array.from({ length: 5 }, () => "waiting"));
    await store.release();
    await turn();
    expect(held.map(({ value }) => value)).toMatchObject(
      [10, 6, 8, 4].map((tail) => ({ kind: "accepted", tail })),
    );
    expect([first.patient.wasHeld, ...held.map(({ patient }) => patient.wasHeld)]).toEqual([
      false,
      ...Array.from({ length: 4 }, () => true),
    ]);
    store.open();
  });

  test("G17 are stored once and in order, in every order of arrival and with copies", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.shuffledSubarray([0, 1, 2, 3, 4, 5, 6, 7], { minLength: 8 }),
        fc.array(fc.nat(7), { maxLength: 8 }),
        fc.boolean(),
        async (order, copies, isSession) => {
          const { engine, clock, send, read } = await openBench();
          const claim = isSession ? s : p;
          const sent = [...copies, ...order].map((sequence) => send(claim(sequence)));
          await turn();
          expect(await read()).toBe("0;1;2;3;4;5;6;7;");
          expect(kindsOf(sent).filter((kind) => kind === "accepted")).toHaveLength(8);
          expect(kindsOf(sent).filter((kind) => kind === "duplicate")).toHaveLength(copies.length);
          expect([engine.heldAppends, clock.pending]).toEqual([0, 0]);
        },
      ),
      { numRuns: 60 },
    );
  });

  test("of a new epoch or session wait for its beginning", async () => {
    const { send, read } = await openBench();
    send(p(0));
    const epoch = send(p(1, 4));
    const session = send(s(1));
    await turn();
    expect(kindsOf([epoch, session])).toEqual(["waiting", "waiting"]);
    const beginning = send(p(0, 4));
    await turn();
    expect(kindsOf([beginning, epoch, session])).toEqual(["accepted", "accepted", "waiting"]);
    send(s(0));
    await turn();
    expect(session.value).toMatchObject({ kind: "accepted", change: { producer: { epoch: 5 } } });
    expect(await read()).toBe("0;0;1;0;1;");
  });

  test("stay while a duplicate of an earlier append comes, and go on with the missing one", async () => {
    const { send, read } = await openBench();
    send(p(0));
    const held = send(p(2));
    const copy = send(p(0));
    await turn();
    expect(kindsOf([held, copy])).toEqual(["waiting", "duplicate"]);
    const twin = send(p(2));
    send(p(1));
    const late = send(p(1));
    await turn();
    expect([held.value, twin.value, late.value]).toMatchObject([
      { kind: "accepted", tail: 6 },
      { kind: "duplicate", end: 6 },
      { kind: "duplicate", end: 4 },
    ]);
    expect(await read()).toBe("0;1;2;");
  });

  test("A5 are compared with the tail that they find when it is their turn", async () => {
    const { send } = await openBench();
    const stale = send(p(2), { expectedTail: 2 as Offset });
    const right = send(p(1), { expectedTail: 2 as Offset });
    send(p(0));
    await turn();
    expect(right.value).toMatchObject({ kind: "accepted", tail: 4 });
    expect(stale.value).toEqual({ kind: "tail_moved", tail: 4 });
  });

  test("wait on when the missing one is refused", async () => {
    const { send } = await openBench();
    const held = send(p(1));
    const refused = send(p(0), { expectedTail: 99 as Offset });
    await turn();
    expect(kindsOf([refused, held])).toEqual(["tail_moved", "waiting"]);
    send(p(0));
    await turn();
    expect(kindsOf([held])).toEqual(["accepted"]);
  });

  test("of other producers and other streams are left alone", async () => {
    const { engine, send } = await openBench();
    await engine.create(createCommand("/b"));
    const other = watch(
      engine.append("/b" as StreamName, appendCommand("x", { producer: p(1) }), {
        waitMs: WAIT_MS,
        onAbort: () => undefined,
        wasHeld: false,
      }),
    );
    const held = send(producerClaim("q", 0, 1));
    send(p(0));
    await turn();
    expect([held.isWaiting, other.isWaiting, engine.heldAppends]).toEqual([true, true, 2]);
  });
});

describe("what is held is bounded", () => {
  test("in number for each producer", async () => {
    const { engine, send } = await openBench();
    const { heldPerProducerMax: max } = LIMITS;
    const held = Array.from({ length: max }, (_, index) => send(p(index + 1)));
    const beyond = send(p(max + 1));
    const other = send(producerClaim("q", 0, 1));
    await turn();
    expect(beyond.value).toEqual({ kind: "gap", expected: 0, received: max + 1 });
    expect([beyond.patient.wasHeld, other.isWaiting, engine.heldAppends]).toEqual([
      false,
      true,
      max + 1,
    ]);
    send(p(0));
    await turn();
    expect(new Set(kindsOf(held))).toEqual(new Set(["accepted"]));
    expect(engine.heldAppends).toBe(1);
  });

  test("in number in all", async () => {
    const { engine, clock, send } = await openBench();
    const { heldMax } = LIMITS;
    const claim = (index: number): ProducerClaim =>
      producerClaim(`p${Math.floor(index / 200)}`, 0, (index % 200) + 1);
    for (let index = 0; index < heldMax; index += 1) send(claim(index));
    expect(engine.heldAppends).toBe(heldMax);
    const beyond = send(p(1));
    await turn();
    expect([beyond.value?.kind, beyond.patient.wasHeld]).toEqual(["gap", false]);
    clock.advance(WAIT_MS);
    expect([engine.heldAppends, clock.pending]).toEqual([0, 0]);
    expect(send(p(1)).patient.wasHeld).toBe(true);
  });

  test("in bytes in all, and what goes makes room", async () => {
    const { engine, send } = await openBench();
    const data = new Uint8Array(LIMITS.heldBytesMax / 4);
    const held = [1, 2, 3, 4].map((sequence) => send(p(sequence), { data }));
    expect(engine.heldAppends).toBe(4);
    const beyond = send(producerClaim("q", 0, 1), { data: new Uint8Array(1) });
    await turn();
    expect([beyond.value?.kind, beyond.patient.wasHeld]).toEqual(["gap", false]);
    held[3]?.abort();
    expect(send(producerClaim("q", 0, 1), { data }).patient.wasHeld).toBe(true);
    expect(send(producerClaim("q", 0, 2), { data: new Uint8Array(1) }).patient.wasHeld).toBe(false);
  });

  test("only appends with a producer that have time are held", async () => {
    const { engine, send } = await openBench();
    expect(kindsOf([send(p(1), {}, 0)])).toEqual(["waiting"]); // for the end of the turn alone
    expect(engine.heldAppends).toBe(0);
    const plain = send(undefined, { streamSeq: "a" });
    const fenced = [send(p(0, 3)), send(p(1, 2))];
    await turn();
    expect(kindsOf([plain, ...fenced])).toEqual(["accepted", "accepted", "fenced"]);
    expect([plain, ...fenced].some(({ patient }) => patient.wasHeld)).toBe(false);
  });
});

describe("every held append is answered", () => {
  test("after its time, as without patience", async () => {
    const { engine, clock, send, read } = await openBench();
    send(p(0));
    const [gap, start, shorter] = [send(p(2)), send(p(1, 1)), send(p(3), {}, 1000)];
    clock.advance(999);
    await turn();
    expect(kindsOf([gap, start, shorter])).toEqual(["waiting", "waiting", "waiting"]);
    clock.advance(1);
    await turn();
    expect(shorter.value).toEqual({ kind: "gap", expected: 1, received: 3 });
    clock.advance(WAIT_MS - 1000);
    await turn();
    expect(gap.value).toEqual({ kind: "gap", expected: 1, received: 2 });
    expect(start.value).toEqual({ kind: "epoch_start", received: 1 });
    expect([engine.heldAppends, clock.pending, await read()]).toEqual([0, 0, "0;"]);
  });

  test("or, if its client gives up, is not stored", async () => {
    const { engine, clock, send, read } = await openBench();
    const [gone, stays] = [send(p(1)), send(p(2))];
    gone.abort();
    expect(engine.heldAppends).toBe(1);
    send(p(0));
    await turn();
    expect([gone.value?.kind, stays.isWaiting, await read()]).toEqual(["gap", true, "0;"]);
    send(p(1));
    await turn();
    expect([stays.value?.kind, clock.pending]).toEqual(["accepted", 0]);
    stays.abort(); // Too late: it is stored.
    expect(await read()).toBe("0;1;2;");
  });

  test("when it is fenced", async () => {
    const { send } = await openBench();
    send(p(0));
    const [epoch, session] = [send(p(2)), send(s(2))];
    send(p(0, 1));
    await turn();
    expect(epoch.value).toEqual({ kind: "fenced", currentEpoch: 1 });
    expect(session.isWaiting).toBe(true);
    send(s(0));
    send(s(0, "t"));
    await turn();
    expect(session.value).toEqual({ kind: "fenced", currentEpoch: 3 });
  });

  test("when its session is fenced by a reset", async () => {
    const { engine, send } = await openBench();
    send(s(0));
    const held = send(s(2));
    await engine.resetProducer(A, "p" as ProducerId);
    await turn();
    expect(held.value).toMatchObject({ kind: "fenced" });
  });

  test("when the stream is closed", async () => {
    const { engine, send, read } = await openBench();
    send(p(0));
    const [held, other] = [send(p(2)), send(producerClaim("q", 0, 1))];
    const close = send(undefined, { ...appendCommand("end", { closes: true }) });
    await turn();
    expect([held.value, other.value]).toEqual([
      { kind: "closed", tail: 5 },
      { kind: "closed", tail: 5 },
    ]);
    expect([close.value?.kind, engine.heldAppends, await read()]).toEqual(["accepted", 0, "0;end"]);
  });

  test("when a predecessor closes the stream", async () => {
    const { send, read } = await openBench();
    const [closing, late] = [send(p(1), { closes: true }), send(p(2))];
    send(p(0));
    await turn();
    expect(kindsOf([closing, late])).toEqual(["accepted", "closed"]);
    expect(await read()).toBe("0;1;");
  });

  test("when the stream is deleted, also under a fork", async () => {
    const { engine, send } = await openBench();
    const held = send(p(1));
    await engine.delete(A);
    await turn();
    expect(held.value).toEqual({ kind: "missing" });
    await engine.create(createCommand(A));
    const fork = { sourceName: A, anchor: undefined, subOffset: 0 };
    await engine.create(createCommand("/fork", { fork }));
    const again = send(p(1));
    await engine.delete(A);
    await turn();
    expect(again.value).toEqual({ kind: "gone" });
    expect(engine.heldAppends).toBe(0);
  });

  test("when the stream expires", async () => {
    const { engine, clock } = await openBench();
    const expiry = { kind: "ttl", seconds: 2 } as const;
    await engine.create(createCommand("/short", { expiry }));
    const patient = { waitMs: 60_000, onAbort: () => undefined, wasHeld: false };
    const command = appendCommand("x", { producer: p(1) });
    const held = watch(engine.append("/short" as StreamName, command, patient));
    clock.advance(4_000);
    await turn();
    expect(held.value).toEqual({ kind: "missing" });
  });

  test("when the engine closes", async () => {
    const { engine, send } = await openBench();
    const held = send(p(1));
    opened.splice(opened.indexOf(engine), 1);
    await engine.close();
    expect(held.value).toEqual({ kind: "gap", expected: SEQUENCE_ZERO, received: 1 });
  });

  test("with an error when writes have stopped", async () => {
    const store = openFaultyStore(openMemoryStore());
    const { engine, clock, send } = await openBench(store);
    const [second, third] = [send(p(2)), send(p(1))];
    store.failNextCommit();
    const first = send(p(0));
    const held = send(producerClaim("q", 0, 1));
    await turn();
    for (const { error } of [first, second, third]) {
      expect(error).toMatchObject({ code: "writes_stopped" });
    }
    clock.advance(WAIT_MS);
    await turn();
    expect(held.error).toMatchObject({ code: "writes_stopped" });
    expect(engine.heldAppends).toBe(0);
  });

  test("with an error when there is no room for it any more, and its predecessor is stored", async () => {
    const { send, read } = await openBench(openMemoryStore({ bytesMax: 10 }));
    const held = send(p(1), { data: new Uint8Array(9) });
    const first = send(p(0));
    await turn();
    expect(held.error).toMatchObject({ code: "store_full" });
    expect([first.value?.kind, await read()]).toEqual(["accepted", "0;"]);
  });
});
