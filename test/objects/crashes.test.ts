// Every failpoint of an object, and every way to lose the object there: one effect, nothing lost. All of one way stop at their
// failpoints first; then they are lost together.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { requirePart } from "../client/runtimes-kit.ts";
import { whyNoWorkerd } from "../kits/workerd-objects.ts";
import { eventually, type Onward, type ShopStage, startShop } from "./shop-stage.ts";

const reason = whyNoWorkerd();
const isLong = process.env["HAPAX_LONG"] !== undefined;
let stage: ShopStage;

beforeAll(async () => {
  if (reason === undefined) stage = await startShop();
}, 60_000);

afterAll(() => stage.stop());

/** What a request asks for, where it stops, and what must be there in the end. */
interface Case {
  readonly act: string;
  readonly stop: string;
  /** It stops there when it comes for so many times. Default 1. */
  readonly nth?: number;
  /** The caller asks again with the same id. Events and sagas go on by themselves. */
  readonly isRetried: boolean;
  readonly body?: (name: string) => object;
  readonly effects?: (name: string) => readonly string[];
  /** What the other object has. */
  readonly sink?: (name: string) => readonly string[];
  readonly isCharged?: boolean;
  /** How many calls there are for the bank, each with a key of its own. Default 1. */
  readonly charges?: number;
}

const own = (name: string): readonly string[] => [name];
const got = (name: string): readonly string[] => [`got "${name}"`];
const toSink = (name: string): object => ({ text: `${name} sink` });
const stepsOf = (name: string): readonly string[] => [`reserve ${name}`, `ship ${name}`];
const undoneOf = (name: string): readonly string[] => [`reserve ${name}`, `release ${name}`];
/** Two steps of it call the bank, and so do their undos. */
const BOOKING = { act: "booking", effects: undoneOf, isCharged: true, charges: 4 } as const;

const direct = (act: string, stops: readonly string[], more: Partial<Case> = {}): Case[] =>
  stops.map((stop) => ({ act, stop, isRetried: true, effects: own, ...more }));

const CASES: readonly Case[] = [
  ...direct("process", ["object.began", "object.committed"]),
  ...direct("call", ["object.claimed", "object.worked", "object.completed"], { isCharged: true }),
  ...direct("inbox", ["inbox.began", "inbox.worked", "inbox.committed"]),
  ...direct("processOnce", ["once.began", "once.worked", "once.committed"]),
  ...direct("processElsewhere", ["once.claimed", "once.worked", "once.committed"], {
    effects: () => [],
    isCharged: true,
  }),
  ...direct("feed", ["sequence.began", "sequence.committed"], {
    body: (name) => ({ n: 1, text: name }),
    effects: (name) => [`1 ${name}`],
  }),
  ...[
    "outbox.planned",
    "delivery.numbered",
    "delivery.began",
    "delivery.committed",
    "delivery.answered",
    "outbox.published",
    "outbox.settled",
  ].map((stop): Case => ({
    act: "transfer",
    stop,
    isRetried: false,
    body: toSink,
    effects: own,
    sink: got,
  })),
  ...[
    "saga.started",
    "saga.began",
    "saga.worked",
    "saga.checkpointed",
    "saga.committed",
    "saga.intended",
    "saga.called",
    "saga.recorded",
  ].map((stop): Case => ({
    act: "saga",
    stop,
    // A saga that was not stored yet is the caller's.
    isRetried: true,
    effects: stepsOf,
    isCharged: true,
  })),
  // On its way back: before these numbers it comes by on its way forward.
  ...(
    [
      ["saga.intended", 3],
      ["saga.called", 3],
      ["saga.recorded", 3],
      ["saga.began", 3],
      ["saga.worked", 2],
      ["saga.checkpointed", 2],
      ["saga.committed", 2],
    ] as const
  ).map(([stop, nth]): Case => ({ ...BOOKING, stop, nth, isRetried: true })),
];

/** Sagas that lose an answer, and stop again where the next life takes them over: once taken, or once it has asked. */
const RESUMED: readonly (Case & { readonly again: string })[] = [
  { ...BOOKING, stop: "saga.called", nth: 2, again: "saga.claimed", isRetried: false },
  { ...BOOKING, stop: "saga.called", nth: 2, again: "saga.asked", isRetried: false },
  { ...BOOKING, stop: "saga.called", nth: 3, again: "saga.undo.asked", isRetried: false },
];

/** In `npm test` those whose crash is the hardest: between the effect and its record, or its answer. */
const SHORT: ReadonlySet<string> = new Set([
  "object.committed",
  "object.worked",
  "inbox.worked",
  "once.worked",
  "sequence.committed",
  "delivery.committed",
  "outbox.published",
  "saga.called",
]);

const WAYS = ["evict", "abort", "abort all", "SIGKILL and restart"] as const;

describe.each(WAYS)("lost by %s", (way) => {
  test(
    "G66 at every failpoint: one effect, and nothing is lost",
    { timeout: 300_000 },
    async (context) => {
      requirePart(context, reason === undefined ? "workerd" : undefined, reason ?? "");
      const cases = CASES.filter(({ stop }) => isLong || SHORT.has(stop));
      const stopped: { readonly name: string; readonly go: (onward: Onward) => void }[] = [];
      const ends: Promise<unknown>[] = [];
      for (const one of cases) {
        const name = nameOf(way, one);
        ends.push(ask(one, name, one.stop).catch(() => "lost"));
        stopped.push({ name, go: await stage.stopped(one.stop) });
      }
      await lose(way, stopped);
      await Promise.all(ends);
      for (const one of cases) {
        const name = nameOf(way, one);
        if (one.isRetried)
          await eventually(
            () => ask(one, name),
            () => undefined,
          );
        await expectEnd(one, name);
      }
      console.log(`${way}: ${cases.length} failpoints, each effect once`);
    },
  );

  test(
    "G66 a saga that was aborted, and is lost where the next life takes it over: the same",
    { timeout: 120_000 },
    async (context) => {
      requirePart(context, reason === undefined ? "workerd" : undefined, reason ?? "");
      for (const one of isLong ? RESUMED : RESUMED.slice(-1)) {
        const name = `${nameOf(way, one)}, then at ${one.again}`;
        const object = stage.shop(name);
        await ask(one, name, one.stop);
        const go = await stage.stopped(one.stop);
        // The alarm does nothing from here on: only the test goes on with it.
        await object.json("/quiet", { n: 1 });
        go("abort");
        await eventually(
          () => object.json("/life", { stop: one.again }),
          () => undefined,
        );
        let isReached = false;
        const resumed = (async () => {
          while (!isReached) {
            await object.json("/fire").catch(() => "lost");
            await new Promise((resolve) => setTimeout(resolve, 20));
          }
        })();
        const goOn = await stage.stopped(one.again);
        isReached = true;
        await lose(way, [{ name, go: goOn }]);
        await resumed;
        await object.json("/quiet", { n: 0 });
        await object.json("/fire");
        await expectEnd(one, name);
      }
    },
  );
});

function nameOf(way: string, { act, stop, nth = 1 }: Case): string {
  return `${act} at ${stop} ${nth} by ${way}`;
}

function ask({ act, nth, body }: Case, name: string, stop?: string): Promise<unknown> {
  const given = { id: name, ...body?.(name), ...(stop === undefined ? {} : { stop, nth }) };
  return stage.shop(name).json(`/${act}`, given);
}

async function lose(
  way: (typeof WAYS)[number],
  stopped: readonly { readonly name: string; readonly go: (onward: Onward) => void }[],
): Promise<void> {
  if (way === "abort all") await stage.host.abortAll();
  else if (way === "SIGKILL and restart") await stage.host.restart();
  else if (way === "abort") for (const { go } of stopped) go("abort");
  else {
    // The platform waits for work that runs.
    const evicted = Promise.all(stopped.map(({ name }) => stage.shop(name).evict()));
    for (const { go } of stopped) go("go");
    await evicted;
  }
}

async function expectEnd(
  { effects, sink, isCharged, charges: count = 1 }: Case,
  name: string,
): Promise<void> {
  // The other side first: asking the object itself would wake it.
  if (sink !== undefined)
    await eventually(
      () => stage.effects(`${name} sink`),
      (seen) => {
        expect({ name, seen }).toEqual({ name, seen: sink(name) });
      },
    );
  await eventually(
    () => stage.effects(name),
    (seen) => {
      expect({ name, seen }).toEqual({ name, seen: effects?.(name) });
    },
  );
  if (isCharged !== true) return;
  const key = encodeURIComponent(name);
  const charges = (await stage.charges()).filter((charge) => charge.key.includes(key));
  expect({ name, charges: charges.length }).toEqual({ name, charges: count });
}
