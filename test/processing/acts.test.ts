// Acts of administration whose answer is lost: the client repeats them, and the server does them once. PROTOCOL.md §12.7
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, expect, test } from "vitest";
import { startNodeServer } from "../../src/streams/runtimes/node.ts";
import { openFileStore } from "../../src/streams/stores/file.ts";
import { hapax as commandLine } from "../kits/cli-harness.ts";
import { fill, INPUT } from "./pipeline-kit.ts";
import { openStage, type ProcessingStage } from "./stage.ts";

const stages: ProcessingStage[] = [];
afterEach(async () => {
  await Promise.all(stages.splice(0).map((stage) => stage.close()));
});

/** A stage that loses the answer to the first request of this method to this path; `then` runs before the retry. */
async function losing(
  method: string,
  path: string,
  then: (stage: ProcessingStage) => Promise<void>,
): Promise<{ readonly stage: ProcessingStage; readonly meanwhile: () => Promise<void> }> {
  let count = 0;
  let meanwhile: Promise<void> | undefined;
  const stage: ProcessingStage = await openStage({
    fateOf: (request) => {
      if (request.method !== method || !request.path.startsWith(path)) return {};
      count += 1;
      if (count === 1) return { harm: "dropAnswers" };
      meanwhile ??= then(stage);
      return { delayMs: 200 };
    },
  });
  stages.push(stage);
  return { stage, meanwhile: async () => meanwhile };
}

const offsetOf = async (stage: ProcessingStage, group: string): Promise<string | undefined> =>
  (await stage.direct.group(group).describe()).cursors[0]?.offset;

/** Commits the stream to its tail, as a member does. */
async function commitAll(stage: ProcessingStage, group: string): Promise<void> {
  const consumer = stage.direct.consumer({ group, streams: [INPUT], start: "tail" });
  for await (const batch of consumer) {
    await batch.commit();
    break;
  }
  await consumer.close();
}

test("G35 a reset of a group whose answer is lost is done once: what was committed since stays", async () => {
  const { stage, meanwhile } = await losing("POST", "/_hapax/groups/g/reset", (one) =>
    commitAll(one, "g"),
  );
  await fill(stage.direct, INPUT, 3);
  await stage.direct.group("g").create({ streams: [INPUT], start: "tail" });
  const tail = await offsetOf(stage, "g");
  expect(await stage.connect().group("g").reset({ to: "beginning" })).toBe(1);
  await meanwhile();
  expect(await offsetOf(stage, "g")).toBe(tail);
});

test("G35 a deletion of a stream whose answer is lost leaves the one alone that is made meanwhile", async () => {
  const { stage, meanwhile } = await losing("DELETE", INPUT, (one) => fill(one.direct, INPUT, 2));
  await fill(stage.direct, INPUT, 3);
  await stage.connect().stream(INPUT).delete();
  await meanwhile();
  expect(await stage.direct.stream(INPUT).read().values()).toHaveLength(2);
});

test("G35 a deletion of a group whose answer is lost leaves the one alone that is made meanwhile", async () => {
  const again = (one: ProcessingStage): Promise<void> =>
    one.direct.group("g").create({ streams: [INPUT] });
  const { stage, meanwhile } = await losing("DELETE", "/_hapax/groups/g", again);
  await again(stage);
  await stage.connect().group("g").delete();
  await meanwhile();
  expect((await stage.direct.group("g").describe()).group).toBe("g");
});

test.for([
  ["delete", "in"],
  ["groups", "delete", "g"],
  ["groups", "reset", "g", "--to", "beginning"],
  ["producers", "in", "--reset", "p"],
] as const)("G35 the command %j repeats a lost answer under one key", async (words) => {
  const stage = await openStage();
  stages.push(stage);
  await fill(stage.direct, INPUT, 3);
  await stage.direct.group("g").create({ streams: [INPUT] });
  const headers = { "Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0" };
  const type = { "Content-Type": "application/json" };
  const init = { method: "POST", headers: { ...headers, ...type }, body: "1" };
  await fetch(stage.server.url + INPUT, init);
  const keys: (string | null)[] = [];
  const lossy: typeof fetch = async (input, options) => {
    const answer = await fetch(input, options);
    const key = new Headers(options?.headers).get("idempotency-key");
    if (key === null) return answer;
    keys.push(key);
    if (keys.length === 1) throw new TypeError("fetch failed");
    expect(answer.headers.get("idempotency-replayed")).toBe("true");
    return answer;
  };
  const env = { HAPAX_URL: stage.server.url };
  const result = await commandLine([...words], { env, fetch: lossy, id: crypto.randomUUID() });
  expect([result.code, keys.length, new Set(keys).size]).toEqual([0, 2, 1]);
});

test("G35 an act is known also after a restart of the server", async () => {
  const directory = mkdtempSync(join(tmpdir(), "hapax-acts-"));
  const headers = { "Idempotency-Key": "once" };
  const statuses: [number, string | null][] = [];
  for (let starts = 0; starts < 2; starts += 1) {
    const store = await openFileStore(directory);
    const server = await startNodeServer({ port: 0, store, onAudit: () => undefined });
    await fetch(server.url + INPUT, { method: "PUT" });
    const answer = await fetch(server.url + INPUT, { method: "DELETE", headers });
    statuses.push([answer.status, answer.headers.get("Idempotency-Replayed")]);
    const { status } = await fetch(server.url + INPUT, { method: "HEAD" });
    statuses.push([status, null]);
    await server.stop();
  }
  expect(statuses).toEqual([
    [204, null],
    [404, null],
    [204, "true"],
    [200, null],
  ]);
});
