/** Conformance cases of what the server keeps for itself: trimmed streams, and groups. */

import { joinBytes, utf8Of } from "../base/bytes.ts";
import type { Change } from "../streams/core/change.ts";
import type { GroupChange } from "../streams/core/group-state.ts";
import type { RetentionRule } from "../streams/core/trim.ts";
import type { Offset, StreamId, StreamName, TimeMs } from "../streams/core/types.ts";
import type { Store } from "../streams/store.ts";
import {
  appended,
  type ConformanceCase,
  created,
  describeWorld,
  ended,
  equalCanonical,
  equalBytes,
  pattern,
  read,
  readAll,
  SYSTEM_STREAM,
  trimmed,
  write,
} from "./store-case-kit.ts";

const PART_BYTES = 1000;

/** Writes a log with appends of PART_BYTES, and a second stream that is never trimmed. */
async function writeLog(store: Store, parts: number): Promise<void> {
  await write(store, created(1, { name: SYSTEM_STREAM }), created(2));
  for (let part = 0; part < parts; part += 1) {
    await write(store, appended(1, pattern(PART_BYTES, part)), appended(2, `${part};`));
  }
}

/** Checks that every byte from `from` on is there. Before it, each returned byte must be the one that was written. */
async function checkLog(store: Store, parts: number, from: number, when: string): Promise<void> {
  const whole = joinBytes(Array.from({ length: parts }, (_, part) => pattern(PART_BYTES, part)));
  // A page begins with the append that holds its start.
  const start = from - (from % PART_BYTES);
  const kept = joinBytes(await readAll(store, 1, start, whole.length));
  equalBytes(kept, whole.subarray(start), `the log from ${from} on ${when}`);
  for (let before = 0; before < from; before += PART_BYTES / 2) {
    const page = await read(store, 1, before, whole.length, PART_BYTES);
    const found = joinBytes(page.appends);
    const written = whole.subarray(page.start, page.start + found.length);
    equalBytes(found, written, `at ${before} ${when}`);
    equalCanonical(
      page.start <= before,
      true,
      `a page at ${before} starts at or before it ${when}`,
    );
  }
  const texts = Array.from({ length: parts }, (_, part) => `${part};`).join("");
  equalBytes(
    joinBytes(await readAll(store, 2, 0, texts.length)),
    utf8Of(texts),
    `beside it ${when}`,
  );
}

export const trimStoreCases: readonly ConformanceCase[] = [
  {
    name: "S9 a stream that was trimmed has everything from there on, and no error before",
    needs: "nothing",
    async run(open) {
      const store = await open.open();
      await writeLog(store, 12);
      for (const to of [0, 1, 999, 1000, 1001, 5000, 4000, 12_000]) {
        await write(store, trimmed(1, to));
        await checkLog(store, 12, Math.max(to, to === 4000 ? 5000 : 0), `after a trim to ${to}`);
      }
      await write(store, appended(1, pattern(PART_BYTES, 12)), appended(2, "12;"));
      await checkLog(store, 13, 12_000, "after an append to nothing");
      await store.close();
    },
  },
  {
    name: "S9 a trim may come with the data that it follows, and with the end of the stream",
    needs: "nothing",
    async run(open) {
      const store = await open.open();
      const parts = [0, 1, 2, 3].map((seed) => pattern(50, seed));
      const appends = parts.map((part) => appended(1, part));
      const log = created(1, { name: SYSTEM_STREAM });
      await write(store, log, ...appends.slice(0, 2), trimmed(1, 50), ...appends.slice(2, 3));
      equalBytes(
        joinBytes(await readAll(store, 1, 50, 150)),
        joinBytes(parts.slice(1, 3)),
        "two parts",
      );
      await write(store, ...appends.slice(3), trimmed(1, 100));
      equalBytes(
        joinBytes(await readAll(store, 1, 100, 200)),
        joinBytes(parts.slice(2)),
        "the last two",
      );
      await write(store, trimmed(1, 150), ended("removed", 1));
      equalCanonical(
        (await read(store, 1, 150, 200)).appends.length,
        0,
        "appends of the removed stream",
      );
      await store.close();
    },
  },
  {
    name: "S9 what was trimmed does not count as live",
    needs: "nothing",
    async run(open) {
      const store = await open.open();
      await write(store, created(1, { name: SYSTEM_STREAM }));
      const empty = store.stats().liveBytes;
      for (let part = 0; part < 20; part += 1) await write(store, appended(1, pattern(500, part)));
      const full = store.stats().liveBytes;
      const room = store.room.bytes;
      await write(store, trimmed(1, 5000));
      const half = store.stats().liveBytes;
      equalCanonical(
        full - half >= 5000 && half - empty >= 5000,
        true,
        `live: ${empty}, ${full}, ${half}`,
      );
      await write(store, trimmed(1, 10_000));
      equalCanonical(store.stats().liveBytes, empty, "live when all was trimmed");
      // A memory store has the room again at once; a journal only after compaction.
      equalCanonical(store.room.bytes >= room - 5000, true, "the room");
      await store.close();
    },
  },
  {
    name: "S1 S9 a trimmed stream survives a kill at any commit and a reopen",
    needs: "durability",
    async run(open) {
      let store = await open.open();
      await writeLog(store, 6);
      for (const [at, to] of [1500, 2000, 5999, 6000].entries()) {
        await write(store, trimmed(1, to));
        await open.abandon(store);
        store = await open.open();
        await checkLog(store, 6 + at, to, `after a kill behind a trim to ${to}`);
        await write(store, appended(1, pattern(PART_BYTES, 6 + at)), appended(2, `${6 + at};`));
      }
      const world = describeWorld(store.world);
      await store.close();
      store = await open.open();
      equalCanonical(describeWorld(store.world), world, "the world after a reopen");
      await checkLog(store, 10, 6000, "after a reopen");
      await store.close();
    },
  },
  {
    name: "S1 S9 what a stream keeps by itself, and where it may be cut, survive a kill at any commit and a reopen",
    needs: "durability",
    async run(open) {
      let store = await open.open();
      const rule = { seconds: 60, bytes: 5000, dropsNeeded: true };
      const none = { seconds: undefined, bytes: undefined, dropsNeeded: false };
      await write(store, created(1), created(2), created(3));
      await write(store, retains(1, rule), retains(2, none), retains(3, { ...none, bytes: 1 }));
      for (let at = 0; at < 8; at += 1) {
        const parts = [1, 2, 3].map((id) =>
          appended(id, pattern(600, at), { atMs: time(at * 7000) }),
        );
        await write(store, ...parts);
        if (at === 5) await write(store, trimmed(1, 1200), retains(3, undefined));
        const world = describeWorld(store.world);
        await open.abandon(store);
        store = await open.open();
        equalCanonical(describeWorld(store.world), world, `the world after commit ${at}`);
      }
      const { retained } = store.world.streams.get("/case/1" as StreamName) ?? {};
      equalCanonical([retained?.earliest, retained?.rule], [1200, rule], "what stream 1 keeps");
      equalCanonical((retained?.marks.length ?? 0) > 2, true, "marks of stream 1");
      await store.close();
    },
  },
];

const time = (ms: number): TimeMs => ms as TimeMs;

function retains(id: number, rule: RetentionRule | undefined): Change {
  return { kind: "retention_set", atMs: time(3), stream: id as StreamId, rule };
}

const at = (ms: number): TimeMs => ms as TimeMs;
const name = (id: number): StreamName => `/case/${id}` as StreamName;
const offset = (to: number): Offset => to as Offset;

const settings = {
  pattern: "/case/*",
  streams: [name(9)],
  start: { kind: "offset", offset: offset(1) },
  leaseMs: 1000,
} as const;

const created1: GroupChange = {
  kind: "group_created",
  atMs: at(10),
  group: "g",
  settings,
  cursors: [1, 2, 3].map((id) => [name(id), offset(id)] as const),
};

/** Everything that can happen to groups, one commit each. */
export const GROUPS: readonly (readonly Change[])[] = [
  [created(1), created(2), created(3), created(4), appended(1, "one"), appended(2, "two")],
  [created1, { ...created1, group: "short-lived", settings: { ...settings, pattern: undefined } }],
  [joinedBy("a", 1), joinedBy("b", 2)],
  [
    claimedBy("a", {
      granted: [
        [name(1), 3],
        [name(2), 4],
        [name(3), 5],
      ],
    }),
  ],
  [claimedBy("b", { asked: [[name(3), at(2000)]] })],
  [{ kind: "group_released", atMs: at(30), group: "g", streams: [name(3)] }],
  [claimedBy("b", { granted: [[name(3), 6]] }), created(9)],
  [
    {
      kind: "group_committed",
      atMs: at(40),
      group: "g",
      member: "a#1",
      expiresAtMs: at(3000),
      offsets: [
        [name(1), offset(3)],
        [name(2), offset(2)],
      ],
      finished: [name(1)],
    },
  ],
  [{ kind: "group_deleted", atMs: at(50), group: "short-lived" }],
  [ended("removed", 2, 55), created(12, { name: name(2) }, 56)],
  [claimedBy("a", { granted: [[name(2), 7]], dropped: [], kept: [] })],
  [
    {
      kind: "group_reset",
      atMs: at(60),
      group: "g",
      offsets: [
        [name(1), offset(0)],
        [name(3), offset(3)],
      ],
    },
  ],
  [{ kind: "group_left", atMs: at(70), group: "g", member: "b#2" }, joinedBy("c", 8)],
  [claimedBy("c", { granted: [[name(3), 9]], dropped: ["a#1"] }, "c#8")],
];

function joinedBy(member: string, ordinal: number): GroupChange {
  const id = `${member}#${ordinal}`;
  const expiresAtMs = at(1000);
  return { kind: "group_joined", atMs: at(20), group: "g", member: id, ordinal, expiresAtMs };
}

function claimedBy(
  member: "a" | "b" | "c",
  parts: Partial<Extract<GroupChange, { kind: "group_claimed" }>>,
  id = member === "a" ? "a#1" : "b#2",
): GroupChange {
  return {
    kind: "group_claimed",
    atMs: at(25),
    group: "g",
    member: id,
    max: 10,
    expiresAtMs: at(2000),
    dropped: [],
    granted: [],
    asked: [],
    kept: [],
    ...parts,
  };
}

export const groupStoreCases: readonly ConformanceCase[] = [
  {
    name: "S1 groups survive a kill at any commit and a reopen",
    needs: "durability",
    async run(open) {
      let store = await open.open();
      for (const [index, changes] of GROUPS.entries()) {
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
      const cursor = store.world.groups.byId.get("g")?.cursors.get(name(3));
      equalCanonical([cursor?.offset, cursor?.token, cursor?.holder], [3, 9, "c#8"], "a lease");
      equalCanonical(store.world.groups.nextToken, 10, "the next token");
      const world = describeWorld(store.world);
      await store.close();
      store = await open.open();
      equalCanonical(describeWorld(store.world), world, "the world after a reopen");
      await store.close();
    },
  },
];
