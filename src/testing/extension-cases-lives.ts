/** Cases of the lives of a path: PROTOCOL.md §7.9. */

import {
  at,
  type CaseAnswer,
  type CaseSpec,
  type CaseStream,
  equal,
  type HeaderMap,
} from "./extension-case-kit.ts";

const GRAMMAR = /^[0-9A-Za-z-]{1,32}$/;

const read = (stream: CaseStream, query = "", headers: HeaderMap = {}): Promise<CaseAnswer> =>
  stream.site.request("GET", stream.path + query, { headers });

async function lifeOf(stream: CaseStream): Promise<string> {
  const life = (await stream.head()).headers.get("Stream-Life") ?? "";
  equal(GRAMMAR.test(life), true, `whether ${JSON.stringify(life)} is a life`);
  return life;
}

export const lifeCases: readonly CaseSpec[] = [
  {
    title: "§7.9 HEAD and every kind of GET tell the life, and an append does not change it",
    async run(site) {
      const stream = await site.stream();
      await stream.append("abc");
      const life = await lifeOf(stream);
      const told = { "Stream-Life": life };
      (await read(stream)).expect(200, told);
      (await read(stream, "?offset=now")).expect(200, told);
      (await read(stream, `?offset=${at(0)}&live=long-poll`)).expect(200, told);
      const etag = (await read(stream)).headers.get("ETag") ?? "";
      (await read(stream, "", { "If-None-Match": etag })).expect(304, told);
      await stream.append("d");
      const rest = await read(stream, `?offset=${at(3)}&life=${life}`);
      equal(rest.expect(200, told).text, "d", "what comes after the offset");
      equal(await lifeOf(stream), life, "the life after an append");
    },
  },
  {
    title:
      "§7.9 a stream that is created anew has another life, and refuses readers of the one before",
    async run(site) {
      const stream = await site.stream();
      await stream.append("abc");
      const life = await lifeOf(stream);
      await stream.delete();
      await stream.create();
      await stream.append("def");
      await stream.append("ghi");
      const next = await lifeOf(stream);
      equal(next === life, false, `whether both lives are ${life}`);
      for (const live of ["", "&live=long-poll", "&live=sse"]) {
        const answer = await read(stream, `?offset=${at(3)}&life=${life}${live}`);
        answer.refused(410, "stream_replaced");
      }
      // The life is checked before the offset, which belongs to the other life.
      const beyond = await read(stream, `?offset=${at(99)}&life=${life}`);
      beyond.refused(410, "stream_replaced");
      const rest = await read(stream, `?offset=${at(3)}&life=${next}`);
      equal(rest.expect(200).text, "ghi", "what comes after the offset");
      const twice = await read(stream, `?offset=${at(3)}&life=${life}&life=${next}`);
      twice.refused(400, "invalid_request");
    },
  },
  {
    title: "§7.9 a fork has a life of its own",
    async run(site) {
      const stream = await site.stream();
      const fork = await site.fork(stream);
      const isSame = (await lifeOf(fork)) === (await lifeOf(stream));
      equal(isSame, false, "whether both lives are one");
    },
  },
  {
    title: "§7.9 the list of streams, claims and cursors tell the life of a stream",
    needs: ["admin", "groups"],
    async run(site) {
      const stream = await site.stream();
      const life = await lifeOf(stream);
      const list = await site.request("GET", `/_hapax/streams?prefix=${stream.path}`);
      const listed = list.expect(200).json() as { readonly streams: readonly object[] };
      equal(
        JSON.stringify(listed.streams.map((one) => "life" in one && one.life)),
        `["${life}"]`,
        "listed",
      );
      const group = `/_hapax/groups/${encodeURIComponent(site.newGroup())}`;
      const body = JSON.stringify({ streams: [stream.path] });
      (await site.request("PUT", group, { body })).expect(201);
      const joined = await site.request("POST", `${group}/join`, { body: "{}" });
      const { member } = joined.json() as { readonly member: string };
      const claim = await site.request("POST", `${group}/claim`, {
        body: JSON.stringify({ member }),
      });
      const { leases } = claim.expect(200).json() as {
        readonly leases: readonly { life?: string }[];
      };
      equal(leases[0]?.life, life, "the life in the claim");
      const shown = await site.request("GET", group);
      const { cursors } = shown.json() as { readonly cursors: readonly { life?: string }[] };
      equal(cursors[0]?.life, life, "the life of the cursor");
    },
  },
];
