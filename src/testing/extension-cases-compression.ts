/** Cases of compressed bodies: PROTOCOL.md §4.5. They need `CompressionStream`, which all current platforms have. */

import {
  at,
  byEpoch,
  byKey,
  type CaseAnswer,
  type CaseSpec,
  type CaseStream,
  CLOSES,
  equal,
  ensure,
  type HeaderMap,
  JSON_TYPE,
  type Site,
  SOME,
  TEXT,
} from "./extension-case-kit.ts";
import { appendOf, newKey, TRANSACTIONS } from "./extension-case-transactions.ts";

type Format = "gzip" | "deflate" | "deflate-raw";

const utf8 = new TextEncoder();
const GZIP: HeaderMap = { "Content-Encoding": "gzip" };

async function packed(text: string, format: Format = "gzip"): Promise<Uint8Array<ArrayBuffer>> {
  const stream = new Blob([utf8.encode(text)]).stream();
  const body = await new Response(stream.pipeThrough(new CompressionStream(format))).arrayBuffer();
  return new Uint8Array(body);
}

/** `hello brotli`, compressed. */
const BROTLI = Uint8Array.from(atob("iwWAaGVsbG8gYnJvdGxpAw=="), (letter) => letter.charCodeAt(0));

/** Sends a body as it is. */
function send(
  stream: CaseStream,
  body: Uint8Array<ArrayBuffer>,
  headers: HeaderMap,
  method = "POST",
): Promise<CaseAnswer> {
  return stream.site.request(method, stream.path, { headers: { ...TEXT, ...headers }, body });
}

const stored: readonly CaseSpec[] = [
  ...(
    [
      ["gzip", "gzip"],
      ["GZIP", "gzip"],
      ["x-gzip", "gzip"],
      ["deflate", "deflate"],
    ] as const
  ).map(
    ([coding, format]) =>
      ({
        title: `§4.5 a body with Content-Encoding: ${coding} is stored as what it decodes to`,
        async run(site) {
          const stream = await site.stream();
          const body = await packed("hello, hello, hello", format);
          const answer = await send(stream, body, { "Content-Encoding": coding });
          answer.expect(204, { "Stream-Next-Offset": at(19) });
          await stream.holds("hello, hello, hello");
        },
      }) satisfies CaseSpec,
  ),
  {
    title: "§4.5 a body with Content-Encoding: br is decoded, or refused with the codings that are",
    async run(site) {
      const stream = await site.stream();
      const codings = (await stream.head()).expect(200, { "Accept-Encoding": SOME });
      const isKnown = codings.headers.get("Accept-Encoding")?.split(", ").includes("br") === true;
      const answer = await send(stream, BROTLI, { "Content-Encoding": "br" });
      if (isKnown) {
        answer.expect(204);
        await stream.holds("hello brotli");
      } else {
        answer.refused(415, "unsupported_encoding", { "Accept-Encoding": SOME });
        await stream.holds("");
      }
    },
  },
  {
    title: "§4.5 the first body of a stream may be compressed",
    async run(site) {
      const stream = site.newStream();
      const created = await send(stream, await packed("first"), GZIP, "PUT");
      created.expect(201, { "Stream-Next-Offset": at(5), "Accept-Encoding": SOME });
      await stream.holds("first");
    },
  },
  {
    title: "§4.5 JSON is checked and split when it is decoded",
    async run(site) {
      const stream = await site.jsonStream();
      (await send(stream, await packed("[1, 2]"), { ...JSON_TYPE, ...GZIP })).expect(204);
      equal(await stream.read(), "[1,2]", "the records");
      const bad = await send(stream, await packed("[1, 2"), { ...JSON_TYPE, ...GZIP });
      bad.refused(400, "invalid_json");
    },
  },
  {
    title: "§4.5 a compressed body and the close are one append",
    async run(site) {
      const stream = await site.stream();
      const answer = await send(stream, await packed("last"), { ...GZIP, ...CLOSES });
      answer.expect(204, { "Stream-Next-Offset": at(4), "Stream-Closed": "true" });
      await stream.holds("last");
    },
  },
  {
    title: "§4.5 Content-Encoding: identity changes nothing",
    async run(site) {
      const stream = await site.stream();
      (await stream.append("plain", { "Content-Encoding": "identity" })).expect(204);
      await stream.holds("plain");
    },
  },
  {
    title: "§4.5 the body of a transaction may be compressed",
    needs: ["transactions"],
    async run(site) {
      const stream = await site.stream();
      const plain = JSON.stringify({ operations: [appendOf(stream, "hi")] });
      const headers = { ...JSON_TYPE, ...newKey() };
      const first = await site.request("POST", TRANSACTIONS, {
        headers: { ...headers, ...GZIP },
        body: await packed(plain),
      });
      first.expect(200);
      // What it decodes to is its content: the same without compression is the same transaction.
      const again = await site.request("POST", TRANSACTIONS, { headers, body: plain });
      again.expect(200, { "Idempotency-Replayed": "true" });
      await stream.holds("hi");
    },
  },
];

const known: readonly CaseSpec[] = [
  {
    title: "§4.5 a retry may be compressed or not: what it decodes to counts",
    async run(site) {
      const stream = await site.stream();
      const first = byEpoch("p", 0, 0);
      (await send(stream, await packed("once"), { ...GZIP, ...first })).expect(200);
      (await stream.append("once", first)).expect(204, { "Producer-Seq-Reused": undefined });
      const other = await send(stream, await packed("once", "deflate"), {
        "Content-Encoding": "deflate",
        ...first,
      });
      other.expect(204, { "Producer-Seq-Reused": undefined });
      const changed = await send(stream, await packed("twice"), { ...GZIP, ...first });
      changed.expect(204, { "Producer-Seq-Reused": "true" });
      await stream.holds("once");
    },
  },
  {
    title: "§4.5 a key knows the decoded content",
    needs: ["keys"],
    async run(site) {
      const stream = await site.stream();
      (await stream.append("once", byKey("k"))).expect(204);
      const again = await send(stream, await packed("once"), { ...GZIP, ...byKey("k") });
      again.expect(204, { "Idempotency-Replayed": "true" });
      const other = await send(stream, await packed("twice"), { ...GZIP, ...byKey("k") });
      other.refused(422, "key_reused");
      await stream.holds("once");
    },
  },
];

async function refusedAlone(
  site: Site,
  body: Uint8Array<ArrayBuffer>,
  coding: string,
  status: number,
  code: string,
): Promise<CaseAnswer> {
  const stream = await site.stream();
  const answer = await send(stream, body, { "Content-Encoding": coding, ...byEpoch("p", 0, 0) });
  answer.refused(status, code);
  await stream.holds("");
  // A refused append uses no number up.
  (await stream.append("a", byEpoch("p", 0, 0))).expect(200);
  return answer;
}

const refused: readonly CaseSpec[] = [
  {
    title: "§4.5 HEAD says which codings are decoded",
    async run(site) {
      const stream = await site.stream();
      const { headers } = (await stream.head()).expect(200, { "Accept-Encoding": SOME });
      const codings = headers.get("Accept-Encoding")?.split(", ") ?? [];
      ensure(codings.includes("gzip"), `gzip is among ${codings.join()}`);
    },
  },
  ...(["zstd", "compress", "gzip, gzip", "br;q=1"] as const).map(
    (coding) =>
      ({
        title: `§4.5 Content-Encoding: ${coding} is refused with the codings that are decoded`,
        async run(site) {
          const body = await packed("hello");
          const answer = await refusedAlone(site, body, coding, 415, "unsupported_encoding");
          answer.expect(415, { "Accept-Encoding": SOME });
        },
      }) satisfies CaseSpec,
  ),
  {
    title: "§4.5 a body that is not of its coding is refused",
    async run(site) {
      await refusedAlone(site, utf8.encode("not gzip"), "gzip", 400, "invalid_request");
    },
  },
  {
    title: "§4.5 a compressed body that is cut is refused",
    async run(site) {
      const body = await packed("hello, hello, hello");
      await refusedAlone(site, body.slice(0, -9), "gzip", 400, "invalid_request");
    },
  },
  {
    title: "§4.5 a compressed body whose check sum is wrong is refused",
    async run(site) {
      const body = await packed("hello, hello, hello");
      const at8 = body.length - 8;
      body[at8] = (body[at8] ?? 0) ^ 1;
      await refusedAlone(site, body, "gzip", 400, "invalid_request");
    },
  },
  {
    title: "§4.5 bytes behind the end of a compressed body are refused",
    async run(site) {
      const body = await packed("hello", "deflate");
      const longer = new Uint8Array([...body, 1, 2, 3]);
      await refusedAlone(site, longer, "deflate", 400, "invalid_request");
    },
  },
  {
    title: "§4.5 bytes behind the end of a body of gzip are refused, also if they are gzip",
    async run(site) {
      const body = await packed("hello");
      const longer = new Uint8Array([...body, 1, 2, 3]);
      await refusedAlone(site, longer, "gzip", 400, "invalid_request");
      const twice = new Uint8Array([...body, ...body]);
      await refusedAlone(site, twice, "gzip", 400, "invalid_request");
    },
  },
  {
    title: "§4.5 deflate without the frame of zlib is refused",
    async run(site) {
      const body = await packed("hello, hello, hello", "deflate-raw");
      await refusedAlone(site, body, "deflate", 400, "invalid_request");
    },
  },
  {
    title: "§4.5 a body that decodes to nothing is an empty one",
    async run(site) {
      await refusedAlone(site, await packed(""), "gzip", 400, "invalid_request");
    },
  },
  {
    title: "§4.5 other paths take no compressed body",
    needs: ["groups"],
    async run(site) {
      const path = `/_hapax/groups/${encodeURIComponent(site.newGroup())}`;
      const body = await packed(JSON.stringify({ pattern: site.pattern }));
      const answer = await site.request("PUT", path, { headers: { ...JSON_TYPE, ...GZIP }, body });
      answer.refused(415, "unsupported_encoding", { "Accept-Encoding": "identity" });
    },
  },
];

export const compressionCases: readonly CaseSpec[] = [...stored, ...known, ...refused];
