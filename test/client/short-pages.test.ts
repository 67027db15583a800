// Pages that a proxy shortens on their way, with a Content-Length that fits the shorter page.
import { DurableStreamTestServer } from "@durable-streams/server";
import { afterAll, beforeAll, expect, test } from "vitest";
import { connect } from "../../src/client/client.ts";
import { type NodeServer, startNodeServer } from "../../src/streams/runtimes/node.ts";

let server: NodeServer;
beforeAll(async () => {
  server = await startNodeServer({ store: "memory", port: 0 });
});
afterAll(() => server.stop());

const KINDS = [
  { contentType: "text/plain", data: ["one ", "two"], whole: "one two" },
  {
    contentType: "application/octet-stream",
    data: [Uint8Array.of(1, 2), Uint8Array.of(3)],
    whole: "1,2,3",
  },
  { contentType: "application/json", data: [[1, [2]], [[3]]], whole: "1,2,3" },
];

test.for(KINDS.map((kind) => [kind.contentType, kind] as const))(
  "a page of %s that was cut anywhere is asked for again",
  async ([, kind]) => {
    const url = `${server.url}/v1/stream/${kind.contentType}`;
    const plain = connect(url);
    await plain.create({ contentType: kind.contentType });
    for (const data of kind.data) await plain.append(data);
    const { length } = await plain.read().bytes();
    for (const live of [false, true]) {
      for (let kept = 0; kept < length; kept += 1) {
        let cuts = 0;
        const cutting: typeof fetch = async (input, init) => {
          const answer = await fetch(input, init);
          if (init?.method !== "GET" || cuts > 0) return answer;
          const bytes = new Uint8Array(await answer.arrayBuffer()).subarray(0, kept);
          cuts += 1;
          const headers = new Headers(answer.headers);
          headers.set("content-length", String(kept));
          return new Response(bytes, { status: answer.status, headers });
        };
        const told: string[] = [];
        const options = { onReconnect: ({ error }: { error: Error }) => told.push(error.message) };
        const stream = connect(url, { fetch: cutting, retry: { pauseMs: 1, pauseMsMax: 2 } });
        const records: unknown[] = [];
        if (live) {
          const batches = stream.follow({ ...options, live: "long-poll" }).batches();
          for await (const batch of batches) {
            records.push(...batch.records);
            if (batch.upToDate) break;
          }
        } else {
          records.push(...(await stream.read(options).values()));
        }
        const seen = records
          .flatMap((one) => (one instanceof Uint8Array ? [...one] : [one]))
          .flat(9);
        expect([kept, seen.join()]).toEqual([kept, kind.whole]);
        expect([kept, told]).toEqual([kept, ["page cut"]]);
      }
    }
  },
);

test("what has no bytes to compare is taken as it is: the tail, now, and an empty stream", async () => {
  const stream = connect(`${server.url}/v1/stream/edges`);
  await stream.create();
  const told: unknown[] = [];
  const onReconnect = (one: unknown): void => void told.push(one);
  expect(await stream.read({ onReconnect }).values()).toEqual([]);
  await stream.append({ n: 1 });
  const { offset } = await stream.head();
  expect(await stream.read({ from: offset, onReconnect }).values()).toEqual([]);
  expect(await stream.read({ from: "now", onReconnect }).values()).toEqual([]);
  expect(await stream.read({ onReconnect }).values()).toEqual([{ n: 1 }]);
  expect(told).toEqual([]);
});

test("a server that tells no lives is read from a position with one, and its offsets are not compared", async () => {
  const reference = new DurableStreamTestServer({ port: 0 });
  const stream = connect(`${await reference.start()}/v1/stream/moved`);
  await stream.create({ contentType: "application/json" });
  for (const n of [1, 2, 3]) await stream.append(n);
  const told: string[] = [];
  const reading = stream.read<number>({
    from: "-1/1-abcdefghij",
    patienceMs: 500,
    onReconnect: ({ error }) => told.push(error.message),
  });
  expect([await reading.values(), told]).toEqual([[1, 2, 3], []]);
  await reference.stop();
});

test("a page whose connection breaks is read again, also from a server that tells no lives", async () => {
  const head = { "Content-Type": "application/octet-stream", "Stream-Up-To-Date": "true" };
  const headers = { ...head, "Stream-Next-Offset": "1_3" };
  let calls = 0;
  const breaking: typeof fetch = () => {
    calls += 1;
    const body = new ReadableStream<Uint8Array>(
      {
        pull(controller) {
          if (calls > 1) {
            controller.enqueue(Uint8Array.of(1, 2, 3));
            controller.close();
          } else if (controller.desiredSize === 1) controller.enqueue(Uint8Array.of(1));
          else controller.error(new Error("the connection broke"));
        },
      },
      { highWaterMark: 2 },
    );
    return Promise.resolve(new Response(body, { headers }));
  };
  const options = { fetch: breaking, retry: { pauseMs: 1, pauseMsMax: 2 } };
  const stream = connect("http://stage.test/v1/stream/s", options);
  expect([...(await stream.read().bytes())]).toEqual([1, 2, 3]);
  expect(calls).toBe(2);
});
