import { afterEach, describe, expect, test } from "vitest";

import { hapax, startServer, stopServers, type TestServer } from "../../test/kits/cli-harness.ts";
import { COMMANDS } from "./commands.ts";

afterEach(stopServers);

const ESCAPE = "\u001b";

function answering(status: number, headers: Readonly<Record<string, string>> = {}, body = "") {
  return startServer((_request, response) => response.writeHead(status, headers).end(body));
}

const methodsAndPaths = (server: TestServer) =>
  server.received.map(({ method, url }) => `${method} ${url.pathname}`);

describe("something else at the address", () => {
  const page = { "content-type": "text/html; charset=utf-8" };

  test.each([
    ["read", 404],
    ["append", 404],
    ["create", 405],
    ["read", 200],
    ["head", 200],
  ] as const)("%s of a web page that answers %i says so", async (command, status) => {
    const server = await answering(status, page, "<h1>It works!</h1>");
    const data = command === "append" ? ["1"] : [];
    const result = await hapax([command, "orders", ...data, "--url", server.url]);
    expect(result.code).not.toBe(0);
    expect(result.stderr).toContain("not a Durable Streams server");
    expect(result.stderr).not.toContain("<h1>");
  });
});

describe("help", () => {
  test.each([[[]], [["help"]], [["--help"]], [["-h"]]])("%j lists every command", async (words) => {
    const result = await hapax(words);
    expect(result.code).toBe(0);
    for (const { name, summary } of COMMANDS) {
      expect(result.stdout).toMatch(new RegExp(`^  ${name} +${summary}$`, "m"));
    }
    expect(result.stdout).toContain("Exit codes");
  });

  test.each(COMMANDS.map(({ name }) => name))("%s explains itself in both ways", async (name) => {
    const byHelp = await hapax(["help", name]);
    const byFlag = await hapax([name, "--help"]);
    expect(byHelp.code).toBe(0);
    expect(byHelp.stdout).toBe(byFlag.stdout);
    expect(byHelp.stdout).toContain("Examples");
  });

  test("every option in an example is one that the command knows", () => {
    for (const command of COMMANDS) {
      for (const [, line] of command.examples) {
        const [, own = ""] = line.split("hapax ");
        for (const [, name] of own.matchAll(/ --([a-z-]+)/g)) {
          expect([...command.options.map((option) => option.name), "json"]).toContain(name);
        }
      }
    }
  });

  test("version answers the package's version", async () => {
    expect((await hapax(["version"])).stdout).toBe("hapax 1.2.3\n");
    expect((await hapax(["--version"])).stdout).toBe("hapax 1.2.3\n");
    expect((await hapax(["-v"])).stdout).toBe("hapax 1.2.3\n");
  });
});

describe("usage", () => {
  test.each([
    [["raed", "x"], "did you mean read?"],
    [["append", "x", "--prodcuer", "p"], "did you mean --producer?"],
    [["append"], "append needs <stream>"],
    [["read", "a", "b"], 'read does not take "b"'],
    [["read", "a", "--offset"], "--offset needs a value"],
    [["read", "a", "--offset", "--json"], "--offset needs a value"],
    [["read", "a", "--null=yes"], "--null is a switch"],
    [["read", "a", "--offset", "1", "--offset", "2"], "--offset was given 2 times"],
    [["read", "a", "--limit-bytes", "1.5"], "allowed: a whole number from 1"],
    [["read", "../etc"], "is not a stream"],
    [["read", ""], "is not a stream"],
    [["read", "a", "--url", "ftp://x"], "not http or https"],
    [["read", "http://me:secret@x/a"], "must not carry a password"],
    [["read", "a", "--header", "novalue"], "'Name: value'"],
    [["--port", "1", "serve"], "before the command"],
    [["create", "a", "--fork-offset", "1"], "need --fork-from"],
    [["create", "a", "--key-window", "0"], "allowed: a whole number from 1 to 31622400"],
    [["create", "a", "--key-max", "1e3"], "allowed: a whole number from 1 to 10000000"],
    [["create", "a", "--key-overflow", "drop"], "allowed: evict, reject"],
    [["create", "a", "--key-from", "header"], "allowed: content"],
    [["append", "a", "1", "--key", "k", "--producer", "p"], "--key and --producer exclude"],
    [["append", "a", "1", "--key", "k", "--session", "s"], "--key and --session exclude"],
    [["append", "a", "1", "--key", ""], "allowed: 1 to 255 characters from space to ~"],
    [["append", "a", "1", "--key", "ä"], "allowed: 1 to 255 characters from space to ~"],
    [["append", "a", "1", "--session", "s"], "--session needs --producer"],
    [["append", "a", "1", "--producer", "p", "--session", "s s"], "allowed: 1 to 64 letters"],
    [
      ["append", "a", "1", "--producer", "p", "--session", "s", "--epoch", "1"],
      "--session and --epoch exclude",
    ],
    [["append", "a", "1", "--producer", " p"], "no space at the ends"],
    [["append", "a", "1", "--producer", "p☃"], "printable Latin-1"],
    [["append", "a", "1", "--if-match", '"0_0"'], "allowed: an offset, without quotes"],
    [["head", "a", "--producer", ""], "--producer is empty"],
    [["producers"], "producers needs <stream>"],
    [["producers", "a", "--new"], "--new takes no stream"],
    [["producers", "a", "--reset", ".."], "no URL can name that id"],
  ])("%j is exit code 2 and says why", async (words, reason) => {
    const result = await hapax(words);
    expect(result).toMatchObject({ code: 2, stdout: "" });
    expect(result.stderr).toContain(reason);
  });

  test("an offset may start with a dash, and globals may stand before the command", async () => {
    const server = await answering(404);
    await hapax(["--url", server.url, "read", "orders", "--offset", "-1"]);
    expect(server.received[0]?.url.search).toBe("?offset=-1");
  });
});

describe("where requests go", () => {
  test("names, paths and URLs mean what the help says", async () => {
    const server = await answering(404);
    for (const stream of ["orders", "/other/x", "a b/50%", `${server.url}/v1/stream/a%20b`]) {
      await hapax(["head", stream], { env: { HAPAX_URL: server.url } });
    }
    expect(methodsAndPaths(server)).toEqual([
      "HEAD /v1/stream/orders",
      "HEAD /other/x",
      "HEAD /v1/stream/a%20b/50%25",
      "HEAD /v1/stream/a%20b",
    ]);
  });

  test("the token goes to the configured server and never to another one", async () => {
    const ours = await answering(404);
    const other = await answering(404);
    const env = { HAPAX_URL: ours.url, HAPAX_TOKEN: "secret" };
    await hapax(["head", "orders"], { env });
    await hapax(["head", `${other.url}/v1/stream/orders`, "--header", "X-Mine: 1"], { env });
    expect(ours.received[0]?.headers.authorization).toBe("Bearer secret");
    expect(other.received[0]?.headers.authorization).toBeUndefined();
    expect(other.received[0]?.headers["x-mine"]).toBe("1");
  });

  test("a redirect is shown and not followed", async () => {
    const other = await answering(200);
    const server = await answering(308, { location: other.url });
    const result = await hapax(["close", "orders", "--url", server.url]);
    expect(result.code).toBe(1);
    expect(result.stderr).toContain(other.url);
    expect(other.received).toEqual([]);
  });
});

describe("exit codes", () => {
  const problem = JSON.stringify({
    title: "The stream is closed",
    code: "stream_closed",
    detail: "cannot append\u001b[2J",
    help: "Use another stream.",
  });
  const type = { "content-type": "application/problem+json" };

  test("1 a refusal shows title, detail and help, harmless for the terminal", async () => {
    const server = await answering(409, type, problem);
    const result = await hapax(["close", "orders", "--url", server.url]);
    expect(result.code).toBe(1);
    expect(result.stderr).toBe(
      "hapax: The stream is closed (409 stream_closed): /v1/stream/orders\n" +
        "  cannot append\\x1b[2J\n  Use another stream.\n",
    );
  });

  test("1 with --json the refusal is one JSON line on stderr", async () => {
    const server = await answering(409, type, problem);
    const result = await hapax(["close", "orders", "--json", "--url", server.url]);
    const { error } = JSON.parse(result.stderr) as { error: object };
    expect(error).toMatchObject({ exitCode: 1, status: 409, code: "stream_closed" });
  });

  test("3 for a server that is not there, 4 for a stream that is not", async () => {
    const server = await answering(404, type);
    expect(await hapax(["head", "orders", "--url", server.url])).toMatchObject({
      code: 4,
      stderr: "hapax: No such stream (404): /v1/stream/orders\n",
    });
    await stopServers();
    const result = await hapax(["head", "orders", "--url", server.url]);
    expect(result.code).toBe(3);
    expect(result.stderr).toContain("ECONNREFUSED");
  });

  test("0 and silence when the reader of our output has gone", async () => {
    const result = await hapax(["help"], {
      onOutput: () => {
        throw Object.assign(new Error("gone"), { code: "EPIPE" });
      },
    });
    expect(result).toMatchObject({ code: 0, stderr: "" });
  });
});

describe("output", () => {
  const meta = {
    "content-type": "text/plain",
    "stream-next-offset": "0_7",
    "stream-closed": "true",
    "stream-ttl": "60",
  };

  test("colours are for terminals, and NO_COLOR and FORCE_COLOR decide before them", async () => {
    const server = await answering(200, meta);
    const head = async (isTerminal: boolean, env: Record<string, string>) => {
      const result = await hapax(["head", "orders", "--url", server.url], { isTerminal, env });
      return result.stdout.includes(ESCAPE);
    };
    expect(await head(false, {})).toBe(false);
    expect(await head(true, {})).toBe(true);
    expect(await head(true, { NO_COLOR: "1" })).toBe(false);
    expect(await head(false, { FORCE_COLOR: "1" })).toBe(true);
    expect((await hapax(["nonsense"])).stderr).not.toContain(ESCAPE);
  });

  test("head prints a table, and facts with --json", async () => {
    const server = await answering(200, meta);
    const words = ["head", "log", "--url", server.url];
    expect((await hapax(words)).stdout).toMatch(/^next offset {3}0_7$/m);
    expect(JSON.parse((await hapax([...words, "--json"])).stdout)).toEqual({
      path: "/v1/stream/log",
      contentType: "text/plain",
      nextOffset: "0_7",
      closed: true,
      ttlSeconds: 60,
    });
  });

  test("list follows its pages and aligns its columns", async () => {
    const server = await startServer((request, response) => {
      const isFirst = request.url.searchParams.get("after") === null;
      const path = isFirst ? "/v1/stream/a" : "/v1/stream/longer";
      const stream = { path, contentType: "text/plain", nextOffset: "0_1", closed: !isFirst };
      response.end(JSON.stringify({ streams: [stream], ...(isFirst ? { next: path } : {}) }));
    });
    const result = await hapax(["list", "a", "--url", server.url]);
    expect(result.stdout).toBe(
      "STREAM             CONTENT TYPE  NEXT OFFSET  STATE\n" +
        "/v1/stream/a       text/plain    0_1          open\n" +
        "/v1/stream/longer  text/plain    0_1          closed\n",
    );
    expect(server.received.map(({ url }) => url.search)).toEqual([
      "?prefix=%2Fv1%2Fstream%2Fa&limit=1000",
      "?prefix=%2Fv1%2Fstream%2Fa&after=%2Fv1%2Fstream%2Fa&limit=1000",
    ]);
  });

  test("create sends what it was told and says whether the stream is new", async () => {
    const server = await answering(201, { ...meta, location: "/x" });
    const words = ["create", "x", "--ttl", "60", "--closed", "--fork-from", "a b"];
    const result = await hapax([...words, "--url", server.url]);
    expect(result.stdout).toBe("created /v1/stream/x (text/plain), next offset 0_7\n");
    expect(server.received[0]?.headers).toMatchObject({
      "stream-ttl": "60",
      "stream-closed": "true",
      "stream-forked-from": "/v1/stream/a%20b",
    });
    expect(server.received[0]?.headers["content-type"]).toBeUndefined();
  });

  test("create and head speak of keys in the same words", async () => {
    const keys = {
      "stream-key-window": "60",
      "stream-key-max": "1000",
      "stream-key-overflow": "reject",
      "stream-key-from": "content",
    };
    const facts = { keyWindowSeconds: 60, keyMax: 1000, keyOverflow: "reject", keyFrom: "content" };
    const server = await answering(200, { ...meta, ...keys });
    const options = ["--key-window", "60", "--key-max", "1000", "--key-overflow", "reject"];
    const words = ["create", "x", ...options, "--key-from", "content", "--url", server.url];
    expect(JSON.parse((await hapax([...words, "--json"])).stdout)).toMatchObject(facts);
    expect(server.received[0]?.headers).toMatchObject(keys);
    const head = ["head", "x", "--url", server.url];
    expect(JSON.parse((await hapax([...head, "--json"])).stdout)).toMatchObject(facts);
    expect((await hapax(head)).stdout).toContain(
      "keys kept for  60 s\n" +
        "keys kept      at most 1,000\n" +
        "further keys   reject: the new one is refused\n" +
        "keys from      content\n",
    );
  });

  test.each([200, 412])(
    "create --if-absent takes %i for a stream that is there",
    async (status) => {
      const server = await answering(status, meta);
      const result = await hapax(["create", "x", "--if-absent", "--url", server.url]);
      expect(server.received[0]?.headers["if-none-match"]).toBe("*");
      expect(result).toMatchObject({ code: 1, stdout: "" });
      expect(result.stderr).toContain("not created: there is a stream already: /v1/stream/x\n");
      expect(result.stderr).toContain("its next offset is 0_7\n");
    },
  );

  test("delete asks at a terminal, and only there", async () => {
    const server = await answering(204);
    const words = ["delete", "orders", "--url", server.url];
    expect((await hapax(words, { isTerminal: true, answer: "n" })).code).toBe(1);
    expect(server.received).toEqual([]);
    expect((await hapax(words, { isTerminal: true, answer: "y" })).code).toBe(0);
    expect((await hapax([...words, "--yes"], { isTerminal: true })).code).toBe(0);
    expect((await hapax(words)).stdout).toBe("deleted /v1/stream/orders\n");
    expect(methodsAndPaths(server)).toHaveLength(3);
  });
});
