/** Cases of sessions: every row and every sentence of PROTOCOL.md §14. */

import {
  at,
  atOnce,
  byEpoch,
  bySession,
  type CaseSpec,
  CLOSES,
  countWithStatus,
  ensure,
  EPOCH_MAX,
  equal,
} from "./extension-case-kit.ts";

const rows: readonly CaseSpec[] = [
  {
    title: "§14 the session of an unknown producer begins in epoch 0",
    async run(site) {
      const stream = await site.stream();
      const answer = await stream.append("a", bySession("p", "n1", 0));
      answer.expect(200, {
        "Producer-Epoch": "0",
        "Producer-Seq": "0",
        "Stream-Next-Offset": at(1),
      });
      await stream.holds("a");
    },
  },
  {
    title: "§14 an unknown producer cannot begin a session at another sequence than 0",
    async run(site) {
      const stream = await site.stream();
      const answer = await stream.append("a", bySession("p", "n1", 3));
      answer.refused(409, "producer_gap", {
        "Producer-Expected-Seq": "0",
        "Producer-Received-Seq": "3",
      });
      await stream.holds("");
    },
  },
  {
    title: "§14 a repeated append of the session is a duplicate",
    async run(site) {
      const stream = await site.stream();
      await stream.append("a", bySession("p", "n1", 0));
      const again = await stream.append("a", bySession("p", "n1", 0));
      again.expect(204, {
        "Producer-Epoch": "0",
        "Producer-Seq": "0",
        "Producer-Seq-Reused": undefined,
      });
      await stream.holds("a");
    },
  },
  {
    title: "§5.2 other content under a number of the session is refused, also on a closed stream",
    async run(site) {
      const stream = await site.stream();
      await stream.append("a", bySession("p", "n1", 0));
      await stream.append("b", bySession("p", "n1", 1));
      const other = await stream.append("other", bySession("p", "n1", 0));
      other.refused(422, "producer_seq_reused");
      const closing = await stream.append("b", { ...bySession("p", "n1", 1), ...CLOSES });
      closing.refused(422, "producer_seq_reused");
      await stream.append("c", { ...bySession("p", "n1", 2), ...CLOSES });
      const late = await stream.append("c", bySession("p", "n1", 2));
      late.refused(422, "producer_seq_reused");
      await stream.holds("abc");
    },
  },
  {
    title: "§5.2 other content under a number of an epoch is a duplicate that says so",
    async run(site) {
      const stream = await site.stream();
      await stream.append("a", byEpoch("p", 0, 0));
      const same = await stream.append("a", byEpoch("p", 0, 0));
      same.expect(204, { "Producer-Seq-Reused": undefined });
      const other = await stream.append("other", byEpoch("p", 0, 0));
      other.expect(204, {
        "Producer-Epoch": "0",
        "Producer-Seq": "0",
        "Producer-Seq-Reused": "true",
      });
      await stream.holds("a");
    },
  },
  {
    title: "§14 a duplicate of an older append of the session tells the last accepted sequence",
    async run(site) {
      const stream = await site.stream();
      for (const sequence of [0, 1, 2]) await stream.append("a", bySession("p", "n1", sequence));
      const again = await stream.append("a", bySession("p", "n1", 1));
      again.expect(204, { "Producer-Epoch": "0", "Producer-Seq": "2" });
      await stream.holds("aaa");
    },
  },
  {
    title: "§14 the next sequence of the session is accepted",
    async run(site) {
      const stream = await site.stream();
      await stream.append("a", bySession("p", "n1", 0));
      const next = await stream.append("b", bySession("p", "n1", 1));
      next.expect(200, { "Producer-Epoch": "0", "Producer-Seq": "1" });
      await stream.holds("ab");
    },
  },
  {
    title: "§14 a sequence above the next one is a gap that names the next one",
    async run(site) {
      const stream = await site.stream();
      await stream.append("a", bySession("p", "n1", 0));
      const answer = await stream.append("b", bySession("p", "n1", 5));
      answer.refused(409, "producer_gap", {
        "Producer-Expected-Seq": "1",
        "Producer-Received-Seq": "5",
      });
      await stream.holds("a");
    },
  },
  ...[0, 1, 2, 9].map(
    (sequence) =>
      ({
        title: `§14 a replaced session that had 0 and 1 is fenced, also with sequence ${sequence}`,
        async run(site) {
          const stream = await site.stream();
          await stream.append("a", bySession("p", "n1", 0));
          await stream.append("b", bySession("p", "n1", 1));
          await stream.append("c", bySession("p", "n2", 0));
          const late = await stream.append("d", bySession("p", "n1", sequence));
          late.refused(403, "producer_fenced", { "Producer-Epoch": "1" });
          await stream.holds("abc");
        },
      }) satisfies CaseSpec,
  ),
  {
    title: "§14 the first append of an unknown session begins the next epoch",
    async run(site) {
      const stream = await site.stream();
      for (const epoch of [0, 1, 2, 3]) {
        const answer = await stream.append("a", bySession("p", `n${epoch}`, 0));
        answer.expect(200, { "Producer-Epoch": String(epoch), "Producer-Seq": "0" });
      }
      await stream.holds("aaaa");
    },
  },
  {
    title:
      "§14 an unknown session with another sequence than 0 is a gap and fences no other session",
    async run(site) {
      const stream = await site.stream();
      await stream.append("a", bySession("p", "n1", 0));
      const answer = await stream.append("x", bySession("p", "n2", 1));
      answer.refused(409, "producer_gap", {
        "Producer-Expected-Seq": "0",
        "Producer-Received-Seq": "1",
      });
      (await stream.append("b", bySession("p", "n1", 1))).expect(200, { "Producer-Epoch": "0" });
      await stream.holds("ab");
    },
  },
  {
    title: "§14 no session begins after the highest epoch",
    async run(site) {
      const stream = await site.stream();
      (await stream.append("a", byEpoch("p", EPOCH_MAX, 0))).expect(200);
      (await stream.append("b", bySession("p", "n1", 0))).refused(409, "epoch_exhausted");
      (await stream.append("c", byEpoch("p", EPOCH_MAX, 1))).expect(200);
      await stream.holds("ac");
    },
  },
];

const sentences: readonly CaseSpec[] = [
  {
    title: "§14 the nonces of the last 16 replaced sessions are all fenced",
    async run(site) {
      const stream = await site.stream();
      for (let nonce = 0; nonce <= 16; nonce += 1) {
        (await stream.append("a", bySession("p", `n${nonce}`, 0))).expect(200);
      }
      for (let nonce = 0; nonce < 16; nonce += 1) {
        (await stream.append("x", bySession("p", `n${nonce}`, 0))).refused(403, "producer_fenced");
      }
      await stream.holds("a".repeat(17));
    },
  },
  {
    title: "§14 a session fences the older epochs of its producer",
    async run(site) {
      const stream = await site.stream();
      await stream.append("a", byEpoch("p", 7, 0));
      const first = await stream.append("b", bySession("p", "n1", 0));
      first.expect(200, { "Producer-Epoch": "8" });
      for (const epoch of [0, 6, 7]) {
        const late = await stream.append("x", byEpoch("p", epoch, 1));
        late.refused(403, "producer_fenced", { "Producer-Epoch": "8" });
      }
      await stream.holds("ab");
    },
  },
  ...[0, 1, 2].map(
    (sequence) =>
      ({
        title: `§14 an epoch that a session has is fenced for others, with sequence ${sequence}`,
        async run(site) {
          const stream = await site.stream();
          await stream.append("a", bySession("p", "n1", 0));
          const answer = await stream.append("x", byEpoch("p", 0, sequence));
          answer.refused(403, "producer_fenced", { "Producer-Epoch": "0" });
          await stream.holds("a");
        },
      }) satisfies CaseSpec,
  ),
  {
    title: "§14 a higher epoch that the client declares replaces the session",
    async run(site) {
      const stream = await site.stream();
      await stream.append("a", bySession("p", "n1", 0));
      (await stream.append("b", byEpoch("p", 5, 0))).expect(200, { "Producer-Epoch": "5" });
      (await stream.append("c", byEpoch("p", 5, 1))).expect(200);
      const late = await stream.append("x", bySession("p", "n1", 1));
      late.refused(403, "producer_fenced", { "Producer-Epoch": "5" });
      await stream.holds("abc");
    },
  },
  {
    title: "§14 a higher epoch after a session begins at sequence 0",
    async run(site) {
      const stream = await site.stream();
      await stream.append("a", bySession("p", "n1", 0));
      (await stream.append("x", byEpoch("p", 5, 1))).refused(400, "epoch_start");
      (await stream.append("b", bySession("p", "n1", 1))).expect(200);
      await stream.holds("ab");
    },
  },
  {
    title: "§14 an epoch below that of the session is fenced",
    async run(site) {
      const stream = await site.stream();
      await stream.append("a", bySession("p", "n1", 0));
      await stream.append("b", bySession("p", "n2", 0));
      const late = await stream.append("x", byEpoch("p", 0, 0));
      late.refused(403, "producer_fenced", { "Producer-Epoch": "1" });
      await stream.holds("ab");
    },
  },
  {
    title: "§14 after a gap that cannot be filled a new nonce goes on at sequence 0",
    async run(site) {
      const stream = await site.stream();
      await stream.append("a", bySession("p", "n1", 0));
      (await stream.append("c", bySession("p", "n1", 2))).refused(409, "producer_gap");
      (await stream.append("c", bySession("p", "n2", 0))).expect(200, { "Producer-Epoch": "1" });
      await stream.holds("ac");
    },
  },
  {
    title: "§14 a session belongs to one producer of one stream",
    async run(site) {
      const [one, other] = [await site.stream(), await site.stream()];
      await one.append("a", bySession("p", "n1", 0));
      (await one.append("b", bySession("q", "n1", 0))).expect(200, { "Producer-Epoch": "0" });
      (await other.append("c", bySession("p", "n1", 0))).expect(200, { "Producer-Epoch": "0" });
      (await one.append("d", bySession("p", "n1", 1))).expect(200);
      await one.holds("abd");
      await other.holds("c");
    },
  },
  {
    title: "§14 a fork knows no session of its source",
    async run(site) {
      const source = await site.stream();
      await source.append("a", bySession("p", "n1", 0));
      await source.append("b", bySession("p", "n2", 0));
      const fork = await site.fork(source);
      (await fork.append("c", bySession("p", "n1", 0))).expect(200, { "Producer-Epoch": "0" });
      await fork.holds("abc");
    },
  },
  {
    title: "§14 a stream that was created anew knows no session of the old one",
    async run(site) {
      const stream = await site.stream();
      await stream.append("a", bySession("p", "n1", 0));
      await stream.append("b", bySession("p", "n2", 0));
      (await stream.delete()).expect(204);
      (await stream.create()).expect(201);
      (await stream.append("c", bySession("p", "n1", 0))).expect(200, { "Producer-Epoch": "0" });
      await stream.holds("c");
    },
  },
  {
    title: "§14 thirty copies of the first append at once are stored once",
    async run(site) {
      const stream = await site.stream();
      const answers = await atOnce(30, () => stream.append("once", bySession("p", "n1", 0)));
      equal(
        [countWithStatus(answers, 200), countWithStatus(answers, 204)],
        [1, 29],
        "answers 200 and 204",
      );
      for (const answer of answers) {
        equal(answer.nextOffset, at(4), "Stream-Next-Offset of every copy");
      }
      await stream.holds("once");
    },
  },
  {
    title: "§14 of sessions that begin at once the last one goes on and all others are fenced",
    async run(site) {
      const stream = await site.stream();
      const answers = await atOnce(10, (index) =>
        stream.append("a", bySession("p", `n${index}`, 0)),
      );
      const epochs = answers.map((answer) => answer.expect(200).headers.get("Producer-Epoch"));
      const sorted = epochs.toSorted((one, other) => Number(one) - Number(other));
      equal(
        sorted,
        Array.from({ length: 10 }, (_, epoch) => String(epoch)),
        "the epochs",
      );
      const next = await atOnce(10, (index) => stream.append("b", bySession("p", `n${index}`, 1)));
      equal(
        [countWithStatus(next, 200), countWithStatus(next, 403)],
        [1, 9],
        "answers 200 and 403",
      );
      const winner = next.findIndex(({ status }) => status === 200);
      equal(epochs[winner], "9", "the epoch of the session that goes on");
    },
  },
  {
    title: "§14 a refused first append begins no session",
    async run(site) {
      const stream = await site.stream();
      await stream.append("a", { ...bySession("p", "n1", 0), "Stream-Seq": "5" });
      const late = await stream.append("x", { ...bySession("p", "n2", 0), "Stream-Seq": "4" });
      late.refused(409, "sequence_regression");
      const other = { ...bySession("p", "n3", 0), "Content-Type": "text/html" };
      (await stream.append("x", other)).refused(409, "content_type_mismatch");
      (await stream.append("b", bySession("p", "n1", 1))).expect(200, { "Producer-Epoch": "0" });
      await stream.holds("ab");
    },
  },
  {
    title: "§14 a close without data has the epoch of its session",
    async run(site) {
      const stream = await site.stream();
      await stream.append("a", bySession("p", "n1", 0));
      const closed = { "Stream-Closed": "true", "Producer-Epoch": "0", "Producer-Seq": "1" };
      (await stream.close(bySession("p", "n1", 1))).expect(204, closed);
      (await stream.close(bySession("p", "n1", 1))).expect(204, closed);
      await stream.holds("a");
    },
  },
  {
    title:
      "§14 on a closed stream a retry is a duplicate, a replaced session fenced, a new one too late",
    async run(site) {
      const stream = await site.stream();
      await stream.append("a", bySession("p", "n1", 0));
      await stream.append("b", bySession("p", "n2", 0));
      (await stream.append("c", { ...bySession("p", "n2", 1), ...CLOSES })).expect(200);
      const closed = { "Stream-Closed": "true" };
      (await stream.append("b", bySession("p", "n2", 0))).expect(204, closed);
      (await stream.append("x", bySession("p", "n1", 1))).refused(403, "producer_fenced");
      (await stream.append("x", bySession("p", "n3", 0))).refused(409, "stream_closed", closed);
      await stream.holds("abc");
    },
  },
];

const LONGEST = "n".repeat(64);

const grammar: readonly CaseSpec[] = [
  {
    title: "§14 a nonce may have all letters, digits and - . _ ~, 64 of them at most",
    async run(site) {
      const stream = await site.stream();
      const nonces = ["0", "-._~", "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", LONGEST];
      for (const nonce of nonces) {
        (await stream.append("a", bySession("p", nonce, 0))).expect(200);
      }
      (await stream.append("a", bySession("p", "abcdefghijklmnopqrstuvwxyz", 0))).expect(200);
    },
  },
  ...(
    [
      ["that is empty", ""],
      ["of 65 characters", `${LONGEST}n`],
      ["with a space", "a b"],
      ["with a comma", "a,b"],
      ["in quotes", '"a"'],
      ["with a slash", "a/b"],
      ["with an equals sign", "YQ=="],
      ["with a letter beyond ASCII", "n\u00e9"],
    ] as const
  ).map(
    ([what, nonce]) =>
      ({
        title: `§14 a nonce ${what} is refused`,
        async run(site) {
          const stream = await site.stream();
          (await stream.append("a", bySession("p", nonce, 0))).refused(400, "invalid_request");
          await stream.holds("");
        },
      }) satisfies CaseSpec,
  ),
  ...(
    [
      ["together with an epoch", { ...bySession("p", "n1", 0), "Producer-Epoch": "0" }],
      ["without a producer", { "Producer-Session": "n1", "Producer-Seq": "0" }],
      ["without a sequence", { "Producer-Id": "p", "Producer-Session": "n1" }],
      ["alone", { "Producer-Session": "n1" }],
      ["with sequence 01", { ...bySession("p", "n1", 0), "Producer-Seq": "01" }],
      ["with sequence -1", { ...bySession("p", "n1", 0), "Producer-Seq": "-1" }],
      ["with sequence 2^53", { ...bySession("p", "n1", 0), "Producer-Seq": "9007199254740992" }],
    ] as const
  ).map(
    ([what, headers]) =>
      ({
        title: `§14 a session ${what} is refused`,
        async run(site) {
          const stream = await site.stream();
          (await stream.append("a", headers)).refused(400, "invalid_request");
          const head = await stream.head({ "Producer-Id": "p" });
          ensure(
            !head.headers.has("Producer-Epoch"),
            "Producer-Epoch: expected none after a refused append, got one",
          );
          await stream.holds("");
        },
      }) satisfies CaseSpec,
  ),
];

export const sessionCases: readonly CaseSpec[] = [...rows, ...sentences, ...grammar];
