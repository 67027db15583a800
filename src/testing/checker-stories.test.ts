/**
 * Random valid stories: writers, members of a group and readers take turns at a small world that keeps every promise,
 * while requests, answers and whole processes get lost. Then each story is broken in one way.
 */

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { expect, test } from "vitest";
import { type CheckOptions, checkHistory, explainVerdict, type FinalState } from "./checker.ts";
import { readHistory } from "./checker-files.ts";
import {
  createHistory,
  type FoundRecord,
  type HistoryEvent,
  type Observation,
  type TransactionCall,
  type WrittenCommit,
  type WrittenRecords,
} from "./checker-history.ts";
import type { CheckerRule } from "./checker-problems.ts";
import { createSeededRandom, type SeededRandom } from "./seeded-random.ts";

interface Story {
  readonly events: HistoryEvent[];
  readonly final: {
    streams: Record<string, FoundRecord[]>;
    commits: NonNullable<FinalState["commits"]>;
  };
  readonly options: CheckOptions;
}

type Turns = Generator<undefined, void>;

const INPUTS = ["in-0", "in-1"];
const OUTPUTS = ["out-0", "out-1", "audit"];

/** Tells one story. The same seed gives the same story. */
function tellStory(seed: number): Story {
  const story = new StoryTeller(seed);
  story.play();
  return story.end();
}

class StoryTeller {
  readonly #random;
  readonly #history;
  readonly #streams = new Map<string, { id: string; key: string | undefined; offset: number }[]>();
  readonly #done = new Set<string>();
  readonly #cursors = new Map<string, { offset: number; token: number }>();
  readonly #actors: Turns[] = [];
  #writing = 0;
  #names = 0;

  constructor(seed: number) {
    let nowUs = 0;
    this.#random = createSeededRandom(seed);
    this.#history = createHistory({ nowUs: () => (nowUs += 1) });
    for (const name of [...INPUTS, ...OUTPUTS]) this.#streams.set(name, []);
    for (const name of INPUTS) this.#cursors.set(name, { offset: 0, token: 0 });
  }

  play(): void {
    for (let count = 2; count > 0; count -= 1) this.#actors.push(this.#producer(), this.#writer());
    this.#writing = this.#actors.length;
    this.#actors.push(this.#member(), this.#member(), this.#cutReader(), this.#tailReader());
    while (this.#actors.length > 0) {
      const index = this.#random.below(this.#actors.length);
      if (this.#actors[index]?.next().done === true) this.#actors.splice(index, 1);
    }
  }

  end(): Story {
    const { events } = this.#history;
    const streams: Record<string, FoundRecord[]> = {};
    for (const [name, records] of this.#streams) {
      streams[name] = records.map(({ id, offset }) => ({ id, offset }));
    }
    const commits = INPUTS.map((stream) => ({
      group: "g",
      stream,
      offset: this.#cursor(stream).offset,
    }));
    const pipelines = [
      { from: INPUTS, to: ["out-0", "out-1"] },
      { from: INPUTS, to: ["audit"] },
    ];
    return { events: [...events], final: { streams, commits }, options: { pipelines } };
  }

  #chance(share: number): boolean {
    return this.#random.unit() < share;
  }

  #name(prefix: string): string {
    this.#names += 1;
    return `${prefix}${this.#names}`;
  }

  #stream(name: string) {
    return this.#streams.get(name) ?? [];
  }

  #cursor(stream: string): { offset: number; token: number } {
    return this.#cursors.get(stream) ?? { offset: 0, token: 0 };
  }

  /** Applies the appends, all at once, and once for each identity. */
  #apply(identity: string, appends: readonly WrittenRecords[]): void {
    if (this.#done.has(identity)) return;
    this.#done.add(identity);
    for (const { stream, records } of appends) {
      const there = this.#stream(stream);
      for (const { id, key } of records) there.push({ id, key, offset: there.length * 10 });
    }
  }

  /** Sends its records again until it gets an answer. Several are in flight, and arrive in order. */
  *#producer(): Turns {
    const process = this.#name("producer-");
    const sent: {
      identity: string;
      append: WrittenRecords;
      end: { ok(): void; unknown(): void };
    }[] = [];
    const invoke = (append: WrittenRecords) =>
      this.#history.invoke({ process, kind: "append", producer: process, ...append });
    const stream = INPUTS[this.#random.below(2)] ?? "";
    for (let count = 6; count > 0 || sent.length > 0;) {
      yield;
      if (count > 0 && (sent.length === 0 || this.#chance(0.5))) {
        count -= 1;
        const records = Array.from({ length: 1 + this.#random.below(2) }, () => ({
          id: this.#name("p"),
          key: `k${this.#random.below(2)}`,
        }));
        const append = { stream, records };
        sent.push({ identity: this.#name("append "), append, end: invoke(append) });
        continue;
      }
      const [first] = sent;
      if (first === undefined) continue;
      const { identity, append } = first;
      if (this.#chance(0.8)) this.#apply(identity, [append]);
      yield;
      if (this.#chance(0.3) || !this.#done.has(identity)) {
        first.end.unknown();
        yield;
        first.end = invoke(append);
      } else {
        first.end.ok();
        sent.shift();
      }
    }
    this.#writing -= 1;
  }

  /** Gives up appends without an answer. They may arrive later. */
  *#writer(): Turns {
    const process = this.#name("writer-");
    for (let count = 6; count > 0; count -= 1) {
      const stream = INPUTS[this.#random.below(2)] ?? "";
      const append = {
        stream,
        records: [{ id: this.#name("w"), key: `k${this.#random.below(2)}` }],
      };
      const end = this.#history.invoke({ process, kind: "append", ...append });
      yield;
      if (this.#chance(0.15)) {
        end.fail("refused");
      } else if (this.#chance(0.3)) {
        if (this.#chance(0.5)) end.unknown();
        if (this.#chance(0.7)) this.#actors.push(this.#arriveLate(append));
        this.#writing += 1;
        this.#actors.push(this.#countDown());
      } else {
        this.#apply(this.#name("append "), [append]);
        yield;
        end.ok();
      }
      yield;
    }
    this.#writing -= 1;
  }

  *#arriveLate(append: WrittenRecords): Turns {
    this.#writing += 1;
    yield;
    this.#apply(this.#name("append "), [append]);
    this.#writing -= 1;
  }

  *#countDown(): Turns {
    for (let turns = 3; turns > 0; turns -= 1) yield;
    this.#writing -= 1;
  }

  /** Claims a stream, and turns each input into an output and a line of the audit, with the commit. */
  *#member(): Turns {
    let process = this.#name("member-");
    while (
      this.#writing > 0 ||
      INPUTS.some((name) => this.#cursor(name).offset < this.#stream(name).length)
    ) {
      const stream = INPUTS[this.#random.below(2)] ?? "";
      const claim = this.#history.invoke({ process, kind: "claim", group: "g" });
      yield;
      const cursor = this.#cursor(stream);
      cursor.token += 1;
      const { token, offset } = cursor;
      yield;
      claim.ok({ leases: [{ stream, token, offset }] });
      for (let rounds = 1 + this.#random.below(3), at = offset; rounds > 0; rounds -= 1) {
        const batch = this.#stream(stream).slice(at, at + 1 + this.#random.below(3));
        if (batch.length === 0) break;
        const commit = { group: "g", stream, token, offset: at + batch.length };
        const outcome = yield* this.#transact(process, batch, commit);
        if (outcome !== "committed") {
          if (outcome === "dead") process = this.#name("member-");
          break;
        }
        at += batch.length;
      }
    }
  }

  *#transact(
    process: string,
    batch: readonly { readonly id: string; readonly key: string | undefined }[],
    commit: WrittenCommit & { readonly offset: number; readonly token: number },
  ): Generator<undefined, "committed" | "refused" | "dead"> {
    const identity = this.#name("transaction ");
    const suffix = this.#chance(0.5) ? "" : ` by ${identity}`;
    const out = commit.stream.replace("in", "out");
    const made = (stream: string): WrittenRecords => ({
      stream,
      records: batch.map(({ id, key }) => ({ id: `${stream} ${id}${suffix}`, key, of: id })),
    });
    const appends = [made(out), made("audit")];
    for (;;) {
      const call = {
        process,
        kind: "transaction",
        id: identity,
        appends,
        commits: [commit],
      } as const;
      const end = this.#history.invoke(call);
      yield;
      const cursor = this.#cursor(commit.stream);
      const arrives = this.#chance(0.8);
      if (arrives && !this.#done.has(identity) && cursor.token !== commit.token) {
        end.fail("lease_lost");
        return "refused";
      }
      if (arrives && !this.#done.has(identity)) {
        this.#apply(identity, appends);
        cursor.offset = commit.offset;
      }
      yield;
      if (this.#chance(0.1)) return "dead";
      if (arrives && this.#chance(0.8)) {
        end.ok();
        return "committed";
      }
      end.unknown();
      yield;
    }
  }

  *#cutReader(): Turns {
    const process = this.#name("cutter-");
    const ends = new Map<string, number>();
    for (let count = 12; count > 0; count -= 1) {
      const end = this.#history.invoke({ process, kind: "read", isCut: true });
      yield;
      const observed = OUTPUTS.map((stream) => {
        const records = this.#stream(stream).slice(ends.get(stream) ?? 0);
        ends.set(stream, this.#stream(stream).length);
        return { stream, begins: "continued" as const, records: records.map(foundOf) };
      });
      yield;
      end.ok({ observed });
      for (let turns = this.#random.below(12); turns > 0; turns -= 1) yield;
    }
  }

  *#tailReader(): Turns {
    const process = this.#name("reader-");
    for (let count = 10; count > 0; count -= 1) {
      const stream = [...INPUTS, ...OUTPUTS][this.#random.below(5)] ?? "";
      const end = this.#history.invoke({ process, kind: "read" });
      yield;
      const all = this.#stream(stream).map(foundOf);
      const from = this.#chance(0.5) ? 0 : this.#random.below(all.length + 1);
      const begins = from === 0 ? ("start" as const) : ("anywhere" as const);
      yield;
      const isComplete = from < all.length || from === 0;
      end.ok({ observed: [{ stream, begins, records: all.slice(from), isComplete }] });
      for (let turns = this.#random.below(12); turns > 0; turns -= 1) yield;
    }
  }
}

const foundOf = ({ id, offset }: FoundRecord): FoundRecord => ({ id, offset });

test("LC1 LC2 LC3 LC4 LC5 LC6 LC7 LC8 LC9 LC10 no rule is broken by a valid story", () => {
  const total = { acknowledged: 0, refused: 0, unknown: 0, transactions: 0, reads: 0 };
  fc.assert(
    fc.property(fc.integer(), (seed) => {
      const { events, final, options } = tellStory(seed);
      const verdict = checkHistory(events, final, options);
      expect(verdict.ok, explainVerdict(verdict)).toBe(true);
      total.acknowledged += verdict.counts.acknowledged;
      total.refused += verdict.counts.refused;
      total.unknown += verdict.counts.unknown;
      total.transactions += verdict.counts.transactions;
      total.reads += verdict.counts.reads;
    }),
    { numRuns: 200 },
  );
  // Empty stories would prove nothing.
  for (const [name, count] of Object.entries(total)) expect(count, name).toBeGreaterThan(300);
});

type Break = (story: Story, random: SeededRandom) => boolean;

function pick<T>(list: readonly T[], random: SeededRandom): T | undefined {
  return list[random.below(list.length)];
}

function streamOf({ final }: Story, name: string): FoundRecord[] {
  return (final.streams[name] ??= []);
}

const anyStream = (story: Story, random: SeededRandom): FoundRecord[] =>
  streamOf(story, pick(Object.keys(story.final.streams), random) ?? "");

/** Swaps two records; the offsets stay where they are. */
function swap(stream: FoundRecord[], one: number, other: number): boolean {
  const [first, second] = [stream[one], stream[other]];
  if (first === undefined || second === undefined) return false;
  stream[one] = { id: second.id, offset: first.offset };
  stream[other] = { id: first.id, offset: second.offset };
  return true;
}

function add(
  { events }: Story,
  call: Extract<HistoryEvent, { type: "invoke" }>["call"],
  result?: object,
): true {
  const head = { op: 1_000_000 + events.length, process: "intruder", atUs: events.length };
  events.push({ type: "invoke", ...head, call });
  events.push({ type: "ok", ...head, result } as HistoryEvent); // The breaks give the result that fits.
  return true;
}

/** The operations that were acknowledged. */
function* acknowledged({ events }: Story) {
  const open = new Map<number, { readonly call: object; readonly at: number }>();
  for (const [at, event] of events.entries()) {
    if (event.type === "invoke") open.set(event.op, { call: event.call, at });
    const begun = open.get(event.op);
    if (event.type === "ok" && begun !== undefined) {
      yield {
        call: events[begun.at] as Extract<HistoryEvent, { type: "invoke" }>,
        end: event,
        from: begun.at,
        to: at,
      };
    }
  }
}

const transactionsOf = (story: Story): readonly TransactionCall[] =>
  [...acknowledged(story)].flatMap(({ call }) =>
    call.call.kind === "transaction" ? [call.call] : [],
  );

function remove(story: Story, name: string, id: string | undefined): boolean {
  const stream = streamOf(story, name);
  const at = stream.findIndex((record) => record.id === id);
  if (at >= 0) stream.splice(at, 1);
  return at >= 0;
}

/** Two appends to one stream. The first was acknowledged before the second was invoked. */
function* apart(story: Story) {
  const begun = new Map<string | undefined, number>();
  for (const [at, event] of story.events.entries()) {
    if (event.type !== "invoke" || event.call.kind !== "append") continue;
    const id = event.call.records[0]?.id;
    if (!begun.has(id)) begun.set(id, at);
  }
  const all = [...acknowledged(story)].flatMap(({ call: { call }, to }) =>
    call.kind === "append" ? [{ call, to, from: begun.get(call.records[0]?.id) ?? 0 }] : [],
  );
  for (const one of all) {
    for (const other of all) {
      if (one.call.stream === other.call.stream && one.to < other.from)
        yield { one: one.call, other: other.call };
    }
  }
}

const positionOf = (stream: readonly FoundRecord[], id: string | undefined): number =>
  stream.findIndex((record) => record.id === id);

/** An observation of several records, and a way to put another in its place. */
function observations(story: Story, isCut: boolean) {
  return [...acknowledged(story)].flatMap(({ call, end, to }) => {
    if (call.call.kind !== "read" || (call.call.isCut === true) !== isCut) return [];
    const { observed } = end.result as { observed: readonly Observation[] }; // It is a read.
    return observed.map((observation, index) => ({
      observation,
      replace(records: readonly FoundRecord[]) {
        const changed = observed.with(index, { ...observation, records });
        story.events[to] = { ...end, result: { observed: changed } };
        return true;
      },
    }));
  });
}

function lastCommit(story: Story): WrittenCommit | undefined {
  return transactionsOf(story)
    .flatMap(({ commits }) => commits ?? [])
    .at(-1);
}

const breaks: readonly (readonly [title: string, rule: CheckerRule, run: Break])[] = [
  [
    "LC1 an acknowledged record vanishes",
    "lost",
    (story, random) => {
      const calls = [...acknowledged(story)].flatMap(({ call: { call } }) =>
        call.kind === "append" ? [call] : [],
      );
      const call = pick(calls, random);
      return call !== undefined && remove(story, call.stream, pick(call.records, random)?.id);
    },
  ],
  [
    "LC2 a record comes from nowhere",
    "invented",
    (story, random) => anyStream(story, random).push({ id: "x" }) > 0,
  ],
  [
    "LC2 a refused record is there",
    "invented",
    (story) => {
      const refused = story.events.find(({ type }) => type === "fail")?.op;
      const call = story.events.flatMap((event) =>
        event.type === "invoke" && event.op === refused ? [event.call] : [],
      )[0];
      if (call?.kind !== "append") return false;
      return streamOf(story, call.stream).push({ id: call.records[0]?.id ?? "" }) > 0;
    },
  ],
  [
    "LC3 a record is there again",
    "duplicated",
    (story, random) => {
      const stream = anyStream(story, random);
      const twin = pick(stream, random);
      return twin !== undefined && stream.push({ id: twin.id }) > 0;
    },
  ],
  [
    "LC4 a batch of a producer is the other way round",
    "order",
    (story) => {
      for (const { call } of acknowledged(story)) {
        if (call.call.kind !== "append" || call.call.records.length < 2) continue;
        const stream = streamOf(story, call.call.stream);
        const at = positionOf(stream, call.call.records[0]?.id);
        return swap(stream, at, at + 1);
      }
      return false;
    },
  ],
  [
    "LC5 an input is processed again, under another id",
    "once",
    (story, random) => {
      const of = pick(streamOf(story, "in-0"), random)?.id;
      if (of === undefined) return false;
      streamOf(story, "out-0").push({ id: "again" });
      return add(story, { kind: "append", stream: "out-0", records: [{ id: "again", of }] });
    },
  ],
  [
    "LC6 a part of a transaction vanishes",
    "whole",
    (story, random) =>
      remove(story, "audit", pick(transactionsOf(story), random)?.appends[1]?.records[0]?.id),
  ],
  [
    "LC6 a cut lags behind in one stream",
    "whole",
    (story, random) => {
      const lagging = observations(story, true).filter(
        ({ observation }) => observation.records.length > 0,
      );
      const one = pick(lagging, random);
      return one !== undefined && one.replace(one.observation.records.slice(0, -1));
    },
  ],
  [
    "LC7 a commit goes back",
    "offset",
    (story) => {
      const last = lastCommit(story);
      return (
        last !== undefined &&
        add(story, { kind: "commit", ...last, token: 1000, offset: Number(last.offset) - 1 })
      );
    },
  ],
  [
    "LC8 a commit under an old token is done",
    "fence",
    (story) => {
      const last = lastCommit(story);
      return last !== undefined && add(story, { kind: "commit", ...last, token: 0, offset: 1000 });
    },
  ],
  [
    "LC9 a reader skips a record",
    "prefix",
    (story, random) => {
      const long = observations(story, random.below(2) === 0).filter(
        ({ observation }) => observation.records.length > 2,
      );
      const one = pick(long, random);
      return one !== undefined && one.replace(one.observation.records.toSpliced(1, 1));
    },
  ],
  [
    "LC10 a record changes places with one that began after its end",
    "time",
    (story, random) => {
      const pair = pick([...apart(story)], random);
      if (pair === undefined) return false;
      const stream = streamOf(story, pair.one.stream);
      return swap(
        stream,
        positionOf(stream, pair.one.records[0]?.id),
        positionOf(stream, pair.other.records[0]?.id),
      );
    },
  ],
  [
    "LC10 a read to the tail misses what was acknowledged",
    "time",
    (story) => {
      const observed = [{ stream: "audit", records: [], isComplete: true }];
      return transactionsOf(story).length > 0 && add(story, { kind: "read" }, { observed });
    },
  ],
];

test.for(breaks)("%s: %s", ([, rule, run]) => {
  let broken = 0;
  fc.assert(
    fc.property(fc.integer(), (seed) => {
      const story = tellStory(seed);
      if (!run(story, createSeededRandom(seed + 1))) return;
      broken += 1;
      const verdict = checkHistory(story.events, story.final, story.options);
      expect(Object.keys(verdict.counts.problems), explainVerdict(verdict)).toContain(rule);
    }),
    { numRuns: 40 },
  );
  expect(broken).toBeGreaterThan(10);
});

test("the parts of several processes are one history again", () => {
  const folder = mkdtempSync(join(tmpdir(), "hapax-history-"));
  for (const seed of [1, 2, 3]) {
    const { events, final, options } = tellStory(seed);
    const parts = new Map<string, HistoryEvent[]>();
    for (const event of events)
      parts.set(event.process, [...(parts.get(event.process) ?? []), event]);
    const paths = [...parts].map(([process, part]) => {
      const path = join(folder, `${seed}-${process}.jsonl`);
      writeFileSync(path, part.map((event) => `${JSON.stringify(event)}\n`).join(""));
      return path;
    });
    expect(paths.length).toBeGreaterThan(5);
    const merged = readHistory(paths);
    expect(merged.map(({ atUs }) => atUs)).toEqual(events.map(({ atUs }) => atUs));
    const { counts } = checkHistory(events, final, options);
    expect(checkHistory(merged, final, options)).toEqual({ ok: true, problems: [], counts });
  }
  rmSync(folder, { recursive: true });
});
