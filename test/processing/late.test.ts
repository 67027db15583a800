// Every request of a run, sent once more when the run is over: nothing of it has an effect. PROTOCOL.md §19, §20
import { afterAll, beforeAll, expect, test } from "vitest";
import { connectServer } from "../../src/client/processing.ts";
import { type NodeServer, startNodeServer } from "../../src/streams/runtimes/node.ts";
import { createSeededRandom } from "../../src/testing/seeded-random.ts";

const STREAMS = 6;
const RECORDS = 40;
const OUT = "/v1/stream/out";
const input = (index: number): string => `/v1/stream/in/${index}`;

interface Recorded {
  readonly url: string;
  readonly init: RequestInit;
}

let server: NodeServer;
beforeAll(async () => {
  server = await startNodeServer({ store: "memory", port: 0 });
});
afterAll(async () => {
  await server.stop();
});

/** A connection whose writes are noted down as they leave. */
function connectRecording(requests: Recorded[]) {
  return connectServer(server.url, {
    async fetch(resource, init = {}) {
      const { url } = new Request(resource);
      const isAct = init.method === "POST" && !url.endsWith("/join");
      if (isAct && url.includes("/_hapax/"))
        requests.push({ url, init: { ...init, signal: null } });
      return fetch(url, init);
    },
  });
}

/** All that a late request could have changed. */
async function stateOf(group: string): Promise<unknown> {
  const list = await fetch(`${server.url}/_hapax/streams`);
  const { streams } = (await list.json()) as { streams: readonly { path: string }[] };
  const contents = await Promise.all(
    streams.map(async ({ path }) => (await fetch(`${server.url}${path}?offset=-1`)).text()),
  );
  const described = await fetch(`${server.url}/_hapax/groups/${group}`);
  const { members, cursors } = (await described.json()) as {
    members: readonly { member: string; leases: number }[];
    cursors: readonly unknown[];
  };
  const names = members.map(({ member, leases }) => ({ member, leases }));
  return { streams, contents, names, cursors };
}

test("G21 G22 no late commit, claim, release, leave or transaction of an earlier life has an effect", async () => {
  const requests: Recorded[] = [];
  const hapax = connectRecording(requests);
  await hapax.transaction((tx) => {
    tx.create(OUT);
    for (let index = 0; index < STREAMS; index += 1) tx.create(input(index));
  });
  for (let index = 0; index < STREAMS; index += 1) {
    for (let record = 0; record < RECORDS; record += 1) {
      await hapax.transaction((tx) => {
        tx.append(input(index), { index, record });
      });
    }
  }
  let copied = 0;
  const ends = new AbortController();
  const consumers = Array.from({ length: 3 }, (_, index) =>
    hapax.consumer({ group: "copy", pattern: "/v1/stream/in/*", leaseMs: 1000, name: `c${index}` }),
  );
  // The first one begins alone, and holds all streams: it has to hand some over to the others.
  let begin: () => void = () => undefined;
  const begun = new Promise<void>((resolve) => {
    begin = resolve;
  });
  const runs = consumers.map(async (consumer, index) => {
    if (index > 0) await begun;
    await consumer.run(
      async (batch) => {
        if (index === 0) begin();
        // Two ways to commit: with its output, and by itself.
        if (index > 0) {
          await hapax.transaction((tx) => {
            for (const record of batch.records) tx.append(OUT, record);
            tx.commit(batch);
          });
        } else {
          await batch.commit();
        }
        copied += batch.records.length;
        if (copied >= STREAMS * RECORDS) ends.abort();
      },
      { signal: ends.signal },
    );
  });
  await Promise.all(runs);

  // The next life: it holds all the leases now.
  const heir = connectServer(server.url);
  for (let index = 0; index < STREAMS; index += 1) {
    await heir.stream(input(index)).append({ index, record: "late" });
  }
  await using consumer = heir.consumer({ group: "copy" });
  const first = await consumer.next();
  expect(first.done).toBe(false);

  const before = await stateOf("copy");
  const random = createSeededRandom(3);
  const kinds = new Set<string>();
  for (let round = 0; round < 2; round += 1) {
    for (const { url, init } of requests.toSorted(() => random.below(2) - 0.5)) {
      kinds.add(url.slice(url.lastIndexOf("/") + 1));
      const { status } = await fetch(url, init);
      expect(status).toBeLessThan(500);
    }
  }
  expect([...kinds].toSorted()).toEqual(["claim", "commit", "leave", "release", "transactions"]);
  expect(requests.length).toBeGreaterThan(STREAMS * RECORDS);
  expect(await stateOf("copy")).toEqual(before);
}, 60_000);
