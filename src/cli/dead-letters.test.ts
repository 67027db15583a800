import { afterEach, beforeEach, expect, test } from "vitest";

import { hapax } from "../../test/kits/cli-harness.ts";
import { connectServer } from "../client/processing.ts";
import { JsonText } from "../client/records.ts";
import { envelopeOf } from "../client/processing/dead-letter.ts";
import { type NodeServer, startNodeServer } from "../streams/runtimes/node.ts";
import { createVirtualClock } from "../testing/virtual-clock.ts";

let server: NodeServer;
let runs = 0;
beforeEach(async () => {
  server = await startNodeServer({ store: "memory", port: 0 });
  const api = connectServer(server.url);
  await api.transaction((tx) => {
    for (const name of ["orders", "checked", "dead"]) tx.create(`/v1/stream/${name}`);
    tx.create("/v1/stream/photos", { contentType: "image/png" });
    tx.append("/v1/stream/dead", "no letter at all");
    tx.append("/v1/stream/dead", letter("orders", 0, { n: 1 }));
    tx.append("/v1/stream/dead", letter("orders", 1, { n: 2 }));
    tx.append("/v1/stream/dead", letter("photos", 0, new Uint8Array([1, 2, 255])));
  });
});
afterEach(() => server.stop());

function letter(name: string, index: number, record: unknown): unknown {
  const stream = `/v1/stream/${name}`;
  const id = `billing${stream}/0/${String(index)}`;
  const error = new TypeError("no\u001bnumber");
  const stored = record instanceof Uint8Array ? record : new JsonText(JSON.stringify(record));
  const facts = { id, stream, offset: "0", record: stored, error, attempts: 5 };
  return envelopeOf(facts, createVirtualClock(Date.UTC(2026, 0, 2)));
}

/** Each run is a process with ids of its own. */
const run = (words: readonly string[], id = `run-${String((runs += 1))}`) =>
  hapax(["dead-letters", ...words, "--url", server.url], { id });

const valuesOf = (name: string) =>
  connectServer(server.url).stream(`/v1/stream/${name}`).read().values();

test("dead-letters lists what is held, as a table and as JSON", async () => {
  const table = await run(["list", "dead"]);
  expect(table.stdout).toMatch(/^ID +FROM +KEY +ATTEMPTS +AT +FINGERPRINT +REASON\n/);
  expect(table.stdout.split("\n")[1]).toMatch(
    /^billing\/v1\/stream\/orders\/0\/0 +\/v1\/stream\/orders +5 +2026-01-02T00:00:00.000Z +[0-9a-f]{16} +TypeError: no\\x1bnumber$/,
  );
  const lines = (await run(["list", "dead", "--json"])).stdout.trim().split("\n");
  expect(lines.map((line) => JSON.parse(line) as unknown)).toMatchObject([
    { record: { n: 1 }, offset: "0", attempts: 5 },
    { record: { n: 2 }, reason: { message: "TypeError: no\u001bnumber" } },
    { from: "/v1/stream/photos", base64: "AQL/" },
  ]);
  const { fingerprint } = (JSON.parse(lines[0] ?? "") as { reason: { fingerprint: string } })
    .reason;
  const by = async (...words: string[]) => (await run(["list", "dead", ...words, "--json"])).stdout;
  expect((await by("--fingerprint", fingerprint)).trim().split("\n")).toHaveLength(3);
  expect(await by("--fingerprint", "0000000000000000")).toBe("");
  expect((await by("billing/v1/stream/orders/0/1")).trim().split("\n")).toHaveLength(1);
  expect((await run(["list", "dead", "--max", "2"])).stderr).toContain("the first 2 dead letters");
});

test("dead-letters replays a record to its stream once, however often it is run", async () => {
  const words = ["replay", "dead", "billing/v1/stream/orders/0/1"];
  expect(await run(words)).toMatchObject({
    code: 0,
    stdout: "replayed 1 dead letter of /v1/stream/dead\n",
  });
  expect((await run(words)).stdout).toBe("replayed 0 dead letters of /v1/stream/dead\n");
  expect(await valuesOf("orders")).toEqual([{ n: 2 }]);
  expect((await valuesOf("dead")).at(-1)).toMatchObject({
    id: "billing/v1/stream/orders/0/1",
    handled: "replayed",
    to: "/v1/stream/orders",
  });
});

test("two replays at once append every record once between them, also bytes", async () => {
  const all = ["replay", "dead", "--all"];
  const results = await Promise.all([run(all), run(all), run(all)]);
  expect(results.map(({ code }) => code)).toEqual([0, 0, 0]);
  expect(await valuesOf("orders")).toEqual([{ n: 1 }, { n: 2 }]);
  expect(await valuesOf("photos")).toEqual([new Uint8Array([1, 2, 255])]);
  expect((await run(["list", "dead"])).stderr).toBe("no dead letters of /v1/stream/dead\n");
});

test("dead-letters replays to another stream, and discards", async () => {
  const replayed = await run([
    "replay",
    "dead",
    "billing/v1/stream/orders/0/0",
    "--to",
    "checked",
    "--json",
  ]);
  expect(JSON.parse(replayed.stdout)).toEqual({ source: "/v1/stream/dead", replayed: 1 });
  expect(await valuesOf("checked")).toEqual([{ n: 1 }]);
  expect((await run(["discard", "dead", "--all"])).stdout).toBe(
    "discarded 2 dead letters of /v1/stream/dead\n",
  );
  expect(await valuesOf("orders")).toEqual([]);
  expect((await run(["replay", "dead", "--all"])).stdout).toContain("replayed 0 dead letters");
});

test("dead-letters says what is missing or contradicts itself, and what is not there", async () => {
  for (const [words, message] of [
    [["show", "dead"], 'unknown action "show"'],
    [["replay", "dead"], "replay needs ids, --key, --fingerprint, or --all"],
    [["discard", "dead", "x", "--all"], "exclude each other"],
    [["list", "dead", "--all"], "--all is for dead-letters replay, discard"],
    [["discard", "dead", "x", "--to", "orders"], "--to is for dead-letters replay"],
    [["list", "dead", "--key", "a"], "--key is for the dead letters of an outbox"],
    [["list", "dead", "--relay", "r"], "--relay is for the dead letters of an outbox"],
    [["replay", "dead", "x", "--to", "http://a/b"], "a stream of the same server"],
  ] as const) {
    const result = await run(words);
    expect(result.code).toBe(2);
    expect(result.stderr).toContain(message);
  }
  expect((await run(["list", "nothing"])).code).toBe(4);
  // The stream of the record is gone: nothing is noted.
  await connectServer(server.url).stream("/v1/stream/orders").delete();
  expect((await run(["replay", "dead", "billing/v1/stream/orders/0/0"])).code).toBe(4);
  expect((await run(["list", "dead"])).stdout).toContain("/orders/0/0");
});
