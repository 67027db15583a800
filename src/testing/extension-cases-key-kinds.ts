/** Cases of keys that carry their time, and of content as key. PROTOCOL.md §16.2, §16.3. */

import {
  at,
  byEpoch,
  byKey,
  type CaseSpec,
  CLOSES,
  type HeaderMap,
  sleepMs,
  promptly,
} from "./extension-case-kit.ts";
import { hexOf } from "../base/hex.ts";
import { ulidOf, uuid7Of } from "./extension-case-times.ts";

const REPLAYED = { "Idempotency-Replayed": "true" };
const NEW = { "Idempotency-Replayed": undefined };
/** A second, and some tolerance for the clock. */
const WINDOW_MS = 1100;
const HOUR_MS = 3_600_000;
const MINUTE: HeaderMap = { "Stream-Key-Window": "60" };
const FROM_CONTENT: HeaderMap = { "Stream-Key-From": "content" };

const times: readonly CaseSpec[] = [
  ...(
    [
      ["UUID of version 7", (timeMs: number) => uuid7Of(timeMs)],
      ["UUID of version 7 in capitals", (timeMs: number) => uuid7Of(timeMs).toUpperCase()],
      ["UUID of version 7 in quotes", (timeMs: number) => `"${uuid7Of(timeMs)}"`],
      ["ULID", (timeMs: number) => ulidOf(timeMs)],
      ["ULID in small letters", (timeMs: number) => ulidOf(timeMs).toLowerCase()],
    ] as const
  ).map(
    ([what, keyOf]) =>
      ({
        title: `§16.2 a ${what} that is older than the window is refused, a younger one is not`,
        async run(site) {
          const stream = await site.stream(MINUTE);
          (await stream.append("x", byKey(keyOf(Date.now() - HOUR_MS)))).refused(
            422,
            "key_expired",
          );
          const young = keyOf(Date.now() - 1000);
          (await stream.append("a", byKey(young))).expect(204, NEW);
          (await stream.append("a", byKey(young))).expect(204, REPLAYED);
          await stream.holds("a");
        },
      }) satisfies CaseSpec,
  ),
  ...(
    [
      ["a time in the future", () => uuid7Of(Date.now() + HOUR_MS)],
      ["a time before 2015", () => uuid7Of(Date.UTC(2014, 11, 31))],
      ["a ULID time before 2015", () => ulidOf(Date.UTC(2014, 11, 31))],
      ["the form of a UUID of version 4", () => crypto.randomUUID()],
      ["25 letters of a ULID", () => ulidOf(Date.now() - HOUR_MS).slice(0, 25)],
      ["a letter that ULIDs do not have", () => `${ulidOf(Date.now() - HOUR_MS).slice(0, 25)}U`],
      ["a UUID of version 7 inside it", () => `order-${uuid7Of(Date.now() - HOUR_MS)}`],
    ] as const
  ).map(
    ([what, keyOf]) =>
      ({
        title: `§16.2 a key with ${what} tells no age and is new`,
        async run(site) {
          const stream = await site.stream(MINUTE);
          const key = keyOf();
          (await stream.append("a", byKey(key))).expect(204, NEW);
          (await stream.append("a", byKey(key))).expect(204, REPLAYED);
          await stream.holds("a");
        },
      }) satisfies CaseSpec,
  ),
];

const contents: readonly CaseSpec[] = [
  {
    title:
      "§16.3 two equal messages are stored once, and the second answer has the end of the first",
    async run(site) {
      const stream = await site.stream(FROM_CONTENT);
      (await stream.append("abc")).expect(204, { "Stream-Next-Offset": at(3), ...NEW });
      (await stream.append("def")).expect(204, { "Stream-Next-Offset": at(6), ...NEW });
      (await stream.append("abc")).expect(204, { "Stream-Next-Offset": at(3), ...REPLAYED });
      await stream.holds("abcdef");
    },
  },
  {
    title: "§16.3 without Stream-Key-From two equal messages are two",
    async run(site) {
      const stream = await site.stream();
      (await stream.append("a")).expect(204, NEW);
      (await stream.append("a")).expect(204, NEW);
      await stream.holds("aa");
    },
  },
  {
    title: "§16.3 an append with producer headers is not known by its content",
    async run(site) {
      const stream = await site.stream(FROM_CONTENT);
      await stream.append("a");
      (await stream.append("a", byEpoch("p", 0, 0))).expect(200, NEW);
      (await stream.append("a", byEpoch("p", 0, 1))).expect(200, NEW);
      (await stream.append("b", byEpoch("p", 0, 2))).expect(200, NEW);
      (await stream.append("b")).expect(204, NEW);
      await stream.holds("aaabb");
    },
  },
  {
    title: "§16.3 an append with a key is not known by its content",
    async run(site) {
      const stream = await site.stream(FROM_CONTENT);
      await stream.append("a");
      (await stream.append("a", byKey("1"))).expect(204, NEW);
      (await stream.append("a", byKey("2"))).expect(204, NEW);
      await stream.holds("aaa");
    },
  },
  {
    title: "§16.3 a key that is the hash of the content is not the content",
    async run(site) {
      const stream = await site.stream(FROM_CONTENT);
      const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode("a"));
      await stream.append("a");
      (await stream.append("b", byKey(hexOf(new Uint8Array(digest))))).expect(204, NEW);
      (await stream.append("c", byKey("a"))).expect(204, NEW);
      await stream.holds("abc");
    },
  },
  {
    title: "§16.3 the same bytes that close are other content, and another message",
    async run(site) {
      const stream = await site.stream(FROM_CONTENT);
      (await stream.append("a")).expect(204, NEW);
      const closed = { "Stream-Closed": "true" };
      (await stream.append("a", CLOSES)).expect(204, { ...closed, ...NEW });
      (await stream.append("a", CLOSES)).expect(204, { ...closed, ...REPLAYED });
      (await stream.append("a")).expect(204, {
        "Stream-Next-Offset": at(1),
        ...closed,
        ...REPLAYED,
      });
      await stream.holds("aa");
    },
  },
  {
    title: "§16.3 a close without data needs no key: it is 204 as often as it comes",
    async run(site) {
      const closed = { "Stream-Closed": "true", "Stream-Next-Offset": at(1) };
      const reject = { "Stream-Key-Max": "1", "Stream-Key-Overflow": "reject" };
      const stream = await site.stream({ ...FROM_CONTENT, ...reject });
      (await stream.append("a")).expect(204, NEW);
      (await stream.close()).expect(204, closed);
      (await stream.close()).expect(204, closed);
      const other = await site.stream(FROM_CONTENT);
      (await other.append("a", { ...byEpoch("p", 0, 0), ...CLOSES })).expect(200, closed);
      (await other.close()).expect(204, closed);
    },
  },
  {
    title: "§16.3 the content of JSON is its records",
    async run(site) {
      const stream = await site.jsonStream(FROM_CONTENT);
      (await stream.append('{"id":1}')).expect(204, NEW);
      (await stream.append(' [ {"id":1} ] ')).expect(204, REPLAYED);
      (await stream.append('{"id": 1}')).expect(204, NEW);
      await stream.holds('[{"id":1},{"id": 1}]');
    },
  },
];

const ages: readonly CaseSpec[] = [
  {
    title: "§16.2 a key with its time that was stored and forgotten is refused, not stored again",
    isSlow: true,
    async run(site) {
      let key = "";
      const stream = await promptly(async () => {
        const young = await site.stream({ "Stream-Key-Window": "1" });
        key = uuid7Of(Date.now());
        (await young.append("a", byKey(key))).expect(204, NEW);
        (await young.append("a", byKey(key))).expect(204, REPLAYED);
        return young;
      });
      await sleepMs(2 * WINDOW_MS);
      (await stream.append("a", byKey(key))).refused(422, "key_expired");
      await stream.holds("a");
    },
  },
  {
    title: "§16.2 a key that the window has is a replay, also when its own time is older",
    isSlow: true,
    async run(site) {
      // The key is 58 seconds old: two seconds of its window of a minute are left.
      let key = "";
      const stream = await promptly(async () => {
        const old = await site.stream(MINUTE);
        key = uuid7Of(Date.now() - 58_000);
        (await old.append("a", byKey(key))).expect(204, NEW);
        return old;
      });
      await sleepMs(2 * WINDOW_MS);
      (await stream.append("a", byKey(key))).expect(204, REPLAYED);
      await stream.holds("a");
    },
  },
  {
    title: "§16.3 equal content after the window is another message",
    isSlow: true,
    async run(site) {
      const stream = await promptly(async () => {
        const young = await site.stream({ ...FROM_CONTENT, "Stream-Key-Window": "1" });
        (await young.append("a")).expect(204, NEW);
        (await young.append("a")).expect(204, REPLAYED);
        return young;
      });
      await sleepMs(WINDOW_MS);
      (await stream.append("a")).expect(204, NEW);
      await stream.holds("aa");
    },
  },
];

/** All cases of this file. They need the capability `keys`. */
export const keyKindCases: readonly CaseSpec[] = [...times, ...contents, ...ages].map((spec) => ({
  ...spec,
  needs: ["keys"],
}));
