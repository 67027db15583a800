/** Cases of transactions: what readers see, and the outcome of a lost commit. PROTOCOL.md §12.1, §19.3, §19.4. */

import {
  at,
  byEpoch,
  byKey,
  bySession,
  type CaseSpec,
  type CaseStream,
  ensure,
  equal,
  type Site,
} from "./extension-case-kit.ts";
import {
  appendOf,
  committed,
  newKey,
  refusedAt,
  transact,
  TRANSACTIONS,
} from "./extension-case-transactions.ts";

const answers: readonly CaseSpec[] = [
  {
    title: "§19.3 a reader that has read one append of a transaction finds all the others",
    async run(site) {
      // Many streams in between: a server that goes from one to the next needs time for that.
      const first = await site.stream();
      const streams = [first];
      while (streams.length < 12) streams.push(await site.stream());
      const last = streams.at(-1) ?? first;
      let isDone = false;
      const watch = async (): Promise<void> => {
        while (!isDone) {
          const seen = (await first.read()).length;
          const found = (await last.read()).length;
          ensure(
            found >= seen,
            `appends of the last stream: expected at least ${seen}, got ${found}`,
          );
        }
      };
      const write = async (): Promise<void> => {
        for (let round = 0; round < 25; round += 1) {
          const operations = streams.map((stream) => appendOf(stream, "a"));
          (await transact(site, newKey(), operations)).expect(200);
        }
      };
      await Promise.all([watch(), write().finally(() => (isDone = true))]);
    },
  },
  {
    title:
      "§19.3 a live reader that receives one append of a transaction finds the other streams complete",
    async run(site) {
      const [one, other] = [await site.stream(), await site.stream()];
      const live = site.request("GET", `${one.path}?offset=${at(0)}&live=long-poll`);
      const seen = live.then(async (answer) => {
        equal(answer.expect(200).text, "a", "what the live reader gets");
        await other.holds("b");
      });
      (await transact(site, newKey(), [appendOf(one, "a"), appendOf(other, "b")])).expect(200);
      await seen;
    },
  },
  {
    title: "§12.1 the offsets of one list are of one instant: no transaction is cut",
    needs: ["admin"],
    async run(site) {
      const streams = [await site.stream(), await site.stream()] as const;
      const prefix = encodeURIComponent(streams[0].path.replace(/[^/]*$/, ""));
      let isDone = false;
      const watch = async (): Promise<void> => {
        while (!isDone) {
          const list = (await site.request("GET", `/_hapax/streams?prefix=${prefix}`)).json() as {
            readonly streams: readonly { readonly nextOffset: string }[];
          };
          const [one, other] = list.streams.map(({ nextOffset }) => nextOffset);
          equal(one, other, "the tails in one list");
        }
      };
      const write = async (): Promise<void> => {
        for (let round = 0; round < 25; round += 1) {
          const operations = streams.map((stream) => appendOf(stream, "ab"));
          (await transact(site, newKey(), operations)).expect(200);
        }
      };
      await Promise.all([watch(), write().finally(() => (isDone = true))]);
    },
  },
];

function outcome(site: Site, identity: string, query = ""): ReturnType<Site["request"]> {
  return site.request("GET", `${TRANSACTIONS}/${encodeURIComponent(identity)}${query}`);
}

async function told(site: Site, stream: CaseStream, identity: string, query = ""): Promise<void> {
  committed(await outcome(site, identity, query), [[stream, at(1)]]);
}

const lost: readonly CaseSpec[] = [
  {
    title:
      "§19.4 the outcome of a key is found with any characters in the key, and an unknown key has none",
    async run(site) {
      const stream = await site.stream();
      const key = `${crypto.randomUUID()}/a?b%20"\\é`.replace("é", "~");
      (await outcome(site, key)).refused(404, "transaction_not_found");
      const quoted = `"${key.replaceAll(/["\\]/g, String.raw`\$&`)}"`;
      (await transact(site, byKey(quoted), [appendOf(stream, "a")])).expect(200);
      await stream.append("b");
      await told(site, stream, key);
      (await outcome(site, `${key}x`)).refused(404, "transaction_not_found");
      const head = await site.request("HEAD", `${TRANSACTIONS}/${encodeURIComponent(key)}`);
      head.expect(200, { "Cache-Control": "no-store" });
    },
  },
  {
    title: "§19.4 the outcome of a producer is found by its sequence and epoch",
    async run(site) {
      const stream = await site.stream();
      const id = crypto.randomUUID();
      (await outcome(site, id, "?seq=0&epoch=3")).refused(404, "transaction_not_found");
      (await transact(site, byEpoch(id, 3, 0), [appendOf(stream, "a")])).expect(200);
      await told(site, stream, id, "?seq=0&epoch=3");
      (await outcome(site, id, "?seq=1&epoch=3")).refused(404, "transaction_not_found");
      (await outcome(site, id, "?seq=0&epoch=2")).refused(403, "producer_fenced");
      (await outcome(site, id, "?seq=0")).refused(400, "invalid_request");
    },
  },
  {
    title: "§19.4 the outcome of a session is found by its sequence and nonce",
    needs: ["sessions"],
    async run(site) {
      const stream = await site.stream();
      const id = crypto.randomUUID();
      (await transact(site, bySession(id, "n1", 0), [appendOf(stream, "a")])).expect(200);
      await told(site, stream, id, "?seq=0&session=n1");
      (await outcome(site, id, "?seq=1&session=n1")).refused(404, "transaction_not_found");
    },
  },
  {
    title: "§19.4 a refused transaction has no outcome",
    async run(site) {
      const key = crypto.randomUUID();
      const missing = site.newStream();
      const answer = await transact(site, byKey(key), [appendOf(missing, "a")]);
      refusedAt(answer, 0, 404, "stream_not_found");
      (await outcome(site, key)).refused(404, "transaction_not_found");
    },
  },
  {
    title: "§19.4 of an older transaction of a producer only that it is committed is known",
    async run(site) {
      const stream = await site.stream();
      const id = crypto.randomUUID();
      for (let sequence = 0; sequence < 34; sequence += 1) {
        const answer = await transact(site, byEpoch(id, 0, sequence), [appendOf(stream, "a")]);
        committed(answer, [[stream, at(sequence + 1)]]);
      }
      const old = (await outcome(site, id, "?seq=0&epoch=0")).expect(200).json();
      equal(old, { status: "committed", operations: null }, "the outcome of the first");
      const last = await outcome(site, id, "?seq=33&epoch=0");
      committed(last, [[stream, at(34)]]);
      const again = await transact(site, byEpoch(id, 0, 0), [appendOf(stream, "a")]);
      equal(again.expect(200).json(), old, "the answer to the retry of the first");
      await stream.holds("a".repeat(34));
    },
  },
  {
    title: "§19.4 other methods are refused, and Allow says which there are",
    async run(site) {
      const put = await site.request("PUT", TRANSACTIONS);
      put.refused(405, "method_not_allowed", { Allow: "POST, OPTIONS" });
      const post = await site.request("POST", `${TRANSACTIONS}/k`);
      post.refused(405, "method_not_allowed", { Allow: "GET, HEAD, OPTIONS" });
    },
  },
];

export const transactionAnswerCases: readonly CaseSpec[] = [...answers, ...lost];
