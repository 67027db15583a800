import { afterEach, expect, test } from "vitest";

import { hapax, startServer, stopServers, type TestServer } from "../../test/kits/cli-harness.ts";

afterEach(stopServers);

const targets = (server: TestServer) =>
  server.received.map(({ method, url }) => `${method} ${url.pathname}${url.search}`);

/** Two producers on two pages. */
function startListing(): Promise<TestServer> {
  return startServer((request, response) => {
    const isFirst = request.url.searchParams.get("after") === null;
    const producer = isFirst
      ? { producerId: "import-7", epoch: 0, seq: 11, nextOffset: "0_20", session: false }
      : { producerId: "till\u001b", epoch: 3, seq: 0, session: true };
    const next = isFirst ? { next: "import-7" } : {};
    response.end(JSON.stringify({ producers: [producer], ...next }));
  });
}

test("producers follows its pages and prints a table that is harmless for the terminal", async () => {
  const server = await startListing();
  const result = await hapax(["producers", "a b", "--url", server.url]);
  expect(result.stdout).toBe(
    "PRODUCER  EPOCH  LAST SEQUENCE  NEXT OFFSET  SESSION\n" +
      "import-7  0      11             0_20         no\n" +
      "till\\x1b  3      0                           yes\n",
  );
  // The path is decoded, as in listings, and a value of the query.
  expect(targets(server)).toEqual([
    "GET /_hapax/producers?stream=%2Fv1%2Fstream%2Fa+b&limit=1000",
    "GET /_hapax/producers?stream=%2Fv1%2Fstream%2Fa+b&after=import-7&limit=1000",
  ]);
});

test("producers prints one JSON object a line", async () => {
  const server = await startListing();
  const result = await hapax(["producers", "orders", "--json", "--url", server.url]);
  const lines = result.stdout.trim().split("\n");
  expect(lines.map((line) => (JSON.parse(line) as { producerId: string }).producerId)).toEqual([
    "import-7",
    "till\u001b",
  ]);
});

test("a page that repeats itself ends the listing with a failure", async () => {
  const server = await startServer((_request, response) => {
    response.end(JSON.stringify({ producers: [], next: "p" }));
  });
  expect((await hapax(["producers", "orders", "--url", server.url])).code).toBe(1);
  expect(server.received).toHaveLength(2);
});

test("a full URL and a --url with a path lead to the server that has the stream", async () => {
  const server = await startListing();
  const words = ["--json", "--reset", "a/b?"];
  await hapax(["producers", `${server.url}/v1/stream/a%20b`, ...words]);
  await hapax(["producers", "orders", ...words, "--url", `${server.url}/proxy/`]);
  expect(targets(server)).toEqual([
    "DELETE /_hapax/producers/a%2Fb%3F?stream=%2Fv1%2Fstream%2Fa+b",
    "DELETE /proxy/_hapax/producers/a%2Fb%3F?stream=%2Fv1%2Fstream%2Forders",
  ]);
});

test("a reset asks at a terminal, and only there, and says what the rule is", async () => {
  const server = await startServer((_request, response) => response.writeHead(204).end());
  const words = ["producers", "orders", "--reset", "import-7", "--url", server.url];
  const questions: string[] = [];
  const onQuestion = (question: string): void => void questions.push(question);
  const no = await hapax(words, { isTerminal: true, answer: "n", onQuestion });
  expect(no).toMatchObject({ code: 1, stdout: "" });
  expect(server.received).toEqual([]);
  expect(questions[0]).toContain("Reset producer import-7 of /v1/stream/orders?");
  expect(questions[0]).toContain("only when none of its old writers runs");
  expect((await hapax(words, { isTerminal: true, answer: "y" })).code).toBe(0);
  expect((await hapax([...words, "--yes"], { isTerminal: true, onQuestion })).code).toBe(0);
  expect((await hapax(words, { onQuestion })).stdout).toBe(
    "reset producer import-7 of /v1/stream/orders; its next append has sequence 0\n",
  );
  expect(questions).toHaveLength(1);
  expect(server.received).toHaveLength(3);
});

test("a server without the route has another error than a server without the producer", async () => {
  const server = await startServer((_request, response) => response.writeHead(404).end());
  const result = await hapax(["producers", "--new", "--url", server.url]);
  expect(result.code).toBe(4);
  expect(result.stderr).toContain("/_hapax/producers is an extension of Hapax");
});

test("an answer that is not JSON is a failure and not a stack trace", async () => {
  const server = await startServer((_request, response) => response.end("<html>"));
  const result = await hapax(["producers", "orders", "--url", server.url]);
  expect(result.code).toBe(1);
  expect(result.stderr).toContain("does not answer as expected");
});
