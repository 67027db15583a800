import { afterEach, expect, test } from "vitest";

import { hapax, startServer, stopServers } from "../../test/kits/cli-harness.ts";

afterEach(stopServers);

/** Pages by the offset that asks for them; each leads to the next, and the last is the tail. */
async function startPages(contentType: string, pages: readonly (string | Uint8Array)[]) {
  return startServer((request, response) => {
    const offset = request.url.searchParams.get("offset") ?? "";
    const index = offset === "-1" ? 0 : Number(offset);
    const isLast = index === pages.length - 1;
    response
      .writeHead(200, {
        "content-type": contentType,
        "stream-next-offset": String(index + 1),
        ...(isLast ? { "stream-up-to-date": "true" } : {}),
      })
      .end(pages[index]);
  });
}

test("pages are followed to the tail, and each record keeps its exact bytes", async () => {
  const server = await startPages("application/json", ['[1.0,{"a" : 1e400}]', '["x"]', "[]"]);
  const result = await hapax(["read", "orders", "--show-offset", "--url", server.url]);
  expect(result).toMatchObject({ code: 0, stdout: '1.0\n{"a" : 1e400}\n"x"\n' });
  expect(result.stderr).toBe("next offset 3\n");
});

test("a record with line breaks is printed as it is, with a hint; --null needs none", async () => {
  const server = await startPages("application/json", ['[{"a":\n1},2]']);
  const plain = await hapax(["read", "orders", "--url", server.url]);
  expect(plain.stdout).toBe('{"a":\n1}\n2\n');
  expect(plain.stderr).toContain("--null");
  const safe = await hapax(["read", "orders", "--null", "--url", server.url]);
  expect(safe).toMatchObject({ stdout: '{"a":\n1}\u00002\u0000', stderr: "" });
});

test("--limit-bytes cuts bytes exactly and JSON after the record that reaches it", async () => {
  const bytes = await startPages("text/plain", ["abcdef", "ghi"]);
  const words = ["--limit-bytes", "7", "--show-offset", "--url"];
  const text = await hapax(["read", "log", ...words, bytes.url]);
  expect(text).toMatchObject({ stdout: "abcdefg", stderr: "next offset 1\n" });
  const json = await startPages("application/json", ["[111,222,333,444]"]);
  const records = await hapax(["read", "orders", ...words, json.url]);
  expect(records.stdout).toBe("111\n222\n333\n");
});

test("binary data is kept from a terminal unless it is forced", async () => {
  const server = await startPages("application/octet-stream", [Uint8Array.of(0, 1, 2)]);
  const words = ["read", "photo", "--url", server.url];
  const refused = await hapax(words, { isTerminal: true });
  expect(refused).toMatchObject({ code: 2, stdout: "" });
  expect(refused.stderr).toContain("--force");
  const forced = await hapax([...words, "--force"], { isTerminal: true });
  expect(forced.stdout).toBe("\u0000\u0001\u0002");
  expect((await hapax(words)).stdout).toBe("\u0000\u0001\u0002");
});

test("text of strangers cannot steer a terminal, and reaches a pipe unchanged", async () => {
  const server = await startPages("text/plain", ["a\u001b[2Jb\n"]);
  const words = ["read", "log", "--url", server.url];
  expect((await hapax(words, { isTerminal: true })).stdout).toBe("a\\x1b[2Jb\n");
  expect((await hapax(words)).stdout).toBe("a\u001b[2Jb\n");
});

test("a server whose offset does not advance is asked once", async () => {
  const server = await startServer((_request, response) => {
    response.writeHead(200, { "content-type": "text/plain", "stream-next-offset": "5" }).end();
  });
  const result = await hapax(["read", "log", "--offset", "5", "--url", server.url]);
  expect(result.code).toBe(1);
  expect(server.received).toHaveLength(1);
});

test("a page that is lost on the way is asked for again", async () => {
  let isLost = false;
  const server = await startServer((request, response) => {
    const isFirst = request.url.searchParams.get("offset") === "-1";
    if (!isFirst && !isLost) {
      isLost = true;
      response.destroy();
      return;
    }
    const tail: Record<string, string> = isFirst ? {} : { "stream-up-to-date": "true" };
    const next = { "stream-next-offset": isFirst ? "1" : "2" };
    response.writeHead(200, { "content-type": "text/plain", ...next, ...tail });
    response.end(isFirst ? "a" : "b");
  });
  const result = await hapax(["read", "log", "--url", server.url]);
  expect(result).toMatchObject({ code: 0, stdout: "ab" });
});
