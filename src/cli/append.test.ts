import { afterEach, describe, expect, test } from "vitest";

import { hapax, startServer, startStreamServer, stopServers } from "../../test/kits/cli-harness.ts";

afterEach(stopServers);

const identity = (request: { headers: Readonly<Record<string, unknown>> }) =>
  ["producer-id", "producer-epoch", "producer-seq"].map((name) => request.headers[name]).join("/");

describe("exactly once", () => {
  test("a lost answer is asked for again under the same identity, and stored once", async () => {
    const server = await startStreamServer((_request, nth, response) => {
      if (nth !== 1 && nth !== 3) return false;
      response.destroy();
      return true;
    });
    const lines = Array.from({ length: 20_000 }, (_, i) => `{"number":${String(i)}}\n`);
    const result = await hapax(["append", "orders", "--url", server.url], { stdin: lines });

    expect(result).toMatchObject({ code: 0 });
    expect(result.stdout).toBe("appended 20,000 records, next offset 0_2\n");
    const posts = server.received.filter((request) => request.method === "POST");
    expect(posts.map(identity)).toEqual([
      "hapax-0123456789abcdef/0/0",
      "hapax-0123456789abcdef/0/0",
      "hapax-0123456789abcdef/0/1",
      "hapax-0123456789abcdef/0/1",
    ]);
    expect(posts[0]?.body).toBe(posts[1]?.body);
    const stored = server.stored.flatMap((body) => JSON.parse(body) as { number: number }[]);
    expect(stored.map((record) => record.number)).toEqual(lines.map((_, i) => i));
  });

  test("an answer that is cut short counts as lost", async () => {
    const server = await startStreamServer((_request, nth, response) => {
      if (nth !== 1) return false;
      response.writeHead(200, { "content-length": "10" }).write("half");
      response.socket?.destroySoon();
      return true;
    });
    const result = await hapax(["append", "orders", "1", "--url", server.url]);
    expect(result.code).toBe(0);
    expect(server.stored).toEqual(["1"]);
    expect(server.received.map((request) => request.method)).toEqual(["HEAD", "POST", "POST"]);
    expect(result.stdout).toMatch(/^appended 1 record/);
  });

  test.each([408, 425, 429, 500, 503, 507])(
    "%i is tried again after Retry-After",
    async (status) => {
      const server = await startStreamServer((_request, nth, response) => {
        if (nth > 1) return false;
        response.writeHead(status, { "retry-after": "7" }).end();
        return true;
      });
      const result = await hapax(["append", "orders", "1", "--url", server.url]);
      expect(result.code).toBe(0);
      expect(result.waits).toEqual([7000]);
      expect(server.stored).toEqual(["1"]);
    },
  );

  test("giving up says what is stored, what is unknown, and how to finish", async () => {
    const server = await startStreamServer((_request, nth, response) => {
      if (nth === 1) return false;
      response.destroy();
      return true;
    });
    const line = JSON.stringify("x".repeat(200 * 1024));
    const words = ["append", "orders", "--file", "f", "--retry-seconds", "5", "--url", server.url];
    const result = await hapax(words, { files: { f: `${line}\n${line}\n` } });
    expect(result.code).toBe(3);
    expect(result.stderr).toContain("known to be stored: 1 record, up to line 1; unknown: the 1");
    expect(result.stderr).toContain("--producer hapax-0123456789abcdef");
    expect(result.waits.reduce((sum, ms) => sum + ms, 0)).toBeLessThanOrEqual(5000);
    expect(result.waits.length).toBeGreaterThan(3);
  });

  test("the same input under the same producer is recognised and not stored again", async () => {
    const server = await startStreamServer();
    const words = ["append", "orders", "--file", "f", "--producer", "import", "--url", server.url];
    const files = { f: '{"a":1}\n{"a":2}\n' };
    await hapax(words, { files });
    const again = await hapax(words, { files });
    expect(again.stdout).toMatch(/^already stored 2 records/);
    expect(server.stored).toEqual(['[{"a":1},{"a":2}]']);
  });

  test("under a named producer no pause cuts a batch", async () => {
    const server = await startStreamServer();
    async function* halting(): AsyncGenerator<Uint8Array> {
      yield new TextEncoder().encode("1\n");
      for (let turn = 0; turn < 10; turn += 1) await new Promise((done) => setImmediate(done));
      yield new TextEncoder().encode("2\n");
    }
    await hapax(["append", "a", "--url", server.url], { stdin: halting() });
    await hapax(["append", "a", "--producer", "p", "--url", server.url], { stdin: halting() });
    expect(server.stored).toEqual(["[1]", "[2]", "[1,2]"]);
  });

  test("Ctrl-C at a silent pipe ends with 130 and sends nothing more", async () => {
    const server = await startStreamServer();
    let interrupt = (): void => {};
    async function* silent(): AsyncGenerator<Uint8Array> {
      yield new TextEncoder().encode("1\n");
      setImmediate(() => {
        interrupt();
      });
      await new Promise(() => {});
    }
    const words = ["append", "orders", "--producer", "p", "--url", server.url];
    const result = await hapax(words, {
      stdin: silent(),
      onReady: (send) => {
        interrupt = () => {
          send("SIGINT");
        };
      },
    });
    expect(result.code).toBe(130);
    expect(server.stored).toEqual([]);
  });
});

describe("input", () => {
  test("--close closes with the last batch and not before", async () => {
    const server = await startStreamServer();
    const line = `${JSON.stringify("x".repeat(200 * 1024))}\n`;
    const words = ["append", "orders", "--close", "--url", server.url];
    const result = await hapax(words, { stdin: [line, line, line] });
    expect(result.stdout).toContain("stream closed");
    const posts = server.received.filter((request) => request.method === "POST");
    expect(posts.map((request) => request.headers["stream-closed"])).toEqual([
      undefined,
      undefined,
      "true",
    ]);
    expect(server.isClosed()).toBe(true);
  });

  test("--close without input is a close alone", async () => {
    const server = await startStreamServer();
    const result = await hapax(["append", "orders", "--close", "--url", server.url]);
    expect(result.code).toBe(0);
    expect(server.stored).toEqual([]);
    expect(server.isClosed()).toBe(true);
  });

  test("bytes go out as they are, in requests of at most 1 MiB", async () => {
    const server = await startStreamServer(undefined, "text/plain");
    const words = ["append", "log", "--url", server.url];
    await hapax(words, { stdin: ["a".repeat(1_500_000), "\n\nb"] });
    expect(server.stored.join("")).toBe(`${"a".repeat(1_500_000)}\n\nb`);
    expect(Math.max(...server.stored.map((body) => body.length))).toBe(1024 * 1024);
  });

  test("an array as an argument counts its elements and is sent as it is", async () => {
    const server = await startStreamServer();
    const result = await hapax(["append", "orders", "[1.0, 2]", "--url", server.url]);
    expect(result.stdout).toMatch(/^appended 2 records/);
    expect(server.stored).toEqual(["[1.0, 2]"]);
  });

  test.each([["oops"], ["[]"], ["{} {}"]])(
    "%s is refused before anything is sent",
    async (data) => {
      const server = await startStreamServer();
      const result = await hapax(["append", "orders", data, "--url", server.url]);
      expect(result.code).toBe(2);
      expect(server.received.filter((request) => request.method === "POST")).toEqual([]);
    },
  );

  test("--create makes a missing stream, and its type decides how the input is read", async () => {
    const server = await startServer((request, response) => {
      const headers = { "content-type": "text/plain", "stream-next-offset": "0_0" };
      const status = { HEAD: 404, PUT: 201, POST: 200 }[request.method] ?? 500;
      response.writeHead(status, request.method === "HEAD" ? {} : headers).end();
    });
    const words = ["append", "log", "not json", "--create", "--content-type", "text/plain"];
    const result = await hapax([...words, "--url", server.url]);
    expect(result.code).toBe(0);
    expect(server.received.map((request) => request.method)).toEqual(["HEAD", "PUT", "POST"]);
    expect(server.received[2]?.body).toBe("not json");
  });
});

describe("refusals", () => {
  test("the error of a fenced producer names the epoch that would take over", async () => {
    const server = await startStreamServer((_request, _nth, response) => {
      response.writeHead(403, { "producer-epoch": "4" }).end();
      return true;
    });
    const result = await hapax(["append", "orders", "1", "--url", server.url]);
    expect(result.code).toBe(1);
    expect(result.stderr).toContain("--epoch 5");
  });

  test("progress counts records on stderr when it is asked for", async () => {
    const server = await startStreamServer();
    const words = ["append", "orders", "--progress", "--url", server.url];
    const result = await hapax(words, { stdin: ["1\n2\n"] });
    expect(result.stderr).toMatch(/appended 2 records, 0\.0 MB/);
  });
});
