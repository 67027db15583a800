/** Every history of a small scope, and long random ones, with the invariants checked after each step. */

import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Change } from "./change.ts";
import {
  decideAck,
  decideAppendWake,
  decideSubscriptionClaim,
  decideDelivered,
  decideDeliveryFailed,
  decideExpiry,
  decideSubscriptionRelease,
  pendingTail,
  type Scene,
  type WakeReference,
} from "./subscription-decide.ts";
import {
  decideFound,
  decideSubscribe,
  decideUnsubscribe,
  followersOf,
} from "./subscription-link.ts";
import { imageOfBook, restoreBook } from "./subscription-image.ts";
import type { DeliveryWay, Subscription } from "./subscription-state.ts";
import { createSubscriptionBook } from "./subscription.ts";
import { assert } from "../../base/assert.ts";
import type { Offset, StreamId, StreamName, TimeMs } from "./types.ts";
import { applyChange, createWorld, type World } from "./world.ts";
import { RUN } from "../../testing/commands.ts";

const ID = "sub";
const NAMED = "/v1/stream/named" as StreamName;
const FOUND = "/v1/stream/found/one" as StreamName;
const WAKES = "/v1/stream/wakes" as StreamName;
const LEASE_MS = 1000;
const POLICY = { delayMsMin: 1000, delayMsMax: 60_000, unit: 0.5 };
const PULL: DeliveryWay = { kind: "pull_wake", wakeStream: WAKES };
const WEBHOOK: DeliveryWay = { kind: "webhook", url: "https://example.com/hook" };

/** A subscription on one named and one found stream, driven as the engine drives it. */
class History {
  readonly way: DeliveryWay;
  readonly world: World = createWorld();
  readonly changes: Change[] = [];
  atMs = 1_000_000 as TimeMs;
  wakes = 0;
  /** Every wake ever begun, oldest first, over all lives of the subscription. */
  readonly references: WakeReference[] = [];
  readonly trace: string[] = [];

  constructor(way: DeliveryWay) {
    this.way = way;
    this.subscribe();
  }

  get subscription(): Subscription {
    const subscription = this.world.subscriptions.byId.get(ID);
    if (subscription === undefined) throw new Error("there is no subscription");
    return subscription;
  }

  scene(): Scene {
    this.wakes += 1;
    const { atMs } = this;
    const { streams } = this.world;
    const isBoundary = (): boolean => true;
    return { streams, atMs, wakeId: `wake-${this.wakes}`, wakeStreamsMax: 10, isBoundary };
  }

  commit(changes: readonly Change[]): void {
    for (const change of changes) {
      if (change.kind === "subscription_woken") {
        assert(this.subscription.phase.kind === "idle", "only an idle subscription wakes");
        const last = this.references.at(-1)?.generation ?? 0;
        assert(change.generation > last, "a generation grows with every wake");
        const { wakeId, generation } = change;
        this.references.push({ wakeId, generation });
      }
      applyChange(this.world, change);
      this.changes.push(change);
    }
  }

  subscribe(): void {
    const settings = {
      way: this.way,
      pattern: "/v1/stream/found/*",
      streams: [NAMED],
      leaseMs: LEASE_MS,
      description: undefined,
    };
    const { subscriptions: book, streams } = this.world;
    const decision = decideSubscribe(book, streams, ID, settings, 100, this.atMs);
    if (decision.kind === "created") this.commit(decision.changes);
  }

  append(name: StreamName): void {
    const { world, atMs } = this;
    if (!world.streams.has(name)) {
      const [stream, contentType] = [world.nextId, "text/plain"];
      const expiry = { kind: "never" } as const;
      const plain = { run: RUN, fork: undefined, keys: undefined };
      this.commit([{ kind: "created", atMs, stream, name, contentType, expiry, ...plain }]);
    }
    const state = world.streams.get(name);
    if (state === undefined) throw new Error("there is no stream");
    this.commit(decideFound(world.subscriptions, state, atMs));
    const bare = { closes: false, producer: undefined, streamSeq: undefined, key: undefined };
    const data = new Uint8Array(10);
    this.commit([{ kind: "appended", atMs, stream: state.id, data, ...bare }]);
    for (const subscription of followersOf(world.subscriptions, name)) {
      const woken = decideAppendWake(subscription, name, this.scene());
      if (woken !== undefined) this.commit([woken]);
    }
  }

  remove(name: StreamName): void {
    const state = this.world.streams.get(name);
    if (state !== undefined) this.commit([{ kind: "removed", atMs: this.atMs, stream: state.id }]);
  }

  /** Deletes and creates the stream again, with as much data as the holder of the old stream knows. */
  recreate(name: StreamName): void {
    const state = this.world.streams.get(name);
    if (state === undefined) return;
    this.remove(name);
    for (let tail = 0; tail < state.tail; tail += 10) this.append(name);
  }

  tail(name: StreamName): Offset | undefined {
    return this.world.streams.get(name)?.tail;
  }
}

type Step = (history: History) => void;

function current(history: History): WakeReference {
  return history.references.at(-1) ?? { wakeId: "none", generation: 0 };
}

function claim(worker: string): Step {
  return (history) => {
    const decision = decideSubscriptionClaim(history.subscription, worker, history.scene());
    if (decision.kind === "held") return;
    history.commit(decision.changes);
  };
}

/** Reports on every stream that the subscription follows, up to its tail. */
function report(isDone: boolean, back: number): Step {
  return (history) => {
    const reference = back === 0 ? current(history) : history.references.at(-1 - back);
    if (reference === undefined) return;
    const { subscription } = history;
    const acks = [...subscription.links.keys()].flatMap((stream) => {
      const offset = history.tail(stream);
      const { phase } = subscription;
      const isLost =
        phase.kind !== "idle" &&
        phase.wake.tails.has(stream) &&
        phase.wake.tails.get(stream) === undefined;
      return offset === undefined || isLost ? [] : [{ stream, offset }];
    });
    const decision = decideAck(subscription, reference, acks, isDone, history.scene());
    const isEntitled = mayReport(history, subscription, reference);
    assert(decision.kind === (isEntitled ? "settled" : "fenced"), "who may report");
    const before = ackedOf(subscription);
    history.commit(decision.changes);
    if (decision.kind !== "fenced") return;
    assert(ackedOf(history.subscription) === before, "a fenced report changes nothing");
  };
}

/** The rule of leases, in other words than the code. */
function mayReport(history: History, subscription: Subscription, said: WakeReference): boolean {
  const { phase } = subscription;
  if (phase.kind === "idle") return false;
  if (history.way.kind === "pull_wake" && phase.kind !== "held") return false;
  const isLeased = phase.leaseUntilMs !== undefined && history.atMs < phase.leaseUntilMs;
  return isLeased && phase.wake.wakeId === said.wakeId && phase.wake.generation === said.generation;
}

function ackedOf(subscription: Subscription): string {
  return [...subscription.links].map(([stream, { acked }]) => `${stream}:${acked}`).join();
}

const COMMON: Readonly<Record<string, Step>> = {
  "append named": (history) => history.append(NAMED),
  "append found": (history) => history.append(FOUND),
  "remove named": (history) => history.remove(NAMED),
  "recreate named": (history) => history.recreate(NAMED),
  "recreate found": (history) => history.recreate(FOUND),
  ack: report(false, 0),
  "ack done": report(true, 0),
  "stale ack done": report(true, 1),
  "time passes": (history) => {
    history.atMs = (history.atMs + LEASE_MS) as TimeMs;
  },
  expire: (history) => {
    history.commit(decideExpiry(history.subscription, POLICY, history.scene()));
  },
  resubscribe: (history) => {
    history.commit(decideUnsubscribe(history.world.subscriptions, ID, history.atMs));
    history.subscribe();
  },
};

const PULL_STEPS: Readonly<Record<string, Step>> = {
  ...COMMON,
  "claim one": claim("one"),
  "claim two": claim("two"),
  release: (history) => {
    history.commit(
      decideSubscriptionRelease(history.subscription, current(history), history.scene()).changes,
    );
  },
};

function delivered(isDone: boolean): Step {
  return (history) => {
    const reference = current(history);
    const scene = history.scene();
    history.commit(decideDelivered(history.subscription, reference, isDone, scene).changes);
  };
}

const WEBHOOK_STEPS: Readonly<Record<string, Step>> = {
  ...COMMON,
  delivered: delivered(false),
  "delivered done": delivered(true),
  "delivery failed": (history) => {
    const reference = current(history);
    const scene = history.scene();
    history.commit(decideDeliveryFailed(history.subscription, reference, POLICY, scene));
  },
};

/** Checks what must hold after every step. */
function check(history: History, before: ReadonlyMap<string, Offset | undefined>): void {
  const { world, subscription } = history;
  const { links, phase } = subscription;
  for (const [stream, { acked, isExplicit, isGlob }] of links) {
    const state = world.streams.get(stream);
    assert(isExplicit || isGlob, "a link has a reason");
    if (acked === undefined) continue;
    assert(state !== undefined, "an acked offset is one of a living stream");
    assert(acked <= state.tail, "an ack does not pass the tail");
    const last = before.get(`${subscription.createdAtMs}:${state.id}`);
    assert(last === undefined || acked >= last, "an ack does not go back");
  }
  if (phase.kind === "idle") {
    const { streams } = world;
    for (const stream of links.keys()) {
      const tail = pendingTail(subscription, stream, streams, new Map());
      assert(tail === undefined, "an idle subscription has nothing pending");
    }
  }
  const { byStream } = world.subscriptions;
  assert(byStream.size === links.size, "the index is as large as the links");
  for (const stream of links.keys())
    assert(byStream.get(stream)?.has(ID) === true, "the index has every link");
}

function run(way: DeliveryWay, steps: readonly (readonly [string, Step])[]): History {
  const history = new History(way);
  for (const [name, step] of steps) {
    history.trace.push(name);
    const { subscription, world } = history;
    const before = new Map<string, Offset | undefined>();
    // Keyed by the life of the subscription and of the stream: another life starts over.
    if (name !== "resubscribe") {
      for (const [stream, { acked }] of subscription.links) {
        const id: StreamId | undefined = world.streams.get(stream)?.id;
        before.set(`${subscription.createdAtMs}:${id}`, acked);
      }
    }
    try {
      step(history);
      check(history, before);
    } catch (cause) {
      throw new Error(`after: ${history.trace.join(", ")}`, { cause });
    }
  }
  return history;
}

/** Runs all histories that begin with an append: before it there is nothing to do. */
function runAll(
  way: DeliveryWay,
  alphabet: Readonly<Record<string, Step>>,
  length: number,
): number {
  const steps = Object.entries(alphabet);
  const total = steps.length ** length;
  for (let index = 0; index < total; index += 1) {
    const history: (readonly [string, Step])[] = [["append named", (it) => it.append(NAMED)]];
    for (let rest = index; history.length <= length; rest = Math.floor(rest / steps.length)) {
      const step = steps[rest % steps.length];
      if (step !== undefined) history.push(step);
    }
    run(way, history);
  }
  return total;
}

describe("subscription histories", () => {
  test("hold in every history of five steps of a pull-wake", () => {
    expect(runAll(PULL, PULL_STEPS, 4)).toBe(14 ** 4);
  });

  test("hold in every history of five steps of a webhook", () => {
    expect(runAll(WEBHOOK, WEBHOOK_STEPS, 4)).toBe(14 ** 4);
  });

  test.each([
    ["pull-wake", PULL, PULL_STEPS],
    ["webhook", WEBHOOK, WEBHOOK_STEPS],
  ] as const)("hold in long histories of a %s", (_, way, alphabet) => {
    const step = fc.constantFrom(...Object.entries(alphabet));
    fc.assert(
      fc.property(fc.array(step, { minLength: 10, maxLength: 60 }), (steps) => {
        run(way, steps);
      }),
      { numRuns: 300 },
    );
  });

  test.each([
    ["pull-wake", PULL, PULL_STEPS],
    ["webhook", WEBHOOK, WEBHOOK_STEPS],
  ] as const)("changes and image make the same book of a %s again", (_, way, alphabet) => {
    const step = fc.constantFrom(...Object.entries(alphabet));
    fc.assert(
      fc.property(fc.array(step, { minLength: 5, maxLength: 40 }), (steps) => {
        const history = run(way, steps);
        const again = createWorld();
        for (const change of history.changes) applyChange(again, throughText(change));
        expect(again.subscriptions).toEqual(history.world.subscriptions);
        const restored = createSubscriptionBook();
        restoreBook(restored, throughText(imageOfBook(history.world.subscriptions)));
        expect(restored).toEqual(history.world.subscriptions);
      }),
      { numRuns: 200 },
    );
  });
});

/** Writes and reads a value as a store does. Only the data of streams is stored in another way. */
function throughText<T extends object>(value: T): T {
  return "data" in value ? value : (JSON.parse(JSON.stringify(value)) as T);
}
