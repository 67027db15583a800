/** Cases of transactions: retries, refusals by operation, expectations, acks. PROTOCOL.md §19.2. */

import {
  at,
  atOnce,
  byEpoch,
  bySession,
  type CaseSpec,
  countWithStatus,
  equal,
  JSON_TYPE,
  type Site,
  TEXT,
} from "./extension-case-kit.ts";
import {
  appendOf,
  type CaseOperation,
  committed,
  newKey,
  refusedAt,
  transact,
} from "./extension-case-transactions.ts";

const REPLAYED = { "Idempotency-Replayed": "true" };
const NEW = { "Idempotency-Replayed": undefined };

const retries: readonly CaseSpec[] = [
  {
    title: "§19.2 a retry is answered as the original was, and stores nothing",
    async run(site) {
      const [one, other] = [await site.stream(), await site.stream()];
      const key = newKey();
      const operations = [appendOf(one, "a"), appendOf(other, "b")];
      const original = (await transact(site, key, operations)).expect(200, NEW);
      await one.append("x");
      const retry = (await transact(site, key, operations)).expect(200, REPLAYED);
      equal(retry.json(), original.json(), "the answer to the retry");
      await one.holds("ax");
      await other.holds("b");
    },
  },
  {
    title: "§19.2 thirty copies at once are one transaction, and all have the same answer",
    async run(site) {
      const [one, other] = [await site.stream(), await site.stream()];
      const key = newKey();
      const operations = [appendOf(one, "a"), appendOf(other, "b")];
      const answers = await atOnce(30, () => transact(site, key, operations));
      equal(countWithStatus(answers, 200), 30, "answers with status 200");
      equal(new Set(answers.map(({ text }) => text)).size, 1, "different answers");
      const replays = answers.filter(({ headers }) => headers.has("Idempotency-Replayed"));
      equal(replays.length, 29, "replays");
      await one.holds("a");
      await other.holds("b");
    },
  },
  {
    title: "§19.2 a retry is answered as the original was when its streams are closed or gone",
    async run(site) {
      const [one, other] = [await site.stream(), await site.jsonStream()];
      const key = newKey();
      const expectation = { expect: { stream: one.path, offset: at(0) } };
      const operations = [expectation, appendOf(one, "a"), appendOf(other, "1")];
      const original = (await transact(site, key, operations)).expect(200);
      await one.close();
      await other.delete();
      const retry = (await transact(site, key, operations)).expect(200, REPLAYED);
      equal(retry.text, original.text, "the answer to the retry");
    },
  },
  {
    title: "§19.2 a retry is known also if its data does not fit the stream any more",
    async run(site) {
      const stream = await site.stream();
      const key = newKey();
      const operations = [appendOf(stream, "no JSON")];
      const original = (await transact(site, key, operations)).expect(200);
      await stream.delete();
      (await site.request("PUT", stream.path, { headers: JSON_TYPE })).expect(201);
      const retry = (await transact(site, key, operations)).expect(200, REPLAYED);
      equal(retry.text, original.text, "the answer to the retry");
      refusedAt(await transact(site, newKey(), operations), 0, 400, "invalid_json");
    },
  },
  {
    title: "§19.2 other content under a key is refused and nothing is done",
    async run(site) {
      const stream = await site.stream();
      const key = newKey();
      (await transact(site, key, [appendOf(stream, "a")])).expect(200);
      (await transact(site, key, [appendOf(stream, "b")])).refused(422, "key_reused");
      const more = [appendOf(stream, "a"), { close: { stream: stream.path } }];
      (await transact(site, key, more)).refused(422, "key_reused");
      await stream.holds("a");
    },
  },
  {
    title: "§19.2 a producer's retry is a replay, with the sequence of the retry",
    async run(site) {
      const stream = await site.stream();
      const id = crypto.randomUUID();
      for (const sequence of [0, 1]) {
        (await transact(site, byEpoch(id, 0, sequence), [appendOf(stream, "a")])).expect(200, NEW);
      }
      const retry = await transact(site, byEpoch(id, 0, 0), [appendOf(stream, "a")]);
      const own = { "Producer-Epoch": "0", "Producer-Seq": "0" };
      committed(retry.expect(200, { ...REPLAYED, ...own }), [[stream, at(1)]]);
      await stream.holds("aa");
    },
  },
  {
    title: "§19.2 a producer has gaps and is fenced as on a stream, and nothing is done",
    async run(site) {
      const stream = await site.stream();
      const id = crypto.randomUUID();
      const send = (epoch: number, sequence: number): ReturnType<typeof transact> =>
        transact(site, byEpoch(id, epoch, sequence), [appendOf(stream, "a")]);
      (await send(1, 0)).expect(200);
      const numbers = { "Producer-Expected-Seq": "1", "Producer-Received-Seq": "2" };
      (await send(1, 2)).refused(409, "producer_gap", numbers);
      (await send(0, 0)).refused(403, "producer_fenced", { "Producer-Epoch": "1" });
      (await send(2, 1)).refused(400, "epoch_start");
      await stream.holds("a");
    },
  },
  {
    title: "§19.2 a session's retry is a replay, and a replaced session is fenced",
    needs: ["sessions"],
    async run(site) {
      const stream = await site.stream();
      const id = crypto.randomUUID();
      const send = (nonce: string): ReturnType<typeof transact> =>
        transact(site, bySession(id, nonce, 0), [appendOf(stream, "a")]);
      (await send("n1")).expect(200, NEW);
      (await send("n1")).expect(200, REPLAYED);
      (await send("n2")).expect(200, NEW);
      (await send("n1")).refused(403, "producer_fenced");
      await stream.holds("aa");
    },
  },
  {
    title: "§19.2 a refused transaction consumes no identity",
    async run(site) {
      const stream = await site.stream();
      const missing = site.newStream();
      const id = crypto.randomUUID();
      for (const identity of [newKey(), byEpoch(id, 0, 0)]) {
        const wrong = [appendOf(stream, "a"), appendOf(missing, "a")];
        refusedAt(await transact(site, identity, wrong), 1, 404, "stream_not_found");
        (await transact(site, identity, [appendOf(stream, "b")])).expect(200, NEW);
      }
      await stream.holds("bb");
    },
  },
];

interface Impossible {
  readonly what: string;
  readonly status: number;
  readonly code: string;
  readonly operation: (site: Site) => Promise<CaseOperation>;
}

const impossible: readonly Impossible[] = [
  {
    what: "an append to a stream that is not there",
    status: 404,
    code: "stream_not_found",
    operation: async (site) => appendOf(site.newStream(), "a"),
  },
  {
    what: "an append to a stream that was deleted and has a fork",
    status: 410,
    code: "stream_gone",
    async operation(site) {
      const stream = await site.stream({}, "a");
      await site.fork(stream);
      await stream.delete();
      return appendOf(stream, "a");
    },
  },
  {
    what: "an append to a closed stream",
    status: 409,
    code: "stream_closed",
    async operation(site) {
      const stream = await site.stream();
      await stream.close();
      return appendOf(stream, "a");
    },
  },
  {
    what: "an append of another content type",
    status: 409,
    code: "content_type_mismatch",
    operation: async (site) => appendOf(await site.stream(), "a", { contentType: "text/html" }),
  },
  {
    what: "an append that is no JSON for a JSON stream",
    status: 400,
    code: "invalid_json",
    operation: async (site) => appendOf(await site.jsonStream(), "{"),
  },
  {
    what: "an append of an empty array",
    status: 400,
    code: "invalid_json",
    operation: async (site) => appendOf(await site.jsonStream(), "[]"),
  },
  {
    what: "the creation of a stream that has another configuration",
    status: 409,
    code: "stream_exists",
    operation: async (site) => ({
      create: { stream: (await site.stream()).path, contentType: "text/html" },
    }),
  },
  {
    what: "the close of a stream that is not there",
    status: 404,
    code: "stream_not_found",
    operation: async (site) => ({ close: { stream: site.newStream().path } }),
  },
  {
    what: "the expectation of another tail",
    status: 412,
    code: "tail_moved",
    operation: async (site) => ({
      expect: { stream: (await site.stream({}, "ab")).path, offset: at(1) },
    }),
  },
  {
    what: "the expectation that a stream is not there",
    status: 412,
    code: "stream_present",
    operation: async (site) => ({ expect: { stream: (await site.stream()).path, absent: true } }),
  },
  {
    what: "the commit to a group that is not there",
    status: 404,
    code: "group_not_found",
    operation: async (site) => ({
      commit: {
        group: site.newGroup(),
        member: "m",
        stream: (await site.stream()).path,
        token: 1,
        offset: at(0),
      },
    }),
  },
  {
    what: "an ack with a token of no subscription",
    status: 401,
    code: "token_invalid",
    operation: async () => ({
      ack: { subscription: crypto.randomUUID(), token: "t", wakeId: "w", generation: 1, acks: [] },
    }),
  },
];

const refusals: readonly CaseSpec[] = impossible.map(({ what, status, code, operation }) => ({
  title: `§19.2 ${what} refuses all operations by its index`,
  needs: code === "group_not_found" ? (["groups"] as const) : [],
  async run(site) {
    const [one, other] = [await site.stream(), site.newStream()];
    const operations = [
      appendOf(one, "a"),
      { create: { stream: other.path, contentType: "text/plain" } },
      await operation(site),
      appendOf(one, "b"),
    ];
    refusedAt(await transact(site, newKey(), operations), 2, status, code);
    (await one.head()).expect(200, { "Stream-Next-Offset": at(0) });
    (await other.head()).expect(404);
  },
}));

const orders: readonly CaseSpec[] = [
  {
    title: "§19.2 expectations are about the state before the transaction",
    async run(site) {
      const [stream, fresh] = [await site.stream({}, "ab"), site.newStream()];
      const answer = await transact(site, newKey(), [
        appendOf(stream, "c"),
        { create: { stream: fresh.path, contentType: "text/plain" } },
        { expect: { stream: stream.path, offset: at(2) } },
        { expect: { stream: fresh.path, absent: true } },
      ]);
      committed(answer, [[stream, at(3)], [fresh, at(0)], undefined, undefined]);
    },
  },
  {
    title: "§19.2 expectations are looked at before all operations",
    async run(site) {
      const [stream, missing] = [await site.stream({}, "ab"), site.newStream()];
      const operations = [
        appendOf(missing, "a"),
        { expect: { stream: stream.path, offset: at(2) } },
        { expect: { stream: stream.path, offset: at(9) } },
      ];
      const problem = refusedAt(await transact(site, newKey(), operations), 2, 412, "tail_moved");
      equal(problem["tail"], at(2), "tail in the refusal");
      equal(problem["stream"], stream.path, "stream in the refusal");
    },
  },
  {
    title: "§19.2 an operation sees what those before it have done",
    async run(site) {
      const [stream, fresh] = [await site.stream(), site.newStream()];
      const close = { close: { stream: stream.path } };
      const late = await transact(site, newKey(), [close, appendOf(stream, "a")]);
      refusedAt(late, 1, 409, "stream_closed");
      const create = { create: { stream: fresh.path, contentType: "text/plain" } };
      const early = await transact(site, newKey(), [appendOf(fresh, "a"), create]);
      refusedAt(early, 0, 404, "stream_not_found");
      (await stream.append("a")).expect(204);
      (await fresh.head()).expect(404);
    },
  },
  {
    title: "§19.2 of twenty transactions that expect one tail exactly one is committed",
    async run(site) {
      const [stream, log] = [await site.stream(), await site.stream()];
      const answers = await atOnce(20, () =>
        transact(site, newKey(), [
          { expect: { stream: stream.path, offset: at(0) } },
          appendOf(stream, "a"),
          appendOf(log, "b"),
        ]),
      );
      equal(
        [countWithStatus(answers, 200), countWithStatus(answers, 412)],
        [1, 19],
        "committed and refused",
      );
      await stream.holds("a");
      await log.holds("b");
    },
  },
  {
    title: "§19.2 an ack and an output are one, and a wake that is over refuses both",
    async run(site) {
      const folder = site.pattern.slice("/v1/stream/".length, -3);
      const [input, wakes, output] = [
        site.newStream(),
        site.newStream(JSON_TYPE),
        site.newStream(),
      ];
      for (const stream of [input, wakes, output]) (await stream.create()).expect(201);
      const relative = input.path.slice("/v1/stream/".length);
      const id = folder.replaceAll("/", "-");
      const path = `/v1/stream/__ds/subscriptions/${id}`;
      const send = (method: string, end: string, body: unknown): ReturnType<Site["request"]> =>
        site.request(method, path + end, { headers: JSON_TYPE, body: JSON.stringify(body) });
      const wake_stream = wakes.path.slice("/v1/stream/".length);
      const wanted = { type: "pull-wake", streams: [relative], wake_stream };
      (await send("PUT", "", wanted)).expect(201);
      (await input.append("ab", TEXT)).expect(204);
      const claim = (await send("POST", "/claim", { worker: "w" })).expect(200).json() as {
        readonly token: string;
        readonly wake_id: string;
        readonly generation: number;
      };
      const { token, wake_id: wakeId, generation } = claim;
      const acks = [{ stream: input.path, offset: at(2) }];
      const ack = { ack: { subscription: id, token, wakeId, generation, acks, done: true } };
      const inside = { ack: { ...ack.ack, acks: [{ stream: input.path, offset: at(1) }] } };
      const operations = [appendOf(output, "b"), ack];
      const forged = { ack: { ...ack.ack, token: `${token}x` } };
      refusedAt(
        await transact(site, newKey(), [appendOf(output, "c"), forged]),
        1,
        401,
        "token_invalid",
      );
      const early = await transact(site, newKey(), [appendOf(output, "c"), inside]);
      refusedAt(early, 1, 409, "invalid_ack");
      const key = newKey();
      committed(await transact(site, key, operations), [[output, at(1)], undefined]);
      refusedAt(await transact(site, newKey(), operations), 1, 409, "subscription_fenced");
      (await transact(site, key, operations)).expect(200, REPLAYED);
      await output.holds("b");
      (await site.request("DELETE", path)).expect(204);
    },
  },
];

export const transactionDecisionCases: readonly CaseSpec[] = [...retries, ...refusals, ...orders];
