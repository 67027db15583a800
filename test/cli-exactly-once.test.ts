/** Commands against a real server in this process: sessions, keys, conditions and producers. */

import type { AuditEntry } from "../src/streams/log.ts";
import { afterEach, beforeEach, describe, expect, test } from "vitest";

import { type NodeServer, startNodeServer } from "../src/streams/runtimes/node.ts";
import { hapax as run, type World } from "./kits/cli-harness.ts";

let server: NodeServer;
let audit: AuditEntry[] = [];

beforeEach(async () => {
  audit = [];
  server = await startNodeServer({
    store: "memory",
    port: 0,
    onAudit: (entry) => audit.push(entry),
  });
});

afterEach(() => server.stop());

const offset = (bytes: number): string => `${"0".repeat(16)}_${String(bytes).padStart(16, "0")}`;

let runs = 0;

const hapax = (words: readonly string[], world: World = {}) =>
  run([...words, "--url", server.url], { id: `run-${String((runs += 1))}`, ...world });

const readAll = async (stream: string): Promise<string> => (await hapax(["read", stream])).stdout;

/** The real fetch, whose answers to POST get lost where `isLost` says so, after the server has acted. */
function losing(isLost: (nthPost: number) => boolean): typeof globalThis.fetch {
  let posts = 0;
  return async (input, init) => {
    const response = await fetch(input, init);
    if (init?.method !== "POST") return response;
    posts += 1;
    if (!isLost(posts)) return response;
    await response.arrayBuffer();
    throw new TypeError("the answer is lost");
  };
}

/** The real fetch, with something done before the nth POST. */
function before(nthPost: number, act: () => Promise<unknown>): typeof globalThis.fetch {
  let posts = 0;
  return async (input, init) => {
    if (init?.method === "POST") posts += 1;
    if (init?.method === "POST" && posts === nthPost) await act();
    return fetch(input, init);
  };
}

/** A line that fills a request of its own. */
const large = (letter: string): string => `${JSON.stringify(letter.repeat(200 * 1024))}\n`;

describe("--producer", () => {
  beforeEach(() => hapax(["create", "orders"]));

  test.each([
    ["--epoch", "4"],
    ["--session", "n1"],
  ])(
    "other input under a number that was used fails with %s, and nothing of it is counted or stored",
    async (...identity) => {
      const words = ["--producer", "import", ...identity];
      await hapax(["append", "orders", '{"id":1}', ...words]);
      expect((await hapax(["append", "orders", '{"id":1}', ...words])).stdout).toMatch(/^already/);
      const other = await hapax(["append", "orders", '{"id":2}', ...words]);
      expect([other.code, other.stdout]).toEqual([1, ""]);
      expect(other.stderr).toContain("other content");
      const json = await hapax(["append", "orders", '{"id":2}', ...words, "--json"]);
      expect([json.code, json.stdout + json.stderr]).toEqual([
        1,
        expect.stringContaining('"code":"producer_seq_reused"'),
      ]);
      expect((await hapax(["read", "orders"])).stdout).toBe('{"id":1}\n');
    },
  );
});

describe("--key", () => {
  beforeEach(() => hapax(["create", "orders"]));

  test("the same key and input are stored once, and the replay tells the original offset", async () => {
    const words = ["append", "orders", '{"id":1}', "--key", 'order "1" \\ a'];
    expect((await hapax(words)).stdout).toBe(`appended 1 record, next offset ${offset(9)}\n`);
    await hapax(["append", "orders", '{"id":2}']);
    const again = await hapax(words);
    expect(again.stdout).toBe(`already stored 1 record, next offset ${offset(9)}\n`);
    expect(JSON.parse((await hapax([...words, "--json"])).stdout)).toEqual({
      records: 1,
      bytes: 8,
      requests: 1,
      knownRecords: 1,
      knownRequests: 1,
      nextOffset: offset(9),
      key: 'order "1" \\ a',
      closed: false,
    });
    expect(await readAll("orders")).toBe('{"id":1}\n{"id":2}\n');
  });

  test("the same key with other input is refused, and nothing is stored", async () => {
    await hapax(["append", "orders", "1", "--key", "k"]);
    const other = await hapax(["append", "orders", "2", "--key", "k"]);
    expect(other.code).toBe(1);
    expect(other.stderr).toContain("422 key_reused");
    expect(other.stderr).not.toContain("unknown");
    expect(await readAll("orders")).toBe("1\n");
  });

  test("a lost answer is asked for again under the key", async () => {
    const fetch = losing((nth) => nth < 3);
    const result = await hapax(["append", "orders", "--key", "k"], {
      stdin: ["1\n", "2\n"],
      fetch,
    });
    expect(result.stdout).toBe(`appended 2 records, next offset ${offset(4)}\n`);
    expect(await readAll("orders")).toBe("1\n2\n");
  });

  test("giving up says that the same command finishes it", async () => {
    const fetch = losing(() => true);
    const words = ["append", "orders", "1", "--key", "k", "--retry-seconds", "1"];
    const result = await hapax(words, { fetch });
    expect(result.code).toBe(3);
    expect(result.stderr).toContain("the same command with the same input\n");
    expect((await hapax(words)).stdout).toMatch(/^already stored 1 record/);
  });

  test("all lines are one request, far beyond the usual size of one", async () => {
    const posts: string[] = [];
    const fetch: typeof globalThis.fetch = (input, init) => {
      posts.push(init?.method ?? "");
      return globalThis.fetch(input, init);
    };
    const files = { f: large("a") + large("b") + large("c") };
    const result = await hapax(["append", "orders", "--file", "f", "--key", "k"], { files, fetch });
    expect(result.stdout).toMatch(/^appended 3 records/);
    expect(posts).toEqual(["HEAD", "POST"]);
  });

  test("input that needs several requests is refused before anything is sent", async () => {
    const files = { f: large("a").repeat(90) };
    const result = await hapax(["append", "orders", "--file", "f", "--key", "k"], { files });
    expect(result.code).toBe(2);
    expect(result.stderr).toContain("a key is for one");
    await hapax(["create", "log", "--content-type", "text/plain"]);
    expect((await hapax(["append", "log", "--file", "f", "--key", "k"], { files })).code).toBe(2);
    expect((await readAll("orders")) + (await readAll("log"))).toBe("");
  });

  test("no pause of the input cuts it", async () => {
    async function* halting(): AsyncGenerator<Uint8Array> {
      yield new TextEncoder().encode("1\n");
      for (let turn = 0; turn < 10; turn += 1) await new Promise((done) => setImmediate(done));
      yield new TextEncoder().encode("2\n");
    }
    const result = await hapax(["append", "orders", "--key", "k"], { stdin: halting() });
    expect(result.stdout).toMatch(/^appended 2 records/);
  });

  test("a close travels under the key, and its replay is one", async () => {
    const words = ["append", "orders", "1", "--key", "last", "--close"];
    expect((await hapax(words)).stdout).toMatch(/^appended 1 record, stream closed/);
    expect((await hapax(words)).stdout).toMatch(/^already stored 1 record, stream closed/);
  });

  test.each([
    ["--key", "k"],
    ["--if-match", offset(0)],
  ])("empty input with %s is not called a success", async (option, value) => {
    const result = await hapax(["append", "orders", option, value], { stdin: ["\n"] });
    expect(result).toMatchObject({ code: 2, stdout: "" });
    expect(result.stderr).toContain("the input is empty");
  });
});

describe("--if-match", () => {
  beforeEach(() => hapax(["create", "orders"]));

  test("the append is stored at the tail that it names, and only there", async () => {
    expect((await hapax(["append", "orders", "1", "--if-match", offset(0)])).code).toBe(0);
    const late = await hapax(["append", "orders", "2", "--if-match", offset(0)]);
    expect(late).toMatchObject({ code: 1, stdout: "" });
    expect(late.stderr).toBe(
      `hapax: the tail has moved: it is ${offset(2)}, not ${offset(0)}: /v1/stream/orders (412 tail_moved)\n` +
        `  see what was appended since: hapax read /v1/stream/orders --offset ${offset(0)}\n` +
        `  then decide again, and append with --if-match ${offset(2)}\n`,
    );
    const json = await hapax(["append", "orders", "2", "--if-match", offset(0), "--json"]);
    const { error } = JSON.parse(json.stderr) as { error: object };
    expect(error).toMatchObject({ code: "tail_moved", status: 412, tail: offset(2) });
    expect(await readAll("orders")).toBe("1\n");
  });

  test.each([
    [[]],
    [["--key", "k"]],
    [["--producer", "p"]],
    [["--producer", "p", "--session", "s"]],
  ])("a lost answer is no conflict with %j", async (options) => {
    const fetch = losing((nth) => nth === 1);
    const words = ["append", "orders", "1", "--if-match", offset(0), ...options];
    const result = await hapax(words, { fetch });
    expect(result.stdout).toBe(`appended 1 record, next offset ${offset(2)}\n`);
    expect(await readAll("orders")).toBe("1\n");
  });

  test("all requests of the input follow each other although every answer is lost once", async () => {
    const fetch = losing((nth) => nth % 2 === 1);
    const files = { f: large("a") + large("b") + large("c") };
    const words = ["append", "orders", "--file", "f", "--if-match", offset(0)];
    const named = [...words, "--producer", "p"];
    expect((await hapax(named, { files, fetch })).stdout).toMatch(/^appended 3 records/);
    expect(await readAll("orders")).toBe(files.f);
    expect((await hapax(named, { files })).stdout).toMatch(/^already stored 3 records/);
    expect((await hapax(words, { files })).code).toBe(1);
    expect(await readAll("orders")).toBe(files.f);
  });

  test("a foreign append in between ends it, and what is stored is said", async () => {
    const files = { f: large("a") + large("b") + large("c") };
    const words = ["append", "orders", "--file", "f", "--if-match", offset(0)];
    const fetch = before(2, () => hapax(["append", "orders", '"foreign"']));
    const result = await hapax(words, { files, fetch });
    expect(result.code).toBe(1);
    expect(result.stderr).toContain(`--offset ${offset(204_803)}\n`);
    expect(result.stderr).toContain("append the rest, from line 2 on, with another identity and");
    expect(result.stderr).toContain("stored before that: 1 record, up to line 1; nothing after\n");
    expect(await readAll("orders")).toBe(`${large("a")}"foreign"\n`);
  });

  test("a conflict after an attempt without an answer leaves nothing unknown", async () => {
    const fetch = before(1, async () => {
      await hapax(["append", "orders", '"foreign"']);
      throw new TypeError("the request is lost");
    });
    const words = ["append", "orders", "1", "--if-match", offset(0)];
    const result = await hapax(words, { fetch });
    expect(result.code).toBe(1);
    expect(result.stderr).toContain("trying POST again");
    expect(result.stderr).toContain("412 tail_moved");
    expect(result.stderr).not.toContain("unknown");
    expect(await readAll("orders")).toBe('"foreign"\n');
  });

  test("a run that was cut goes on at its own end, or not at all", async () => {
    const files = { f: large("a") + large("b") };
    const words = ["append", "orders", "--file", "f", "--if-match", offset(0), "--producer", "p"];
    const cut = [...words, "--retry-seconds", "0"];
    const first = await hapax(cut, { files, fetch: before(2, () => Promise.reject(new Error())) });
    expect(first.code).toBe(3);
    await hapax(["append", "orders", '"foreign"']);
    expect((await hapax(words, { files })).code).toBe(1);
    expect(await readAll("orders")).toBe(`${large("a")}"foreign"\n`);
  });

  test("an append that a server took without looking at the condition is no success", async () => {
    const fetch: typeof globalThis.fetch = async (input, init) => {
      const response = await globalThis.fetch(input, init);
      const headers = new Headers(response.headers);
      headers.delete("etag");
      return new Response(null, { status: response.status, headers });
    };
    const result = await hapax(["append", "orders", "1", "--if-match", offset(0)], { fetch });
    expect(result.code).toBe(1);
    expect(result.stderr).toContain("appended, but the server did not check --if-match");
  });
});

describe("sessions", () => {
  test("a new session takes over, and the old one is fenced", async () => {
    const append = (data: string, session: string) =>
      hapax(["append", "orders", data, "--producer", "till", "--session", session, "--json"]);
    await hapax(["create", "orders"]);
    expect(JSON.parse((await append("1", "first")).stdout)).toMatchObject({ epoch: 0 });
    expect(JSON.parse((await append("2", "second")).stdout)).toMatchObject({
      producerId: "till",
      session: "second",
      epoch: 1,
    });
    expect(JSON.parse((await append("2", "second")).stdout)).toMatchObject({ knownRecords: 1 });
    const fenced = await append("3", "first");
    expect(fenced.code).toBe(1);
    expect(fenced.stderr).toContain("to take over from it: a new --session");
    expect(await readAll("orders")).toBe("1\n2\n");
  });
});

describe("streams and producers", () => {
  test("create --if-absent creates once, and head shows the options of the keys", async () => {
    const words = ["create", "jobs/42", "--if-absent", "--key-window", "60", "--key-max", "5"];
    expect((await hapax(words)).code).toBe(0);
    const again = await hapax(words);
    expect(again.code).toBe(1);
    expect(again.stderr).toContain("there is a stream already: /v1/stream/jobs/42\n");
    const head = await hapax(["head", "jobs/42"]);
    expect(head.stdout).toContain("keys kept for  60 s\nkeys kept      at most 5\n");
  });

  test("a stream with --key-from content stores equal appends of other clients once", async () => {
    await hapax(["create", "events", "--key-from", "content"]);
    const url = `${server.url}/v1/stream/events`;
    const headers = { "content-type": "application/json" };
    for (let time = 0; time < 2; time += 1)
      await fetch(url, { method: "POST", headers, body: "1" });
    expect(await readAll("events")).toBe("1\n");
  });

  test("head --producer and producers tell how far a writer has come; a reset begins again", async () => {
    await hapax(["create", "a b"]);
    await hapax(["append", "a b", "1", "--producer", "till/7 ü", "--epoch", "4"]);
    await hapax(["append", "a b", "2", "--producer", "x", "--session", "s"]);
    const head = await hapax(["head", "a b", "--producer", "till/7 ü"]);
    expect(head.stdout).toMatch(
      /^producer +till\/7 ü\nepoch +4\nlast sequence +0\nstored up to +\S+2\n$/m,
    );
    expect((await hapax(["head", "a b", "--producer", "y"])).stdout).toMatch(
      /^producer +y: not known to the stream$/m,
    );
    expect((await hapax(["producers", "a b"])).stdout).toBe(
      "PRODUCER  EPOCH  LAST SEQUENCE  NEXT OFFSET                        SESSION\n" +
        `till/7 ü  4      0              ${offset(2)}  no\n` +
        `x         0      0              ${offset(4)}  yes\n`,
    );
    const reset = ["producers", `${server.url}/v1/stream/a%20b`, "--reset", "till/7 ü"];
    expect((await hapax(reset)).code).toBe(0);
    expect(audit.filter(({ act }) => act === "producer.reset")).toMatchObject([
      { target: "till/7 ü", details: { stream: "/v1/stream/a b", epoch: 4, sequence: 0 } },
    ]);
    const gone = await hapax(reset);
    expect(gone.code).toBe(4);
    expect(gone.stderr).toContain("404 producer_not_found");
    expect((await hapax(["append", "a b", "3", "--producer", "till/7 ü"])).code).toBe(0);
    expect(await readAll("a b")).toBe("1\n2\n3\n");
  });

  test("producers --new prints ids that differ, and an unknown stream is exit code 4", async () => {
    const first = (await hapax(["producers", "--new"])).stdout;
    const second = (await hapax(["producers", "--new"])).stdout;
    expect(first).toMatch(/^[0-9a-f]{32}\n$/);
    expect(second).toMatch(/^[0-9a-f]{32}\n$/);
    expect(first).not.toBe(second);
    expect((await hapax(["producers", "nowhere"])).code).toBe(4);
    await hapax(["create", "empty"]);
    expect(await hapax(["producers", "empty"])).toMatchObject({ code: 0, stdout: "" });
  });
});
