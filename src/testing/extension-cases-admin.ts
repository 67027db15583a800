/** Cases of the routes about metrics and producers: PROTOCOL.md §12.3, §12.4, §12.5. */

import {
  at,
  atOnce,
  byEpoch,
  byKey,
  bySession,
  type CaseAnswer,
  type CaseSpec,
  type CaseStream,
  ensure,
  EPOCH_MAX,
  equal,
  type Site,
  TEXT,
} from "./extension-case-kit.ts";

const METRICS = "/_hapax/metrics";
const PRODUCERS = "/_hapax/producers";
const OF_P = { "Producer-Id": "p" };
const NO_STORE = { "Cache-Control": "no-store" };

function list(stream: CaseStream, more = ""): Promise<CaseAnswer> {
  return stream.site.request("GET", `${PRODUCERS}?${stream.query}${more}`);
}

function reset(stream: CaseStream, id: string): Promise<CaseAnswer> {
  return stream.site.request("DELETE", `${PRODUCERS}/${encodeURIComponent(id)}?${stream.query}`);
}

/** Returns the value of a line of metrics, such as `name{a="b"}`. */
async function metric(site: Site, name: string): Promise<number> {
  const { text } = (await site.request("GET", METRICS)).expect(200);
  const line = text.split("\n").find((each) => each.startsWith(`${name} `));
  ensure(line !== undefined, `metrics: expected a line ${name}, got none`);
  return Number(line?.slice(name.length + 1));
}

const metrics: readonly CaseSpec[] = [
  {
    title: "§12.3 metrics are Prometheus text of version 0.0.4 and not to be stored",
    async run(site) {
      const answer = (await site.request("GET", METRICS)).expect(200, NO_STORE);
      const type = (answer.headers.get("Content-Type") ?? "").replaceAll(" ", "").split(";");
      ensure(type[0] === "text/plain", `Content-Type: expected text/plain, got ${type.join(";")}`);
      ensure(type.includes("version=0.0.4"), `expected version=0.0.4, got ${type.join(";")}`);
      (await site.request("HEAD", METRICS)).expect(200);
    },
  },
  {
    title:
      "§12.3 every line of the metrics is a comment or a sample of a family with help and type",
    async run(site) {
      const { text } = await site.request("GET", METRICS);
      ensure(text.endsWith("\n"), "metrics: expected a line feed at the end");
      const helped = new Set<string>();
      const typed = new Map<string, string>();
      for (const line of text.split("\n").slice(0, -1)) {
        const comment = /^# (HELP|TYPE) (\S+) (.+)$/.exec(line);
        if (comment !== null) {
          const [, kind, name = "", rest = ""] = comment;
          if (kind === "HELP") helped.add(name);
          else typed.set(name, rest);
          continue;
        }
        const sample = /^([a-z_]+)(\{[^}]*\})? (\S+)$/.exec(line);
        ensure(sample !== null, `metrics: expected a sample, got ${line}`);
        const [, name = "", , value = ""] = sample ?? [];
        ensure(Number.isFinite(Number(value)), `metrics: expected a number, got ${line}`);
        const family = typed.has(name) ? name : name.replace(/_(bucket|sum|count)$/, "");
        ensure(
          typed.has(family) && helped.has(family),
          `metrics: expected HELP and TYPE for ${name}, got none`,
        );
      }
      ensure(typed.size > 5, `metrics: expected more than 5 families, got ${typed.size}`);
    },
  },
  {
    title: "§12.3 no metric names a stream, a producer or a key",
    needs: ["sessions", "keys"],
    async run(site) {
      const mark = crypto.randomUUID();
      const stream = await site.stream();
      await stream.append("a", bySession(mark, mark, 0));
      await stream.append("b", byKey(mark));
      await stream.append("b", byKey(mark));
      const { text } = await site.request("GET", METRICS);
      ensure(!text.includes(mark), "metrics: expected no name of a producer or a key, got one");
      ensure(!text.includes(stream.path), "metrics: expected no name of a stream, got one");
    },
  },
  {
    title: "§12.3 appends and recognised retries are counted",
    needs: ["sessions", "keys"],
    async run(site) {
      const stream = await site.stream();
      const names = [
        'hapax_appends_total{outcome="accepted"}',
        'hapax_duplicates_total{by="epoch"}',
        'hapax_duplicates_total{by="session"}',
        'hapax_duplicates_total{by="key"}',
      ];
      const before = new Map<string, number>();
      for (const name of names) before.set(name, await metric(site, name));
      for (const headers of [byEpoch("p", 0, 0), bySession("q", "n1", 0), byKey("1")]) {
        await stream.append("a", headers);
        await stream.append("a", headers);
      }
      for (const name of names) {
        const grew = (await metric(site, name)) - (before.get(name) ?? 0);
        ensure(grew >= 1, `${name}: expected it to grow, got ${grew} more`);
      }
    },
  },
  {
    title: "§12.3 metrics are read and nothing else",
    async run(site) {
      const answer = await site.request("POST", METRICS);
      const allow = answer.refused(405, "method_not_allowed").headers.get("Allow");
      equal(allow, "GET, HEAD, OPTIONS", "Allow");
    },
  },
];

interface Listed {
  readonly producers: readonly Readonly<Record<string, unknown>>[];
  readonly next?: string;
}

const producers: readonly CaseSpec[] = [
  {
    title: "§12.4 POST assigns an id that no other producer has, and epoch 0",
    async run(site) {
      const answers = await atOnce(20, () => site.request("POST", PRODUCERS));
      const ids = answers.map((answer) => {
        const given = answer.expect(201, NO_STORE).json() as Readonly<Record<string, unknown>>;
        equal(Object.keys(given).toSorted(), ["epoch", "producerId"], "the members");
        equal(given["epoch"], 0, "epoch");
        return String(given["producerId"]);
      });
      equal(new Set(ids).size, 20, "different ids");
      // 128 bits have at least 22 characters in any alphabet of a header.
      for (const id of ids) ensure(id.length >= 20, `expected an id of 128 bits, got ${id}`);
    },
  },
  {
    title: "§12.4 an assigned id is good for a first append, which makes it known",
    async run(site) {
      const given = (await site.request("POST", PRODUCERS)).json() as { producerId: string };
      const stream = await site.stream();
      equal((await list(stream)).json(), { producers: [] }, "producers before the first append");
      (await stream.append("a", byEpoch(given.producerId, 0, 0))).expect(200);
      const listed = (await list(stream)).json() as Listed;
      equal(listed.producers[0]?.["producerId"], given.producerId, "the producer that is listed");
    },
  },
  {
    title: "§12.4 the list tells of each producer what the stream knows, in the order of the ids",
    needs: ["sessions"],
    async run(site) {
      const stream = await site.stream();
      await stream.append("abc", bySession("zoe", "n1", 0));
      await stream.append("d", bySession("zoe", "n2", 0));
      await stream.append("e", byEpoch("adam", 7, 0));
      await stream.append("f", byEpoch("adam", 7, 1));
      await stream.append("g");
      const [adam, zoe] = [
        { producerId: "adam", epoch: 7, seq: 1, nextOffset: at(6), session: false },
        { producerId: "zoe", epoch: 1, seq: 0, nextOffset: at(4), session: true },
      ];
      const answer = (await list(stream)).expect(200, {
        "Content-Type": "application/json",
        ...NO_STORE,
      });
      equal(answer.json(), { producers: [adam, zoe] }, "the list");
    },
  },
  {
    title: "§12.4 the list comes in pages",
    async run(site) {
      const stream = await site.stream();
      const ids = ["a", "b", "c", "d", "e"];
      for (const id of ids) await stream.append("x", byEpoch(id, 0, 0));
      const seen: unknown[] = [];
      let after = "";
      for (let page = 0; page < 4; page += 1) {
        const listed = (await list(stream, `&limit=2${after}`)).expect(200).json() as Listed;
        seen.push(...listed.producers.map((each) => each["producerId"]));
        if (listed.next === undefined) break;
        after = `&after=${encodeURIComponent(listed.next)}`;
      }
      equal(seen, ids, "the ids of all pages");
      const whole = (await list(stream, "&limit=5")).json() as Listed;
      equal([whole.producers.length, whole.next], [5, undefined], "a page with all of them");
    },
  },
  ...["100%25", "a%2541", "caf%C3%A9", "a+b", "a%26b%23c"].map(
    (end) =>
      ({
        title: `§12.4 a stream at …${end} is named in the query by its path, percent-encoded once`,
        async run(site) {
          const stream = site.newStream(TEXT, end);
          (await stream.create()).expect(201);
          (await stream.append("a", byEpoch("p", 0, 0))).expect(200);
          const listed = (await list(stream)).expect(200).json() as Listed;
          equal(listed.producers[0]?.["producerId"], "p", "the producer that is listed");
          (await reset(stream, "p")).expect(204);
        },
      }) satisfies CaseSpec,
  ),
  {
    title: "§12.4 the list of an unknown stream is 404",
    async run(site) {
      (await list(site.newStream())).refused(404, "stream_not_found");
    },
  },
  ...["limit=0", "limit=1001", "limit=x", "limit=01", "limit=1&limit=2", "after=%FF"].map(
    (query) =>
      ({
        title: `§12.4 the list refuses ${query}`,
        async run(site) {
          (await list(await site.stream(), `&${query}`)).refused(400, "invalid_request");
        },
      }) satisfies CaseSpec,
  ),
  ...["", "?stream=", "?stream=/a&stream=/b", "?stream=a", "?stream=/a//b"].map(
    (query) =>
      ({
        title: `§12.4 the list needs one stream, and ${query === "" ? "none" : query} is not one`,
        async run(site) {
          (await site.request("GET", PRODUCERS + query)).refused(400, "invalid_request");
        },
      }) satisfies CaseSpec,
  ),
  {
    title: "§12.4 other methods are refused with Allow",
    async run(site) {
      const answer = await site.request("DELETE", PRODUCERS);
      equal(
        answer.refused(405, "method_not_allowed").headers.get("Allow"),
        "GET, HEAD, POST, OPTIONS",
        "Allow",
      );
    },
  },
];

const resets: readonly CaseSpec[] = [
  {
    title: "§12.5 a producer that was reset is not known any more, and its data stays",
    needs: ["reading-back"],
    async run(site) {
      const stream = await site.stream();
      await stream.append("a", byEpoch("p", 4, 0));
      await stream.append("b", byEpoch("q", 1, 0));
      (await reset(stream, "p")).expect(204);
      (await stream.head(OF_P)).expect(200, { "Producer-Epoch": undefined });
      const { producers: left } = (await list(stream)).json() as Listed;
      equal(
        left.map((each) => each["producerId"]),
        ["q"],
        "producers that are left",
      );
      await stream.holds("ab");
    },
  },
  ...[0, 3, 4, 9].map(
    (epoch) =>
      ({
        title: `§12.5 after a reset in epoch 4, epoch ${epoch} with sequence 0 is accepted`,
        async run(site) {
          const stream = await site.stream();
          await stream.append("a", byEpoch("p", 4, 0));
          await stream.append("b", byEpoch("p", 4, 1));
          (await reset(stream, "p")).expect(204);
          const first = await stream.append("c", byEpoch("p", epoch, 0));
          first.expect(200, { "Producer-Epoch": String(epoch), "Producer-Seq": "0" });
          (await stream.append("d", byEpoch("p", epoch, 1))).expect(200);
          await stream.holds("abcd");
        },
      }) satisfies CaseSpec,
  ),
  {
    title: "§12.5 after a reset another sequence than 0 is a gap in any epoch",
    async run(site) {
      const stream = await site.stream();
      await stream.append("a", byEpoch("p", 4, 0));
      (await reset(stream, "p")).expect(204);
      for (const epoch of [0, 4, 9]) {
        const answer = await stream.append("x", byEpoch("p", epoch, 1));
        answer.refused(409, "producer_gap", { "Producer-Expected-Seq": "0" });
      }
      await stream.holds("a");
    },
  },
  {
    title: "§12.5 a reset makes room after the highest epoch",
    needs: ["sessions"],
    async run(site) {
      const stream = await site.stream();
      await stream.append("a", byEpoch("p", EPOCH_MAX, 0));
      (await stream.append("x", bySession("p", "n1", 0))).refused(409, "epoch_exhausted");
      (await reset(stream, "p")).expect(204);
      (await stream.append("b", bySession("p", "n1", 0))).expect(200);
      (await stream.append("c", bySession("p", "n1", 1))).expect(200);
      await stream.holds("abc");
    },
  },
  {
    title: "§12.5 after a reset all nonces that were known stay fenced, also the last one",
    needs: ["sessions"],
    async run(site) {
      const stream = await site.stream();
      await stream.append("a", bySession("p", "n1", 0));
      await stream.append("b", bySession("p", "n2", 0));
      (await reset(stream, "p")).expect(204);
      for (const nonce of ["n1", "n2"]) {
        for (const sequence of [0, 1]) {
          const late = await stream.append("x", bySession("p", nonce, sequence));
          late.refused(403, "producer_fenced");
        }
      }
      (await stream.append("c", bySession("p", "n3", 0))).expect(200);
      (await stream.append("x", bySession("p", "n2", 0))).refused(403, "producer_fenced");
      await stream.holds("abc");
    },
  },
  {
    title: "§12.5 a reset concerns one producer of one stream",
    needs: ["reading-back"],
    async run(site) {
      const [one, other] = [await site.stream(), await site.stream()];
      await one.append("a", byEpoch("p", 2, 0));
      await other.append("b", byEpoch("p", 2, 0));
      (await reset(one, "p")).expect(204);
      (await other.head(OF_P)).expect(200, { "Producer-Epoch": "2" });
      (await other.append("x", byEpoch("p", 1, 0))).refused(403, "producer_fenced");
    },
  },
  {
    title: "§12.5 a producer that is not known cannot be reset, nor one that was reset before",
    async run(site) {
      const stream = await site.stream();
      (await reset(stream, "p")).refused(404, "producer_not_found");
      await stream.append("a", byEpoch("p", 0, 0));
      (await reset(stream, "p")).expect(204);
      (await reset(stream, "p")).refused(404, "producer_not_found");
    },
  },
  {
    title: "§12.5 a reset on an unknown stream is 404",
    async run(site) {
      (await reset(site.newStream(), "p")).refused(404, "stream_not_found");
    },
  },
  {
    title: "§12.5 a reset needs a stream",
    async run(site) {
      (await site.request("DELETE", `${PRODUCERS}/p`)).refused(400, "invalid_request");
    },
  },
  {
    title: "§12.5 an id in the path is percent-encoded",
    async run(site) {
      const stream = await site.stream();
      const id = "urn:a b/c?d%41";
      await stream.append("a", byEpoch(id, 0, 0));
      (await reset(stream, id)).expect(204);
      equal((await list(stream)).json(), { producers: [] }, "producers after the reset");
    },
  },
  {
    title: "§12.5 a producer is reset by DELETE and nothing else",
    async run(site) {
      const stream = await site.stream();
      const answer = await site.request("POST", `${PRODUCERS}/p?${stream.query}`);
      equal(
        answer.refused(405, "method_not_allowed").headers.get("Allow"),
        "DELETE, OPTIONS",
        "Allow",
      );
    },
  },
];

export const adminCases: readonly CaseSpec[] = [...metrics, ...producers, ...resets];
