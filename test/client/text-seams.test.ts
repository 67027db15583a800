// Text whose writer cuts it anywhere, also inside of a character. PROTOCOL.md §7.3
import { afterAll, beforeAll, expect, test } from "vitest";
import { connect } from "../../src/client/client.ts";
import type { Stream } from "../../src/client/stream.ts";
import { LIMITS } from "../../src/protocol/limits.ts";
import { type NodeServer, startNodeServer } from "../../src/streams/runtimes/node.ts";

let server: NodeServer;
let streams = 0;
beforeAll(async () => {
  server = await startNodeServer({ store: "memory", port: 0 });
});
afterAll(() => server.stop());

async function openText(): Promise<Stream> {
  streams += 1;
  const stream = connect(`${server.url}/v1/stream/text-${String(streams)}`);
  await stream.create({ contentType: "text/plain; charset=utf-8" });
  return stream;
}

const TEXT = "a\u20acb\u{1f600}c\u00e9";
const BYTES = new TextEncoder().encode(TEXT);

test("a live reader gets each character whole, wherever its bytes were cut", async () => {
  const stream = await openText();
  const stop = new AbortController();
  const following = stream.follow<string>({ live: "long-poll", signal: stop.signal });
  const seen: { readonly text: string; readonly position: string }[] = [];
  const reading = (async () => {
    for await (const batch of following.batches()) {
      const [text] = batch.records;
      if (text !== undefined) seen.push({ text, position: batch.position });
    }
  })();
  // Every byte is an append of its own, and each is waited for.
  for (const byte of BYTES) {
    await stream.append(Uint8Array.of(byte));
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  await stream.close();
  await reading;
  expect(seen.map(({ text }) => text).join("")).toBe(TEXT);
  expect(seen.length).toBeGreaterThan(3);
  // A position never lies inside of a character: from each the rest is what was not seen yet.
  let rest = TEXT;
  for (const { text, position } of seen) {
    rest = rest.slice(text.length);
    expect((await stream.read<string>({ from: position }).values()).join("")).toBe(rest);
  }
});

test("pages of a reading are joined where one ends inside of a character", async () => {
  const stream = await openText();
  // Each append is a page of its own.
  const long = "x".repeat(LIMITS.pageBytesMax);
  const bytes = new TextEncoder().encode(`${long}\u20acb${long}`);
  const cut = LIMITS.pageBytesMax + 1;
  await stream.append(bytes.slice(0, cut));
  await stream.append(bytes.slice(cut));
  const pages: string[] = [];
  for await (const page of stream.read<string>().pages()) pages.push(...page.records);
  expect(pages.join("") === `${long}\u20acb${long}`).toBe(true);
});

test("what is not UTF-8 is held for one batch at most, and comes at the end of a reading", async () => {
  const stream = await openText();
  const latin = Uint8Array.of(0x61, 0xe9);
  const stop = new AbortController();
  const following = stream.follow<string>({ live: "long-poll", signal: stop.signal });
  let seen = "";
  const reading = (async () => {
    for await (const { value } of following) seen += value;
  })();
  for (let count = 0; count < 4; count += 1) {
    await stream.append(latin);
    expect((await stream.read<string>().values()).join("")).toBe("a\ufffd".repeat(count + 1));
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  await stream.close();
  await reading;
  expect(seen).toBe("a\ufffd".repeat(4));
});
