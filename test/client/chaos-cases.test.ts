// Single cases of chaos over real sockets: each names the one request that meets something.
import { spawn } from "node:child_process";
import { afterEach, beforeAll, expect, test } from "vitest";
import {
  AppendFailure,
  type ClientOptions,
  connect,
  type Stream,
} from "../../src/client/client.ts";
import { startNodeServer } from "../../src/streams/runtimes/node.ts";
import { type FaultProxy, openFaultProxy } from "../../src/testing/testing.ts";
import type { ProxiedRequest } from "../../src/testing/fault-proxy.ts";
import type { FaultShares, ProxyFate } from "../../src/testing/fault-proxy.ts";

const PATH = "/v1/stream/s";
const QUICK: ClientOptions = { retry: { pauseMs: 1, pauseMsMax: 20 } };
const endings: (() => unknown)[] = [];

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

interface Stage {
  /** The stream, seen past the proxy. */
  readonly direct: Stream;
  readonly proxy: FaultProxy;
  /** The numbers of the batches that reached the proxy, in the order of their arrival. */
  readonly sequences: number[];
  connect(options?: ClientOptions): Stream;
  stored(): Promise<unknown[]>;
}

interface StageOptions extends FaultShares {
  readonly seed?: number;
  readonly bodyBytesMax?: number;
  /** What befalls a batch, by its number and by how often it has come; others are left alone. */
  readonly batch?: (sequence: number, time: number) => ProxyFate | undefined;
  readonly fateOf?: (request: ProxiedRequest) => ProxyFate | undefined;
}

async function open(options: StageOptions = {}): Promise<Stage> {
  const { bodyBytesMax, batch, fateOf, seed = 1, ...shares } = options;
  const server = await startNodeServer({
    store: "memory",
    port: 0,
    ...(bodyBytesMax === undefined ? {} : { bodyBytesMax }),
  });
  endings.push(() => server.stop());
  const sequences: number[] = [];
  const proxy = await openFaultProxy(server.url, {
    seed,
    ...shares,
    fateOf: (request) => {
      const header = request.headers["producer-seq"];
      if (header === undefined) return fateOf?.(request);
      const sequence = Number(header);
      sequences.push(sequence);
      const time = sequences.filter((one) => one === sequence).length;
      return batch?.(sequence, time) ?? fateOf?.(request);
    },
  });
  endings.push(() => proxy.close());
  const direct = connect(server.url + PATH);
  await direct.create();
  return {
    direct,
    proxy,
    sequences,
    connect: (client = QUICK) => connect(proxy.url + PATH, client),
    async stored() {
      const records: unknown[] = [];
      for await (const { value } of direct.read()) records.push(value);
      return records;
    },
  };
}

async function failureOf(promise: Promise<unknown>): Promise<AppendFailure> {
  const error = await promise.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  if (error instanceof AppendFailure) return error;
  throw new Error("no AppendFailure", { cause: error });
}

function numbers(count: number): number[] {
  return Array.from({ length: count }, (_, id) => id);
}

for (const harm of ["refuseRequests", "refuseAnswers"] as const) {
  test(`G19 over sockets one 503 on batch 1 of 5 (${harm}) loses nothing, and the batch comes again as it was`, async () => {
    const bodies = new Map<number, number>();
    const stage = await open({
      batch: (sequence, time) => {
        bodies.set(sequence, time);
        return sequence === 1 && time === 1 ? { harm, refusal: { status: 503 } } : {};
      },
    });
    const producer = stage.connect().producer({ batchRecordsMax: 4, inFlightMax: 5 });
    const records = numbers(20).map((id) => id + 10);
    for (const record of records) producer.append(record);
    await producer.flush();
    expect(await stage.stored()).toEqual(records);
    // Five numbers, and none was given to other records: the second batch came twice at least.
    expect([...bodies.keys()].toSorted((a, b) => a - b)).toEqual(numbers(5));
    expect(bodies.get(1)).toBeGreaterThan(1);
  });
}

test("over sockets fifty in flight with random lost answers keep their order", async () => {
  const shares = { dropAnswers: 0.15, dropRequests: 0.05, reorderRequests: 0.2, delayMsMax: 5 };
  const stage = await open({ seed: 50, ...shares });
  const producer = stage
    .connect({ ...QUICK, timeoutMs: 10_000 })
    .producer({ batchRecordsMax: 2, inFlightMax: 50 });
  let inFlightMax = 0;
  const sent = numbers(400).map((id) =>
    producer.send(id).then(() => (inFlightMax = Math.max(inFlightMax, producer.inFlightCount))),
  );
  await producer.flush();
  await Promise.all(sent);
  await stage.proxy.drain();
  expect(await stage.stored()).toEqual(numbers(400));
  expect(inFlightMax).toBeGreaterThan(40);
  expect(stage.proxy.droppedAnswers).toBeGreaterThan(15);
});

for (const harm of ["silenceRequests", "silenceAnswers"] as const) {
  test(`a half-open connection (${harm}) ends by the client's own time limit, and nothing is lost`, async () => {
    const stage = await open({
      batch: (_, time) => (time === 1 ? { harm } : {}),
    });
    const began = performance.now();
    const producer = stage.connect({ ...QUICK, timeoutMs: 150 }).producer({ batchRecordsMax: 5 });
    for (const id of numbers(10)) producer.append(id);
    await producer.flush();
    expect(performance.now() - began).toBeGreaterThanOrEqual(149);
    expect(await stage.stored()).toEqual(numbers(10));
    const { silencedRequests, silencedAnswers } = stage.proxy.counts;
    expect(silencedRequests + silencedAnswers).toBe(2);
  });

  test(`peers that stay half-open (${harm}) end the producer, and the outcome of what was sent is unknown`, async () => {
    const stage = await open({
      fateOf: ({ headers }) => (headers["producer-id"] === undefined ? {} : { harm }),
    });
    const retry = { pauseMs: 1, pauseMsMax: 5, totalMs: 300 };
    const producer = stage
      .connect({ timeoutMs: 100, retry })
      .producer({ batchRecordsMax: 5, inFlightMax: 1 });
    for (const id of numbers(10)) producer.append(id);
    const { code, unconfirmed } = await failureOf(producer.flush());
    expect(code).toBe("unreachable");
    expect(unconfirmed).toEqual(
      numbers(10).map((id) => ({
        data: id,
        outcome: id < 5 ? "unknown" : "not_stored",
        isCause: id < 5,
      })),
    );
    expect(await stage.stored()).toEqual(harm === "silenceAnswers" ? numbers(5) : []);
  });
}

for (const [status, harm, outcome] of [
  [502, "refuseAnswers", "unknown"],
  [429, "refuseRequests", "not_stored"],
] as const) {
  test(`a producer that hears nothing but ${String(status)} gives up, and its records are ${outcome}`, async () => {
    const stage = await open({
      fateOf: ({ headers }) =>
        headers["producer-seq"] === undefined ? {} : { harm, refusal: { status, retryAfter: "0" } },
    });
    const producer = stage
      .connect({ retry: { pauseMs: 1, pauseMsMax: 5, totalMs: 50 } })
      .producer({ inFlightMax: 1 });
    for (const id of numbers(3)) producer.append(id);
    const { unconfirmed } = await failureOf(producer.flush());
    expect(unconfirmed).toEqual(numbers(3).map((data) => ({ data, outcome, isCause: true })));
    expect(await stage.stored()).toEqual(status === 502 ? numbers(3) : []);
  });
}

for (const harm of [undefined, "cutAnswers"] as const) {
  const how = harm === undefined ? "whole" : "cut in its body";
  test(`over sockets a 413 whose answer is ${how} splits the batch, and the producer goes on`, async () => {
    const stage = await open({
      bodyBytesMax: 60,
      batch: (_, time) =>
        harm !== undefined && time === 1 ? { harm, passedShare: 0.3 } : undefined,
    });
    const producer = stage.connect().producer({ inFlightMax: 1, batchRecordsMax: 30 });
    for (const id of numbers(40)) producer.append(id);
    // The status says enough: a refusal whose words are cut is still this refusal.
    await producer.flush();
    expect(await stage.stored()).toEqual(numbers(40));
    for (const id of numbers(10)) producer.append(id + 40);
    await producer.flush();
    expect(await stage.stored()).toEqual(numbers(50));
  });
}

test("over sockets a closed stream hands back what came after the close, as not stored", async () => {
  const stage = await open({ dropAnswers: 0.3, seed: 3 });
  const producer = stage.connect().producer({ batchRecordsMax: 1 });
  for (const id of numbers(5)) producer.append(id);
  await producer.flush();
  await stage.direct.close("last");
  for (const id of numbers(5)) producer.append(id + 5);
  const { code, unconfirmed } = await failureOf(producer.flush());
  expect(code).toBe("stream_closed");
  expect(unconfirmed.map(({ data, outcome }) => [data, outcome])).toEqual(
    numbers(5).map((id) => [id + 5, "not_stored"]),
  );
  expect(await stage.stored()).toEqual([...numbers(5), "last"]);
});

test("a late copy of every append, after all the others, is not stored again", async () => {
  const stage = await open({
    fateOf: ({ method }) => (method === "POST" ? { copyAfterMs: 600_000 } : {}),
  });
  const stream = stage.connect();
  const producer = stream.producer({ batchRecordsMax: 2, inFlightMax: 3 });
  for (const id of numbers(12)) producer.append(id);
  await producer.flush();
  await stream.append("plain");
  await stream.append("keyed", { key: "once" });
  const before = await stage.stored();
  expect(before).toEqual([...numbers(12), "plain", "keyed"]);
  await stage.proxy.drain();
  expect(stage.proxy.counts.duplicatedRequests).toBeGreaterThanOrEqual(8);
  expect(await stage.stored()).toEqual(before);
});

test("a request that was cut in its body was not done, and is sent again whole", async () => {
  const stage = await open({
    batch: (_, time) => (time <= 2 ? { harm: "cutRequests", passedShare: 0.7 } : {}),
  });
  const stream = stage.connect();
  const receipt = await stream.append({ text: "x".repeat(1_000) });
  // It was stored by the third attempt, the first that arrived as a whole.
  expect(receipt.isDuplicate).toBe(false);
  expect(stage.sequences).toEqual([0, 0, 0]);
  expect(await stage.stored()).toEqual([{ text: "x".repeat(1_000) }]);
});

/** A process that writes one record after the other until it fails. */
const WRITER = `
  import { connect } from ${JSON.stringify(new URL("../../dist/client/client.js", import.meta.url).href)};
  const producer = connect(process.argv[1]).producer({ id: "writer", batchRecordsMax: 1, inFlightMax: 4 });
  try {
    for (let id = 0; ; id += 4) await Promise.all([0, 1, 2, 3].map((more) => producer.send(id + more)));
  } catch (error) {
    console.log(error.code, error.unconfirmed.map(({ outcome }) => outcome).join());
  }
`;

test("requests of a sleeping process, held by the network until another process took over, are not stored", async () => {
  const stage = await open({
    batch: (sequence) => (sequence >= 20 ? { delayMs: 600_000 } : {}),
  });
  const zombie = spawn(process.execPath, [
    "--input-type=module",
    "-e",
    WRITER,
    stage.proxy.url + PATH,
  ]);
  endings.push(() => zombie.kill("SIGKILL"));
  let output = "";
  zombie.stdout.setEncoding("utf8").on("data", (text: string) => (output += text));
  zombie.stderr.setEncoding("utf8").on("data", (text: string) => (output += text));
  const gone = new Promise((resolve) => zombie.once("close", resolve));
  while (stage.proxy.delayedRequests < 4) await new Promise((resolve) => setImmediate(resolve));
  zombie.kill("SIGSTOP");
  const heir = stage.direct.producer({ id: "writer" });
  for (const id of numbers(10)) heir.append({ heir: id });
  await heir.flush();
  const before = await stage.stored();
  expect(before).toEqual([...numbers(20), ...numbers(10).map((id) => ({ heir: id }))]);
  await stage.proxy.drain();
  expect(await stage.stored()).toEqual(before);
  zombie.kill("SIGCONT");
  await gone;
  expect(output).toBe("producer_fenced not_stored\n");
  expect(await stage.stored()).toEqual(before);
});

const QUESTION = ({ method, headers }: ProxiedRequest): boolean =>
  method === "POST" && headers["content-type"] === undefined;

test("an answer to the question what the server is says nothing of it if it was cut", async () => {
  let cuts = 0;
  const stage = await open({
    fateOf: (request) => {
      if (!QUESTION(request) || cuts > 0) return {};
      cuts += 1;
      return { harm: "cutAnswers", passedShare: 0.5 };
    },
  });
  const stream = stage.connect();
  await stream.append("keyed", { key: "once" });
  expect(await stage.stored()).toEqual(["keyed"]);
});

test("a failed question about the server's features throws its own error, not unsupported", async () => {
  const stage = await open({
    fateOf: (request) => (QUESTION(request) ? { harm: "refuseRequests" } : {}),
  });
  const retry = { pauseMs: 1, pauseMsMax: 5, totalMs: 50 };
  const appended = stage.connect({ retry }).append("keyed", { key: "once" });
  await expect(appended).rejects.not.toMatchObject({ code: "unsupported" });
  expect(await stage.stored()).toEqual([]);
});

test("a keyed append that gives up hands its data back, and says that its outcome is unknown", async () => {
  const stage = await open({
    fateOf: ({ headers }) =>
      headers["idempotency-key"] === undefined ? {} : { harm: "dropAnswers" },
  });
  const retry = { pauseMs: 1, pauseMsMax: 5, totalMs: 50 };
  const { code, unconfirmed } = await failureOf(
    stage.connect({ retry }).append("keyed", { key: "once" }),
  );
  expect(code).toBe("unreachable");
  expect(unconfirmed).toEqual([{ data: "keyed", outcome: "unknown", isCause: true }]);
  expect(await stage.stored()).toEqual(["keyed"]);
});

test("a late copy of a batch that came back behind a 413 does not take the number of another", async () => {
  const stage = await open({
    // Batch 1 is too large for a proxy on the way, so that batch 2 is a gap; the network keeps a copy of batch 2.
    batch: (sequence, time) => {
      if (sequence === 1 && time === 1) {
        return { harm: "refuseRequests", refusal: { status: 413 }, delayMs: 50 };
      }
      if (sequence !== 2) return {};
      return time === 1 ? { copyAfterMs: 600_000 } : { delayMs: 600_000 };
    },
  });
  const producer = stage
    .connect({ ...QUICK, timeoutMs: 1_500 })
    .producer({ batchRecordsMax: 4, inFlightMax: 2 });
  const records = numbers(16).map((id) => `${String(id + 10)}${"-".repeat(20)}`);
  await Promise.all(records.slice(0, 4).map((record) => producer.send(record)));
  const first = producer.send(records[4]);
  for (const record of records.slice(5)) producer.append(record);
  const flushed = producer.flush();
  // A number is taken by the first of the smaller batches; then the copy comes, before the next of them.
  await first;
  const release = setInterval(() => void stage.proxy.drain(), 20);
  endings.push(() => {
    clearInterval(release);
  });
  await flushed;
  await stage.proxy.drain();
  expect(await stage.stored()).toEqual(records);
});
