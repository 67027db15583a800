/** Cases of compare-and-append and of conditional creation: PROTOCOL.md §15, and its place in the order of §4.1. */

import {
  at,
  atOnce,
  byEpoch,
  byKey,
  bySession,
  type CaseSpec,
  countWithStatus,
  type ExtensionCapability,
  type HeaderMap,
  ifMatch,
  equal,
} from "./extension-case-kit.ts";

const tagged = (bytes: number): Record<string, string> => ({
  ETag: `"${at(bytes)}"`,
  "Stream-Next-Offset": at(bytes),
});

const conditions: readonly CaseSpec[] = [
  {
    title: "§15 an append that names the tail is stored, and its ETag is the new tail",
    async run(site) {
      const stream = await site.stream({}, "abc");
      (await stream.append("de", ifMatch(3))).expect(204, tagged(5));
      await stream.holds("abcde");
    },
  },
  {
    title: "§15 an empty stream has the tail 0",
    async run(site) {
      const stream = await site.stream();
      (await stream.append("a", ifMatch(0))).expect(204, tagged(1));
    },
  },
  ...[0, 2, 4, 100].map(
    (bytes) =>
      ({
        title: `§15 at the tail 3 an append for ${bytes} is refused with the tail and stores nothing`,
        async run(site) {
          const stream = await site.stream({}, "abc");
          (await stream.append("x", ifMatch(bytes))).refused(412, "tail_moved", tagged(3));
          await stream.holds("abc");
        },
      }) satisfies CaseSpec,
  ),
  ...(
    [
      ["a star", "*"],
      ["a list with the tail", `"${at(3)}", "${at(9)}"`],
      ["a weak tag", `W/"${at(3)}"`],
      ["the tail without quotes", at(3)],
      ["the tail with one quote", `"${at(3)}`],
      ["an empty tag", '""'],
      ["no tag at all", ""],
      ["the word now", '"now"'],
      ["the offset -1", '"-1"'],
      ["a plain number", '"3"'],
    ] as const
  ).map(
    ([what, value]) =>
      ({
        title: `§15 If-Match with ${what} matches no tail`,
        async run(site) {
          const stream = await site.stream({}, "abc");
          const answer = await stream.append("x", { "If-Match": value });
          answer.refused(412, "tail_moved", tagged(3));
          await stream.holds("abc");
        },
      }) satisfies CaseSpec,
  ),
  {
    title: "§15 without If-Match an answer has no ETag",
    async run(site) {
      const stream = await site.stream();
      (await stream.append("a")).expect(204, { ETag: undefined });
      (await stream.append("b", byEpoch("p", 0, 0))).expect(200, { ETag: undefined });
    },
  },
  {
    title: "§15 of twenty appends at one tail exactly one is stored",
    async run(site) {
      const stream = await site.stream({}, "abc");
      const answers = await atOnce(20, () => stream.append("d", ifMatch(3)));
      equal(
        [countWithStatus(answers, 204), countWithStatus(answers, 412)],
        [1, 19],
        "answers 204 and 412",
      );
      await stream.holds("abcd");
    },
  },
  {
    title: "§15 each answer names the tail that the next append needs, in JSON too",
    async run(site) {
      const stream = await site.jsonStream();
      let tag = `"${at(0)}"`;
      for (const body of ['{"a":1}', "[1, 2]", "3"]) {
        const answer = await stream.append(body, { "If-Match": tag });
        answer.expect(204, { ETag: `"${answer.nextOffset ?? ""}"` });
        tag = answer.headers.get("ETag") ?? "";
      }
      await stream.holds('[{"a":1},1,2,3]');
    },
  },
  {
    title: "§15 a close without data depends on the tail too",
    async run(site) {
      const stream = await site.stream({}, "abc");
      (await stream.close(ifMatch(2))).refused(412, "tail_moved", tagged(3));
      const closed = await stream.close(ifMatch(3));
      closed.expect(204, { ...tagged(3), "Stream-Closed": "true" });
    },
  },
  {
    title: "§15 a missing stream is not found, with every value of If-Match",
    async run(site) {
      (await site.newStream().append("a", ifMatch(0))).refused(404, "stream_not_found");
    },
  },
];

/** The retry of an append gets the place where it was stored, also after the tail has moved on. */
const retries: readonly CaseSpec[] = (
  [
    ["of a producer", ["reading-back"], byEpoch("p", 0, 0), 200, {}],
    ["of a session", ["sessions", "reading-back"], bySession("p", "n1", 0), 200, {}],
    ["with a key", ["keys"], byKey("k1"), 204, { "Idempotency-Replayed": "true" }],
  ] as const satisfies readonly (readonly [
    string,
    readonly ExtensionCapability[],
    HeaderMap,
    number,
    HeaderMap,
  ])[]
).map(([what, needs, identity, status, marks]) => ({
  title: `§15 the retry ${what} is a duplicate and no conflict`,
  needs,
  async run(site) {
    const stream = await site.stream({}, "abc");
    const headers = { ...identity, ...ifMatch(3) };
    (await stream.append("d", headers)).expect(status, tagged(4));
    (await stream.append("d", headers)).expect(204, { "Stream-Next-Offset": at(4), ...marks });
    await stream.append("efg");
    (await stream.append("d", headers)).expect(204, { "Stream-Next-Offset": at(4), ...marks });
    await stream.holds("abcdefg");
  },
}));

const order: readonly CaseSpec[] = [
  {
    title: "§4.1 a gap is reported before a moved tail",
    async run(site) {
      const stream = await site.stream({}, "abc");
      const headers = { ...byEpoch("p", 0, 4), ...ifMatch(0) };
      (await stream.append("x", headers)).refused(409, "producer_gap");
    },
  },
  {
    title: "§4.1 a fence is reported before a moved tail",
    async run(site) {
      const stream = await site.stream();
      await stream.append("a", byEpoch("p", 3, 0));
      const headers = { ...byEpoch("p", 2, 0), ...ifMatch(0) };
      (await stream.append("x", headers)).refused(403, "producer_fenced");
    },
  },
  {
    title: "§4.1 a key that was used for other content is reported before a moved tail",
    needs: ["keys"],
    async run(site) {
      const stream = await site.stream();
      await stream.append("a", byKey("k1"));
      (await stream.append("x", { ...byKey("k1"), ...ifMatch(0) })).refused(422, "key_reused");
    },
  },
  {
    title: "§4.1 the tail is compared before Stream-Seq",
    async run(site) {
      const stream = await site.stream();
      await stream.append("a", { "Stream-Seq": "5" });
      (await stream.append("x", { "Stream-Seq": "4", ...ifMatch(0) })).refused(412, "tail_moved");
      const late = await stream.append("x", { "Stream-Seq": "4", ...ifMatch(1) });
      late.refused(409, "sequence_regression");
    },
  },
  {
    title: "§4.1 the content type is compared before the tail",
    async run(site) {
      const stream = await site.stream({}, "abc");
      const headers = { "Content-Type": "text/html", ...ifMatch(0) };
      (await stream.append("x", headers)).refused(409, "content_type_mismatch");
    },
  },
  ...(
    [
      ["the tail", ifMatch(3)],
      ["another offset", ifMatch(0)],
    ] as const
  ).map(
    ([what, headers]) =>
      ({
        title: `§15 on a closed stream an append for ${what} is refused as closed`,
        async run(site) {
          const stream = await site.stream({ "Stream-Closed": "true" }, "abc");
          const answer = await stream.append("x", headers);
          answer.refused(409, "stream_closed", { "Stream-Closed": "true" });
        },
      }) satisfies CaseSpec,
  ),
  {
    title: "§4.1 an append whose tail has moved consumes no sequence, no key and no Stream-Seq",
    needs: ["sessions", "keys"],
    async run(site) {
      const stream = await site.stream({}, "abc");
      const seq = { "Stream-Seq": "7" };
      (await stream.append("x", { ...byEpoch("p", 0, 0), ...ifMatch(0), ...seq })).refused(
        412,
        "tail_moved",
      );
      (await stream.append("x", { ...bySession("q", "n1", 0), ...ifMatch(0), ...seq })).refused(
        412,
        "tail_moved",
      );
      (await stream.append("x", { ...byKey("k1"), ...ifMatch(0), ...seq })).refused(
        412,
        "tail_moved",
      );
      (await stream.append("d", { ...byEpoch("p", 0, 0), "Stream-Seq": "1" })).expect(200);
      (await stream.append("e", bySession("q", "n1", 0))).expect(200, { "Producer-Epoch": "0" });
      const keyed = await stream.append("f", byKey("k1"));
      keyed.expect(204, { "Idempotency-Replayed": undefined });
      await stream.holds("abcdef");
    },
  },
];

const creation: readonly CaseSpec[] = [
  {
    title: "§15 If-None-Match: * creates a stream where the path is free",
    async run(site) {
      const stream = site.newStream();
      (await stream.create({ "If-None-Match": "*" }, "abc")).expect(201);
      await stream.holds("abc");
      (await stream.delete()).expect(204);
      (await stream.create({ "If-None-Match": "*" })).expect(201);
    },
  },
  {
    title: "§15 If-None-Match: * is refused where the same stream is",
    async run(site) {
      const stream = await site.stream({}, "abc");
      const answer = await stream.create({ "If-None-Match": "*" }, "x");
      answer.refused(412, "stream_present", tagged(3));
      await stream.holds("abc");
    },
  },
  {
    title: "§15 If-None-Match: * is refused with 412 where a stream of another configuration is",
    async run(site) {
      const stream = await site.stream({}, "abc");
      const other = { "If-None-Match": "*", "Content-Type": "text/html", "Stream-TTL": "60" };
      (await stream.create(other)).refused(412, "stream_present", tagged(3));
    },
  },
  {
    title: "§15 of ten creations with If-None-Match: * at once exactly one creates",
    async run(site) {
      const stream = site.newStream();
      const answers = await atOnce(10, () => stream.create({ "If-None-Match": "*" }, "a"));
      equal(
        [countWithStatus(answers, 201), countWithStatus(answers, 412)],
        [1, 9],
        "answers 201 and 412",
      );
      await stream.holds("a");
    },
  },
  ...[`"${at(0)}"`, 'W/"a"', '"a", "b"', ""].map(
    (value) =>
      ({
        title: `§15 If-None-Match: ${value === "" ? "(empty)" : value} on PUT is refused`,
        async run(site) {
          const stream = site.newStream();
          (await stream.create({ "If-None-Match": value })).refused(400, "invalid_request");
          (await stream.head()).expect(404);
        },
      }) satisfies CaseSpec,
  ),
  ...["*", `"${at(0)}"`].map(
    (value) =>
      ({
        title: `§15 If-None-Match: ${value} on POST is refused`,
        async run(site) {
          const stream = await site.stream();
          (await stream.append("x", { "If-None-Match": value })).refused(400, "invalid_request");
          await stream.holds("");
        },
      }) satisfies CaseSpec,
  ),
  ...["*", `"${at(0)}"`].map(
    (value) =>
      ({
        title: `§15 If-Match: ${value} on PUT is refused`,
        async run(site) {
          const stream = site.newStream();
          (await stream.create({ "If-Match": value })).refused(400, "invalid_request");
          (await stream.head()).expect(404);
        },
      }) satisfies CaseSpec,
  ),
  ...["*", `"${at(0)}"`].map(
    (value) =>
      ({
        title: `§15 If-Match: ${value} on DELETE is refused and deletes nothing`,
        async run(site) {
          const stream = await site.stream();
          (await stream.delete({ "If-Match": value })).refused(400, "invalid_request");
          (await stream.head()).expect(200);
        },
      }) satisfies CaseSpec,
  ),
];

export const compareCases: readonly CaseSpec[] = [...conditions, ...retries, ...order, ...creation];
