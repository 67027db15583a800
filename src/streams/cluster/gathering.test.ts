import { expect, test } from "vitest";
import { exchangeOf } from "../../../test/kits/server-stage.ts";
import { soleOwner } from "../cluster.ts";
import { json } from "../server/json.ts";
import { OPEN_GATE } from "../server/gate.ts";
import { openMemoryStore } from "../stores/memory.ts";
import { wholeBodyOf } from "./gather.ts";
import { Gathering, type GatheringParts } from "./gathering.ts";
import { KeptExchange } from "./kept-exchange.ts";

const LIST = { kind: "list", listed: { member: "streams", key: "path" } } as const;

/** A list of 100 shards, each with one entry. */
function openGathering(given: Pick<GatheringParts, "onShard">) {
  let turns = 0;
  const slices = {
    isWhole: false,
    take: () => false,
    async turn() {
      turns += 1;
      await Promise.resolve();
    },
  };
  const gathering = new Gathering({
    cluster: { ...soleOwner(openMemoryStore()), shards: 100 },
    gate: OPEN_GATE,
    counts: { forwarded: 0, resent: 0, lost: 0, waited: 0 },
    owned: () => [],
    writing: () => ({ stopped: undefined, isFull: false }),
    // The cast leaves out what needs a clock.
    engine: { slices: () => slices } as unknown as GatheringParts["engine"],
    ...given,
  });
  const exchange = exchangeOf("GET", "/_hapax/streams");
  return {
    turns: () => turns,
    list: () => gathering.answer(LIST, exchange, new KeptExchange(exchange)),
  };
}

test("PROTOCOL.md §24.3: a list of many shards holds the pages of a few of them at a time, and the loop for one", async () => {
  let running = 0;
  let runningMax = 0;
  const { turns, list } = openGathering({
    async onShard(shard) {
      running += 1;
      runningMax = Math.max(runningMax, running);
      await new Promise((resolve) => setImmediate(resolve));
      running -= 1;
      return json(200, { streams: [{ path: `/${String(shard).padStart(3, "0")}` }] });
    },
  });
  const { answer } = await list();
  const page = JSON.parse(new TextDecoder().decode(wholeBodyOf(answer))) as { streams: object[] };
  expect(page.streams).toEqual(
    Array.from({ length: 100 }, (_, at) => ({ path: `/${String(at).padStart(3, "0")}` })),
  );
  expect([runningMax, turns()]).toEqual([8, 100]);
});

test("PROTOCOL.md §24.3: after the refusal of one shard no more are asked", async () => {
  let asked = 0;
  const { list } = openGathering({
    onShard(shard) {
      asked += 1;
      return Promise.resolve(shard === 2 ? json(403, {}) : json(200, { streams: [] }));
    },
  });
  expect((await list()).answer.status).toBe(403);
  expect(asked).toBeLessThan(20);
});
