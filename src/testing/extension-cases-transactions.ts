/** Cases of transactions: identities and requests. PROTOCOL.md §19, §19.1. */

import { hexOf } from "../base/hex.ts";
import { at, byEpoch, type CaseSpec, equal, JSON_TYPE, type Site } from "./extension-case-kit.ts";
import {
  appendOf,
  committed,
  frame,
  newKey,
  refusedAt,
  transact,
  transactFramed,
  TRANSACTIONS,
} from "./extension-case-transactions.ts";

const ALL_BYTES = Uint8Array.from({ length: 256 }, (_, byte) => byte);

async function bytesOf(url: string): Promise<string> {
  const bytes = new Uint8Array(await (await fetch(url)).arrayBuffer());
  return hexOf(bytes);
}

const identities: readonly CaseSpec[] = [
  {
    title: "§19 a transaction without an identity is refused",
    async run(site) {
      const stream = await site.stream();
      (await transact(site, {}, [appendOf(stream, "a")])).refused(400, "identity_missing");
      await stream.holds("");
    },
  },
  {
    title: "§19 a key and a producer together are refused: a transaction has one identity",
    async run(site) {
      const stream = await site.stream();
      const both = { ...newKey(), ...byEpoch("p", 0, 0) };
      (await transact(site, both, [appendOf(stream, "a")])).refused(400, "invalid_request");
      await stream.holds("");
    },
  },
  {
    title: "§19 the key of a transaction is another one than the same key on a stream",
    needs: ["keys"],
    async run(site) {
      const stream = await site.stream();
      const key = newKey();
      (await stream.append("a", key)).expect(204, { "Idempotency-Replayed": undefined });
      const answer = await transact(site, key, [appendOf(stream, "b")]);
      committed(answer.expect(200, { "Idempotency-Replayed": undefined }), [[stream, at(2)]]);
      (await stream.append("a", key)).expect(204, { "Idempotency-Replayed": "true" });
      await stream.holds("ab");
    },
  },
  {
    title: "§19 the producer of transactions is another one than the same id on a stream",
    async run(site) {
      const stream = await site.stream();
      const id = crypto.randomUUID();
      const answer = await transact(site, byEpoch(id, 0, 0), [appendOf(stream, "a")]);
      answer.expect(200, { "Producer-Epoch": "0", "Producer-Seq": "0" });
      (await stream.append("b", byEpoch(id, 0, 0))).expect(200);
      await stream.holds("ab");
    },
  },
];

const requests: readonly CaseSpec[] = [
  {
    title: "§19.1 appends to several streams are stored, and the answer has their tails in order",
    async run(site) {
      const [one, other] = [await site.stream(), await site.stream({}, "x")];
      const operations = [appendOf(one, "ab"), appendOf(other, "c"), appendOf(one, "d")];
      const answer = await transact(site, newKey(), operations);
      committed(answer, [
        [one, at(2)],
        [other, at(2)],
        [one, at(3)],
      ]);
      answer.expect(200, { "Cache-Control": "no-store", "Content-Type": "application/json" });
      await one.holds("abd");
      await other.holds("xc");
    },
  },
  {
    title: "§19.1 data is an array of JSON records, whose numbers become doubles",
    async run(site) {
      const stream = await site.jsonStream();
      const path = JSON.stringify(stream.path);
      const head = `{"operations":[{"append":{"stream":${path},"data":[1.0,[2],{"a":"é"}]}}]}`;
      const headers = { ...JSON_TYPE, ...newKey() };
      (await site.request("POST", TRANSACTIONS, { headers, body: head })).expect(200);
      await stream.holds('[1,[2],{"a":"é"}]');
    },
  },
  {
    title: "§19.1 text on a JSON stream is the body as it would be sent alone",
    async run(site) {
      const stream = await site.jsonStream();
      const operations = [appendOf(stream, "[1.0, [2]]"), appendOf(stream, '{"a":1e400}')];
      (await transact(site, newKey(), operations)).expect(200);
      await stream.holds('[1.0,[2],{"a":1e400}]');
    },
  },
  {
    title: "§19.1 base64 is stored as the bytes that it stands for",
    async run(site) {
      const stream = site.newStream({ "Content-Type": "application/octet-stream" });
      await stream.create();
      const base64 = btoa(String.fromCharCode(...ALL_BYTES));
      const operation = { append: { stream: stream.path, base64 } };
      committed(await transact(site, newKey(), [operation]), [[stream, at(256)]]);
      equal(await bytesOf(site.urlOf(stream.path)), hexOf(ALL_BYTES), "the stored bytes");
    },
  },
  {
    title: "§19.1 bodies of the framed form are stored byte for byte, each in its stream",
    async run(site) {
      const streams = [await site.stream(), await site.stream()] as const;
      const back = ALL_BYTES.toReversed();
      const operations = [
        { append: { stream: streams[0].path, bytes: 256 } },
        { append: { stream: streams[1].path, bytes: 100 } },
        { append: { stream: streams[1].path, bytes: 156 } },
      ];
      const body = frame(operations, ALL_BYTES, back);
      (await transactFramed(site, newKey(), body)).expect(200);
      equal(await bytesOf(site.urlOf(streams[0].path)), hexOf(ALL_BYTES), "the first stream");
      equal(await bytesOf(site.urlOf(streams[1].path)), hexOf(back), "the second stream");
    },
  },
  {
    title: "§19.1 the framed form takes text and data beside bytes, and JSON stays as it was sent",
    async run(site) {
      const [text, json] = [await site.stream(), await site.jsonStream()];
      const operations = [
        appendOf(text, "a"),
        { append: { stream: json.path, bytes: 5 } },
        { append: { stream: json.path, data: [2] } },
        { append: { stream: text.path, bytes: 1 } },
      ];
      const body = frame(operations, new TextEncoder().encode("[1.0]b"));
      (await transactFramed(site, newKey(), body)).expect(200);
      await text.holds("ab");
      await json.holds("[1.0,2]");
    },
  },
  {
    title: "§19.1 the bodies of the framed form use up the request exactly",
    async run(site) {
      const stream = await site.stream();
      const operations = [{ append: { stream: stream.path, bytes: 2 } }];
      for (const size of [0, 1, 3]) {
        const body = frame(operations, new Uint8Array(size));
        (await transactFramed(site, newKey(), body)).refused(400, "invalid_request");
      }
      const cut = frame(operations, new Uint8Array(2)).slice(0, 20);
      (await transactFramed(site, newKey(), cut)).refused(400, "invalid_request");
      (await transactFramed(site, newKey(), cut.slice(0, 3))).refused(400, "invalid_request");
      await stream.holds("");
    },
  },
  {
    title: "§19.1 a stream is created, filled and closed in one transaction",
    async run(site) {
      const stream = site.newStream(JSON_TYPE);
      const answer = await transact(site, newKey(), [
        { create: { stream: stream.path, contentType: "application/json", ttlSeconds: 600 } },
        { append: { stream: stream.path, data: [1] } },
        { close: { stream: stream.path } },
      ]);
      committed(answer, [
        [stream, at(0)],
        [stream, at(2)],
        [stream, at(2)],
      ]);
      (await stream.head()).expect(200, {
        "Content-Type": "application/json",
        "Stream-TTL": "600",
        "Stream-Closed": "true",
      });
      await stream.holds("[1]");
    },
  },
  {
    title: "§19.1 creating what is there and closing what is closed is fine",
    async run(site) {
      const [open, closed] = [await site.stream({}, "ab"), await site.stream({}, "c")];
      await closed.close();
      const answer = await transact(site, newKey(), [
        { create: { stream: open.path, contentType: "text/plain" } },
        { close: { stream: closed.path } },
      ]);
      committed(answer, [
        [open, at(2)],
        [closed, at(1)],
      ]);
    },
  },
  {
    title: "§19.1 an append with close is the last one, and may be without a body",
    async run(site) {
      const [one, other] = [await site.stream(), await site.stream()];
      const close = { append: { stream: other.path, close: true } };
      (await transact(site, newKey(), [appendOf(one, "a", { close: true }), close])).expect(200);
      for (const stream of [one, other]) {
        (await stream.head()).expect(200, { "Stream-Closed": "true" });
      }
      await one.holds("a");
    },
  },
  {
    title: "§19.1 paths are not percent-encoded",
    async run(site) {
      const spaced = site.newStream(undefined, "%20%C3%A9");
      await spaced.create();
      const percent = site.newStream(undefined, "%2520");
      await percent.create();
      const operations = [appendOf(spaced, "a"), appendOf(percent, "b")];
      committed(await transact(site, newKey(), operations), [
        [spaced, at(1)],
        [percent, at(1)],
      ]);
      await spaced.holds("a");
      await percent.holds("b");
    },
  },
  {
    title: "§19.1 a thousand operations are one transaction, and none or one more are refused",
    async run(site) {
      const stream = await site.stream();
      const many = Array.from({ length: 1001 }, () => appendOf(stream, "a"));
      (await transact(site, newKey(), many)).refused(400, "invalid_request");
      (await transact(site, newKey(), [])).refused(400, "invalid_request");
      await stream.holds("");
      (await transact(site, newKey(), many.slice(1))).expect(200);
      await stream.holds("a".repeat(1000));
    },
  },
  {
    title: "§19.1 a body that is not of its type is refused",
    async run(site) {
      const send = (type: string, body: string): ReturnType<Site["request"]> =>
        site.request("POST", TRANSACTIONS, {
          headers: { "Content-Type": type, ...newKey() },
          body,
        });
      (await send("text/plain", '{"operations":[]}')).refused(400, "invalid_request");
      (await send("application/json", "{")).refused(400, "invalid_json");
      (await send("application/json", "[]")).refused(400, "invalid_request");
      (await send("application/json", "{}")).refused(400, "invalid_request");
      const deep = `{"operations":${"[".repeat(2000)}${"]".repeat(2000)}}`;
      (await send("application/json", deep)).refused(400, "invalid_json");
    },
  },
];

/** Operations that are malformed, by what is wrong. */
const malformed: Readonly<Record<string, (path: string) => unknown>> = {
  "not an object": () => "append",
  "of no kind": () => ({ remove: {} }),
  "of two kinds": (path) => ({ append: { stream: path, text: "a" }, close: { stream: path } }),
  "without a stream": () => ({ append: { text: "a" } }),
  "with a relative path": () => ({ append: { stream: "a", text: "a" } }),
  "with a path that is reserved": () => ({ create: { stream: "/_hapax/streams" } }),
  "with a dot segment": (path) => ({ append: { stream: `${path}/..`, text: "a" } }),
  "with two bodies": (path) => ({ append: { stream: path, text: "a", base64: "YQ==" } }),
  "without a body": (path) => ({ append: { stream: path } }),
  "with an empty body": (path) => ({ append: { stream: path, text: "" } }),
  "with bytes in the JSON form": (path) => ({ append: { stream: path, bytes: 1 } }),
  "with half of base64": (path) => ({ append: { stream: path, base64: "YQ=" } }),
  "with data for a stream of text": (path) => ({ append: { stream: path, data: [1] } }),
  "with close that is no flag": (path) => ({ append: { stream: path, text: "a", close: 1 } }),
  "with a content type that is none": (path) => ({
    append: { stream: path, text: "a", contentType: "text" },
  }),
  "with two expiries": (path) => ({
    create: { stream: path, ttlSeconds: 1, expiresAt: "2040-01-01T00:00:00Z" },
  }),
  "that expects nothing": (path) => ({ expect: { stream: path } }),
  "that expects an offset that is none": (path) => ({ expect: { stream: path, offset: "7" } }),
  "that commits without a token": (path) => ({
    commit: { group: "g", member: "m", stream: path, offset: at(0) },
  }),
};

const malformedCases: readonly CaseSpec[] = Object.entries(malformed).map(([what, operation]) => ({
  title: `§19.1 an operation ${what} is refused by its index, and nothing is done`,
  async run(site) {
    const stream = await site.stream();
    const operations = [appendOf(stream, "a"), operation(stream.path)] as const;
    const body = JSON.stringify({ operations });
    const headers = { ...JSON_TYPE, ...newKey() };
    const answer = await site.request("POST", TRANSACTIONS, { headers, body });
    refusedAt(answer, 1, 400, "invalid_request");
    await stream.holds("");
  },
}));

export const transactionCases: readonly CaseSpec[] = [
  ...identities,
  ...requests,
  ...malformedCases,
];
