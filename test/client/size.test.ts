// What the client costs a web page.
import { relative } from "node:path";
import { fileURLToPath } from "node:url";
import { beforeAll, expect, test } from "vitest";
import {
  bundle,
  bundlePage,
  type Bundle,
  CLIENT_BYTES_MAX,
  PAGE_BYTES_MAX,
} from "../../scripts/size.mjs";

/** What the bundle has of other wings: ports and knowledge, never texts. */
const SHARED = [
  "base/aborts.ts",
  "base/backoff.ts",
  "base/bytes.ts",
  "base/clock.ts",
  "base/error-codes.ts",
  "base/pause.ts",
  "base/random.ts",
  "base/repeat.ts",
  "base/repeatable.ts",
  "base/options-check.ts",
  "protocol/limits.ts",
  "protocol/sse-decoder.ts",
];

let client: Bundle;
let page: Bundle;

beforeAll(async () => {
  client = await bundle("client/client.ts");
  page = await bundlePage();
}, 60_000);

test("a page that connects costs at most 13,480 bytes, minified and gzipped", () => {
  console.log(`a page: ${String(page.bytes)} of ${String(PAGE_BYTES_MAX)} bytes`);
  expect(PAGE_BYTES_MAX).toBe(13_480);
  expect(page.bytes).toBeLessThanOrEqual(PAGE_BYTES_MAX);
  // It is a client: what a page leaves out are positions, the visibility of documents, the owners of a cluster, and several streams
  // over one connection.
  expect(page.bytes).toBeGreaterThan(0.84 * client.bytes);
  for (const word of ["Producer-Seq", "text\\/event-stream", "long-poll"]) {
    expect(page.code).toContain(word);
  }
});

test("the whole client, minified and gzipped, is within its limit", () => {
  console.log(`hapax/client: ${String(client.bytes)} of ${String(CLIENT_BYTES_MAX)} bytes`);
  expect(client.bytes).toBeGreaterThan(5_000);
  expect(client.bytes).toBeLessThanOrEqual(CLIENT_BYTES_MAX);
});

test("the client's bundle has nothing of Node, of the server, and none of the texts of errors", () => {
  expect(client.imports).toEqual([]);
  const source = fileURLToPath(new URL("../../src", import.meta.url));
  const modules = client.modules.map((path) => relative(source, path).replaceAll("\\", "/"));
  const shared = modules.filter((path) => !path.startsWith("client/"));
  expect(new Set(shared)).toEqual(new Set(SHARED));
  expect(client.code).not.toContain("The stream is closed");
});

test("an error in a bundle has its code, status and advice, and names the document that has its texts", async () => {
  const url = `data:text/javascript;base64,${Buffer.from(client.code).toString("base64")}`;
  // The bundle as a browser would load it; its types are those of the entry point.
  const loaded = (await import(url)) as typeof import("../../src/client/client.ts");
  const answer = (status: number, type: string): Response =>
    new Response(JSON.stringify({ type, detail: "words" }), { status });
  const answers = [
    answer(409, "urn:hapax:error:stream_exists"),
    answer(500, "urn:hapax:error:data_damaged"),
    answer(404, "about:blank"),
  ];
  const seen: unknown[] = [];
  for (const one of answers) {
    const fetcher = (): Promise<Response> => Promise.resolve(one);
    const stream = loaded.connect("http://stage.test/s", { fetch: fetcher, retry: { totalMs: 0 } });
    const error: unknown = await stream.head().catch((thrown: unknown) => thrown);
    if (!loaded.isHapaxError(error)) throw error;
    seen.push([error.code, error.status, error.retry, error.help]);
  }
  expect(seen).toEqual([
    ["stream_exists", 409, "never", "See stream_exists in docs/errors.md."],
    ["data_damaged", 500, "never", "See data_damaged in docs/errors.md."],
    ["stream_not_found", 404, "never", "See stream_not_found in docs/errors.md."],
  ]);
});
