// A suite that passes everywhere says nothing: each rule that is broken here must be seen by the cases that are about
// it. PROTOCOL.md §12, §14 to §20.
import { isDeepStrictEqual } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type NodeServer, startNodeServer } from "../../src/streams/runtimes/node.ts";
import type { ExtensionCapability } from "../../src/testing/extension-conformance.ts";
import { extensionCapabilities, extensionCases } from "../../src/testing/testing.ts";
import type { ExtensionCase } from "../../src/testing/extension-conformance.ts";
import { brokenGroups } from "./wrong-groups.ts";
import {
  type Broken,
  type Passed,
  type Passing,
  refusal,
  startWrongServer,
  tailOf,
  type Wrong,
} from "./wrong-server.ts";
import { brokenTransactions } from "./wrong-transactions.ts";

let server: NodeServer;

beforeAll(async () => {
  server = await startNodeServer({ store: "memory", port: 0, onAudit: () => undefined });
});

afterAll(async () => {
  await server.stop();
});

const without = (...names: readonly string[]): Wrong => ({
  request({ headers }) {
    for (const name of names) delete headers[name];
  },
});

function withoutAnswer(passed: Passed, name: string): Passed {
  const headers = { ...passed.headers };
  delete headers[name];
  return { ...passed, headers };
}

let count = 0;
const isStream = (path: string): boolean => path.startsWith("/v1/stream/");
const isReset = (method: string, path: string): boolean =>
  method === "DELETE" && path.startsWith("/_hapax/producers/");

async function tellTheTail(
  passed: Passed,
  { method, path }: Passing,
  upstream: string,
): Promise<Passed> {
  if (method !== "POST" || passed.status !== 204 || !isStream(path)) return passed;
  const tail = (await tailOf(upstream, path)).headers["stream-next-offset"];
  return { ...passed, headers: { ...passed.headers, "stream-next-offset": tail } };
}

const broken: readonly Broken[] = [
  {
    rule: "a server that stores compressed bodies as they come",
    wrong: without("content-encoding"),
    seenBy: [
      "§4.5 a body with Content-Encoding: gzip is stored as what it decodes to",
      "§4.5 a body with Content-Encoding: deflate is stored as what it decodes to",
      "§4.5 the first body of a stream may be compressed",
      "§4.5 a retry may be compressed or not: what it decodes to counts",
      "§4.5 Content-Encoding: zstd is refused with the codings that are decoded",
      "§4.5 a compressed body that is cut is refused",
    ],
  },
  {
    rule: "a server that does not say what it decodes",
    wrong: { answer: async (passed) => withoutAnswer(passed, "accept-encoding") },
    seenBy: [
      "§4.5 HEAD says which codings are decoded",
      "§4.5 Content-Encoding: zstd is refused with the codings that are decoded",
    ],
  },
  {
    rule: "a server that forgets sessions",
    wrong: {
      request({ headers }) {
        count += 1;
        if ("producer-session" in headers) headers["producer-session"] = `forgotten-${count}`;
      },
    },
    seenBy: [
      "§14 a repeated append of the session is a duplicate",
      "§14 the next sequence of the session is accepted",
      "§14 a replaced session that had 0 and 1 is fenced, also with sequence 0",
      "§14 thirty copies of the first append at once are stored once",
      "§14 a nonce with a space is refused",
      "§15 the retry of a session is a duplicate and no conflict",
    ],
  },
  {
    rule: "a server that takes all sessions for one",
    wrong: {
      request({ headers }) {
        if ("producer-session" in headers) headers["producer-session"] = "one";
      },
    },
    seenBy: [
      "§14 the first append of an unknown session begins the next epoch",
      "§14 the nonces of the last 16 replaced sessions are all fenced",
      "§14 a replaced session that had 0 and 1 is fenced, also with sequence 2",
      "§14 of sessions that begin at once the last one goes on and all others are fenced",
    ],
  },
  {
    rule: "a server that takes a session for the epoch 0",
    wrong: {
      request({ headers }) {
        if ("producer-session" in headers) headers["producer-epoch"] = "0";
        delete headers["producer-session"];
      },
    },
    seenBy: [
      "§14 an epoch that a session has is fenced for others, with sequence 1",
      "§14 a session fences the older epochs of its producer",
      "§14 no session begins after the highest epoch",
      "§12.4 the list tells of each producer what the stream knows, in the order of the ids",
    ],
  },
  {
    rule: "a server that ignores If-Match",
    wrong: without("if-match"),
    seenBy: [
      "§15 at the tail 3 an append for 2 is refused with the tail and stores nothing",
      "§15 If-Match with a star matches no tail",
      "§15 of twenty appends at one tail exactly one is stored",
      "§15 If-Match: * on DELETE is refused and deletes nothing",
      "§4.1 the tail is compared before Stream-Seq",
    ],
  },
  {
    rule: "a server that looks at If-Match before it recognises a retry",
    wrong: {
      async instead({ method, path, headers }, upstream) {
        const wanted = headers["if-match"];
        if (method !== "POST" || wanted === undefined) return undefined;
        const tail = String((await tailOf(upstream, path)).headers["stream-next-offset"]);
        const tags = { etag: `"${tail}"`, "stream-next-offset": tail };
        return wanted === `"${tail}"` ? undefined : refusal(412, "tail_moved", tags);
      },
    },
    seenBy: [
      "§15 the retry of a producer is a duplicate and no conflict",
      "§15 the retry of a session is a duplicate and no conflict",
      "§15 the retry with a key is a duplicate and no conflict",
      "§4.1 a gap is reported before a moved tail",
      "§15 on a closed stream an append for another offset is refused as closed",
    ],
  },
  {
    rule: "a server that ignores If-None-Match",
    wrong: without("if-none-match"),
    seenBy: [
      "§15 If-None-Match: * is refused where the same stream is",
      "§15 of ten creations with If-None-Match: * at once exactly one creates",
      "§15 If-None-Match: * on POST is refused",
    ],
  },
  {
    rule: "a server that ignores Idempotency-Key",
    wrong: without("idempotency-key"),
    seenBy: [
      "§16 the answer to the same key with the same content has the offset of the original",
      "§16 the same key with other content is refused and stores nothing",
      "§16 thirty copies at once are stored once, and all but one are replays",
      "§16 a key with a bare space is refused",
      "§16 a key together with an epoch is refused: an append has one identity",
      "§16.2 a ULID that is older than the window is refused, a younger one is not",
    ],
  },
  {
    rule: "a server that compares keys without their case",
    wrong: {
      request({ headers }) {
        const key = headers["idempotency-key"];
        if (typeof key === "string") headers["idempotency-key"] = key.toLowerCase();
      },
    },
    seenBy: ["§16 keys are compared with their case"],
  },
  {
    rule: "a server that has one window of keys with a size of its own",
    wrong: without("stream-key-window", "stream-key-max", "stream-key-overflow", "stream-key-from"),
    seenBy: [
      "§16.1 a stream that was created with Stream-Key-Max says so, and names no other",
      "§16.1 evict forgets the oldest key, and a later retry of it is a new append",
      "§16.1 a key is forgotten after the window, counted from when it was stored",
      "§16.1 Stream-Key-Window: 0 is refused",
      "§16.3 two equal messages are stored once, and the second answer has the end of the first",
    ],
  },
  {
    rule: "a server that tells the tail to every retry",
    wrong: { answer: tellTheTail },
    seenBy: [
      "§16 the answer to the same key with the same content has the offset of the original",
      "§18 the answer to a duplicate of the last 32 appends of an epoch has the end of the original, an older one has the tail",
      "§18 the answer to a duplicate key has the original's offset, however old",
      "§18 on a closed stream the answer to a duplicate has the end of its original",
    ],
  },
  {
    rule: "a server that has no patience",
    wrong: without("prefer"),
    seenBy: [
      "§17 an append that overtakes the one before it is held and stored after it",
      "§17 appends in the wrong order are stored in the order of their sequences",
      "§17 after its time a held append is a gap, as without the header",
      "§17 a newer epoch ends the waiting",
    ],
  },
  {
    rule: "a server that stores what its client has given up",
    wrong: { isDeafToAborts: true },
    seenBy: ["§17 a held append that the client gives up is not stored"],
  },
  {
    rule: "a server that does not say that it has waited",
    wrong: {
      async answer(passed) {
        const { "preference-applied": _, ...headers } = passed.headers;
        return { ...passed, headers };
      },
    },
    seenBy: [
      "§17 an append that overtakes the one before it is held and stored after it",
      "§17 at most 256 appends of a producer are held, and one more is answered at once",
    ],
  },
  {
    rule: "a server that returns one record more than was asked for",
    wrong: {
      request(passing) {
        passing.path = passing.path.replace(
          /(?<=[?&]last=)[1-9][0-9]{0,2}(?=&|$)/,
          (count) => `${Number(count) + 1}`,
        );
      },
    },
    seenBy: [
      "§7.10 the last records are returned, also when they begin inside an append",
      "§7.10 of a stream that is not JSON the last appends are returned, whole",
      "§7.10 a stream is read backwards, without a gap, to an answer that is empty",
      "§7.10 a live reader gets the last records first",
    ],
  },
  {
    rule: "a server that looks for a time a day before",
    wrong: {
      request(passing) {
        passing.path = passing.path.replace(/(?<=[?&]at=)[0-9T:.-]+Z/, (time) =>
          new Date(Date.parse(time) - 86_400_000).toISOString(),
        );
      },
    },
    seenBy: [
      "§7.11 a read at a time begins with the first append that was stored then or later",
      "§7.11 what a fork has of its source keeps its times",
    ],
  },
  {
    rule: "a server that cannot be asked about a producer",
    wrong: {
      request({ method, headers }) {
        if (method === "HEAD") delete headers["producer-id"];
      },
    },
    seenBy: [
      "§18 HEAD with Producer-Id tells epoch, last sequence and where that append ended",
      "§18 what was answered is read back by the very next HEAD",
      "§18 HEAD with a Producer-Id that is empty is refused",
    ],
  },
  {
    rule: "a server whose metrics name streams",
    wrong: {
      async answer(passed, { path }) {
        if (isStream(path)) lastPath = path;
        if (path !== "/_hapax/metrics") return passed;
        const help = "# HELP hapax_tail Tail.\n# TYPE hapax_tail gauge\n";
        const body = `${passed.body}${help}hapax_tail{stream="${lastPath}"} 1\n`;
        return { ...passed, body };
      },
    },
    seenBy: ["§12.3 no metric names a stream, a producer or a key"],
  },
  {
    rule: "a server whose metrics are not Prometheus text",
    wrong: {
      async answer(passed, { path }) {
        if (path !== "/_hapax/metrics") return passed;
        return { ...passed, body: passed.body.replaceAll("# TYPE", "# KIND") };
      },
    },
    seenBy: [
      "§12.3 every line of the metrics is a comment or a sample of a family with help and type",
    ],
  },
  {
    rule: "a server that assigns one id to all",
    wrong: {
      async answer(passed, { method, path }) {
        if (method !== "POST" || path !== "/_hapax/producers") return passed;
        return { ...passed, body: JSON.stringify({ producerId: "0".repeat(32), epoch: 0 }) };
      },
    },
    seenBy: ["§12.4 POST assigns an id that no other producer has, and epoch 0"],
  },
  {
    rule: "a server whose reset forgets the fences too",
    wrong: {
      request({ method, path, headers }) {
        if (isReset(method, path)) count += 1;
        const nonce = headers["producer-session"];
        if (typeof nonce === "string") headers["producer-session"] = `${nonce}-${count}`;
      },
    },
    seenBy: ["§12.5 after a reset all nonces that were known stay fenced, also the last one"],
  },
  {
    rule: "a server whose reset does nothing",
    wrong: {
      async instead({ method, path }) {
        return isReset(method, path) ? { status: 204, headers: {}, body: "" } : undefined;
      },
    },
    seenBy: [
      "§12.5 a producer that was reset is not known any more, and its data stays",
      "§12.5 after a reset in epoch 4, epoch 0 with sequence 0 is accepted",
      "§12.5 a reset makes room after the highest epoch",
      "§12.5 a producer that is not known cannot be reset, nor one that was reset before",
    ],
  },
  {
    rule: "a server that tells one life for all streams",
    wrong: {
      answer: async (passed) =>
        "stream-life" in passed.headers
          ? { ...passed, headers: { ...passed.headers, "stream-life": "1" } }
          : passed,
    },
    seenBy: [
      "§7.9 a stream that is created anew has another life, and refuses readers of the one before",
      "§7.9 a fork has a life of its own",
    ],
  },
  {
    rule: "a server that does not look at the life that a reader names",
    wrong: {
      async answer(passed) {
        return passed.body.includes("stream_replaced")
          ? { ...passed, status: 200, headers: {}, body: "" }
          : passed;
      },
    },
    seenBy: [
      "§7.9 a stream that is created anew has another life, and refuses readers of the one before",
    ],
  },
  ...brokenTransactions,
  ...brokenGroups,
];
let lastPath = "";

/** A title that no case has would make a test that cannot fail. */
function casesNamed(url: string, titles: readonly string[]): readonly ExtensionCase[] {
  const cases = extensionCases({ url });
  return titles.map((title) => {
    const found = cases.find((each) => each.title === title);
    if (found === undefined) throw new Error(`there is no case "${title}"`);
    return found;
  });
}

async function complaintOf(each: ExtensionCase): Promise<string> {
  return each.run().then(
    () => "passed",
    (error: unknown) => (error instanceof Error ? error.message : String(error)),
  );
}

describe("each broken rule is seen", () => {
  test.for(broken.map((each) => [each.rule, each] as const))("%s", async ([, each]) => {
    const { wrong, seenBy } = each;
    const proxy = await startWrongServer(server.url, wrong);
    for (const named of casesNamed(proxy.url, seenBy)) {
      const complaint = await complaintOf(named);
      expect([named.title, complaint]).not.toEqual([named.title, "passed"]);
      // It is the rule that was missed, not the connection.
      expect(complaint).toMatch(/expected .*got /);
    }
    await proxy.stop();
  });
});

test("through a proxy that breaks nothing the same cases pass", async () => {
  const proxy = await startWrongServer(server.url, {});
  const titles = new Set(broken.flatMap(({ seenBy }) => seenBy));
  const cases = casesNamed(proxy.url, [...titles]);
  const complaints = await Promise.all(cases.map(complaintOf));
  expect(complaints.filter((complaint) => complaint !== "passed")).toEqual([]);
  await proxy.stop();
});

const TRANSACTIONS = "/_hapax/transactions";
const GROUPS = "/_hapax/groups";

function withoutRoute(root: string): Wrong {
  return {
    async instead({ path }) {
      return path.startsWith(root) ? refusal(404, "not_found") : undefined;
    },
  };
}

/** Transactions have keys of their own. */
function onStreams(wrong: Wrong): Wrong {
  return {
    request(passing) {
      if (isStream(passing.path)) wrong.request?.(passing);
    },
  };
}

/** Servers that do not have one of the extensions. */
const lacking: Readonly<Record<ExtensionCapability, Wrong>> = {
  sessions: without("producer-session"),
  compare: {
    request({ method, headers }) {
      if (method === "GET") return;
      delete headers["if-match"];
      delete headers["if-none-match"];
    },
  },
  keys: onStreams(without("idempotency-key")),
  windows: without("stream-key-window", "stream-key-max", "stream-key-overflow", "stream-key-from"),
  patience: without("prefer"),
  "reading-back": {
    request({ method, headers }) {
      if (method === "HEAD") delete headers["producer-id"];
    },
    answer: async (passed, passing, upstream) =>
      "producer-seq" in passed.headers ? tellTheTail(passed, passing, upstream) : passed,
  },
  lives: {
    answer: async (passed) => withoutAnswer(passed, "stream-life"),
  },
  admin: {
    async instead({ path }) {
      const others = [
        TRANSACTIONS,
        GROUPS,
        "/_hapax/trim",
        "/_hapax/retention",
        "/_hapax/compaction",
        "/_hapax/follow",
      ];
      if (others.some((other) => path.startsWith(other))) return undefined;
      return path.startsWith("/_hapax/") ? refusal(404, "not_found") : undefined;
    },
  },
  transactions: withoutRoute(TRANSACTIONS),
  groups: withoutRoute(GROUPS),
  compression: {
    async instead({ headers }) {
      const { "content-encoding": coding = "identity" } = headers;
      return coding === "identity" ? undefined : refusal(415, "unsupported_encoding");
    },
    answer: async (passed) => withoutAnswer(passed, "accept-encoding"),
  },
  retention: {
    ...without("stream-retention"),
    async instead({ path }) {
      const isIts = path.startsWith("/_hapax/trim") || path.startsWith("/_hapax/retention");
      return isIts ? refusal(404, "not_found") : undefined;
    },
  },
  compaction: {
    ...without("stream-compact-key"),
    async instead({ path }) {
      return path.startsWith("/_hapax/compaction") ? refusal(404, "not_found") : undefined;
    },
  },
  seeking: {
    request: (passing) => {
      passing.path = passing.path.replaceAll(/(?<=[?&])(?:last|at)=/g, "x=");
    },
    answer: async (passed) => withoutAnswer(passed, "stream-start-offset"),
  },
  "follow-all": withoutRoute("/_hapax/follow"),
};

/** Breaks nothing, and sees which of the servers that lack something would have changed what passes. */
function watching(seen: Set<ExtensionCapability>): Wrong {
  const wrongs = extensionCapabilities.map((lack) => [lack, lacking[lack]] as const);
  return {
    request(passing) {
      for (const [lack, wrong] of wrongs) {
        const copy = { ...passing, headers: { ...passing.headers } };
        wrong.request?.(copy);
        if (!isDeepStrictEqual(copy, passing)) seen.add(lack);
      }
    },
    async instead(passing, upstream) {
      for (const [lack, wrong] of wrongs) {
        if ((await wrong.instead?.(passing, upstream)) !== undefined) seen.add(lack);
      }
      return undefined;
    },
    async answer(passed, passing, upstream) {
      for (const [lack, wrong] of wrongs) {
        const answer = await wrong.answer?.(passed, passing, upstream);
        if (answer !== undefined && !isDeepStrictEqual(answer, passed)) seen.add(lack);
      }
      return passed;
    },
  };
}

const quickCases = (url: string, capabilities = extensionCapabilities): readonly ExtensionCase[] =>
  extensionCases({ url, capabilities }).filter(({ isSlow }) => !isSlow);

/** Works on all of them, a few at a time. */
async function onEach<T>(items: readonly T[], work: (item: T) => Promise<void>): Promise<void> {
  const left = [...items];
  const next = async (): Promise<void> => {
    for (let item = left.pop(); item !== undefined; item = left.pop()) await work(item);
  };
  await Promise.all(Array.from({ length: 16 }, next));
}

describe("a server that says what it lacks", () => {
  // A case whose exchange a server would not change passes there as it does here: only the others are run again.
  const changed = new Map(extensionCapabilities.map((lack) => [lack, new Set<string>()]));

  beforeAll(async () => {
    const failed: string[] = [];
    await onEach(quickCases(server.url), async ({ title }) => {
      const seen = new Set<ExtensionCapability>();
      const proxy = await startWrongServer(server.url, watching(seen));
      const [watched] = casesNamed(proxy.url, [title]);
      const complaint = watched === undefined ? "not found" : await complaintOf(watched);
      if (complaint !== "passed") failed.push(`${title}: ${complaint}`);
      for (const lack of seen) changed.get(lack)?.add(title);
      await proxy.stop();
    });
    expect(failed).toEqual([]);
  });

  test.for(extensionCapabilities)("is asked nothing that needs %s", async (lack) => {
    const titles = changed.get(lack) ?? new Set();
    // The cases that are about it are among them, or the watch saw nothing.
    expect(titles.size).toBeGreaterThan(0);
    const proxy = await startWrongServer(server.url, lacking[lack]);
    const others = extensionCapabilities.filter((capability) => capability !== lack);
    const cases = quickCases(proxy.url, others).filter(({ title }) => titles.has(title));
    const failed: string[] = [];
    await onEach(cases, async (each) => {
      const complaint = await complaintOf(each);
      if (complaint !== "passed") failed.push(`${each.title}: ${complaint}`);
    });
    expect(failed).toEqual([]);
    await proxy.stop();
  });
});
