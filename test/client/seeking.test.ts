// Reads that begin with the last records, or at a time. PROTOCOL.md §7.10, §7.11
import { setTimeout as pause } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { connect } from "../../src/client/client.ts";
import { type NodeServer, startNodeServer } from "../../src/streams/runtimes/node.ts";
import { hapax } from "../kits/cli-harness.ts";

let server: NodeServer;
let url: string;
beforeEach(async () => {
  server = await startNodeServer({ store: "memory", port: 0 });
  url = `${server.url}/v1/stream/numbers`;
});
afterEach(() => server.stop());

async function numbers(count: number, size = 0): Promise<ReturnType<typeof connect<number[]>>> {
  const stream = connect<number[]>(url);
  await stream.create();
  const producer = stream.producer();
  const rest = Array.from({ length: size }, () => 7);
  for (let n = 0; n < count; n += 1) void producer.send([n, ...rest]);
  await producer.flush();
  return stream;
}

const firsts = (records: readonly (readonly number[])[]): (number | undefined)[] =>
  records.map(([first]) => first);
const range = (from: number, to: number): number[] =>
  Array.from({ length: to - from }, (_, at) => from + at);

/** Loses the answer to every second request. */
function lossy(): typeof fetch {
  let count = 0;
  return async (input, init) => {
    const answer = await fetch(input, init);
    count += 1;
    if (count % 2 === 1) throw new TypeError("the answer is lost");
    return answer;
  };
}

describe("stream.last", () => {
  test("G150 returns any number of records, page by page and in order, over a bad network", async () => {
    // 3000 records of 2 KB are six pages.
    await numbers(3000, 1000);
    const stream = connect<number[]>(url, { fetch: lossy(), retry: { pauseMs: 1, pauseMsMax: 2 } });
    for (const count of [1, 2, 2999, 3000, 3001, 20_000]) {
      const seen = firsts(await stream.last(count));
      expect(seen).toEqual(range(Math.max(0, 3000 - count), 3000));
    }
    expect(await stream.last(0)).toEqual([]);
  });

  test("G150 leaves nothing out and repeats nothing while the stream grows", async () => {
    const stream = await numbers(1500, 1000);
    let isOver = false;
    const growing = (async () => {
      for (let n = 1500; !isOver; n += 1) await stream.append([n]);
    })();
    for (let round = 0; round < 20; round += 1) {
      const seen = firsts(await stream.last(1200));
      const newest = seen.at(-1) ?? 0;
      expect(seen).toEqual(range(newest - 1199, newest + 1));
    }
    isOver = true;
    await growing;
  });

  test("of text returns what the last appends hold", async () => {
    const stream = connect<string>(url);
    await stream.create({ contentType: "text/plain" });
    for (const text of ["one ", "two ", "three"]) await stream.append(text);
    expect(await stream.last(2)).toEqual(["two three"]);
  });

  test("rejects with unsupported for a server that passes over what it does not know", async () => {
    const other: typeof fetch = async () =>
      new Response("[1]", {
        headers: { "content-type": "application/json", "stream-next-offset": "0_9" },
      });
    const stream = connect(url, { fetch: other });
    await expect(stream.last(1)).rejects.toMatchObject({ code: "unsupported" });
    await expect(stream.read({ from: new Date() }).values()).rejects.toMatchObject({
      code: "unsupported",
    });
  });
});

describe("a reader", () => {
  test("begins with the last records, and then follows the stream", async () => {
    const stream = await numbers(50);
    const seen: (number | undefined)[] = [];
    for await (const { value } of stream.follow({ from: { last: 3 } })) {
      seen.push(value[0]);
      if (value[0] === 49) await stream.append([50]);
      if (value[0] === 50) await stream.close([51]);
    }
    expect(seen).toEqual([47, 48, 49, 50, 51]);
  });

  test("begins at a time, and each batch says where it begins", async () => {
    const stream = await numbers(2);
    await pause(20);
    const since = new Date();
    await pause(20);
    await stream.append([2]);
    const pages = [];
    for await (const page of stream.read({ from: since }).pages()) pages.push(page);
    expect(pages.map(({ records }) => firsts(records))).toEqual([[2]]);
    // Two records of four bytes come before it.
    expect(pages[0]?.offset).toBe("0000000000000000_0000000000000008");
    const all = await stream.read({ from: new Date(since.getTime() - 60_000) }).values();
    expect(firsts(all)).toEqual([0, 1, 2]);
  });
});

describe("the commands", () => {
  const lines = (text: string): string[] => text.split("\n").filter((line) => line !== "");

  test("hapax read --last prints the last records, also more than a page of them", async () => {
    await numbers(3000, 1000);
    const result = await hapax(["read", url, "--last", "2500"]);
    expect(result).toMatchObject({ code: 0, stderr: "" });
    const seen = lines(result.stdout).map((line) => (JSON.parse(line) as number[])[0]);
    expect(seen).toEqual(range(500, 3000));
    const few = await hapax(["read", url, "--last", "1", "--show-offset"]);
    expect(lines(few.stdout)).toHaveLength(1);
    const { offset } = await connect(url).head();
    expect(few.stderr).toBe(`next offset ${offset}\n`);
  });

  test("hapax read --since and hapax tail --last begin there", async () => {
    const stream = await numbers(3);
    expect(lines((await hapax(["read", url, "--since", "10m"])).stdout)).toHaveLength(3);
    const future = new Date(Date.now() + 3_600_000).toISOString();
    expect((await hapax(["read", url, "--since", future])).stdout).toBe("");
    await stream.close([3]);
    const tail = await hapax(["tail", url, "--last", "2"]);
    expect(tail).toMatchObject({ code: 0, stdout: "[2]\n[3]\n" });
  });

  test("wrong values, and two beginnings, are refused by name", async () => {
    await numbers(1);
    for (const [words, message] of [
      [["--since", "yesterday"], "--since"],
      [["--since", "10"], "--since"],
      [["--last", "0"], "--last"],
      [["--last", "1", "--since", "1m"], "--last and --since exclude each other"],
      [["--offset", "-1", "--last", "1"], "--offset and --last exclude each other"],
    ] as const) {
      const result = await hapax(["read", url, ...words]);
      expect(result).toMatchObject({ code: 2 });
      expect(result.stderr).toContain(message);
    }
  });
});
