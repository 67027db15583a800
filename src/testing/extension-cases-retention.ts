/** Cases of retention: cuts, rules, and what readers of trimmed streams get. PROTOCOL.md §23. */

import {
  at,
  type CaseAnswer,
  type CaseSpec,
  type CaseStream,
  equal,
} from "./extension-case-kit.ts";
import { CaseGroup } from "./extension-case-transactions.ts";

const EARLIEST = "Stream-Earliest-Offset";

const trim = (stream: CaseStream, before: string, more = ""): Promise<CaseAnswer> =>
  stream.site.request("POST", `/_hapax/trim?${stream.query}&before=${before}${more}`);

const setRule = (stream: CaseStream, rule: string): Promise<CaseAnswer> =>
  stream.site.request("PUT", `/_hapax/retention?${stream.query}`, {
    headers: { "Stream-Retention": rule },
  });

const read = (stream: CaseStream, query = ""): Promise<CaseAnswer> =>
  stream.site.request("GET", stream.path + query);

const earliestOf = async (stream: CaseStream): Promise<string | null> =>
  (await stream.head()).expect(200).headers.get(EARLIEST);

export const retentionCases: readonly CaseSpec[] = [
  {
    title: "§23.1 a cut moves the beginning, and no offset",
    async run(site) {
      const stream = await site.letters("abcdef");
      equal(await earliestOf(stream), at(0), "where the stream begins");
      (await read(stream)).expect(200, { [EARLIEST]: undefined });
      (await trim(stream, at(2))).expect(204, { [EARLIEST]: at(2) });
      (await trim(stream, at(2))).expect(204, { [EARLIEST]: at(2) });
      (await trim(stream, at(1))).expect(204, { [EARLIEST]: at(2) });
      equal(await earliestOf(stream), at(2), "where the stream begins now");
      const rest = await read(stream, `?offset=${at(3)}`);
      equal(rest.expect(200, { [EARLIEST]: at(2) }).text, "def", "what is behind the cut");
      (await stream.append("g")).expect(204, { "Stream-Next-Offset": at(7) });
      (await trim(stream, at(7))).expect(204, { [EARLIEST]: at(7) });
      (await stream.append("h")).expect(204, { "Stream-Next-Offset": at(8) });
      equal((await read(stream)).expect(200).text, "h", "what came behind a cut at the tail");
    },
  },
  {
    title: "§23.1 a cut inside an append leaves the append",
    async run(site) {
      const stream = await site.stream();
      for (const text of ["abc", "def"]) (await stream.append(text)).expect(204);
      (await trim(stream, at(5))).expect(204, { [EARLIEST]: at(3) });
      equal((await read(stream)).text, "def", "what is left");
    },
  },
  {
    title: "§23.1 a cut is refused beyond the tail, without a stream, and without an offset",
    async run(site) {
      const stream = await site.letters("ab");
      (await trim(stream, at(3))).refused(410, "offset_beyond_tail");
      for (const offset of ["", "-1", "now", "1"]) {
        (await trim(stream, offset)).refused(400, "invalid_request");
      }
      (await trim(stream, at(1), "&needed=keep")).refused(400, "invalid_request");
      (await trim(site.newStream(), at(0))).refused(404, "stream_not_found");
      equal(await earliestOf(stream), at(0), "where the stream begins");
    },
  },
  {
    title: "§23.2 a reader before the beginning learns where it is, in every way of reading",
    async run(site) {
      const stream = await site.letters("abcd");
      (await trim(stream, at(2))).expect(204);
      for (const live of ["", "&live=long-poll", "&live=sse"]) {
        for (const offset of [0, 1]) {
          const answer = await read(stream, `?offset=${at(offset)}${live}`);
          answer.refused(410, "offset_trimmed", { [EARLIEST]: at(2), "Cache-Control": "no-store" });
          equal(answer.problem("earliestOffset"), at(2), "the offset in the problem");
        }
      }
    },
  },
  {
    title: "§23.2 the beginning of a trimmed stream is its earliest offset",
    async run(site) {
      const stream = await site.letters("abcd");
      const etag = (await read(stream)).headers.get("ETag") ?? "";
      (await trim(stream, at(2))).expect(204);
      for (const query of ["", "?offset=-1", "?offset=-1&live=long-poll"]) {
        const answer = await read(stream, query);
        answer.expect(200, { [EARLIEST]: at(2), "Stream-Next-Offset": at(4) });
        equal(answer.text, "cd", `what ${query} reads`);
      }
      const again = await site.request("GET", stream.path, { headers: { "If-None-Match": etag } });
      equal(again.expect(200).text, "cd", "what a cached page is replaced by");
    },
  },
  {
    title: "§23.3 what a group needs stays, unless the cut drops it; its offset stays in any case",
    needs: ["groups"],
    async run(site) {
      const stream = await site.letters("abcd");
      const group = new CaseGroup(site);
      await group.create();
      const refused = (await trim(stream, at(1))).refused(409, "data_needed");
      equal(refused.problem("neededFrom"), at(0), "the first offset that is needed");
      equal(refused.problem("neededBy"), "group", "who needs it");
      (await trim(stream, at(1), "&needed=drop")).expect(204, { [EARLIEST]: at(1) });
      const shown = (await group.get()).json() as {
        readonly cursors: readonly { readonly offset: string }[];
      };
      equal(shown.cursors[0]?.offset, at(0), "the offset of the group");
    },
  },
  {
    title: "§23.3 what a fork needs stays, unless the cut drops it; then the fork begins later too",
    async run(site) {
      const source = await site.letters("abcd");
      const fork = await site.fork(source, { "Stream-Fork-Offset": at(3) });
      (await fork.append("x")).expect(204);
      (await trim(source, at(1))).refused(409, "data_needed");
      equal((await read(fork)).text, "abcx", "what the fork reads");
      (await trim(fork, at(1))).expect(204, { [EARLIEST]: at(1) });
      equal((await read(source)).text, "abcd", "what the source reads when its fork was trimmed");
      (await trim(source, at(2), "&needed=drop")).expect(204);
      equal((await read(fork)).expect(200, { [EARLIEST]: at(2) }).text, "cx", "and then the fork");
      (await trim(source, at(4), "&needed=drop")).expect(204);
      equal((await read(fork)).expect(200, { [EARLIEST]: at(3) }).text, "x", "its own");
    },
  },
  {
    title:
      "§20.1 a group begins where there is something to read, also on a fork, and nowhere before",
    needs: ["groups"],
    async run(site) {
      const source = await site.letters("abcd");
      const fork = await site.fork(source, { "Stream-Fork-Offset": at(3) });
      (await trim(source, at(2), "&needed=drop")).expect(204);
      const group = new CaseGroup(site);
      for (const start of [at(0), at(1)]) {
        const refused = (await group.put({ streams: [fork.path], start })).refused(
          410,
          "offset_trimmed",
          { [EARLIEST]: at(2) },
        );
        equal(refused.problem("earliestOffset"), at(2), "the offset in the problem");
        equal(refused.problem("stream"), fork.path, "the stream in the problem");
      }
      (await group.put({ streams: [fork.path] })).expect(201);
      const offset = async (): Promise<string | undefined> => {
        const shown = (await group.get()).json() as {
          readonly cursors: readonly { readonly offset: string }[];
        };
        return shown.cursors[0]?.offset;
      };
      equal(await offset(), at(2), "where the group begins");
      (await group.post("reset", { to: at(3) })).expect(200);
      for (const to of [at(0), at(1)]) {
        (await group.post("reset", { to })).refused(410, "offset_trimmed");
      }
      equal(await offset(), at(3), "where the group is after resets that were refused");
      (await group.post("reset", { to: "beginning" })).expect(200);
      equal(await offset(), at(2), "where the group begins again");
    },
  },
  {
    title: "§23.3 producers and keys are known as before",
    needs: ["keys", "reading-back"],
    async run(site) {
      const stream = await site.stream();
      const producer = { "Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0" };
      (await stream.append("a", producer)).expect(200);
      (await stream.append("b", { "Idempotency-Key": "k" })).expect(204);
      (await trim(stream, at(2))).expect(204);
      (await stream.append("a", producer)).expect(204, { "Stream-Next-Offset": at(1) });
      const again = await stream.append("b", { "Idempotency-Key": "k" });
      again.expect(204, { "Idempotency-Replayed": "true", "Stream-Next-Offset": at(2) });
    },
  },
  {
    title: "§23.4 a rule by bytes trims while the stream grows",
    async run(site) {
      const stream = await site.stream({ "Stream-Retention": "bytes=100" });
      (await stream.head()).expect(200, { "Stream-Retention": "bytes=100" });
      for (let index = 0; index < 30; index += 1) (await stream.append("0123456789")).expect(204);
      const first = Number((await earliestOf(stream))?.slice(17));
      equal(
        first >= 170 && first <= 200,
        true,
        `whether 100 to 130 bytes are kept, of 300: ${first}`,
      );
      equal((await read(stream)).text.length, 300 - first, "what can be read");
    },
  },
  {
    title: "§23.4 a rule is shown, compared, changed and taken away",
    async run(site) {
      const rule = "seconds=3600, bytes=1000, needed=drop";
      const stream = site.newStream();
      const made = await stream.create({
        "Stream-Retention": "bytes=1000,seconds=3600,needed=drop",
      });
      made.expect(201, { "Stream-Retention": rule });
      (await stream.create({ "Stream-Retention": rule })).expect(200, { "Stream-Retention": rule });
      (await stream.create()).expect(200);
      (await stream.create({ "Stream-Retention": "bytes=1000" })).refused(409, "stream_exists");
      (await setRule(stream, "seconds=60")).expect(204);
      (await stream.head()).expect(200, { "Stream-Retention": "seconds=60" });
      (await setRule(stream, "none")).expect(204);
      (await stream.head()).expect(200, { "Stream-Retention": undefined });
    },
  },
  {
    title: "§23.4 a rule that is set on a stream that is too large trims it at once",
    async run(site) {
      const stream = await site.letters("abcdef");
      (await setRule(stream, "bytes=2")).expect(204);
      equal(await earliestOf(stream), at(4), "where the stream begins");
    },
  },
  {
    title: "§23.4 a rule that is none is refused",
    async run(site) {
      const stream = await site.stream();
      const bad = [
        "",
        "bytes",
        "bytes=0",
        "bytes=1.5",
        "seconds=-1",
        "needed=drop",
        "bytes=1,bytes=1",
      ];
      for (const rule of [...bad, "bytes=1, colour=red", "bytes=1,needed=keep", "a".repeat(5000)]) {
        (await setRule(stream, rule)).refused(400, "invalid_request");
        const other = await site.newStream().create({ "Stream-Retention": rule });
        // Some clients leave an empty header out.
        if (rule !== "") other.refused(400, "invalid_request");
      }
      (await setRule(site.newStream(), "bytes=1")).refused(404, "stream_not_found");
    },
  },
];
