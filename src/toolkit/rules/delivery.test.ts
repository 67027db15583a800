import fc from "fast-check";
import { expect, test } from "vitest";
import {
  applyAcknowledged,
  applyDeliveryRefused,
  applyOpened,
  decideDelivery,
  DELIVERY_MAX,
  hasArrived,
  NEW_PEER,
  numberEvents,
  type DeliveryPeer,
  type SenderState,
} from "./delivery.ts";

test("G68 events get numbers in a row, and the same ones when they are sent again", () => {
  const first = numberEvents(NEW_PEER, ["a", "b"]);
  expect(first).toMatchObject({ sequence: 0, count: 2 });
  expect(numberEvents(first.peer, ["a", "b"])).toEqual(first);
  expect(numberEvents(first.peer, ["b", "c"])).toMatchObject({ sequence: 1, count: 1 });
  expect(numberEvents(first.peer, ["c", "b"])).toMatchObject({ sequence: 2, count: 1 });
  const many = Array.from({ length: 100 }, (_, at) => String(at));
  expect(numberEvents(NEW_PEER, many).count).toBe(DELIVERY_MAX);
});

test("G68 what was given up is known to have arrived by the answer to what follows it", () => {
  const { peer } = numberEvents(NEW_PEER, ["a", "b"]);
  const next = numberEvents(peer, ["c"]);
  expect(next.sequence).toBe(2);
  expect(hasArrived(applyAcknowledged(next.peer, 2, 2), "a")).toBe(true);
  const refused = applyDeliveryRefused(next.peer);
  expect(numberEvents(refused, ["c"])).toMatchObject({ sequence: 0, count: 0 });
  const opened = applyOpened(refused, { epoch: 0, last: 0 });
  expect([hasArrived(opened, "a"), hasArrived(opened, "b")]).toEqual([true, false]);
  expect(numberEvents(opened, ["c"])).toMatchObject({ sequence: 1, peer: { epoch: 1 } });
  expect(hasArrived(applyOpened(refused, { epoch: 9, last: 9 }), "a")).toBe(false);
});

test("G68 the receiver refuses a number of other content, one that is older than it knows, and an old epoch", () => {
  const receiver = new Receiver();
  for (let at = 0; at < 40; at += 1) expect(receiver.take(0, at, `e${at}`)).toBe("accepted");
  expect(receiver.take(0, 39, "e39")).toBe("duplicate");
  expect(receiver.take(0, 8, "e8")).toBe("duplicate");
  expect(receiver.take(0, 39, "other")).toBe("refused");
  expect(receiver.take(0, 7, "e7")).toBe("refused");
  expect(receiver.take(0, 41, "e41")).toBe("refused");
  expect(receiver.take(1, 1, "e41")).toBe("refused");
  expect(receiver.take(1, 0, "e41")).toBe("accepted");
  expect(receiver.take(0, 40, "e40")).toBe("refused");
  expect(receiver.handled).toHaveLength(41);
});

test("G68 calls are lost, answered late or never, events are given up and tried again, senders die: once, in order", () => {
  const step = fc.oneof(
    fc.record({ kind: fc.constant("add" as const) }),
    fc.record({ kind: fc.constant("retryDead" as const) }),
    fc.record({ kind: fc.constant("crash" as const) }),
    fc.record({
      kind: fc.constant("send" as const),
      fate: fc.constantFrom("ok", "lostRequest", "lostAnswer", "half", "zombie"),
      givesUp: fc.boolean(),
    }),
    fc.record({ kind: fc.constant("zombie" as const), at: fc.nat(20) }),
  );
  fc.assert(
    fc.property(fc.array(step, { maxLength: 120 }), (steps) => {
      const sender = new Sender(new Receiver());
      for (const one of steps) {
        if (one.kind === "add") sender.add();
        else if (one.kind === "retryDead") sender.retryDead();
        else if (one.kind === "crash") sender.crash();
        else if (one.kind === "send") sender.send(one.fate, one.givesUp);
        else sender.arriveLate(one.at);
      }
      sender.retryDead();
      for (let round = 0; sender.waiting.length > 0 && round < 500; round += 1)
        sender.send("ok", false);
      expect(sender.waiting).toEqual([]);
      const { handled } = sender.receiver;
      expect(new Set(handled).size).toBe(handled.length);
      expect(handled.toSorted()).toEqual(sender.added.toSorted());
      const inOrder = handled.filter((id) => !sender.wasGivenUp.has(id));
      expect(inOrder).toEqual(sender.added.filter((id) => !sender.wasGivenUp.has(id)));
    }),
    { numRuns: 500 },
  );
});

test("G68 a sender that was restored from an older copy loses nothing that it adds after it", () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 0, max: 80 }),
      fc.integer({ min: 0, max: 80 }),
      fc.integer({ min: 1, max: 40 }),
      (before, between, after) => {
        const sender = new Sender(new Receiver());
        const run = (count: number): void => {
          for (let at = 0; at < count; at += 1) sender.add();
          while (sender.waiting.length > 0) sender.send("ok", false);
        };
        run(before);
        const copy = sender.peer;
        run(between);
        sender.peer = copy;
        const already = sender.added.length;
        run(after);
        for (const id of sender.added.slice(already)) expect(sender.receiver.handled).toContain(id);
        expect(new Set(sender.receiver.handled).size).toBe(sender.receiver.handled.length);
      },
    ),
  );
});

class Receiver {
  state: SenderState | undefined;
  readonly handled: string[] = [];

  take(epoch: number, sequence: number, id: string): string {
    const decision = decideDelivery(this.state, { epoch, sequence }, id);
    if (decision.kind === "accepted") {
      ({ state: this.state } = decision);
      this.handled.push(id);
    }
    return decision.kind;
  }

  /** A whole call, up to `max` events of it. */
  receive({ epoch, sequence, ids }: Call, max = Infinity) {
    let last = sequence - 1;
    const events = ids.length === 0 ? [""] : ids.slice(0, max);
    for (const [at, id] of events.entries()) {
      const decision = decideDelivery(this.state, { epoch, sequence: sequence + at }, id);
      if (decision.kind === "refused") return { kind: "refused" as const, decision };
      if (decision.kind === "accepted") {
        ({ state: this.state } = decision);
        if (id !== "") this.handled.push(id);
      }
      last = sequence + at;
    }
    return { kind: "acknowledged" as const, last, before: this.state?.before };
  }
}

interface Call {
  readonly epoch: number;
  readonly sequence: number;
  readonly ids: readonly string[];
}

class Sender {
  readonly receiver: Receiver;
  /** What is stored. */
  peer: DeliveryPeer = NEW_PEER;
  /** What is in memory. */
  #live: DeliveryPeer | undefined;
  readonly added: string[] = [];
  waiting: string[] = [];
  readonly #dead: string[] = [];
  readonly wasGivenUp = new Set<string>();
  readonly #calls: Call[] = [];

  constructor(receiver: Receiver) {
    this.receiver = receiver;
  }

  add(): void {
    const id = `e${String(this.added.length).padStart(4, "0")}`;
    this.added.push(id);
    this.waiting.push(id);
  }

  retryDead(): void {
    this.waiting.unshift(...this.#dead.splice(0));
  }

  crash(): void {
    this.#live = undefined;
  }

  arriveLate(at: number): void {
    const call = this.#calls[at % Math.max(1, this.#calls.length)];
    if (call !== undefined) this.receiver.receive(call);
  }

  send(fate: string, givesUp: boolean): void {
    const known = this.#live?.epoch === this.peer.epoch ? this.#live : this.peer;
    this.waiting = this.waiting.filter((id) => !hasArrived(known, id));
    if (this.waiting.length === 0) return;
    const { peer, sequence, count } = numberEvents(known, this.waiting);
    this.peer = peer;
    this.#live = peer;
    const ids = this.waiting.slice(0, count);
    const call = { epoch: peer.epoch, sequence, ids };
    this.#calls.push(call);
    const isHalf = fate === "half" && count > 1;
    const answer =
      fate === "lostRequest" || fate === "zombie"
        ? undefined
        : this.receiver.receive(call, isHalf ? Math.ceil(count / 2) : Infinity);
    if (answer?.kind === "refused") {
      this.peer = applyDeliveryRefused(peer, answer.decision.currentEpoch);
      this.#live = this.peer;
    } else if (answer !== undefined && fate !== "lostAnswer") {
      if (count === 0) {
        this.peer = applyOpened(peer, answer.before);
        this.#live = this.peer;
        return;
      }
      this.#live = applyAcknowledged(peer, sequence, answer.last);
      this.waiting.splice(0, answer.last - sequence + 1);
    } else if (givesUp) {
      const [id] = this.waiting.splice(0, 1);
      if (id === undefined) return;
      this.wasGivenUp.add(id);
      this.#dead.push(id);
    }
  }
}
