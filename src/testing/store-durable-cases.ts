/** Conformance cases of stores that keep their commits over a close, or a kill, and a reopen. */

import { joinBytes, utf8Of } from "../base/bytes.ts";
import type { Change } from "../streams/core/change.ts";
import type { StreamName, TimeMs } from "../streams/core/types.ts";
import type { Store } from "../streams/store.ts";
import { decideAppend } from "../streams/core/append.ts";
import { KEY_DEFAULTS } from "../streams/core/keys.ts";
import { appendCommand, keyClaim, producerClaim, sessionClaim } from "./commands.ts";
import {
  appended,
  type ConformanceCase,
  created,
  describeWorld,
  ended,
  equalCanonical,
  equalBytes,
  evicted,
  forked,
  keyed,
  marked,
  pattern,
  read,
  readAll,
  reset,
  write,
} from "./store-case-kit.ts";

/** One example of everything that a world remembers of streams. */
const HISTORY: readonly (readonly Change[])[] = [
  [created(1, { contentType: "application/json", expiry: { kind: "ttl", seconds: 60 } })],
  [appended(1, "1,"), appended(1, "2,", { producer: marked("p", 3, 0), streamSeq: "b" })],
  [created(2, { expiry: { kind: "at", timeMs: 99 } }), appended(2, "closed", { closes: true })],
  [forked(3, 1, 2), appended(3, "3,"), forked(4, 1, 4), forked(5, 4, 4)],
  [appended(1, "4,", { producer: marked("p", 3, 1), atMs: 40 as TimeMs })],
  [ended("deleted", 1, 50), ended("removed", 3, 51)],
  [created(6, { name: "/case/gone" as StreamName }, 52), appended(6, "gone")],
  [ended("removed", 6, 60), ended("touched", 2, 61)],
  [{ kind: "signing_key_added", atMs: 70 as TimeMs, key: '{"kty":"OKP"}' }],
  [{ kind: "incarnation_begun", atMs: 70 as TimeMs, number: 3, mark: 0x9ab1c3d4 }],
  [created(7, { name: "/case/gone" as StreamName }, 71), appended(7, "back", { closes: true })],
];

const KEYS = { windowSeconds: 60, countMax: 3, overflow: "reject", isFromContent: true } as const;

/** Sessions that replace each other, a reset, and keys that are added and evicted. */
const IDENTITIES: readonly (readonly Change[])[] = [
  [created(1), created(2, { keys: { policy: KEYS, window: undefined } })],
  [appended(1, "a", { producer: marked("p", 0, 0, { session: "one" }) })],
  [appended(1, "b", { producer: marked("p", 0, 1, { session: "one" }) })],
  [appended(1, "c", { producer: marked("p", 1, 0, { session: "two" }) })],
  [appended(1, "d", { producer: marked("p", 7, 0) })],
  [appended(1, "e", { producer: marked("p", 8, 0, { session: "three" }) })],
  [appended(1, "f", { producer: marked("q", 4, 0) }), reset(1, "p", 1)],
  [appended(1, "g", { producer: marked("p", 0, 0, { session: "four", resets: 1 }) })],
  [appended(2, "1", { key: keyed("k0", 0) }), appended(2, "22", { key: keyed("k1", 1) })],
  [appended(2, "333", { key: keyed("k2", 2) }), appended(1, "h", { key: keyed("k0", 0) })],
  [appended(2, "4444", { key: keyed("k3", 3, 1), atMs: 20 as TimeMs }), evicted(2, 2)],
  [appended(1, "i", { producer: marked("p", 0, 1, { session: "four", resets: 1 }) })],
];

/** Checks the answers to retries and new appends after IDENTITIES. */
function checkIdentities(store: Store, when: string): void {
  const asked: readonly [
    id: number,
    parts: Parameters<typeof appendCommand>[1],
    answer: object,
    text?: string,
  ][] = [
    [1, { producer: sessionClaim("p", "four", 0) }, { kind: "duplicate", end: 7 }, "g"],
    [1, { producer: sessionClaim("p", "four", 1) }, { kind: "duplicate", end: 9 }, "i"],
    [1, { producer: sessionClaim("p", "four", 0) }, { kind: "reused", received: 0 }],
    [1, { producer: sessionClaim("p", "four", 1), closes: true }, { kind: "reused" }, "i"],
    [1, { producer: sessionClaim("p", "four", 3) }, { kind: "gap", expected: 2 }],
    [1, { producer: sessionClaim("p", "one", 0) }, { kind: "fenced", currentEpoch: 0 }],
    [1, { producer: sessionClaim("p", "two", 0) }, { kind: "fenced" }],
    [1, { producer: sessionClaim("p", "three", 1) }, { kind: "fenced" }],
    [1, { producer: producerClaim("p", 0, 2) }, { kind: "fenced" }],
    [1, { producer: producerClaim("q", 4, 0) }, { kind: "duplicate", end: 6, isOther: false }, "f"],
    [1, { producer: producerClaim("q", 4, 0) }, { kind: "duplicate", end: 6, isOther: true }],
    [1, { producer: sessionClaim("p", "five", 0) }, { kind: "accepted" }],
    [1, { key: keyClaim("k0", "content of k0") }, { kind: "replayed", end: 8 }],
    [2, { key: keyClaim("k0", "content of k0") }, { kind: "accepted" }],
    [2, { key: keyClaim("k2", "content of k2") }, { kind: "replayed", end: 6 }],
    [2, { key: keyClaim("k3", "content of k3") }, { kind: "replayed", end: 10 }],
    [2, { key: keyClaim("k3", "other") }, { kind: "key_reused" }],
  ];
  for (const [id, parts, answer, text = "x"] of asked) {
    const state = store.world.streams.get(`/case/${id}` as StreamName);
    if (state === undefined) throw new Error(`stream ${id} is not there ${when}`);
    const scene = { defaults: KEY_DEFAULTS, durableTail: state.tail };
    const decision = decideAppend(state, appendCommand(text, parts), 20 as TimeMs, scene);
    const told = Object.entries(decision).filter(([name]) => name in answer);
    equalCanonical(
      Object.fromEntries(told),
      answer,
      `the answer to ${JSON.stringify(parts)} ${when}`,
    );
  }
  equalCanonical(
    store.world.streams.get("/case/2" as StreamName)?.keys?.policy,
    KEYS,
    `the policy ${when}`,
  );
}

async function writeHistory(store: Store): Promise<void> {
  for (const changes of HISTORY) await write(store, ...changes);
}

/** Checks the data of HISTORY, in every stream that has any. */
async function checkHistory(store: Store, when: string): Promise<void> {
  const expected: readonly [id: number, from: number, text: string][] = [
    [1, 0, "1,2,4,"],
    [2, 0, "closed"],
    [7, 0, "back"],
  ];
  for (const [id, from, text] of expected) {
    const found = joinBytes(await readAll(store, id, from, from + text.length));
    equalBytes(found, utf8Of(text), `stream ${id} ${when}`);
  }
  for (const id of [3, 6]) {
    const { appends } = await read(store, id, 0, 100);
    equalCanonical(appends.length, 0, `appends of the removed stream ${id} ${when}`);
  }
}

export const durableStoreCases: readonly ConformanceCase[] = [
  {
    name: "S1 a store that was closed and opened again has the same world and the same data",
    needs: "durability",
    async run(open) {
      const before = await open.open();
      await writeHistory(before);
      const world = describeWorld(before.world);
      await before.close();
      const after = await open.open();
      equalCanonical(describeWorld(after.world), world, "the world after a reopen");
      await checkHistory(after, "after a reopen");
      await after.close();
    },
  },
  {
    name: "S1 what a resolved commit holds survives a kill at any commit",
    needs: "durability",
    async run(open) {
      let store = await open.open();
      for (const [index, changes] of HISTORY.entries()) {
        await write(store, ...changes);
        const world = describeWorld(store.world);
        await open.abandon(store);
        store = await open.open();
        equalCanonical(
          describeWorld(store.world),
          world,
          `the world after a kill at commit ${index + 1}`,
        );
      }
      await checkHistory(store, "after the last kill");
      await store.close();
    },
  },
  {
    name: "S1 sessions, resets and keys survive a kill at any commit and a reopen",
    needs: "durability",
    async run(open) {
      let store = await open.open();
      for (const [index, changes] of IDENTITIES.entries()) {
        await write(store, ...changes);
        const world = describeWorld(store.world);
        await open.abandon(store);
        store = await open.open();
        equalCanonical(
          describeWorld(store.world),
          world,
          `the world after a kill at commit ${index + 1}`,
        );
      }
      checkIdentities(store, "after the last kill");
      await store.close();
      store = await open.open();
      checkIdentities(store, "after a reopen");
      await store.close();
    },
  },
  {
    name: "S2 writing goes on where it stopped after a reopen",
    needs: "durability",
    async run(open) {
      const texts = Array.from({ length: 20 }, (_, index) => `part ${index};`);
      for (const [index, text] of texts.entries()) {
        const store = await open.open();
        if (index === 0) await write(store, created(1));
        await write(store, appended(1, text));
        const whole = texts.slice(0, index + 1).join("");
        equalCanonical(
          store.world.streams.get("/case/1" as StreamName)?.tail,
          whole.length,
          "the tail",
        );
        equalBytes(joinBytes(await readAll(store, 1, 0, whole.length)), utf8Of(whole), "the data");
        await store.close();
      }
    },
  },
  {
    name: "S4 appends keep their borders over a reopen",
    needs: "durability",
    async run(open) {
      const before = await open.open();
      await write(before, created(1), appended(1, "abc"), appended(1, "de"));
      await write(before, appended(1, "fghi"), forked(2, 1, 4), appended(2, "XYZ"));
      await before.close();
      const after = await open.open();
      const { start, appends } = await read(after, 1, 4, 8);
      const texts = appends.map((append) => new TextDecoder().decode(append));
      equalCanonical([start, texts], [3, ["de", "fgh"]], "a read from inside an append");
      equalBytes(joinBytes(await readAll(after, 2, 4, 7)), utf8Of("XYZ"), "the fork's own part");
      await after.close();
    },
  },
  {
    name: "S1 large appends and many streams survive a reopen",
    needs: "durability",
    async run(open) {
      const before = await open.open();
      const ids = Array.from({ length: 500 }, (_, index) => index + 2);
      const parts = [70_000, 1_500_000, 3].map((size, seed) => pattern(size, seed));
      await write(before, created(1), ...parts.map((part) => appended(1, part)));
      await write(before, ...ids.flatMap((id) => [created(id), appended(id, `data of ${id}`)]));
      await before.close();
      const after = await open.open();
      const whole = joinBytes(parts);
      equalBytes(joinBytes(await readAll(after, 1, 0, whole.length)), whole, "the large stream");
      for (const id of ids) {
        const text = `data of ${id}`;
        equalBytes(
          joinBytes(await readAll(after, id, 0, text.length)),
          utf8Of(text),
          `stream ${id}`,
        );
      }
      await after.close();
    },
  },
  {
    name: "S6 removed data stays gone after a reopen, and its id is not used again",
    needs: "durability",
    async run(open) {
      const before = await open.open();
      await write(before, created(1), created(2), appended(2, "secret"));
      await write(before, ended("removed", 2));
      await before.close();
      const after = await open.open();
      equalCanonical(
        (await read(after, 2, 0, 6)).appends.length,
        0,
        "appends of the removed stream",
      );
      equalCanonical(after.world.nextId, 3, "the id of the next stream");
      equalCanonical(after.world.timeMs, 3, "journal time");
      await after.close();
    },
  },
];
