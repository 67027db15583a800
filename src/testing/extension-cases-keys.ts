/** Cases of idempotency keys: every row, every sentence and the grammar of PROTOCOL.md §16. */

import {
  at,
  atOnce,
  byEpoch,
  byKey,
  bySession,
  type CaseSpec,
  CLOSES,
  ensure,
  equal,
  ifMatch,
} from "./extension-case-kit.ts";

const REPLAYED = { "Idempotency-Replayed": "true" };
const NEW = { "Idempotency-Replayed": undefined };

const rows: readonly CaseSpec[] = [
  {
    title: "§16 an append with a new key is answered like any other",
    async run(site) {
      const stream = await site.stream();
      const answer = await stream.append("abc", byKey("k1"));
      answer.expect(204, { "Stream-Next-Offset": at(3), "Producer-Epoch": undefined, ...NEW });
      await stream.holds("abc");
    },
  },
  {
    title: "§16 the answer to the same key with the same content has the offset of the original",
    async run(site) {
      const stream = await site.stream();
      await stream.append("abc", byKey("k1"));
      await stream.append("def", byKey("k2"));
      await stream.append("ghi");
      const again = await stream.append("abc", byKey("k1"));
      again.expect(204, { "Stream-Next-Offset": at(3), ...REPLAYED });
      await stream.holds("abcdefghi");
    },
  },
  {
    title: "§16 the same key with other content is refused and stores nothing",
    async run(site) {
      const stream = await site.stream();
      await stream.append("abc", byKey("k1"));
      (await stream.append("abd", byKey("k1"))).refused(422, "key_reused");
      (await stream.append("abc", byKey("k1"))).expect(204, REPLAYED);
      await stream.holds("abc");
    },
  },
  {
    title: "§16 the same bytes that close are other content",
    async run(site) {
      const stream = await site.stream();
      await stream.append("abc", byKey("k1"));
      (await stream.append("abc", { ...byKey("k1"), ...CLOSES })).refused(422, "key_reused");
      (await stream.append("d")).expect(204);
    },
  },
  {
    title: "§16 the content of JSON is its records, not the space around them",
    async run(site) {
      const stream = await site.jsonStream();
      await stream.append("[1, 2]", byKey("k1"));
      (await stream.append(" [1,2 ] ", byKey("k1"))).expect(204, REPLAYED);
      (await stream.append("[1,2.0]", byKey("k1"))).refused(422, "key_reused");
      await stream.append("3", byKey("k2"));
      (await stream.append("[3]", byKey("k2"))).expect(204, REPLAYED);
      await stream.holds("[1,2,3]");
    },
  },
];

const sentences: readonly CaseSpec[] = [
  {
    title: "§16 a key in quotes and the same key without them are one key",
    async run(site) {
      const stream = await site.stream();
      await stream.append("a", byKey("k1"));
      (await stream.append("a", byKey('"k1"'))).expect(204, REPLAYED);
      await stream.append("b", byKey('"k2"'));
      (await stream.append("b", byKey("k2"))).expect(204, REPLAYED);
      await stream.holds("ab");
    },
  },
  {
    title: "§16 an escaped character in quotes is the character",
    async run(site) {
      const stream = await site.stream();
      // A backslash needs no escape in bare text, and has one in quotes.
      await stream.append("a", byKey("k\\1"));
      (await stream.append("a", byKey('"k\\\\1"'))).expect(204, REPLAYED);
      (await stream.append("b", byKey('"k\\"1"'))).expect(204, NEW);
      (await stream.append("b", byKey('"k\\"1"'))).expect(204, REPLAYED);
      await stream.holds("ab");
    },
  },
  {
    title: "§16 keys are compared with their case",
    async run(site) {
      const stream = await site.stream();
      for (const key of ["key", "Key", "KEY", "key-", '"key "']) {
        (await stream.append("a", byKey(key))).expect(204, NEW);
      }
      await stream.holds("aaaaa");
    },
  },
  {
    title: "§16 keys belong to the stream",
    async run(site) {
      const [one, other] = [await site.stream(), await site.stream()];
      (await one.append("a", byKey("k1"))).expect(204, NEW);
      (await other.append("b", byKey("k1"))).expect(204, NEW);
      await one.holds("a");
      await other.holds("b");
    },
  },
  {
    title: "§16 a stream that was created anew knows no key of the old one",
    async run(site) {
      const stream = await site.stream();
      await stream.append("a", byKey("k1"));
      (await stream.delete()).expect(204);
      (await stream.create()).expect(201);
      (await stream.append("b", byKey("k1"))).expect(204, NEW);
      await stream.holds("b");
    },
  },
  {
    title: "§16 thirty copies at once are stored once, and all but one are replays",
    async run(site) {
      const stream = await site.stream({}, "abc");
      const answers = await atOnce(30, () => stream.append("once", byKey("k1")));
      for (const answer of answers) answer.expect(204, { "Stream-Next-Offset": at(7) });
      const replays = answers.filter(({ headers }) => headers.has("Idempotency-Replayed"));
      equal(replays.length, 29, "answers with Idempotency-Replayed");
      await stream.holds("abconce");
    },
  },
  {
    title: "§16 of ten appends with one key and other content each exactly one is stored",
    async run(site) {
      const stream = await site.stream();
      const answers = await atOnce(10, (index) => stream.append(String(index), byKey("k1")));
      const stored = answers.flatMap(({ status }, index) => (status === 204 ? [index] : []));
      equal(stored.length, 1, "answers 204");
      for (const answer of answers) if (answer.status !== 204) answer.refused(422, "key_reused");
      await stream.holds(String(stored[0]));
    },
  },
  {
    title: "§16 many keys at once are all stored, and each is known",
    async run(site) {
      const stream = await site.stream();
      const first = await atOnce(40, (index) => stream.append("a", byKey(`k${index}`)));
      const again = await atOnce(40, (index) => stream.append("a", byKey(`k${index}`)));
      for (const [index, answer] of first.entries()) {
        const expected = { "Stream-Next-Offset": answer.expect(204, NEW).nextOffset ?? "" };
        again[index]?.expect(204, { ...expected, ...REPLAYED });
      }
      await stream.holds("a".repeat(40));
    },
  },
  {
    title: "§16 a key is known after many appends of others",
    async run(site) {
      const stream = await site.stream();
      await stream.append("first", byKey("k0"));
      await atOnce(60, (index) => stream.append("a", byKey(`k${index + 1}`)));
      const again = await stream.append("first", byKey("k0"));
      again.expect(204, { "Stream-Next-Offset": at(5), ...REPLAYED });
    },
  },
];

const refusals: readonly CaseSpec[] = [
  {
    title: "§16 a refused append does not consume its key",
    needs: ["compare"],
    async run(site) {
      const missing = site.newStream();
      (await missing.append("x", byKey("k1"))).refused(404, "stream_not_found");
      (await missing.create()).expect(201);
      (await missing.append("a", byKey("k1"))).expect(204, NEW);

      const stream = await site.stream();
      await stream.append("a", { "Stream-Seq": "5" });
      const html = { ...byKey("k1"), "Content-Type": "text/html" };
      (await stream.append("b", html)).refused(409, "content_type_mismatch");
      const late = { ...byKey("k1"), "Stream-Seq": "4" };
      (await stream.append("b", late)).refused(409, "sequence_regression");
      (await stream.append("b", { ...byKey("k1"), ...ifMatch(0) })).refused(412, "tail_moved");
      (await stream.append("c", byKey("k1"))).expect(204, NEW);
      await stream.holds("ac");
    },
  },
  {
    title: "§4.1 a replay is recognised before Stream-Seq is looked at",
    async run(site) {
      const stream = await site.stream();
      const headers = { ...byKey("k1"), "Stream-Seq": "5" };
      (await stream.append("a", headers)).expect(204, NEW);
      (await stream.append("a", headers)).expect(204, REPLAYED);
      (await stream.append("b", { ...byKey("k2"), "Stream-Seq": "5" })).refused(
        409,
        "sequence_regression",
      );
    },
  },
  {
    title: "§4.1 the content type is compared before the key",
    async run(site) {
      const stream = await site.stream();
      await stream.append("a", byKey("k1"));
      const html = { ...byKey("k1"), "Content-Type": "text/html" };
      (await stream.append("a", html)).refused(409, "content_type_mismatch");
    },
  },
  {
    title: "§16 on a closed stream a known key is a replay, and a new one is too late",
    async run(site) {
      const stream = await site.stream();
      await stream.append("a", byKey("k1"));
      await stream.append("b", { ...byKey("k2"), ...CLOSES });
      const closed = { "Stream-Closed": "true", ...REPLAYED };
      (await stream.append("a", byKey("k1"))).expect(204, {
        "Stream-Next-Offset": at(1),
        ...closed,
      });
      const last = await stream.append("b", { ...byKey("k2"), ...CLOSES });
      last.expect(204, { "Stream-Next-Offset": at(2), ...closed });
      (await stream.append("c", byKey("k3"))).refused(409, "stream_closed", {
        "Stream-Closed": "true",
      });
      await stream.holds("ab");
    },
  },
  {
    title: "§16 a close without data may have a key, and its retry is a replay",
    async run(site) {
      const stream = await site.stream({}, "abc");
      const closed = { "Stream-Next-Offset": at(3), "Stream-Closed": "true" };
      (await stream.close(byKey("k1"))).expect(204, { ...closed, ...NEW });
      (await stream.close(byKey("k1"))).expect(204, { ...closed, ...REPLAYED });
    },
  },
  ...(
    [
      ["an epoch", byEpoch("p", 0, 0)],
      ["a session", bySession("p", "n1", 0)],
      ["a part of the producer headers", { "Producer-Id": "p" }],
    ] as const
  ).map(
    ([what, producer]) =>
      ({
        title: `§16 a key together with ${what} is refused: an append has one identity`,
        async run(site) {
          const stream = await site.stream();
          (await stream.append("a", { ...byKey("k1"), ...producer })).refused(
            400,
            "invalid_request",
          );
          (await stream.append("b", byKey("k1"))).expect(204, NEW);
          await stream.holds("b");
        },
      }) satisfies CaseSpec,
  ),
];

const grammar: readonly CaseSpec[] = [
  ...(
    [
      ["one character", "k"],
      ["255 characters", "k".repeat(255)],
      ["255 characters in quotes", `"${"k".repeat(255)}"`],
      ["every bare character", "!#$%&'()*+-./09:<=>?@AZ[\\]^_`az{|}~"],
      ["space, comma and semicolon in quotes", '"a b, c; d"'],
      ["nothing but a space in quotes", '" "'],
    ] as const
  ).map(
    ([what, key]) =>
      ({
        title: `§16 a key of ${what} is a key`,
        async run(site) {
          const stream = await site.stream();
          (await stream.append("a", byKey(key))).expect(204, NEW);
          (await stream.append("a", byKey(key))).expect(204, REPLAYED);
          await stream.holds("a");
        },
      }) satisfies CaseSpec,
  ),
  ...(
    [
      ["that is empty", ""],
      ["that is empty in quotes", '""'],
      ["of 256 characters", "k".repeat(256)],
      ["of 256 characters in quotes", `"${"k".repeat(256)}"`],
      ["with a bare space", "a b"],
      ["with a bare comma", "a,b"],
      ["with a bare semicolon", "a;b"],
      ["with a quote in bare text", 'a"b'],
      ["whose quotes do not end", '"a'],
      ["with more after its quotes", '"a"b'],
      ["with a parameter behind bare text", "a;p=1"],
      ["with a parameter that is none", '"a";=1'],
      ["that is a list", '"a", "b"'],
      ["with an escape that is none", '"\\a"'],
      ["with a letter beyond ASCII", '"\u00e9"'],
      ["with a tab in quotes", '"a\tb"'],
    ] as const
  ).map(
    ([what, key]) =>
      ({
        title: `§16 a key ${what} is refused`,
        async run(site) {
          const stream = await site.stream();
          (await stream.append("a", byKey(key))).refused(400, "invalid_request");
          await stream.holds("");
        },
      }) satisfies CaseSpec,
  ),
  {
    title: "§16 parameters behind a string are no part of the key",
    async run(site) {
      const stream = await site.stream();
      (await stream.append("a", byKey('"k";p=1; q'))).expect(204, NEW);
      (await stream.append("a", byKey("k"))).expect(204, REPLAYED);
      (await stream.append("b", byKey('"k";p=2'))).refused(422, "key_reused");
      await stream.holds("a");
    },
  },
  {
    title: "§16 only characters of the key count towards its length, not quotes and escapes",
    async run(site) {
      const stream = await site.stream();
      const key = `"${'\\"'.repeat(255)}"`;
      ensure(key.length > 255, "the header is longer than the key");
      (await stream.append("a", byKey(key))).expect(204, NEW);
      (await stream.append("a", byKey(key))).expect(204, REPLAYED);
    },
  },
];

export const keyCases: readonly CaseSpec[] = [...rows, ...sentences, ...refusals, ...grammar];
