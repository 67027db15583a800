/** Cases of appends that wait for earlier ones: PROTOCOL.md §17. */

import {
  at,
  byEpoch,
  byKey,
  bySession,
  type CaseAnswer,
  type CaseSpec,
  type CaseStream,
  countWithStatus,
  equal,
  ensure,
  type HeaderMap,
  ifMatch,
  sleepMs,
} from "./extension-case-kit.ts";

const WAIT: HeaderMap = { Prefer: "wait=20" };
const HELD = { "Preference-Applied": "wait" };
const NOT_HELD = { "Preference-Applied": undefined };

/** Sends an append whose answer comes later. */
function send(
  stream: CaseStream,
  body: string,
  headers: HeaderMap,
  signal?: AbortSignal,
): Promise<CaseAnswer> {
  const answer = stream.append(body, { ...WAIT, ...headers }, signal);
  answer.catch(() => undefined); // The case awaits it later, and gets the error then.
  return answer;
}

/**
 * Runs an overtaking until the later appends were held. Over HTTP a client cannot see that an append waits, only
 * afterwards that it has waited. So the overtaking is repeated with more time.
 */
async function untilHeld(
  run: (arrived: () => Promise<void>) => Promise<readonly CaseAnswer[]>,
): Promise<void> {
  for (const ms of [20, 100, 500]) {
    const answers = await run(() => sleepMs(ms));
    if (answers.every(({ headers }) => headers.get("Preference-Applied") === "wait")) return;
  }
  throw new Error("Preference-Applied: expected wait on every append that overtook, got none");
}

const held: readonly CaseSpec[] = [
  {
    title: "§17 an append that overtakes the one before it is held and stored after it",
    run: (site) =>
      untilHeld(async (arrived) => {
        const stream = await site.stream();
        const second = send(stream, "b", byEpoch("p", 0, 1));
        await arrived();
        (await stream.append("a", byEpoch("p", 0, 0))).expect(200, NOT_HELD);
        const answer = await second;
        answer.expect(200, {
          "Producer-Epoch": "0",
          "Producer-Seq": "1",
          "Stream-Next-Offset": at(2),
        });
        await stream.holds("ab");
        return [answer];
      }),
  },
  {
    title: "§17 an append of a session that has not begun is held until it begins",
    needs: ["sessions"],
    run: (site) =>
      untilHeld(async (arrived) => {
        const stream = await site.stream();
        await stream.append("a", bySession("p", "n1", 0));
        const second = send(stream, "c", bySession("p", "n2", 1));
        await arrived();
        (await stream.append("b", bySession("p", "n2", 0))).expect(200);
        const answer = (await second).expect(200, { "Producer-Epoch": "1", "Producer-Seq": "1" });
        await stream.holds("abc");
        return [answer];
      }),
  },
  {
    title: "§17 an append of an epoch that has not begun is held until it begins",
    run: (site) =>
      untilHeld(async (arrived) => {
        const stream = await site.stream();
        await stream.append("a", byEpoch("p", 0, 0));
        const second = send(stream, "c", byEpoch("p", 1, 1));
        await arrived();
        (await stream.append("b", byEpoch("p", 1, 0))).expect(200);
        const answer = (await second).expect(200, { "Producer-Epoch": "1", "Producer-Seq": "1" });
        await stream.holds("abc");
        return [answer];
      }),
  },
  {
    title: "§17 appends in the wrong order are stored in the order of their sequences",
    run: (site) =>
      untilHeld(async (arrived) => {
        const stream = await site.stream();
        const later: Promise<CaseAnswer>[] = [];
        for (const sequence of [7, 3, 5, 1, 6, 2, 4]) {
          later.push(send(stream, String(sequence), byEpoch("p", 0, sequence)));
        }
        await arrived();
        (await stream.append("0", byEpoch("p", 0, 0))).expect(200);
        const answers = await Promise.all(later);
        for (const answer of answers) {
          const sequence = Number(answer.expect(200).headers.get("Producer-Seq"));
          equal(answer.nextOffset, at(sequence + 1), `Stream-Next-Offset of sequence ${sequence}`);
        }
        await stream.holds("01234567");
        return answers;
      }),
  },
  {
    title: "§17 of two held copies one is stored and the other is a duplicate",
    run: (site) =>
      untilHeld(async (arrived) => {
        const stream = await site.stream();
        const copies = [1, 1].map((sequence) => send(stream, "b", byEpoch("p", 0, sequence)));
        await arrived();
        await stream.append("a", byEpoch("p", 0, 0));
        const answers = await Promise.all(copies);
        equal(
          [countWithStatus(answers, 200), countWithStatus(answers, 204)],
          [1, 1],
          "answers 200 and 204",
        );
        await stream.holds("ab");
        return answers;
      }),
  },
  {
    title: "§17 a held append is decided as if it had come then: its tail is the one it finds",
    needs: ["compare"],
    run: (site) =>
      untilHeld(async (arrived) => {
        const stream = await site.stream();
        const good = send(stream, "b", { ...byEpoch("p", 0, 1), ...ifMatch(1) });
        const bad = send(stream, "x", { ...byEpoch("p", 0, 2), ...ifMatch(1) });
        await arrived();
        await stream.append("a", byEpoch("p", 0, 0));
        const answers = [await good, await bad] as const;
        answers[0].expect(200, { ETag: `"${at(2)}"` });
        answers[1].refused(412, "tail_moved");
        await stream.holds("ab");
        return answers;
      }),
  },
  {
    title: "§17 the fence of another producer does not end the waiting",
    run: (site) =>
      untilHeld(async (arrived) => {
        const stream = await site.stream();
        await stream.append("a", byEpoch("q", 0, 0));
        const second = send(stream, "d", byEpoch("p", 0, 1));
        await arrived();
        (await stream.append("b", byEpoch("q", 1, 0))).expect(200);
        (await stream.append("c", byEpoch("p", 0, 0))).expect(200);
        const answer = (await second).expect(200);
        await stream.holds("abcd");
        return [answer];
      }),
  },
  {
    title: "§17 a wait that is longer than the longest is still a wait",
    run: (site) =>
      untilHeld(async (arrived) => {
        const stream = await site.stream();
        const second = send(stream, "b", { ...byEpoch("p", 0, 1), Prefer: "wait=999999" });
        await arrived();
        await stream.append("a", byEpoch("p", 0, 0));
        return [(await second).expect(200)];
      }),
  },
  ...["respond-async, wait=20", "wait=20; a=b", 'WAIT="20"', "return=minimal,wait=20"].map(
    (prefer) =>
      ({
        title: `§17 Prefer: ${prefer} asks to wait`,
        run: (site) =>
          untilHeld(async (arrived) => {
            const stream = await site.stream();
            const second = send(stream, "b", { ...byEpoch("p", 0, 1), Prefer: prefer });
            await arrived();
            await stream.append("a", byEpoch("p", 0, 0));
            return [(await second).expect(200)];
          }),
      }) satisfies CaseSpec,
  ),
];

/** What ends the wait of an append of epoch 0, sequence 2, and its answer then. */
const endings = [
  {
    what: "a newer epoch",
    needs: [],
    end: async (stream: CaseStream) => stream.append("b", byEpoch("p", 1, 0)),
    check: (answer: CaseAnswer) =>
      answer.refused(403, "producer_fenced", { "Producer-Epoch": "1" }),
  },
  {
    what: "a session",
    needs: ["sessions"],
    end: async (stream: CaseStream) => stream.append("b", bySession("p", "n1", 0)),
    check: (answer: CaseAnswer) => answer.refused(403, "producer_fenced"),
  },
  {
    what: "a close",
    needs: [],
    end: async (stream: CaseStream) => stream.close(),
    check: (answer: CaseAnswer) =>
      answer.refused(409, "stream_closed", { "Stream-Closed": "true" }),
  },
  {
    what: "an append that closes",
    needs: [],
    end: async (stream: CaseStream) => stream.append("b", { "Stream-Closed": "true" }),
    check: (answer: CaseAnswer) => answer.refused(409, "stream_closed"),
  },
  {
    what: "a deletion",
    needs: [],
    end: async (stream: CaseStream) => stream.delete(),
    check: (answer: CaseAnswer) => answer.refused(404, "stream_not_found"),
  },
] as const;

const ended: readonly CaseSpec[] = endings.map(({ what, needs, end, check }) => ({
  title: `§17 ${what} ends the waiting`,
  needs,
  run: (site) =>
    untilHeld(async (arrived) => {
      const stream = await site.stream();
      await stream.append("a", byEpoch("p", 0, 0));
      const third = send(stream, "x", byEpoch("p", 0, 2));
      await arrived();
      const { status } = await end(stream);
      ensure(status === 200 || status === 204, `${what}: expected 200 or 204, got ${status}`);
      return [check(await third)];
    }),
}));

const timeouts: readonly CaseSpec[] = [
  {
    title: "§17 after its time a held append is a gap, as without the header",
    isSlow: true,
    async run(site) {
      const stream = await site.stream();
      await stream.append("a", byEpoch("p", 0, 0));
      const startMs = performance.now();
      const answer = await stream.append("x", { ...byEpoch("p", 0, 2), Prefer: "wait=1" });
      const tookMs = performance.now() - startMs;
      const numbers = { "Producer-Expected-Seq": "1", "Producer-Received-Seq": "2" };
      answer.refused(409, "producer_gap", { ...numbers, ...HELD });
      ensure(tookMs > 900, `expected an answer after a second, got one after ${tookMs} ms`);
      await stream.holds("a");
    },
  },
  {
    title: "§17 an append of an epoch that has not begun is refused when its wait ends",
    isSlow: true,
    async run(site) {
      const stream = await site.stream();
      await stream.append("a", byEpoch("p", 0, 0));
      const answer = await stream.append("x", { ...byEpoch("p", 1, 2), Prefer: "wait=1" });
      answer.refused(400, "epoch_start", HELD);
      await stream.holds("a");
    },
  },
];

const notHeld: readonly CaseSpec[] = [
  ...["wait=0", "wait=-1", "wait=1.5", "wait=soon", "wait", "return=minimal", "waiting=20"].map(
    (prefer) =>
      ({
        title: `§17 Prefer: ${prefer} is ignored, and a gap is answered at once`,
        async run(site) {
          const stream = await site.stream();
          const answer = await stream.append("x", { ...byEpoch("p", 0, 1), Prefer: prefer });
          answer.refused(409, "producer_gap", NOT_HELD);
        },
      }) satisfies CaseSpec,
  ),
  {
    title: "§17 an append that need not wait is not held",
    async run(site) {
      const stream = await site.stream();
      (await send(stream, "a", byEpoch("p", 1, 0))).expect(200, NOT_HELD);
      (await send(stream, "a", byEpoch("p", 1, 0))).expect(204, NOT_HELD);
      (await send(stream, "x", byEpoch("p", 0, 0))).refused(403, "producer_fenced", NOT_HELD);
      const html = { ...byEpoch("p", 1, 5), "Content-Type": "text/html" };
      (await send(stream, "x", html)).refused(409, "content_type_mismatch", NOT_HELD);
      await stream.holds("a");
    },
  },
  {
    title: "§17 an append without producer headers is not held",
    needs: ["compare", "keys"],
    async run(site) {
      const stream = await site.stream();
      (await send(stream, "a", {})).expect(204, NOT_HELD);
      (await send(stream, "b", byKey("1"))).expect(204, NOT_HELD);
      (await send(stream, "x", ifMatch(9))).refused(412, "tail_moved", NOT_HELD);
      await stream.holds("ab");
    },
  },
  {
    title: "§17 a held append delays no other append",
    async run(site) {
      const stream = await site.stream();
      const later = send(stream, "d", byEpoch("p", 0, 1));
      (await stream.append("a")).expect(204);
      (await stream.append("b", byEpoch("q", 0, 0))).expect(200);
      (await stream.append("c", byEpoch("p", 0, 0))).expect(200);
      (await later).expect(200);
      await stream.holds("abcd");
    },
  },
  {
    title: "§17 a held append that the client gives up is not stored",
    async run(site) {
      // Until the server notices the end of the connection, it may still store the append.
      let seen = "";
      for (const ms of [50, 200, 1000]) {
        const stream = await site.stream();
        const giveUp = new AbortController();
        const second = send(stream, "x", byEpoch("p", 0, 1), giveUp.signal);
        await sleepMs(ms);
        giveUp.abort();
        await second.catch(() => undefined);
        await sleepMs(ms);
        (await stream.append("a", byEpoch("p", 0, 0))).expect(200);
        seen = await stream.read();
        if (seen === "a") return;
      }
      throw new Error(`what is stored: expected a, got ${seen}`);
    },
  },
  {
    title: "§17 at most 256 appends of a producer are held, and one more is answered at once",
    async run(site) {
      const stream = await site.stream();
      const answers = Array.from({ length: 257 }, (_, index) =>
        send(stream, "x", byEpoch("p", 0, index + 1)),
      );
      (await Promise.race(answers)).refused(409, "producer_gap", NOT_HELD);
      (await stream.delete()).expect(204);
      const all = await Promise.all(answers);
      const waited = all.filter(({ headers }) => headers.has("Preference-Applied"));
      equal(waited.length, 256, "appends that were held");
      for (const answer of waited) answer.refused(404, "stream_not_found");
    },
  },
];

export const patienceCases: readonly CaseSpec[] = [...held, ...ended, ...notHeld, ...timeouts];
