import { expect, test } from "vitest";
import { type CheckOptions, checkHistory, explainVerdict, type FinalState } from "./checker.ts";
import { createHistory, type History, type Observation, type ReadCall } from "./checker-history.ts";
import type { CheckerRule } from "./checker-problems.ts";

/** A short way to write histories down. */
function script(history: History) {
  const append = (
    id: string,
    more: { stream?: string; process?: string; producer?: string; key?: string } = {},
  ) => {
    const { stream = "s", process = "p", producer, key } = more;
    return history.invoke({ process, kind: "append", stream, producer, records: [{ id, key }] });
  };
  const made = (stream: string, id: string, of: string) =>
    history.invoke({ process: "p", kind: "append", stream, records: [{ id, of }] });
  /** Records named `stream/id`; the offset is committed under token 1, if it is given. */
  const transaction = (ids: readonly string[], offset?: number, id?: string) =>
    history.invoke({
      process: "p",
      kind: "transaction",
      id,
      appends: ids.map((name) => {
        const [stream = "", record = ""] = name.split("/");
        return { stream, records: [{ id: record }] };
      }),
      commits: offset === undefined ? [] : [{ group: "g", stream: "s", token: 1, offset }],
    });
  const commit = (token: number, offset: number, process = "p") =>
    history.invoke({ process, kind: "commit", group: "g", stream: "s", token, offset });
  const claim = (token: number, offset?: number, process = "p") =>
    history
      .invoke({ process, kind: "claim", group: "g" })
      .ok({ leases: [{ stream: "s", token, offset }] });
  /** Streams with the ids that were seen in them. */
  const read = (
    seen: Readonly<Record<string, string>>,
    more: Pick<ReadCall, "isCut"> & Pick<Observation, "begins" | "isComplete"> = {},
  ) => {
    const { isCut, ...how } = more;
    const end = history.invoke({ process: "r", kind: "read", isCut });
    const observed = Object.entries(seen).map(([stream, ids]) => ({
      stream,
      records: recordsOf(ids),
      ...how,
    }));
    return { ok: () => end.ok({ observed }) };
  };
  return { append, made, transaction, commit, claim, read };
}

const recordsOf = (ids: string) => ids.split(" ").flatMap((id) => (id === "" ? [] : [{ id }]));

function check(
  write: (words: ReturnType<typeof script>) => void,
  final: Readonly<Record<string, string>>,
  more: CheckOptions & Pick<FinalState, "commits"> = {},
) {
  const history = createHistory();
  write(script(history));
  const streams = Object.fromEntries(
    Object.entries(final).map(([name, ids]) => [name, recordsOf(ids)]),
  );
  return checkHistory(history.events, { streams, commits: more.commits }, more);
}

type Case = readonly [
  title: string,
  rule: CheckerRule,
  detail: RegExp,
  write: (words: ReturnType<typeof script>) => void,
  final: Readonly<Record<string, string>>,
  more?: Parameters<typeof check>[2],
];

const pipelines = [{ from: ["s"], to: ["out"] }];
const committed = (offset: number) => ({ commits: [{ group: "g", stream: "s", offset }] });

const broken: readonly Case[] = [
  [
    "LC1 an acknowledged record that is not there is lost",
    "lost",
    /^record "b" of s \(append of p, begun at event 2, acknowledged at 3; not found\) was acknowledged/,
    ({ append }) => (append("a").ok(), append("b").ok()),
    { s: "a" },
  ],
  [
    "LC1 a stream without a final read has lost everything",
    "lost",
    /record "a" of s/,
    ({ append }) => append("a").ok(),
    {},
  ],
  [
    "LC2 a record that no attempt wrote is invented",
    "invented",
    /record "x" of s \(no attempt wrote it; found at position 1\)/,
    ({ append }) => append("a").ok(),
    { s: "a x" },
  ],
  [
    "LC2 a record that was refused is invented",
    "invented",
    /record "b" .*refused \(fenced\) at 3; found at position 1\) is there, but every attempt was refused/,
    ({ append }) => (append("a").ok(), append("b").fail("fenced")),
    { s: "a b" },
  ],
  [
    "LC3 a record that is there twice is duplicated",
    "duplicated",
    /record "a" .*2 attempts, one of them acknowledged; found at position 0\) is there again at position 1/,
    ({ append }) => (append("a").unknown(), append("a").ok()),
    { s: "a a" },
  ],
  [
    "LC4 a producer's record before its predecessor is out of order, even if both were sent at once",
    "order",
    /record "a" .* stands behind record "b" .*, which producer w asked for later/,
    ({ append }) => {
      const calls = ["a", "b"].map((id) => append(id, { producer: "w" }));
      for (const call of calls) call.ok();
    },
    { s: "b a" },
  ],
  [
    "LC4 the records of a key are out of order",
    "order",
    /record "a" with key "k" .* under the same key/,
    ({ append }) => {
      const calls = ["a", "b"].map((id) => append(id, { key: "k" }));
      for (const call of calls) call.ok();
    },
    { s: "b a" },
  ],
  [
    "LC4 a retry after the acknowledgement is no excuse for the order of a key",
    "order",
    /record "a" with key "k" .* under the same key/,
    ({ append }) => {
      const calls = ["a", "b"].map((id) => append(id, { key: "k" }));
      for (const call of calls) call.ok();
      append("a", { key: "k" }).ok();
    },
    { s: "b a" },
  ],
  [
    "LC4 the outputs of a key are not in the order of their inputs",
    "order",
    /record "1" of out .* was made of record "a" with key "k" of s .* behind the output of record "b"/,
    ({ append, made }) => {
      for (const id of ["a", "b"]) append(id, { key: "k" }).ok();
      const calls = [made("out", "1", "a"), made("out", "2", "b")];
      for (const call of calls) call.ok();
    },
    { s: "a b", out: "2 1" },
    { pipelines },
  ],
  [
    "LC5 an input without an output was not processed",
    "once",
    /input record "b" of s .* has 0 of 1 outputs in out/,
    ({ append, made }) => (append("a").ok(), append("b").ok(), made("out", "1", "a").ok()),
    { s: "a b", out: "1" },
    { pipelines },
  ],
  [
    "LC5 an input with two outputs was processed twice",
    "once",
    /input record "a" of s .* has 2 of 1 outputs in out\n +record "1" .*outcome unknown.*\n +record "2"/,
    ({ append, made }) => (
      append("a").ok(),
      made("out", "1", "a").unknown(),
      made("out", "2", "a").ok()
    ),
    { s: "a", out: "1 2" },
    { pipelines },
  ],
  [
    "LC5 an output of what is not in the inputs",
    "once",
    /record "1" of out .* was made of "a", which is not in s/,
    ({ append, made }) => (append("a").unknown(), made("out", "1", "a").ok()),
    { out: "1" },
    { pipelines },
  ],
  [
    "LC6 a part of a transaction is there at the end",
    "whole",
    /record "x" of a \(transaction t1 of p, .*\) is there without record "y" of b .* of the same transaction/,
    ({ transaction }) => transaction(["a/x", "b/y"], undefined, "t1").unknown(),
    { a: "x", b: "" },
  ],
  [
    "LC6 a cut shows a part of a transaction",
    "whole",
    /read of r, begun at event \d+, .* saw record "x" of a .* without record "y" of b/,
    ({ transaction, read }) => {
      const end = transaction(["a/x", "b/y"]);
      read({ a: "x", b: "" }, { isCut: true }).ok();
      end.ok();
    },
    { a: "x", b: "y" },
  ],
  [
    "LC6 who has seen a part finds the other at the tail of its stream",
    "whole",
    /did not see record "y" of b .*, though another part of its transaction was seen at event 2/,
    ({ transaction, read }) => {
      const end = transaction(["a/x", "b/y"]);
      read({ a: "x" }).ok();
      read({ b: "" }, { isComplete: true }).ok();
      end.ok();
    },
    { a: "x", b: "y" },
  ],
  [
    "LC6 the records of a transaction are there without its commit",
    "whole",
    /offset 7 of s in group g is not committed \(it is 5\), its records are there/,
    ({ commit, transaction }) => (commit(1, 5).ok(), transaction(["a/x"], 7).unknown()),
    { a: "x" },
    committed(5),
  ],
  [
    "LC6 the commit of a transaction is there without its records",
    "whole",
    /offset 7 of s in group g is committed, its records are not there/,
    ({ commit, transaction }) => (commit(1, 5).ok(), transaction(["a/x"], 7).unknown()),
    {},
    committed(7),
  ],
  [
    "LC7 a commit goes back",
    "offset",
    /commit of p, .* for s in group g, went back to offset 4: 5 was committed by commit of p, begun at event 0/,
    ({ commit }) => (commit(1, 5).ok(), commit(1, 4).ok()),
    {},
  ],
  [
    "LC7 a claim is answered with less than was committed",
    "offset",
    /claim of p, .* went back to offset 4: 5 was committed/,
    ({ commit, claim }) => (commit(1, 5).ok(), claim(2, 4)),
    {},
  ],
  [
    "LC7 an acknowledged commit is not there at the end",
    "offset",
    /the final offset of s in group g is 4: 5 was committed by/,
    ({ commit }) => (commit(1, 4).ok(), commit(1, 5).ok()),
    {},
    committed(4),
  ],
  [
    "LC7 a final offset that was never committed",
    "offset",
    /the final offset of s in group g is 6, which was never committed/,
    ({ commit }) => (commit(1, 5).ok(), commit(1, 6).fail("lease_lost")),
    {},
    committed(6),
  ],
  [
    "LC8 a zombie commits after a newer token was given",
    "fence",
    /commit of zombie, .* was done with token 1: 2 was known from claim of p, begun at event 2/,
    ({ claim, commit }) => (claim(1, 0, "zombie"), claim(2, 0), commit(1, 5, "zombie").ok()),
    {},
  ],
  [
    "LC8 a token is given to two",
    "fence",
    /claim of p, .* was given token 1 again, after claim of zombie/,
    ({ claim }) => (claim(1, 0, "zombie"), claim(1, 0)),
    {},
  ],
  [
    "LC9 a reader saw what is not there at the end",
    "prefix",
    /saw at position 1 record "b" of s .*not found\) where the final stream has ended/,
    ({ append, read }) => (append("a").ok(), append("b").unknown(), read({ s: "a b" }).ok()),
    { s: "a" },
  ],
  [
    "LC9 a reader missed a record between two reads",
    "prefix",
    /saw at position 1 record "c" of s .* instead of record "b" of s/,
    ({ append, read }) => {
      for (const id of ["a", "b", "c"]) append(id).ok();
      read({ s: "a" }).ok();
      read({ s: "c" }, { begins: "continued" }).ok();
    },
    { s: "a b c" },
  ],
  [
    "LC10 a record stands before one that was acknowledged before it began",
    "time",
    /record "a" .* stands behind record "b" .*, which began after it was known to be there \(event 1\)/,
    ({ append }) => (append("a").ok(), append("b", { process: "q" }).ok()),
    { s: "b a" },
  ],
  [
    "LC10 a record that was seen stands before those that begin later, with every answer",
    "time",
    /record "a" .*outcome unknown.* stands behind record "b"/,
    ({ append, read }) => {
      append("a").unknown();
      read({ s: "a" }, { begins: "anywhere" }).ok();
      append("b", { process: "q" }).ok();
    },
    { s: "b a" },
  ],
  [
    "LC10 a read to the tail misses what was acknowledged before it began",
    "time",
    /read to the tail and did not see record "b" .*, though it was known to be there at event 3/,
    ({ append, read }) => (
      append("a").ok(),
      append("b").ok(),
      read({ s: "a" }, { isComplete: true }).ok()
    ),
    { s: "a b" },
  ],
  [
    "LC10 a cut reaches to the tail of its streams",
    "time",
    /read to the tail and did not see record "a"/,
    ({ append, read }) => (append("a").ok(), read({ s: "" }, { isCut: true }).ok()),
    { s: "a" },
  ],
  [
    "LC10 a reader saw a record before it was asked for",
    "time",
    /saw record "a" of s .* before it was asked for/,
    ({ append, read }) => (read({ s: "a" }).ok(), append("a").ok()),
    { s: "a" },
  ],
];

for (const [title, rule, detail, write, final, more] of broken) {
  test(`${title}: ${rule}`, () => {
    const verdict = check(write, final, more);
    expect(verdict.ok).toBe(false);
    expect(verdict.counts.problems).toEqual({ [rule]: 1 });
    expect(verdict.problems.map((problem) => problem.rule)).toEqual([rule]);
    expect(verdict.problems[0]?.detail).toMatch(detail);
    expect(explainVerdict(verdict)).toContain(`${rule}: broken 1 times`);
  });
}

test("LC4 a report of offsets that go down names their record", () => {
  const history = createHistory();
  const { append } = script(history);
  for (const id of ["a", "b"]) append(id).ok();
  const order = (...offsets: readonly string[]) =>
    checkHistory(history.events, {
      streams: { s: ["a", "b"].map((id, at) => ({ id, offset: offsets[at] })) },
    });
  expect(order("0001", "0002").ok).toBe(true);
  expect(order("0001", "0001").ok).toBe(true);
  expect(order("0002", "0001").problems[0]).toEqual({
    rule: "order",
    detail: 'record "b" of s has offset 0001 behind offset 0002',
    where: { stream: "s", id: "b", position: 1 },
  });
});

test("LC9 a reader saw another offset than the final reader", () => {
  const history = createHistory();
  script(history).append("a").ok();
  const end = history.invoke({ process: "r", kind: "read" });
  end.ok({ observed: [{ stream: "s", records: [{ id: "a", offset: 3 }] }] });
  const verdict = checkHistory(history.events, { streams: { s: [{ id: "a", offset: 4 }] } });
  expect(verdict.counts.problems).toEqual({ prefix: 1 });
  expect(verdict.problems[0]?.detail).toContain("with offset 3 instead of 4");
});

const kept: readonly [string, Case[3], Case[4], Case[5]?][] = [
  ["a record of unknown outcome may be there", ({ append }) => append("a").unknown(), { s: "a" }],
  ["a record of unknown outcome may be missing", ({ append }) => append("a").unknown(), {}],
  [
    "a record of a process that died is of unknown outcome",
    ({ append }) => void append("a"),
    { s: "a" },
  ],
  [
    "a refused attempt does not speak for the one that was acknowledged",
    ({ append }) => (append("a").ok(), append("a", { process: "q" }).fail("fenced")),
    { s: "a" },
  ],
  [
    "a record that was refused first is ordered by the attempt that counted",
    ({ append }) => {
      append("a", { producer: "w" }).fail("busy");
      append("b", { producer: "w" }).ok();
      append("a", { producer: "w" }).ok();
    },
    { s: "b a" },
  ],
  [
    "a late retry of what was there does not move it",
    ({ append }) => {
      append("a", { producer: "w" }).ok();
      append("b", { producer: "w" }).ok();
      append("a", { producer: "w" }).ok();
    },
    { s: "a b" },
  ],
  [
    "LC8 the retry of a transaction is answered as at first, though a newer token was given",
    ({ claim, transaction }) => {
      claim(1, 0, "q");
      transaction(["a/x"], 5, "t").unknown();
      claim(2, 5);
      transaction(["a/x"], 5, "t").ok();
    },
    { a: "x" },
    committed(5),
  ],
  [
    "LC6 records of a batch that was cut differently after a crash belong to the one that is whole",
    ({ transaction }) => {
      transaction(["a/1", "a/2"], 2).unknown();
      transaction(["a/1"], 1).ok();
    },
    { a: "1" },
    committed(1),
  ],
  [
    "LC6 what was seen of a record tells nothing of one of the two transactions that may have written it",
    ({ transaction, read }) => {
      transaction(["a/1", "b/2"]).unknown();
      transaction(["a/1"]).ok();
      read({ a: "1" }).ok();
      read({ b: "" }, { isComplete: true }).ok();
      transaction(["b/2"]).ok();
    },
    { a: "1", b: "2" },
  ],
  [
    "LC6 a record does not tell which of two commits came with it",
    ({ transaction }) => (transaction(["a/1"], 2).unknown(), transaction(["a/1"], 1).ok()),
    { a: "1" },
    committed(1),
  ],
  ["LC8 a holder may be told of its token again", ({ claim }) => (claim(1, 0), claim(1, 0)), {}],
  [
    "LC5 a pipeline may have none or several outputs for an input",
    ({ append, made }) => {
      for (const id of ["a", "b"]) append(id).ok();
      for (const id of ["1", "2"]) made("out", id, "a").ok();
    },
    { s: "a b", out: "1 2" },
    { pipelines: [{ from: ["s"], to: ["out"], outputsOf: (id) => (id === "a" ? 2 : 0) }] },
  ],
];

for (const [title, write, final, more] of kept) {
  test(`${title}`, () => {
    const verdict = check(write, final, more);
    expect(explainVerdict(verdict)).toContain("every rule is kept");
    expect(verdict.ok).toBe(true);
  });
}

test("LC1 all problems are counted, and the first ones are described", () => {
  const write = ({ append }: ReturnType<typeof script>): void => {
    for (let index = 0; index < 50; index += 1) append(`r${index}`).ok();
  };
  const verdict = check(write, {}, { problemsMax: 3 });
  expect(verdict.counts.problems).toEqual({ lost: 50 });
  expect(verdict.problems.map(({ where }) => where.id)).toEqual(["r0", "r1", "r2"]);
  expect(explainVerdict(verdict).split("\n")).toEqual([
    "50 operations (50 acknowledged, 0 refused, 0 unknown), 50 records asked for, 0 found, 0 reads",
    "lost: broken 50 times (every record that was acknowledged is in its stream)",
    ...verdict.problems.map(({ detail }) => `  ${detail}`),
    "  and 47 more",
    "NOT KEPT",
  ]);
});

test("a history that cannot be is refused, not judged", () => {
  const head = { op: 0, process: "p", atUs: 0 } as const;
  const call = { kind: "append", stream: "s", records: [{ id: "a" }, { id: "a" }] } as const;
  const judge = (...events: Parameters<typeof checkHistory>[0][]) =>
    checkHistory(
      events.flatMap((part) => [...part]),
      { streams: {} },
    );
  expect(() => judge([{ ...head, type: "ok" }])).toThrow("event 0: operation 0 is not open");
  const invoke = { ...head, type: "invoke", call } as const;
  expect(() => judge([invoke, invoke])).toThrow("event 1: operation 0 has begun before");
  expect(() => judge([invoke])).toThrow("event 0: id a twice for the stream s");
});
