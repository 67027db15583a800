/** Cases of the windows of keys: their options, their count and their time. PROTOCOL.md §16.1. */

import {
  atOnce,
  byEpoch,
  byKey,
  type CaseSpec,
  countWithStatus,
  ensure,
  sleepMs,
  promptly,
  SOME,
} from "./extension-case-kit.ts";

const REPLAYED = { "Idempotency-Replayed": "true" };
const NEW = { "Idempotency-Replayed": undefined };
/** A second, and some tolerance for the clock. */
const WINDOW_MS = 1100;

const SETTINGS = [
  ["Stream-Key-Window", "60", "61"],
  ["Stream-Key-Max", "10", "11"],
  ["Stream-Key-Overflow", "reject", "evict"],
  ["Stream-Key-From", "content", undefined],
] as const;
const NAMES = SETTINGS.map(([name]) => name);

const allExcept = (...given: readonly string[]): Record<string, undefined> =>
  Object.fromEntries(
    NAMES.filter((name) => !given.includes(name)).map((name) => [name, undefined]),
  );

const configuration: readonly CaseSpec[] = [
  ...SETTINGS.map(
    ([name, value]) =>
      ({
        title: `§16.1 a stream that was created with ${name} says so, and names no other`,
        async run(site) {
          const stream = site.newStream();
          const expected = { [name]: value, ...allExcept(name) };
          (await stream.create({ [name]: value })).expect(201, expected);
          (await stream.create({ [name]: value })).expect(200, expected);
          (await stream.head()).expect(200, expected);
        },
      }) satisfies CaseSpec,
  ),
  ...SETTINGS.map(
    ([name, value]) =>
      ({
        title: `§16.1 a repeated creation that leaves out ${name} is the same one`,
        async run(site) {
          const stream = await site.stream({ [name]: value });
          (await stream.create()).expect(200, { [name]: value });
        },
      }) satisfies CaseSpec,
  ),
  ...SETTINGS.map(
    ([name, value, other]) =>
      ({
        title: `§16.1 a repeated creation with another ${name} is a conflict`,
        async run(site) {
          const stream = await site.stream(other === undefined ? {} : { [name]: other });
          (await stream.create({ [name]: value })).refused(409, "stream_exists");
          (await stream.head()).expect(200, { [name]: other });
        },
      }) satisfies CaseSpec,
  ),
  {
    title: "§16.1 a stream without options names none",
    async run(site) {
      const stream = site.newStream();
      (await stream.create()).expect(201, allExcept());
      (await stream.head()).expect(200, allExcept());
    },
  },
  {
    title: "§16.1 the largest window and the largest count are taken",
    async run(site) {
      const headers = { "Stream-Key-Window": "31622400", "Stream-Key-Max": "10000000" };
      const stream = await site.stream(headers);
      (await stream.head()).expect(200, headers);
    },
  },
  ...(
    [
      ["Stream-Key-Window", ["0", "-1", "01", "1.5", "1e3", "", "day", "31622401"]],
      ["Stream-Key-Max", ["0", "-1", "01", "1.5", "1e3", "", "many", "10000001"]],
      ["Stream-Key-Overflow", ["drop", "Evict", "", "evict, reject"]],
      ["Stream-Key-From", ["header", "Content", ""]],
    ] as const
  ).flatMap(([name, values]) =>
    values.map(
      (value) =>
        ({
          title: `§16.1 ${name}: ${value === "" ? "(empty)" : value} is refused`,
          async run(site) {
            const stream = site.newStream();
            (await stream.create({ [name]: value })).refused(400, "invalid_request");
            (await stream.head()).expect(404);
          },
        }) satisfies CaseSpec,
    ),
  ),
];

const counts: readonly CaseSpec[] = [
  {
    title: "§16.1 as many keys are remembered as Stream-Key-Max says",
    async run(site) {
      const stream = await site.stream({ "Stream-Key-Max": "5" });
      for (const key of ["1", "2", "3", "4", "5"]) await stream.append(key, byKey(key));
      for (const key of ["1", "2", "3", "4", "5"]) {
        (await stream.append(key, byKey(key))).expect(204, REPLAYED);
      }
      await stream.holds("12345");
    },
  },
  {
    title: "§16.1 evict forgets the oldest key, and a later retry of it is a new append",
    async run(site) {
      const stream = await site.stream({ "Stream-Key-Max": "2", "Stream-Key-Overflow": "evict" });
      for (const key of ["1", "2", "3"]) {
        (await stream.append(key, byKey(key))).expect(204, NEW);
      }
      (await stream.append("2", byKey("2"))).expect(204, REPLAYED);
      (await stream.append("3", byKey("3"))).expect(204, REPLAYED);
      (await stream.append("1", byKey("1"))).expect(204, NEW);
      await stream.holds("1231");
    },
  },
  {
    title: "§16.1 a replay makes a key no younger",
    async run(site) {
      const stream = await site.stream({ "Stream-Key-Max": "2", "Stream-Key-Overflow": "evict" });
      await stream.append("1", byKey("1"));
      await stream.append("2", byKey("2"));
      (await stream.append("1", byKey("1"))).expect(204, REPLAYED);
      await stream.append("3", byKey("3"));
      (await stream.append("2", byKey("2"))).expect(204, REPLAYED);
      (await stream.append("1", byKey("1"))).expect(204, NEW);
    },
  },
  {
    title: "§16.1 reject refuses a new key while the window is full, and says when to come again",
    async run(site) {
      const full = { "Stream-Key-Max": "1", "Stream-Key-Overflow": "reject" };
      const stream = await site.stream({ ...full, "Stream-Key-Window": "60" });
      await stream.append("a", byKey("1"));
      const answer = await stream.append("b", byKey("2"));
      answer.refused(429, "key_window_full", { "Retry-After": SOME });
      const seconds = Number(answer.headers.get("Retry-After"));
      ensure(seconds >= 1 && seconds <= 60, `Retry-After: expected 1 to 60, got ${seconds}`);
      (await stream.append("a", byKey("1"))).expect(204, REPLAYED);
      await stream.holds("a");
    },
  },
  {
    title: "§16.1 with evict many keys at once are stored, or told that the window is full",
    async run(site) {
      const stream = await site.stream({ "Stream-Key-Max": "1", "Stream-Key-Overflow": "evict" });
      const answers = await atOnce(20, (index) => stream.append("a", byKey(`k${index}`)));
      for (const answer of answers) {
        if (answer.status === 204) continue;
        answer.refused(429, "key_window_full", { "Retry-After": SOME });
      }
      await stream.holds("a".repeat(countWithStatus(answers, 204)));
      (await stream.append("b", byKey("last"))).expect(204, NEW);
      (await stream.append("b", byKey("last"))).expect(204, REPLAYED);
    },
  },
  {
    title: "§16.1 a full window is in the way of new keys only",
    async run(site) {
      const stream = await site.stream({ "Stream-Key-Max": "1", "Stream-Key-Overflow": "reject" });
      await stream.append("a", byKey("1"));
      (await stream.append("b")).expect(204);
      (await stream.append("c", byEpoch("p", 0, 0))).expect(200);
      (await stream.append("x", byKey("1"))).refused(422, "key_reused");
      (await stream.close()).expect(204);
      await stream.holds("abc");
    },
  },
  {
    title: "§4.1 Stream-Seq is compared before the room in the window, which consumes nothing",
    async run(site) {
      const stream = await site.stream({ "Stream-Key-Max": "1", "Stream-Key-Overflow": "reject" });
      await stream.append("a", { ...byKey("1"), "Stream-Seq": "5" });
      (await stream.append("x", { ...byKey("2"), "Stream-Seq": "4" })).refused(
        409,
        "sequence_regression",
      );
      (await stream.append("x", { ...byKey("2"), "Stream-Seq": "9" })).refused(
        429,
        "key_window_full",
      );
      (await stream.append("b", { "Stream-Seq": "6" })).expect(204);
      await stream.holds("ab");
    },
  },
  {
    title: "§16.1 a fork has a window of its own, empty at first, and takes over no option",
    async run(site) {
      const source = await site.stream({ "Stream-Key-Max": "1", "Stream-Key-Overflow": "reject" });
      await source.append("a", byKey("1"));
      const fork = await site.fork(source);
      (await fork.head()).expect(200, allExcept());
      (await fork.append("b", byKey("1"))).expect(204, NEW);
      (await fork.append("c", byKey("2"))).expect(204, NEW);
      await fork.holds("abc");
      const other = await site.fork(source, { "Stream-Key-Max": "7" });
      (await other.head()).expect(200, { "Stream-Key-Max": "7", ...allExcept("Stream-Key-Max") });
    },
  },
];

const ages: readonly CaseSpec[] = [
  {
    title: "§16.1 a key is forgotten after the window, counted from when it was stored",
    isSlow: true,
    async run(site) {
      const stream = await promptly(async () => {
        const young = await site.stream({ "Stream-Key-Window": "1" });
        (await young.append("a", byKey("1"))).expect(204, NEW);
        (await young.append("a", byKey("1"))).expect(204, REPLAYED);
        return young;
      });
      await sleepMs(WINDOW_MS);
      (await stream.append("b", byKey("1"))).expect(204, NEW);
      await stream.holds("ab");
    },
  },
  {
    title: "§16.1 a key is remembered for as long as the window says",
    isSlow: true,
    async run(site) {
      const stream = await site.stream({ "Stream-Key-Window": "60", "Stream-Key-Max": "3" });
      await stream.append("a", byKey("1"));
      await sleepMs(WINDOW_MS);
      (await stream.append("a", byKey("1"))).expect(204, REPLAYED);
      await stream.holds("a");
    },
  },
  {
    title: "§16.1 reject takes a new key when the oldest has reached its age",
    isSlow: true,
    async run(site) {
      const full = { "Stream-Key-Max": "1", "Stream-Key-Overflow": "reject" };
      const stream = await promptly(async () => {
        const young = await site.stream({ ...full, "Stream-Key-Window": "1" });
        (await young.append("a", byKey("1"))).expect(204, NEW);
        const answer = await young.append("b", byKey("2"));
        answer.refused(429, "key_window_full", { "Retry-After": "1" });
        return young;
      });
      await sleepMs(WINDOW_MS);
      (await stream.append("b", byKey("2"))).expect(204, NEW);
      await stream.holds("ab");
    },
  },
];

/** All cases of this file. They need the capability `keys`. */
export const windowCases: readonly CaseSpec[] = [...configuration, ...counts, ...ages].map(
  (spec) => ({ ...spec, needs: ["keys"] }),
);
