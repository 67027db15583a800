// The client in a real browser, on a page of another origin than the server.
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DurableStreamTestServer } from "@durable-streams/server";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { connect } from "../../src/client/client.ts";
import { type NodeServer, startNodeServer } from "../../src/streams/runtimes/node.ts";
import { openFileStore } from "../../src/streams/stores/file.ts";
import { openFaultProxy } from "../../src/testing/testing.ts";
import { type ClientPage, findChromium, openBrowser, type Stage } from "./browser-kit.ts";
import { requirePart } from "./runtimes-kit.ts";

const PATH = "/v1/stream/s";
const REASON = "no Chromium is installed, and it cannot be installed here: no browser was tested";
const endings: (() => Promise<unknown>)[] = [];
let stage: Stage | undefined;

const count = (length: number): number[] => Array.from({ length }, (_, id) => id);

beforeAll(async () => {
  const program = await findChromium();
  if (program !== undefined) stage = await openBrowser(program);
}, 300_000);

beforeEach((context) => {
  requirePart(context, stage, REASON);
});

afterEach(async () => {
  for (const end of endings.splice(0).toReversed()) await end();
});

afterAll(() => stage?.close());

async function openPage(): Promise<ClientPage> {
  if (stage === undefined) throw new Error(REASON);
  const page = await stage.openPage();
  endings.push(() => page.page.context().close());
  return page;
}

async function storedAt(url: string): Promise<unknown> {
  return (await fetch(`${url}?offset=-1`)).json();
}

async function startOurs(): Promise<string> {
  const server = await startNodeServer({ store: "memory", port: 0 });
  endings.push(() => server.stop());
  return server.url;
}

async function startTheirs(): Promise<string> {
  const server = new DurableStreamTestServer({ port: 0 });
  endings.push(() => server.stop());
  return server.start();
}

test.each([
  ["hapax", startOurs],
  ["@durable-streams/server", startTheirs],
] as const)(
  "from a page of another origin, over lost requests and answers, each record is stored once by %s",
  async (_name, start) => {
    const url = await start();
    const faults = { seed: 2, dropAnswers: 0.25, dropRequests: 0.1 };
    const proxy = await openFaultProxy(url, faults);
    endings.push(() => proxy.close());
    const { call, errors } = await openPage();
    const repetitions = await call("appendAll", proxy.url + PATH, 20, 50);
    expect(await storedAt(url + PATH)).toEqual(count(70));
    expect(repetitions).toBeGreaterThan(0);
    expect(proxy.droppedAnswers).toBeGreaterThan(5);
    expect(errors).toEqual([]);
  },
);

test("a page follows over a restart of the server, by events and by long-poll, each record once", async () => {
  const directory = await mkdtemp(join(tmpdir(), "hapax-browser-"));
  endings.push(() => rm(directory, { recursive: true, force: true }));
  const start = async (port: number): Promise<NodeServer> =>
    startNodeServer({ port, store: await openFileStore(directory, { segmentBytes: 1 << 20 }) });
  let server = await start(0);
  endings.push(() => server.stop());
  const { url } = server;
  const writer = connect(url + PATH, { retry: { pauseMs: 5, pauseMsMax: 50 } });
  await writer.create();
  const { call, errors } = await openPage();
  const ways = ["sse", "long-poll"] as const;
  for (const live of ways) await call("follow", live, url + PATH, live);
  for (const id of count(5)) await writer.append(id);
  for (const live of ways) await call("untilSeen", live, 5);
  await server.stop();
  for (const live of ways) await call("untilSeen", live, 5, 2);
  server = await start(Number(new URL(url).port));
  for (const id of count(5)) await writer.append(5 + id);
  for (const live of ways) await call("untilSeen", live, 10);
  await writer.close(10);
  for (const live of ways) expect(await call("untilClosed", live)).toEqual(count(11));
  expect(errors).toEqual([]);
});

test("a page that is loaded again goes on where it was, by its localStorage", async () => {
  const url = (await startOurs()) + PATH;
  const writer = connect(url);
  await writer.create();
  const { call, errors, page } = await openPage();
  let next = 0;
  for (const batch of [3, 2, 1]) {
    const ids = count(batch).map((id) => next + id);
    next += batch;
    for (const id of ids) await writer.append(id);
    const { offset } = await writer.head();
    expect(await call("catchUp", url, offset)).toEqual(ids);
    const kept = await page.evaluate(() => localStorage.getItem("orders"));
    expect(kept?.split("/")).toEqual([offset, expect.stringMatching(/./)]);
    await page.reload();
  }
  expect(errors).toEqual([]);
});
