// Shows that the cases can fail: each wrapper below breaks one sentence of the contract on purpose, and the case of
// that name must notice.
import { describe, expect, test } from "vitest";
import type { Change } from "../core/change.ts";
import type { Offset, StreamId, TimeMs } from "../core/types.ts";
import { applyChange } from "../core/world.ts";
import type { Page, Store } from "../store.ts";
import { type FaultyStore, openFaultyStore } from "../../../test/kits/faulty-store.ts";
import { type OpenStore, STORE_CASES, storeConformance } from "../../testing/store-conformance.ts";
import { openMemoryStore } from "./memory.ts";

const failNextCommit = (store: Store): void => {
  // Every store of this opener is a faulty one.
  (store as FaultyStore).failNextCommit();
};

const memory: OpenStore = {
  isDurable: false,
  open: async () => openFaultyStore(openMemoryStore()),
  abandon: async () => undefined,
  failNextCommit,
};

type Journal = readonly (readonly Change[])[];

/** A memory store that is durable for the test: it keeps a journal and replays it when it is opened. */
function journaled(recall: (journal: Journal) => Journal = (journal) => journal): OpenStore {
  const journal: (readonly Change[])[] = [];
  const open = async (): Promise<Store> => {
    const inner = openMemoryStore();
    for (const changes of recall(journal)) {
      for (const change of changes) applyChange(inner.world, change);
      await inner.commit(changes);
    }
    const store: Store = {
      ...inner,
      async commit(changes) {
        await inner.commit(changes);
        journal.push(structuredClone(changes));
      },
    };
    return openFaultyStore(store);
  };
  return { isDurable: true, open, abandon: async () => undefined, failNextCommit };
}

describe("a journal over the memory store", () => {
  // It has one owner for life: stores/postgres has the cases of takeovers.
  const cases = storeConformance(journaled());
  test.each(cases.map((entry) => [entry.name, entry] as const))("%s", (_name, entry) =>
    entry.run(journaled()),
  );
});

/** Changes one member of a store and leaves the rest. */
function withRead(change: (inner: Store, ...range: Parameters<Store["read"]>) => Promise<Page>) {
  return (inner: Store): Store => ({ ...inner, read: (...range) => change(inner, ...range) });
}

function withCommit(change: (inner: Store, changes: readonly Change[]) => Promise<void>) {
  return (inner: Store): Store => ({ ...inner, commit: (changes) => change(inner, changes) });
}

const FAILED_COMMIT = "S3 after a failed commit no other is taken, and reads go on";
const BEYOND = 1_000_000 as Offset;

/** Commits the data of up to three commits late, and in reverse order. */
function reversed(inner: Store): Store {
  const held: Change[][] = [];
  return {
    ...inner,
    async commit(changes) {
      const data = changes.filter((change) => change.kind === "appended");
      await inner.commit(changes.filter((change) => change.kind !== "appended"));
      held.push(data);
      if (held.length < 3) return;
      for (const late of held.splice(0).toReversed()) await inner.commit(late);
    },
    async read(...range) {
      for (const late of held.splice(0).toReversed()) await inner.commit(late);
      return inner.read(...range);
    },
  };
}

/** Answers commits before they are done: a commit takes effect with the next one. */
function lagging(inner: Store): Store {
  let last: readonly Change[] = [];
  return {
    ...inner,
    async commit(changes) {
      await inner.commit(last);
      last = changes;
    },
  };
}

function keepsRemoved(inner: Store): Store {
  return withCommit((store, changes) =>
    store.commit(changes.filter((change) => change.kind !== "removed")),
  )(inner);
}

/** Keeps data under the path instead of the id: a stream that comes again finds the old data. */
function byName(inner: Store): Store {
  const firstIds = new Map<string, StreamId>();
  const sameId = new Map<StreamId, StreamId>();
  const old = (id: StreamId): StreamId => sameId.get(id) ?? id;
  return {
    ...inner,
    commit: (changes) =>
      inner.commit(
        changes.flatMap((change): readonly Change[] => {
          if (change.kind === "removed") return [];
          if (change.kind === "appended") return [{ ...change, stream: old(change.stream) }];
          if (change.kind !== "created") return [change];
          const first = firstIds.get(change.name);
          firstIds.set(change.name, first ?? change.stream);
          if (first !== undefined) sameId.set(change.stream, first);
          return first === undefined ? [change] : [];
        }),
      ),
    read: (id, from, to, bytesMax) => inner.read(old(id), from, to, bytesMax),
  };
}

function keepsCallersBuffer(inner: Store): Store {
  const kept = new Map<StreamId, Uint8Array>();
  return {
    ...inner,
    async commit(changes) {
      await inner.commit(changes);
      for (const change of changes) {
        if (change.kind === "appended" && change.data.length > 0) {
          kept.set(change.stream, change.data);
        }
      }
    },
    async read(id, from, to, bytesMax) {
      const page = await inner.read(id, from, to, bytesMax);
      const data = kept.get(id);
      return page.appends.length === 1 && data !== undefined ? { ...page, appends: [data] } : page;
    },
  };
}

function answersAfterClose(inner: Store): Store {
  let isClosed = false;
  return {
    ...inner,
    commit: async (changes) => (isClosed ? undefined : inner.commit(changes)),
    seek: async (_id, _from, to) => to,
    read: async (id, from, to, bytesMax) =>
      isClosed ? { start: from, appends: [] } : inner.read(id, from, to, bytesMax),
    async close() {
      isClosed = true;
    },
  };
}

function dropsSoftlyDeleted(inner: Store): Store {
  return withCommit((store, changes) =>
    store.commit(
      changes.map((change) =>
        change.kind === "deleted" ? { ...change, kind: "removed" } : change,
      ),
    ),
  )(inner);
}

/** Returns the first page behind a hole. */
async function answerNext(
  inner: Store,
  id: StreamId,
  from: Offset,
  to: Offset,
  bytesMax: number,
): Promise<Page> {
  for (let at = from; at < to; at = (at + 500) as Offset) {
    const page = await inner.read(id, at, to, bytesMax);
    if (page.appends.length > 0) return page;
  }
  return { start: from, appends: [] };
}

/** The broken store, how it is broken, and the cases that must notice. */
const broken: readonly [
  what: string,
  wrap: (inner: Store) => Store,
  caughtBy: readonly string[],
][] = [
  [
    "answers before the data is there",
    lagging,
    ["S1 what a commit holds can be read as soon as it resolves"],
  ],
  [
    "loses all but the first two changes of a large commit",
    withCommit((inner, changes) => inner.commit(changes.slice(0, 2))),
    [
      "S1 a commit brings the changes of many streams together",
      "S1 large appends arrive byte for byte",
    ],
  ],
  [
    "cuts appends at 64 KiB",
    withCommit((inner, changes) =>
      inner.commit(
        changes.map((change) =>
          change.kind === "appended"
            ? { ...change, data: change.data.subarray(0, 65_536) }
            : change,
        ),
      ),
    ),
    ["S1 large appends arrive byte for byte"],
  ],
  [
    "turns the order of commits around",
    reversed,
    ["S2 commits take effect in the order of the calls"],
  ],
  [
    "stores a close as an append",
    withCommit((inner, changes) =>
      inner.commit(
        changes.map((change) =>
          change.kind === "appended" && change.closes
            ? { ...change, data: new Uint8Array(1) }
            : change,
        ),
      ),
    ),
    ["S2 an empty commit and one without data change nothing that is stored"],
  ],
  [
    "answers bytes beyond the end",
    withRead((inner, id, from, _to, bytesMax) => inner.read(id, from, BEYOND, bytesMax)),
    [
      "S4 a read answers whole appends from the one that holds its start, cut at its end",
      "S4 data after the end of a read is not answered, though it is stored",
      "S4 a fork holds its own bytes from the fork point on, and its source the ones before",
    ],
  ],
  [
    "splits appends",
    withRead(async (inner, id, from, to, bytesMax) => {
      const page = await inner.read(id, from, to, bytesMax);
      const appends = page.appends.flatMap((append) => [append.subarray(0, 1), append.subarray(1)]);
      return { start: page.start, appends: appends.filter((append) => append.length > 0) };
    }),
    ["S4 a read answers whole appends from the one that holds its start, cut at its end"],
  ],
  [
    "starts inside an append",
    withRead(async (inner, id, from, to, bytesMax) => {
      const page = await inner.read(id, from, to, bytesMax);
      const [first, ...rest] = page.appends;
      if (first === undefined) return page;
      return { start: from, appends: [first.subarray(from - page.start), ...rest] };
    }),
    ["S4 a read answers whole appends from the one that holds its start, cut at its end"],
  ],
  [
    "stores forks from offset 0",
    withCommit((inner, changes) =>
      inner.commit(
        changes.map((change) =>
          change.kind === "created" ? { ...change, fork: undefined } : change,
        ),
      ),
    ),
    ["S4 a fork holds its own bytes from the fork point on, and its source the ones before"],
  ],
  [
    "takes no notice of the limit",
    withRead((inner, id, from, to) => inner.read(id, from, to, Infinity)),
    ["S5 a read stops after its limit but answers at least one append"],
  ],
  [
    "answers nothing when one append is over the limit",
    withRead(async (inner, id, from, to, bytesMax) => {
      const page = await inner.read(id, from, to, bytesMax);
      return (page.appends[0]?.length ?? 0) > bytesMax ? { start: from, appends: [] } : page;
    }),
    ["S5 a read stops after its limit but answers at least one append"],
  ],
  ["keeps removed data", keepsRemoved, ["S6 the data of a removed stream is gone"]],
  [
    "keeps data by path",
    byName,
    ["S6 a later stream at the same path shows nothing of the removed one"],
  ],
  [
    "drops a softly deleted stream",
    dropsSoftlyDeleted,
    ["S6 a deleted stream that forks need keeps its data until it is removed"],
  ],
  [
    "answers after close",
    answersAfterClose,
    ["S7 a closed store rejects every call with store_closed"],
  ],
  [
    "keeps the caller's buffer",
    keepsCallersBuffer,
    ["S8 a caller may reuse its buffers once the commit has resolved"],
  ],
  [
    "trims too much",
    withCommit((inner, changes) =>
      inner.commit(
        changes.map((change) => (change.kind === "trimmed" ? { ...change, to: BEYOND } : change)),
      ),
    ),
    [
      "S9 a stream that was trimmed has everything from there on, and no error before",
      "S9 a trim may come with the data that it follows, and with the end of the stream",
    ],
  ],
  [
    "never trims",
    withCommit((inner, changes) =>
      inner.commit(changes.filter((change) => change.kind !== "trimmed")),
    ),
    ["S9 what was trimmed does not count as live"],
  ],
  [
    "looks for a later time",
    (inner) => ({
      ...inner,
      seek: (id, from, to, atMs) => inner.seek(id, from, to, (atMs + 1) as TimeMs),
    }),
    ["S13 a seek returns the first append of a time or later, between any two ends"],
  ],
  [
    "looks for a time from the beginning, however late the read begins",
    (inner) => ({
      ...inner,
      seek: (id, _from, to, atMs) => inner.seek(id, 0 as Offset, to, (atMs - 1) as TimeMs),
    }),
    ["S13 a seek returns the first append of a time or later, between any two ends"],
  ],
  [
    "looks for a time beyond the end",
    (inner) => ({ ...inner, seek: (id, from, _to, atMs) => inner.seek(id, from, BEYOND, atMs) }),
    ["S13 a seek in a fork finds its own appends, and no earlier ones"],
  ],
  [
    "answers what is kept to a read of what is gone",
    withRead(answerNext),
    ["S9 a stream that was trimmed has everything from there on, and no error before"],
  ],
];

/** How a reopened store remembers its journal wrongly, and the cases that must notice. */
const forgetful: readonly [
  what: string,
  recall: (journal: Journal) => Journal,
  readonly string[],
][] = [
  [
    "drops the last commit",
    (journal) => journal.slice(0, -1),
    [
      "S1 a store that was closed and opened again has the same world and the same data",
      "S1 what a resolved commit holds survives a kill at any commit",
      "S2 writing goes on where it stopped after a reopen",
    ],
  ],
  [
    "forgets producers",
    mapChanges((change) =>
      change.kind === "appended" ? [{ ...change, producer: undefined }] : [change],
    ),
    ["S1 what a resolved commit holds survives a kill at any commit"],
  ],
  [
    "forgets sessions",
    mapChanges((change) =>
      change.kind === "appended" && change.producer !== undefined
        ? [{ ...change, producer: { ...change.producer, session: undefined } }]
        : [change],
    ),
    ["S1 sessions, resets and keys survive a kill at any commit and a reopen"],
  ],
  [
    "forgets keys",
    mapChanges((change) =>
      change.kind === "appended" ? [{ ...change, key: undefined }] : [change],
    ),
    ["S1 sessions, resets and keys survive a kill at any commit and a reopen"],
  ],
  [
    "forgets that producers were reset",
    mapChanges((change) => (change.kind === "producer_reset" ? [] : [change])),
    ["S1 sessions, resets and keys survive a kill at any commit and a reopen"],
  ],
  [
    "brings evicted keys back",
    mapChanges((change) => (change.kind === "keys_evicted" ? [] : [change])),
    ["S1 sessions, resets and keys survive a kill at any commit and a reopen"],
  ],
  [
    "joins what one commit appended",
    (journal) => journal.map(joinAppends),
    ["S4 appends keep their borders over a reopen"],
  ],
  [
    "loses the middle of large data",
    mapChanges((change) =>
      change.kind === "appended" && change.data.length > 100_000
        ? [{ ...change, data: change.data.slice().fill(0, 50_000, 50_001) }]
        : [change],
    ),
    ["S1 large appends and many streams survive a reopen"],
  ],
  [
    "brings removed streams back",
    mapChanges((change) => (change.kind === "removed" ? [] : [change])),
    ["S6 removed data stays gone after a reopen, and its id is not used again"],
  ],
  [
    "trims more than it was told",
    mapChanges((change) =>
      change.kind === "trimmed" ? [{ ...change, to: (change.to + 1000) as Offset }] : [change],
    ),
    ["S1 S9 a trimmed stream survives a kill at any commit and a reopen"],
  ],
  [
    "forgets what streams keep",
    mapChanges((change) => (change.kind === "retention_set" ? [] : [change])),
    [
      "S1 S9 what a stream keeps by itself, and where it may be cut, survive a kill at any commit and a reopen",
    ],
  ],
  [
    "forgets when appends were stored",
    mapChanges((change) =>
      change.kind === "appended" ? [{ ...change, atMs: 1 as TimeMs }] : [change],
    ),
    ["S13 a seek returns the same after a kill, a reopen, and more appends"],
  ],
  [
    "forgets groups",
    mapChanges((change) => (change.kind.startsWith("group_") ? [] : [change])),
    ["S1 groups survive a kill at any commit and a reopen"],
  ],
];

function mapChanges(map: (change: Change) => readonly Change[]): (journal: Journal) => Journal {
  return (journal) => journal.map((changes) => changes.flatMap(map));
}

function joinAppends(changes: readonly Change[]): readonly Change[] {
  const joinedChanges: Change[] = [];
  for (const change of changes) {
    const last = joinedChanges.at(-1);
    if (change.kind === "appended" && last?.kind === "appended" && last.stream === change.stream) {
      const data = Uint8Array.from([...last.data, ...change.data]);
      joinedChanges[joinedChanges.length - 1] = { ...change, data };
    } else {
      joinedChanges.push(change);
    }
  }
  return joinedChanges;
}

async function failedCases(make: () => OpenStore): Promise<string[]> {
  const failed: string[] = [];
  for (const entry of storeConformance(make())) {
    const outcome = await entry.run(make()).then(
      () => "passed",
      () => "failed",
    );
    if (outcome === "failed") failed.push(entry.name);
  }
  return failed;
}

/** Forgets that a commit has failed, and takes the next one. */
function openForgivingStore(): Store {
  const inner = openMemoryStore();
  let isNextFailing = false;
  const store: Store & Pick<FaultyStore, "failNextCommit"> = {
    ...inner,
    failNextCommit() {
      isNextFailing = true;
    },
    async commit(changes) {
      if (!isNextFailing) return inner.commit(changes);
      isNextFailing = false;
      throw new Error("once");
    },
  };
  return store;
}

describe("the suite notices a store that", () => {
  test.each(broken)("%s", async (_what, wrap, caughtBy) => {
    const open = async (): Promise<Store> => openFaultyStore(wrap(openMemoryStore()));
    const failed = await failedCases(() => ({ ...memory, open }));
    expect(failed).toEqual(expect.arrayContaining([...caughtBy]));
  });

  test.each(forgetful)("%s when it is opened again", async (_what, recall, caughtBy) => {
    const failed = await failedCases(() => journaled(recall));
    expect(failed).toEqual(expect.arrayContaining([...caughtBy]));
  });

  test("takes commits after a failed one", async () => {
    const failed = await failedCases(() => ({ ...memory, open: async () => openForgivingStore() }));
    expect(failed).toEqual([FAILED_COMMIT]);
  });

  test("breaks any sentence: every case is failed by some store above", () => {
    const caught = [...broken, ...forgetful].flatMap(([, , caughtBy]) => caughtBy);
    // Takeovers are failed by the planted faults of stores/postgres: a wrong store here has one owner for life.
    const mine = STORE_CASES.filter(({ needs }) => needs !== "takeover");
    const names = new Set(mine.map(({ name }) => name));
    expect(new Set([...caught, FAILED_COMMIT])).toEqual(names);
  });
});
