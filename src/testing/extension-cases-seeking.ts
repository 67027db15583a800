/** Cases of reads that begin with the last records, or at a time. PROTOCOL.md §7.10, §7.11. */

import {
  at,
  type CaseAnswer,
  type CaseSpec,
  type CaseStream,
  CLOSES,
  ensure,
  equal,
  JSON_TYPE,
  type Site,
  sleepMs,
  SOME,
} from "./extension-case-kit.ts";

const START = "Stream-Start-Offset";

const read = (stream: CaseStream, query: string): Promise<CaseAnswer> =>
  stream.site.request("GET", `${stream.path}?${query}`);

const since = (ms: number): string => `at=${new Date(ms).toISOString()}`;

/** A stream of JSON with the appends `[1,2,3]`, `4` and `[5,6]`, of 6, 2 and 4 bytes. */
async function sixNumbers(site: Site): Promise<CaseStream> {
  const stream = await site.jsonStream();
  for (const body of ["[1,2,3]", "4", "[5,6]"]) (await stream.append(body)).expect(204);
  return stream;
}

/** When the answer says that it left the server, and after a pause: clocks of two machines may differ. */
async function pausedAt(stream: CaseStream): Promise<number> {
  await sleepMs(1500);
  const date = (await stream.head()).headers.get("Date");
  await sleepMs(1500);
  return date === null ? Date.now() - 1500 : Date.parse(date);
}

const lastCases: readonly CaseSpec[] = [
  {
    title: "§7.10 the last records are returned, also when they begin inside an append",
    async run(site) {
      const stream = await sixNumbers(site);
      const tail = { "Stream-Next-Offset": at(12), "Stream-Up-To-Date": "true" };
      const expected = ["[6]", "[5,6]", "[4,5,6]", "[3,4,5,6]", "[2,3,4,5,6]", "[1,2,3,4,5,6]"];
      for (const [index, text] of expected.entries()) {
        const answer = await read(stream, `last=${index + 1}`);
        answer.expect(200, { ...tail, [START]: at(10 - 2 * index), ETag: SOME });
        equal(answer.text, text, `the last ${index + 1}`);
      }
      const all = await read(stream, "last=10000");
      equal(all.expect(200, { ...tail, [START]: at(0) }).text, "[1,2,3,4,5,6]", "more than all");
    },
  },
  {
    title: "§7.10 of a stream that is not JSON the last appends are returned, whole",
    async run(site) {
      const stream = await site.stream();
      for (const text of ["abc", "de", "f"]) (await stream.append(text)).expect(204);
      equal((await read(stream, "last=1")).expect(200, { [START]: at(5) }).text, "f", "one");
      equal((await read(stream, "last=2")).expect(200, { [START]: at(3) }).text, "def", "two");
      equal((await read(stream, "last=9")).expect(200, { [START]: at(0) }).text, "abcdef", "all");
    },
  },
  {
    title: "§7.10 a stream is read backwards, without a gap, to an answer that is empty",
    async run(site) {
      const stream = await sixNumbers(site);
      let before = "";
      const seen: string[] = [];
      for (let pages = 0; pages < 9; pages += 1) {
        const answer = (await read(stream, `last=2${before}`)).expect(200, { [START]: SOME });
        if (answer.text === "[]") break;
        seen.push(answer.text);
        before = `&before=${answer.headers.get(START) ?? ""}`;
        // What comes meanwhile is behind the reader.
        (await stream.append("7")).expect(204);
      }
      equal(seen, ["[5,6]", "[3,4]", "[1,2]"], "the pages, from the last one");
    },
  },
  {
    title: "§7.10 before an offset inside a record there are the records that end before it",
    async run(site) {
      const stream = await site.jsonStream();
      (await stream.append('["abc","def"]')).expect(204);
      const none = { [START]: at(5), "Stream-Next-Offset": at(5) };
      equal((await read(stream, `last=5&before=${at(5)}`)).text, "[]", "inside the first one");
      (await read(stream, `last=5&before=${at(5)}`)).expect(200, none);
      equal((await read(stream, `last=5&before=${at(11)}`)).text, '["abc"]', "inside the second");
      equal((await read(stream, "last=1&before=now")).text, '["def"]', "before the tail");
      equal((await read(stream, "last=1&before=-1")).text, "[]", "before the beginning");
      (await read(stream, `last=1&before=${at(99)}`)).refused(410, "offset_beyond_tail");
    },
  },
  {
    title: "§7.10 the last records of an empty stream are none, and of a closed one its end",
    async run(site) {
      const stream = await site.jsonStream();
      const empty = (await read(stream, "last=3")).expect(200, { [START]: at(0) });
      equal(empty.text, "[]", "of an empty stream");
      (await stream.append("1", CLOSES)).expect(204);
      const end = (await read(stream, "last=3")).expect(200, { "Stream-Closed": "true" });
      equal(end.text, "[1]", "of a closed stream");
    },
  },
  {
    title: "§7.10 the last records are those that a fork reads, over its fork point",
    async run(site) {
      const stream = await sixNumbers(site);
      const headers = { "Stream-Forked-From": stream.path, "Stream-Fork-Offset": at(6) };
      const fork = site.newStream(JSON_TYPE);
      (await fork.create({ ...headers, "Stream-Fork-Sub-Offset": "0" })).expect(201);
      (await fork.append('["a","b"]')).expect(204);
      equal(
        (await read(fork, "last=3")).expect(200, { [START]: at(4) }).text,
        '[3,"a","b"]',
        "fork",
      );
    },
  },
  {
    title: "§7.10 of a trimmed stream there is what is left",
    needs: ["retention"],
    async run(site) {
      const stream = await sixNumbers(site);
      const cut = `/_hapax/trim?${stream.query}&before=${at(6)}`;
      (await site.request("POST", cut)).expect(204);
      const rest = (await read(stream, "last=9")).expect(200, { [START]: at(6) });
      equal(rest.text, "[4,5,6]", "what is left");
      equal((await read(stream, `last=9&before=${at(2)}`)).expect(200).text, "[]", "what is gone");
    },
  },
  {
    title: "§7.10 a live reader gets the last records first",
    async run(site) {
      const stream = await sixNumbers(site);
      const first = await read(stream, "last=2&live=long-poll");
      equal(first.expect(200, { [START]: at(8), "Stream-Cursor": SOME }).text, "[5,6]", "first");
      (await stream.append("7", CLOSES)).expect(204);
      // By events to the end of a closed stream, so that they end.
      const live = await read(stream, "last=4&live=sse");
      live.expect(200, { [START]: at(6), "Stream-Next-Offset": at(6) });
      ensure(live.text.includes("data:[4,5,6,7]"), `events begin with the last: ${live.text}`);
    },
  },
  {
    title: "§7.10 last goes with no offset, and before with last alone",
    async run(site) {
      const stream = await sixNumbers(site);
      const wrong = ["0", "-1", "x", "1.5", "10001", "", "01", "1&last=1"].map((n) => `last=${n}`);
      for (const query of [
        ...wrong,
        "last=1&offset=-1",
        "last=1&offset=now",
        `before=${at(2)}`,
        `offset=-1&before=${at(2)}`,
        "last=1&before=x",
        `last=1&before=${at(2)}&live=sse`,
        `last=1&before=${at(2)}&live=long-poll`,
        `last=1&before=${at(2)}&state-offsets=true`,
        "last=1&at=2026-01-31T08:00:00Z",
      ]) {
        (await read(stream, query)).refused(400, "invalid_request");
      }
      (await read(site.newStream(), "last=1")).refused(404, "stream_not_found");
    },
  },
];

const timeCases: readonly CaseSpec[] = [
  {
    title: "§7.11 a read at a time begins with the first append that was stored then or later",
    isSlow: true,
    async run(site) {
      const stream = await site.letters("ab");
      const between = await pausedAt(stream);
      for (const letter of "cd") (await stream.append(letter)).expect(204);
      const answer = await read(stream, since(between));
      answer.expect(200, { [START]: at(2), "Stream-Next-Offset": at(4) });
      equal(answer.text, "cd", "what was stored since");
      const all = await read(stream, since(between - 3_600_000));
      equal(all.expect(200, { [START]: at(0) }).text, "abcd", "what an hour has brought");
      const none = await read(stream, since(between + 3_600_000));
      none.expect(200, { [START]: at(4), "Stream-Up-To-Date": "true" });
      equal(none.text, "", "what will be stored");
    },
  },
  {
    title: "§7.11 what a fork has of its source keeps its times",
    isSlow: true,
    async run(site) {
      const stream = await site.letters("ab");
      const between = await pausedAt(stream);
      const fork = await site.fork(stream);
      (await fork.append("c")).expect(204);
      equal(
        (await read(fork, since(between))).expect(200, { [START]: at(2) }).text,
        "c",
        "its own",
      );
      equal((await read(fork, since(0))).expect(200, { [START]: at(0) }).text, "abc", "all");
    },
  },
  {
    title: "§7.11 of a trimmed stream a time before all begins where the stream begins now",
    needs: ["retention"],
    async run(site) {
      const stream = await site.letters("abc");
      const cut = `/_hapax/trim?${stream.query}&before=${at(1)}`;
      (await site.request("POST", cut)).expect(204);
      equal((await read(stream, since(0))).expect(200, { [START]: at(1) }).text, "bc", "the rest");
    },
  },
  {
    title: "§7.11 a live reader may begin at a time",
    async run(site) {
      const stream = await site.letters("abc");
      const answer = await read(stream, `${since(0)}&live=long-poll`);
      equal(answer.expect(200, { [START]: at(0) }).text, "abc", "by long-poll");
    },
  },
  {
    title: "§7.11 a time is one as RFC 3339 has it, and goes with no offset",
    async run(site) {
      const stream = await site.letters("a");
      (await read(stream, "at=2000-01-31T08:00:00.123456%2B01:00")).expect(200, { [START]: at(0) });
      for (const time of ["", "now", "0", "2026-01-31", "2026-02-30T00:00:00Z"]) {
        (await read(stream, `at=${time}`)).refused(400, "invalid_request");
      }
      for (const more of ["&offset=-1", "&at=2000-01-01T00:00:00Z", `&before=${at(0)}`]) {
        (await read(stream, `at=2000-01-01T00:00:00Z${more}`)).refused(400, "invalid_request");
      }
      const gone = await read(site.newStream(), "at=2000-01-01T00:00:00Z");
      gone.refused(404, "stream_not_found");
    },
  },
];

export const seekingCases: readonly CaseSpec[] = [...lastCases, ...timeCases];
