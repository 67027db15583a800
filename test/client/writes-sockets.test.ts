// Writers over real sockets: a network that loses things, and servers that are restarted.
import { spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeAll, expect, test } from "vitest";
import { connect } from "../../src/client/client.ts";
import { type NodeServer, startNodeServer } from "../../src/streams/runtimes/node.ts";
import { openFileStore } from "../../src/streams/stores/file.ts";
import { openFaultProxy } from "../../src/testing/testing.ts";

const PATH = "/v1/stream/s";
const endings: (() => Promise<unknown>)[] = [];

beforeAll(async () => {
  // A script without types; this is the part of it that is used.
  const prepare = (await import(new URL("../../scripts/prepare.mjs", import.meta.url).href)) as {
    buildIfNeeded: () => Promise<void>;
  };
  await prepare.buildIfNeeded();
}, 120_000);

afterEach(async () => {
  for (const end of endings.splice(0).toReversed()) await end();
});

async function storedAt(url: string): Promise<unknown[]> {
  const records: unknown[] = [];
  for await (const { value } of connect(url + PATH).read()) records.push(value);
  return records;
}

async function startServer(directory?: string, port = 0): Promise<NodeServer> {
  const store = directory === undefined ? "memory" : await openFileStore(directory);
  return startNodeServer({ port, store });
}

for (const seed of [1, 2, 3]) {
  test(`a producer behind a network that loses a tenth both ways stores each record once, seed ${String(seed)}`, async () => {
    const server = await startServer();
    endings.push(() => server.stop());
    await connect(server.url + PATH).create();
    const faults = { dropAnswers: 0.1, dropRequests: 0.1, delayRequests: 0.3 };
    const proxy = await openFaultProxy(server.url, { seed, ...faults });
    endings.push(() => proxy.close());
    const stream = connect(proxy.url + PATH, { retry: { pauseMs: 5, pauseMsMax: 50 } });
    const producer = stream.producer({ batchRecordsMax: 10, inFlightMax: 8 });
    const ids = Array.from({ length: 2_000 }, (_, id) => id);
    for (const id of ids) producer.append(id);
    await producer.flush();
    expect(await storedAt(server.url)).toEqual(ids);
    expect(proxy.droppedAnswers).toBeGreaterThan(5);
    expect(proxy.droppedRequests).toBeGreaterThan(5);
  });
}

test("a producer goes on over restarts of its server, without a gap and without a repetition", async () => {
  const directory = await mkdtemp(join(tmpdir(), "hapax-writes-"));
  endings.push(() => rm(directory, { recursive: true, force: true }));
  let server = await startServer(directory);
  endings.push(() => server.stop());
  const { url } = server;
  const stream = connect(url + PATH, { retry: { pauseMs: 5, pauseMsMax: 50 } });
  await stream.create();
  const producer = stream.producer({ id: "writer", batchRecordsMax: 5 });
  const ids = Array.from({ length: 1_000 }, (_, id) => id);
  let acknowledged = 0;
  for (let part = 0; part < 5; part += 1) {
    for (const id of ids.slice(part * 200, part * 200 + 200)) {
      producer.send(id).then(
        () => (acknowledged += 1),
        () => undefined,
      );
    }
    // In the middle of the part, not after it.
    while (acknowledged < part * 200 + 50) await producer.ready.then(() => turnOver());
    await server.stop();
    server = await startServer(directory, Number(new URL(url).port));
  }
  await producer.flush();
  expect(producer.epoch).toBe(0);
  expect(await storedAt(url)).toEqual(ids);
});

/** Lets sockets be served. */
function turnOver(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

test("plain appends of two handles over sockets are each stored once", async () => {
  const server = await startServer();
  endings.push(() => server.stop());
  await connect(server.url + PATH).create();
  const proxy = await openFaultProxy(server.url, { seed: 4, dropAnswers: 0.3 });
  endings.push(() => proxy.close());
  const handles = ["a", "b"].map((name) => ({
    name,
    stream: connect(proxy.url + PATH, { retry: { pauseMs: 5, pauseMsMax: 50 } }),
  }));
  const ids = Array.from({ length: 100 }, (_, id) => id);
  await Promise.all(
    handles.map(async ({ name, stream }) => {
      for (const id of ids) await stream.append({ name, id });
    }),
  );
  const stored = (await storedAt(server.url)) as { name: string; id: number }[];
  for (const { name } of handles) {
    expect(stored.filter((record) => record.name === name).map(({ id }) => id)).toEqual(ids);
  }
  expect(stored).toHaveLength(200);
  expect(proxy.droppedAnswers).toBeGreaterThan(20);
});

/** A process that writes one record after the other until it is stopped. */
const WRITER = `
  import { connect } from ${JSON.stringify(new URL("../../dist/client/client.js", import.meta.url).href)};
  const producer = connect(process.argv[1]).producer({ id: "writer", batchRecordsMax: 2 });
  try {
    for (let id = 0; ; id += 1) await Promise.all([producer.send({ id }), producer.ready]);
  } catch (error) {
    console.log(error.code, error.unconfirmed.map(({ outcome }) => outcome).join());
  }
`;

test("a process that sleeps while another takes over writes nothing when it wakes, and its append fails", async () => {
  const server = await startServer();
  endings.push(() => server.stop());
  const url = server.url + PATH;
  const stream = connect(url);
  await stream.create();
  const zombie = spawn(process.execPath, ["--input-type=module", "-e", WRITER, url]);
  endings.push(async () => {
    zombie.kill("SIGKILL");
    await Promise.resolve();
  });
  let output = "";
  zombie.stdout.setEncoding("utf8").on("data", (text: string) => (output += text));
  zombie.stderr.setEncoding("utf8").on("data", (text: string) => (output += text));
  const gone = new Promise((resolve) => zombie.once("close", resolve));
  while (((await stream.resume("writer"))?.sequence ?? 0) < 20) await turnOver();
  zombie.kill("SIGSTOP");
  const heir = stream.producer({ id: "writer" });
  for (let id = 0; id < 10; id += 1) heir.append({ heir: id });
  await heir.flush();
  const before = await storedAt(server.url);
  zombie.kill("SIGCONT");
  await gone;
  expect(output).toMatch(/^producer_fenced (not_stored|unknown)\n$/);
  expect(await storedAt(server.url)).toEqual(before);
  expect(before.slice(-10)).toEqual(Array.from({ length: 10 }, (_, id) => ({ heir: id })));
  expect(before.slice(0, -10)).toEqual(before.slice(0, -10).map((_, id) => ({ id })));
});
