/** Cases of changelogs: the newest record of each key stays, and readers never miss a deletion. PROTOCOL.md §26. */

import {
  type CaseAnswer,
  type CaseSpec,
  type CaseStream,
  equal,
  JSON_TYPE,
  sleepMs,
  TEXT,
} from "./extension-case-kit.ts";

const HEADER = "Stream-Compact-Key";
const EARLIEST = "Stream-Earliest-Offset";

const setRule = (stream: CaseStream, rule: string): Promise<CaseAnswer> =>
  stream.site.request("PUT", `/_hapax/compaction?${stream.query}`, { headers: { [HEADER]: rule } });

const create = (stream: CaseStream, rule: string): Promise<CaseAnswer> =>
  stream.create({ [HEADER]: rule });

interface Entry {
  readonly id: string;
  readonly value?: unknown;
}

/** Reads all pages from an offset on. */
async function recordsFrom(stream: CaseStream, from = "-1"): Promise<readonly Entry[]> {
  const records: Entry[] = [];
  for (let offset = from; ;) {
    const answer = await stream.site.request("GET", `${stream.path}?offset=${offset}`);
    if (answer.status === 410) return recordsFrom(stream);
    answer.expect(200);
    records.push(...(JSON.parse(answer.text) as readonly Entry[]));
    offset = answer.headers.get("Stream-Next-Offset") ?? "";
    if (answer.headers.get("Stream-Up-To-Date") === "true") return records;
  }
}

function folded(records: readonly Entry[]): ReadonlyMap<string, unknown> {
  const state = new Map<string, unknown>();
  for (const { id, value } of records) {
    if (value === undefined) state.delete(id);
    else state.set(id, value);
  }
  return state;
}

/** More than a server leaves alone: 3 MB of updates of a few keys. */
async function update(stream: CaseStream, rounds = 30): Promise<void> {
  const filler = "x".repeat(1000);
  for (let round = 0; round < rounds; round += 1) {
    const records = Array.from({ length: 100 }, (_, n) => ({
      id: `k${String(n % 10)}`,
      value: [round, n, filler],
    }));
    (await stream.append(JSON.stringify(records))).expect(204);
  }
}

const earliestOf = async (stream: CaseStream): Promise<string> =>
  (await stream.head()).expect(200).headers.get(EARLIEST) ?? "";

/** Waits until the beginning of the stream has moved. */
async function untilCompacted(stream: CaseStream): Promise<void> {
  const before = Date.now();
  const first = /^0+_0+$/;
  while (first.test(await earliestOf(stream))) {
    equal(Date.now() - before < 20_000, true, "a changelog of 3 MB is compacted within 20 s");
    await sleepMs(50);
  }
}

export const compactionCases: readonly CaseSpec[] = [
  {
    title: "§26.1 the key of a changelog stands on its creation and on HEAD",
    async run(site) {
      const stream = site.newStream(JSON_TYPE);
      const rule = "id, tombstone=value, lag=0";
      (await create(stream, "id,tombstone=value,lag=0")).expect(201, { [HEADER]: rule });
      (await create(stream, rule)).expect(200, { [HEADER]: rule });
      (await stream.head()).expect(200, { [HEADER]: rule });
      (await create(stream, "other")).refused(409, "stream_exists");
      (await setRule(stream, "user.id")).expect(204);
      (await stream.head()).expect(200, { [HEADER]: "user.id, lag=60" });
      (await setRule(stream, "none")).expect(204);
      (await stream.head()).expect(200, { [HEADER]: undefined });
    },
  },
  {
    title: "§26.1 the key of a changelog stands in its description",
    needs: ["admin"],
    async run(site) {
      const stream = site.newStream(JSON_TYPE);
      const rule = "id, tombstone=value, lag=0";
      (await create(stream, rule)).expect(201);
      const shown = await site.request("GET", `/_hapax/stream?${stream.query}`);
      equal(
        (JSON.parse(shown.expect(200).text) as { compactKey?: string }).compactKey,
        rule,
        "the key in the description",
      );
    },
  },
  {
    title: "§26.1 a rule that is none, and one for a stream without records, are refused",
    async run(site) {
      const stream = site.newStream(JSON_TYPE);
      for (const rule of ["", "a..b", "id, lag=-1", "id, lag=1, lag=1", "id, tomb=1", "a b"]) {
        (await create(stream, rule)).refused(400, "invalid_request");
      }
      (await stream.create({ ...TEXT, [HEADER]: "id" })).refused(400, "invalid_request");
      (await stream.head()).expect(404);
      (await setRule(stream, "id")).refused(404, "stream_not_found");
      const text = await site.letters("ab");
      (await setRule(text, "id")).refused(400, "invalid_request");
      (await text.head()).expect(200, { [HEADER]: undefined });
      const without = await site.request("PUT", `/_hapax/compaction?${text.query}`);
      without.refused(400, "invalid_request");
    },
  },
  {
    title: "§26.2 a changelog keeps the newest record of each key, and forgets what is deleted",
    isSlow: true,
    async run(site) {
      const stream = site.newStream(JSON_TYPE);
      (await create(stream, "id, tombstone=value, lag=0")).expect(201);
      const head = [{ id: "old", value: 1 }, { id: "gone", value: 1 }, { id: "gone" }];
      (await stream.append(JSON.stringify(head))).expect(204);
      await update(stream);
      await untilCompacted(stream);
      await update(stream, 1);
      const state = folded(await recordsFrom(stream));
      equal([...state.keys()].toSorted().join(), "k0,k1,k2,k3,k4,k5,k6,k7,k8,k9,old", "the keys");
      equal(state.get("old"), 1, "the value of a key that never changed");
      equal((state.get("k9") as readonly number[])[1], 99, "the newest value of a key");
    },
  },
  {
    title: "§26.3 a reader before the beginning of a changelog is refused, and no offset changes",
    isSlow: true,
    async run(site) {
      const stream = site.newStream(JSON_TYPE);
      (await create(stream, "id, lag=0")).expect(201);
      await update(stream);
      const { headers } = (await stream.head()).expect(200);
      const tail = headers.get("Stream-Next-Offset") ?? "";
      await untilCompacted(stream);
      const zero = tail.replace(/\d/g, "0");
      const refused = await site.request("GET", `${stream.path}?offset=${zero}`);
      refused.refused(410, "offset_trimmed");
      const behind = await recordsFrom(stream, tail);
      const repeated = behind.every(({ id, value }) => id.startsWith("k") && value !== undefined);
      equal(repeated, true, "behind the old tail are newest records of keys");
    },
  },
  {
    title: "§26.2 what a group has not processed yet is not compacted",
    isSlow: true,
    needs: ["groups"],
    async run(site) {
      const stream = site.newStream(JSON_TYPE);
      (await create(stream, "id, lag=0")).expect(201);
      const group = `/_hapax/groups/${encodeURIComponent(site.newGroup())}`;
      const body = JSON.stringify({ streams: [stream.path], start: "beginning" });
      (await site.request("PUT", group, { body, headers: JSON_TYPE })).expect(201);
      await update(stream);
      await sleepMs(1000);
      equal((await recordsFrom(stream)).length, 3000, "the records");
      (await site.request("DELETE", group)).expect(204);
    },
  },
];
